"""Affinities of pairs of leaves that are multiplicative along paths, and their distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.exceptions import NotIdentifiableError
from latensor.models.trees.joining import balanced_means
from latensor.models.trees.sums import PairProbabilities
from latensor.sources.tree import Tree

# Leaves up to which lengths are fitted to all pairs by weighted least squares.
_ALL_PAIRS = 160


@dataclass(frozen=True, eq=False)
class Affinity:
    """How close leaves are.

    Attributes
    ----------
    values : (n, n) R, multiplicative along paths; signed
    distances : (n, n) D, additive along paths, cut where R is lost in noise
    saturated : (n, n) bool, pairs whose distance was cut
    weights : (n, n), inverse variances of the distances up to a factor
    order : int, states k: R is of order k
    rates : CommonRates that the distances stand on; None for log-determinants and correlations
    """

    values: Any
    distances: Any
    saturated: Any
    weights: Any
    order: int
    rates: Any = None

    @property
    def shape(self) -> float:
        """Of the gamma distribution of rates that distances stand on; infinite for none."""
        return np.inf if self.rates is None else float(self.rates.shape)

    @property
    def distances_used(self) -> str:
        """What a certificate says of distances that are no log-determinants."""
        if self.rates is None:
            return ""
        over = "" if np.isinf(self.shape) else f" and rates of sites of gamma shape {self.shape:g}"
        return f" on distances under one rate matrix{over}"


def logdet_affinity(
    pairs: PairProbabilities, n_states: int, names: Sequence[object] | None = None
) -> Affinity:
    """Log-determinant (paralinear) distances of joint tables.

    R_ij = det P_ij / (prod p_i prod p_j)^1/2 and D_ij = -log max(R_ij, S^(-k/2)) / k; with more
    symbols than states the product of the k largest singular values of
    diag(p_i)^-1/2 P_ij diag(p_j)^-1/2 stands for R.
    """
    tables, k = pairs.tables, n_states
    n, d = tables.shape[0], tables.shape[2]
    marginals = pairs.marginals
    missing = np.diag(pairs.totals) == 0
    refuse_leaves(missing, names, "holds no symbol", "hold no symbol", "that is missing everywhere")
    refuse_constant(marginals.max(axis=1) >= 1.0, names)
    # A symbol that a leaf lacks would make its product of frequencies zero.
    sites = np.maximum(pairs.totals, 1.0)
    floor = 0.5 / np.maximum(np.diag(sites), 1.0)
    marginals = np.maximum(marginals, floor[:, None])
    scale = np.sqrt(marginals)
    i, j = np.triu_indices(n, 1)
    scaled = tables[i, j] / scale[i][:, :, None] / scale[j][:, None, :]
    values = np.eye(n)
    if k == d:
        values[i, j] = np.linalg.det(scaled)
    else:
        values[i, j] = np.linalg.svd(scaled, compute_uv=False)[..., :k].prod(axis=-1)
    values[j, i] = values[i, j]
    least = np.minimum(sites, 1e300) ** (-k / 2)
    size = values * np.outer(*(leaf_signs(values),) * 2)
    saturated = size <= least
    distances = -np.log(np.minimum(np.maximum(size, least), 1.0)) / k
    np.fill_diagonal(distances, 0.0)
    weights = np.where(saturated, least**2, np.maximum(size, least) ** 2) * sites
    np.fill_diagonal(saturated, False)
    return Affinity(values, distances, saturated, weights, k)


def refuse_constant(constant: Array, names: Sequence[object] | None) -> None:
    """Refuse leaves that never vary, by their names."""
    refuse_leaves(constant, names, "never varies", "never vary", "that is constant")


def refuse_leaves(
    bad: Array, names: Sequence[object] | None, one: str, many: str, described: str
) -> None:
    """Refuse leaves by their names: "columns 1, 2 of X [never vary]: a leaf [that is constant]"."""
    if not bad.any():
        return
    places = np.flatnonzero(bad)
    shown = ", ".join(str(i if names is None else names[i]) for i in places[:8])
    more = f" and {len(places) - 8} more" if len(places) > 8 else ""
    noun, verb = ("columns", many) if len(places) > 1 else ("column", one)
    raise NotIdentifiableError(
        f"{noun} {shown}{more} of X {verb}: a leaf {described} says nothing about the tree; leave "
        "it out"
    )


def correlation_affinity(correlations: Array, weight: float) -> Affinity:
    """R = |rho|, D = -log |rho|."""
    size = np.abs(correlations)
    least = 1 / np.sqrt(max(weight, 2.0))
    saturated = size <= least
    distances = -np.log(np.clip(size, least, 1.0))
    np.fill_diagonal(distances, 0.0)
    kept = np.clip(size, least, 1 - 1e-9)
    return Affinity(size, distances, saturated, kept**2 / (1 - kept**2) ** 2, 1)


def leaf_signs(values: Array) -> Array:
    """Signs (n,) that make as much of a signed affinity positive as they can.

    Names of symbols that differ between leaves, and hidden variables, leave the signs free.
    """
    n = len(values)
    size = np.abs(values)
    signs, done = np.ones(n), np.zeros(n, dtype=bool)
    # Along the tree of the largest affinities, whose signs are the surest.
    nearest, best = np.zeros(n, dtype=np.int64), size[0].copy()
    done[0] = True
    for _ in range(n - 1):
        i = int(np.argmax(np.where(done, -1.0, best)))
        signs[i] = signs[nearest[i]] * (-1.0 if values[i, nearest[i]] < 0 else 1.0)
        done[i] = True
        closer = ~done & (size[i] > best)
        nearest[closer], best[closer] = i, size[i, closer]
    return signs


def fitted_lengths(tree: Tree, affinity: Affinity) -> Array:
    """Lengths (N,) of the edges above all nodes, not negative, by weighted least squares.

    Pairs whose distance was cut have next to no weight; of more than 160 leaves balanced means
    of distances are used, which need no system of equations.
    """
    n = tree.n_observed
    lengths = np.zeros(len(tree))
    free = np.flatnonzero(tree.parent >= 0)
    if n > _ALL_PAIRS:
        return _balanced_lengths(tree, affinity.distances)
    gram, target = length_equations(tree, affinity.weights, affinity.distances[None])
    factor = np.linalg.cholesky(gram).T
    lengths[free] = scipy.optimize.nnls(
        factor, np.linalg.solve(factor.T, target[:, 0]), maxiter=30 * len(free)
    )[0]
    return lengths


def length_equations(tree: Tree, weights: Array, distances: Array) -> tuple[Array, Array]:
    """The normal equations (E, E), (E, m) of all lengths, for m tables of distances (m, n, n)."""
    free = np.flatnonzero(tree.parent >= 0)
    below = tree.below()[free]
    gram, target = np.zeros((len(free),) * 2), np.zeros((len(free), len(distances)))
    weights = np.triu(weights, 1) / np.triu(weights, 1).max()
    for i in range(tree.n_observed - 1):
        apart = (below[:, i + 1 :] != below[:, i, None]).astype(np.float64)
        weighted = apart * weights[i, i + 1 :]
        gram += weighted @ apart.T
        target += weighted @ distances[:, i, i + 1 :].T
    # Lengths that no pair of weight sees stay at zero, by a ridge far below rounding of the rest.
    ridge = 1e-12 * float(np.trace(gram)) / len(gram)
    return gram + ridge * np.eye(len(gram)), target


def _balanced_lengths(tree: Tree, distances: Array) -> Array:
    """Lengths under balanced minimum evolution: of the edge above v, A, B | C, D around it."""
    around = tree.neighbours()
    index, means = balanced_means(around, distances)
    lengths = np.zeros(len(tree))
    for v, parent in enumerate(tree.parent):
        u = int(parent)
        if u < 0:
            continue
        here = [index[w, v] for w in around[v] if w != u] or [index[v, u]]
        there = [index[w, u] for w in around[u] if w != v] or [index[u, v]]
        across = np.mean([means[a, b] for a in here for b in there])
        inside = [
            np.mean([means[a, b] for a in side for b in side if a != b]) / 2
            for side in (here, there)
            if len(side) > 1
        ]
        lengths[v] = max(across - sum(inside), 0.0)
    return lengths
