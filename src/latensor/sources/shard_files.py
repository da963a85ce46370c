"""Files as partitions: Parquet by row groups, JSON lines and CSV whole, plain or compressed."""

from __future__ import annotations

import csv
import functools
import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.sources.json_lines import as_text, listed
from latensor.sources.partitions import Partitioned, check_engine
from latensor.sources.records import Layout, Lists, as_column, records_of
from latensor.sources.stream import TextFile

# Rows of Parquet row groups that make a partition: enough that starting a task costs nothing
# beside it, and a few tens of megabytes of documents.
_ROWS = 1 << 17
# Records of a text file that become columns together.
_RECORDS = 8192
_COMPRESSIONS = (".gz", ".zst", ".zstd")
_FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
}


@dataclass(frozen=True)
class Version:
    """What a file was when it was first seen: another one is refused."""

    size: int
    modified: int

    @classmethod
    def of(cls, path: str) -> Version:
        """The file as it is now."""
        try:
            found = os.stat(path)
        except OSError as error:
            raise InvalidInputError(f"{path} cannot be read: {error.strerror}") from error
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class FilePart:
    """Part of a file as a recipe: the path, the format, and of Parquet the row groups.

    Attributes
    ----------
    path : str, which every worker must be able to open
    format : "parquet", "jsonl", "csv" or "text"
    groups : row groups, None for all
    needed : the columns to read, None for all
    version : Version
    labels : columns whose values are given as text, as they are written
    """

    path: str
    format: str
    groups: tuple[int, ...] | None
    needed: tuple[str, ...] | None
    version: Version
    labels: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Any]:
        if Version.of(self.path) != self.version:
            raise InvalidInputError(f"{self.path} has changed since it was first read")
        if self.format == "parquet":
            return self._parquet()
        if self.format == "text":
            return _lines(TextFile(self.path))
        if self.format == "jsonl":
            return _json_records(TextFile(self.path), self.needed, self.labels)
        return _separated_values(TextFile(self.path), self.needed, self.labels)

    def first(self, count: int) -> Iterator[Any]:
        """A first piece of the pieces, which are small as they are."""
        return iter(self)

    def _parquet(self) -> Iterator[Mapping[str, Any]]:
        file = parquet_file(self.path)
        columns = None if self.needed is None else list(self.needed)
        for batch in file.iter_batches(
            batch_size=_RECORDS, row_groups=self.groups, columns=columns, use_threads=False
        ):
            labels = {name: self._texts(name, batch.column(name)) for name in self.labels}
            yield arrow_columns(batch.drop_columns(list(self.labels))) | labels

    def _texts(self, name: str, column: Any) -> list[str]:
        def refused(kind: str) -> InvalidInputError:
            return InvalidInputError(
                f"{self.path} has a {name!r} that is no text but of type {kind}"
            )

        return [as_text(value, True, refused) for value in column.to_pylist()]


