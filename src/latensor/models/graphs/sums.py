"""What is summed over the nodes of a graph: products, star moments, explained edges.

A unit is a node with its row of the adjacency, of which nothing else is held.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.estimation.homogeneous import project_to_simplex
from latensor.models.graphs._kernels import explain_edges, sum_by_part
from latensor.models.graphs.nodes import NodeTable, Pieces, PlacedRows
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums

# A gap between the weights of the two directions of an edge that is rounding, of the mean weight.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Census(NodeTable):
    """Edges of every node, whether they have a direction, and what they connect.

    Attributes
    ----------
    marks : (2, 2, n) random numbers x, y, twice: sum_ij A_ij (x_i y_j - y_i x_j) is zero where A is
        symmetric, and by chance where it is not
    """

    marks: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows, places = batch.rows, self.nodes.places(batch)
        ends, others = np.repeat(places, np.diff(rows.indptr)), rows.indices.astype(np.int64)
        chosen = ends != others
        ends, others, weights = ends[chosen], others[chosen], rows.data[chosen]
        n = self.nodes.n_nodes
        out = np.bincount(ends - places[0], weights=weights, minlength=len(places))
        crossed = [
            float(weights @ (x[ends] * y[others] - y[ends] * x[others])) for x, y in self.marks
        ]
        return {
            "out": PlacedRows((int(places[0]),), (out,)),
            "into": np.bincount(others, weights=weights, minlength=n),
            "crossed": np.array(crossed),
            "total": float(weights.sum()),
            "edges": len(weights),
            "pieces": Pieces.of(n, ends, others),
        }

    @property
    def is_symmetric(self) -> bool:
        """Whether every edge goes both ways, up to rounding."""
        sums = self.seen()
        mean = sums["total"] / max(sums["edges"], 1)
        limit = _ROUNDING * mean + float(np.finfo(float).eps) * sums["total"]
        return bool(np.abs(sums["crossed"]).max() <= limit)

    def degrees(self, directed: bool) -> Array:
        """(n,) the weight of the edges of every node, of both directions."""
        out: Array = self.seen()["out"].table(self.nodes.n_nodes)
        return out + self.seen()["into"] if directed else out


@dataclass(frozen=True, eq=False)
class PartSums(NodeTable):
    """(n, parts, q) sums of R_j over the edges of a node to every part of the nodes.

    Attributes
    ----------
    part : (n,) the part of every node
    n_parts : int
    right : (n, q) R
    """

    part: Any
    n_parts: int
    right: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        rows, places = batch.rows, self.nodes.places(batch)
        shape = self.n_parts, self.right.shape[1]
        own, others = np.zeros((len(batch), *shape)), self.others(*shape)
        sum_by_part(
            rows.indptr, rows.indices, rows.data, places, self.part, self.right, own, others
        )
        return self.placed(places, own, others)


@dataclass(frozen=True, eq=False)
class StarMoments(Sums):
    """First, second and third cross moments of three views of every node (monograph 4.3, 4.4).

    Units are nodes with their views (3 k): their edges to three parts of the nodes, along k
    directions each, which are independent given the memberships of the node.
    """

    def summed(self, batch: Batch) -> dict[str, Any]:
        a, b, c = np.split(batch.rows, 3, axis=1)
        return {
            "weight": batch.weight,
            "first": np.stack([v.sum(axis=0) for v in (a, b, c)]),
            "second": np.stack([a.T @ b, a.T @ c, b.T @ c]),
            "third": np.einsum("na,nb,nc->abc", a, b, c, optimize=True),
        }


@dataclass(frozen=True, eq=False)
class LeastSquares(Sums):
    """Memberships (n, k) that explain the three views of every node best; units as above.

    Attributes
    ----------
    columns : (3 k, k), what a community has in every view
    """

    columns: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        found = simplex_least_squares(self.columns.T @ self.columns, batch.rows @ self.columns)
        return {"membership": PlacedRows((int(batch.keys[0]),), (found,))}


def simplex_least_squares(gram: Array, targets: Array, n_steps: int = 400) -> Array:
    """min_p p'Gp - 2 t'p over the simplex for every row t (n, k), by accelerated projection."""
    step = 1.0 / max(float(np.abs(gram).sum(axis=1).max()), 1e-300)
    found = ahead = np.full(targets.shape, 1 / len(gram))
    momentum = 1.0
    for _ in range(n_steps):
        before, found = found, project_to_simplex(ahead - step * (ahead @ gram - targets))
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = found + (momentum - 1.0) / following * (found - before)
        momentum = following
        if np.abs(found - before).max() < 1e-9:
            break
    return found


@dataclass(frozen=True, eq=False)
class ExplainedEdges(NodeTable):
    """How many edges of every node its communities explain, at rates W_i' B W_j.

    Attributes
    ----------
    weights : (n, k) W
    block : (k, k) B
    """

    weights: Any
    block: Any

    def summed(self, batch: Batch) -> dict[str, Any]:
        places = self.nodes.places(batch)
        own = self.weights[places]
        into = self.others(own.shape[1])
        out, logs = explained(batch.rows, places, own @ self.block, self.weights, into)
        return {
            **self.placed(places, own * (out @ self.block.T), into),
            "block": self.block * (own.T @ out),
            "logs": float(logs.sum()),
        }

    def counts(self) -> Array:
        """(n, k) edges of a node that each of its communities explains."""
        sums = self.seen()
        found: Array = sums["own"].table(self.nodes.n_nodes)
        return found + self.weights * sums["others"] if self.nodes.directed else found


def explained(
    rows: Any, places: Array, turned: Array, weights: Array, into: Array
) -> tuple[Array, Array]:
    """Z (b, k) and the sum of logarithms of the rates (b,) of CSR rows: see `explain_edges`."""
    fractions, logs = np.empty(turned.shape), np.empty(len(turned))
    explain_edges(
        rows.indptr, rows.indices, rows.data, places, turned, weights, fractions, logs, into
    )
    return fractions, logs
