"""Checks of what is contracted with a tensor: factors and operands against its modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, check_mode, describe, resolve
from latensor.exceptions import InvalidInputError


def check_factors(
    factors: object, shape: tuple[int, ...], mode: int | None, reference: Array
) -> tuple[int, list[Array | None]]:
    """Factors that fit a tensor, in its library and dtype; that of `mode` is not read.

    Parameters
    ----------
    factors : sequence with one (d, rank) matrix per mode
    shape : of the tensor
    mode : int, whose factor may be None or anything; None to need all
    reference : array whose library, device and dtype the factors must share

    Returns
    -------
    mode : int, not negative (0 where None was given)
    factors : list, with None in the place of `mode`
    """
    order = len(shape)
    skip = None if mode is None else check_mode(mode, order)
    if hasattr(factors, "factors"):
        raise InvalidInputError(
            "factors must be a sequence of matrices; of a CP tensor give cp.factors, "
            "and multiply the result by cp.weights where they matter"
        )
    if not isinstance(factors, Sequence):
        raise InvalidInputError(
            f"factors must be a sequence of {order} matrices, not {type(factors).__name__}"
        )
    if len(factors) != order:
        raise InvalidInputError(
            f"{len(factors)} factors given for a tensor of order {order} with shape {shape}: "
            "give one per mode"
        )
    named = {f"factors[{m}]": f for m, f in enumerate(factors) if m != skip}
    if order == 1 and skip is not None:
        # With no other mode the Khatri-Rao product is empty; only the rank is left to read.
        named = {"factors[0]": factors[0]}
        skip_value = None
    else:
        skip_value = skip
    for name, factor in named.items():
        if factor is None:
            raise InvalidInputError(f"{name} is None: a matrix is needed for this mode")
    _, arrays = resolve(tensor=reference, **named)
    rank: int | None = None
    given: list[Array | None] = []
    for m, dimension in enumerate(shape):
        if m == skip_value:
            given.append(None)
            continue
        array = arrays[f"factors[{m}]"]
        if array.ndim != 2:
            raise InvalidInputError(f"factors[{m}] must be a matrix, got {describe(array)}")
        if array.shape[0] != dimension:
            raise InvalidInputError(
                f"factors[{m}] has {array.shape[0]} rows, "
                f"but mode {m} of the tensor has dimension {dimension}"
            )
        if array.shape[1] == 0:
            raise InvalidInputError(f"factors[{m}] has no columns: the rank must be at least 1")
        if rank is not None and array.shape[1] != rank:
            listing = ", ".join(
                f"factors[{i}]: {arrays[f'factors[{i}]'].shape[1]}"
                for i in range(order)
                if i != skip_value
            )
            raise InvalidInputError(f"the factors differ in rank (columns): {listing}")
        rank = array.shape[1]
        given.append(array)
    return (0 if skip is None else skip), given


def check_replacement(mode: int, factor: object, current: Sequence[Array]) -> tuple[int, Array]:
    """A factor that may take the place of that of `mode` among the factors of a sweep."""
    mode = check_mode(mode, len(current))
    old = current[mode]
    expected = tuple(old.shape)
    plain = type(factor) is np.ndarray and type(old) is np.ndarray
    if plain and factor.shape == expected and factor.dtype == old.dtype:  # type: ignore[attr-defined]
        return mode, factor  # the way of every sweep, without asking for the library again
    array = resolve(factor=factor, factors=old)[1]["factor"]
    if tuple(array.shape) != expected:
        raise InvalidInputError(
            f"the factor of mode {mode} must have shape {expected}, got {describe(array)}"
        )
    return mode, array


def check_operands(
    operands: Sequence[object], shape: tuple[int, ...], reference: Array
) -> list[Array | None]:
    """Operands of T(A, B, C) that fit a tensor: None, a (d,) vector or a (d, k) matrix per mode."""
    if len(operands) != len(shape):
        raise InvalidInputError(
            f"{len(operands)} operands given for a tensor of order {len(shape)} with shape "
            f"{shape}: give one per mode, None to keep a mode"
        )
    named = {f"operands[{m}]": o for m, o in enumerate(operands) if o is not None}
    _, arrays = resolve(tensor=reference, **named)
    for name, array in arrays.items():
        if name == "tensor":
            continue
        mode = int(name[len("operands[") : -1])
        if array.ndim not in (1, 2):
            raise InvalidInputError(f"{name} must be a vector or a matrix, got {describe(array)}")
        if array.shape[0] != shape[mode]:
            raise InvalidInputError(
                f"{name} has {array.shape[0]} rows, "
                f"but mode {mode} of the tensor has dimension {shape[mode]}"
            )
        if array.ndim == 2 and array.shape[1] == 0:
            raise InvalidInputError(f"{name} has no columns")
    return [arrays.get(f"operands[{m}]") for m in range(len(shape))]


def resolve_sequence(items: tuple[Any, ...], name: str) -> tuple[Namespace, list[Array]]:
    """Arguments given one by one, or as one sequence, as arrays of one library."""
    if len(items) == 1 and isinstance(items[0], list | tuple):
        items = tuple(items[0])
    if not items:
        raise InvalidInputError(f"{name} is empty: give at least one array")
    if any(item is None for item in items):
        raise InvalidInputError(f"{name} holds None: every item must be an array")
    xp, arrays = resolve(**{f"{name}[{i}]": item for i, item in enumerate(items)})
    for label, array in arrays.items():
        if 0 in array.shape:
            raise InvalidInputError(f"{label} is empty: {describe(array)}")
    return xp, list(arrays.values())


def require_one_shape(items: Sequence[Array], name: str) -> None:
    """Refuse arrays of which one differs from the first in shape."""
    for i, item in enumerate(items):
        if item.shape != items[0].shape:
            raise InvalidInputError(
                f"{name}[{i}] has shape {tuple(item.shape)}, "
                f"but {name}[0] has {tuple(items[0].shape)}"
            )
