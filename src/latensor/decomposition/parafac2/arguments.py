"""What the caller of `parafac2` asked for, checked and on the host in double precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, describe, is_array, is_complex, resolve, to_host
from latensor.arrays.checks import check_mode, refuse_nonfinite
from latensor.decomposition.parafac2.sweeps import Factors
from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import is_contractible, require_dense
from latensor.tensors.parafac2 import Parafac2Tensor


@dataclass(frozen=True)
class Request:
    """Slices to be decomposed.

    Attributes
    ----------
    slices : (rows_i, columns) host arrays in double precision, divided by `scale`; zero where an
        entry is not observed
    masks : truth values of the same shapes, True where observed; None where all are
    scale : float, a power of two
    reference : array with the library, device and dtype of the caller's
    """

    slices: tuple[Any, ...]
    masks: tuple[Any, ...] | None
    scale: float
    reference: Array


def read_slices(slices: object, mask: object) -> Request:
    """A list of matrices with equally many columns, or a 3-way tensor, whose first mode counts."""
    given = _matrices(slices, "slices")
    _, arrays = resolve(**{f"slices[{i}]": x for i, x in enumerate(given)})
    items = list(arrays.values())
    if is_complex(items[0]):
        raise InvalidInputError("slices are complex, and parafac2 fits real ones: give real parts")
    for i, x in enumerate(items):
        if x.ndim != 2 or 0 in x.shape:
            raise InvalidInputError(
                f"slices[{i}] must be a matrix with rows and columns, got {describe(x)}"
            )
        if x.shape[1] != items[0].shape[1]:
            raise InvalidInputError(
                f"slices[{i}] has {x.shape[1]} columns, but slices[0] has {items[0].shape[1]}: "
                "only the rows may differ in number"
            )
    if isinstance(slices, Mapping) and isinstance(mask, Mapping):
        if set(mask) != set(slices):
            raise InvalidInputError("mask has other names than slices: give one for each of them")
        mask = [mask[name] for name in slices]
    masks = None if mask is None else _read_masks(mask, [tuple(x.shape) for x in items])
    hosts = [np.asarray(to_host(x), dtype=np.float64) for x in items]
    if masks is not None:
        hosts = [np.where(m, x, 0.0) for m, x in zip(masks, hosts, strict=True)]
    for i, x in enumerate(hosts):
        refuse_nonfinite(x, f"slices[{i}]")
    largest = max(float(np.abs(x).max()) for x in hosts)
    # A power of two, so that scaling changes no digit.
    scale = float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1)) if largest > 0 else 1.0
    scaled = tuple(np.ascontiguousarray(x / scale) for x in hosts)
    return Request(scaled, masks, scale, items[0])


def _matrices(value: Any, name: str) -> list[Any]:
    if isinstance(value, Parafac2Tensor):
        return value.slices()
    if is_contractible(value) or type(value).__module__.split(".")[0] in {"tensorly", "pyttb"}:
        value = require_dense(value, name, "parafac2").array
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        if not value:
            raise InvalidInputError(f"{name} is empty: give at least one matrix")
        return list(value)
    shape: tuple[int, ...] = tuple(getattr(value, "shape", ()))
    if (is_array(value) or hasattr(value, "__array__")) and len(shape) == 3 and 0 not in shape:
        return [value[i] for i in range(shape[0])]
    raise InvalidInputError(
        f"{name} must be a list of matrices or a tensor of order 3 with no empty mode, not "
        f"{type(value).__name__}{f' of shape {tuple(shape)}' if shape else ''}"
    )


def _read_masks(mask: object, shapes: Sequence[tuple[int, int]]) -> tuple[Any, ...] | None:
    """One array of truth values per slice; None where all entries are observed."""
    given = [np.asarray(to_host(m) if is_array(m) else m) for m in _matrices(mask, "mask")]
    if [m.shape for m in given] != list(shapes):
        raise InvalidInputError(
            f"mask has the shapes {[m.shape for m in given]}, but the slices {list(shapes)}"
        )
    for i, m in enumerate(given):
        if m.dtype.kind not in "biuf" or not np.isin(m, (0, 1)).all():
            raise InvalidInputError(f"mask[{i}] must hold truth values, True where observed")
    return None if all(m.all() for m in given) else tuple(m.astype(bool) for m in given)


def check_rank(rank: object, request: Request) -> int:
    """The number of components, at most the rows of the shortest slice."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise InvalidInputError(f"rank={rank!r} must be an integer of at least 1")
    heights = [x.shape[0] for x in request.slices]
    shortest = int(np.argmin(heights))
    if rank > heights[shortest]:
        raise InvalidInputError(
            f"rank={rank} exceeds the {heights[shortest]} rows of slices[{shortest}], whose "
            f"projection cannot have {rank} orthonormal columns: lower the rank or leave it out"
        )
    if request.masks is not None:
        observed = sum(int(m.sum()) for m in request.masks)
        columns, rank = request.slices[0].shape[1], int(rank)
        needed = rank * (len(heights) + columns + sum(heights) - 2)
        needed -= (len(heights) - 1) * rank * (rank + 1) // 2
        if observed < needed:
            raise InvalidInputError(
                f"mask leaves {observed} observed entries for the {needed} free parameters of "
                f"rank {rank}: at least as many are needed"
            )
    return int(rank)


def check_nonnegative(nonnegative: object) -> tuple[int, ...]:
    """The modes without negative numbers: 0 (slices) and 2 (columns)."""
    if isinstance(nonnegative, bool | np.bool_) or not isinstance(nonnegative, list | tuple | set):
        raise InvalidInputError(
            f"nonnegative={nonnegative!r} must list modes: 0 for A (slices), 2 for C (columns)"
        )
    modes = tuple(sorted({check_mode(mode, 3, "nonnegative") for mode in nonnegative}))
    if 1 in modes:
        raise InvalidInputError(
            "nonnegative=1 asks for row factors B_i = P_i B without negative numbers, which their "
            "constant cross product does not allow in general: give modes 0 and 2 only"
        )
    return modes


def read_init(init: Any, request: Request, rank: int) -> Factors:
    """The factors to start from: a Parafac2Tensor, a fit, or TensorLy's triple."""
    tensor = getattr(init, "tensor", init)
    try:
        weights, factors, projections = tensor
        given = Parafac2Tensor(weights, tuple(factors), tuple(projections))
    except (TypeError, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "init must be a Parafac2Tensor or a triple (weights, factors, projections), not "
            f"{type(init).__name__}"
        ) from None
    shapes = tuple(x.shape for x in request.slices)
    if given.shapes != shapes or given.rank != rank:
        raise InvalidInputError(
            f"init has {len(given.shapes)} slices of shapes {given.shapes} and rank {given.rank}, "
            f"but the slices have {shapes} and rank={rank} was asked for"
        )
    parts = [np.array(to_host(f), dtype=np.float64) for f in given.factors]
    for mode, part in enumerate(parts):
        refuse_nonfinite(part, f"init.factors[{mode}]")
    parts[0] = parts[0] * (np.asarray(to_host(given.weights), dtype=np.float64) / request.scale)
    return Factors(*(part[None] for part in parts))
