"""The best CP fit of a small dense core: several starts, acceleration, Newton, re-seeding.

This is where `algorithm="auto"` spends its thought. Starts are compared on the leading
(rank + 3)-dimensional part of the core; the best one is fitted to the whole core by extrapolated
sweeps, by Levenberg-Marquardt where these crawl, and components that sit in the wrong place are
replaced by the leading term of the residual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.reduction import cheapest_reduction, component_costs
from latensor.decomposition.auto.start_search import NoiseFloor, StartSearch
from latensor.decomposition.optimize.alternating import Point, Sweeps, balanced
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.levenberg_marquardt import NewtonSteps
from latensor.decomposition.optimize.problem import DenseProblem, squared_norm
from latensor.decomposition.optimize.starts import leading_part, leading_rank_one, pencil_modes
from latensor.decomposition.result import Status
from latensor.tensors.cp import CPTensor

_MARGIN = 3
_PLAIN_SWEEPS = 3
_SWEEPS_BEFORE_NEWTON = 100
_NEWTON_STEPS = 25
# Above this rank one Levenberg-Marquardt step costs more than the sweeps that it saves.
LARGEST_NEWTON = 200
# Relative loss above which an overcomplete fit is still on its way, and sweeps that it may take.
_PLATEAU = 0.04
_OVERCOMPLETE_SWEEPS = 200
_SETTLED_TOL = 2e-2
_SETTLING_SWEEPS = 40
# Entries above which the first sweeps over an uncompressed tensor run in single precision, and
# the relative loss at which they end.
_ROUGH_SIZE = 1 << 17
_ROUGH_FLOOR = 1e-4
_SWAPS = 4
_SWAP_RATIO = 0.1
_SWAP_SWEEPS = 30
_GROWN_SWEEPS = 8
_WORTH_A_SWAP = 1e-3
# Rounds of growing and reducing, and what stands out of the noise, in its largest components.
_ROUNDS = 4
_ABOVE_NOISE = 3.0
# Shares of the components that are taken out together where swaps of one do not help.
_REPLANTED_SHARES = (0.1, 0.3, 0.2, 0.4, 0.3, 0.5)
_REGROWTH_SWEEPS = 5


@dataclass
class CoreFit:
    """One fit of one core; see the head of this file.

    Parameters
    ----------
    core : array, double precision
    rank : int
    rng : generator
    monitor : of the whole decomposition, its `base` being what the core leaves out
    assemble : puts a CP tensor together from a point of the core, for callbacks
    floor : NoiseFloor, or None where nothing was left out that could measure the noise
    tol : float, relative decrease of the loss that counts as progress
    compressed : bool, whether the core is much smaller than the tensor, so that trials are cheap
    unsorted : modes whose directions do not fall in energy
    """

    core: Array
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    assemble: Callable[[Any], CPTensor]
    floor: NoiseFloor | None
    tol: float
    compressed: bool = True
    unsorted: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.problem = DenseProblem(self.core)
        self.sweeps = Sweeps(self.problem)
        self.rough: Sweeps | None = None
        whole = not self.compressed and self.floor is None
        if whole and self.core.dtype == np.float64 and self.core.size > _ROUGH_SIZE:
            rough = DenseProblem(self.core.astype(np.float32), self.problem.squared_norm)
            self.rough = Sweeps(rough)
        # Loss below which only rounding is left: exactly low-rank input goes down to here.
        self.smallest = 1e-28 * self.problem.squared_norm

    def run(self) -> Point:
        """Start, fit, and put components where they belong while that helps."""
        search, bases = self._started
        if self.compressed or self.algebraic:
            start, certified = search.run()
        else:
            # Sweeps over all there is are dear: one good start, and re-seeding where it fails.
            start, certified = search.only("leading"), False
        point = self._widened(start, bases)
        if self.monitor.reached(point.loss):
            return point
        if not certified:
            point = self.settled(point)
            if self.monitor.reached(point.loss):
                return point
            point = self.disentangled(point)
            if self.monitor.reached(point.loss):
                return point
        point = self.polish(point)
        if self._explained(point):
            return point
        better = self.disentangled(point)
        point = point if better is point else self.polish(better)
        if certified or self.monitor.ended is not None or self._explained(point):
            return point
        if not self.compressed and self.floor is None:
            return self._replanted_pairs(point) if 1 < self.rank <= LARGEST_NEWTON else point
        level = self.floor.level(self.core.shape, self.rank) if self.floor else 0.0
        return self._replanted(point, level) if self.floor and self.floor.sharp else point

    def from_spared_start(self) -> Point | None:
        """A fit, silent, from the best start that the search spared; None where it spared none."""
        search, bases = self._started
        start, _ = search.run(patient=True)
        silent = self.silent()
        return None if start is None else silent.polish(silent._widened(start, bases))

    def silent(self) -> CoreFit:
        """The same fit for trials that nobody is told of."""
        return replace(self, monitor=replace(self.monitor, callback=None, history=[]))

    def _replanted(self, point: Point, level: float) -> Point:
        """Take out weak components and grow others while noise does not explain the residual.

        Where the floor is sharp, a residual above it means that components are entangled, of
        which re-seeding, one component at a time, may see nothing. The cheapest ones to miss are
        taken out, and the residual is filled with as many, one after the other.
        """
        best = point
        for share in _REPLANTED_SHARES:
            if best.loss <= level or self.monitor.ended is not None:
                break
            trial = self.replant(best, int(share * self.rank))
            best = min(best, trial, key=lambda p: p.loss)
        if best is not point:
            self.monitor.record(best.loss, lambda: self.assemble(best))
        return best

    def _replanted_pairs(self, point: Point) -> Point:
        """Replant pairs of components while the residual has room for one and that helps.

        For fits that no floor can judge: the residual asks for a component, as in `reseeded`.
        """
        for _ in range(_SWAPS):
            if self.monitor.ended is not None or point.loss <= self.smallest:
                break
            enough = _SWAP_RATIO * component_costs(point).min()
            if point.loss <= enough:
                break
            _, gain = leading_rank_one(self.problem.residual(point.factors), self.rng)
            if gain <= enough:
                break
            trial = self.replant(point, 2)
            if trial.loss >= point.loss * (1 - _WORTH_A_SWAP):
                break
            point = trial
            self.monitor.record(point.loss, lambda p=point: self.assemble(p))  # type: ignore[misc]
        return point

    def replant(self, point: Point, count: int) -> Point:
        """A fit with the `count` components that are cheapest to miss grown anew."""
        count = min(max(count, 2), self.rank - 1)
        weakest = np.argsort(component_costs(point))[:count]
        trial = self.sweeps.start(balanced([np.delete(f, weakest, axis=0) for f in point.factors]))
        for _ in range(count):
            for _ in range(_REGROWTH_SWEEPS):
                trial = self.sweeps.extrapolated(trial)
            residual = self.problem.residual(trial.factors)
            trial = self.grown(trial, *leading_rank_one(residual, self.rng))
        return self.silent().polish(trial)

    # Starts

    @cached_property
    def _started(self) -> tuple[StartSearch, tuple[Array | None, ...]]:
        """The search for a start on the leading part of the core, and how to expand that part."""
        keep = self.core.shape
        if self.compressed or self.algebraic:
            margin = _MARGIN if self.compressed else 0
            keep = tuple(min(r, self.rank + margin) for r in self.core.shape)
        part, bases = leading_part(self.core, keep, self.unsorted)
        outside = max(self.problem.squared_norm - squared_norm(part), 0.0)
        search = StartSearch(part, self.rank, self.rng, self.monitor, outside, self.floor, self.tol)
        return search, bases

    @property
    def algebraic(self) -> bool:
        """Whether a tensor that nothing was left out of can be solved by pencils."""
        return self.floor is None and pencil_modes(self.core.shape, self.rank) is not None

    def _widened(self, point: Point | None, bases: Sequence[Array | None]) -> Point:
        """A point of the leading part as a point of the core: zeros in all other directions."""
        assert point is not None
        factors = []
        for factor, basis, r in zip(balanced(point.factors), bases, self.core.shape, strict=True):
            if basis is not None:
                factors.append(factor @ basis)
            else:
                wide = np.zeros((self.rank, r), dtype=factor.dtype)
                wide[:, : factor.shape[1]] = factor
                factors.append(wide)
        return self.sweeps.start(factors)

    # Fit

    def settled(self, point: Point) -> Point:
        """Extrapolated sweeps until the loss falls slowly: enough to see which components miss."""
        rule = StoppingRule(_SETTLED_TOL, _SETTLING_SWEEPS, 2, self.smallest)
        if self.rough is None:
            return iterate(self.sweeps.extrapolated, point, rule, self.monitor, self.assemble)[0]
        # In single precision a loss is good enough to see progress, not to compare with a target.
        floor = max(_ROUGH_FLOOR * self.problem.squared_norm, self.monitor.target_loss())
        rule = replace(rule, floor=floor)
        target, self.monitor.target = self.monitor.target, None
        point, _ = iterate(self.rough.extrapolated, point, rule, self.monitor, self.assemble)
        self.monitor.target = target
        return self.sweeps.start(point.factors)

    def polish(self, point: Point) -> Point:
        """Extrapolated sweeps to convergence; Levenberg-Marquardt if these do not get there."""
        plain = StoppingRule(0.0, _PLAIN_SWEEPS, floor=self.smallest)
        point, _ = iterate(self.sweeps.sweep, point, plain, self.monitor, self.assemble)
        point, status = self._swept(point, self.tol, _SWEEPS_BEFORE_NEWTON, patience=3)
        crawling = status is Status.MAX_ITER and self.monitor.ended is None
        if not crawling:
            return point
        if self.rank > LARGEST_NEWTON or self.core.dtype.kind == "c":
            return self._swept(point, self.tol, _OVERCOMPLETE_SWEEPS, patience=3)[0]
        newton = NewtonSteps(self.problem)
        rule = StoppingRule(self.tol, _NEWTON_STEPS, 2, self.smallest)
        begin = newton.start(point.factors)
        reached, status = iterate(newton.step, begin, rule, self.monitor, self.assemble)
        if status is Status.MAX_ITER and self.monitor.ended is None:
            # The limit is for steps that crawl: what falls by half or more each time may finish.
            fast = StoppingRule(0.5, _NEWTON_STEPS, 1, self.smallest)
            reached, _ = iterate(newton.step, reached, fast, self.monitor, self.assemble)
        return Point(reached.factors, reached.grams, reached.loss)

    def _swept(
        self, point: Point, tol: float, max_iter: int, patience: int
    ) -> tuple[Point, Status]:
        # Overcomplete fits stay on a plateau for long before they drop to the solution.
        plateau = _PLATEAU * self.problem.squared_norm if self.overcomplete else np.inf
        rule = StoppingRule(tol, max_iter, patience, self.smallest, plateau)
        return iterate(self.sweeps.extrapolated, point, rule, self.monitor, self.assemble)

    @property
    def overcomplete(self) -> bool:
        """Whether there are more components than dimensions in every mode."""
        return bool(self.rank > max(self.core.shape))

    # Components in the wrong place

    def _explained(self, point: Point) -> bool:
        """Whether a sharp floor knows that noise alone is left."""
        floor = self.floor
        if floor is None or not floor.sharp:
            return False
        return point.loss <= floor.level(self.core.shape, self.rank)

    def disentangled(self, point: Point) -> Point:
        """Components put where they belong: by the noise where it is known, else by trial."""
        if self.floor is not None and self.floor.sharp and self.core.dtype.kind != "c":
            return self._regrown(point, self.floor)
        return self.reseeded(point)

    def _regrown(self, point: Point, floor: NoiseFloor) -> Point:
        """Grow components until noise explains the residual, then find those that are too many.

        What the residual holds above the largest rank-one term of noise becomes a component of
        its own; when nothing is left, or after a few, the cheapest reductions lead back to the
        rank. Kept only where the loss has then fallen.
        """
        unit = floor.largest_component(self.core.shape)
        level = floor.level(self.core.shape, self.rank)
        for _ in range(_ROUNDS):
            if self.monitor.ended is not None or point.loss <= level:
                break
            trial, added = point, False
            for _ in range(_SWAPS):
                rows, gain = leading_rank_one(self.problem.residual(trial.factors), self.rng)
                if gain <= _ABOVE_NOISE * unit:
                    break
                trial, added = self._settled_quietly(self.grown(trial, rows, gain)), True
            if not added:
                break
            protected: int | None = trial.factors[0].shape[0] - 1
            while trial.factors[0].shape[0] > self.rank:
                cheap = _ABOVE_NOISE * unit
                reduction = cheapest_reduction(trial, self.rng, cheap, protected)
                trial = self._settled_quietly(self.sweeps.start(reduction.apply(trial.factors)))
                protected = None
            if trial.loss >= point.loss:
                break
            point = trial
            self.monitor.record(point.loss, lambda p=point: self.assemble(p))  # type: ignore[misc]
        return point

    def _settled_quietly(self, point: Point) -> Point:
        rule = StoppingRule(_SETTLED_TOL, _SETTLING_SWEEPS, 2, self.smallest)
        return iterate(self.sweeps.extrapolated, point, rule)[0]

    def reseeded(self, point: Point) -> Point:
        """Move components that sit in the wrong place to where the residual needs one.

        Where the leading rank-one term of the residual offers at least a tenth of what dropping
        the weakest component costs, it becomes a component of its own; after a few sweeps with
        one component too many, the one that is now cheapest to miss is dropped. The result is
        kept only if it then ends below the present loss.
        """
        for _ in range(_SWAPS):
            if self.monitor.ended is not None or point.loss <= self.smallest:
                break
            enough = _SWAP_RATIO * component_costs(point).min()
            if point.loss <= enough:  # and no part of the residual is larger than it
                break
            rows, gain = leading_rank_one(self.problem.residual(point.factors), self.rng)
            if gain <= enough:
                break
            grown = self.grown(point, rows, gain)
            for _ in range(_GROWN_SWEEPS):
                grown = self.sweeps.extrapolated(grown)
            least = int(np.argmin(component_costs(grown)))
            trial = self.sweeps.start(
                balanced([np.delete(f, least, axis=0) for f in grown.factors])
            )
            rule = StoppingRule(self.tol, _SWAP_SWEEPS, 3, floor=0.98 * point.loss)
            trial, _ = iterate(self.sweeps.extrapolated, trial, rule)
            if trial.loss >= point.loss * (1 - _WORTH_A_SWAP):
                break
            point = self.settled(trial)
        return point

    def grown(self, point: Point, rows: Sequence[Array], gain: float) -> Point:
        """A point with one more component, given by unit rows and its energy."""
        scale = gain ** (0.5 / len(rows))
        pairs = zip(point.factors, rows, strict=True)
        return self.sweeps.start([np.vstack([f, scale * row]) for f, row in pairs])
