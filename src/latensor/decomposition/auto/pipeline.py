"""The automatic fit: compress, initialize, fit the core, replace components, finish.

Each stage is a function from what is fitted and a `Fit` to the next `Fit`; nothing is kept between
them. Every error found on a core is the exact error on the tensor, so that most of the work is
done where it is cheap, and a few steps over the whole tensor finish it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from math import prod

import numpy as np

from latensor.arrays import Array, one_blas_thread
from latensor.decomposition.algorithms.als import AlternatingLeastSquares, random_factors
from latensor.decomposition.auto.compress import compress_to_core
from latensor.decomposition.auto.converge import converge
from latensor.decomposition.auto.core import Fit, Task
from latensor.decomposition.auto.finish import (
    better_on_tensor,
    finish,
    finish_on_tensor,
    met_on_tensor,
)
from latensor.decomposition.auto.initialize import initialize
from latensor.decomposition.auto.search import improved
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import SLOW, TRIAL_STEPS, StoppingRule, iterate
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.sweeps import Point, Sweeps
from latensor.decomposition.result import Status
from latensor.decomposition.setup import assemble, assembler
from latensor.decomposition.subspace.compression import LARGEST_CORE, compressed_shape
from latensor.tensors.sparse import SparseTensor

# A matrix no wider than this is decomposed by one dense singular value decomposition.
_DIRECT_SVD = 1000


def run(task: Task) -> Fit:
    """The best fit that the stages find."""
    shape, core_shape = task.problem.shape, compressed_shape(task.problem.shape, task.rank)
    dense = isinstance(task.problem, DenseProblem)
    if len(shape) < 3 and min(shape) <= _DIRECT_SVD and (dense or prod(shape) <= LARGEST_CORE):
        return fit_matrix(task)
    if prod(core_shape) > LARGEST_CORE and not (dense and core_shape == shape):
        return fit_uncompressed(task)
    if isinstance(task.data, SparseTensor):
        swept = fit_by_sweeps(task)
        if swept is not None:
            return swept
    core = compress_to_core(task, core_shape)
    small = core.compression.core.size < prod(shape)
    with one_blas_thread(small):
        start = initialize(core)
    met = met_on_tensor(task, core, start)
    if met is not None:
        return met
    with one_blas_thread(small):
        first = converge(core, start)
    if task.monitor.target is not None:
        # The first fit is finished before others are looked for, which it may spare.
        best = met_on_tensor(task, core, first) or finish(task, core, first)
        if task.monitor.ended is not None or best.status is Status.TARGET_REACHED:
            return best
        task.monitor.base = core.compression.base
    with one_blas_thread(small):
        other = improved(core, first, task.thorough)
    if task.monitor.target is None:
        sure = other is first or core.accepts(other)
        return finish(task, core, other if sure else better_on_tensor(task, core, (other, first)))
    found = best if other is first else finish(task, core, other)
    task.monitor.base = 0.0
    return found if found.status is Status.TARGET_REACHED or found.loss < best.loss else best


def fit_matrix(task: Task) -> Fit:
    """A vector as its own only component; a matrix by its leading singular vectors."""
    problem, rank = task.problem, task.rank
    whole = problem.project([None] * len(problem.shape))
    matrix = whole.reshape(whole.shape[0], -1)
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    count = min(rank, len(values))
    rows: list[Array] = [np.zeros((rank, d), dtype=whole.dtype) for d in matrix.shape]
    rows[0][:count] = left[:, :count].T * np.sqrt(values[:count])[:, None]
    rows[1][:count] = right[:count] * np.sqrt(values[:count])[:, None]
    if whole.ndim == 1:
        rows = [rows[0] * rows[1]]
    factors = tuple(problem.native(row) for row in rows)
    loss = float(np.sum(values[count:] ** 2))
    ended = task.monitor.record(loss, lambda: assemble(task.data.reference, factors))
    return Fit(factors, loss, Status.CONVERGED if ended in (None, Status.MAX_ITER) else ended)


def fit_by_sweeps(task: Task) -> Fit | None:
    """A sparse tensor without a core, which costs dozens of sweeps, where it may not be needed.

    Sweeps from a random start are followed to a target as long as they are on course for it. Where
    they find less than a thousandth of the tensor, no core is looked for. None where one is needed.
    """
    problem, monitor = task.problem, task.monitor
    nothing = (1.0 - SLOW) * problem.squared_norm
    goal = nothing if monitor.target is None else monitor.target_loss()
    if goal <= problem.epsilon**0.5 * problem.squared_norm:
        return None  # inner products cannot tell whether so small a loss is reached
    rng = deepcopy(task.rng)  # later stages draw what they would without this one
    factors = random_factors(rng, problem.shape, task.rank, task.data.reference)
    for factor in factors:
        factor[0] = abs(factor[0])  # near the mean, which no component of both signs sees
    start = Point(factors, tuple(problem.gram(f) for f in factors), problem.squared_norm)
    rule = StoppingRule(task.tol, TRIAL_STEPS, 3, goal, beat=goal)
    point, _ = iterate(Sweeps(problem).extrapolated, start, rule)
    fit = Fit(point.factors, point.loss)
    reached = monitor.reached(fit.loss)
    if not (reached or fit.loss > nothing):
        return None
    ended = monitor.record(fit.loss, lambda: assemble(task.data.reference, fit.factors))
    return finish_on_tensor(task, fit) if ended is None else replace(fit, status=ended)


def fit_uncompressed(task: Task) -> Fit:
    """Extrapolated sweeps from a random start, where even the core would be too large."""
    problem = task.problem
    sweeps = Sweeps(problem)
    drawn = random_factors(task.rng, problem.shape, task.rank, task.data.reference)
    start = sweeps.start([problem.native(f) for f in drawn])
    rule = StoppingRule(task.tol, AlternatingLeastSquares().max_iter, 3)
    give = assembler(task.data.reference)
    point, status = iterate(sweeps.extrapolated, start, rule, task.monitor, give)
    fit = Fit(point.factors, point.loss, status)
    if status is Status.CONVERGED and not has_converged(problem, fit.factors, task.tol):
        return replace(fit, status=Status.MAX_ITER)
    return fit
