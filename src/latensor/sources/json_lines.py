"""JSON lines: one object per line, one of whose members is the text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date

from latensor.exceptions import InvalidInputError
from latensor.sources.stream import TextFile
from latensor.sources.text import Texts


class JsonLinesReader:
    """The texts of a file of JSON objects; blank lines are skipped, null is an empty text.

    Parameters
    ----------
    file : TextFile
    text_column : str, the member that holds the text, or None for "text"
    values : bool, whether numbers and truth values become text too
    """

    def __init__(self, file: TextFile, text_column: object = None, values: bool = False) -> None:
        if text_column is not None and not isinstance(text_column, str):
            raise InvalidInputError(
                f"text_column={text_column!r} must be the name of a member of the JSON objects"
            )
        self._file, self._values = file, values
        self._column = "text" if text_column is None else text_column

    @property
    def file(self) -> TextFile:
        """The file that is read."""
        return self._file

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""
        for block in self._file.blocks():
            texts = [
                self._text(line, text)
                for line, text in enumerate(self._file.lines(block), block.line)
                if text and not text.isspace()
            ]
            yield Texts(texts, block.bytes_read)

    def _text(self, line: int, source: str) -> str:
        try:
            record = json.loads(source)
        except (ValueError, RecursionError) as error:
            raise self._file.error(
                line, f"is not JSON ({error}): one object per line is expected", source
            ) from None
        if not isinstance(record, dict):
            raise self._file.error(
                line, f"is a JSON {type(record).__name__}: one object per line is expected", source
            )
        if self._column not in record:
            raise self._file.error(
                line,
                f"has no {self._column!r}; it has {listed(record)}: choose one with text_column",
            )
        return as_text(
            record[self._column],
            self._values,
            lambda kind: self._file.error(
                line, f"has a {self._column!r} that is no text but of type {kind}", source
            ),
        )


def as_text(value: object, values: bool, refusal: Callable[[str], InvalidInputError]) -> str:
    """A member or field as a text: null is empty, and numbers and dates only become one if asked.

    Parameters
    ----------
    values : bool, whether numbers, dates and truth values are allowed
    refusal : the error for anything else, by the name of its type
    """
    if value is None:
        return ""
    if values and isinstance(value, int | float | date):
        return value.isoformat() if isinstance(value, date) else str(value)
    if not isinstance(value, str):
        raise refusal(type(value).__name__)
    # JSON can spell half a character, which could never be written out again.
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def listed(names: object) -> str:
    """The first names of a record or a header, for an error message."""
    # Of a file that is no table, what should be a name is a whole document.
    known = [
        repr(name if len(str(name)) <= 40 else f"{str(name)[:40]} ...")
        for name in names  # type: ignore[attr-defined]
    ]
    shown = ", ".join(known[:20]) or "nothing"
    return shown if len(known) <= 20 else f"{shown}, and {len(known) - 20} more"
