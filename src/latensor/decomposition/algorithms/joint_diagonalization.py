"""Joint diagonalization: all components of an orthogonal tensor at once, by Jacobi rotations."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.decomposition.algorithms.symmetric import (
    exactly_symmetric,
    rank_at_most,
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.result import Decomposition
from latensor.decomposition.subspace.core import core_of
from latensor.tensors.cp import CPTensor

_STARTS = 3


@dataclass(frozen=True, eq=False, repr=False)
class JointDecomposition(Decomposition):
    """An orthogonal decomposition, with how far the tensor was from having one.

    Attributes
    ----------
    off_diagonal : float, fraction of the squared norm of the slices (in the leading subspace) that
        no rotation brings to their diagonals: 0 for an orthogonally decomposable tensor; above
        about 0.15 the components of a whitened moment are rarely trustworthy
    history : (n_iter,) float array, the root of this fraction after every sweep
    """

    off_diagonal: float = 0.0


@dataclass(frozen=True)
class JointDiagonalization:
    """Decompose an (almost) orthogonally decomposable symmetric tensor, all components at once.

    For T = sum_j w_j v_j^(x)p with orthonormal v_j, every slice T(I, I, x, ...) is V diag(.) V'.
    Jacobi rotations find the V that makes all slices as diagonal as they can be together, which
    averages the noise of all of them: no restarts, no deflation, signs of the weights free. The
    default after whitening (monograph 3.4.3), where the power method is the monograph's choice.

    A tensor of order above 3 has its further modes merged: the slices are then replaced by the
    leading combinations of them.

    Parameters
    ----------
    n_slices : int, combinations of slices to diagonalize for order above 3; None for twice the
        rank, of which the first `rank` hold all the signal
    max_iter : int, sweeps over all pairs of coordinates
    """

    n_slices: int | None = None
    max_iter: int = 100

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> JointDecomposition:
        """Decompose a symmetric tensor of any kind, shape (d, ..., d), into `rank` <= d terms.

        Parameters
        ----------
        tensor : dense array of any library, or sparse, factored or implicit tensor; real
        rank : int, at most d
        rng : Generator, draws the combination of slices whose eigenvectors are the start
        callback : told after every sweep; may return True to stop
        """
        name = type(self).__name__
        data = symmetric_tensor(tensor, name)
        dimension, order = data.shape[0], len(data.shape)
        rank = rank_at_most(
            rank, dimension, name, f"orthogonal directions in dimension {dimension}"
        )
        max_iter = check_positive_int(self.max_iter, "max_iter")
        core = core_of(data, (rank,) * order, rng, symmetric=True)
        array = exactly_symmetric(core.array)
        slices = slices_of(array, self.n_slices)
        total = float(np.vdot(slices, slices))

        def assemble(state: Rotation) -> CPTensor:
            vectors = state.vectors.T
            return symmetric_cp(
                data.reference, diagonal_of(array, vectors), core.lift(vectors), order
            )

        monitor = Monitor(total, callback=callback)
        tol = _rounding(rank)
        rule = StoppingRule(tol, max_iter, floor=tol**2 * total)
        state, status = iterate(sweep, start_of(slices, rng), rule, monitor, assemble)
        model = assemble(state)
        return JointDecomposition(
            model,
            relative_residual(data, model),
            len(monitor.history),
            status,
            np.array(monitor.history),
            off_diagonal=state.loss / total if total > 0 else 0.0,
        )


@dataclass(frozen=True)
class Rotation:
    """Directions (rows of `vectors`), the rotated slices, packed, and their off-diagonal energy."""

    vectors: Any
    packed: Any
    loss: float


def start_of(slices: Any, rng: np.random.Generator) -> Rotation:
    """The eigenvectors of a random combination of (k, k, m) slices, the best of a few."""
    count = slices.shape[2]
    best: Rotation | None = None
    for _ in range(_STARTS):
        combination = slices @ rng.standard_normal(count)
        _, vectors = np.linalg.eigh((combination + combination.T) / 2)
        trial = rotated(slices, vectors)
        if best is None or trial.loss < best.loss:
            best = trial
    assert best is not None
    return best


@dataclass(frozen=True)
class Diagonalized:
    """What joint diagonalization makes of slices that are symmetric in their first two axes.

    Attributes
    ----------
    vectors : (k, k), orthonormal columns
    weights : (k,) T(v_j, v_j, v_j) where the slices are all those of a symmetric tensor T; else
        the norms of the diagonals
    off_diagonal : float, fraction of the squared norm left off the diagonals
    n_sweeps : int
    """

    vectors: Any
    weights: Any
    off_diagonal: float
    n_sweeps: int


def diagonalize(
    slices: Any,
    rng: np.random.Generator,
    *,
    start: Any = None,
    max_iter: int = 100,
    tol: float | None = None,
) -> Diagonalized:
    """Directions that make the slices (k, k, m) as diagonal as they can be together.

    The part of `JointDiagonalization` that has no tensor to rebuild, for cores that a model has
    whitened itself.

    Parameters
    ----------
    slices : (k, k, m) array, every slice symmetric
    rng : draws the combination of slices whose eigenvectors are the start
    start : (k, k) orthonormal columns to start from instead
    max_iter : int, sweeps over all pairs of coordinates
    tol : float, a sweep that lowers the off-diagonal energy by less than this fraction is the last;
        None for rounding: convergence is quadratic, so that the angles left are then far smaller
        than the noise that keeps the energy up
    """
    slices = np.asarray(slices, dtype=np.float64)
    size = slices.shape[0]
    total = float(np.vdot(slices, slices))
    state = start_of(slices, rng) if start is None else rotated(slices, start)
    floor = _rounding(size) ** 2 * total
    tol = _rounding(size) if tol is None else tol
    n_sweeps = 0
    while n_sweeps < max_iter and state.loss > floor:
        before = state.loss
        state = sweep(state)
        n_sweeps += 1
        if before - state.loss <= tol * before:
            break
    vectors = np.ascontiguousarray(state.vectors.T)
    if slices.shape[2] == size:
        weights = diagonal_of(slices, vectors)
    else:
        diagonals = np.einsum(
            "iam,ia->am", np.tensordot(slices, vectors, (1, 0)).transpose(0, 2, 1), vectors
        )
        weights = np.linalg.norm(diagonals, axis=1)
    return Diagonalized(vectors, weights, state.loss / total if total > 0 else 0.0, n_sweeps)


def _rounding(size: int) -> float:
    """The relative rounding error of the off-diagonal norm after a few sweeps."""
    return 16 * size * float(np.finfo(float).eps)


def rotated(slices: Any, vectors: Any) -> Rotation:
    """The slices (k, k, m) turned into the coordinates of orthonormal columns."""
    size = slices.shape[0]
    turned = np.tensordot(vectors, np.tensordot(slices, vectors, axes=(1, 0)), axes=(0, 0))
    packed = np.ascontiguousarray(turned.transpose(0, 2, 1)[np.triu_indices(size)])
    return Rotation(np.ascontiguousarray(vectors.T), packed, off_diagonal(packed, size))


def sweep(state: Rotation) -> Rotation:
    """One Jacobi rotation of every pair of directions; never raises the off-diagonal energy."""
    from latensor.decomposition.algorithms._kernels import jacobi_sweep

    vectors, packed = state.vectors.copy(), state.packed.copy()
    jacobi_sweep(packed, _places(len(vectors)), vectors)
    return Rotation(vectors, packed, off_diagonal(packed, vectors.shape[0]))


@lru_cache
def _places(size: int) -> Any:
    """(k, k) int64, which row of packed upper triangles holds entry (i, j)."""
    upper = np.triu_indices(size)
    places = np.zeros((size, size), np.int64)
    places[upper] = places.T[upper] = np.arange(len(upper[0]))
    return places


def off_diagonal(packed: Any, size: int) -> float:
    """The squared norm of all entries off the diagonals of packed symmetric matrices."""
    is_off = np.ones(len(packed), bool)
    is_off[_places(size).diagonal()] = False
    off = packed[is_off]
    return 2.0 * float(np.vdot(off, off))


def diagonal_of(core: Any, vectors: Any) -> Any:
    """The (rank,) values T(v_j, ..., v_j) of a symmetric core at the columns of a matrix."""
    image = core.reshape(-1, core.shape[-1]) @ vectors
    for _ in range(core.ndim - 1):
        image = image.reshape(-1, core.shape[0], vectors.shape[1])
        image = np.einsum("aij,ij->aj", image, vectors)
    return image.reshape(-1)


def slices_of(core: Any, n_slices: int | None) -> Any:
    """The slices (k, k, m) of a symmetric core; merged to their leading combinations above order 3.

    Rotating slices into one another changes neither their diagonals' energy nor the rest's, so
    that the leading combinations stand for all but the energy they leave out.
    """
    size = core.shape[0]
    if core.ndim == 3:
        return core
    matrix = core.reshape(size * size, -1)
    if matrix.shape[1] > matrix.shape[0]:
        matrix = np.asarray(np.linalg.qr(matrix.T, mode="r")).T
    count = 2 * size if n_slices is None else check_positive_int(n_slices, "n_slices")
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    count = min(count, values.size)
    return np.ascontiguousarray((left[:, :count] * values[:count]).reshape(size, size, count))
