"""Gaussian trees: all that the likelihood needs is the correlation matrix of the leaves."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.em import Reached, em
from latensor.refinement.family import Family, Statistics
from latensor.sources.tree import Tree
from latensor.value_files import storable

# The largest correlation along an edge: beyond, two leaves are one.
MOST = 1 - 1e-9


@storable
@dataclass(frozen=True, eq=False)
class GaussianTreeState:
    """A tree of Gaussian variables, hidden ones with mean 0 and variance 1.

    Attributes
    ----------
    tree : Tree
    correlation : (N,) of every node with its parent, 0 at the root
    mean, deviation : (n,) of the observed nodes
    """

    tree: Tree
    correlation: Any
    mean: Any
    deviation: Any

    def correlations(self) -> Array:
        """(N, N) of all pairs of nodes: products along paths."""
        tree = self.tree
        found = np.eye(len(tree))
        seen: list[int] = []
        for v in tree.preorder():
            u = tree.parent[v]
            if u >= 0:
                row = found[u, seen] * self.correlation[v]
                found[v, seen], found[seen, v] = row, row
            seen.append(v)
        return found

    def covariance(self) -> Array:
        """(n, n) of the observed nodes."""
        n = self.tree.n_observed
        return self.correlations()[:n, :n] * np.outer(self.deviation, self.deviation)


@dataclass(frozen=True, eq=False)
class GaussianTreeFamily(Family[GaussianTreeState]):
    """The likelihood of samples through their correlation matrix.

    With K = S_hx S_xx^-1 of the model, E[h x'] = K C and E[h h'] = S_hh - K S_xh + K C K'; the
    maximization sets every edge to the correlation of its ends in that completed matrix.

    Attributes
    ----------
    observed : (n, n) correlations C
    weight : float, samples
    """

    plain_steps: ClassVar[int] = 3
    observed: Any
    weight: float

    def expect(self, state: GaussianTreeState, prepared: Batch) -> dict[str, Any]:
        n = state.tree.n_observed
        model, observed = state.correlations(), self.observed
        factor = scipy.linalg.cho_factor(model[:n, :n], lower=True)
        log_det = 2 * np.log(np.diag(factor[0])).sum()
        trace = np.trace(scipy.linalg.cho_solve(factor, observed))
        value = -0.5 * (n * np.log(2 * np.pi) + log_det + trace)
        gain = scipy.linalg.cho_solve(factor, model[:n, n:]).T
        full = model.copy()
        full[:n, :n] = observed
        full[n:, :n] = gain @ observed
        full[:n, n:] = full[n:, :n].T
        full[n:, n:] = model[n:, n:] - gain @ (model[:n, n:] - full[:n, n:])
        return {
            "weight": self.weight,
            "log_likelihood": self.weight * float(value),
            "second": self.weight * full,
        }

    def maximize(self, sums: dict[str, Any], state: GaussianTreeState) -> GaussianTreeState:
        second = sums["second"]
        scale = np.sqrt(np.maximum(np.diag(second), np.finfo(float).tiny))
        v = np.arange(len(state.tree))
        parents = np.where(state.tree.parent >= 0, state.tree.parent, 0)
        found = second[v, parents] / scale[v] / scale[parents]
        found[state.tree.root] = 0.0
        return replace(state, correlation=np.clip(found, -MOST, MOST))

    def pack(self, state: GaussianTreeState) -> Array:
        free = state.tree.parent >= 0
        return np.asarray(np.arctanh(np.clip(state.correlation[free], -MOST, MOST)))

    def unpack(self, vector: Array, like: GaussianTreeState) -> GaussianTreeState:
        found = np.zeros(len(like.tree))
        found[like.tree.parent >= 0] = np.clip(np.tanh(vector), -MOST, MOST)
        return replace(like, correlation=found)

    def run_em(
        self, state: GaussianTreeState, max_iter: int, tol: float, accelerate: bool = True
    ) -> Reached[GaussianTreeState]:
        """EM from a state, none of whose passes touches data."""

        def fold(start: Statistics[GaussianTreeState]) -> Statistics[GaussianTreeState]:
            nothing = Batch((), np.ones(1), np.zeros(1, dtype=np.uint64))
            return start.received(self.expect(start.state, nothing))

        return em(fold, self, state, max_iter=max_iter, tol=tol, accelerate=accelerate)


def misfit(state: GaussianTreeState, observed: Array, weight: float) -> float:
    """Root mean square error of approximation (Steiger 1990) of correlations (n, n) by a tree.

    (F / f - 1 / weight)^1/2 with F twice the divergence from the observed correlations, f those
    that the tree does not choose; NaN where there is none of these.
    """
    n = len(observed)
    free = n * (n - 1) // 2 - (len(state.tree) - 1)
    model = state.correlations()[:n, :n]
    sign, log_det = np.linalg.slogdet(observed)
    if free <= 0 or sign <= 0:
        return float("nan")
    factor = scipy.linalg.cho_factor(model, lower=True)
    apart = 2 * np.log(np.diag(factor[0])).sum() - log_det - n
    apart += np.trace(scipy.linalg.cho_solve(factor, observed))
    return float(np.sqrt(max(apart / free - 1 / weight, 0.0)))


def conditional_means(state: GaussianTreeState, rows: Array) -> Array:
    """E[h | x] (S, h) of the hidden nodes."""
    n = state.tree.n_observed
    model = state.correlations()
    scaled = (rows - state.mean) / state.deviation
    gain = scipy.linalg.solve(model[:n, :n], model[:n, n:], assume_a="pos")
    return np.asarray(scaled @ gain)


def log_densities(state: GaussianTreeState, rows: Array) -> Array:
    """(S,) log densities of samples."""
    n = state.tree.n_observed
    factor = np.linalg.cholesky(state.correlations()[:n, :n])
    scaled = scipy.linalg.solve_triangular(
        factor, ((rows - state.mean) / state.deviation).T, lower=True
    )
    constant = n * np.log(2 * np.pi) + 2 * np.log(np.diag(factor)).sum()
    return np.asarray(-0.5 * ((scaled**2).sum(axis=0) + constant) - np.log(state.deviation).sum())
