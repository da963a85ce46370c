"""Interchanges that raise the likelihood of tables, where distances leave an edge undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.affinity import Affinity, fitted_lengths
from latensor.models.trees.certificate import SUPPORTED
from latensor.models.trees.family import TreeFamily, TreeState, evaluate
from latensor.models.trees.interchange import (
    Candidate,
    Interchange,
    interchanged,
    interchanges,
    likelier_tree,
    supported,
)
from latensor.moments.batch import Batch
from latensor.refinement.em import Fold, em

# Steps of EM after which two trees are compared.
_STEPS = 5
# Log-likelihood that an interchange must gain: competing trees often differ by less after few
# steps.
_WORTH = 0.5


def interchange_by_likelihood(
    state: TreeState,
    affinity: Affinity,
    fold: Fold[TreeState],
    family: TreeFamily,
    sample: Batch,
    rng: np.random.Generator | None = None,
) -> tuple[TreeState, int]:
    """A likelier state near a state, and how many interchanges led to it.

    Every inner edge that the bootstrap leaves undecided is tried with both interchanges, a few
    steps of EM each.

    Parameters
    ----------
    state : after EM
    affinity : of the leaves, for lengths of new trees
    fold : goes over the sites, prepared
    sample : the sites
    rng : of the bootstrap of sites by which new edges get a support; None for none
    """

    def fitted(start: TreeState) -> Candidate:
        found = em(fold, family, start, max_iter=_STEPS, accelerate=False, prepared=True)
        return Candidate(found.state.tree, found.log_likelihood * sample.weight, found.state)

    def refitted(now: Candidate, chosen: Sequence[Interchange]) -> Candidate:
        return fitted(replace(now.state, tree=interchanged(now.tree, chosen)))

    def gains(now: Candidate) -> tuple[Candidate, list[Interchange]]:
        now, found = fitted(now.state), []
        support = np.nan_to_num(now.tree.support, nan=0.0)
        undecided = [v for v in now.tree.splits().values() if support[v] < SUPPORTED]
        for v in undecided:
            for each in interchanges(now.tree, v) if v >= now.tree.n_observed else []:
                gain = refitted(now, [each]).value - now.value
                found += [replace(each, gain=gain)] if gain > _WORTH else []
        return now, found

    def logs(v: int) -> Array:
        every = [now, *(refitted(now, [each]) for each in interchanges(now.tree, v))]
        found = [evaluate(each.state, units.rows, units.weights)["logs"] for each in every]
        return np.column_stack(found)

    now, moves = likelier_tree(fitted(state), gains, refitted)
    state = now.state
    if not moves:
        return state, 0
    tree = replace(state.tree, length=fitted_lengths(state.tree, affinity))
    if rng is not None:
        units, now = family.prepare(sample), fitted(state)
        tree = supported(tree, units.weights, logs, rng)
    return replace(state, tree=tree), moves
