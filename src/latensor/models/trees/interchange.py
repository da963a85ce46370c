"""Interchanges of neighbours that raise the likelihood of a tree, whatever that stands on.

An inner edge has four parts of the tree around it: two children of the node v below it, a sibling
of v, and all else. In the two other trees of these a child of v and the sibling change places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.structure import RESAMPLES
from latensor.sources.tree import Tree

# The four parts as they stand on both sides, and with either child of v in the sibling's place.
ORDERS = ((0, 1, 2, 3), (0, 2, 1, 3), (2, 1, 0, 3))
# Log-likelihood that an interchange must gain: less is left open by what still moves.
WORTH = 0.1
_ROUNDS = 20
# Gain of a tree at which the search ends.
_LEAST = 0.01


@dataclass(frozen=True, eq=False)
class Interchange:
    """A child of v and a sibling of v change places, for a gain in log-likelihood."""

    gain: float
    v: int
    child: int
    sibling: int
    # Below which edges these lengths are the best, where a search knows that.
    nodes: Any = None
    lengths: Any = None


@dataclass(frozen=True, eq=False)
class Candidate:
    """A tree with its log-likelihood, and what only the search that fitted it reads."""

    tree: Tree
    value: float
    state: Any


def interchanges(tree: Tree, v: int, gains: Sequence[float] = (0.0, 0.0)) -> list[Interchange]:
    """Those around the edge above v, in their order: the second child of v, then the first."""
    sibling = next(int(w) for w in np.flatnonzero(tree.parent == tree.parent[v]) if w != v)
    first, second = (int(w) for w in np.flatnonzero(tree.parent == v)[:2])
    return [
        Interchange(float(gain), v, child, sibling)
        for gain, child in zip(gains, (second, first), strict=True)
    ]


def interchanged(tree: Tree, chosen: Sequence[Interchange]) -> Tree:
    """The tree after interchanges."""
    parent, support = tree.parent.copy(), tree.support.copy()
    for each in chosen:
        parent[each.child], parent[each.sibling] = tree.parent[each.v], each.v
        # What was measured was another edge.
        support[each.v] = np.nan
    return replace(tree, parent=parent, support=support)


def best_apart(tree: Tree, found: Sequence[Interchange]) -> list[Interchange]:
    """Interchanges that share no node, the best first."""
    children, used = tree.children(), set[int]()
    apart: list[Interchange] = []
    for each in sorted(found, key=lambda each: (-each.gain, each.v)):
        u = int(tree.parent[each.v])
        touched = {u, *children[u], *children[each.v]}
        if not used & touched:
            used |= touched
            apart.append(each)
    return apart


def likelier_tree(
    start: Candidate,
    gains: Callable[[Candidate], tuple[Candidate, Sequence[Interchange]]],
    refitted: Callable[[Candidate, Sequence[Interchange]], Candidate],
) -> tuple[Candidate, int]:
    """A candidate of which no interchange gains, and how many have led there.

    Gains of edges that do not touch are taken together, if the whole gains, or the best alone:
    `gains` gives the candidate as they are measured from it, and `refitted` it after some of them.
    """
    now, moves = start, 0
    for _ in range(_ROUNDS):
        now, found = gains(now)
        apart = best_apart(now.tree, found)
        if not apart:
            break
        for chosen in (apart, apart[:1]):
            tried = refitted(now, chosen)
            better = tried.value - now.value
            if better > apart[0].gain / 2 or len(apart) == 1:
                break
        if better <= _LEAST:
            break
        now, moves = tried, moves + len(chosen)
    return now, moves


def supported(
    tree: Tree, weights: Array, site_logs: Callable[[int], Array], rng: np.random.Generator
) -> Tree:
    """The tree with a support of inner edges that have none, by a bootstrap of sites.

    It is the fraction of resamples in which an edge stays likelier than both of its interchanges;
    `site_logs` gives log-likelihoods (S, 3) of sites for the three, of the edge above a node.
    """
    support, counts = tree.support.copy(), rng.poisson(weights, (RESAMPLES, len(weights)))
    for v in tree.splits().values():
        if v >= tree.n_observed and np.isnan(support[v]):
            support[v] = (np.argmax(counts @ site_logs(v), axis=1) == 0).mean()
    return replace(tree, support=support)
