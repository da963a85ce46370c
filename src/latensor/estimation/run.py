"""All that a fit may do with its data is fold it; the rest is a function of what folds give."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from latensor.arrays import RandomState, generator
from latensor.engines import Engine, LocalEngine
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.sums import Folded, Tree
from latensor.refinement.em import Fold, Loop
from latensor.refinement.family import Family
from latensor.sources.shards import Source

A = TypeVar("A", bound=Folded)


def seed_of(random_state: RandomState) -> int:
    """One number that all steps of a fit draw from; fresh entropy for None."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(np.random.SeedSequence(int(random_state)).generate_state(1, np.uint64)[0])
    return int(generator(random_state).integers(2**63))


@dataclass(frozen=True, eq=False)
class Counted(Folded):
    """An accumulator that counts its units: a source must give the same ones in every pass."""

    inner: Any
    count: int = 0

    @property
    def joins_blocks(self) -> bool:  # type: ignore[override]
        return bool(self.inner.joins_blocks)

    @property
    def threads_inside(self) -> bool:  # type: ignore[override]
        return bool(self.inner.threads_inside)

    def empty(self) -> Counted:
        return Counted(self.inner.empty())

    def update(self, batch: Batch) -> Counted:
        return Counted(self.inner.update(batch), self.count + len(batch))

    def merge(self, other: Counted) -> Counted:
        return Counted(self.inner.merge(other.inner), self.count + other.count)

    def message(self) -> Tree:
        return self.inner.message(), self.count

    def snapshot(self) -> Tree:
        return self.inner.snapshot(), self.count

    def received(self, message: Tree) -> Counted:
        return Counted(self.inner.received(message[0]), message[1])


class Run:
    """Folds over one source, numbered: a fit is a deterministic program over them.

    Parameters
    ----------
    source : Source
    seed : int, all random numbers follow from it and from the name of the step that draws them
    engine : who goes over the data; that of the source, or the local one
    journal : where finished folds are kept, so that an interrupted fit goes on; None for nowhere
    callback : called with the name of a fold and its number once it is done; its method
        `partition`, if it has one, with the name and the fraction of the shards that are done
    """

    def __init__(
        self,
        source: Source,
        seed: int,
        *,
        engine: Engine | None = None,
        journal: Any = None,
        callback: Callable[[str, int], object] | None = None,
    ) -> None:
        self.source, self.seed = source, seed
        self.engine: Engine = engine or source.engine or LocalEngine()
        self._journal, self._callback = journal, callback
        self.n_folds, self.n_units = 0, -1
        self._head: tuple[int, Batch] | None = None

    def fold(self, name: str, start: A) -> A:
        """What an accumulator becomes over all units."""
        self.n_folds += 1
        key = f"{self.n_folds:04d} {name}"
        counted = Counted(start.empty())
        found = self._folded(key, counted, self._partition_callback(name))
        self._check_count(found.count)
        self.tell(name)
        result: A = found.inner
        return result

    def _partition_callback(self, name: str) -> Callable[[int], object] | None:
        """Tells the callback, where it wants to know, which fraction of the shards is done."""
        partition = getattr(self._callback, "partition", None)
        if partition is None:
            return None
        count = len(self.source.shards)
        return lambda done: partition(name, done / count)

    def _folded(
        self, key: str, counted: Counted, told: Callable[[int], object] | None = None
    ) -> Counted:
        """A fold, or what the journal knows of it: one that was interrupted gives the same bits."""
        if self._journal is None:
            return self.engine.fold(self.source, counted, told=told)
        message = self._journal.get(key)
        if message is None:
            if isinstance(self.engine, LocalEngine):
                part = self._journal.part(key)
                found = self.engine.fold(self.source, counted, told=told, part=part)
            else:
                found = self.engine.fold(self.source, counted, told=told)
            # What does not travel is kept as it is: a checkpoint changes no bit.
            message = found.message() if self.source.partitioned else found.snapshot()
            self._journal.put(key, message)
        return counted.received(message)

    def loop(self, name: str) -> Loop:
        """A loop that goes on from its last state, where a journal has kept one."""
        found = None if self._journal is None else self._journal.committed(name)
        if found is None:
            return Loop(self, name)
        self.n_folds, state = found
        return Loop(self, name, state)

    def commit(self, name: str, state: Tree) -> None:
        """Keep the state of a loop in place of the folds that have led to it."""
        if self._journal is not None:
            self._journal.commit(name, (self.n_folds, state))

    def release(self) -> None:
        """Nothing of the data is kept by the engine any more."""
        self.engine.release(self.source)

    def tell(self, name: str) -> None:
        """Let the callback know that a step is done."""
        if self._callback is not None:
            self._callback(name, self.n_folds)

    def _check_count(self, count: int) -> None:
        if self.n_units not in (-1, count):
            raise InvalidInputError(
                f"X gave {self.n_units} samples on the first pass and {count} now: it must give "
                "the same batches each time"
            )
        if count == 0:
            raise InvalidInputError("X holds no sample of positive weight: give at least one")
        self.n_units = count

    def head(self, count: int | None = None) -> Batch:
        """The first block, or the first `count` units, read once."""
        wanted = self.source.kind.block if count is None else count
        if self._head is None or self._head[0] < wanted:
            self._head = wanted, self.source.head(wanted)
        return self._head[1].take(slice(0, wanted))

    def rng(self, name: str) -> np.random.Generator:
        """A generator for one named step, whatever steps ran before it."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def on(self, units: Batch) -> Run:
        """The same on units in memory."""
        return Run(Source.of(self.source.kind, units), self.seed, engine=self.local_engine())

    def prepared(self, family: Family[Any], units: Batch) -> Fold[Any]:
        """Passes over units in memory that a family prepares once."""
        blocks = [family.prepare(block) for block in units.blocks(self.source.kind.block)]
        source, engine = (
            replace(Source.of(self.source.kind), shards=(blocks,), blocked=True),
            self.local_engine(),
        )
        return lambda start: engine.fold(source, start)

    def local_engine(self) -> LocalEngine:
        """Who goes over units in memory."""
        return self.engine if isinstance(self.engine, LocalEngine) else LocalEngine()
