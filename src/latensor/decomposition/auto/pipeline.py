"""The automatic fit: compress, initialize, fit the core, replace components, finish.

Each stage is a function from what is fitted and a `Fit` to the next `Fit`; nothing is kept between
them. Every error found on a core is the exact error on the tensor, so that most of the work is
done where it is cheap, and a few steps over the whole tensor finish it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from latensor.arrays import Array, one_blas_thread
from latensor.decomposition.algorithms.als import compress, random_factors
from latensor.decomposition.auto.converge import converge, descend
from latensor.decomposition.auto.core import EXACT, Core, Fit, NoiseFloor
from latensor.decomposition.auto.initialize import initialize
from latensor.decomposition.auto.search import improved
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import CompleteProblem, DenseProblem, widened
from latensor.decomposition.optimize.starts import overdetermined, parameters
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced
from latensor.decomposition.result import Status
from latensor.decomposition.setup import assemble, assembler
from latensor.decomposition.subspace.compression import (
    LARGEST_CORE,
    Compression,
    compress_to_signal,
    compressed_shape,
)
from latensor.decomposition.subspace.sharpening import Directions, narrowed, sharpened, visible
from latensor.tensors.contractible import Contractible

# Energy outside the core, relative, below which the tensor counts as exactly compressed, and the
# tolerance on such a core.
_LOSSLESS, _LOSSLESS_TOL = 1e-12, 1e-12
# A matrix no wider than this is decomposed by one dense singular value decomposition.
_DIRECT_SVD = 1000
# Entries from which a sweep is so expensive that starts are not compared.
_LARGE = 1 << 17
# Steps over the whole tensor at the end, and sweeps over one that is too large to be compressed.
_FINISHING_STEPS = 30
_UNCOMPRESSED_SWEEPS = 500
# Fraction of the loss by which a target may be missed for the finish to go on to rounding.
_NEAR_TARGET, _ROUNDING_TOL = 1e-5, 1e-13


@dataclass(frozen=True)
class Task:
    """What is asked for: the tensor, the rank, where randomness comes from and whom to tell."""

    data: Contractible
    problem: CompleteProblem
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    tol: float
    thorough: bool


def run(task: Task) -> Fit:
    """The best fit that the stages find."""
    shape, core_shape = task.problem.shape, compressed_shape(task.problem.shape, task.rank)
    dense = isinstance(task.problem, DenseProblem)
    if len(shape) < 3 and min(shape) <= _DIRECT_SVD and (dense or prod(shape) <= LARGEST_CORE):
        return fit_matrix(task)
    if prod(core_shape) > LARGEST_CORE and not (dense and core_shape == shape):
        return fit_uncompressed(task)
    core = compress_to_core(task, core_shape)
    small = core.compression.core.size < prod(shape)
    with one_blas_thread(small):
        fit = converge(core, initialize(core))
    if task.monitor.target is None:
        for better in _improved(task, core, fit, small):
            fit = better
        return finish(task, core, fit)
    # With a target the first fit is finished before others are tried, which it may spare.
    best = finish(task, core, fit)
    others = _improved(task, core, fit, small)
    while task.monitor.ended is None and best.status is not Status.TARGET_REACHED:
        task.monitor.base = core.compression.base
        other = next(others, None)
        if other is None:
            break
        other = finish(task, core, other)
        best = other if other.status is Status.TARGET_REACHED or other.loss < best.loss else best
    task.monitor.base = 0.0
    return best


def _improved(task: Task, core: Core, fit: Fit, small: bool) -> Iterator[Fit]:
    found = improved(core, fit, task.thorough)
    while True:
        with one_blas_thread(small):
            better = next(found, None)
        if better is None:
            return
        yield better


def compress_to_core(task: Task, core_shape: tuple[int, ...]) -> Core:
    """The tensor as a core of about twice the rank per mode; of the rank where that is safe."""
    problem, rank, shape = task.problem, task.rank, task.problem.shape
    if isinstance(problem, DenseProblem) and core_shape == shape:
        signal = _signal(problem, rank)
        if signal is not None:
            return _with_floor(task, signal, sharp=True)
        whole = Compression(widened(problem.tensor), (None,) * len(shape), 0.0)
        return _as_core(task, whole, None, cheap=2 * (rank + 3) ** len(shape) < prod(shape))
    wide = compress(task.data, problem, rank, task.rng)
    outside = prod(shape) - wide.core.size
    if wide.base <= _LOSSLESS * problem.squared_norm or outside == 0:
        return _as_core(task, wide, None)
    if wide.clear:
        return _with_floor(task, wide, sharp=True)
    variance = wide.base / outside
    directions = visible(wide, shape, rank, variance)
    if directions is Directions.CLEAR:
        return _with_floor(task, narrowed(wide, rank), sharp=True, variance=variance)
    if directions is Directions.HIDDEN:
        freedom = wide.core.size - parameters(wide.core.shape, rank)
        task.monitor.base = wide.base
        # A target above the noise may well be met without the passes that sharpening takes.
        if task.monitor.target_loss() <= variance * freedom:
            sharp = sharpened(problem, wide, rank, task.rng)
            return _with_floor(task, sharp, sharp=True, variance=variance)
    core = _with_floor(task, wide, sharp=False)
    return replace(core, overfitted=directions is Directions.FEWER)


def _signal(problem: DenseProblem, rank: int) -> Compression | None:
    """A large tensor without the directions that are noise, where the rank leaves any."""
    narrow = [min(d, rank) for d in problem.shape]
    if prod(problem.shape) < _LARGE or not overdetermined(narrow, rank):
        return None
    return compress_to_signal(problem.tensor, rank, problem.squared_norm)


def _with_floor(
    task: Task, compression: Compression, *, sharp: bool, variance: float | None = None
) -> Core:
    shape = task.problem.shape
    if variance is None:
        variance = compression.base / (prod(shape) - compression.core.size)
    lossless = compression.base <= _LOSSLESS * task.problem.squared_norm
    floor = None if lossless else NoiseFloor(shape, variance, sharp)
    cheap = not compression.clear or compression.core.size < _LARGE
    return _as_core(task, compression, floor, cheap)


def _as_core(
    task: Task, compression: Compression, floor: NoiseFloor | None, cheap: bool = True
) -> Core:
    task.monitor.base = compression.base
    lossless = 0.0 < compression.base <= _LOSSLESS * task.problem.squared_norm
    reference = task.data.reference
    return Core(
        compression,
        task.rank,
        task.rng,
        task.monitor,
        lambda factors: assemble(reference, compression.expand(factors)),
        _LOSSLESS_TOL if lossless else task.tol,
        floor,
        cheap,
    )


def finish(task: Task, core: Core, fit: Fit) -> Fit:
    """The fit of a core as one of the tensor, finished there where that can help."""
    problem, monitor, compression = task.problem, task.monitor, core.compression
    reached = monitor.reached(fit.loss)
    if compression.core.size == prod(problem.shape):
        if reached or monitor.ended is not None:
            return replace(fit, status=monitor.ended or Status.TARGET_REACHED)
        if fit.status is Status.MAX_ITER:  # a trial that won was followed no further than that
            fit = descend(core.problem, fit, core.tol, _FINISHING_STEPS, monitor, core.assemble)
        return fit
    expanded = [problem.native(f) for f in compression.expand(fit.factors)]
    fit = Fit(balanced(expanded), fit.loss + compression.base, fit.status)
    monitor.base = 0.0
    if monitor.ended is not None or reached:
        return replace(fit, status=monitor.ended or Status.TARGET_REACHED)
    if compression.base <= _LOSSLESS * problem.squared_norm:
        explicit = problem.explicit_loss(fit.factors)
        fit = fit if explicit is None else replace(fit, loss=explicit)
        if explicit is None or explicit <= EXACT * problem.squared_norm:
            return fit
    return _finish_on_tensor(task, fit)


def _finish_on_tensor(task: Task, fit: Fit) -> Fit:
    """A sweep over the whole tensor, then Levenberg-Marquardt steps as long as they gain."""
    problem, monitor = task.problem, task.monitor
    sweeps, give = Sweeps(problem), assembler(task.data.reference)
    start = Point(fit.factors, tuple(problem.gram(f) for f in fit.factors), fit.loss)
    point, _ = iterate(sweeps.sweep, start, StoppingRule(0.0, 1), monitor, give)
    fit = Fit(point.factors, point.loss)
    if monitor.ended is not None:
        return replace(fit, status=monitor.ended)
    gap = fit.loss - monitor.target_loss()
    tol = _ROUNDING_TOL if gap <= _NEAR_TARGET * fit.loss else task.tol
    together = lambda factors: assemble(task.data.reference, factors)  # noqa: E731
    return descend(problem, fit, tol, _FINISHING_STEPS, monitor, together, near=True)


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


def fit_uncompressed(task: Task) -> Fit:
    """Extrapolated sweeps from a random start, where even the core would be too large."""
    problem = task.problem
    sweeps = Sweeps(problem)
    drawn = random_factors(task.rng, problem.shape, task.rank, task.data.reference)
    start = sweeps.start([problem.native(f) for f in drawn])
    rule = StoppingRule(task.tol, _UNCOMPRESSED_SWEEPS, 3)
    give = assembler(task.data.reference)
    point, status = iterate(sweeps.extrapolated, start, rule, task.monitor, give)
    fit = Fit(point.factors, point.loss, status)
    if status is Status.CONVERGED and not has_converged(problem, fit.factors, task.tol):
        return replace(fit, status=Status.MAX_ITER)
    return fit
