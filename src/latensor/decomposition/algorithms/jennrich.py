"""Simultaneous diagonalization: an algebraic solution from matrix pencils (monograph 3.6)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, check_positive_int, machine_epsilon
from latensor.decomposition.algorithms.pencils import separate
from latensor.decomposition.algorithms.symmetric import refuse_nonfinite_tensor, relative_residual
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import SLOW, Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.starts import Groups, pencil_groups, split_rows
from latensor.decomposition.optimize.sweeps import Point, Sweeps
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import as_problem, assemble, refuse_rank
from latensor.decomposition.subspace.core import Core, core_of, is_projection
from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor


@dataclass(frozen=True)
class SimultaneousDiagonalization:
    """Decompose a tensor by the generalized eigenvectors of its slices (Jennrich; monograph 3.6).

    With slices M_x = T(I, I, x) = A diag(.) B' of T = sum_j w_j a_j (x) b_j (x) c_j, a vector z_j
    with b_i'z_j = 0 for all i other than j is a generalized eigenvector of every pencil
    (M_x, M_y), and every slice sends it to a_j. The monograph's two eigenproblems, whose
    eigenvalues it pairs as reciprocals, are the right and left sides of this one, so that a_j and
    b_j come paired. Needs independent a_j and b_j, but of the c_j only that no two are parallel:
    the third mode may be as short as 2.

    One pencil loses digits where its eigenvalues lie close. Here the QZ algorithm solves the best
    of several random pencils; eigenvalues that lie close, or that noise turned into complex
    pairs, are kept together as one invariant subspace and told apart by other pencils; and each
    component is then read off from all slices. A rank as high as the dimensions makes every pencil
    sensitive to noise: the refined solution is then kept only if fresh pencils lead to the same
    residual, and otherwise the best of several is. Where noise times the condition number of the
    factors comes near 1, all may miss components: use `algorithm="auto"` there.

    Parameters
    ----------
    n_pencils : int, random pencils to choose from
    refine : int, at most so many sweeps of alternating least squares (on the compressed tensor)
        finish the algebraic solution, which amplifies noise; 0 for none
    tol : float, relative decrease of the squared residual that counts as progress in `refine`
    """

    n_pencils: int = 5
    refine: int = 50
    tol: float = 1e-8

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
    ) -> Decomposition:
        """Decompose a tensor of order 3 or more, real or complex.

        Parameters
        ----------
        tensor : dense array of any library, or sparse, factored or implicit tensor
        rank : int, at most the second longest dimension (for order above 3, modes are merged,
            and the two groups must have that many entries)
        rng : Generator, draws the pencils
        callback : told after every sweep of `refine`; may return True to stop
        """
        data = as_contractible(tensor)
        rank = refuse_rank(rank)
        check_positive_int(self.n_pencils, "n_pencils")
        groups = group_modes(data.shape, rank)
        refuse_nonfinite_tensor(data)
        core = core_of(data, [min(d, rank) for d in data.shape], rng)
        rows = self._solve(core, groups, rank, rng, machine_epsilon(data.reference))

        def lifted(point: Point) -> list[Array]:
            return [core.lift(f.T, m).T for m, f in enumerate(point.factors)]

        def put_together(point: Point) -> CPTensor:
            return assemble(data.reference, lifted(point))

        problem = DenseProblem(np.ascontiguousarray(core.array))
        squared_norm = float(data.norm()) ** 2
        base = max(squared_norm - problem.squared_norm, 0.0)
        monitor = Monitor(squared_norm, callback=callback, base=base)
        sweeps = Sweeps(problem)
        point = sweeps.start(rows)
        status = monitor.record(point.loss, lambda: put_together(point)) or Status.CONVERGED
        floor = (100 * rank * machine_epsilon(data.reference)) ** 2 * problem.squared_norm
        if status is Status.CONVERGED and self.refine and point.loss > floor:
            rule = StoppingRule(self.tol, self.refine, patience=2, floor=floor)
            refined, status = iterate(sweeps.extrapolated, point, rule, monitor, put_together)
            point = refined if refined.loss < point.loss else point
            if monitor.ended is None and point.loss > floor:
                # Noise that a badly conditioned pencil amplifies can merge two components for good,
                # which other pencils rarely repeat: fresh ones, until two agree.
                solve = partial(
                    self._solve, core, groups, rank, rng, machine_epsilon(data.reference)
                )
                others = (
                    iterate(sweeps.extrapolated, sweeps.start(solve()), rule)[0]
                    for _ in range(self.n_pencils)
                )
                best = Multistart(SLOW, base=base).search(point, others).state
                if best is not point:
                    point, status = best, Status.CONVERGED
                    monitor.record(point.loss, lambda: put_together(point))
        projected = is_projection(squared_norm, base, machine_epsilon(data.reference))
        if status is Status.CONVERGED and (projected or point.loss > floor):
            if projected:
                done = has_converged(as_problem(data), lifted(point), self.tol)
            else:
                done = has_converged(problem, point.factors, self.tol, base=base)
            status = Status.CONVERGED if done else Status.MAX_ITER
        model = put_together(point)
        history = np.array(monitor.history)
        return Decomposition(model, relative_residual(data, model), len(history), status, history)

    def _solve(
        self, core: Core, groups: Groups, rank: int, rng: np.random.Generator, epsilon: float
    ) -> tuple[Any, ...]:
        """Transposed factors of the core, one per mode, weights in the last."""
        array = core.array
        merged = array.transpose([m for group in groups for m in group]).reshape(
            [prod(array.shape[m] for m in group) for group in groups]
        )
        bases = [_numerical_range(merged, mode, rank, epsilon) for mode in range(3)]
        count = min(bases[0].shape[1], bases[1].shape[1])
        shapes = [[array.shape[m] for m in group] for group in groups]
        if count == 0:
            rows = [_fill(np.zeros((0, prod(s)), dtype=array.dtype), rank, rng) for s in shapes]
            rows[2] = np.zeros_like(rows[2])
        else:
            left, right, last = bases[0][:, :count], bases[1][:, :count], bases[2]
            small = np.einsum(
                "abc,ai,bj,ck->ijk", merged, left.conj(), right.conj(), last.conj(), optimize=True
            )
            first = separate(small, rng, self.n_pencils)
            # With the first factor known, each component is a matrix b_j c_j': all slices at once.
            matrices = np.linalg.lstsq(first, small.reshape(count, -1), rcond=None)[0]
            matrices = matrices.reshape(small.shape)
            lefts, values, rights = np.linalg.svd(matrices, full_matrices=False)
            rows = [
                (left @ first).T,
                lefts[:, :, 0] @ right.T,
                (values[:, :1] * rights[:, 0, :]) @ last.T,
            ]
            rows = [_fill(row, rank, rng) for row in rows[:2]] + [
                np.vstack([rows[2], np.zeros((rank - count, rows[2].shape[1]))])
            ]
        factors: list[Any] = [None] * array.ndim
        for group, shape, row in zip(groups, shapes, rows, strict=True):
            for mode, part in zip(group, split_rows(row, shape), strict=True):
                factors[mode] = part
        return tuple(factors)


def group_modes(shape: tuple[int, ...], rank: int) -> Groups:
    """Which modes play the parts of a, b and c: few merged, and the longest for a and b.

    Raises
    ------
    InvalidInputError, where no grouping leaves room for `rank` independent vectors twice
    """
    order = len(shape)
    if order < 3:
        raise InvalidInputError(
            f"tensor has order {order} (shape {shape}), but SimultaneousDiagonalization needs "
            "order 3 or more: use truncated_svd for a matrix"
        )
    groups = pencil_groups(shape, rank)
    if groups is not None:
        return (min(groups[:2]), max(groups[:2]), groups[2])
    ranks = range(1, rank + 1)
    limit = bisect_left(ranks, True, key=lambda r: pencil_groups(shape, r) is None)
    raise InvalidInputError(
        f"rank={rank} is above the {limit} that SimultaneousDiagonalization can find in shape "
        f"{shape}: two modes (or groups of modes) must have dimension at least rank, and a third "
        "at least 2; use AlternatingLeastSquares or algorithm='auto', which take any rank"
    )


def _numerical_range(array: Any, mode: int, rank: int, epsilon: float) -> Any:
    """Leading left singular vectors of an unfolding, no more than `rank` and than its own rank."""
    matrix = np.moveaxis(array, mode, 0).reshape(array.shape[mode], -1)
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    count = int((values > 10 * max(array.shape) * epsilon * values[0]).sum())
    return left[:, : min(count, rank)]


def _fill(rows: Any, rank: int, rng: np.random.Generator) -> Any:
    """Rows followed by random unit vectors, for components whose weight is zero."""
    missing = rank - rows.shape[0]
    extra = rng.standard_normal((missing, rows.shape[1]))
    extra /= np.maximum(np.linalg.norm(extra, axis=1, keepdims=True), 1e-300)
    return np.vstack([rows, extra])
