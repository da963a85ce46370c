"""Which start to trust: trials on the leading part of a core, and run-offs between the best.

A pencil, then the leading directions, then more pencils and a random start get a few sweeps each.
The search ends at once where a trial is certified by the noise floor or meets the target, and
early where independent pencils agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.alternating import Point, Sweeps
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.starts import (
    Pencils,
    leading_start,
    noise_spread,
    parameters,
    pencil_modes,
    random_start,
)

_PENCILS = 8
_TRIAL_SWEEPS = {"pencil": 3, "leading": 3, "random": 6}
_RUN_OFF_SWEEPS = 20
# Entries up to which trials cost less than finding out what is wrong with a fit.
_CHEAP_TRIALS = 1 << 12
# Pencils that agree to this share of the loss after their trials end the series, ...
_TRIALS_AGREE = 1e-2
# ... and finalists that agree to this share after their run-offs spare the others.
_FINALISTS_AGREE = 1e-3


@dataclass(frozen=True)
class NoiseFloor:
    """What a perfect fit leaves over, from the energy that compression left out.

    Parameters
    ----------
    shape : of the tensor
    variance : float, squared noise per entry: the energy outside the core over its entries
    sharp : bool, whether the core has only directions of the signal, so that its noise is like
        that of all other entries; a core with spare directions holds the largest of the noise
    """

    shape: tuple[int, ...]
    variance: float
    sharp: bool = False

    def level(self, core_shape: Sequence[int], rank: int) -> float:
        """The loss of a perfect fit of a core: that of noise alone, with a margin."""
        entries = max(prod(core_shape) - parameters(core_shape, rank), 0)
        if self.sharp:
            # Three standard deviations of a chi-squared sum, and a tenth for directions that lean
            # towards the noise.
            margin = 1.1 + 3.0 * np.sqrt(2.0 / max(entries, 1))
        else:
            margin = 1.15 * noise_spread(self.shape, core_shape)
        return float(margin * self.variance * entries)

    def largest_component(self, core_shape: Sequence[int]) -> float:
        """The energy of the largest rank-one term that noise alone has in a core."""
        return float(self.variance * sum(np.sqrt(r) for r in core_shape) ** 2)

    def certifies(self, point: Point, core_shape: Sequence[int], rank: int) -> bool:
        """Whether a core fit is down at the noise with every component well above it."""
        weights = np.prod([gram.diagonal().real for gram in point.grams], axis=0)
        return point.loss <= self.level(core_shape, rank) < float(weights.min())


@dataclass
class StartSearch:
    """One search; see the head of this file.

    Parameters
    ----------
    part : array, the leading part of a core
    rank : int
    rng : generator
    monitor : knows the target
    outside : float, squared norm of the core outside `part`
    floor : NoiseFloor or None
    tol : float, relative decrease of the loss that counts as progress in run-offs
    """

    part: Array
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    outside: float
    floor: NoiseFloor | None
    tol: float

    def __post_init__(self) -> None:
        self.problem = DenseProblem(self.part)
        self.sweeps = Sweeps(self.problem)
        self._remaining = self._trials()

    def only(self, kind: str) -> Point:
        """The trial of one kind of start, without any comparison."""
        return next(point for k, point in self._trials() if k == kind)

    def run(self, patient: bool = False) -> tuple[Point | None, bool]:
        """The most promising point, and whether it is certainly right.

        A second call goes on with the starts that the first one spared, and is None where it
        spared none. A patient search tries them all.
        """
        trials: dict[str, list[Point]] = {"pencil": [], "leading": [], "random": []}
        for kind, point in self._remaining:
            if not np.isfinite(point.loss):
                continue
            if self._reached(point):
                return point, False
            if self._certified(point):
                return point, True
            trials[kind].append(point)
            trials[kind].sort(key=lambda p: p.loss)
            pencils = trials["pencil"]
            dear = self.part.size > _CHEAP_TRIALS
            if dear and not patient and self._sharp and pencils and trials["leading"]:
                # Noise will tell whether these two were enough.
                break
            if (
                not patient
                and len(pencils) > 2
                and self._agree(pencils[0], pencils[1], _TRIALS_AGREE)
            ):
                break
        best = self._run_off(trials, patient)
        return best, best is not None and self._certified(best)

    @property
    def _sharp(self) -> bool:
        return self.floor is not None and self.floor.sharp

    def _run_off(self, trials: dict[str, list[Point]], patient: bool) -> Point | None:
        rule = StoppingRule(self.tol, _RUN_OFF_SWEEPS, 3, floor=self._target_loss())
        reached: list[Point] = []
        pencils = trials["pencil"][:2]
        for point in [*pencils, *trials["leading"], *trials["random"]]:
            reached.append(iterate(self.sweeps.extrapolated, point, rule)[0])
            if self._reached(reached[-1]) or (self._sharp and self._certified(reached[-1])):
                return reached[-1]
            best_other = min((p.loss for p in trials["leading"]), default=np.inf)
            if (
                not patient
                and len(reached) == len(pencils) == 2
                and self._agree(reached[0], reached[1], _FINALISTS_AGREE)
                and reached[0].loss <= best_other
            ):
                break
        return min(reached, key=lambda p: p.loss, default=None)

    def _trials(self) -> Iterator[tuple[str, Point]]:
        """Points after the trial sweeps of each start, in the order in which they are worth it."""
        part, rank, rng = self.part, self.rank, self.rng
        natural = tuple(range(part.ndim))
        pencils = None
        if pencil_modes(part.shape, rank) is not None:
            pencils = Pencils(part, rank)
        for kind in ("pencil", "leading", *["pencil"] * (_PENCILS - 1), "random"):
            modes = natural
            factors: tuple[Array, ...] | None
            if kind == "leading":
                factors = leading_start(part, rank, rng)
            elif kind == "random":
                factors = random_start(part.shape, rank, rng, part.dtype)
            elif pencils is None:
                continue
            else:
                factors = pencils.start(rng)
                first = pencils.first_mode
                modes = (first, *(n for n in natural if n != first))
            if factors is not None:
                yield kind, self._swept(factors, modes, _TRIAL_SWEEPS[kind])

    def _swept(self, factors: tuple[Array, ...], modes: tuple[int, ...], count: int) -> Point:
        grams = tuple(self.problem.gram(f) for f in factors)
        point = Sweeps(self.problem, modes).sweep(Point(factors, grams, np.inf))
        for _ in range(count - 1):
            point = self.sweeps.sweep(point)
        return point

    def _reached(self, point: Point) -> bool:
        return self.monitor.reached(point.loss + self.outside)

    def _certified(self, point: Point) -> bool:
        if point.loss <= 1e-20 * self.problem.squared_norm:
            return True
        return self.floor is not None and self.floor.certifies(point, self.part.shape, self.rank)

    def _agree(self, one: Point, other: Point, share: float) -> bool:
        return abs(one.loss - other.loss) <= share * min(one.loss, other.loss)

    def _target_loss(self) -> float:
        return max(self.monitor.target_loss() - self.outside, 0.0)
