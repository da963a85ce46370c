"""Interchanges that raise the likelihood of a tree of measurements, through their correlations."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.gaussian import GaussianTreeFamily, GaussianTreeState
from latensor.sources.tree import Tree

_ROUNDS = 20
# Passes of EM over a whole tree, the gain in log-likelihood at which they end, and steps of EM over
# the trees of four parts.
_PASSES, _TOLERANCE, _STEPS = 200, 0.01, 100
# Log-likelihood that an interchange must gain.
_WORTH = 0.1
# The parts of a quartet that stand on its two sides: as they are, and interchanged.
_ORDERS = np.array([[0, 1, 2, 3], [0, 2, 1, 3], [2, 1, 0, 3]])
# A correlation of one makes two nodes one.
_MOST = 1 - 1e-9

Message: TypeAlias = tuple[Array, float, float]


def interchange_by_correlations(
    state: GaussianTreeState, family: GaussianTreeFamily
) -> tuple[Tree, int]:
    """A binary tree after interchanges of neighbours that raise its likelihood, and how many.

    After EM, what the leaves of a part of the tree say about the node at its end is one linear
    function of them. The correlations of four of these, around an inner edge, are fitted by its
    quartet and by both interchanges. Gains of edges that do not touch are taken together, if the
    likelihood of the whole, after EM, gains.

    Parameters
    ----------
    state : of a binary tree, to start EM from
    family : with the correlations of the leaves
    """
    moves, tolerance = 0, _TOLERANCE / family.weight
    fit = family.run_em(state, _PASSES, tolerance)
    for _ in range(_ROUNDS if state.tree.n_observed > 3 else 0):
        gains = _gains(fit.state, family)
        if not gains:
            break
        for chosen in (gains, gains[:1]):
            tried = family.run_em(_applied(fit.state, chosen), _PASSES, tolerance)
            better = (tried.log_likelihood - fit.log_likelihood) * family.weight
            if better > gains[0][0] / 2 or len(gains) == 1:
                break
        if better <= _TOLERANCE:
            break
        fit, moves = tried, moves + len(chosen)
    return fit.state.tree, moves


def _gains(state: GaussianTreeState, family: GaussianTreeFamily) -> list[tuple[float, int, int]]:
    """Gain, node v and which of two children of v changes places with its sibling, best first.

    Those that share a node are left out.
    """
    tree = state.tree
    children = tree.children()
    up, down = _messages(state, children)
    inner = [v for v in range(tree.n_observed, len(tree)) if tree.parent[v] >= 0]
    parts = []
    for v in inner:
        u = int(tree.parent[v])
        siblings = [w for w in children[u] if w != v]
        fourth = up[siblings[1]] if len(siblings) > 1 else down[u]
        parts.append([*(up[w] for w in children[v]), up[siblings[0]], fourth])
    functions, along, bounds = (np.array([[m[i] for m in p] for p in parts]) for i in range(3))
    observed = functions @ family.observed @ functions.transpose(0, 2, 1)
    scale = np.sqrt(np.diagonal(observed, axis1=1, axis2=2))
    observed = observed / scale[:, :, None] / scale[:, None, :]
    values = _quartet_values(
        np.concatenate([observed[:, order][:, :, order] for order in _ORDERS]),
        np.concatenate([along[:, order] for order in _ORDERS]),
        np.concatenate([bounds[:, order] for order in _ORDERS]),
    ).reshape(len(_ORDERS), -1)
    gains = (values[1:] - values[0]).T * family.weight
    found = [
        (float(row.max()), v, int(np.argmax(row)))
        for v, row in zip(inner, gains, strict=True)
        if row.max() > _WORTH
    ]
    found.sort(key=lambda each: (-each[0], each[1]))
    apart: list[tuple[float, int, int]] = []
    used: set[int] = set()
    for each in found:
        u = int(tree.parent[each[1]])
        touched = {u, *children[u], *children[each[1]]}
        if not used & touched:
            used |= touched
            apart.append(each)
    return apart


def _messages(
    state: GaussianTreeState, children: list[list[int]]
) -> tuple[dict[int, Message], dict[int, Message]]:
    """What the subtree at a node says of its parent, and all the rest of the node itself.

    A linear function (n,) of the leaves of variance one, its correlation with the node that it
    tells of, and with the next one on the way, which bounds it. Of functions y with correlations r
    to a node, its mean is sum r / (1 - r^2) y over its precision 1 + sum r^2 / (1 - r^2).
    """
    tree, n = state.tree, state.tree.n_observed
    own = np.eye(n)

    def joined(given: list[Message], along: float) -> Message:
        r = np.clip([each[1] for each in given], -_MOST, _MOST)
        odds = r / (1 - r**2)
        known = float(odds @ r)
        size = np.sqrt(known / (1 + known))
        function = odds @ np.array([each[0] for each in given])
        scale = max(size * (1 + known), np.finfo(float).tiny)
        return function / scale, size * along, size

    up: dict[int, Message] = {}
    down: dict[int, Message] = {}
    order = tree.preorder()
    for v in reversed(order[1:]):
        along = float(state.correlation[v])
        up[v] = (own[v], along, 1.0) if v < n else joined([up[w] for w in children[v]], along)
    for u in order:
        above = [down[u]] if u in down else []
        for v in children[u]:
            if v >= n:
                given = [up[w] for w in children[u] if w != v] + above
                down[v] = joined(given, float(state.correlation[v]))
    return up, down


def _quartet_values(observed: Array, along: Array, bounds: Array) -> Array:
    """Log-likelihoods per sample (m,), up to a constant, of trees 01|23 after steps of EM.

    Parameters
    ----------
    observed : (m, 4, 4) correlations
    along, bounds : (m, 4) of the four with their inner node, to start from and at most
    """
    sides = np.array([0, 0, 1, 1])
    across = sides[:, None] != sides
    ratios = observed / np.maximum(np.abs(along[:, :, None] * along[:, None]), 1e-3)
    inner = np.clip(np.abs(ratios[:, across]).mean(axis=1), 0.05, 0.99)
    bounds = np.minimum(bounds, _MOST)
    for _ in range(_STEPS):
        model, inverse = _model_of(along, inner, across)
        # Correlations with both inner nodes (m, 4, 2).
        hidden = along[:, :, None] * np.where(sides[:, None] == [0, 1], 1.0, inner[:, None, None])
        gain = inverse @ hidden
        cross = observed @ gain
        second = gain.transpose(0, 2, 1) @ (cross - hidden)
        second[:, [0, 1], [0, 1]] += 1.0
        second[:, [0, 1], [1, 0]] += inner[:, None]
        scale = np.sqrt(np.diagonal(second, axis1=1, axis2=2))
        along = np.clip(cross[:, range(4), sides] / scale[:, sides], -bounds, bounds)
        inner = np.clip(second[:, 0, 1] / scale.prod(axis=1), -_MOST, _MOST)
    model, inverse = _model_of(along, inner, across)
    values: Array = -(np.linalg.slogdet(model)[1] + (inverse * observed).sum(axis=(1, 2))) / 2
    return values


def _model_of(along: Array, inner: Array, across: Array) -> tuple[Array, Array]:
    """Correlations (m, 4, 4) of four functions under their tree, and their inverses."""
    model = along[:, :, None] * along[:, None] * np.where(across, inner[:, None, None], 1.0)
    model[:, range(4), range(4)] = 1.0
    return model, np.linalg.inv(model)


def _applied(state: GaussianTreeState, gains: list[tuple[float, int, int]]) -> GaussianTreeState:
    """The state after interchanges, with correlations as they were."""
    tree, children = state.tree, state.tree.children()
    parent, support = tree.parent.copy(), tree.support.copy()
    for _, v, which in gains:
        u = int(tree.parent[v])
        sibling = next(w for w in children[u] if w != v)
        # The first order interchanges the second child, the other one the first.
        parent[children[v][1 - which]], parent[sibling] = u, v
        support[v] = np.nan
    return replace(state, tree=replace(tree, parent=parent, support=support))
