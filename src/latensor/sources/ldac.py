"""The LDA-C format: one document per line, `n word:count word:count ...`, words counted from 0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.batching import Batching
from latensor.sources.counts import LARGEST_SINGLE, first_fault
from latensor.sources.digits import bounded, whole_number, whole_numbers
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.stream import Block, TextFile

_LARGEST = np.iinfo(np.int32).max
_TRAILING = re.compile(rb"[ \t\r]+\n")


class _Rows(NamedTuple):
    """Documents of a block: words per document (m,), then all words and counts, and the lines."""

    lengths: Any
    words: Any
    counts: Any
    lines: Any


class LdacSource(KnownDocuments):
    """The documents of an LDA-C file, read anew on each pass.

    Without a vocabulary a first pass finds the largest word number.

    Parameters
    ----------
    file : TextFile
    vocabulary : list of words, or None
    batch_size : int, documents of a batch
    """

    def __init__(self, file: TextFile, vocabulary: list[str] | None, batch_size: int) -> None:
        self._file = file
        self._batch_size = batch_size
        self._vocabulary = vocabulary
        self._n_documents: int | None = None
        if vocabulary is not None:
            self._n_features = len(vocabulary)
            return
        self._n_features = _LARGEST
        largest = -1
        for rows in self._rows():
            largest = max(largest, int(rows.words.max(initial=-1)))
        if largest < 0:
            raise InvalidInputError(f"{file.name} holds no words: every document is empty")
        self._n_features = largest + 1

    def __iter__(self) -> Iterator[Any]:
        """Batches of `batch_size` documents."""
        batching = Batching(self._batch_size)
        for rows in self._rows():
            yield from batching.add(rows.lengths, rows.words, rows.counts, self._n_features)
        yield from batching.rest(self._n_features)

    def _rows(self) -> Iterator[_Rows]:
        """All documents, block by block, checked."""
        documents = 0
        for block in self._file.blocks():
            if block.text.strip():
                rows = _read_plain(block) or self._read_carefully(block)
                self._check(rows)
                documents += len(rows.lengths)
                yield _Rows(
                    rows.lengths,
                    rows.words.astype(np.int32),
                    rows.counts.astype(np.float32),
                    rows.lines,
                )
            self._file.report(block.bytes_read, documents)
        if not documents:
            raise InvalidInputError(f"{self._file.name} holds no documents")
        self._n_documents = documents

    def _check(self, rows: _Rows) -> None:
        words, counts = rows.words, rows.counts
        known = (
            f"the vocabulary holds only {self._n_features:,} words, counted from 0"
            if self._vocabulary is not None
            else "that is too large"
        )
        faults = (
            (words < 0, "names word {}: words count from 0", words),
            (words >= self._n_features, f"names word {{}}, but {known}", words),
            (counts < 1, "has the count {}: a count is at least 1", counts),
            (counts >= LARGEST_SINGLE, "has the count {}, too large to be one", counts),
        )
        fault = first_fault(faults)
        if fault is not None:
            row = int(np.searchsorted(np.cumsum(rows.lengths), fault[0], side="right"))
            raise self._file.error(int(rows.lines[row]), fault[1])

    def _read_carefully(self, block: Block) -> _Rows:
        """The documents of any block, line by line, or what is wrong with one."""
        lengths, lines, words, counts = [], [], [], []
        for line, text in enumerate(block.text.splitlines(), block.line):
            fields = text.split()
            if not fields:
                continue
            announced = whole_number(fields[0])
            if announced is None or announced < 0:
                raise self._file.error(line, "does not start with its number of words", text)
            if announced != len(fields) - 1:
                raise self._file.error(
                    line, f"announces {announced:,} words, but holds {len(fields) - 1:,}", text
                )
            for field in fields[1:]:
                word, colon, count = field.partition(b":")
                pair = whole_number(word), whole_number(count)
                if not colon or None in pair:
                    shown = field.decode("utf-8", "replace")
                    raise self._file.error(line, f"has {shown!r} instead of `word:count`", text)
                words.append(bounded(pair[0] or 0))
                counts.append(bounded(pair[1] or 0))
            lengths.append(announced)
            lines.append(line)
        return _Rows(
            np.array(lengths, np.int64),
            np.array(words, np.int64),
            np.array(counts, np.int64),
            np.array(lines, np.int64),
        )


def _read_plain(block: Block) -> _Rows | None:
    """The documents of a block whose lines have one blank or colon between numbers."""
    plain = block.text
    if b" \n" in plain or b"\r" in plain or b"\t" in plain:
        plain = _TRAILING.sub(b"\n", plain)
    plain = plain.rstrip() + b"\n"
    numbers = whole_numbers(plain)
    if numbers is None:
        return None
    values, after = numbers
    last = np.flatnonzero(after == ord("\n"))
    first = np.concatenate([[0], last[:-1] + 1])
    lengths = values[first]
    if (last - first != 2 * lengths).any():
        return None
    # Within a line the numbers alternate: its length, word, count, word, count, ...
    place = np.arange(len(values)) - np.repeat(first, last - first + 1)
    is_word = place % 2 == 1
    expected = np.where(is_word, np.uint8(ord(":")), np.uint8(ord(" ")))
    expected[last] = ord("\n")
    if (after != expected).any():
        return None
    is_count = ~is_word
    is_count[first] = False
    lines = np.arange(block.line, block.line + len(lengths))
    return _Rows(lengths, values[is_word], values[is_count], lines)
