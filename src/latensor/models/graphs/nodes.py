"""Which nodes the rows of a source are, and tables with a row for every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.models.graphs._kernels import join_pieces
from latensor.moments.batch import Batch
from latensor.moments.sums import Sums
from latensor.sources.shards import shards_and_positions
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Some rows of a table: blocks that follow each other, and where each begins.

    A partition sends the rows of its own nodes, and nothing for all others.

    Attributes
    ----------
    starts : int, where the blocks begin, no two of which overlap
    blocks : arrays, aligned along the first axis
    """

    starts: tuple[int, ...]
    blocks: tuple[Any, ...]

    def __add__(self, other: PlacedRows) -> PlacedRows:
        return PlacedRows(self.starts + other.starts, self.blocks + other.blocks)

    def table(self, n_rows: int) -> Array:
        """All rows; those that nobody has placed are zero."""
        found = np.zeros((n_rows, *self.blocks[0].shape[1:]))
        for start, block in zip(self.starts, self.blocks, strict=True):
            found[start : start + len(block)] = block
        return found


@storable
@dataclass(frozen=True, eq=False)
class Pieces:
    """Connected components: adding two joins those that share a node.

    Attributes
    ----------
    labels : (n,) int64, the smallest node of the component of every node
    """

    labels: Any

    @classmethod
    def of(cls, n_nodes: int, ends: Array, others: Array) -> Pieces:
        """The components of edges (m,), (m,)."""
        labels = np.arange(n_nodes)
        join_pieces(labels, ends, others)
        return cls(labels)

    def __add__(self, other: Pieces) -> Pieces:
        labels = self.labels.copy()
        join_pieces(labels, np.arange(len(labels)), other.labels)
        return Pieces(labels)

    @property
    def count(self) -> int:
        """How many components have an edge."""
        return int((np.bincount(self.labels) > 1).sum())


@dataclass(frozen=True, eq=False)
class RowCounts(Sums):
    """Rows of every shard, by which nodes are numbered."""

    def summed(self, batch: Batch) -> dict[str, Any]:
        if not (batch.weights == 1).all():
            raise InvalidInputError(
                "sample_weight: a network is one sample, whose nodes have no weights; give weights "
                "of edges as entries of the adjacency"
            )
        return {"rows": PlacedRows((int(batch.keys[0]),), (np.array([len(batch)]),))}

    def first_nodes(self) -> Array:
        """(n_shards,) the node of the first row of every shard."""
        rows: PlacedRows = self.seen()["rows"]
        shards, _ = shards_and_positions(np.array(rows.starts, dtype=np.uint64))
        counts = np.bincount(shards, weights=np.concatenate(rows.blocks)).astype(np.int64)
        return np.cumsum(counts) - counts


@storable
@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes of a network whose rows stand in shards, one after the other.

    Attributes
    ----------
    n_nodes : int
    first : (n_shards,) the node of the first row of every shard
    directed : bool, whether edges have a direction: otherwise they stand in the rows of both ends
    """

    n_nodes: int
    first: Any
    directed: bool

    def places(self, batch: Batch) -> Array:
        """(b,) the nodes of the rows of a batch, which follow each other."""
        shards, positions = shards_and_positions(batch.keys)
        return np.asarray(self.first[shards] + positions)


@dataclass(frozen=True, eq=False)
class NodeTable(Sums):
    """A table with a row for every node, by the rows of the adjacency alone.

    What the edges of a row say about its own node is placed ("own"); where edges have a direction,
    what they say about their other ends is added up over all nodes ("others").

    Attributes
    ----------
    nodes : Nodes
    """

    # One table of other ends for a leaf, not for every block.
    joins_blocks: ClassVar[bool] = True
    nodes: Nodes

    def others(self, *shape: int) -> Array:
        """Zeros (n, ...), of no rows where edges have no direction."""
        return np.zeros((self.nodes.n_nodes if self.nodes.directed else 0, *shape))

    def placed(self, places: Array, own: Array, others: Array) -> dict[str, Any]:
        """The rows of a batch, and what it adds to all others."""
        found: dict[str, Any] = {"own": PlacedRows((int(places[0]),), (own,))}
        return {**found, "others": others} if self.nodes.directed else found

    def table(self) -> Array:
        """(n, ...)"""
        sums = self.seen()
        found: Array = sums["own"].table(self.nodes.n_nodes)
        return found + sums["others"] if self.nodes.directed else found
