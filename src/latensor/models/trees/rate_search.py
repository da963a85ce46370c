"""Interchanges that raise the likelihood of a tree whose edges share one rate matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.models.trees._rate_kernels import along_edge, leaf_spectrum, quartet, sweep
from latensor.models.trees.rates import RateMatrix
from latensor.models.trees.structure import RESAMPLES
from latensor.sources.tree import Tree

# Classes of equal probability that stand for a gamma distribution of rates.
_CLASSES = 4
# Numbers of all sites and hidden nodes up to which a tree is searched: 128 MB, twice.
_ENTRIES = 2**24
_ROUNDS = 20
# An interchange whose inner edge alone brings it this near is given all five of its lengths: in 700
# quartets the four others gained up to 6, and none that was taken had begun below -.1.
_NEAR = 5.0
# At length zero an edge and its interchanges are one tree, so that an edge whose length gains more
# than this has none that is likelier: in 2,200 quartets interchanges came within `_NEAR` of gains
# up to 6.3. At 10 one tree of 32 lost an interchange (1.8 in log-likelihood), at 15 and 20 none.
_SURE = 20.0
# Log-likelihood that an interchange must gain: less is left open by lengths that still move.
_WORTH = 0.1
# The other two trees of four parts and the edge between them.
_INTERCHANGES = ([0, 2, 1, 3, 4], [2, 1, 0, 3, 4])


def interchange_under_rates(
    tree: Tree,
    codes: Array,
    weights: Array,
    matrix: RateMatrix,
    rng: np.random.Generator | None = None,
) -> tuple[Tree, int]:
    """A binary tree after interchanges of neighbours that raise its likelihood, and how many.

    All lengths are set to their best; then both interchanges of every inner edge are compared
    with it on the four subtrees around it, whose likelihoods are known. Gains of edges that do
    not touch are taken together, if the whole gains. Trees of more sites than fit are left alone.

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
    lengths = np.maximum(tree.length, 1e-4)
    value = partials.go_round(tree, lengths)
    moves, active = 0, set(range(tree.n_observed, len(tree)))
    for _ in range(_ROUNDS):
        gains = _gains(partials, tree, lengths, active)
        if not gains:
            break
        for chosen in (gains, gains[:1]):
            tried, moved = _applied(tree, chosen), lengths.copy()
            for each in chosen:
                moved[each.nodes] = each.lengths
            better = partials.go_round(tried, moved)
            if better >= value + gains[0].gain / 2 or len(gains) == 1:
                break
        if better <= value:
            break
        # Only quartets that an interchange has touched are tried again.
        active = {v for v in range(len(tree)) if tried.parent[v] != tree.parent[v]}
        active |= {int(tried.parent[v]) for v in active}
        tree, lengths, value, moves = tried, moved, better, moves + len(chosen)
    if moves and rng is not None:
        partials.go_round(tree, lengths)
        tree = replace(tree, support=_supported(partials, tree, lengths, rng))
    return tree, moves


def classes_of(shape: float) -> Array:
    """Rates of mean one, of classes of equal probability of a gamma distribution."""
    if np.isinf(shape):
        return np.ones(1)
    bounds = scipy.special.gammaincinv(shape, np.linspace(0, 1, _CLASSES + 1))
    # The mean of a class, by the distribution of shape + 1.
    found: Array = np.diff(scipy.special.gammainc(shape + 1, bounds)) * _CLASSES
    return found


@dataclass(frozen=True, eq=False)
class _Gain:
    """An interchange: a child of v and a sibling of v change places.

    Attributes
    ----------
    gain : float, log-likelihood
    v, child, sibling : int
    nodes, lengths : (5,), below which edges these lengths are the best
    """

    gain: float
    v: int
    child: int
    sibling: int
    nodes: Any
    lengths: Any


class _Partials:
    """Likelihoods of all parts of a tree."""

    def __init__(self, codes: Array, weights: Array, matrix: RateMatrix) -> None:
        root = np.sqrt(matrix.frequencies)
        self.spectral = (
            np.ascontiguousarray(weights, dtype=np.float64),
            np.ascontiguousarray(matrix.vectors.T * root),
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
            leaf_spectrum(self.codes[v], forward, spectrum)
        else:
            spectrum = (self.outside if above else self.inside)[v - n]
        along_edge(spectrum, backward, decays, lengths[v], near)
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


def _gains(partials: _Partials, tree: Tree, lengths: Array, active: set[int]) -> list[_Gain]:
    """What interchanges that share no node gain, the best first."""
    children = tree.children()
    found = []
    for v in range(tree.n_observed, len(tree)):
        u = int(tree.parent[v])
        if u < 0 or not active & {v, u, *children[v]} or partials.gain_of(v) > _SURE:
            continue
        nodes, parts = _around(partials, tree, children, lengths, v)
        now, own_best, best = partials.quartet(parts, lengths[nodes], 0), -np.inf, None
        for order in _INTERCHANGES:
            tried, own = lengths[nodes[order]], [parts[i] for i in order[:4]]
            if partials.quartet(own, tried, 0) < now - _NEAR:
                continue
            if np.isinf(own_best):
                # Lengths still move: those of this tree are given the same steps.
                own_best = partials.quartet(parts, lengths[nodes], 2)
            gain = partials.quartet(own, tried, 2) - own_best
            if gain > (_WORTH if best is None else best.gain):
                child, sibling = int(nodes[1 if order[0] == 0 else 0]), int(nodes[2])
                best = _Gain(gain, v, child, sibling, nodes[order], tried)
        if best is not None:
            found.append(best)
    found.sort(key=lambda each: (-each.gain, each.v))
    apart: list[_Gain] = []
    used: set[int] = set()
    for each in found:
        touched = {*map(int, each.nodes), int(tree.parent[each.v])}
        if not used & touched:
            used |= touched
            apart.append(each)
    return apart


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


def _supported(partials: _Partials, tree: Tree, lengths: Array, rng: np.random.Generator) -> Array:
    """The support (N,), of edges that have none by a bootstrap of the likelihoods of sites.

    It is the fraction of resamples in which a quartet stays likelier than both of its interchanges,
    whose lengths are the best of all sites.
    """
    support, children = tree.support.copy(), tree.children()
    counts = rng.poisson(partials.spectral[0], (RESAMPLES, partials.codes.shape[1]))
    for v in tree.splits().values():
        if not np.isnan(support[v]):
            continue
        nodes, parts = _around(partials, tree, children, lengths, v)
        logs = []
        for order in ([0, 1, 2, 3, 4], *_INTERCHANGES):
            tried = lengths[nodes[order]]
            partials.quartet([parts[i] for i in order[:4]], tried, 2)
            logs.append(partials.site_logs(tried[4]))
        support[v] = (np.argmax(counts @ np.column_stack(logs), axis=1) == 0).mean()
    return support


def _applied(tree: Tree, gains: list[_Gain]) -> Tree:
    """The tree after interchanges."""
    parent, support = tree.parent.copy(), tree.support.copy()
    for each in gains:
        parent[each.child], parent[each.sibling] = tree.parent[each.v], each.v
        # What was measured was another edge.
        support[each.v] = np.nan
    return replace(tree, parent=parent, support=support)
