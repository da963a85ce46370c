"""What the algebraic methods for overcomplete symmetric tensors share: how they begin and end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import like, machine_epsilon, to_host
from latensor.decomposition.algorithms.shared_factor import SharedFactor
from latensor.decomposition.algorithms.symmetric import (
    exactly_symmetric,
    relative_residual,
    symmetric_cp,
)
from latensor.decomposition.auto.core import exact_residual
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.optimize.shared import shared_fit
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import as_problem
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor

# Rounds that bring all directions to about the same strength.
_ROUNDS = 4


def dense_symmetric(data: Contractible) -> Any:
    """The entries of a symmetric tensor on the host, in double precision, without asymmetry."""
    if not isinstance(data, DenseTensor) and not hasattr(data, "to_dense"):
        raise InvalidInputError(
            f"tensor is a {type(data).__name__}, whose entries cannot be formed: give an array"
        )
    array: Any = data.array if isinstance(data, DenseTensor) else data.to_dense()
    return exactly_symmetric(np.asarray(to_host(array), dtype=np.float64))


@dataclass(frozen=True, eq=False)
class Whitened:
    """A tensor in coordinates in which no direction is much stronger than another.

    Components that all lean to one side are close to parallel; in these coordinates they are not,
    and every method that looks for them converges as for random ones.

    Attributes
    ----------
    array : (q, ..., q) tensor of norm one, T(W, ..., W)
    unwhiten : (d, q), takes vectors back: the components of T are those of `array` times it
    """

    array: Any
    unwhiten: Any

    def directions(self, vectors: Any) -> Any:
        """(d, k) unit vectors from components (q, k) of `array`."""
        back = self.unwhiten @ vectors
        return back / np.maximum(np.linalg.norm(back, axis=0), 1e-300)


def whitened(array: Any, epsilon: float) -> Whitened:
    """Balance a symmetric tensor by the inverse fourth root of the Gram matrix of its unfolding."""
    dimension = array.shape[0]
    unfolding = array.reshape(dimension, -1)
    values, vectors = np.linalg.eigh(unfolding @ unfolding.T)
    kept = values > (10 * dimension * epsilon) ** 2 * values[-1]
    basis = vectors[:, kept]
    array, back = _turned(array, basis), basis
    for _ in range(_ROUNDS):
        unfolding = array.reshape(array.shape[0], -1)
        values, vectors = np.linalg.eigh(unfolding @ unfolding.T)
        values = np.maximum(values, (10 * dimension * epsilon) ** 2 * values[-1])
        root = values**0.25
        array = _turned(array, (vectors / root) @ vectors.T)
        back = back @ ((vectors * root) @ vectors.T)
        array /= np.linalg.norm(array)
    return Whitened(array, back)


def _turned(array: Any, matrix: Any) -> Any:
    for _ in range(array.ndim):
        array = np.tensordot(array, matrix, axes=(0, 0))
    return array


def finish(
    data: Contractible,
    directions: Any,
    rank: int,
    rng: np.random.Generator,
    callback: Callback | None,
    refine: int,
    method: str,
) -> Decomposition:
    """The result from directions (d, q): weights by least squares, then Levenberg-Marquardt.

    Parameters
    ----------
    data : symmetric tensor
    directions : (d, q) unit vectors, q at most `rank`; the others are drawn
    rank, rng, callback : as given
    refine : int, steps at most; none are made where only rounding is left
    method : str, the name of the algorithm
    """
    if not directions.shape[1]:
        directions = _drawn(rng, data.shape[0], rank)
    order, missing = len(data.shape), rank - directions.shape[1]
    found, _ = shared_fit(as_problem(data), directions.T).components(order)
    units = np.hstack([directions, _drawn(rng, data.shape[0], missing)])
    weights = np.concatenate([found, np.zeros(missing)])
    start = symmetric_cp(data.reference, weights, units, order)
    residual = relative_residual(data, start)
    if residual <= exact_residual(machine_epsilon(data.reference)) or refine < 1:
        status = Status.CONVERGED if refine else Status.MAX_ITER
        return Decomposition(start, residual, 0, status, np.zeros(0), method=method)
    factor = like(units, data.reference)
    result = SharedFactor(n_restarts=0, max_iter=refine)(
        data, rank, rng, callback, init=CPTensor(None, (factor,) * order)
    )
    return replace(result, method=method)


def _drawn(rng: np.random.Generator, dimension: int, count: int) -> Any:
    drawn = rng.standard_normal((dimension, count))
    return drawn / np.linalg.norm(drawn, axis=0)
