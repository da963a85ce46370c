"""Folds by Spark: executors fold the partitions that they hold, and merge what they found.

Partitions are cut once into canonical blocks, which Spark keeps in memory or on disk for the length
of a fit. A round is a job over Arrow batches: its start travels with the task (Spark broadcasts
what is large), every partition gives one message, and more than eight of them are merged by
executors before they come here.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from latensor.engines.blocks import Key, blocks_of, first_of, first_units, key_of, template_of
from latensor.engines.tree import FAN_IN, Nodes, fold_blocks, joined, total
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.moments.sums import Folded
from latensor.sources.collections import FramePart
from latensor.sources.partitions import Partitioned
from latensor.sources.records import Layout
from latensor.sources.shard_files import arrow_columns
from latensor.sources.shards import Source

A = TypeVar("A", bound=Folded)

# Seconds between two looks at how far a job has come.
_PAUSE = 0.2
# What a job is called by in the thread that starts it.
_JOB = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")
_SCHEMA = "number int, value binary"


class SparkEngine:
    """The executors of a Spark session.

    Parameters
    ----------
    session : pyspark.sql.SparkSession, or None for the active one, or a new one
    """

    def __init__(self, session: Any = None) -> None:
        self._session = session or _session()
        self._kept: dict[Key, tuple[Source, Any]] = {}

    @classmethod
    def of(cls, given: Partitioned) -> SparkEngine:
        """The engine of a frame, or of files that executors shall read."""
        first = given.parts[0]
        return cls(first.frame.sparkSession if isinstance(first, FramePart) else None)

    # ------------------------------------------------------------------ an engine
    def fold(
        self,
        source: Source,
        start: A,
        *,
        keep: bool = True,
        told: Callable[[int], object] | None = None,
    ) -> A:
        """What `start` becomes over all units of a source, merged in a fixed order."""
        empty, size = start.empty(), source.block
        frame = self._blocks(source, keep=keep)

        def fold_partition(number: int, blocks: Iterator[Any]) -> Iterator[tuple[int, Any]]:
            value = fold_blocks(empty, _unpacked(blocks), size)
            yield number // FAN_IN, {(0, number): value.message()}

        def merge_partition(number: int, messages: Iterator[Any]) -> Iterator[tuple[int, Any]]:
            received = (_received(empty, pickle.loads(message)) for message in messages)
            nodes = joined(received)
            yield number, {place: value.message() for place, value in nodes.items()}

        found = _mapped(frame, fold_partition)
        count = len(source.shards)
        while count > FAN_IN:
            count = -(-count // FAN_IN)
            found = _mapped(found.repartition(count, "number"), merge_partition)
        with self._watched(len(source.shards), told):
            nodes = joined(_received(empty, message) for message in self._collected(found))
        leaves = [(index + 1) << level for level, index in nodes]
        return total(nodes, max(len(source.shards), *leaves, 0), empty)  # type: ignore[no-any-return]

    def map(self, source: Source, function: Callable[[Batch], Any]) -> Iterator[Any]:
        """What a function gives for every block, in order: answers per unit, no sum."""

        def map_partition(number: int, blocks: Iterator[Any]) -> Iterator[tuple[int, Any]]:
            yield number, [function(block) for block in _unpacked(blocks)]

        for answers in self._collected(_mapped(self._blocks(source), map_partition)):
            yield from answers

    def head(self, source: Source, count: int | None = None) -> Batch:
        """The first block of a source, or its first `count` units."""
        values = self._blocks(source).rdd.map(_value)

        def read(number: int, wanted: int) -> list[Batch]:
            try:
                found = self._session.sparkContext.runJob(
                    values, lambda blocks: _first(blocks, wanted), [number]
                )
            except Exception as error:
                raise explained(error) from error
            return [_checked(part) for part in found]

        return first_units(source, count, read)

    def answers(self, given: Partitioned, answers: Any, example: Any) -> Any:
        """The frame with one more column, named after the method; of files that column alone.

        Columns of vectors are left out.

        Parameters
        ----------
        given : the partitions
        answers : function of a piece
        example : what it says about the first units
        """
        kind = "double" if example.dtype.kind == "f" else "bigint"
        kind = kind if example.ndim == 1 else f"array<{kind}>"
        name = answers.method
        if given.collection is None:
            shards = given.shards(answers.kind)

            def answer_shard(batches: Iterable[Any]) -> Iterator[Any]:
                import pyarrow
                from pyspark import TaskContext

                found = answers.of_shard(shards[TaskContext.get().partitionId()])
                yield pyarrow.RecordBatch.from_arrays([_arrow(found)], [name])

            numbers = self._session.range(0, len(shards), 1, len(shards))
            return numbers.mapInArrow(answer_shard, f"{name} {kind}")
        frame = given.collection
        lists = _list_column(frame, given.layout) if answers.kind is Kind.SEQUENCES else None
        # Sequences of rows may stand in several batches of a partition.
        whole = answers.kind is Kind.SEQUENCES and lists is None
        kind = kind if lists is None else f"array<{kind}>"
        none = example[:0]
        # Arrow gives vectors to Python, but not back.
        fields = [f for f in frame.schema.fields if not hasattr(f.dataType, "sqlType")]
        kept = [field.name for field in fields]

        def answer_batches(batches: Iterable[Any]) -> Iterator[Any]:
            import pyarrow

            given = (batch for batch in batches if batch.num_rows)
            for batch in _as_one(given) if whole else given:
                columns = arrow_columns(batch)
                if lists is None:
                    found = _arrow(answers(columns))
                else:
                    ends = columns[lists].offsets.astype(np.int32)
                    each = _arrow(answers(columns) if ends[-1] else none)
                    found = pyarrow.ListArray.from_arrays(pyarrow.array(ends), each)
                others = [batch.column(column) for column in kept]
                yield pyarrow.RecordBatch.from_arrays([*others, found], [*kept, name])

        schema = [f"`{f.name}` {f.dataType.simpleString()}" for f in fields]
        return frame.mapInArrow(answer_batches, ", ".join([*schema, f"{name} {kind}"]))

    def release(self, source: Source) -> None:
        """Let go of the blocks that executors keep."""
        for key in [key for key in self._kept if key[0] == id(source.shards)]:
            self._kept.pop(key)[1].unpersist()

    # ------------------------------------------------------------------ inside
    def _blocks(self, source: Source, keep: bool = True) -> Any:
        """A frame of pickled blocks, a partition for every shard."""
        if key_of(source) in self._kept:
            return self._kept[key_of(source)][1]
        template, shards = template_of(source), list(source.shards)
        parts = [getattr(shard, "pieces", None) for shard in shards]
        frames = [part.frame for part in parts if isinstance(part, FramePart)]
        if frames and len(frames) < len(shards):
            # What a stream holds in memory stands before the frame: folded here, by itself.
            raise InvalidInputError(
                "partial_fit of a Spark frame begins with the frame: call it first, or use fit"
            )
        if frames:
            shard: Any = replace(shards[0], pieces=())  # type: ignore[type-var]

            def cut_frame(number: int, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
                pieces = (arrow_columns(batch) for batch in batches)
                named = replace(shard, name=f"partition {number}")
                for block in blocks_of(template, number, named, pieces):
                    yield number, block

            found = _mapped_arrow(frames[0], cut_frame)
        else:

            def cut_shard(number: int, rows: Iterator[Any]) -> Iterator[tuple[int, Any]]:
                # Spark ends a worker that has not read its input, and what it has compiled.
                list(rows)
                for block in blocks_of(template, number, shards[number], None):
                    yield number, block

            numbers = self._session.range(0, len(shards), 1, len(shards))
            found = _mapped_arrow(numbers, cut_shard)
        if keep:
            found = found.persist()
            self._kept[key_of(source)] = source, found
        return found

    @contextmanager
    def _watched(self, n_shards: int, told: Callable[[int], object] | None) -> Iterator[None]:
        """Tells how many shards are done while a job runs, as Spark's status tracker sees it."""
        if told is None:
            yield
            return
        context, group, ended = self._session.sparkContext, f"latensor {uuid4()}", Event()
        before = {name: context.getLocalProperty(name) for name in _JOB}
        context.setJobGroup(group, before["spark.job.description"] or "latensor")

        last = 0

        def watch() -> None:
            nonlocal last
            while last < n_shards and not ended.wait(_PAUSE):
                done = _tasks_done(context.statusTracker(), group, n_shards)
                if done > last:
                    last = done
                    told(done)

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(watch)
            try:
                yield
            finally:
                ended.set()
                for name, value in before.items():
                    context.setLocalProperty(name, value)
            watching.result()
        if last < n_shards:
            told(n_shards)

    def _collected(self, frame: Any) -> Iterator[Any]:
        try:
            rows = frame.collect()
        except Exception as error:
            raise explained(error) from error
        # Partitions in their order.
        for row in sorted(rows, key=lambda row: row["number"]):
            yield _checked(pickle.loads(bytes(row["value"])))


