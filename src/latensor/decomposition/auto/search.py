"""Other optima of a core: components replaced, fits compared until they agree.

A local optimum mostly differs from a better one by a few components that sit in the wrong place.
One move serves all: take some components out, put as many in, from what the residual needs or at
random, and fit again. Where noise explains the residual, or two fits agree, nothing is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from latensor.decomposition.auto.converge import LARGEST_RANK, converge
from latensor.decomposition.auto.core import Core, Fit
from latensor.decomposition.auto.replace import misplaced, replace_components
from latensor.decomposition.optimize.iteration import ROUGH
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.result import Status

# Fractions of the components that trials replace in turn: all of them at random, the cheapest to
# miss. Where a fifth is too few half of them get out of a swamp of collinear components; half alone
# brought three of eight fits of ten among twenty components back to where they were.
_FRACTIONS = (1.0, 0.2, 1.0, 0.5)
# Trials in a row that gain nothing: then the search has stopped paying.
_FRUITLESS = 4
# Entries times rank up to which a tensor that could not be compressed is worth other starts though
# its fit has converged; one that sits in a swamp always is, where another start may take a tenth of
# the time.
_SMALL_TENSOR = 1 << 18


def improved(core: Core, fit: Fit, thorough: bool) -> Fit:
    """A better fit of a core, where looking for one is worth it; else the same one."""
    if core.monitor.ended is not None or core.accepts(fit) or core.rank == 1 or core.overfitted:
        return fit
    small = core.cheap or core.problem.tensor.size * core.rank <= _SMALL_TENSOR
    swamp = fit.status is Status.MAX_ITER and core.rank <= LARGEST_RANK
    if not thorough or not (small or swamp):
        return fit
    rule = Multistart(ROUGH, 2, _FRUITLESS, base=core.monitor.base)
    found = rule.search(fit, _others(core, fit)).state
    return fit if found is fit else core.report(found)


def _others(core: Core, fit: Fit) -> Iterator[Fit]:
    """Fits from other starts, each from the best one so far."""
    best = fit
    for fraction in cycle(_FRACTIONS):
        if core.monitor.ended is not None or core.accepts(best):
            return
        count = max(int(fraction * core.rank), 2)
        if fraction == 1.0 or count >= core.rank:
            start = replace_components(core, best, range(core.rank), "random")
        else:
            start = replace_components(core, best, misplaced(best.factors, count))
        other = converge(core.unmonitored(), start, best)
        best = min(best, other, key=lambda f: f.loss)
        yield other
