"""What an engine is, and which one goes over a source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from latensor.moments.batch import Batch
from latensor.moments.sums import Folded
from latensor.sources.partitions import Partitioned
from latensor.sources.shards import Source

A = TypeVar("A", bound=Folded)
Told = Callable[[int], object]


class Engine(Protocol):
    """Who goes over the data: the same shards give the same bits on every engine."""

    def fold(self, source: Source, start: A, *, keep: bool = True, told: Told | None = None) -> A:
        """What `start` becomes over all units.

        Parameters
        ----------
        source, start : the data, and an accumulator
        keep : bool, whether shards are kept for the next pass
        told : called with the number of shards that are done whenever there are more
        """

    def map(self, source: Source, function: Callable[[Batch], Any]) -> Iterator[Any]:
        """What a function gives for every block, in order."""

    def head(self, source: Source, count: int | None = None) -> Batch:
        """The first block, or the first `count` units."""

    def release(self, source: Source) -> None:
        """Let go of whatever is kept of a source."""


def engine_of(given: Partitioned) -> Engine | None:
    """The engine that holds the partitions; None for the local one.

    A framework is imported here, when it is asked for, and nowhere else.
    """
    if given.engine == "local":
        return None
    if given.engine == "spark":
        from latensor.engines.spark import SparkEngine

        return SparkEngine.of(given)
    from latensor.engines.dask import DaskEngine

    return DaskEngine.of(given)
