"""Other optima near a fit: some of its components exchanged, followed while they may still win.

Data that are not a few components and noise have many optima of nearly the same loss, and a better
one mostly shares all but a few components with the best one known. One to a seventh of the
components, drawn at random, give way to others; a few sweeps then show where that leads. A trial
is followed (`converge.follow`) only while it may still win.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from latensor.decomposition.auto.converge import follow
from latensor.decomposition.auto.core import Core, Fit
from latensor.decomposition.auto.replace import replace_components

# The largest fraction of the components that is exchanged at once.
_FRACTION = 0.15
# What a component that is added costs, in sweeps.
_PRICE = 10
# Gains, as fractions of the loss: the least that wins, and the least for which the search goes on.
_BETTER, _WORTH = 1e-6, 2e-5
# Walks after the first, the difference between the ends of two that counts as none, and how far
# the start of another may lie above that of the first.
_OTHER_WALKS = 3
_SAME_OPTIMUM = 1e-5
_NEAR = 4e-3


@dataclass(frozen=True)
class Exchange:
    """Walks from optimum to better optimum of a core; see the head of this file."""

    core: Core

    def walks(self, fit: Fit, budget: int) -> Iterator[Fit]:
        """The best fit so far, after every walk.

        The first walk starts from `fit`, others from random starts where these are nearly as
        good: not every region can be left by exchanging a few components.

        Parameters
        ----------
        fit : where to start, an optimum
        budget : int, what the trials of one walk may cost, in sweeps; half of it without a gain
            ends a walk
        """
        core = self.core
        best = self._walk(fit, budget, fit.loss)
        yield best
        for _ in range(_OTHER_WALKS):
            if core.monitor.ended is not None:
                break
            drawn = replace_components(core, fit, range(core.rank), "random")
            start, _ = follow(core, drawn, np.inf)
            if start.loss - fit.loss > _NEAR * self._total(fit):
                break
            other = self._walk(start, budget, best.loss)
            same = abs(other.loss - best.loss) <= _SAME_OPTIMUM * self._total(best)
            best = min(best, other, key=lambda f: f.loss)
            yield best
            if same:
                break

    def _walk(self, fit: Fit, budget: int, known: float) -> Fit:
        """The end of one walk; `known` is the lowest loss that the callback has been told of."""
        core, best, spent, idle = self.core, fit, 0, 0
        most = max(round(_FRACTION * core.rank), 1)
        for add in cycle(("residual", "random")):
            if spent >= budget or idle >= budget // 2 or core.monitor.ended is not None:
                break
            count = int(core.rng.integers(1, most + 1))
            leaving = core.rng.choice(core.rank, count, replace=False).tolist()
            start = replace_components(core, best, leaving, add)
            trial, cost = follow(core, start, best.loss)
            cost += _PRICE * count if add == "residual" else 1
            spent, idle = spent + cost, idle + cost
            gain = best.loss - trial.loss
            if gain > _BETTER * self._total(best):
                idle = 0 if gain > _WORTH * self._total(best) else idle
                best = trial
                if best.loss < known:
                    core.told(best)
        return best

    def _total(self, fit: Fit) -> float:
        return fit.loss + self.core.monitor.base
