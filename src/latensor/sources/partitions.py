"""Data in partitions that stay where they are: files, Dask collections, Spark frames.

A partition is a recipe: whoever works on it reads it, as often as needed. What its pieces (arrays,
frames, lists of records) mean to a model depends on what the model fits: rows, documents,
sequences or views (`pieces_as`).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.sources.records import Layout, columns_of, joined_columns, pieces_as
from latensor.sources.shards import Reader, Source, named_errors


@dataclass(frozen=True, eq=False)
class Shard:
    """One partition as batches of what a model fits.

    Attributes
    ----------
    pieces : re-iterable of arrays, frames, lists of records or columns by name
    kind : Kind, what the units are
    layout : Layout
    name : str, what error messages call the partition
    """

    pieces: Iterable[Any]
    kind: Kind
    layout: Layout
    name: str

    def __iter__(self) -> Iterator[Any]:
        if self.kind is Kind.SEQUENCES and self.layout.sequence is not None:
            # A sequence may stand in several pieces of a partition.
            pieces = [columns_of(piece) for piece in self.pieces]
            if pieces:
                yield from pieces_as(joined_columns(pieces), self.kind, self.layout)
            return
        for piece in self.pieces:
            yield from pieces_as(piece, self.kind, self.layout)


@dataclass(frozen=True, eq=False)
class Partitioned:
    """Data in partitions, and who goes over them.

    Attributes
    ----------
    parts : re-iterables of pieces; recipes, which any worker can read
    names : what error messages call them
    engine : "local", "dask", "dask://host:port" or "spark"
    layout : Layout, which columns are meant
    collection : what the caller gave, where answers shall be such a collection again
    """

    parts: Sequence[Iterable[Any]]
    names: Sequence[str]
    engine: str = "local"
    layout: Layout = field(default_factory=Layout)
    collection: Any = None

    def __post_init__(self) -> None:
        if not len(self.parts):
            raise InvalidInputError("X has no partitions: give at least one")

    @property
    def n_partitions(self) -> int:
        """The number of partitions."""
        return len(self.parts)

    def shards(self, kind: Kind) -> tuple[Shard, ...]:
        """The partitions as batches of units of a kind."""
        pairs = zip(self.parts, self.names, strict=True)
        return tuple(Shard(part, kind, self.layout, name) for part, name in pairs)

    def source(self, kind: Kind, read: Reader, engine: Any) -> Source:
        """The partitions as a source, with its first units."""
        found = Source(kind, self.shards(kind), read, engine=engine, partitioned=True)
        try:
            return replace(found, first=found.head())
        except BaseException:
            if engine is not None:
                engine.release(found)
            raise

    def heads(self, kind: Kind, count: int | None = None) -> Iterator[Any]:
        """The first batch of every partition, read here, at most `count` units where possible."""
        for shard in self.shards(kind):
            first = getattr(shard.pieces, "first", None)
            if first is not None:
                shard = replace(shard, pieces=first(kind.block if count is None else count))
            with named_errors(shard):
                yield from itertools.islice(shard, 1)


def partitions(parts: Iterable[Any], *, engine: str = "local", **layout: Any) -> Partitioned:
    """Partitions of your own: each an object whose `__iter__` yields batches anew each time.

    Parameters
    ----------
    parts : lists of batches, or re-iterables; those that pickle can be read by workers
    engine : "local", "dask", "dask://host:port" or "spark"
    layout : as for `shards`, where batches are records
    """
    given = list(parts)
    for number, part in enumerate(given):
        if not hasattr(part, "__iter__") or iter(part) is part:
            raise InvalidInputError(
                f"parts[{number}] is a {type(part).__name__}: give a list of batches, or an object "
                "whose __iter__ starts anew"
            )
    names = [f"partition {number}" for number in range(len(given))]
    return Partitioned(given, names, check_engine(engine), Layout.of(**layout))


def check_engine(engine: object) -> str:
    """The name of an engine, checked."""
    if isinstance(engine, str) and (
        engine in ("local", "dask", "spark") or engine.startswith("dask://")
    ):
        return engine
    raise InvalidInputError(
        f"engine={engine!r} must be 'local', 'dask', 'dask://host:port' or 'spark'"
    )
