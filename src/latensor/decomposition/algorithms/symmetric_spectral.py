"""The whole chain for symmetric tensors: whiten, diagonalize, unwhiten, finish (monograph 3.4-3.5).

`whitening` and `decomposition` may not import each other; what is needed of whitening here is an
eigendecomposition of one small matrix, so that the chain stands with the algorithms.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, machine_epsilon
from latensor.decomposition.algorithms.joint_diagonalization import slices_of, start_of, sweep
from latensor.decomposition.algorithms.pencils import separate
from latensor.decomposition.algorithms.symmetric import (
    completed,
    exactly_symmetric,
    rank_at_most,
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.auto.automatic import Automatic
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.symmetric_newton import SymmetricCore, SymmetricPoint
from latensor.decomposition.optimize.symmetric_sweeps import SymmetricSweeps
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.subspace.core import core_of
from latensor.tensors.cp import CPTensor

_JACOBI_SWEEPS = 100
_JACOBI_TOLERANCE = 1e-13
# Above this rank the dense normal equations of the finish cost more than all else.
_LARGEST_NEWTON = 48
# Up to this rank every start is given a few of its steps before the best is chosen.
_SMALL_NEWTON = 20
_TRIAL_STEPS = 15
# Squared residual, relative to the tensor, below which nothing is left to look for; and the
# relative difference of two starts that found the same optimum.
_EXACT = 1e-16
_AGREE = 1e-3


@dataclass(frozen=True)
class SymmetricSpectral:
    """Decompose a symmetric tensor with independent, not orthogonal, components; no second moment.

    Whitening turns independent components into orthogonal ones, given a matrix
    M = sum_j m_j a_j a_j' with positive m_j. The monograph takes M = T(I, I, x) for a random x,
    whose m_j = w_j a_j'x have mixed signs: the whitened components are then orthogonal only in an
    indefinite inner product, and neither the power method nor Jacobi rotations find them. A
    combination of slices with all m_j > 0 always exists. Here generalized eigenvectors of slices
    give a first estimate of the a_j; with z_j dual to them (a_i'z_j = 0 for i other than j),
    M = sum_j s_j T(I, I, z_j, ...), s_j the sign of T(z_j, ..., z_j), is close to
    sum_j |w_j| a_j a_j'. The tensor is whitened by it, diagonalized with all its slices, and the
    result, unwhitened, gives the next z_j. A few Levenberg-Marquardt steps end at the
    least-squares fit.

    Parameters
    ----------
    n_pencils : int, random pencils to choose the first estimate from
    n_rounds : int, times to whiten and diagonalize
    n_starts : int, attempts with other pencils, of which the best fit is kept; an exact fit ends
        them at once, as do two that agree where `refine` follows, and there the fit of the tensor
        without its symmetry is one of them, the last for rank above 20
    refine : int, at most so many steps of the finish: Levenberg-Marquardt, and alternating least
        squares for rank above 48; 0 for none
    tol : float, relative decrease of the squared residual that counts as progress in `refine`
    """

    n_pencils: int = 5
    n_rounds: int = 2
    n_starts: int = 5
    refine: int = 50
    tol: float = 1e-8

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a symmetric tensor of order 3 or more into `rank` <= d components.

        Parameters
        ----------
        tensor : dense array of any library, or sparse, factored or implicit tensor; real
        rank : int, at most the dimension
        rng : Generator, draws the pencils
        callback : told after every round and every step; may return True to stop
        """
        name = type(self).__name__
        data = symmetric_tensor(tensor, name)
        dimension, order = data.shape[0], len(data.shape)
        rank = rank_at_most(
            rank, dimension, name, f"independent directions in dimension {dimension}"
        )
        check_positive_int(self.n_pencils, "n_pencils")
        reduced = core_of(data, (rank,) * order, rng, symmetric=True)
        array = exactly_symmetric(reduced.array)
        squared_norm = float(data.norm()) ** 2
        base = max(squared_norm - float(np.vdot(array, array)), 0.0)
        monitor = Monitor(squared_norm, callback=callback, base=base)
        inside = _supported(array, machine_epsilon(data.reference))
        core = SymmetricCore(_restricted(array, inside))

        def assemble(point: SymmetricPoint) -> CPTensor:
            lengths = np.linalg.norm(point.vectors, axis=0)
            units = inside @ (point.vectors / np.maximum(lengths, 1e-300))
            weights = np.zeros(rank)
            weights[: lengths.size] = point.signs * lengths**order
            vectors = reduced.lift(completed(units, rank))
            return symmetric_cp(data.reference, weights, vectors, order)

        status = Status.CONVERGED
        if inside.shape[1] == 0:
            point = SymmetricPoint(np.zeros((0, 0)), np.zeros(0), 0.0)
        else:
            floor = (100 * rank * np.finfo(float).eps) ** 2 * squared_norm
            point, status = self._solve(core, rng, monitor, assemble, floor)
        model = assemble(point)
        history = np.array(monitor.history)
        return Decomposition(model, relative_residual(data, model), len(history), status, history)

    def _solve(
        self,
        core: SymmetricCore,
        rng: np.random.Generator,
        monitor: Monitor,
        assemble: Any,
        floor: float,
    ) -> tuple[SymmetricPoint, Status]:
        point, ended = None, None
        for trial in self._trials(core, rng, floor):
            agree = False
            if point is not None and self.refine:
                agree = abs(point.loss - trial.loss) < _AGREE * point.loss
            if point is None or trial.loss < point.loss:
                point = trial
            ended = monitor.record(point.loss, lambda p=point: assemble(p))  # type: ignore[misc]
            if ended is not None or agree or point.loss <= _EXACT * monitor.squared_norm:
                break
        assert point is not None
        if ended is not None:
            return point, ended
        rule = StoppingRule(self.tol, self.refine, patience=2, floor=floor)
        if self.refine and point.vectors.shape[1] <= _LARGEST_NEWTON and point.loss > floor:
            point, ended = iterate(core.step, point, rule, monitor, assemble)
        elif self.refine and point.loss > floor:
            point, ended = self._sweep(core, point, rule, monitor, assemble)
        if ended is None or ended is Status.CONVERGED:
            done = core.converged(point, self.tol, monitor.base, floor)
            ended = Status.CONVERGED if done else Status.MAX_ITER
        return point, ended

    def _trials(
        self, core: SymmetricCore, rng: np.random.Generator, floor: float
    ) -> Iterator[SymmetricPoint]:
        """Algebraic starts; and after the first of them, where a finish follows, the general fit.

        Noise can cost the algebra a component, which the finish would not find again.
        """
        rank = core.array.shape[0]
        for number in range(self.n_starts):
            trial = core.point(separate(slices_of(core.array, None), rng, self.n_pencils))
            for _ in range(self.n_rounds):
                whitened = core.point(whitened_directions(core, trial.vectors, rng))
                trial = whitened if whitened.loss < trial.loss else trial
            if self.refine and rank <= _SMALL_NEWTON and trial.loss > floor:
                trial, _ = iterate(core.step, trial, StoppingRule(1e-3, _TRIAL_STEPS, floor=floor))
            yield trial
            if self.refine and number == 0:
                yield core.point(np.asarray(Automatic()(core.array, rank, rng).factors[0]))
                if rank > _SMALL_NEWTON:
                    return

    def _sweep(
        self,
        core: SymmetricCore,
        point: SymmetricPoint,
        rule: StoppingRule,
        monitor: Monitor,
        assemble: Any,
    ) -> tuple[SymmetricPoint, Status]:
        """Alternating least squares in place of a Newton-type finish, for large ranks."""
        sweeps = SymmetricSweeps(DenseProblem(core.array))
        state, status = iterate(
            sweeps.step,
            sweeps.start(np.ascontiguousarray(point.vectors.T)),
            rule,
            monitor,
            lambda s: assemble(core.point(s.factor.T)),
        )
        reached = core.point(state.factor.T)
        return (reached if reached.loss < point.loss else point), status


def whitened_directions(core: SymmetricCore, estimate: Any, rng: np.random.Generator) -> Any:
    """Directions (k, k) by whitening with a definite combination of slices, then diagonalizing.

    Parameters
    ----------
    core : SymmetricCore of dimension k
    estimate : (k, k) rough directions, from which the combination is chosen
    rng : draws the start of the diagonalization
    """
    array, size = core.array, core.array.shape[0]
    units = estimate / np.maximum(np.linalg.norm(estimate, axis=0), 1e-300)
    duals = np.linalg.pinv(units).T
    merged = array.reshape(size * size, -1)
    powers = duals
    for _ in range(core.order - 3):
        powers = (powers[:, None, :] * duals[None, :, :]).reshape(-1, duals.shape[1])
    parts = (merged @ powers).reshape(size, size, -1)
    signs = np.sign(np.einsum("abj,aj,bj->j", parts, duals, duals))
    values, vectors = np.linalg.eigh(parts @ signs)
    values = np.maximum(np.abs(values), 1e-15 * np.abs(values).max())
    whitened = array
    projection = vectors / np.sqrt(values)
    for _ in range(core.order):
        whitened = np.tensordot(whitened, projection, axes=(0, 0))
    slices = slices_of(exactly_symmetric(whitened), None)
    total = float(np.vdot(slices, slices))
    rule = StoppingRule(_JACOBI_TOLERANCE, _JACOBI_SWEEPS, floor=1e-30 * total)
    state, _ = iterate(sweep, start_of(slices, rng), rule)
    return (vectors * np.sqrt(values)) @ state.vectors.T


def _supported(array: Any, epsilon: float) -> Any:
    """An orthonormal basis of the directions in which a symmetric core is not zero."""
    left, values, _ = np.linalg.svd(array.reshape(array.shape[0], -1), full_matrices=False)
    return left[:, values > 10 * array.shape[0] * epsilon * values[0]]


def _restricted(array: Any, basis: Any) -> Any:
    for _ in range(array.ndim):
        array = np.tensordot(array, basis, axes=(0, 0))
    return array
