"""Folds by Dask: one task for every worker thread and round, merged by a tree of tasks.

Partitions are read once, cut into canonical blocks and kept on the workers for the length of a fit.
What a round starts from is sent once; only messages, never frames, come back.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from latensor.engines.blocks import (
    Key,
    blocks_of,
    first_of,
    first_units,
    holding,
    key_of,
    template_of,
)
from latensor.engines.tree import FAN_IN, aligned_groups, fold_blocks, joined, total
from latensor.engines.worker_memory import kept_memory
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.moments.documents import DocumentBatch
from latensor.moments.sums import Folded
from latensor.sources.collections import DelayedPart, DelayedParts
from latensor.sources.partitions import Partitioned
from latensor.sources.shards import Source

A = TypeVar("A", bound=Folded)

# Bytes of a start that stands in every task; larger ones are sent to the workers first.
_INLINE = 100_000
# Seconds for a scheduler that was named to answer.
_PATIENCE = 10.0
Told = Callable[[int], object]
# What a fold found in one group of shards: nodes of the tree, as messages.
_Messages = dict[tuple[int, int], Any]


class DaskEngine:
    """Dask's default client, or its own scheduler where there is none.

    Parameters
    ----------
    client : distributed.Client or None
    """

    def __init__(self, client: Any = None) -> None:
        self._dask = _framework("dask")
        self._client = client or _default_client()
        if self._client is not None:
            _check_workers(self._client)
        self._kept: dict[Key, tuple[Source, list[Any]]] = {}

    @classmethod
    def of(cls, given: Partitioned) -> DaskEngine:
        """The engine for partitions: the default client, or that of an address."""
        if not given.engine.startswith("dask://"):
            return cls()
        address = "tcp://" + given.engine.removeprefix("dask://")
        try:
            return cls(
                _framework("distributed").Client(address, timeout=_PATIENCE, set_as_default=False)
            )
        except OSError as error:
            raise InvalidInputError(
                f"engine={given.engine!r}: no scheduler answers at {address}: start one with "
                "`dask scheduler`, or check the address"
            ) from error

    # ------------------------------------------------------------------ an engine
    def fold(self, source: Source, start: A, *, keep: bool = True, told: Told | None = None) -> A:
        """What `start` becomes over all units of a source, merged in a fixed order."""
        empty = start.empty()
        try:
            messages = self._round(source, empty, keep, told)
        except Exception as error:
            if not _is_lost(error):
                raise self._explained(error) from error
            # What was sent to a worker that is gone: once more, to those that are left.
            try:
                messages = self._round(source, empty, keep, told)
            except Exception as again:
                raise self._explained(again) from again
        nodes = {place: empty.received(message) for place, message in messages.items()}
        return total(nodes, len(source.shards), empty)  # type: ignore[no-any-return]

    def map(self, source: Source, function: Callable[[Batch], Any]) -> Iterator[Any]:
        """What a function gives for every block, in order: answers per unit, no sum."""
        work = self._dask.delayed(_map_group, pure=False)
        for group in self._groups(source):
            for answers in self._compute([work(function, group)]):
                yield from answers

    def head(self, source: Source, count: int | None = None) -> Batch:
        """The first block of a source, or its first `count` units."""
        work = self._dask.delayed(_first_blocks, pure=False)

        def read(number: int, wanted: int) -> list[Batch]:
            shard = self._recipe(source.shards[number])
            try:
                [found] = self._compute([work(template_of(source), number, *shard, wanted)])
            except Exception as error:
                raise self._explained(error) from error
            return found  # type: ignore[no-any-return]

        return first_units(source, count, read)

    def answers(self, given: Partitioned, answers: Any, example: Any) -> Any:
        """A collection of answers: a bag for a bag, otherwise an array of as many rows.

        Parameters
        ----------
        given : the partitions
        answers : function of a piece
        example : what it says about the first units
        """
        collection = given.collection
        if _is_bag(collection):
            return collection.map_partitions(_listed, answers)
        array = importlib.import_module("dask.array")
        work = self._dask.delayed(_answer, pure=False)
        sizes = [np.nan] * given.n_partitions
        if hasattr(collection, "chunks"):
            sizes = list(collection.chunks[0])
        shards = [self._recipe(shard) for shard in given.shards(answers.kind)]
        blocks = [
            array.from_delayed(work(answers, *shard), (size, *example.shape[1:]), meta=example[:0])
            for shard, size in zip(shards, sizes, strict=True)
        ]
        return array.concatenate(blocks, allow_unknown_chunksizes=True)

    def release(self, source: Source) -> None:
        """Let go of the blocks that workers keep."""
        for key in [key for key in self._kept if key[0] == id(source.shards)]:
            del self._kept[key]

    # ------------------------------------------------------------------ inside
    def _round(self, source: Source, start: Any, keep: bool, told: Told | None) -> _Messages:
        groups = self._groups(source, keep=keep)
        sent = self._sent(start)
        fold = self._dask.delayed(_fold_group, pure=False)
        merge = self._dask.delayed(_merge_messages, pure=False)
        size = source.block
        messages = [fold(sent, group, size) for group in groups]
        if told is not None and self._client is not None:
            messages = self._watched(messages, len(source.shards), told)
        while len(messages) > 1:
            messages = [
                merge(sent, messages[i : i + FAN_IN]) for i in range(0, len(messages), FAN_IN)
            ]
        [found] = self._compute(messages)
        return found  # type: ignore[no-any-return]

    def _watched(self, tasks: list[Any], n_shards: int, told: Told) -> list[Any]:
        """Tasks that are under way, and tell how many shards are done whenever one of them is."""
        futures = self._client.compute(tasks)
        sizes = [len(group) for group in aligned_groups(n_shards, self._n_threads())]
        done = 0

        def tell(size: int, future: Any) -> None:
            nonlocal done
            if future.status == "finished":
                done += size
                told(done)

        for size, future in zip(sizes, futures, strict=True):
            future.add_done_callback(functools.partial(tell, size))
        return list(futures)

    def _groups(self, source: Source, keep: bool = True) -> list[Any]:
        """The blocks of all shards, one task for every thread of the workers."""
        if key_of(source) in self._kept:
            return self._kept[key_of(source)][1]
        prepare = self._dask.delayed(_prepared, pure=False)
        template = template_of(source)
        groups = []
        for numbers in aligned_groups(len(source.shards), self._n_threads()):
            shards = [self._recipe(source.shards[number]) for number in numbers]
            groups.append(prepare(template, list(numbers), shards))
        if keep:
            groups = list(
                self._client.persist(groups) if self._client else self._dask.persist(*groups)
            )
            self._kept[key_of(source)] = source, groups
        return groups

    def _recipe(self, shard: Any) -> tuple[Any, list[Any] | None]:
        """A shard as a recipe; a part of a collection stands beside it as a task."""
        part = getattr(shard, "pieces", None)
        if isinstance(part, DelayedPart):
            return replace(shard, pieces=()), [part.delayed]
        if isinstance(part, DelayedParts):
            return replace(shard, pieces=replace(part, parts=())), list(part.parts)
        return shard, None

    def _sent(self, start: Any) -> Any:
        if self._client is None:
            return self._dask.delayed(start, pure=False, traverse=False)
        import pickle

        if len(pickle.dumps(start)) < _INLINE:
            return self._dask.delayed(start, pure=False, traverse=False)
        return self._client.scatter(start, broadcast=True, hash=False)

    def _compute(self, tasks: Sequence[Any]) -> Any:
        if self._client is None:
            return self._dask.compute(*tasks)
        return self._client.gather(self._client.compute(list(tasks)))

    def _n_threads(self) -> int:
        if self._client is None:
            from latensor.arrays.threads import thread_count

            return thread_count()
        return max(int(sum(self._client.nthreads().values())), 1)

    def _explained(self, error: Exception) -> Exception:
        """What failed on the cluster, in a sentence where it has a known cause."""
        text = f"{type(error).__name__}: {error}"
        if isinstance(error, InvalidInputError):
            return error
        if "No module named" in text:
            return InvalidInputError(
                f"a Dask worker lacks what latensor needs ({text}): install the same version of "
                "latensor on every worker"
            )
        if self._client is not None and self._client.status != "running":
            return InvalidInputError(
                f"the Dask client is {self._client.status}: connect a new distributed.Client, and "
                "call fit again"
            )
        return error


def _framework(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise InvalidInputError(f"{name} is not installed: pip install latensor[dask]") from error


def _default_client() -> Any:
    try:
        from distributed import get_client
    except ModuleNotFoundError:
        return None
    try:
        client = get_client()
    except ValueError:
        return None
    return client if client.status == "running" else None


def _check_workers(client: Any) -> None:
    """Refuse workers without latensor, to which a task cannot even be sent: it would never end."""
    found = client.run(importlib.util.find_spec, "latensor", on_error="return")
    missing = [address for address, spec in found.items() if getattr(spec, "name", None) is None]
    if missing:
        raise InvalidInputError(
            f"{len(missing)} of {len(found)} Dask workers cannot import latensor (the first at "
            f"{missing[0]}): install the same version of latensor on every worker"
        )


def _is_lost(error: Exception) -> bool:
    """Whether data that was sent is gone with its worker."""
    return type(error).__name__ in ("FutureCancelledError", "CancelledError", "KilledWorker")


# ---------------------------------------------------------------------- on the workers
def _prepared(
    template: Source, numbers: list[int], shards: list[tuple[Any, Any]]
) -> list[tuple[int, list[Batch]]]:
    """The blocks of some shards, documents ready to be turned word by word once."""
    found = []
    for number, (shard, pieces) in zip(numbers, shards, strict=True):
        blocks = list(blocks_of(template, number, shard, pieces))
        if template.kind is Kind.DOCUMENTS:
            blocks = [DocumentBatch(b.parts, b.weights, b.keys) for b in blocks]
        found.append((number, blocks))
    return found


def _fold_group(start: Any, group: list[tuple[int, list[Batch]]], size: int) -> _Messages:
    with kept_memory.hold():
        nodes = ({(0, number): fold_blocks(start, blocks, size)} for number, blocks in group)
        return {place: value.message() for place, value in joined(nodes).items()}


def _merge_messages(start: Any, parts: list[_Messages]) -> _Messages:
    received = [
        {place: start.received(message) for place, message in part.items()} for part in parts
    ]
    return {place: value.message() for place, value in joined(received).items()}


def _is_bag(collection: Any) -> bool:
    names = ("chunks", "columns", "dtype")
    return (
        collection is not None
        and not isinstance(collection, list)
        and not any(hasattr(collection, name) for name in names)
    )


def _listed(items: Any, answers: Any) -> list[Any]:
    held = list(items)
    return list(answers(held)) if held else []


def _answer(answers: Any, shard: Any, pieces: Any) -> Any:
    with kept_memory.hold():
        return answers.of_shard(holding(shard, pieces))


def _map_group(function: Callable[[Batch], Any], group: list[tuple[int, list[Batch]]]) -> list[Any]:
    with kept_memory.hold():
        return [function(block) for _, blocks in group for block in blocks]


def _first_blocks(
    template: Source, number: int, shard: Any, pieces: Any, wanted: int
) -> list[Batch]:
    return first_of(blocks_of(template, number, shard, pieces), wanted)
