"""Collections of Dask and frames of Spark as partitions, told by the module of their type.

Nothing is imported here: a collection brings its own methods along.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.sources.partitions import Partitioned
from latensor.sources.records import Layout


@dataclass(frozen=True, eq=False)
class DelayedPart:
    """A partition of a Dask collection: computed where it is needed."""

    delayed: Any

    def __iter__(self) -> Iterator[Any]:
        yield self.delayed.compute()

    def first(self, count: int) -> Iterator[Any]:
        """A first piece of at most `count` units; no more of the partition travels."""
        yield self.delayed[:count].compute()


@dataclass(frozen=True, eq=False)
class DelayedParts:
    """Partitions of several Dask arrays side by side: rows with targets, weights or views."""

    parts: tuple[Any, ...]
    as_views: bool

    def __iter__(self) -> Iterator[Any]:
        yield self.together([part.compute() for part in self.parts])

    def first(self, count: int) -> Iterator[Any]:
        """A first piece of at most `count` units."""
        yield self.together([part[:count].compute() for part in self.parts])

    def together(self, pieces: list[Any]) -> Any:
        """The pieces as one batch."""
        return pieces if self.as_views else tuple(pieces)


@dataclass(frozen=True, eq=False)
class FramePart:
    """A partition of a Spark frame, by its number; read by executors, the first rows also here."""

    frame: Any
    number: int

    def __iter__(self) -> Iterator[Any]:
        raise InvalidInputError("the partitions of a Spark frame are read by Spark's executors")

    def first(self, count: int) -> Iterator[Any]:
        """The first rows of the frame, for what all of them share: names, widths, dtypes."""
        from latensor.sources.shard_files import arrow_columns

        table = self.frame.limit(count).toArrow()
        for batch in table.combine_chunks().to_batches():
            yield arrow_columns(batch)


def framework_of(value: object) -> str | None:
    """Whose collection a value is, "dask" or "spark"; None for anything else."""
    root = type(value).__module__.partition(".")[0]
    if root in ("dask", "dask_expr") and hasattr(value, "to_delayed"):
        return "dask"
    return "spark" if root == "pyspark" and hasattr(value, "sparkSession") else None


def as_partitioned(X: object, y: object = None, sample_weight: object = None) -> Any:
    """X, y and sample_weight with collections turned into one `Partitioned`; others unchanged."""
    several = isinstance(X, list | tuple) and len(X) > 0 and framework_of(X[0]) == "dask"
    framework = "dask" if several else framework_of(X)
    if framework is None:
        return X, y, sample_weight
    if framework == "spark":
        raise InvalidInputError(
            "X is a Spark frame: say which columns are meant, "
            "lt.sources.from_spark(frame, 'features')"
        )
    aligned = [value for value in (y, sample_weight) if framework_of(value) == "dask"]
    if several:
        found = _side_by_side(list(X), as_views=True)  # type: ignore[call-overload]
    elif aligned:
        found = _side_by_side([X, *aligned], as_views=False)
    else:
        found = from_dask(X)
    rest = [None if framework_of(value) == "dask" else value for value in (y, sample_weight)]
    return found, *rest


def from_dask(collection: Any, columns: object = None, **layout: Any) -> Partitioned:
    """A Dask array, frame or bag as a source; `fit` takes them as they are, too.

    Parameters
    ----------
    collection : dask.array (blocks of NumPy or SciPy CSR rows), dask.dataframe, or dask.bag of
        rows, texts, dicts of counts by word, sequences, records, or batches of any of them
    columns, layout : which columns of frames and records are meant, as for `shards`
    """
    if framework_of(collection) != "dask":
        raise InvalidInputError(
            f"collection is a {type(collection).__name__}: give a Dask array, frame or bag"
        )
    parts = tuple(DelayedPart(part) for part in _delayed(collection))
    names = tuple(f"partition {number}" for number in range(len(parts)))
    return Partitioned(parts, names, "dask", Layout.of(columns=columns, **layout), collection)


def _delayed(collection: Any) -> list[Any]:
    if hasattr(collection, "chunks"):
        if not collection.ndim:
            raise InvalidInputError("Expected 2D array, X is a Dask array of 0D")
        cut = {axis: len(blocks) for axis, blocks in enumerate(collection.chunks) if axis}
        cut = {axis: count for axis, count in cut.items() if count > 1}
        if cut:
            try:
                collection = collection.rechunk(dict.fromkeys(cut, -1))
            except ValueError as error:
                raise InvalidInputError(
                    f"X has {max(cut.values())} blocks of columns and rows of unknown "
                    "number: call X.compute_chunk_sizes() first, or keep whole rows in a block"
                ) from error
        return list(collection.to_delayed().ravel())
    if not hasattr(collection, "columns") and not hasattr(collection, "dtype"):
        # Partitions of a bag may be iterators that can be read only once.
        collection = collection.map_partitions(list)
    return list(collection.to_delayed())


def _side_by_side(collections: list[Any], *, as_views: bool) -> Partitioned:
    columns = [_delayed(collection) for collection in collections]
    counts = [len(column) for column in columns]
    if len(set(counts)) > 1:
        raise InvalidInputError(
            f"collections that belong together have {counts} partitions: rechunk them alike"
        )
    parts = tuple(DelayedParts(part, as_views) for part in zip(*columns, strict=True))
    names = tuple(f"partition {number}" for number in range(len(parts)))
    return Partitioned(parts, names, "dask", Layout(), collections)


def from_spark(frame: Any, columns: object = None, **layout: Any) -> Partitioned:
    """A Spark DataFrame as a source: partitions stay with the executors.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    columns : one column of ml Vectors or of lists ("features"), or numeric columns
    text : column of running text, for topic models
    words, counts, n_features : columns of lists, the numbers of a document's words and how often
        each occurs; and how many different words there are
    sequence : column that names the sequence of a row, for hidden Markov models: the frame is
        repartitioned by it, and sorted by it and `order`. Without it a column of lists holds one
        sequence per record
    order : column that orders the rows of a sequence
    layout : the other arguments of `shards`
    """
    if framework_of(frame) != "spark":
        raise InvalidInputError(f"frame is a {type(frame).__name__}: give a Spark DataFrame")
    order = layout.pop("order", None)
    described = Layout.of(columns=columns, **layout)
    known = {field.name: field.dataType for field in frame.schema.fields}
    wanted = [*(described.needed or known), *([] if order is None else [order])]
    for name in wanted:
        if name not in known:
            shown = ", ".join(map(repr, list(known)[:20]))
            raise InvalidInputError(f"the Spark frame has no column {name!r}; it has {shown}")
    frame = frame.select(*wanted)
    if described.sequence is not None:
        by = [described.sequence] if order is None else [described.sequence, order]
        count = frame.rdd.getNumPartitions()
        frame = frame.repartition(count, described.sequence).sortWithinPartitions(*by)
    count = frame.rdd.getNumPartitions()
    parts = tuple(FramePart(frame, number) for number in range(count))
    names = tuple(f"partition {number}" for number in range(count))
    return Partitioned(parts, names, "spark", described, frame)
