"""Interchanges that raise the likelihood of a tree of measurements, through their correlations."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from latensor.arrays import Array
from latensor.models.trees.gaussian import MOST, GaussianTreeFamily, GaussianTreeState
from latensor.models.trees.interchange import (
    ORDERS,
    WORTH,
    Candidate,
    Interchange,
    interchanged,
    interchanges,
    likelier_tree,
)
from latensor.sources.tree import Tree

# Passes of EM over a whole tree, the gain in log-likelihood at which they end, and steps of EM over
# the trees of four parts.
_PASSES, _TOLERANCE, _STEPS = 200, 0.01, 100

Message: TypeAlias = tuple[Array, float, float]


def interchange_by_correlations(
    state: GaussianTreeState, family: GaussianTreeFamily
) -> tuple[Tree, int]:
    """A binary tree after interchanges of neighbours that raise its likelihood, and how many.

    After EM, what the leaves of a part of the tree say about the node at its end is one linear
    function of them. The correlations of four of these, around an inner edge, are fitted by its
    quartet and by both interchanges.

    Parameters
    ----------
    state : of a binary tree, to start EM from
    family : with the correlations of the leaves
    """
    tolerance = _TOLERANCE / family.weight

    def fitted(start: GaussianTreeState) -> Candidate:
        found = family.run_em(start, _PASSES, tolerance)
        return Candidate(found.state.tree, found.log_likelihood * family.weight, found.state)

    if state.tree.n_observed < 4:
        return state.tree, 0
    found, moves = likelier_tree(
        fitted(state),
        lambda now: (now, _gains(now.state, family)),
        lambda now, chosen: fitted(replace(now.state, tree=interchanged(now.tree, chosen))),
    )
    return found.tree, moves


def _gains(state: GaussianTreeState, family: GaussianTreeFamily) -> list[Interchange]:
    """The better interchange of every inner edge, where it gains."""
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
    orders = np.array(ORDERS)
    values = _quartet_values(
        np.concatenate([observed[:, order][:, :, order] for order in orders]),
        np.concatenate([along[:, order] for order in orders]),
        np.concatenate([bounds[:, order] for order in orders]),
    ).reshape(len(orders), -1)
    gains = (values[1:] - values[0]).T * family.weight
    every = (
        interchanges(tree, v, row)[np.argmax(row)] for v, row in zip(inner, gains, strict=True)
    )
    return [each for each in every if each.gain > WORTH]


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
        r = np.clip([each[1] for each in given], -MOST, MOST)
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
    bounds = np.minimum(bounds, MOST)
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
        inner = np.clip(second[:, 0, 1] / scale.prod(axis=1), -MOST, MOST)
    model, inverse = _model_of(along, inner, across)
    return np.asarray(-(np.linalg.slogdet(model)[1] + (inverse * observed).sum(axis=(1, 2))) / 2)


def _model_of(along: Array, inner: Array, across: Array) -> tuple[Array, Array]:
    """Correlations (m, 4, 4) of four functions under their tree, and their inverses."""
    model = along[:, :, None] * along[:, None] * np.where(across, inner[:, None, None], 1.0)
    model[:, range(4), range(4)] = 1.0
    return model, np.linalg.inv(model)
