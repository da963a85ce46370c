"""Moves of subtrees that raise the likelihood, where distances leave an edge undecided."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.affinity import Affinity, fitted_lengths
from latensor.models.trees.family import TreeFamily, TreeState, evaluate
from latensor.models.trees.structure import RESAMPLES
from latensor.moments.batch import Batch
from latensor.refinement.em import Fold, em
from latensor.sources.tree import Tree

# Steps of EM after which two trees are compared, and rounds over all undecided edges.
_STEPS = 5
_ROUNDS = 6
# Edges of at least this support are left alone.
_SURE = 0.95
# Probability of a change along an edge that is new: EM goes on from there.
_FRESH = 0.1
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
    steps of EM each. Gains of edges that do not touch are taken together, if the whole gains.
    Where no interchange gains, subtrees next to such edges move two edges away, the best first.

    Parameters
    ----------
    state : after EM
    affinity : of the leaves, for lengths of new trees
    fold : goes over the sites, prepared
    sample : the sites
    rng : of the bootstrap of sites by which new edges get a support; None for none
    """
    moves, weight = 0, sample.weight
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
            best_move = _best_subtree_move(state, fold, family, value + _WORTH / weight)
            if best_move is None:
                break
            lengths = fitted_lengths(best_move.tree, affinity)
            state = replace(best_move, tree=replace(best_move.tree, length=lengths))
            moves += 1
            continue
        gains.sort(key=lambda each: -each[0])
        together, count = _together(state, gains)
        found = em(fold, family, together, max_iter=_STEPS, accelerate=False, prepared=True)
        if count > 1 and (found.log_likelihood - value) * weight < gains[0][0]:
            together, count = gains[0][3], 1
        lengths = fitted_lengths(together.tree, affinity)
        state = replace(together, tree=replace(together.tree, length=lengths))
        moves += count
    if moves and rng is not None:
        state = replace(state, tree=_supported(state, fold, family, sample, rng))
    return state, moves


def _supported(
    state: TreeState,
    fold: Fold[TreeState],
    family: TreeFamily,
    sample: Batch,
    rng: np.random.Generator,
) -> Tree:
    """The tree with a support of new edges, by a bootstrap of the likelihoods of sites.

    It is the fraction of resamples in which the tree stays likelier than with an interchange, a few
    steps of EM over all sites behind each.
    """
    units, support = family.prepare(sample), state.tree.support.copy()
    counts = rng.poisson(units.weights, (RESAMPLES, len(units)))

    def site_logs(tree: Tree) -> Array:
        tried = replace(state, tree=tree)
        found = em(fold, family, tried, max_iter=_STEPS, accelerate=False, prepared=True).state
        logs: Array = evaluate(found, units.rows, units.weights)["logs"]
        return logs

    own = site_logs(state.tree)
    for v in _undecided(state.tree):
        if np.isnan(support[v]):
            others = [site_logs(tree) for tree in _neighbours(state.tree, v)]
            values = counts @ np.column_stack([own, *others])
            support[v] = (np.argmax(values, axis=1) == 0).mean()
    return replace(state.tree, support=support)


def _best_subtree_move(
    state: TreeState, fold: Fold[TreeState], family: TreeFamily, value: float
) -> TreeState | None:
    """The likeliest state after a subtree has moved, where that is above a value."""
    best = None
    tried = set()
    for u in _undecided(state.tree):
        for v in (u, *map(int, np.flatnonzero(state.tree.parent == u))):
            for w in _two_away(state.tree, v):
                moved = regrafted(state, v, w)
                key = frozenset(moved.tree.splits())
                if key in tried:
                    continue
                tried.add(key)
                found = em(fold, family, moved, max_iter=_STEPS, accelerate=False, prepared=True)
                if found.log_likelihood > value:
                    best, value = found.state, found.log_likelihood
    return best


def _two_away(tree: Tree, v: int) -> list[int]:
    """Nodes below the edges to which the subtree at v can move, with one edge in between.

    The parent of v is a hidden node of three neighbours, which moves along; none for others.
    """
    u = int(tree.parent[v])
    if u < tree.n_observed or tree.parent[u] < 0 or (tree.parent == u).sum() != 2:
        return []
    around = tree.neighbours()
    found = []
    for first in around[u]:
        for second in around[first] if first != v else []:
            if second != u:
                found += [(second, third) for third in around[second] if third != first]
    return [a if tree.parent[a] == b else b for a, b in found]


def regrafted(state: TreeState, v: int, w: int) -> TreeState:
    """The subtree at v, with its parent, moved onto the edge above w.

    The tables of the two edges that become one are multiplied; of the two halves of the edge above
    w the upper one begins next to the identity.
    """
    tree, u = state.tree, int(state.tree.parent[v])
    sibling = next(int(c) for c in np.flatnonzero(tree.parent == u) if c != v)
    parent, support, tables = tree.parent.copy(), tree.support.copy(), state.tables.copy()
    tables[sibling] = tables[u] @ tables[sibling]
    parent[sibling] = parent[u]
    parent[u], parent[w] = parent[w], u
    k = state.n_states
    tables[u, :k, :k] = (1 - _FRESH) * np.eye(k) + _FRESH / k
    # What was measured were other edges.
    support[[u, w, sibling]] = np.nan
    return replace(state, tree=replace(tree, parent=parent, support=support), tables=tables)


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
