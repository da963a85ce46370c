"""Interchanges of neighbours that raise the likelihood, where distances leave an edge undecided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latensor.models.trees.affinity import Affinity, fitted_lengths
from latensor.models.trees.family import TreeFamily, TreeState
from latensor.refinement.em import Fold, em
from latensor.sources.tree import Tree

# Steps of EM after which two trees are compared, and rounds over all undecided edges.
_STEPS = 5
_ROUNDS = 6
# Edges of at least this support are left alone.
_SURE = 0.95
# Log-likelihood that an interchange must gain: competing trees often differ by less after few
# steps.
_WORTH = 0.5


def interchange_by_likelihood(
    state: TreeState, affinity: Affinity, fold: Fold[TreeState], family: TreeFamily, weight: float
) -> tuple[TreeState, int]:
    """A likelier state near a state, and how many interchanges led to it.

    Every inner edge that the bootstrap leaves undecided is tried with both interchanges, a few
    steps of EM each. Gains of edges that do not touch are taken together, if the whole gains.

    Parameters
    ----------
    state : after EM
    affinity : of the leaves, for lengths of new trees
    fold : goes over the sites, prepared
    weight : float, how many sites these are
    """
    moves = 0
    for _ in range(_ROUNDS):
        em_fit = em(fold, family, state, max_iter=_STEPS, accelerate=False, prepared=True)
        state, value = em_fit.state, em_fit.log_likelihood
        gains = []
        for v in _undecided(state.tree):
            best = None
            for tree in _neighbours(state.tree, v):
                tried = replace(state, tree=tree)
                found = em(fold, family, tried, max_iter=_STEPS, accelerate=False, prepared=True)
                gain = (found.log_likelihood - value) * weight
                if gain > _WORTH and (best is None or gain > best[0]):
                    best = gain, v, tree, found.state
            if best is not None:
                gains.append(best)
        if not gains:
            break
        gains.sort(key=lambda each: -each[0])
        together, count = _together(state, gains)
        found = em(fold, family, together, max_iter=_STEPS, accelerate=False, prepared=True)
        if count > 1 and (found.log_likelihood - value) * weight < gains[0][0]:
            together, count = gains[0][3], 1
        lengths = fitted_lengths(together.tree, affinity)
        state = replace(together, tree=replace(together.tree, length=lengths))
        moves += count
    return state, moves


def _undecided(tree: Tree) -> list[int]:
    support = np.nan_to_num(tree.support, nan=0.0)
    return [v for v in tree.splits().values() if support[v] < _SURE and v >= tree.n_observed]


def _neighbours(tree: Tree, v: int) -> list[Tree]:
    """The trees in which a child of v has changed places with a sibling of v."""
    u = int(tree.parent[v])
    siblings = [int(w) for w in np.flatnonzero(tree.parent == u) if w != v][:1]
    children = [int(w) for w in np.flatnonzero(tree.parent == v)[:2]]
    return [_swapped(tree, v, sibling, child) for sibling in siblings for child in children]


def _swapped(tree: Tree, v: int, sibling: int, child: int) -> Tree:
    parent, support = tree.parent.copy(), tree.support.copy()
    parent[sibling], parent[child] = v, tree.parent[v]
    # What was measured was another edge.
    support[v] = np.nan
    return replace(tree, parent=parent, support=support)


def _together(
    state: TreeState, gains: list[tuple[float, int, Tree, TreeState]]
) -> tuple[TreeState, int]:
    """All interchanges that share no node, the best first."""
    tree, count = state.tree, 0
    used: set[int] = set()
    parent, support = tree.parent.copy(), tree.support.copy()
    for _, v, changed, _ in gains:
        moved = np.flatnonzero(changed.parent != tree.parent)
        touched = {v, int(tree.parent[v]), *map(int, moved)}
        if used & touched:
            continue
        used |= touched
        parent[moved] = changed.parent[moved]
        support[v] = np.nan
        count += 1
    return replace(state, tree=replace(tree, parent=parent, support=support)), count