def _tasks_done(tracker: Any, group: str, n_tasks: int) -> int:
    """How many tasks of a stage of `n_tasks` are done, in the jobs of a group."""
    stages = {
        stage
        for job in tracker.getJobIdsForGroup(group)
        for stage in getattr(tracker.getJobInfo(job), "stageIds", ())
    }
    known = [tracker.getStageInfo(stage) for stage in stages]
    return max((s.numCompletedTasks for s in known if s and s.numTasks == n_tasks), default=0)


def _list_column(frame: Any, layout: Layout) -> str | None:
    """The column of lists, where each is a whole sequence; None where a record is a row."""
    names = layout.columns or tuple(name for name in frame.columns if name != layout.weight)
    if layout.sequence is not None or len(names) != 1:
        return None
    return names[0] if hasattr(frame.schema[names[0]].dataType, "elementType") else None


def _received(start: Any, messages: dict[tuple[int, int], Any]) -> Nodes:
    return {place: start.received(message) for place, message in _checked(messages).items()}


def _checked(value: Any) -> Any:
    if isinstance(value, InvalidInputError):
        raise value
    return value


# ---------------------------------------------------------------------- on the executors
def _mapped(frame: Any, work: Callable[[int, Iterator[Any]], Iterator[tuple[int, Any]]]) -> Any:
    """A frame of what a function makes of the pickled values of every partition."""

    def on_values(number: int, batches: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        return work(number, (value.as_py() for b in batches for value in b.column("value")))

    return _mapped_arrow(frame, on_values)


def _mapped_arrow(
    frame: Any, work: Callable[[int, Iterator[Any]], Iterator[tuple[int, Any]]]
) -> Any:
    """A frame of what a function makes of the Arrow batches of every partition, pickled.

    What is wrong with the data travels as a value: Spark would try again, and lose the sentence.
    """

    def on_partition(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow
        from pyspark import TaskContext

        def packed(number: int, value: Any) -> Any:
            return pyarrow.RecordBatch.from_pydict(
                {
                    "number": pyarrow.array([number], pyarrow.int32()),
                    "value": pyarrow.array([pickle.dumps(value)], pyarrow.binary()),
                }
            )

        number = TaskContext.get().partitionId()
        try:
            for place, value in work(number, iter(batches)):
                yield packed(place, value)
        except InvalidInputError as error:
            yield packed(number, InvalidInputError(str(error)))

    return frame.mapInArrow(on_partition, _SCHEMA)


def _as_one(batches: Iterable[Any]) -> Iterator[Any]:
    """The batches of a partition as one."""
    import pyarrow

    found = list(batches)
    if found:
        yield from pyarrow.Table.from_batches(found).combine_chunks().to_batches()


def _value(row: Any) -> bytes:
    return bytes(row["value"])


def _first(blocks: Iterable[bytes], wanted: int) -> list[Any]:
    """The first units of a partition as one batch, or what is wrong with them."""
    try:
        found = first_of(_unpacked(blocks), wanted)
        # Spark ends a worker that has not read its input, and what it has compiled.
        for _ in blocks:
            pass
    except InvalidInputError as error:
        return [error]
    return found


def _unpacked(blocks: Iterable[Any]) -> Iterator[Batch]:
    for block in blocks:
        yield _checked(pickle.loads(block))


def _arrow(found: Any) -> Any:
    """Answers as an Arrow column: numbers, or lists of them."""
    import pyarrow

    values = pyarrow.array(np.ascontiguousarray(found).ravel())
    if found.ndim == 1:
        return values.cast(pyarrow.float64() if found.dtype.kind == "f" else pyarrow.int64())
    edges = np.arange(0, found.size + 1, found.shape[1], dtype=np.int32)
    return pyarrow.ListArray.from_arrays(edges, values.cast(pyarrow.float64()))


# ---------------------------------------------------------------------- sessions
def _session() -> Any:
    try:
        sql = importlib.import_module("pyspark.sql")
    except ModuleNotFoundError as error:
        raise InvalidInputError("pyspark is not installed: pip install latensor[spark]") from error
    active = sql.SparkSession.getActiveSession()
    if active is not None:
        return active
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (
        home and os.path.exists(os.path.join(home, "bin", "java"))
    ):
        raise InvalidInputError(
            "Spark needs Java 17 or 21, and there is none: install openjdk-17-jre-headless, or set "
            "JAVA_HOME to where it is"
        )
    builder = sql.SparkSession.builder
    if "PYSPARK_PYTHON" not in os.environ:
        builder = builder.config("spark.pyspark.python", sys.executable)
    return builder.getOrCreate()


def explained(error: Exception) -> Exception:
    """What failed on the executors, in a sentence where it has a known cause."""
    text = str(error)
    if "No module named 'latensor'" in text or "No module named 'numba'" in text:
        return InvalidInputError(
            "Spark's executors run a Python without latensor: set PYSPARK_PYTHON to the "
            f"interpreter of your environment (here {sys.executable}) before the session starts, "
            "and install latensor on every node"
        )
    if "PYTHON_VERSION_MISMATCH" in text:
        return InvalidInputError(
            "Spark's executors run another version of Python: set PYSPARK_PYTHON to the "
            f"interpreter of your environment (here {sys.executable}) before the session starts"
        )
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return InvalidInputError("the Spark session was stopped: start a new one, and fit again")
    return error
