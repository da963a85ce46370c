"""Orthonormal bases of a few directions per mode, for algorithms that work on a small core.

Unlike `compression`, which keeps more directions than the rank so that a fit loses nothing, the
bases here have exactly the width asked for: the algebraic methods need a square core.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, like, resolve, to_host
from latensor.decomposition.subspace.compression import ROUNDS, oversampling
from latensor.decomposition.subspace.mode_directions import improved_directions, leading_directions
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor


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
            bases[m] = np.ascontiguousarray(basis)

    first: dict[int, Any] = {m: _first_basis(tensor, m, widths[m], rng) for m in open_modes}
    for mode, basis in first.items():
        assign(mode, basis)
    for _ in range(ROUNDS):
        for mode in open_modes:
            seen = _contract(tensor, [None if m == mode else bases[m] for m in range(order)])
            assign(mode, improved_directions(resolve(seen=seen)[0], seen, mode, bases[mode]))
    return Core(_contract(tensor, bases), tuple(bases))


def is_projection(squared_norm: float, left_out: float, epsilon: float) -> bool:
    """Whether a core leaves more of its tensor out than rounding explains.

    The best fit to such a core need not be one to the tensor: whether a fit has converged is then
    to be asked of the tensor.
    """
    return left_out > 100 * epsilon * squared_norm


def _contract(tensor: Contractible, bases: Sequence[Any]) -> Any:
    reference = tensor.reference
    if isinstance(tensor, DenseTensor) and all(u is None for u in bases):
        return double(to_host(tensor.array))
    return double(
        to_host(tensor.contract(*(None if u is None else like(u.conj(), reference) for u in bases)))
    )


def _first_basis(tensor: Contractible, mode: int, width: int, rng: np.random.Generator) -> Any:
    """A basis of `width` directions that a mode is seen in."""
    if isinstance(tensor, DenseTensor):
        found = leading_directions(tensor.namespace, tensor.array, mode, rank=width)
        return double(to_host(found.basis))
    columns = min(tensor.shape[mode], width + oversampling(width))
    probes = [like(rng.standard_normal((d, columns)), tensor.reference) for d in tensor.shape]
    seen = double(to_host(tensor.mttkrp(probes, mode)))
    return np.linalg.svd(seen, full_matrices=False)[0][:, :width]


def double(array: Array) -> Any:
    """A host array in double precision, complex where it was."""
    return np.asarray(array, dtype=np.complex128 if array.dtype.kind == "c" else np.float64)
