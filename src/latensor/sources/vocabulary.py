"""The words that the columns stand for: given by the caller, or read from a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from latensor.exceptions import InvalidInputError
from latensor.sources.stream import TextFile


def check_vocabulary(
    words: object, n_features: int | None = None, name: str = "vocabulary"
) -> list[str]:
    """Words as a list of different strings, as many as there are columns."""
    if isinstance(words, Mapping | str | bytes) or not isinstance(words, Iterable):
        raise InvalidInputError(
            f"{name} is a {type(words).__name__}: give the words as a list, in the order of the "
            "columns"
        )
    listed = []
    seen: dict[str, int] = {}
    for number, word in enumerate(words):
        if not isinstance(word, str):
            raise InvalidInputError(
                f"{name}[{number}] is {word!r}: words must be strings, not {type(word).__name__}"
            )
        plain = str(word)
        if seen.setdefault(plain, number) != number:
            raise InvalidInputError(
                f"{name} holds {plain!r} twice, at {seen[plain]} and {number}: every column "
                "needs a word of its own"
            )
        listed.append(plain)
    if not listed:
        raise InvalidInputError(f"{name} is empty: give one word per column")
    check_length(listed, n_features, name)
    return listed


def check_length(words: list[str], n_features: int | None, name: str) -> None:
    """Refuse a vocabulary that has not one word for every column."""
    if n_features is not None and len(words) != n_features:
        raise InvalidInputError(
            f"{name} holds {len(words):,} words, but the documents have {n_features:,} columns: "
            "give the vocabulary that the documents were counted with"
        )


def read_vocabulary(path: str | os.PathLike[str]) -> list[str]:
    """The words of a file, one per line, plain or compressed by gzip."""
    file = TextFile(path)
    words: list[str] = []
    seen: dict[str, int] = {}
    blank = 0
    for block in file.blocks():
        for line, raw in enumerate(file.lines(block), block.line):
            word = raw.strip()
            if not word:
                blank = blank or line
                continue
            if blank:
                raise file.error(blank, "is blank, but words follow: a column has no name")
            if seen.setdefault(word, line) != line:
                raise file.error(line, f"holds {word!r}, which line {seen[word]} holds already")
            words.append(word)
    if not words:
        raise InvalidInputError(f"{file.name} holds no words: one per line is expected")
    return words


def as_vocabulary(vocabulary: object) -> list[str] | None:
    """The vocabulary that a caller gave as words or as a file; None passes through."""
    if vocabulary is None:
        return None
    if isinstance(vocabulary, str | os.PathLike):
        return read_vocabulary(vocabulary)
    return check_vocabulary(vocabulary)
