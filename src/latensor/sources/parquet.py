"""Parquet: a table of columns, one of which is the text of the documents."""

from __future__ import annotations

import os
from collections.abc import Iterator

from latensor.exceptions import InvalidInputError
from latensor.sources.json_lines import as_text, listed
from latensor.sources.shard_files import parquet_file
from latensor.sources.stream import TextFile
from latensor.sources.text import Texts

# Records that are read at once.
_RECORDS = 4096


class ParquetReader:
    """The texts of one column of a Parquet file; null is an empty text.

    Parameters
    ----------
    file : TextFile
    text_column : str, the column that holds the text, or None for "text"
    values : bool, whether numbers, dates and truth values become text too
    """

    def __init__(self, file: TextFile, text_column: object = None, values: bool = False) -> None:
        name = "text" if text_column is None else text_column
        known = parquet_file(os.fspath(file.name)).schema_arrow.names
        if name not in known:
            raise InvalidInputError(
                f"{file.name} has no column {name!r}; it has {listed(known)}: choose one with "
                "text_column"
            )
        self._file, self._column, self._values = file, str(name), values

    @property
    def file(self) -> TextFile:
        """The file that is read."""
        return self._file

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        found = parquet_file(os.fspath(self._file.name))
        n_rows, read = max(found.metadata.num_rows, 1), 0
        for batch in found.iter_batches(_RECORDS, columns=[self._column], use_threads=False):
            texts = [as_text(value, self._values, self._refusal) for value in batch[0].to_pylist()]
            read += len(texts)
            yield Texts(texts, self._file.size * read // n_rows)

    def _refusal(self, kind: str) -> InvalidInputError:
        return InvalidInputError(
            f"{self._file.name} has a {self._column!r} that is no text but of type {kind}"
        )
