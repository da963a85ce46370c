"""What an accumulator is given: units (rows, documents, sequences, ...) in blocks of fixed size."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.ragged import Ragged
from latensor.value_files import storable


class Kind(Enum):
    """What a unit of data is: what is drawn independently, counted, weighted and resampled."""

    ROWS = "rows"
    TARGETED = "rows with a target"
    VIEWS = "views"
    DOCUMENTS = "documents"
    SEQUENCES = "sequences"
    GRAPH = "nodes"

    @property
    def block(self) -> int:
        """Extent of a block: of the kind alone, so that no cut of the data changes a bit.

        Units; of sequences, whose lengths differ, the rows that end a block once they are reached.
        """
        return _BLOCK[self]


# Sizes at which a block and its products stay in the cache (2,048 rows of 20 numbers: 0.3 MB).
# Sums over documents have as many rows as there are words: enough documents that each word occurs.
_BLOCK = {
    Kind.ROWS: 2048,
    Kind.TARGETED: 2048,
    Kind.VIEWS: 2048,
    Kind.DOCUMENTS: 4096,
    Kind.SEQUENCES: 8192,
    Kind.GRAPH: 512,
}


@storable
@dataclass(frozen=True, eq=False)
class Batch:
    """Units with their weights and their numbers in the source.

    Attributes
    ----------
    parts : arrays or SciPy CSR matrices, aligned along the first axis: (rows,), (rows, targets),
        (view, view, view); of sequences one Ragged
    weights : (n,) float64, above zero: units of weight zero are left out where data are read
    keys : (n,) uint64, distinct within everything that is merged
    """

    parts: tuple[Any, ...]
    weights: Array
    keys: Array

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def rows(self) -> Any:
        """The first part, which is the only one of plain rows and documents."""
        return self.parts[0]

    @property
    def weight(self) -> float:
        """How many units these stand for."""
        return float(self.weights.sum())

    @property
    def sizes(self) -> Array:
        """(n,) the extent of every unit: rows of a sequence, otherwise 1."""
        first = self.parts[0]
        return first.sizes if isinstance(first, Ragged) else np.ones(len(self), dtype=np.int64)

    @property
    def extent(self) -> int:
        """Rows of all sequences, otherwise the number of units."""
        first = self.parts[0]
        return int(first.sizes.sum()) if isinstance(first, Ragged) else len(self)

    def take(self, chosen: Any) -> Batch:
        """The units that an index array or a slice chooses."""
        return Batch(tuple(p[chosen] for p in self.parts), self.weights[chosen], self.keys[chosen])

    def owned(self) -> Batch:
        """The same units in memory of their own, which no caller can change."""
        return Batch(tuple(p.copy() for p in self.parts), self.weights.copy(), self.keys)

    def blocks(self, size: int) -> list[Batch]:
        """These units in blocks, the last one possibly shorter."""
        edges = self.block_edges(size)
        if edges[-1] < len(self):
            edges.append(len(self))
        return [self.take(slice(a, b)) for a, b in itertools.pairwise(edges)]

    def block_edges(self, size: int) -> list[int]:
        """Where whole blocks begin and end: each as short as its extent allows."""
        if not isinstance(self.parts[0], Ragged):
            return list(range(0, len(self) + 1, size))
        reached = np.cumsum(self.sizes)
        edges, total = [0], 0
        while edges[-1] < len(self):
            last = int(np.searchsorted(reached, total + size))
            if last == len(self):
                break
            edges.append(last + 1)
            total = int(reached[last])
        return edges

    @staticmethod
    def joined(batches: Sequence[Batch]) -> Batch:
        """Several batches as one."""
        if len(batches) == 1:
            return batches[0]
        parts = tuple(_stacked(p) for p in zip(*(b.parts for b in batches), strict=True))
        weights = np.concatenate([b.weights for b in batches])
        return Batch(parts, weights, np.concatenate([b.keys for b in batches]))


def in_row_order(part: Any) -> Any:
    """Numbers as they lie in memory after a journey: products of other strides have other bits."""
    return np.ascontiguousarray(part) if isinstance(part, np.ndarray) else part


def _stacked(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], Ragged):
        return Ragged.stacked(parts)
    if scipy.sparse.issparse(parts[0]):
        return scipy.sparse.csr_array(scipy.sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)


def mixed(keys: Array, seed: int) -> Array:
    """Well mixed 64-bit numbers (n,) of unit numbers, by which samples and groups are drawn.

    The finalizer of SplitMix64 (Steele, Lea, Flood 2014), a bijection for every seed.
    """
    start = np.uint64((0x9E3779B97F4A7C15 * (seed % 2**63 + 1)) % 2**64)
    with np.errstate(over="ignore"):
        z = keys + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
