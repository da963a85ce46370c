"""Nodes of any degree: inner edges of a tree that noise alone may have put there are taken out."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np
from scipy.special import stdtrit

from latensor.models.trees.affinity import Affinity, length_equations
from latensor.sources.tree import Tree


def collapse_edges(
    tree: Tree, affinity: Affinity, left_out: Sequence[Affinity], level: float
) -> Tree:
    """A tree without the inner edges whose length is not significantly above zero.

    Lengths by weighted least squares are linear in the distances, and the jackknife over groups
    of rows gives their standard errors. The edge with the least ratio of both is taken out, which
    leaves the lengths of the smaller regression, until all are above Student's quantile. Of a node
    of high degree joining shows the pairs that noise favours: over n leaves it has compared
    sum_m m (m - 1) / 2 = C(n + 1, 3) pairs of clusters, so that the level is divided by as many.

    Parameters
    ----------
    tree : Tree, such as a binary one
    affinity : of all rows, with the weights of the distances
    left_out : Affinity of all rows but those of one group, for every group
    level : float, the probability of keeping an edge that is not there
    """
    n, groups = tree.n_observed, len(left_out)
    parent = tree.parent
    free = np.flatnonzero(parent >= 0)
    inner = (free >= n) & (parent[free] >= n)
    if groups < 2 or not inner.any():
        return tree
    distances = np.stack([affinity.distances, *(each.distances for each in left_out)])
    gram, target = length_equations(tree, affinity.weights, distances)
    inverse = np.linalg.inv(gram)
    lengths = inverse @ target
    threshold = -stdtrit(groups - 1, level / comb(n + 1, 3))
    gone = []
    while inner.any():
        errors = np.sqrt(groups - 1) * lengths[:, 1:].std(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(inner, lengths[:, 0] / errors, np.inf)
        edge = int(np.argmin(np.nan_to_num(ratios, nan=0.0)))
        if ratios[edge] > threshold:
            break
        step = inverse[edge] / inverse[edge, edge]
        lengths = lengths - np.outer(step, lengths[edge])
        inverse = inverse - np.outer(step, inverse[edge])
        inner[edge] = False
        gone.append(int(free[edge]))
    return without_edges(tree, gone) if gone else tree


def without_edges(tree: Tree, nodes: Sequence[int]) -> Tree:
    """The tree in which hidden nodes have become one with their parents; no lengths, no support."""
    above = {v: int(tree.parent[v]) for v in nodes}

    def kept(v: int) -> int:
        while v in above:
            v = above[v]
        return v

    left = [v for v in range(len(tree)) if v not in above]
    number = {v: i for i, v in enumerate(left)}
    neighbours: list[list[int]] = [[] for _ in left]
    for v in left:
        u = int(tree.parent[v])
        if u >= 0:
            one, other = number[v], number[kept(u)]
            neighbours[one].append(other)
            neighbours[other].append(one)
    return Tree.joined(neighbours, tree.n_observed)
