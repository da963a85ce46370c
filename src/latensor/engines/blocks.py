"""Shards as canonical blocks on a worker: what engines of several machines share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.sources.collections import DelayedParts
from latensor.sources.shards import Source


def template_of(source: Source) -> Source:
    """A source without its shards, its engine and what is in memory here."""
    shards: Any = (None,) * len(source.shards)
    return replace(source, shards=shards, engine=None, first=None, original=None)


Key = tuple[int, int, int, int]


def key_of(source: Source) -> Key:
    """By which blocks of a source are kept: its shards, how they are read and units numbered."""
    return id(source.shards), id(source.read), source.begin, source.salt


def blocks_of(template: Source, number: int, shard: Any, pieces: Any) -> Iterator[Batch]:
    """The canonical blocks of one shard.

    Parameters
    ----------
    template : of `template_of`
    number : int, of the shard
    shard : recipe
    pieces : what the partition of a collection holds, None where the recipe reads it itself
    """
    shards = list(template.shards)
    shards[number : number + 1] = [holding(shard, pieces)]
    return replace(template, shards=shards).batches(number)


def holding(shard: Any, pieces: Any) -> Any:
    """A recipe with the pieces of a collection in their place."""
    if pieces is None:
        return shard
    if isinstance(shard.pieces, DelayedParts):
        pieces = [shard.pieces.together(list(pieces))]
    return replace(shard, pieces=pieces)


def first_of(blocks: Iterable[Batch], wanted: int) -> list[Batch]:
    """The first units of some blocks as one batch; nothing where there are none."""
    held: list[Batch] = []
    for block in blocks:
        held.append(block)
        if sum(map(len, held)) >= wanted:
            break
    return [Batch.joined(held).take(slice(0, wanted))] if held else []


def first_units(
    source: Source, count: int | None, read: Callable[[int, int], list[Batch]]
) -> Batch:
    """The first block of a source, or its first `count` units, as `read` gives those of a shard."""
    wanted = source.block if count is None else count
    held: list[Batch] = []
    for number in range(len(source.shards)):
        held += read(number, wanted - sum(map(len, held)))
        # One sequence may be as long as a block.
        whole = held and count is None and source.kind is Kind.SEQUENCES
        if whole or sum(map(len, held)) >= wanted:
            return Batch.joined(held).take(slice(0, wanted))
    if not held:
        raise InvalidInputError("X holds no sample of positive weight: give at least one")
    return Batch.joined(held)
