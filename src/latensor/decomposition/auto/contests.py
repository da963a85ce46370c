"""Contests between optima: whether a finished fit of a core is the best one, by trying others.

Where noise does not explain what a fit leaves over, the starts that were spared are tried, then
other ways to an optimum. Ways that lead to the same loss show that there is nothing else to find;
where they do not, components are exchanged for as long as that helps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from latensor.decomposition.auto.core_fit import LARGEST_NEWTON, CoreFit
from latensor.decomposition.auto.exchange import Exchange
from latensor.decomposition.auto.reduction import cheapest_reduction
from latensor.decomposition.optimize.alternating import Point
from latensor.decomposition.optimize.starts import leading_rank_one, random_start

_GROWN_SWEEPS = 8
# So many ways that end at the same loss to this share have found what there is to find.
_AGREEMENTS = 3
_SAME_OPTIMUM = 1e-5
# So many that do not agree show that there is more to find.
_DISAGREEMENTS = 4
_CONTEST_ROUNDS = 2
# Sweeps per component that exchanges may take, in all and without a gain, over a core of so many
# entries times the rank or less; over a larger one as many fewer, down to what finds nothing.
_EXCHANGE_SWEEPS = 250
_SMALL_CORE = 1 << 20
_IDLE_SHARE = 0.5
# Entries times rank up to which a tensor that could not be compressed is worth contests, and
# exchanges, and the relative loss at which its fit is exact.
_TINY_TENSOR = 1 << 18
_TINIEST_TENSOR = 1 << 14
_EXACT = 1e-20
_FEWEST_SWEEPS = 50


@dataclass(frozen=True)
class Contests:
    """The best of a finished fit and of others.

    Parameters
    ----------
    fit : of the core, with the search that its start came from
    """

    fit: CoreFit

    def improved(self, point: Point) -> Point:
        """The best of `point`, the finished fit, and of all rivals."""
        *_, best = self.improving(point)
        return best

    def improving(self, point: Point) -> Iterator[Point]:
        """The best of `point`, the finished fit, and of the rivals so far: after the contests, and
        after every walk that exchanges components.
        """
        fit = self.fit
        if point.loss <= self._best_conceivable() or not self._worth_it():
            yield point
            return
        best = point
        if fit.monitor.ended is None:
            best = min(best, self._from_spared_starts(best), key=lambda p: p.loss)
        agreements = disagreements = 0
        for contest, share in self._contests() * _CONTEST_ROUNDS:
            decided = agreements >= _AGREEMENTS or disagreements >= _DISAGREEMENTS
            if fit.monitor.ended is not None or decided:
                break
            trial = contest(best, max(int(share * fit.rank), 1))
            same = abs(trial.loss - best.loss) <= _SAME_OPTIMUM * best.loss
            agreements, disagreements = agreements + same, disagreements + (not same)
            best = min(best, trial, key=lambda p: p.loss)
        if best is not point:
            fit.monitor.record(best.loss, lambda: fit.assemble(best))
        yield best
        share = min(_SMALL_CORE / (fit.core.size * fit.rank), 1.0)
        affordable = fit.compressed or fit.core.size * fit.rank <= _TINIEST_TENSOR
        enough = disagreements < _DISAGREEMENTS or not affordable
        if enough or _EXCHANGE_SWEEPS * share < _FEWEST_SWEEPS:
            return
        sweeps = int(_EXCHANGE_SWEEPS * share * fit.rank)
        exchange = Exchange(fit.problem, fit.rng, fit.monitor, fit.assemble, fit.tol)
        yield from exchange.walks(best, sweeps, int(_IDLE_SHARE * sweeps))

    def _best_conceivable(self) -> float:
        fit = self.fit
        if not fit.compressed:
            return _EXACT * fit.problem.squared_norm
        level = fit.floor.level(fit.core.shape, fit.rank) if fit.floor else 0.0
        return max(level, fit.smallest)

    def _worth_it(self) -> bool:
        """Whether rivals cost little beside the tensor, or beside anything."""
        fit = self.fit
        return fit.compressed or (fit.algebraic and fit.core.size * fit.rank <= _TINY_TENSOR)

    def _contests(self) -> tuple[tuple[Callable[[Point, int], Point], float], ...]:
        """Ways to another optimum, with the share of the components that each concerns."""
        fit = self.fit
        if not 1 < fit.rank <= LARGEST_NEWTON or fit.core.dtype.kind == "c":
            return ()
        return (
            (fit.replant, 0.4),
            (self._from_random, 1.0),
            (fit.replant, 0.2),
            (self._overgrown, 0.2),
        )

    def _from_random(self, point: Point, count: int) -> Point:
        """A fit from random factors of `count` components, for those of a point."""
        fit = self.fit
        start = random_start(fit.core.shape, count, fit.rng, fit.core.dtype)
        return fit.silent().polish(fit.sweeps.start(start))

    def _from_spared_starts(self, point: Point) -> Point:
        rival = self.fit.from_spared_start()
        if rival is None or rival.loss >= point.loss:
            return point
        return self.fit.silent().reseeded(rival)

    def _overgrown(self, point: Point, count: int) -> Point:
        """A fit that had `count` components too many and was reduced to the rank."""
        fit, trial = self.fit, point
        for _ in range(count):
            residual = fit.problem.residual(trial.factors)
            trial = fit.grown(trial, *leading_rank_one(residual, fit.rng))
            for _ in range(_GROWN_SWEEPS):
                trial = fit.sweeps.extrapolated(trial)
        for _ in range(count):
            reduction = cheapest_reduction(trial, fit.rng, fit.smallest)
            trial = fit.sweeps.start(reduction.apply(trial.factors))
            for _ in range(_GROWN_SWEEPS):
                trial = fit.sweeps.extrapolated(trial)
        return fit.silent().polish(trial)
