"""Orthonormal bases of a few directions per mode, for algorithms that work on a small core.

Unlike `compression`, which keeps more directions than the rank so that a fit loses nothing, the
bases here have exactly the width asked for: the algebraic methods need a square core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, is_complex, like, to_host
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor

_OVERSAMPLING = 10
_ROUNDS = 2
# Up to this side LAPACK takes the singular vectors of an unfolding whole.
_EXACT = 256


@dataclass(frozen=True)
class Core:
    """A small dense tensor G and the bases U_n with T ~ G multiplied by U_n in every mode.

    Attributes
    ----------
    array : (r_1, ..., r_N) host array in double precision, T(conj U_1, ..., conj U_N)
    bases : per mode (d_n, r_n) with orthonormal columns, on the host; None for the identity
    """

    array: Any
    bases: tuple[Any, ...]

    def expand(self, factors: Sequence[Any]) -> tuple[Any, ...]:
        """Factors (r_n, rank) of the core as factors (d_n, rank) of the tensor."""
        return tuple(self.lift(factor, mode) for mode, factor in enumerate(factors))

    def lift(self, factor: Any, mode: int = 0) -> Any:
        """One factor (r, rank) of the core as that of the tensor."""
        basis = self.bases[mode]
        return factor if basis is None else basis @ factor


def core_of(
    tensor: Contractible, widths: Sequence[int], rng: np.random.Generator, symmetric: bool = False
) -> Core:
    """Project a tensor on the leading directions of its modes (higher-order orthogonal iteration).

    Everything goes through contractions, so that sparse and implicit tensors are never formed.

    Parameters
    ----------
    tensor : Contractible
    widths : directions to keep per mode; at most the dimension
    rng : draws the contractions through which a tensor that is not dense is first seen
    symmetric : bool, one basis serves all modes, and the core is symmetric
    """
    order = len(tensor.shape)
    modes = [0] if symmetric else list(range(order))
    open_modes = [m for m in modes if widths[m] < tensor.shape[m]]
    bases: list[Any] = [None] * order

    def assign(mode: int, basis: Any) -> None:
        for m in range(order) if symmetric else [mode]:
            bases[m] = basis

    first: dict[int, Any] = {m: _first_basis(tensor, m, widths[m], rng) for m in open_modes}
    for mode, basis in first.items():
        assign(mode, basis)
    for _ in range(_ROUNDS):
        for mode in open_modes:
            seen = _contract(tensor, [None if m == mode else bases[m] for m in range(order)])
            matrix = np.moveaxis(seen, mode, 0).reshape(tensor.shape[mode], -1)
            assign(mode, _leading(matrix, bases[mode], widths[mode]))
    return Core(_contract(tensor, bases), tuple(bases))


def _contract(tensor: Contractible, bases: Sequence[Any]) -> Any:
    reference = tensor.reference
    if isinstance(tensor, DenseTensor) and all(u is None for u in bases):
        return double(to_host(tensor.array))
    return double(
        to_host(tensor.contract(*(None if u is None else like(u.conj(), reference) for u in bases)))
    )


def _first_basis(tensor: Contractible, mode: int, width: int, rng: np.random.Generator) -> Any:
    """A basis of `width` directions that a mode is seen in."""
    dimension = tensor.shape[mode]
    if isinstance(tensor, DenseTensor):
        xp = tensor.namespace
        axes = (mode, *(m for m in range(tensor.array.ndim) if m != mode))
        matrix = xp.reshape(xp.permute_dims(tensor.array, axes), (dimension, -1))
        turned = xp.permute_dims(matrix, (1, 0))
        gram = double(to_host(matrix @ (xp.conj(turned) if is_complex(matrix) else turned)))
        _, vectors = np.linalg.eigh(gram)
        return np.ascontiguousarray(vectors[:, ::-1][:, :width])
    columns = min(dimension, width + _OVERSAMPLING)
    probes = [like(rng.standard_normal((d, columns)), tensor.reference) for d in tensor.shape]
    seen = double(to_host(tensor.mttkrp(probes, mode)))
    return np.linalg.svd(seen, full_matrices=False)[0][:, :width]


def _leading(matrix: Any, basis: Any, width: int) -> Any:
    """The leading left singular vectors of a matrix, starting from a basis where it is large."""
    if min(matrix.shape) > _EXACT:
        matrix_basis = np.linalg.qr(matrix @ (matrix.conj().T @ basis))[0]
        turn = np.linalg.svd(matrix_basis.conj().T @ matrix, full_matrices=False)[0]
        return matrix_basis @ turn
    left = np.linalg.svd(matrix, full_matrices=False)[0][:, :width]
    if left.shape[1] < width:  # fewer columns than directions: the rest is arbitrary
        filled = np.linalg.qr(np.hstack([left, basis]))[0]
        left = filled[:, :width]
    return left


def double(array: Array) -> Any:
    """A host array in double precision, complex where it was."""
    return np.asarray(array, dtype=np.complex128 if array.dtype.kind == "c" else np.float64)
