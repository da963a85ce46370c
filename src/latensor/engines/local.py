"""The engine of one machine: folds on threads, whose number never changes a bit."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from latensor.arrays.threads import inner_threads, one_blas_thread, thread_count
from latensor.moments.batch import Batch
from latensor.moments.sums import Folded
from latensor.sources.shards import Source

A = TypeVar("A", bound=Folded)

# Blocks that one task sums: small against the data, large against the cost of a task.
_LEAF = 8


class Merging:
    """A merge in a fixed order of as many values as there come; log n of them are held.

    The tree is that of a binary counter: value i joins its neighbour at the level of the lowest
    bit of i, whatever the time at which values come.
    """

    def __init__(self) -> None:
        self._held: list[tuple[int, Any]] = []

    def add(self, value: Any) -> None:
        """The next value."""
        level = 0
        while self._held and self._held[-1][0] == level:
            value, level = self._held.pop()[1].merge(value), level + 1
        self._held.append((level, value))

    def snapshot(self) -> list[tuple[int, Any]]:
        """What is held, so that it can go on elsewhere."""
        return [(level, value.snapshot()) for level, value in self._held]

    def restore(self, start: Any, held: list[tuple[int, Any]]) -> None:
        """Go on from a snapshot."""
        self._held = [(level, start.received(message)) for level, message in held]

    def total(self, start: Any) -> Any:
        """All values so far; an empty `start` where there are none."""
        values = [value for _, value in self._held]
        while len(values) > 1:
            values[-2:] = [values[-2].merge(values[-1])]
        return values[0] if values else start.empty()


def fold_leaf(start: A, leaf: Sequence[Batch]) -> A:
    """The units of a few blocks."""
    return fill(start, [Batch.joined(leaf)] if start.joins_blocks else leaf)


def fill(start: A, batches: Iterable[Batch]) -> A:
    """One accumulator over batches, one after the other."""
    total = start.empty()
    for batch in batches:
        total = total.update(batch)
    return total


class Part(Protocol):
    """Where a fold is saved while it is under way."""

    @property
    def is_due(self) -> bool:
        """Whether it is time to save."""

    def load(self) -> dict[str, Any] | None:
        """The state that was saved last, or None."""

    def save(self, state: dict[str, Any]) -> None:
        """Keep a state."""


class _Saving:
    """The shard of a fold that is under way: what was done before, and what is done now."""

    def __init__(self, part: Part, begun: dict[str, Any], state: dict[str, Any] | None) -> None:
        self._part, self._begun = part, begun
        self.done: int = 0 if state is None else state["done"]
        self.held: list[tuple[int, Any]] = [] if state is None else state["held"]

    @property
    def is_due(self) -> bool:
        return self._part.is_due

    def save(self, done: int, held: list[tuple[int, Any]]) -> None:
        self._part.save({**self._begun, "done": done, "held": held})


class LocalEngine:
    """Threads of this process.

    Parameters
    ----------
    n_jobs : int or None, threads as scikit-learn counts them; changes nothing but the time
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_threads = thread_count(n_jobs)
        self._pool: ThreadPoolExecutor | None = None

    def fold(
        self,
        source: Source,
        start: A,
        *,
        keep: bool = True,
        told: Callable[[int], object] | None = None,
        part: Part | None = None,
    ) -> A:
        """What `start` becomes over all units of a source, merged in a fixed order.

        Parameters
        ----------
        source, start : the data, and an accumulator
        keep : as for other engines; nothing is kept here
        told : called with the number of shards that are done, once a shard
        part : where the fold is saved while it is under way, and taken up again
        """
        state = None if part is None else part.load()
        shards, first = Merging(), 0
        if state is not None:
            shards.restore(start, state["shards"])
            first = state["shard"]
        with one_blas_thread():
            for number in range(first, len(source.shards)):
                saving = None
                if part is not None:
                    begun = {"shard": number, "shards": shards.snapshot()}
                    saving = _Saving(part, begun, state if number == first else None)
                found = self._fold_shard(source, start, number, saving)
                shards.add(start.received(found.message()) if source.partitioned else found)
                if told is not None:
                    told(number + 1)
        return shards.total(start)  # type: ignore[no-any-return]

    def _fold_shard(
        self, source: Source, start: A, number: int, saving: _Saving | None = None
    ) -> A:
        done = 0 if saving is None else saving.done
        merging = Merging()
        if saving is not None:
            merging.restore(start, saving.held)
        if start.threads_inside:
            # One accumulator, which every batch is added to.
            total = merging.total(start)
            with inner_threads(self.n_threads):
                for batch in itertools.islice(source.batches(number), done, None):
                    total, done = total.update(batch), done + 1
                    if saving is not None and saving.is_due:
                        saving.save(done, [(0, total.snapshot())])
            return total  # type: ignore[no-any-return]
        for leaf in self._ordered(fold_leaf, start, source, number, done):
            merging.add(leaf)
            done += 1
            if saving is not None and saving.is_due:
                saving.save(done, merging.snapshot())
        return merging.total(start)  # type: ignore[no-any-return]

    def map(self, source: Source, function: Callable[[Batch], Any]) -> Iterator[Any]:
        """What a function gives for every block, in order: answers per unit, no sum."""
        for number in range(len(source.shards)):
            for answers in self._ordered(_map_leaf, function, source, number):
                yield from answers

    def head(self, source: Source, count: int | None = None) -> Batch:
        """The first block of a source, or its first `count` units."""
        return replace(source, engine=None).head(count)

    def release(self, source: Source) -> None:
        """Nothing is kept."""

    def _ordered(
        self,
        work: Callable[[Any, list[Batch]], Any],
        start: Any,
        source: Source,
        shard: int,
        done: int = 0,
    ) -> Iterator[Any]:
        """Leaves worked on by the threads, in the order in which they were read.

        Reading stays in the calling thread, and at most two leaves per thread are in flight.
        """
        waiting: deque[Future[Any]] = deque()
        found = itertools.islice(leaves(source.batches(shard), source.block), done, None)
        first = next(found, None)
        while first:
            following = next(found, None)
            if self.n_threads == 1 or (not following and not waiting):
                yield work(start, first)
            else:
                waiting.append(self._threads().submit(work, start, first))
                if len(waiting) > 2 * self.n_threads:
                    yield waiting.popleft().result()
            first = following
        while waiting:
            yield waiting.popleft().result()

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="latensor")
        return self._pool


def leaves(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """Blocks for one task each: eight, or as many as reach the extent of eight."""
    found: list[Batch] = []
    extent = 0
    for batch in batches:
        found.append(batch)
        extent += batch.extent
        if len(found) == _LEAF or extent >= _LEAF * size:
            yield found
            found, extent = [], 0
    if found:
        yield found


def _map_leaf(function: Callable[[Batch], Any], leaf: list[Batch]) -> list[Any]:
    return [function(batch) for batch in leaf]
