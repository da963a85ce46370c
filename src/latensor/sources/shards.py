"""Data of any kind as shards of batches, cut anew into blocks that do not depend on the caller."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind, in_row_order, mixed

# Numbers of units: worker, shard, position. 2^40 units in a shard, 2^12 shards of a worker.
_POSITIONS = 40
_WORKERS = 12

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
    begin : int, the number of the first unit of every shard
    partitioned : bool, whether shards are partitions that any engine may fold: what they give is
        then merged as it would be if it had travelled, so that every engine gives the same bits
    block_size : units of a block where the kind's own would be too large: of the units' width alone
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
    begin: int = 0
    partitioned: bool = False
    block_size: int | None = None

    @property
    def block(self) -> int:
        """Extent of a block."""
        return self.kind.block if self.block_size is None else self.block_size

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
        """The units of a shard in blocks of one size; those of weight zero are left out."""
        if self.blocked:
            yield from self.shards[shard]
            return
        size = self.block
        held: list[Batch] = []
        count = 0
        for fresh in self._read(shard):
            if not held and fresh.extent == size:
                # As it is, with whatever was prepared for it.
                yield fresh
                continue
            if held and count + fresh.extent > size and fresh.extent == len(fresh):
                # The block that two batches share is copied, nothing after it.
                yield Batch.joined([*held, fresh.take(slice(0, size - count))])
                fresh, held, count = fresh.take(slice(size - count, None)), [], 0
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
        number = (shard << _POSITIONS) + self.begin
        for given in self._given(shard):
            if isinstance(given, Batch):
                yield given
                continue
            with named_errors(self.shards[shard]):
                found = self.read(given)
            if found is None:
                continue
            parts, weights = found
            parts = tuple(in_row_order(part) for part in parts)
            if self.copies:
                parts, weights = tuple(p.copy() for p in parts), weights.copy()
            keys = _first_key(self.salt) + np.arange(number, number + len(weights), dtype=np.uint64)
            number += len(weights)
            fresh = Batch(parts, weights, keys)
            yield fresh if weights.all() else fresh.take(np.flatnonzero(weights > 0))

    def _given(self, shard: int) -> Iterator[Any]:
        with named_errors(self.shards[shard]):
            yield from self.shards[shard]

    def numbered_from(self, position: int) -> Source:
        """The same units, numbered from a position on: what a stream has not seen before."""
        if self.engine is not None:
            # No shard has had so many units before.
            return replace(self, begin=position, first=None)
        return Source(self.kind, (_Renumbered(self, position),), engine=self.engine)

    def following(self, held: Sequence[Batch]) -> Source:
        """Units in memory, and after them those of this source."""
        if self.engine is not None:
            return replace(self, shards=(list(held), *self.shards), first=None)
        return replace(self, shards=(_Chained((held, self.shards[0])),))

    def owned(self) -> tuple[Batch, ...]:
        """All units in memory of their own, in blocks."""
        return tuple(
            batch.owned() for shard in range(len(self.shards)) for batch in self.batches(shard)
        )

    def reaches(self, is_enough: Callable[[Sequence[Batch]], bool], held: Sequence[Batch]) -> bool:
        """Whether units in memory and the first ones of these are enough for something."""
        seen = list(held)
        for shard in range(len(self.shards)):
            for batch in self.batches(shard):
                seen.append(batch)
                if is_enough(seen):
                    return True
        return False

    def head(self, count: int | None = None) -> Batch:
        """The first block, or the first `count` units: centre and precision are taken from it."""
        known = 0 if self.first is None else len(self.first)
        if self.first is not None and (count is None or self._holds(known, count)):
            return self.first if count is None else self.first.take(slice(0, count))
        if self.engine is not None:
            found: Batch = self.engine.head(self, count)
            return found
        if count is None and len(self.shards) > 1 and self.kind is not Kind.SEQUENCES:
            # Shards may be short, and the first units have to stand for all.
            count = self.block
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

    def _holds(self, known: int, count: int) -> bool:
        """Whether the first units are as many as these, or all: one shard without a full block."""
        return known >= count or (len(self.shards) == 1 and known < self.block)

    def count_up_to(self, limit: int) -> int:
        """The number of units, looked for as far as `limit`."""
        if self.first is not None and len(self.first) >= limit:
            return len(self.first)
        if self.engine is not None:
            return len(self.head(limit))
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


def shards_and_positions(keys: Array) -> tuple[Array, Array]:
    """The shard (n,) of every unit of a fit, and where in the shard it stands (n,), int64."""
    numbers = keys.astype(np.int64)
    return numbers >> _POSITIONS, numbers & ((1 << _POSITIONS) - 1)


@contextmanager
def named_errors(shard: Any) -> Iterator[None]:
    """What is wrong with a shard that has a name says which it is."""
    try:
        yield
    except InvalidInputError as error:
        name = getattr(shard, "name", None)
        if name is None or str(error).endswith(f"({name})"):
            raise
        raise type(error)(f"{error} ({name})") from error


@dataclass(frozen=True, eq=False)
class _Renumbered:
    """The units of a source under other numbers, read anew each time."""

    source: Source
    position: int

    def __iter__(self) -> Iterator[Batch]:
        first, position = _first_key(self.source.salt), self.position
        for shard in range(len(self.source.shards)):
            for batch in self.source.batches(shard):
                keys = first + np.arange(position, position + len(batch), dtype=np.uint64)
                position += len(batch)
                yield Batch(batch.parts, batch.weights, keys)


@dataclass(frozen=True, eq=False)
class _Chained:
    """Re-iterables one after the other."""

    parts: tuple[Iterable[Any], ...]

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.parts)


def _first_key(salt: int) -> Array:
    """(1,) where the numbers of a worker begin: in the order of workers, as far as that goes.

    Those of workers of workers of workers are drawn out of all 64-bit numbers; numbers beyond the
    largest begin again at 0.
    """
    if salt < 2**_WORKERS:
        return np.array([salt << (64 - _WORKERS)], dtype=np.uint64)
    return mixed(np.array([salt % 2**64], dtype=np.uint64), 0)
