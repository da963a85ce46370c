"""Other optima of a core: components replaced, fits compared until they agree.

A local optimum mostly differs from a better one by a few components that sit in the wrong place.
One move serves all: take some components out, put as many in, from what the residual needs or at
random, and fit again. Where noise explains the residual, or two fits agree, nothing is looked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from latensor.decomposition.auto.converge import converge
from latensor.decomposition.auto.core import Core, Fit, component_costs
from latensor.decomposition.auto.replace import misplaced, replace_components, weakest
from latensor.decomposition.optimize.iteration import ROUGH, SLOW
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.starts import leading_rank_one

# Fractions of the components that trials replace: all of them at random, the cheapest to miss. Half
# of them brought three of eight fits of ten among twenty components back to where they were.
_FRACTIONS = (1.0, 0.2)
# Trials in a row that gain nothing: then the search has stopped paying.
_FRUITLESS = 4
# A residual whose leading rank-one term has this fraction of what the weakest component is worth
# may need a component there.
_WORTH_TRYING = 0.1
# Entries times rank up to which a tensor that could not be compressed is worth other starts.
_SMALL_TENSOR = 1 << 18


def improved(core: Core, fit: Fit, thorough: bool) -> Iterator[Fit]:
    """Better and better fits of a core, from searches of growing cost."""
    if core.monitor.ended is not None or core.accepts(fit) or core.rank == 1 or core.overfitted:
        return
    best = fit
    if not core.cheap:
        best = _swapped(core, best)
        if best is not fit:
            yield best
    work = core.problem.tensor.size * core.rank
    if not thorough or not (core.cheap or work <= _SMALL_TENSOR) or core.accepts(best):
        return
    rule = Multistart(ROUGH, 2, _FRUITLESS, base=core.monitor.base)
    found = rule.search(best, _others(core, best))
    if found.state is not best:
        best = core.report(found.state)
        yield best


def _others(core: Core, fit: Fit) -> Iterator[Fit]:
    """Fits from other starts, each from the best one so far."""
    best = fit
    for fraction in cycle(_FRACTIONS):
        if core.monitor.ended is not None:
            return
        count = max(int(fraction * core.rank), 2)
        if fraction == 1.0 or count >= core.rank:
            start = replace_components(core, best, range(core.rank), "random")
        else:
            start = replace_components(core, best, misplaced(best.factors, count))
        other = converge(core.unmonitored(), start, best)
        best = min(best, other, key=lambda f: f.loss)
        yield other


def _swapped(core: Core, fit: Fit) -> Fit:
    """Pairs of components replaced while the residual has room for one and that helps.

    For tensors that are fitted whole, over which a trial costs as much as the fit itself.
    """
    while core.monitor.ended is None and fit.loss > core.smallest and core.rank > 2:
        enough = _WORTH_TRYING * component_costs(fit.factors).min()
        if fit.loss <= enough:  # and no part of the residual is larger than it
            break
        _, energy = leading_rank_one(core.problem.residual(fit.factors), core.rng)
        if energy <= enough:
            break
        start = replace_components(core, fit, weakest(fit.factors, 2))
        trial = converge(core.unmonitored(), start, fit)
        if trial.loss >= fit.loss * (1 - SLOW):
            break
        fit = core.report(trial)
    return fit
