"""Interchanges that raise the likelihood of a tree whose edges share one rate matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.models.trees._rate_kernels import (
    decayed_tables,
    looked_up,
    multiplied,
    quartet,
    sweep,
)
from latensor.models.trees.interchange import (
    ORDERS,
    WORTH,
    Candidate,
    Interchange,
    interchanged,
    interchanges,
    likelier_tree,
    supported,
)
from latensor.models.trees.rates import RateMatrix
from latensor.sources.tree import Tree

# Classes of equal probability that stand for a gamma distribution of rates.
_CLASSES = 4
# Numbers of all sites and hidden nodes up to which a tree is searched: 128 MB, twice.
_ENTRIES = 2**24
# An interchange whose inner edge alone brings it this near is given all five of its lengths: in 700
# quartets the four others gained up to 6, and none that was taken had begun below -.1.
_NEAR = 5.0
# At length zero an edge and its interchanges are one tree, so that an edge whose length gains more
# than this has none that is likelier: in 2,200 quartets interchanges came within `_NEAR` of gains
# up to 6.3. At 10 one tree of 32 lost an interchange (1.8 in log-likelihood), at 15 and 20 none.
_SURE = 20.0


def interchange_under_rates(
    tree: Tree,
    codes: Array,
    weights: Array,
    matrix: RateMatrix,
    rng: np.random.Generator | None = None,
) -> tuple[Tree, int]:
    """A binary tree after interchanges of neighbours that raise its likelihood, and how many.

    All lengths are set to their best; then both interchanges of every inner edge are compared
    with it on the four subtrees around it, whose likelihoods are known. Trees of more sites than
    fit are left alone.

    Parameters
    ----------
    tree : Tree, binary, with lengths
    codes : (S, n) symbols, -1 where missing
    weights : (S,)
    matrix : RateMatrix of all edges
    rng : of the bootstrap of sites by which new edges get a support; None for none
    """
    size = len(classes_of(matrix.shape)) * len(matrix.rates)
    if tree.n_observed < 4 or tree.n_hidden * size * len(codes) > _ENTRIES:
        return tree, 0
    partials = _Partials(codes, weights, matrix)

    def fitted(tree: Tree, lengths: Array, active: set[int]) -> Candidate:
        return Candidate(tree, partials.go_round(tree, lengths), (lengths, active))

    def refitted(now: Candidate, chosen: Sequence[Interchange]) -> Candidate:
        tried, lengths = interchanged(now.tree, chosen), now.state[0].copy()
        for each in chosen:
            lengths[each.nodes] = each.lengths
        # Only quartets that an interchange has touched are tried again.
        touched = {v for v in range(len(tried)) if tried.parent[v] != now.tree.parent[v]}
        return fitted(tried, lengths, touched | {int(tried.parent[v]) for v in touched})

    start = fitted(tree, np.maximum(tree.length, 1e-4), set(range(tree.n_observed, len(tree))))
    found, moves = likelier_tree(
        start, lambda now: (now, _gains(partials, now.tree, *now.state)), refitted
    )
    tree, lengths = found.tree, found.state[0]
    if moves and rng is not None:
        partials.go_round(tree, lengths)
        tree = supported(tree, partials.spectral[0], partial(_logs, partials, tree, lengths), rng)
    return tree, moves


def classes_of(shape: float) -> Array:
    """Rates of mean one, of classes of equal probability of a gamma distribution."""
    if np.isinf(shape):
        return np.ones(1)
    bounds = scipy.special.gammaincinv(shape, np.linspace(0, 1, _CLASSES + 1))
    # The mean of a class, by the distribution of shape + 1.
    return np.asarray(np.diff(scipy.special.gammainc(shape + 1, bounds)) * _CLASSES)


class _Partials:
    """Likelihoods of all parts of a tree."""

    def __init__(self, codes: Array, weights: Array, matrix: RateMatrix) -> None:
        root = np.sqrt(matrix.frequencies)
        self.spectral = (
            np.ascontiguousarray(weights, dtype=np.float64),
            np.ascontiguousarray(matrix.vectors.T * root)[None],
            np.ascontiguousarray(matrix.vectors / root[:, None]),
            np.outer(classes_of(matrix.shape), matrix.rates).ravel(),
        )
        # Symbols that no leaf has are left out; those that are missing come last.
        k, n = len(root), codes.shape[1]
        number = np.full(max(int(codes.max(initial=0)), int(matrix.used.max())) + 2, k)
        number[matrix.used] = np.arange(k)
        self.codes = np.ascontiguousarray(number[codes].T.astype(np.int16))
        shape = (len(self.spectral[3]), len(codes))
        self.inside, self.outside = np.empty((n - 2, *shape)), np.empty((n - 2, *shape))
        self.scales, self.gains = np.empty((n - 2, len(codes))), np.zeros(n - 2)
        # Spectra and likelihoods of four parts, copies of the latter, and what a quartet needs.
        self.rooms = [np.empty((count, *shape)) for count in (4, 4, 4, 5)]

    def go_round(self, tree: Tree, lengths: Array, *, times: int = 1) -> float:
        """Set all lengths to their best, so many times; the log-likelihood."""
        visits, others = tour(tree)
        value = 0.0
        for places in (visits[visits < 0], *(visits,) * times):
            value = sweep(
                places,
                tree.parent,
                others,
                self.codes,
                lengths,
                *self.spectral,
                self.inside,
                self.outside,
                self.scales,
                self.gains,
            )
        return float(value)

    def gain_of(self, v: int) -> float:
        """What the length above a hidden node gained over zero when it was set last."""
        return float(self.gains[v - len(self.codes)])

    def part(self, place: int, v: int, lengths: Array, *, above: bool = False) -> Any:
        """Spectrum and likelihoods of the subtree at v, or of all above it, along its edge."""
        n = len(self.codes)
        _, forward, backward, decays = self.spectral
        spectrum, near = self.rooms[0][place], self.rooms[1][place]
        if v < n:
            looked_up(forward, self.codes[v], spectrum)
        else:
            spectrum = (self.outside if above else self.inside)[v - n]
        multiplied(decayed_tables(backward, decays, lengths[v]), spectrum, near)
        return spectrum, near

    def quartet(self, parts: Any, lengths: Array, rounds: int) -> float:
        """The log-likelihood of a tree of four parts, whose lengths are written."""
        ends, near = zip(*parts, strict=True)
        if rounds:
            for copied, each in zip(self.rooms[2], near, strict=True):
                copied[:] = each
            near = tuple(self.rooms[2])
        return float(quartet(ends, near, lengths, *self.spectral, rounds, self.rooms[3]))

    def site_logs(self, length: float) -> Array:
        """Log-likelihoods (S,) of the quartet that was fitted last, given its inner length."""
        before, decays = self.rooms[3][2], self.spectral[3]
        return np.log(np.maximum(np.exp(-decays * length) @ before, np.finfo(float).tiny))


def tour(tree: Tree) -> tuple[Array, Array]:
    """The way round a tree, v where a node is entered and ~v where it is left; neighbours (N, 3).

    Of a hidden node the parent comes last.
    """
    children = tree.children()
    others = np.full((len(tree), 3), -1, dtype=np.int64)
    visits: list[int] = []
    stack = [*reversed(children[tree.root])]
    while stack:
        v = stack.pop()
        visits.append(v)
        if v >= 0:
            stack += [~v, *reversed(children[v])]
    for v, below in enumerate(children):
        if below:
            others[v] = [*below, *([] if v == tree.root else [tree.parent[v]])]
    return np.array(visits, dtype=np.int64), others


def _gains(partials: _Partials, tree: Tree, lengths: Array, active: set[int]) -> list[Interchange]:
    """The better interchange of every inner edge, where it gains."""
    children = tree.children()
    found = []
    for v in range(tree.n_observed, len(tree)):
        u = int(tree.parent[v])
        if u < 0 or not active & {v, u, *children[v]} or partials.gain_of(v) > _SURE:
            continue
        nodes, parts = _around(partials, tree, children, lengths, v)
        now, own_best, best = partials.quartet(parts, lengths[nodes], 0), -np.inf, None
        for order, each in zip(ORDERS[1:], interchanges(tree, v), strict=True):
            places = nodes[[*order, 4]]
            tried, own = lengths[places], [parts[i] for i in order]
            if partials.quartet(own, tried, 0) < now - _NEAR:
                continue
            if np.isinf(own_best):
                # Lengths still move: those of this tree are given the same steps.
                own_best = partials.quartet(parts, lengths[nodes], 2)
            gain = partials.quartet(own, tried, 2) - own_best
            if gain > (WORTH if best is None else best.gain):
                best = replace(each, gain=gain, nodes=places, lengths=tried)
        if best is not None:
            found.append(best)
    return found


def _around(
    partials: _Partials, tree: Tree, children: list[list[int]], lengths: Array, v: int
) -> tuple[Array, list[Any]]:
    """The nodes (5,) below the edges of the quartet around the edge above v, that edge last.

    Two children of v come first, then a sibling and a third child of the root, or all that is
    above the parent of v; with their spectra and likelihoods.
    """
    u = int(tree.parent[v])
    siblings = [w for w in children[u] if w != v]
    above = len(siblings) == 1
    nodes = np.array([*children[v], *siblings, *([u] if above else []), v])
    parts = [
        partials.part(place, int(w), lengths, above=place == 3 and above)
        for place, w in enumerate(nodes[:4])
    ]
    return nodes, parts


def _logs(partials: _Partials, tree: Tree, lengths: Array, v: int) -> Array:
    """Log-likelihoods (S, 3) of sites for the arrangements of the quartet around an edge.

    Their lengths are the best of all sites.
    """
    nodes, parts = _around(partials, tree, tree.children(), lengths, v)
    found = []
    for order in ORDERS:
        tried = lengths[nodes[[*order, 4]]]
        partials.quartet([parts[i] for i in order], tried, 2)
        found.append(partials.site_logs(tried[4]))
    return np.column_stack(found)
