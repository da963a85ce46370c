"""CSV and TSV: records of fields, one of which is the text."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.sources.json_lines import listed
from latensor.sources.stream import TextFile
from latensor.sources.text import Texts

_DELIMITERS = "\t,;|"
_LONGEST_FIELD = 1 << 28
_CHUNK_CHARACTERS = 1 << 18
_CHUNK_RECORDS = 64


class SeparatedValuesReader:
    """The texts of one column of a CSV or TSV file; blank lines are skipped.

    Parameters
    ----------
    file : TextFile
    text_column : the name of a column in the header line (None: "text", or the only one); or,
        for a file without header line, the number of the column, counted from 0
    """

    def __init__(self, file: TextFile, text_column: object = None) -> None:
        named = text_column is None or isinstance(text_column, str)
        numbered = isinstance(text_column, int) and not isinstance(text_column, bool)
        if not named and not (numbered and text_column >= 0):  # type: ignore[operator]
            raise InvalidInputError(
                f"text_column={text_column!r} must be the name of a column, or its number counted "
                "from 0 where the file has no header line"
            )
        self._file = file
        first = self._first_line()
        self._delimiter = _delimiter(first, text_column)
        fields = [field.strip() for field in _fields(first, self._delimiter)]
        self._n_fields = len(fields)
        self._has_header = named
        if isinstance(text_column, int):
            if text_column >= len(fields):
                raise InvalidInputError(
                    f"text_column={text_column} is out of range: {file.name} has {len(fields)} "
                    "columns, counted from 0"
                )
            self._column = text_column
        else:
            self._column = self._column_named(text_column, fields)

    def _first_line(self) -> str:
        head = self._file.head()
        for line in self._file.lines(head):
            if line.strip():
                return line
        raise InvalidInputError(f"{self._file.name} is blank: it holds no documents")

    def _column_named(self, text_column: object, fields: list[str]) -> int:
        name = text_column
        if name is None:
            name = fields[0] if len(fields) == 1 else "text"
        if fields.count(str(name)) > 1:
            raise InvalidInputError(f"{self._file.name} has several columns named {name!r}")
        if name not in fields:
            raise InvalidInputError(
                f"{self._file.name} has no column {name!r}; its first line names {listed(fields)}: "
                "choose one with text_column, or give the column's number, counted from 0, if "
                "that line is no header"
            )
        return fields.index(str(name))

    @property
    def file(self) -> TextFile:
        """The file that is read."""
        return self._file

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        lines = _Lines(self._file)
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        skip = self._has_header
        texts: list[str] = []
        held = 0
        while records := self._next_records(reader):
            for record in records:
                if not record:
                    continue
                if skip:
                    skip = False
                    continue
                texts.append(record[self._column])
                held += len(texts[-1]) + 1
            if held >= _CHUNK_CHARACTERS:
                yield Texts(texts, lines.bytes_read)
                texts, held = [], 0
        yield Texts(texts, self._file.size)

    def _next_records(self, reader: Any) -> list[list[str]]:
        """Some records, well formed but for blank ones; none at the end."""
        try:
            with _long_fields():
                records = list(islice(reader, _CHUNK_RECORDS))
        except csv.Error:
            raise self._first_fault() from None
        if any(len(record) not in (0, self._n_fields) for record in records):
            raise self._first_fault()
        return records

    def _first_fault(self) -> InvalidInputError:
        """What is wrong with the file: a second, slower look at it that knows the lines."""
        reader = csv.reader(_Lines(self._file), delimiter=self._delimiter, strict=True)
        begin = 1
        try:
            with _long_fields():
                for record in reader:
                    if len(record) not in (0, self._n_fields):
                        return self._file.error(
                            begin,
                            f"has {len(record)} fields where the first line has {self._n_fields}: "
                            "put texts that hold the separator between quotes",
                            self._delimiter.join(record),
                        )
                    begin = reader.line_num + 1
        except csv.Error as error:
            return self._file.error(begin, f"begins a record that is not well formed ({error})")
        return InvalidInputError(f"{self._file.name} has changed while it was read")


class _Lines:
    """The lines of a file with their ends, as the csv module wants them."""

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.bytes_read = 0

    def __iter__(self) -> Iterator[str]:
        for block in self._file.blocks():
            for line in self._file.lines(block):
                yield line + "\n"
            self.bytes_read = block.bytes_read


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let fields be longer than the csv module's limit, which holds for the whole process."""
    limit = csv.field_size_limit(_LONGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _fields(line: str, delimiter: str) -> list[str]:
    with _long_fields():
        return next(csv.reader([line], delimiter=delimiter), [])


def _delimiter(first: str, text_column: object) -> str:
    """The separator that finds the column in the first line, or else the most columns."""
    found = {delimiter: _fields(first, delimiter) for delimiter in _DELIMITERS}
    with_column = [
        delimiter
        for delimiter, fields in found.items()
        if text_column in [field.strip() for field in fields]
    ]
    candidates = with_column or list(_DELIMITERS)
    # Running text has commas, but tabs only where they separate.
    if len(found["\t"]) > 1 and "\t" in candidates:
        return "\t"
    return max(candidates, key=lambda delimiter: (len(found[delimiter]), delimiter == ","))
