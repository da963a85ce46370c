"""CSV and TSV: records of fields, one of which is the text."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain, islice
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
        while records := self._next_records(reader, lines):
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

    def _next_records(self, reader: Any, lines: _Lines) -> list[list[str]]:
        """Some records, well formed but for blank ones; none at the end."""
        lines.held.clear()
        try:
            records = list(islice(reader, _CHUNK_RECORDS))
        except csv.Error:
            # The limit of the csv module holds for the whole process: it is not ours to raise.
            try:
                records = _parsed(lines, self._delimiter)
            except csv.Error:
                raise self._first_fault() from None
        if any(len(record) not in (0, self._n_fields) for record in records):
            raise self._first_fault()
        return records

    def _first_fault(self) -> InvalidInputError:
        """What is wrong with the file: a second, slower look at it that knows the lines."""
        begin = 1
        try:
            for n_lines, record in _records(_ended_lines(self._file), self._delimiter):
                if len(record) not in (0, self._n_fields):
                    return self._file.error(
                        begin,
                        f"has {len(record)} fields where the first line has {self._n_fields}: "
                        "put texts that hold the separator between quotes",
                        self._delimiter.join(record),
                    )
                begin += n_lines
        except csv.Error as error:
            return self._file.error(begin, f"begins a record that is not well formed ({error})")
        return InvalidInputError(f"{self._file.name} has changed while it was read")


class _Lines:
    """The lines of a file with their ends, as the csv module wants them, in one pass.

    Attributes
    ----------
    held : the lines that were given since somebody cleared it
    bytes_read : int, of the file
    """

    def __init__(self, file: TextFile) -> None:
        self.held: list[str] = []
        self.bytes_read = 0
        self._given = self._read(file)

    def __iter__(self) -> Iterator[str]:
        return self._given

    def _read(self, file: TextFile) -> Iterator[str]:
        for block in file.blocks():
            for line in file.lines(block):
                self.held.append(line + "\n")
                yield self.held[-1]
            self.bytes_read = block.bytes_read


def _ended_lines(file: TextFile) -> Iterator[str]:
    return (line + "\n" for block in file.blocks() for line in file.lines(block))


def _parsed(lines: _Lines, delimiter: str) -> list[list[str]]:
    """The records that begin in the lines held, the last of which may need more of them."""
    held = list(lines.held)
    records: list[list[str]] = []
    left = len(held)
    for n_lines, record in _records(chain(held, lines), delimiter):
        records.append(record)
        left -= n_lines
        if left <= 0:
            break
    return records


def _records(lines: Iterable[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Records with the number of their lines, as by the csv module but without its limit.

    It is some ten times slower.
    """
    n_lines = size = 0
    fields: list[str] = []
    # What a field between quotes holds so far; None outside of quotes.
    quoted: list[str] | None = None
    for line in lines:
        n_lines, at = n_lines + 1, 0
        if quoted is None and line == "\n":
            yield n_lines, []
            n_lines = 0
            continue
        while True:
            if quoted is None and line.startswith('"', at):
                quoted, size, at = [], 0, at + 1
            if quoted is None:
                end = line.find(delimiter, at)
                end = len(line) - 1 if end < 0 else end
                if "\r" in line[at:end]:
                    raise csv.Error("carriage return in a field without quotes")
                fields.append(line[at:end])
                at = end
            else:
                end = line.find('"', at)
                quoted.append(line[at:] if end < 0 else line[at:end])
                size += len(quoted[-1])
                if size > _LONGEST_FIELD:
                    raise csv.Error(f"field of more than {_LONGEST_FIELD:,} characters")
                if end < 0:
                    break
                at = end + 1
                if line.startswith('"', at):
                    quoted.append('"')
                    at += 1
                    continue
                fields.append("".join(quoted))
                quoted = None
            if line.startswith(delimiter, at):
                at += 1
            elif at == len(line) - 1:
                yield n_lines, fields
                fields, n_lines = [], 0
                break
            else:
                raise csv.Error(f"{delimiter!r} expected after '\"'")
    if quoted is not None:
        raise csv.Error("unexpected end of data")


def _fields(line: str, delimiter: str) -> list[str]:
    """The fields of a line, as well as they can be told if it is not well formed."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        pass
    try:
        return next(_records([line + "\n"], delimiter), (0, []))[1]
    except csv.Error:
        return line.split(delimiter)


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
