"""Data of any kind as shards of batches, cut anew into blocks that do not depend on the caller."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind

# Numbers of units: worker, shard, position. 2^40 units in a shard, 2^12 shards of a worker.
_POSITIONS = 40
_SHARDS = 12

# What a batch becomes once it is read: its parts, and the weights of its units.
Parts = tuple[tuple[Any, ...], Array]


class Reader(Protocol):
    """How one batch of the caller becomes parts and weights; a picklable value."""

    def __call__(self, given: Any) -> Parts | None:
        """Parts aligned along the first axis and (n,) weights; None for a batch without units."""


@dataclass(frozen=True)
class AlreadyRead:
    """The reader of batches that were read before: tuples of parts and weights."""

    def __call__(self, given: Any) -> Parts:
        parts, weights = given
        return parts, weights


@dataclass(frozen=True, eq=False)
class Source:
    """Units in shards, each a re-iterable of batches as callers give them.

    Attributes
    ----------
    kind : Kind
    shards : re-iterables; one that pickles is a recipe, which a worker reads itself
    read : Reader
    engine : who holds the data (Dask, Spark); None for the local engine
    salt : int, the worker's number: keys of merged workers stay distinct
    copies : bool, whether batches are copied, because the caller may use their memory again
    first : the first batch, where it was read already
    original : the caller's data in its own array library, where they are in memory
    blocked : bool, whether shards hold blocks that are not to be cut anew
    """

    kind: Kind
    shards: Sequence[Iterable[Any]]
    read: Reader = AlreadyRead()
    engine: Any = None
    salt: int = 0
    copies: bool = False
    first: Batch | None = None
    original: Any = None
    blocked: bool = False

    @classmethod
    def of(cls, kind: Kind, *batches: Batch) -> Source:
        """Units that are in memory."""
        return cls(kind, (list(batches),))

    @property
    def in_memory(self) -> Batch | None:
        """All units, where they are at hand in one piece."""
        if len(self.shards) != 1 or not isinstance(self.shards[0], list | tuple):
            return None
        items = self.shards[0]
        if not all(isinstance(item, Batch) for item in items):
            return None
        return Batch.joined(items) if len(items) else None

    def batches(self, shard: int) -> Iterator[Batch]:
        """The units of a shard in blocks of the kind's size; those of weight zero are left out."""
        if self.blocked:
            yield from self.shards[shard]
            return
        size = self.kind.block
        held: list[Batch] = []
        count = 0
        for fresh in self._read(shard):
            if not held and fresh.extent == size:
                # As it is, with whatever was prepared for it.
                yield fresh
                continue
            held.append(fresh)
            count += fresh.extent
            if count < size:
                continue
            whole = Batch.joined(held)
            edges = whole.block_edges(size)
            yield from (whole.take(slice(a, b)) for a, b in itertools.pairwise(edges))
            rest = whole.take(slice(edges[-1], None))
            held, count = ([rest], rest.extent) if len(rest) else ([], 0)
        if held:
            yield Batch.joined(held)

    def _read(self, shard: int) -> Iterator[Batch]:
        number = ((self.salt << _SHARDS) + shard) << _POSITIONS
        for given in self.shards[shard]:
            if isinstance(given, Batch):
                yield given
                continue
            found = self.read(given)
            if found is None:
                continue
            parts, weights = found
            if self.copies:
                parts, weights = tuple(p.copy() for p in parts), weights.copy()
            keys = np.arange(number, number + len(weights), dtype=np.uint64)
            number += len(weights)
            fresh = Batch(parts, weights, keys)
            yield fresh if weights.all() else fresh.take(np.flatnonzero(weights > 0))

    def batches_from(self, position: int) -> Iterator[Batch]:
        """All units, numbered from a position on: what a stream has not seen before."""
        base = self.salt << (_SHARDS + _POSITIONS)
        for shard in range(len(self.shards)):
            for batch in self.batches(shard):
                keys = np.arange(base + position, base + position + len(batch), dtype=np.uint64)
                position += len(batch)
                yield Batch(batch.parts, batch.weights, keys)

    def head(self, count: int | None = None) -> Batch:
        """The first block, or the first `count` units: centre and precision are taken from it."""
        known = 0 if self.first is None else len(self.first)
        # A first block that is not full holds everything.
        if self.first is not None and (count is None or not self.kind.block <= known < count):
            return self.first if count is None else self.first.take(slice(0, count))
        held: list[Batch] = []
        for shard in range(len(self.shards)):
            for batch in self.batches(shard):
                if count is None:
                    return batch
                held.append(batch)
                if sum(map(len, held)) >= count:
                    return Batch.joined(held).take(slice(0, count))
        if not held:
            raise InvalidInputError("X holds no sample of positive weight: give at least one")
        return Batch.joined(held)

    def count_up_to(self, limit: int) -> int:
        """The number of units, looked for as far as `limit`."""
        if self.first is not None and len(self.first) >= limit:
            return len(self.first)
        count = 0
        for shard in range(len(self.shards)):
            for batch in self.batches(shard):
                count += len(batch)
                if count >= limit:
                    return count
        return count

    def salted(self, salt: int) -> Source:
        """The same units with the numbers of another worker."""
        return replace(self, salt=salt)
