"""What is summed over the nodes of a graph: products, star moments, explained edges.

A unit is a node with its edges: a row of the adjacency, and its column where edges have a
direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.graphs._kernels import explain_edges, simplex_least_squares
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums


def _symmetric(batch: Batch) -> Any:
    """Edges of either direction."""
    return batch.rows if len(batch.parts) == 1 else batch.parts[0] + batch.parts[1]


def _placed(batch: Batch, values: Array, n: int) -> Array:
    found = np.zeros((n, *values.shape[1:]))
    found[batch.keys.astype(np.int64)] = values
    return found


@dataclass(frozen=True, eq=False)
class Degrees(Sums):
    """Edges of every node, and their weight.

    Attributes
    ----------
    n_nodes : int
    """

    n_nodes: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows = _symmetric(batch)
        totals = np.asarray(rows.sum(axis=1), dtype=np.float64).ravel()
        return {"weight": batch.weight, "degrees": _placed(batch, totals, self.n_nodes)}


@dataclass(frozen=True, eq=False)
class Products(Sums):
    """D A D Q (n, q) of the adjacency of either direction, scaled by a diagonal D.

    Attributes
    ----------
    scale : (n,)
    right : (n, q)
    """

    scale: Any
    right: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        places = batch.keys.astype(np.int64)
        found = _symmetric(batch) @ (self.scale[:, None] * self.right)
        return {
            "product": _placed(batch, self.scale[places, None] * found, len(self.scale)),
        }


@dataclass(frozen=True, eq=False)
class PartProducts(Sums):
    """A_m' A_m Q_m of three parts of the columns: one step towards their singular vectors.

    Attributes
    ----------
    parts : three (n_m,) arrays of nodes
    right : three (n_m, q) arrays
    """

    parts: tuple[Any, ...]
    right: tuple[Any, ...]

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows = _symmetric(batch)
        found = {}
        for m, (part, right) in enumerate(zip(self.parts, self.right, strict=True)):
            chosen = rows[:, part]
            found[f"product {m}"] = np.asarray(chosen.T @ (chosen @ right))
        return found


@dataclass(frozen=True, eq=False)
class StarMoments(Sums):
    """First, second and third cross moments of three views of every node (monograph 4.3, 4.4).

    View m of node x are its edges to part m of the nodes, along directions (n_m, k): edges of a
    node to three parts are independent given its memberships.

    Attributes
    ----------
    parts, directions : three arrays each
    """

    parts: tuple[Any, ...]
    directions: tuple[Any, ...]

    def views(self, batch: Batch) -> list[Array]:
        """Three (b, k) arrays."""
        rows = _symmetric(batch)
        both = zip(self.parts, self.directions, strict=True)
        return [np.asarray(rows[:, part] @ directions) for part, directions in both]

    def summed(self, batch: Batch) -> dict[str, Any]:
        a, b, c = self.views(batch)
        return {
            "weight": batch.weight,
            "first": np.stack([v.sum(axis=0) for v in (a, b, c)]),
            "second": np.stack([a.T @ b, a.T @ c, b.T @ c]),
            "third": np.einsum("na,nb,nc->abc", a, b, c, optimize=True),
        }


@dataclass(frozen=True, eq=False)
class LeastSquares(Sums):
    """Memberships (n, k) that explain the three views of every node best.

    Attributes
    ----------
    star : StarMoments, which makes the views
    columns : three (k, k) arrays, what a community has in every view
    n_nodes : int
    """

    star: StarMoments
    columns: tuple[Any, ...]
    n_nodes: int

    def summed(self, batch: Batch) -> dict[str, Any]:
        stacked = np.vstack(self.columns)
        targets = np.hstack(self.star.views(batch)) @ stacked
        k = stacked.shape[1]
        found = np.empty((len(batch), k))
        simplex_least_squares(
            stacked.T @ stacked, np.ascontiguousarray(targets), np.full(k, 1 / k), 400, found
        )
        return {"membership": _placed(batch, found, self.n_nodes)}


@dataclass(frozen=True, eq=False)
class ExplainedEdges(Sums):
    """How many edges of every node its communities explain, at rates W_i' B W_j.

    Attributes
    ----------
    weights : (n, k) W
    block : (k, k) B
    reached : (n, k) W B'
    """

    weights: Any
    block: Any
    reached: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        places = batch.keys.astype(np.int64)
        own = np.ascontiguousarray(self.weights[places])
        out, logs = explained(batch.parts[0], own, self.weights, self.reached)
        counts = own * (out @ self.block.T)
        block = self.block * (own.T @ out)
        if len(batch.parts) == 2:
            into, _ = explained(batch.parts[1], own, self.weights, self.weights @ self.block)
            counts = counts + own * (into @ self.block)
        return {
            "counts": _placed(batch, counts, len(self.weights)),
            "block": block,
            "logs": float(logs.sum()),
        }


def explained(rows: Any, own: Array, weights: Array, reached: Array) -> tuple[Array, Array]:
    """Z (b, k) and the sum of logarithms of the rates (b,) of CSR rows of edges; C = W B'."""
    fractions, logs = np.empty(own.shape), np.empty(len(own))
    explain_edges(
        rows.indptr,
        rows.indices,
        rows.data.astype(np.float64),
        own,
        weights,
        reached,
        fractions,
        logs,
    )
    return fractions, logs
