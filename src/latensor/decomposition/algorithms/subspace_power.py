"""The subspace power method: overcomplete symmetric tensors of order 4 (after monograph 7.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, machine_epsilon
from latensor.decomposition.algorithms.overcomplete import finish, whitened
from latensor.decomposition.algorithms.sym_squares import (
    flattened,
    fourth_order,
    matrices,
    squares,
)
from latensor.decomposition.algorithms.symmetric import symmetric_tensor
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.result import Decomposition

# Starts at a time: four for each component to find, and at most so many.
_PER_COMPONENT, _MOST = 4, 256
# A shift of the power step that makes it ascend, the change at which Gauss-Newton takes over, and
# how many steps of it.
_SHIFT, _NEAR, _GAUSS_NEWTON = 0.2, 1e-5, 8
# The squared distance of a a' from the subspace that rounding leaves, and what noise of relative
# size sigma adds: 30 k sigma^2 (k rank), as measured, at most so much.
_EXACT, _PER_NOISE, _LARGEST = 1e-18, 30.0, 0.3
# Cosine from which end points are the same.
_PARALLEL = 1 - 1e-7
_EMPTY_ROUNDS = 4


@dataclass(frozen=True)
class SubspacePower:
    """Decompose a symmetric tensor of order 4 with up to about 0.41 d^2 components.

    The range of the flattening M = sum_j w_j vec(a_j a_j') vec(a_j a_j')' holds vec(x x') exactly
    for x = +-a_j: there f(x) = |P vec(x x')|^2, P the projection on the range, reaches 1 on the
    sphere. Power steps from many random starts at once, then Gauss-Newton, find them; all that
    were found are deflated together, and the rest is looked for in the smaller range. The tensor is
    whitened first, so that components that lean to one side are found like others, and
    Levenberg-Marquardt on the tensor itself finishes.

    Weights may have any sign. The rank is found: components beyond it have weight zero.

    Parameters
    ----------
    max_iter : int, power steps per round
    refine : int, at most so many Levenberg-Marquardt steps at the end
    """

    max_iter: int = 300
    refine: int = 100

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a symmetric real tensor of order 4.

        Parameters
        ----------
        tensor : dense array of any library, or sparse or factored tensor
        rank : int, with k (k - 1) / 2 <= d^2 (d^2 - 1) / 12
        rng : Generator, draws the starts
        callback : told after every step of the end; may return True to stop
        """
        data = symmetric_tensor(tensor, type(self).__name__)
        array, rank = fourth_order(data, rank, type(self).__name__)
        max_iter = check_positive_int(self.max_iter, "max_iter")
        found = np.zeros((array.shape[0], 0))
        if array.any():
            found = find_directions(array, rank, rng, machine_epsilon(data.reference), max_iter)
        return finish(data, found, rank, rng, callback, self.refine, type(self).__name__)


def find_directions(
    array: Any, rank: int, rng: np.random.Generator, epsilon: float, max_iter: int = 300
) -> Any:
    """(d, q) unit vectors of the components of a symmetric tensor of order 4, q at most `rank`.

    Parameters
    ----------
    array : (d, d, d, d) float64, symmetric
    rank : int
    rng : draws the starts
    epsilon : float, precision of the entries
    max_iter : int, power steps per round
    """
    balanced = whitened(array, epsilon)
    values, vectors = np.linalg.eigh(flattened(balanced.array))
    order = np.argsort(-np.abs(values))
    largest = np.abs(values[order[0]])
    kept = order[:rank][np.abs(values[order[:rank]]) > 10 * len(values) * epsilon * largest]
    noise = float(np.sum(np.delete(values, kept) ** 2) / np.sum(values**2))
    limit = min(_EXACT + (epsilon / 1e-16) ** 2 * 1e-20 + _PER_NOISE * rank * noise, _LARGEST)
    basis, middle = vectors[:, kept], np.diag(values[kept])
    dimension = balanced.array.shape[0]
    found = np.zeros((dimension, 0))
    empty = 0
    while basis.shape[1] and empty < _EMPTY_ROUNDS:
        points = _ascend(basis, dimension, rng, max_iter)
        points, distances = _gauss_newton(basis, points)
        chosen = _distinct(points, distances, limit, basis.shape[1])
        if not len(chosen):
            empty += 1
            continue
        empty = 0
        found = np.hstack([found, points[:, chosen]])
        basis, middle = _deflated(basis, middle, points[:, chosen])
    return balanced.directions(found)


def _ascend(basis: Any, dimension: int, rng: np.random.Generator, max_iter: int) -> Any:
    """End points (d, n), no doubles, of power steps on f(x) = |V' vec(x x')|^2."""
    rank = basis.shape[1]
    count = min(_PER_COMPONENT * rank, _MOST)
    slices = matrices(basis, dimension).reshape(dimension**2, rank)
    points = rng.standard_normal((dimension, count))
    points /= np.linalg.norm(points, axis=0)
    active = np.arange(count)
    for _ in range(max_iter):
        x = points[:, active]
        inner = slices.T @ (x[:, None] * x[None]).reshape(dimension**2, -1)
        images = (slices @ inner).reshape(dimension, dimension, -1)
        moved = np.einsum("abn,bn->an", images, x) + _SHIFT * x
        moved /= np.linalg.norm(moved, axis=0)
        points[:, active] = moved
        active = active[np.linalg.norm(moved - x, axis=0) > _NEAR]
        if not active.size:
            break
    return points[:, _first_of_each(np.abs(points.T @ points) > _PARALLEL)]


def _first_of_each(same: Any) -> list[int]:
    kept: list[int] = []
    for one in range(len(same)):
        if not same[one, kept].any():
            kept.append(one)
    return kept


def _gauss_newton(basis: Any, points: Any) -> tuple[Any, Any]:
    """Points after steps on |(I - V V') vec(x x')|^2, and that squared distance."""
    dimension = points.shape[0]
    slices = matrices(basis, dimension)
    flat = slices.reshape(dimension**2, -1)
    identity = np.eye(dimension)
    for _ in range(_GAUSS_NEWTON):
        images = np.einsum("abr,bn->nar", slices, points, optimize=True)
        inner = flat.T @ (points[:, None] * points[None]).reshape(dimension**2, -1)
        gradient = points - np.einsum("nar,rn->an", images, inner)
        outer = points.T[:, :, None] * points.T[:, None, :]
        # The second term along x fixes the length, which the distance does not.
        hessian = identity + 2.0 * outer - 2.0 * images @ images.transpose(0, 2, 1)
        step = np.linalg.solve(hessian + 1e-13 * identity, gradient.T[:, :, None])[:, :, 0]
        points = points - step.T
        points = points / np.maximum(np.linalg.norm(points, axis=0), 1e-300)
    coordinates = squares(points)
    outside = coordinates - basis @ (basis.T @ coordinates)
    return points, np.sum(outside**2, axis=0)


def _distinct(points: Any, distances: Any, limit: float, most: int) -> list[int]:
    """Points near enough to the subspace, nearest first, without doubles."""
    chosen: list[int] = []
    for one in np.argsort(distances):
        if distances[one] > limit or len(chosen) == most:
            break
        if not (np.abs(points[:, chosen].T @ points[:, one]) > _PARALLEL).any():
            chosen.append(int(one))
    return chosen


def _deflated(basis: Any, middle: Any, vectors: Any) -> tuple[Any, Any]:
    """The range and the middle matrix of M without the components along some vectors.

    With M = V D V' and alpha = V' vec(a a'), M - sum_ij L_ij b_i b_j' loses as much rank as there
    are vectors for L = (alpha' D^-1 alpha)^-1, and its range is orthogonal to D^-1 alpha.
    """
    alpha = basis.T @ squares(vectors)
    images = np.linalg.solve(middle, alpha)
    weights = np.linalg.pinv(alpha.T @ images)
    rest = np.linalg.qr(images, mode="complete")[0][:, images.shape[1] :]
    smaller = rest.T @ (middle - alpha @ weights @ alpha.T) @ rest
    return basis @ rest, (smaller + smaller.T) / 2
