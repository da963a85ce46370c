"""Shards as canonical blocks on a worker: what engines of several machines share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from latensor.moments.batch import Batch
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
    if pieces is not None:
        if isinstance(shard.pieces, DelayedParts):
            pieces = [shard.pieces.together(list(pieces))]
        shard = replace(shard, pieces=pieces)
    shards = list(template.shards)
    shards[number : number + 1] = [shard]
    return replace(template, shards=shards).batches(number)
