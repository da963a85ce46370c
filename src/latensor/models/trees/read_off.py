"""Conditional distributions of a tree from joint tables of two and of three leaves.

At a hidden node h with leaves a, b, c in three directions E[a (x) b (x) c] = sum_h p(h) E[a|h] (x)
E[b|h] (x) E[c|h] (Chang 1996; monograph 3.4 and 4.3): eigenvectors of T(., ., eta) P_ab^+ are
E[a|h]. All other leaves, and then all edges, follow linearly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.models.trees.family import TreeState, normalized
from latensor.models.trees.sums import PairProbabilities
from latensor.sources.tree import Tree

# Leaves of a direction that are looked at together, with up to so many indicators.
_LEAVES = 4
_INDICATORS = 16
# Contractions of the third moment of which the best separated is taken.
_CONTRACTIONS = 12


def views_of(tree: Tree, distances: Array, n_symbols: int) -> Array:
    """(h, 3, m) for every hidden node the nearest leaves in its three closest directions."""
    n = tree.n_observed
    m = max(1, min(_LEAVES, _INDICATORS // n_symbols))
    found = np.full((tree.n_hidden, 3, m), -1, dtype=np.int64)
    below, children = tree.below(), tree.children()
    for h in range(n, len(tree)):
        sides = [below[c] for c in children[h]]
        if tree.parent[h] >= 0:
            sides.append(~below[h])
        groups = []
        for side in sides:
            leaves = np.flatnonzero(side)
            groups.append(leaves[np.argsort(distances[h, leaves], kind="stable")])
        groups.sort(key=lambda g: distances[h, g[0]])
        for place, group in enumerate(groups[:3]):
            chosen = group[:m]
            found[h - n, place, : len(chosen)] = chosen
    return found


@dataclass(frozen=True, eq=False)
class NodeReading:
    """What the tables say about one hidden node.

    Attributes
    ----------
    prior : (k,) p(h)
    leaves : (n, k, d) p(x_i | h) of every leaf
    condition : float, smallest over largest singular value of the weakest of the three views
    gap : float, the smallest difference of eigenvalues, relative to the largest
    """

    prior: Any
    leaves: Any
    condition: float
    gap: float


def lengths_state(tree: Tree, marginals: Array, n_states: int, shape: float = np.inf) -> TreeState:
    """Tables with the lengths of a tree, all towards the same distribution p.

    M = e^-t I + (1 - e^-t) 1 p' has determinant e^-(k-1)t, and with D = -log det / k the length
    D of an edge is t (k - 1) / k. Rates of sites from a gamma distribution of a shape s make
    (1 + t / s)^-s of e^-t.
    """
    d = marginals.shape[1]
    k = n_states
    equilibrium = marginals.mean(axis=0) + 1e-6
    equilibrium /= equilibrium.sum()
    times = np.maximum(tree.length, 0.0) * k / max(k - 1, 1)
    fraction = np.exp(-times) if np.isinf(shape) else (1 + times / shape) ** -shape
    if k < d:
        # No names in common: hidden states are groups of symbols of about equal frequency.
        group = np.minimum((np.cumsum(equilibrium) - equilibrium / 2) * k, k - 1e-9).astype(int)
        leaf = np.zeros((k, d))
        leaf[group, np.arange(d)] = equilibrium
        leaf = leaf / np.maximum(leaf.sum(axis=1, keepdims=True), 1e-300)
        inner = np.bincount(group, equilibrium, minlength=k)
    else:
        leaf, inner = np.eye(d), equilibrium
    tables = np.zeros((len(tree), d, d))
    for v in range(len(tree)):
        if v < tree.n_observed:
            tables[v, :k] = fraction[v] * leaf + (1 - fraction[v]) * equilibrium
            if k < d:
                continue
        else:
            tables[v, :k, :k] = fraction[v] * np.eye(k) + (1 - fraction[v]) * inner
    start = np.zeros(d)
    size = d if tree.root < tree.n_observed else k
    start[:size] = equilibrium if size == d else inner
    empty = TreeState(tree, start, tables, None, k)
    first, used = empty.masks()
    return TreeState(tree, normalized(start, first), normalized(tables, used), None, k)


def read_nodes(
    tree: Tree, pairs: PairProbabilities, triples: Array, views: Array, n_states: int
) -> list[NodeReading | None]:
    """All hidden nodes, None for those with fewer than three directions or too little rank."""
    return [
        _read_node(tree, h, n_states, pairs, triple, view)
        for h, (triple, view) in enumerate(zip(triples, views, strict=True), tree.n_observed)
    ]


def _read_node(
    tree: Tree, h: int, k: int, pairs: PairProbabilities, triple: Array, view: Array
) -> NodeReading | None:
    d = pairs.tables.shape[2]
    if (view[:, 0] < 0).any():
        return None
    groups = [g[g >= 0] for g in view]
    sizes = [len(g) * d for g in groups]
    third = triple[: sizes[0], : sizes[1], : sizes[2]]

    def joint(a: Array, b: Array) -> Array:
        return np.block([[pairs.tables[i, j] for j in b] for i in a])

    ab, ac, bc = (joint(groups[x], groups[y]) for x, y in ((0, 1), (0, 2), (1, 2)))
    # Every view in the k coordinates that it shares with the other two.
    bases, spectra = [], []
    for block in (np.hstack([ab, ac]), np.hstack([ab.T, bc]), np.hstack([ac.T, bc.T])):
        left, spectrum, _ = np.linalg.svd(block, full_matrices=False)
        if len(spectrum) < k:
            return None
        bases.append(left[:, :k])
        spectra.append(spectrum[k - 1] / max(spectrum[0], 1e-300))
    ua, ub, uc = bases
    second = ua.T @ ab @ ub
    if min(spectra) < 1e-13 or np.linalg.cond(second) > 1e13:
        return None
    core = np.einsum("abc,ax,by,cz->xyz", third, ua, ub, uc, optimize=True)
    inverse = np.linalg.inv(second)
    rng = np.random.default_rng(0)
    best: tuple[float, Any] | None = None
    for eta in rng.standard_normal((_CONTRACTIONS, k)):
        values, vectors = np.linalg.eig(np.einsum("xyz,z->xy", core, eta) @ inverse)
        if k == 1:
            best = (1.0, vectors)
            break
        spread = np.abs(values[:, None] - values[None]) + np.eye(k) * 1e300
        gap = float(spread.min() / max(np.abs(values).max(), 1e-300))
        if np.abs(values.imag).max() > 1e-6 * np.abs(values).max():
            gap = -float(np.abs(values.imag).max() / np.abs(values).max())
        if best is None or gap > best[0]:
            best = gap, vectors
    assert best is not None
    means = ua @ best[1].real
    # Every leaf of a view has a distribution: its indicators sum to one.
    totals = means.reshape(len(groups[0]), d, k).sum(axis=(0, 1)) / len(groups[0])
    if (np.abs(totals) < 1e-12).any():
        return None
    means = means / totals
    prior = np.linalg.lstsq(means, pairs.marginals[groups[0]].ravel(), rcond=None)[0]
    prior = np.maximum(prior, 1e-4)
    prior /= prior.sum()
    n = tree.n_observed
    leaves = np.zeros((n, k, d))
    weighted = means * prior
    # Leaves of the first direction by the second view, all others by the first.
    first = _side_of(tree, h, int(groups[0][0]))
    leaves[~first] = _solved(pairs, np.flatnonzero(~first), groups[0], weighted)
    other = leaves[groups[1]].transpose(0, 2, 1).reshape(-1, k) * prior
    leaves[first] = _solved(pairs, np.flatnonzero(first), groups[1], other)
    return NodeReading(prior, leaves, float(min(spectra)), float(best[0]))


def _side_of(tree: Tree, h: int, leaf: int) -> Array:
    """(n,) bool, the leaves in the same direction from node h as a leaf."""
    below = tree.below()
    for child in np.flatnonzero(tree.parent == h):
        if below[child, leaf]:
            return np.asarray(below[child])
    return ~below[h]


def _solved(pairs: PairProbabilities, leaves: Array, view: Array, weighted: Array) -> Array:
    """p(x_i | h) (m, k, d) from P(x_i, view) = sum_h p(x_i|h) p(h) E[view|h]."""
    if not len(leaves):
        return np.zeros((0, weighted.shape[1], pairs.tables.shape[2]))
    joint = pairs.tables[np.ix_(leaves, view)].transpose(0, 2, 1, 3)
    flat = joint.reshape(len(leaves) * pairs.tables.shape[2], -1)
    found = np.linalg.lstsq(weighted, flat.T, rcond=None)[0].T
    found = found.reshape(len(leaves), -1, weighted.shape[1])
    found = np.maximum(found, 0.0)
    found = found / np.maximum(found.sum(axis=1, keepdims=True), 1e-12)
    return found.transpose(0, 2, 1)


def views_state(
    tree: Tree, readings: list[NodeReading | None], distances: Array, start: TreeState
) -> TreeState | None:
    """All tables from the readings of the hidden nodes; None where one of them is missing."""
    n, k, d = tree.n_observed, start.n_states, len(start.startprob)
    if tree.root < n or any(reading is None for reading in readings):
        return None
    inner = [v for v in range(n) if v in set(tree.parent.tolist())]
    if inner:
        return None
    known = [reading for reading in readings if reading is not None]
    below = tree.below()
    tables = np.zeros((len(tree), d, d))
    for v in range(len(tree)):
        u = int(tree.parent[v])
        if u < 0:
            continue
        above = known[u - n]
        if v < n:
            tables[v, :k] = above.leaves[v]
            continue
        leaves = np.flatnonzero(below[v])
        near = leaves[np.argsort(distances[v, leaves], kind="stable")[:24]]
        weights = np.exp(-distances[v, near])[:, None, None]
        target = (weights * above.leaves[near]).transpose(0, 2, 1).reshape(-1, k)
        design = (weights * known[v - n].leaves[near]).transpose(0, 2, 1).reshape(-1, k)
        for i in range(k):
            tables[v, i, :k] = scipy.optimize.nnls(design, target[:, i])[0]
    root = np.zeros(d)
    root[:k] = known[tree.root - n].prior
    first, used = start.masks()
    state = TreeState(tree, normalized(root, first), normalized(tables, used), None, k)
    return named(state)


def named(state: TreeState) -> TreeState:
    """The states of hidden nodes in the order that changes least along edges.

    Where hidden nodes have as many states as leaves have symbols, the states of the root are named
    after the symbols of its nearest leaves; otherwise they come in decreasing probability.
    """
    tree, k = state.tree, state.n_states
    n, width = tree.n_observed, len(state.startprob)
    if tree.root < n:
        return state
    priors, joints = node_marginals(state)
    orders: dict[int, Array] = {}
    root = tree.root
    order = np.argsort(-priors[root, :k], kind="stable")
    if k == width:
        # Symbols of all leaves, near ones more.
        votes = np.zeros((k, k))
        reach = {root: np.eye(k)}
        for v in tree.preorder()[1:]:
            reach[v] = reach[int(tree.parent[v])] @ state.tables[v][:k, : state.sizes()[v]]
            if v < n:
                votes += priors[root, :k, None] * (reach[v] - reach[v].mean(axis=0))
        order = np.argsort(scipy.optimize.linear_sum_assignment(-votes)[1])
    orders[root] = order
    for v in tree.preorder()[1:]:
        u = int(tree.parent[v])
        if v < n:
            continue
        joint = joints[v][:k, :k]
        if u in orders:
            joint = joint[orders[u]]
        scale = np.sqrt(np.outer(joint.sum(axis=1), joint.sum(axis=0)))
        orders[v] = scipy.optimize.linear_sum_assignment(-joint / np.maximum(scale, 1e-300))[1]
    start, tables = state.startprob.copy(), state.tables.copy()
    start[:k] = start[orders[root]]
    for v in range(len(tree)):
        u = int(tree.parent[v])
        if u in orders:
            tables[v, :k] = tables[v][orders[u]]
        if v in orders and u >= 0:
            tables[v][:, :k] = tables[v][:, orders[v]]
    prior = state.prior
    return TreeState(tree, start, tables, prior, k)


def node_marginals(state: TreeState) -> tuple[Array, Array]:
    """The distribution (N, w) of every node, and its joint table (N, w, w) with its parent."""
    tree = state.tree
    priors = np.zeros((len(tree), len(state.startprob)))
    joints = np.zeros(state.tables.shape)
    for v in tree.preorder():
        u = tree.parent[v]
        if u < 0:
            priors[v] = state.startprob
            continue
        joints[v] = priors[u][:, None] * state.tables[v]
        priors[v] = joints[v].sum(axis=0)
    return priors, joints
