"""The first stage: a tensor as a core, and what is known of the noise that it leaves out."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from latensor.decomposition.algorithms.als import compress
from latensor.decomposition.auto.core import Core, NoiseFloor, Task
from latensor.decomposition.optimize.problem import DenseProblem, widened
from latensor.decomposition.optimize.starts import overdetermined, parameters
from latensor.decomposition.setup import CHEAP_ENTRIES, assemble
from latensor.decomposition.subspace.compression import LOSSLESS, Compression, compress_to_signal
from latensor.decomposition.subspace.narrowing import Directions, narrowed, refine_subspace, visible


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
    if wide.base <= LOSSLESS * problem.squared_norm or outside == 0:
        return _as_core(task, wide, None)
    variance = wide.base / outside
    directions = visible(wide, shape, rank, variance)
    if directions is Directions.CLEAR:
        return _with_floor(task, narrowed(wide, rank), sharp=True, variance=variance)
    if directions is Directions.HIDDEN:
        freedom = wide.core.size - parameters(wide.core.shape, rank)
        task.monitor.base = wide.base
        # A target above the noise may well be met without the passes that narrowing takes.
        if task.monitor.target_loss() <= variance * freedom:
            sharp = refine_subspace(problem, wide, rank, task.rng)
            return _with_floor(task, sharp, sharp=True, variance=variance)
    core = _with_floor(task, wide, sharp=False)
    return replace(core, overfitted=directions is Directions.FEWER)


def _signal(problem: DenseProblem, rank: int) -> Compression | None:
    """A tensor without the directions that are noise, where the rank leaves any."""
    if not overdetermined([min(d, rank) for d in problem.shape], rank):
        return None
    return compress_to_signal(problem.tensor, rank, problem.squared_norm)


def _with_floor(
    task: Task, compression: Compression, *, sharp: bool, variance: float | None = None
) -> Core:
    shape = task.problem.shape
    if variance is None:
        variance = compression.base / (prod(shape) - compression.core.size)
    lossless = compression.base <= LOSSLESS * task.problem.squared_norm
    floor = None if lossless else NoiseFloor(shape, variance, sharp)
    cheap = not compression.clear or compression.core.size < CHEAP_ENTRIES
    return _as_core(task, compression, floor, cheap)


def _as_core(
    task: Task, compression: Compression, floor: NoiseFloor | None, cheap: bool = True
) -> Core:
    task.monitor.base = compression.base
    lossless = 0.0 < compression.base <= LOSSLESS * task.problem.squared_norm
    reference = task.data.reference
    return Core(
        compression,
        task.rank,
        task.rng,
        task.monitor,
        lambda factors: assemble(reference, compression.expand(factors)),
        LOSSLESS if lossless else task.tol,
        floor,
        cheap,
    )
