"""Other optima near a fit: some of its components exchanged, followed while they may still win.

Data that are not a few components and noise have many optima of nearly the same loss, and a better
one mostly shares all but a few components with the best one known. One to a seventh of the
components, drawn at random, give way to others; a few sweeps then show where that leads. A trial
is followed only as long as it is on course: as long as so many times its last gain would take it
below the best. That costs a fifth of what finishing every trial does, and loses few winners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.alternating import Point, Sweeps, balanced, row_norms
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.levenberg_marquardt import NewtonSteps
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.starts import leading_rank_one, random_start
from latensor.tensors.cp import CPTensor

# The largest share of the components that is exchanged at once.
_SHARE = 0.15
# Sweeps and Newton steps between two looks at a trial, and how many looks it gets at most.
_SWEEPS, _SWEEP_LOOKS = 10, 10
_STEPS, _STEP_LOOKS = 5, 5
# So many times its last gain may still lie before a trial.
_ON_COURSE = 10.0
# What a Newton step, and a component grown cost, in sweeps, with those that it gets.
_STEP_PRICE = 10
_SETTLING_SWEEPS = 5
_GROWTH_PRICE = 10
_CONTINUED_SWEEPS = 100
# Gains, as shares of the loss: the least that wins, and the least for which the search goes on.
_BETTER = 1e-6
_WORTH = 2e-5
# Walks after the first, and the difference between the ends of two that counts as none.
_OTHER_WALKS = 3
_SAME_OPTIMUM = 1e-5
# By this share of its loss another start may lie above that of the first walk.
_NEAR = 4e-3


@dataclass(frozen=True)
class Exchange:
    """A walk from optimum to better optimum; see the head of this file.

    Parameters
    ----------
    problem : the core, real
    rng : generator
    monitor : of the whole decomposition; told of every better optimum
    assemble : puts a CP tensor together from a point, for callbacks
    tol : float, relative decrease of the loss that counts as progress
    """

    problem: DenseProblem
    rng: np.random.Generator
    monitor: Monitor
    assemble: Callable[[Any], CPTensor]
    tol: float

    def run(self, point: Point, budget: int, patience: int) -> Point:
        """The best point that any walk of `walks` finds."""
        *_, best = self.walks(point, budget, patience)
        return best

    def walks(self, point: Point, budget: int, patience: int) -> Iterator[Point]:
        """The best point so far, after every walk.

        The first walk starts from `point`, others from random starts where these are nearly as
        good: not every region can be left by exchanging a few components.

        Parameters
        ----------
        point : where to start, an optimum
        budget : int, what the trials of one walk may cost, in sweeps
        patience : int, sweeps without a gain after which a walk ends
        """
        best = self._walk(point, budget, patience, point.loss)
        yield best
        rank = point.factors[0].shape[0]
        for _ in range(_OTHER_WALKS):
            if self.monitor.ended is not None:
                break
            start = self._sweeps.start(random_start(self.problem.shape, rank, self.rng))
            start, _ = self._followed(start, np.inf)
            if start.loss - point.loss > _NEAR * self._total(point):
                break
            other = self._walk(start, budget, patience, best.loss)
            same = abs(other.loss - best.loss) <= _SAME_OPTIMUM * self._total(best)
            best = min(best, other, key=lambda p: p.loss)
            yield best
            if same:
                break

    def _walk(self, point: Point, budget: int, patience: int, known: float) -> Point:
        """The end of one walk.

        Parameters
        ----------
        known : float, the lowest loss of all walks before, which the monitor has been told of
        """
        best, spent, idle = point, 0, 0
        most = max(round(_SHARE * point.factors[0].shape[0]), 1)
        converged = False
        for way in cycle((self._regrown, self._drawn, self._continued)):
            if spent >= budget or idle >= patience or self.monitor.ended is not None:
                break
            if way == self._continued and converged:
                continue
            start, cost = way(best, int(self.rng.integers(1, most + 1)))
            if way == self._continued:
                trial, followed = start, 0
            else:
                trial, followed = self._followed(start, best.loss)
            spent, idle = spent + cost + followed, idle + cost + followed
            gain = best.loss - trial.loss
            worth = gain > _WORTH * self._total(best)
            converged = not worth if way == self._continued else converged and not worth
            if gain > _BETTER * self._total(best):
                idle = 0 if worth else idle
                best = trial
                if best.loss < known:
                    self.monitor.record(best.loss, lambda p=best: self.assemble(p))  # type: ignore[misc]
        return best

    @property
    def _sweeps(self) -> Sweeps:
        return Sweeps(self.problem)

    def _total(self, point: Point) -> float:
        return point.loss + self.monitor.base

    def _regrown(self, point: Point, count: int) -> tuple[Point, int]:
        """`count` components taken out, and as many grown from the residual; what that cost."""
        trial = self._sweeps.start(self._without(point, count))
        for _ in range(count):
            trial = self._grown(self._swept(trial))
        return trial, _GROWTH_PRICE * count

    def _drawn(self, point: Point, count: int) -> tuple[Point, int]:
        """`count` components replaced by random ones of the usual size; what that cost."""
        size = float(np.mean([row_norms(factor) for factor in balanced(point.factors)]))
        fresh = random_start(self.problem.shape, count, self.rng)
        rows = [size * f / row_norms(f)[:, None] for f in fresh]
        return self._sweeps.start(_joined(self._without(point, count), rows)), 1

    def _continued(self, point: Point, count: int) -> tuple[Point, int]:
        """The same components after more sweeps: the best is rarely quite at its optimum."""
        for _ in range(_CONTINUED_SWEEPS):
            point = self._sweeps.extrapolated(point)
        return point, _CONTINUED_SWEEPS

    def _without(self, point: Point, count: int) -> list[Array]:
        leaving = self.rng.choice(point.factors[0].shape[0], count, replace=False)
        return [np.delete(factor, leaving, axis=0) for factor in balanced(point.factors)]

    def _swept(self, point: Point) -> Point:
        for _ in range(_SETTLING_SWEEPS):
            point = self._sweeps.extrapolated(point)
        return point

    def _grown(self, point: Point) -> Point:
        unit, gain = leading_rank_one(self.problem.residual(point.factors), self.rng)
        scale = gain ** (0.5 / len(unit))
        return self._sweeps.start(_joined(point.factors, [scale * row[None] for row in unit]))

    def _followed(self, trial: Point, best: float) -> tuple[Point, int]:
        """A trial at its optimum, or as far as it was on course for one below `best`, and the
        sweeps that it took.
        """
        cost = 0
        for _ in range(_SWEEP_LOOKS):
            before = trial.loss
            for _ in range(_SWEEPS):
                trial = self._sweeps.extrapolated(trial)
            cost += _SWEEPS
            gain = before - trial.loss
            if gain <= self.tol * self._total(trial) or trial.loss - _ON_COURSE * gain > best:
                return trial, cost
        newton = NewtonSteps(self.problem)
        step = newton.start(trial.factors)
        for _ in range(_STEP_LOOKS):
            before = step.loss
            for _ in range(_STEPS):
                last = step.loss
                step = newton.step(step)
                cost += _STEP_PRICE
                if last - step.loss <= self.tol * (step.loss + self.monitor.base):
                    return Point(step.factors, step.grams, step.loss), cost
            if step.loss - _ON_COURSE * (before - step.loss) > best:
                break
        return Point(step.factors, step.grams, step.loss), cost


def _joined(factors: Sequence[Array], rows: Sequence[Array]) -> list[Array]:
    return [np.vstack(pair) for pair in zip(factors, rows, strict=True)]