def arrow_columns(batch: Any) -> dict[str, Any]:
    """The columns of an Arrow record batch by name."""
    return {
        name: _arrow_column(column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    }


def _arrow_column(column: Any) -> Any:
    kind = str(column.type)
    if kind.startswith(("list", "large_list", "fixed_size_list")):
        if kind.startswith("fixed_size_list"):
            size = column.type.list_size
            offsets = np.arange(len(column) + 1, dtype=np.int64) * size
        else:
            offsets = column.offsets.to_numpy().astype(np.int64)
        # `flatten` starts at the first list that is left of a slice.
        return Lists(offsets - offsets[0], _arrow_column(column.flatten()))
    if kind.startswith("struct"):
        return _vectors(column)
    if kind in ("string", "large_string", "string_view"):
        return column.to_pylist()
    return column.to_numpy(zero_copy_only=False)


def _vectors(column: Any) -> Any:
    """A column of Spark's ml Vectors: dense ones as an array, else all as CSR."""
    names = {column.type.field(i).name for i in range(column.type.num_fields)}
    if names != {"type", "size", "indices", "values"}:
        raise InvalidInputError(f"a column holds records of {sorted(names)}, not numbers")
    kinds = column.field("type").to_numpy(zero_copy_only=False)
    values = _arrow_column(column.field("values"))
    sizes = np.diff(values.offsets)
    if (kinds == 1).all():
        if len(sizes) and (sizes != sizes[0]).any():
            raise InvalidInputError("vectors of a column differ in length")
        return values.values.reshape(len(sizes), -1)
    widths = np.where(
        kinds == 1, sizes, np.nan_to_num(column.field("size").to_numpy(zero_copy_only=False))
    )
    if (widths != widths[0]).any():
        raise InvalidInputError("vectors of a column differ in length")
    sparse = _arrow_column(column.field("indices"))
    places = np.concatenate(
        [
            np.arange(size)
            if kind == 1
            else sparse.values[sparse.offsets[i] : sparse.offsets[i + 1]]
            for i, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
        ]
    )
    shape = (len(sizes), int(widths[0]))
    return scipy.sparse.csr_array((values.values, places, values.offsets), shape=shape)


def shards(
    paths: object, *, format: str | None = None, engine: str = "local", **layout: Any
) -> Partitioned:
    """Files as partitions for `fit`, here or on workers that can open the same paths.

    Parameters
    ----------
    paths : str with `*` and `?` as in a shell, or a list of paths
    format : "parquet", "jsonl", "csv" or "text" (one document per line); None tells it from the
        names, before `.gz` or `.zst`
    engine : "local", "dask" (the default client, or Dask's own scheduler), "dask://host:port" or
        "spark": who goes over the files
    columns : numeric columns by name, or one column of lists; all columns by default
    text : column of running text; "text" files need none
    words, counts, n_features : columns of lists, the numbers of a document's words and how often
        each occurs; and how many different words there are
    sequence : column that names the sequence of a row, for hidden Markov models; a file is then
        one partition. Without it a column of lists holds one sequence per record
    target : columns of the second view of CCA
    views : list of columns per view
    weight : column of sample weights
    labels : columns that say when a document is from, or what it belongs to
    vocabulary, lowercase, token_pattern, min_df, max_df, stop_words, max_features : how texts
        become counts, as for `read_documents`

    Returns
    -------
    Partitioned, a source whose partitions are recipes (path, row groups)
    """
    found = _paths(paths)
    described = Layout.of(**layout)
    needed = described.needed
    parts: list[FilePart] = []
    names: list[str] = []
    for path in found:
        kind = format or _format_of(path)
        if kind not in ("parquet", "jsonl", "csv", "text"):
            raise InvalidInputError(f"format={kind!r} must be 'parquet', 'jsonl', 'csv' or 'text'")
        version = Version.of(path)
        groups: Sequence[tuple[int, ...] | None] = (None,)
        if kind == "parquet":
            groups = _row_groups(path, needed, whole=described.sequence is not None)
        wanted = None if needed is None else tuple(needed)
        labels = described.labels or ()
        parts += [FilePart(path, kind, chosen, wanted, version, labels) for chosen in groups]
        names += [
            path if chosen is None else f"{path}, row groups {chosen[0]} to {chosen[-1]}"
            for chosen in groups
        ]
    return Partitioned(tuple(parts), tuple(names), check_engine(engine), described)


def _paths(paths: object) -> list[str]:
    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    if not isinstance(given, list | tuple) or not given:
        raise InvalidInputError(f"paths={paths!r:.80} must be a path with `*`, or a list of paths")
    found: list[str] = []
    for each in given:
        name = os.fsdecode(each)
        matching = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) else [name]
        if not matching:
            raise InvalidInputError(f"paths={name!r} matches no file")
        found += [path for path in matching if not os.path.isdir(path)]
    if not found:
        raise InvalidInputError(f"paths={paths!r:.80} names directories only: give their files")
    return [os.path.abspath(path) for path in found]


def _format_of(path: str) -> str:
    base = os.path.basename(path).lower()
    for ending in _COMPRESSIONS:
        base = base.removesuffix(ending)
    suffix = os.path.splitext(base)[1]
    if suffix not in _FORMATS:
        raise InvalidInputError(
            f"the format of {path} cannot be told from its name: give format='parquet', 'jsonl', "
            "'csv' or 'text'"
        )
    return _FORMATS[suffix]


