"""Which tree: from the affinities of the leaves to a topology, its lengths and its support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.affinity import Affinity, fitted_lengths
from latensor.models.trees.joining import (
    balanced_interchange,
    balanced_weights,
    neighbor_joining,
    spectral_neighbor_joining,
)
from latensor.sources.newick import parse_newick
from latensor.sources.tree import Tree

RESAMPLES = 100


def find_topology(method: str, affinity: Affinity, names: Sequence[str]) -> Tree:
    """The tree of affinities, with its lengths.

    Parameters
    ----------
    method : "auto" (spectral neighbour joining, then balanced interchanges), "snj", "nj", or a
        tree in Newick's format
    affinity : Affinity
    names : of the leaves, as a Newick text has them
    """
    if "(" in method:
        tree = parse_newick(method, names)[0]
    elif method == "nj":
        tree = neighbor_joining(affinity.distances)
    else:
        tree = spectral_neighbor_joining(affinity.values)
        if method == "auto":
            tree = balanced_interchange(tree, affinity.distances)
    return replace(tree, length=fitted_lengths(tree, affinity))


def measured_support(
    tree: Tree, draws: Sequence[Affinity], method: str, rebuilt: Callable[[Affinity], Tree]
) -> Array:
    """The fraction (N,) of resamples in which the edge above a node is found again.

    "local" asks whether its four-point statistic still prefers it to its interchanges,
    "bootstrap" whether the whole tree, built again, has its split. NaN at leaves and the root.
    """
    found = np.full(len(tree), np.nan)
    splits = tree.splits()
    around = tree.neighbours()
    index, weights = balanced_weights(around, tree.n_observed)
    sides = {}
    for v in splits.values():
        u = int(tree.parent[v])
        here = [index[w, v] for w in around[v] if w != u]
        sides[v] = here, [index[w, u] for w in around[u] if w != v]
    votes = dict.fromkeys(sides, 0.0)
    for draw in draws:
        if method == "bootstrap":
            again = rebuilt(draw).splits()
            for key, v in splits.items():
                votes[v] += key in again
        else:
            means = weights @ draw.distances @ weights.T
            for v, (here, there) in sides.items():
                votes[v] += _is_preferred(here, there, means)
    for v, count in votes.items():
        found[v] = count / len(draws)
    return found


def _is_preferred(here: list[int], there: list[int], means: Array) -> bool:
    """Whether mean distances of the subtrees around an edge prefer it to its interchanges."""
    if len(here) == 2 and len(there) == 2:
        (a, b), (c, d) = here, there
        now = means[a, b] + means[c, d]
        return bool(now < means[a, c] + means[b, d] and now < means[a, d] + means[b, c])
    within = [means[a, b] for side in (here, there) for a in side for b in side if a != b]
    return bool(not within or np.mean(within) < means[np.ix_(here, there)].mean())
