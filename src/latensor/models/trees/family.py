"""The likelihood of symbols at the observed nodes of a tree, and EM with shrinkage for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.models.trees._kernels import expect_sites
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.sources.tree import Tree
from latensor.value_files import storable

# No probability is zero: a site that the model excludes would end the refinement.
_LEAST = 1e-9


@storable
@dataclass(frozen=True, eq=False)
class TreeState:
    """A tree with conditional distributions along its edges.

    Attributes
    ----------
    tree : Tree
    startprob : (w,) of the root, w the larger of symbols and states
    tables : (N, w, w), row i of node v: its states or symbols given state i of its parent; what
        is not used is zero
    prior : (N, w, w) or None, pseudo-counts that EM adds to every table
    n_states : int, of hidden nodes
    """

    tree: Tree
    startprob: Any
    tables: Any
    prior: Any
    n_states: int

    def arrays(self) -> dict[str, Any]:
        """The tree as the kernels take it."""
        children = self.tree.children()
        flat = [v for each in children for v in each]
        edges = np.concatenate([[0], np.cumsum([len(each) for each in children])])
        return {
            "order": np.array(self.tree.preorder(), dtype=np.int64),
            "parent": self.tree.parent,
            "first_child": edges.astype(np.int64),
            "children": np.array(flat or [0], dtype=np.int64),
        }

    def sizes(self) -> Array:
        """(N,) how many states or symbols every node has."""
        width = len(self.startprob)
        return np.where(np.arange(len(self.tree)) < self.tree.n_observed, width, self.n_states)

    def masks(self) -> tuple[Array, Array]:
        """Which entries of `startprob` and `tables` are used."""
        width, sizes = len(self.startprob), self.sizes()
        shown = np.arange(width) < sizes[:, None]
        parents = np.where(self.tree.parent >= 0, self.tree.parent, 0)
        used = shown[parents][:, :, None] & shown[:, None, :]
        used[self.tree.root] = False
        return shown[self.tree.root], used


def normalized(values: Array, used: Array) -> Array:
    """Rows that sum to one where they are used, none of their entries below 1e-9."""
    kept = np.where(used, np.maximum(values, 0.0), 0.0)
    totals = kept.sum(axis=-1, keepdims=True)
    equal = used / np.maximum(used.sum(axis=-1, keepdims=True), 1)
    kept = np.where(totals > 0, kept / np.where(totals > 0, totals, 1.0), equal)
    kept = np.where(used, np.maximum(kept, _LEAST), 0.0)
    return kept / np.maximum(kept.sum(axis=-1, keepdims=True), np.finfo(float).tiny)


@storable
@dataclass(frozen=True, eq=False)
class TreeFamily(Family[TreeState]):
    """Sites given the tree; a site of many equal ones is gone over once.

    Attributes
    ----------
    n_symbols : int
    """

    plain_steps: ClassVar[int] = 3
    n_symbols: int

    def prepare(self, batch: Batch) -> Batch:
        codes = np.ascontiguousarray(batch.rows)
        if (self.n_symbols + 1.0) ** codes.shape[1] > 4 * len(codes):
            return Batch((codes,), batch.weights, batch.keys)
        distinct, first, inverse = np.unique(codes, axis=0, return_index=True, return_inverse=True)
        weights = np.bincount(inverse.ravel(), batch.weights, len(distinct))
        return Batch((np.ascontiguousarray(distinct),), weights, batch.keys[first])

    def expect(self, state: TreeState, prepared: Batch) -> dict[str, Any]:
        found = evaluate(state, prepared.rows, prepared.weights, counts=True)
        return {
            "weight": prepared.weight,
            "log_likelihood": float(prepared.weights @ found["logs"]),
            "starts": found["starts"],
            "counts": found["counts"],
        }

    def maximize(self, sums: dict[str, Any], state: TreeState) -> TreeState:
        counts = sums["counts"] if state.prior is None else sums["counts"] + state.prior
        first, used = state.masks()
        start = normalized(sums["starts"], first)
        return replace(state, startprob=start, tables=normalized(counts, used))

    def log_prior(self, state: TreeState) -> float:
        if state.prior is None:
            return 0.0
        logs = np.log(np.maximum(state.tables, np.finfo(float).tiny))
        return float((state.prior * np.where(state.tables > 0, logs, 0.0)).sum())

    def complete(self, sums: dict[str, Any], state: TreeState) -> float:
        first, used = state.masks()
        tiny = np.finfo(float).tiny
        start = np.log(np.maximum(state.startprob, tiny))[first] @ sums["starts"][first]
        logs = np.log(np.maximum(state.tables, tiny))
        return float(start + (logs[used] * sums["counts"][used]).sum())

    def pack(self, state: TreeState) -> Array:
        first, used = state.masks()
        tiny = np.finfo(float).tiny
        parts = [state.startprob[first], state.tables[used]]
        return np.log(np.maximum(np.concatenate(parts), tiny))

    def unpack(self, vector: Array, like: TreeState) -> TreeState:
        first, used = like.masks()
        count = int(first.sum())
        values = np.exp(np.minimum(vector, 50.0))
        start, tables = np.zeros(len(first)), np.zeros(used.shape)
        start[first], tables[used] = values[:count], values[count:]
        return replace(like, startprob=normalized(start, first), tables=normalized(tables, used))


def evaluate(
    state: TreeState, codes: Any, weights: Any, *, counts: bool = False, posterior: bool = False
) -> dict[str, Any]:
    """Log-likelihoods (S,) of sites; expected counts and posteriors (S, N, w) where wanted."""
    width, n_nodes = len(state.startprob), len(state.tree)
    shape = (n_nodes, width, width)
    found: dict[str, Any] = {
        "counts": np.zeros(shape if counts or posterior else (1, 1, 1)),
        "starts": np.zeros(width),
        "logs": np.zeros(len(codes)),
    }
    posteriors = np.zeros((len(codes), n_nodes, width) if posterior else (1, 1, 1))
    tree = state.arrays()
    with np.errstate(divide="ignore"):
        expect_sites(
            codes,
            weights,
            tree["order"],
            tree["parent"],
            tree["first_child"],
            tree["children"],
            state.tree.n_observed,
            state.n_states,
            state.startprob,
            state.tables,
            found["counts"],
            found["starts"],
            found["logs"],
            counts or posterior,
            posterior,
            posteriors,
        )
    return {**found, "posterior": posteriors}
