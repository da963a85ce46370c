"""The whole chain for symmetric tensors: whiten, diagonalize, unwhiten, finish (monograph 3.4-3.5).

`whitening` and `decomposition` may not import each other; what is needed of whitening here is an
eigendecomposition of one small matrix, so that the chain stands with the algorithms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, machine_epsilon
from latensor.decomposition.algorithms.joint_diagonalization import diagonalize, slices_of
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
from latensor.decomposition.auto.core import EXACT
from latensor.decomposition.optimize.iteration import SLOW, Callback, Monitor, StoppingRule
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.shared import (
    SharedFit,
    descend_shared,
    has_converged_shared,
    shared_fit,
)
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import as_problem
from latensor.decomposition.subspace.core import core_of, is_projection
from latensor.tensors.cp import CPTensor


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
        without its symmetry is one of them
    refine : int, at most so many Levenberg-Marquardt steps of the finish; 0 for none
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

        def assemble(fit: SharedFit) -> CPTensor:
            found, units = fit.components(order)
            weights = np.zeros(rank)
            weights[: found.size] = found
            vectors = reduced.lift(completed(inside @ units, rank))
            return symmetric_cp(data.reference, weights, vectors, order)

        fit, status = SharedFit(np.zeros((0, 0)), np.zeros(0), 0.0), Status.CONVERGED
        if inside.shape[1]:
            floor = (100 * rank * np.finfo(float).eps) ** 2 * squared_norm
            problem = DenseProblem(_restricted(array, inside))
            fit, status = self._solve(problem, rng, monitor, assemble, floor)
            if status is Status.CONVERGED and is_projection(
                squared_norm, base, machine_epsilon(data.reference)
            ):
                whole = replace(fit, rows=reduced.lift(inside @ fit.rows.T).T)
                rule = StoppingRule(self.tol, self.refine, floor=floor)
                done = has_converged_shared(as_problem(data), whole, rule)
                status = Status.CONVERGED if done else Status.MAX_ITER
        model = assemble(fit)
        history = np.array(monitor.history)
        return Decomposition(model, relative_residual(data, model), len(history), status, history)

    def _solve(
        self,
        problem: DenseProblem,
        rng: np.random.Generator,
        monitor: Monitor,
        assemble: Callable[[SharedFit], CPTensor],
        floor: float,
    ) -> tuple[SharedFit, Status]:
        trials = _recorded(self._trials(problem, rng, floor), monitor, assemble)
        agreements = 1 if self.refine else self.n_starts
        search = Multistart(SLOW, agreements, enough=EXACT * monitor.squared_norm)
        fit = search.search(next(trials), trials).state
        if monitor.ended is not None:
            return fit, monitor.ended
        rule = StoppingRule(self.tol, self.refine, 2, floor)
        if self.refine and fit.loss > floor:
            return descend_shared(problem, fit, rule, monitor=monitor, assemble=assemble)
        done = has_converged_shared(problem, fit, rule, monitor.base)
        return fit, Status.CONVERGED if done else Status.MAX_ITER

    def _trials(
        self, problem: DenseProblem, rng: np.random.Generator, floor: float
    ) -> Iterator[SharedFit]:
        """Algebraic starts; and after the first of them, where a finish follows, the general fit.

        Noise can cost the algebra a component, which the finish would not find again.
        """
        rule = StoppingRule(SLOW, self.refine, floor=floor)
        for number in range(self.n_starts):
            directions = separate(slices_of(problem.tensor, None), rng, self.n_pencils)
            trial = shared_fit(problem, directions.T)
            for _ in range(self.n_rounds):
                whitened = whitened_directions(problem.tensor, trial.rows.T, rng)
                trial = min(trial, shared_fit(problem, whitened.T), key=lambda fit: fit.loss)
            yield descend_shared(problem, trial, rule)[0] if trial.loss > floor else trial
            if self.refine and number == 0:
                rank = problem.shape[0]
                free = Automatic()(problem.tensor, rank, rng).factors[0]
                yield shared_fit(problem, np.asarray(free).T)


def _recorded(
    trials: Iterator[SharedFit], monitor: Monitor, assemble: Callable[[SharedFit], CPTensor]
) -> Iterator[SharedFit]:
    """Trials, after the callback has been called with the best one so far; it may end them."""
    best: SharedFit | None = None
    for trial in trials:
        best = trial if best is None or trial.loss < best.loss else best
        ended = monitor.record(best.loss, lambda fit=best: assemble(fit))  # type: ignore[misc]
        yield trial
        if ended is not None:
            return


def whitened_directions(array: Any, estimate: Any, rng: np.random.Generator) -> Any:
    """Directions (k, k) by whitening with a definite combination of slices, then diagonalizing.

    Parameters
    ----------
    array : (k, ..., k) symmetric tensor
    estimate : (k, k) rough directions, from which the combination is chosen
    rng : draws the start of the diagonalization
    """
    size = array.shape[0]
    units = estimate / np.maximum(np.linalg.norm(estimate, axis=0), 1e-300)
    duals = np.linalg.pinv(units).T
    merged = array.reshape(size * size, -1)
    powers = duals
    for _ in range(array.ndim - 3):
        powers = (powers[:, None, :] * duals[None, :, :]).reshape(-1, duals.shape[1])
    parts = (merged @ powers).reshape(size, size, -1)
    signs = np.sign(np.einsum("abj,aj,bj->j", parts, duals, duals))
    values, vectors = np.linalg.eigh(parts @ signs)
    values = np.maximum(np.abs(values), 1e-15 * np.abs(values).max())
    whitened = array
    projection = vectors / np.sqrt(values)
    for _ in range(array.ndim):
        whitened = np.tensordot(whitened, projection, axes=(0, 0))
    found = diagonalize(slices_of(exactly_symmetric(whitened), None), rng)
    return (vectors * np.sqrt(values)) @ found.vectors


def _supported(array: Any, epsilon: float) -> Any:
    """An orthonormal basis of the directions in which a symmetric core is not zero."""
    left, values, _ = np.linalg.svd(array.reshape(array.shape[0], -1), full_matrices=False)
    return left[:, values > 10 * array.shape[0] * epsilon * values[0]]


def _restricted(array: Any, basis: Any) -> Any:
    for _ in range(array.ndim):
        array = np.tensordot(array, basis, axes=(0, 0))
    return array
