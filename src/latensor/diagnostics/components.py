"""CP tensors of any origin as unit columns on the host, where the diagnostics work.

All that is measured here depends on the components alone, so that arrays of any library are
brought to the host in double precision once and nothing is sent back but what the caller keeps.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor
from latensor.tensors.interoperability import from_pyttb, from_tensorly


@dataclass(frozen=True)
class Components:
    """Weights and unit columns of a CP tensor in double precision.

    Attributes
    ----------
    weights : (rank,) real or complex; they carry length and sign
    factors : one (d, rank) matrix of unit columns per mode; a zero column stays zero
    symmetric : bool, whether all modes share one factor
    """

    weights: Any
    factors: tuple[Any, ...]
    symmetric: bool

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.weights.shape[0])

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(f.shape[0]) for f in self.factors)

    @cached_property
    def magnitudes(self) -> Any:
        """(rank,) absolute weights: the Frobenius norms of the components."""
        return np.abs(self.weights)

    @cached_property
    def grams(self) -> tuple[Any, ...]:
        """Inner products of the unit columns, one (rank, rank) matrix per mode."""
        return tuple(f.conj().T @ f for f in self.factors)

    @cached_property
    def congruences(self) -> Any:
        """(rank, rank) inner products of the components scaled to unit norm, signs included."""
        safe = np.where(self.magnitudes > 0, self.magnitudes, 1.0)
        phases = self.weights / safe
        products = np.outer(phases.conj(), phases)
        for gram in self.grams:
            products = products * gram
        return products

    @cached_property
    def norm(self) -> float:
        """The Frobenius norm of the tensor."""
        square = np.outer(self.magnitudes, self.magnitudes) * self.congruences
        return float(np.sqrt(max(square.sum().real, 0.0)))


def as_cp(value: Any, name: str) -> CPTensor:
    """A CP tensor from what the caller brought.

    Parameters
    ----------
    value : CPTensor, Decomposition, TensorLy or pyttb CP tensor, or pair (weights, factors)
    name : str, what error messages call it
    """
    if isinstance(value, CPTensor):
        return value
    if isinstance(getattr(value, "tensor", None), CPTensor):
        return value.tensor  # type: ignore[no-any-return]
    converted: Any = None
    if hasattr(value, "factor_matrices"):
        converted = from_pyttb(value)
    elif hasattr(value, "weights") and hasattr(value, "factors"):
        converted = CPTensor(value.weights, tuple(value.factors))
    elif isinstance(value, list | tuple) and len(value) == 2:
        converted = from_tensorly(value)
    if isinstance(converted, CPTensor):
        return converted
    raise InvalidInputError(
        f"{name} must be a CPTensor, a Decomposition or a pair (weights, factors), "
        f"not {type(value).__name__}"
    )


def components_of(tensor: CPTensor, name: str) -> Components:
    """The components of a CP tensor on the host; NaN and infinity are refused."""
    weights = _widened(tensor.weights, f"{name}.weights")
    known: dict[int, tuple[Any, Any]] = {}
    units = []
    for mode, factor in enumerate(tensor.factors):
        if id(factor) not in known:
            known[id(factor)] = _unit(_widened(factor, f"{name}.factors[{mode}]"))
        unit, lengths = known[id(factor)]
        units.append(unit)
        weights = weights * lengths
    return Components(weights, tuple(units), tensor.is_symmetric and tensor.order > 1)


def _widened(array: Any, name: str) -> Any:
    refuse_nonfinite(array, name)
    host = to_host(array)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)


def _unit(columns: Any) -> tuple[Any, Any]:
    # Scaled by the largest entry first: squares of very large or small entries leave the range.
    scale = np.abs(columns).max(axis=0)
    safe = np.where(scale > 0, scale, 1.0)
    scaled = columns / safe
    lengths = np.linalg.norm(scaled, axis=0)
    return scaled / np.where(lengths > 0, lengths, 1.0), lengths * safe
