"""Planted latent trees: sites or samples at the leaves, with the tree that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError
from latensor.sources.tree import Tree

_SHAPES = ("balanced", "caterpillar", "random", "multifurcating", "star", "coalescent", "birth")
_MODELS = ("jc", "hky", "general", "gaussian")
# Equilibrium and transition/transversion ratio of the HKY model.
_FREQUENCIES = np.array([0.35, 0.15, 0.2, 0.3])
_KAPPA = 3.0


@dataclass(frozen=True)
class TreeSample:
    """Rows at the leaves of a tree and their truth.

    Attributes
    ----------
    X : (n, leaves), symbols as int64 or measurements
    tree : Tree, with its lengths
    startprob : (k,) of the root; None for measurements
    edgeprob : (N, k, k) of every node given its parent, identity at the root; None likewise
    correlation : (N,) of every node with its parent; None for symbols
    """

    X: Any
    tree: Tree
    startprob: Any
    edgeprob: Any
    correlation: Any


def make_tree(
    n_samples: int = 1000,
    n_leaves: int = 16,
    *,
    shape: str = "random",
    model: str = "jc",
    n_states: int = 4,
    gamma: float | None = None,
    random_state: RandomState = None,
) -> TreeSample:
    """Rows at the leaves of a planted tree, whose columns are in random order.

    Parameters
    ----------
    n_samples, n_leaves : int
    shape : "balanced", "caterpillar", "random", "multifurcating" (hidden nodes of degree 4 to 6) or
        "star" (one hidden node), with lengths between .05 and .25, or "coalescent" or "birth", of
        depth .5 with 10 % noise on its clock
    model : "jc" (all changes alike), "hky" (four symbols of unequal frequency), "general" (a
        table of its own on every edge) or "gaussian"
    n_states : int, of all nodes; 4 for "hky"
    gamma : shape of a gamma distribution of rates over sites; None for equal rates
    random_state : seed
    """
    n_samples = check_positive_int(n_samples, "n_samples")
    n_leaves = check_positive_int(n_leaves, "n_leaves")
    for name, value, known in (("shape", shape, _SHAPES), ("model", model, _MODELS)):
        if value not in known:
            raise InvalidInputError(f"{name}={value!r} must be one of {', '.join(known)}")
    if n_leaves < 3:
        raise InvalidInputError(f"n_leaves={n_leaves} must be at least 3")
    rng = generator(random_state)
    tree = _drawn_tree(shape, n_leaves, rng)
    k = 4 if model == "hky" else check_positive_int(n_states, "n_states")
    if model == "gaussian":
        correlation = np.where(tree.parent >= 0, np.exp(-tree.length), 0.0)
        values = np.zeros((n_samples, len(tree)))
        for v in tree.preorder():
            u, fraction = tree.parent[v], correlation[v]
            noise = rng.standard_normal(n_samples)
            values[:, v] = fraction * values[:, u] + np.sqrt(1 - fraction**2) * noise
        return TreeSample(values[:, :n_leaves], tree, None, None, correlation)
    start = _FREQUENCIES if model == "hky" else np.full(k, 1 / k)
    rates = np.ones(n_samples) if gamma is None else rng.gamma(gamma, 1 / gamma, n_samples)
    edges = np.stack([_table(model, k, length, rng) for length in tree.length])
    edges[tree.root] = np.eye(k)
    values = np.zeros((n_samples, len(tree)), dtype=np.int64)
    for v in tree.preorder():
        u = int(tree.parent[v])
        if u < 0:
            rows = np.broadcast_to(start, (n_samples, k))
        elif gamma is None:
            rows = edges[v][values[:, u]]
        else:
            rows = _transitions(model, k, tree.length[v] * rates)[
                np.arange(n_samples), values[:, u]
            ]
        bounds = np.cumsum(rows, axis=1)
        values[:, v] = (rng.random((n_samples, 1)) * bounds[:, -1:] > bounds).sum(axis=1)
    return TreeSample(values[:, :n_leaves], tree, start, edges, None)


def _transitions(model: str, k: int, lengths: Any) -> Any:
    """Tables (m, k, k) of expected changes per site, reversible models."""
    if model == "hky":
        p = _FREQUENCIES
        rate = np.ones((4, 4))
        rate[[0, 2, 1, 3], [2, 0, 3, 1]] = _KAPPA
        rate = rate * p
    else:
        p = np.full(k, 1 / k)
        rate = np.tile(p, (k, 1))
    np.fill_diagonal(rate, 0.0)
    np.fill_diagonal(rate, -rate.sum(axis=1))
    rate /= -(p * np.diag(rate)).sum()
    root = np.sqrt(p)
    values, vectors = np.linalg.eigh(root[:, None] * rate / root)
    decays = np.exp(np.multiply.outer(np.asarray(lengths), values))
    found = np.einsum("ia,ma,ja->mij", vectors, decays, vectors)
    return np.maximum(found / root[:, None] * root, 0.0)


def _table(model: str, k: int, length: float, rng: np.random.Generator) -> Any:
    if model != "general":
        table = _transitions(model, k, [length])[0]
        return table / table.sum(axis=1, keepdims=True)
    # Off the diagonal a random distribution, as often as the length says.
    rows = rng.dirichlet(np.ones(k), size=k)
    np.fill_diagonal(rows, 0.0)
    rows /= rows.sum(axis=1, keepdims=True)
    change = (1 - np.exp(-length * k / max(k - 1, 1))) * (k - 1) / k
    changes = np.clip(change * rng.uniform(0.5, 1.5, (k, 1)), 0.0, 0.9)
    return (1 - changes) * np.eye(k) + changes * rows


def _drawn_tree(shape: str, n: int, rng: np.random.Generator) -> Tree:
    around: list[list[int]] = [[] for _ in range(n)]
    ages: dict[int, float] = dict.fromkeys(range(n), 0.0)
    alive = list(rng.permutation(n))

    def join(places: list[int], age: float = 0.0) -> None:
        new = len(around)
        around.append([])
        for place in places:
            around[new].append(int(alive[place]))
            around[int(alive[place])].append(new)
        ages[new] = age
        for place in sorted(places[1:], reverse=True):
            del alive[place]
        alive[places[0]] = new

    age = 0.0
    last = {"multifurcating": 6, "star": n}.get(shape, 3)
    while len(alive) > last:
        m = len(alive)
        pair = [0, 1]
        if shape not in ("balanced", "caterpillar"):
            count = 2 if shape != "multifurcating" else int(rng.integers(3, min(6, m - 2)))
            pair = sorted(int(i) for i in rng.choice(m, count, replace=False))
        age += rng.exponential(2 / (m * (m - 1)) if shape == "coalescent" else 1 / m)
        join(pair, age)
        if shape == "balanced":
            alive.append(alive.pop(0))
    age += rng.exponential(1 / 3)
    join(list(range(len(alive))), age)
    parent = np.array(_rooted(around))
    if shape not in ("coalescent", "birth"):
        length = rng.uniform(0.05, 0.25, len(parent))
    else:
        at = np.array([ages[v] for v in range(len(parent))])
        length = np.maximum(at[parent] - at, 1e-3 * age) * 0.5 / age
        length *= rng.uniform(0.9, 1.1, len(parent))
    length[parent < 0] = 0.0
    return Tree.of(parent, n, length)


def _rooted(around: list[list[int]]) -> list[int]:
    """Parents of an undirected tree whose root is its last node."""
    root = len(around) - 1
    parent = [-1] * len(around)
    stack = [root]
    while stack:
        u = stack.pop()
        for v in around[u]:
            if v != parent[u]:
                parent[v] = u
                stack.append(v)
    return parent
