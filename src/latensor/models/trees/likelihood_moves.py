"""Moves of subtrees that raise the likelihood, where distances leave an edge undecided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from latensor.sources.tree import Tree

# Steps of EM after which two trees are compared, and rounds over all undecided edges.
_STEPS = 5
_ROUNDS = 6
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
    """A likelier state near a state, and how many moves led to it.

    Every inner edge that the bootstrap leaves undecided is tried with both interchanges, a few
    steps of EM each. Where none gains, subtrees next to such edges move two edges away, the best
    first.

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
        for v in _undecided(now.tree):
            for each in interchanges(now.tree, v):
                gain = refitted(now, [each]).value - now.value
                found += [replace(each, gain=gain)] if gain > _WORTH else []
        return now, found

    def logs(v: int) -> Array:
        every = [now, *(refitted(now, [each]) for each in interchanges(now.tree, v))]
        found = [evaluate(each.state, units.rows, units.weights)["logs"] for each in every]
        return np.column_stack(found)

    now, moves = fitted(state), 0
    for _ in range(_ROUNDS):
        now, more = likelier_tree(now, gains, refitted)
        moved = _best_subtree_move(now, fitted)
        moves += more
        if moved is None:
            break
        now, moves = moved, moves + 1
    state = now.state
    if not moves:
        return state, 0
    tree = replace(state.tree, length=fitted_lengths(state.tree, affinity))
    if rng is not None:
        units, now = family.prepare(sample), fitted(state)
        tree = supported(tree, units.weights, logs, rng)
    return replace(state, tree=tree), moves


def _best_subtree_move(
    now: Candidate, fitted: Callable[[TreeState], Candidate]
) -> Candidate | None:
    """The likeliest candidate after a subtree has moved, where it gains."""
    best, value, tried = None, now.value + _WORTH, set()
    for u in _undecided(now.tree):
        for v in (u, *map(int, np.flatnonzero(now.tree.parent == u))):
            for w in _two_away(now.tree, v):
                moved = regrafted(now.state, v, w)
                key = frozenset(moved.tree.splits())
                if key in tried:
                    continue
                tried.add(key)
                found = fitted(moved)
                if found.value > value:
                    best, value = found, found.value
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
    return [v for v in tree.splits().values() if support[v] < SUPPORTED and v >= tree.n_observed]