def parquet_file(path: str) -> Any:
    """A Parquet file, opened by pyarrow."""
    try:
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            f"{path} is a Parquet file, which needs pyarrow: pip install latensor[parquet]"
        ) from error
    try:
        return pyarrow.parquet.ParquetFile(path)
    except Exception as error:
        raise InvalidInputError(f"{path} cannot be read as Parquet: {error}") from error


def _row_groups(
    path: str, needed: list[str] | None, *, whole: bool
) -> Sequence[tuple[int, ...] | None]:
    """Consecutive row groups of about equal size, one partition each."""
    file = parquet_file(path)
    names = file.schema_arrow.names
    for name in needed or ():
        if name not in names:
            raise InvalidInputError(f"{path} has no column {name!r}; it has {listed(names)}")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    if whole or not sizes:
        return (None,)
    found: list[tuple[int, ...]] = []
    held: list[int] = []
    for number, size in enumerate(sizes):
        held.append(number)
        if sum(sizes[i] for i in held) >= _ROWS or size >= _ROWS:
            found.append(tuple(held))
            held = []
    return [*found, tuple(held)] if held else found


def _lines(file: TextFile) -> Iterator[list[str]]:
    for block in file.blocks():
        yield file.lines(block)


def _json_records(
    file: TextFile, needed: tuple[str, ...] | None, labels: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    held: list[dict[str, Any]] = []
    for block in file.blocks():
        for line, text in enumerate(file.lines(block), block.line):
            if not text or text.isspace():
                continue
            try:
                record = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise file.error(line, f"is not JSON ({error})", text) from None
            if not isinstance(record, dict):
                raise file.error(line, f"is a JSON {type(record).__name__}, not an object", text)
            for name in (*(needed or ()), *labels):
                if name not in record:
                    raise file.error(line, f"has no {name!r}; it has {listed(record)}")
            for name in labels:
                refused = functools.partial(_no_text, file, line, name)
                record[name] = as_text(record[name], True, refused)
            held.append(record if needed is None else {name: record[name] for name in needed})
            if len(held) == _RECORDS:
                yield records_of(held)
                held = []
    if held:
        yield records_of(held)


def _no_text(file: TextFile, line: int, name: str, kind: str) -> InvalidInputError:
    return file.error(line, f"has a {name!r} that is no text but of type {kind}")


def _separated_values(
    file: TextFile, needed: tuple[str, ...] | None, labels: tuple[str, ...]
) -> Iterator[Mapping[str, Any]]:
    lines = (line + "\n" for block in file.blocks() for line in file.lines(block))
    first = next((line for line in lines if line.strip()), None)
    if first is None:
        return
    delimiter = max("\t,;|", key=first.count)
    header = [name.strip() for name in next(_records(file, iter([first]), delimiter))[1]]
    for name in (*(needed or ()), *labels):
        if name not in header:
            raise InvalidInputError(f"{file.name} has no column {name!r}; it has {listed(header)}")
    places = {name: header.index(name) for name in (header if needed is None else needed)}

    def columns(held: list[list[str]]) -> dict[str, Any]:
        found = {name: [record[i] for record in held] for name, i in places.items()}
        return {n: fields if n in labels else _parsed(fields) for n, fields in found.items()}

    held: list[list[str]] = []
    for line, record in _records(file, lines, delimiter):
        if not record:
            continue
        if len(record) != len(header):
            raise file.error(
                line + 1,
                f"has {len(record)} fields where the first line has {len(header)}",
            )
        held.append(record)
        if len(held) == _RECORDS:
            yield columns(held)
            held = []
    if held:
        yield columns(held)


def _records(
    file: TextFile, lines: Iterator[str], delimiter: str
) -> Iterator[tuple[int, list[str]]]:
    """Records, with the number of the line that each ends with."""
    reader = csv.reader(lines, delimiter=delimiter)
    while True:
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InvalidInputError(
                f"{file.name} has a record near line {reader.line_num + 1} that is not well formed "
                f"({error}): put texts between quotes; those above {csv.field_size_limit():,} "
                "characters are read from JSON lines and Parquet"
            ) from None
        yield reader.line_num, record


def _parsed(fields: list[str]) -> Any:
    """Numbers where all fields are numbers, blank ones NaN; text otherwise."""
    try:
        return np.array([float(field) if field.strip() else np.nan for field in fields])
    except ValueError:
        return as_column(list(fields))
