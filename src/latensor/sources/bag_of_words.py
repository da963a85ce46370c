"""The UCI bag-of-words format: a header, then one line for each word of each document.

The first three lines hold the numbers of documents D, words W and entries; each other line
`document word count`, both counted from 1, the documents in rising order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.counts import LARGEST_SINGLE, canonical, first_fault
from latensor.sources.digits import bounded, whole_number, whole_numbers
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.stream import Block, TextFile
from latensor.sources.vocabulary import check_length

_LARGEST = np.iinfo(np.int32).max
# Documents and words for which memory is taken whatever the file holds.
_ALWAYS = 1 << 20


class _Header(NamedTuple):
    n_documents: int
    n_features: int
    n_entries: int


class _Entries(NamedTuple):
    """The entries of a block (m,) each, and the line that the first one stands in."""

    documents: Any
    words: Any
    counts: Any
    lines: Any


class BagOfWordsSource(KnownDocuments):
    """The documents of a UCI bag-of-words file, read anew on each pass.

    Parameters
    ----------
    file : TextFile
    vocabulary : list of W words, or None
    batch_size : int, documents of a batch
    """

    def __init__(self, file: TextFile, vocabulary: list[str] | None, batch_size: int) -> None:
        self._file = file
        self._header, self._body_line = _read_header(file)
        self._batch_size = batch_size
        if vocabulary is not None:
            check_length(vocabulary, self.n_features, "vocabulary")
        self._vocabulary = vocabulary

    @property
    def n_features(self) -> int:
        """W of the header."""
        return self._header.n_features

    @property
    def n_documents(self) -> int:
        """D of the header."""
        return self._header.n_documents

    def __iter__(self) -> Iterator[Any]:
        """Batches of `batch_size` documents; those that the file does not mention are empty."""
        first = 0  # of the batch being collected, counted from 0 as all documents here
        pieces: list[tuple[Any, Any, Any]] = []
        for entries in self._entries():
            documents = entries.documents
            at = 0
            while at < len(documents):
                end = int(np.searchsorted(documents, first + self._batch_size, side="left"))
                if end > at:
                    piece = slice(at, end)
                    pieces.append((documents[piece], entries.words[piece], entries.counts[piece]))
                    at = end
                if at < len(documents):
                    yield self._batch(first, pieces)
                    first, pieces = first + self._batch_size, []
        while first < self.n_documents:
            yield self._batch(first, pieces)
            first, pieces = first + self._batch_size, []

    def _batch(self, first: int, pieces: list[tuple[Any, Any, Any]]) -> Any:
        n_rows = min(self._batch_size, self.n_documents - first)
        offsets = np.zeros(n_rows + 1, np.int64)
        if not pieces:
            return canonical(
                np.zeros(0, np.float32), np.zeros(0, np.int32), offsets, self.n_features
            )
        documents, words, counts = (np.concatenate(column) for column in zip(*pieces, strict=True))
        np.cumsum(np.bincount(documents - first, minlength=n_rows), out=offsets[1:])
        return canonical(counts, words, offsets, self.n_features)

    def _entries(self) -> Iterator[_Entries]:
        """All entries, block by block, checked against the header; indices count from 0."""
        found, last = 0, 0
        for block in self._file.blocks():
            body = self._body(block)
            if body.text.strip():
                entries = _read_plain(body) or self._read_carefully(body)
                self._check(entries, last, found)
                found += len(entries.documents)
                last = int(entries.documents[-1])
                yield _Entries(
                    entries.documents - 1,
                    (entries.words - 1).astype(np.int32),
                    entries.counts.astype(np.float32),
                    entries.lines,
                )
            self._file.report(block.bytes_read, last)
        if found != self._header.n_entries:
            raise InvalidInputError(
                f"{self._file.name} holds {found:,} entries, but its header (line 3) says "
                f"{self._header.n_entries:,}: the file is incomplete or its header is wrong"
            )

    def _body(self, block: Block) -> Block:
        """The block without the lines of the header, which stand in the first one."""
        if block.line > 1:
            return block
        text = block.text
        for _ in range(self._body_line - 1):
            text = text.partition(b"\n")[2]
        return Block(text, self._body_line, block.bytes_read)

    def _check(self, entries: _Entries, last: int, found: int) -> None:
        documents, words, counts, lines = entries
        header = self._header
        faults = (
            (documents < 1, "names document {}: documents count from 1", documents),
            (
                documents > header.n_documents,
                f"names document {{}}, but the header says {header.n_documents:,} documents",
                documents,
            ),
            (words < 1, "names word {}: words count from 1", words),
            (
                words > header.n_features,
                f"names word {{}}, but the header says {header.n_features:,} words",
                words,
            ),
            (counts < 1, "has the count {}: a count is at least 1", counts),
            (counts >= LARGEST_SINGLE, "has the count {}, too large to be one", counts),
            (
                np.diff(documents, prepend=last) < 0,
                "names document {} after a later one: sort the lines by document",
                documents,
            ),
        )
        fault = first_fault(faults)
        if fault is not None:
            raise self._file.error(int(lines[fault[0]]), fault[1])
        if found + len(documents) > header.n_entries:
            line = int(lines[header.n_entries - found])
            raise self._file.error(
                line, f"is one more than the {header.n_entries:,} entries that line 3 announces"
            )

    def _read_carefully(self, block: Block) -> _Entries:
        """The entries of any block, line by line, or what is wrong with one."""
        rows, lines = [], []
        for line, text in enumerate(block.text.splitlines(), block.line):
            words = text.split()
            if not words:
                continue
            if len(words) != 3:
                raise self._file.error(
                    line, f"has {len(words)} fields instead of `document word count`", text
                )
            numbers = [whole_number(word) for word in words]
            if None in numbers:
                word = words[numbers.index(None)].decode("utf-8", "replace")
                raise self._file.error(line, f"has {word!r} where a whole number stands", text)
            rows.append([bounded(number or 0) for number in numbers])
            lines.append(line)
        columns = np.array(rows, np.int64).T
        return _Entries(columns[0], columns[1], columns[2], np.array(lines))


def _read_plain(block: Block) -> _Entries | None:
    """The entries of a block in which every line is three numbers with one blank between."""
    plain = block.text
    if b"\r" in plain or b"\t" in plain:
        plain = plain.replace(b"\r\n", b"\n").replace(b"\t", b" ")
    if not plain.endswith(b"\n"):
        plain += b"\n"
    numbers = whole_numbers(plain)
    if numbers is None or len(numbers[0]) % 3:
        return None
    values, after = numbers
    if (after.reshape(-1, 3) != np.frombuffer(b"  \n", np.uint8)).any():
        return None
    rows = values.reshape(-1, 3)
    return _Entries(
        rows[:, 0], rows[:, 1], rows[:, 2], np.arange(block.line, block.line + len(rows))
    )


def _read_header(file: TextFile) -> tuple[_Header, int]:
    """The three numbers of the header and the line at which the entries start."""
    names = ("documents", "words", "entries")
    numbers: list[int] = []
    block = file.head()
    line = block.line
    rest = block.text
    while len(numbers) < 3:
        text, end, rest = rest.partition(b"\n")
        if not text and not end:
            raise InvalidInputError(
                f"{file.name} ends within its header: its first lines give the numbers of "
                "documents, words and entries"
            )
        if text.strip():
            number = whole_number(text.strip())
            if number is None or number < 0:
                raise file.error(line, f"should give the number of {names[len(numbers)]}", text)
            if number > _LARGEST and len(numbers) < 2:
                raise file.error(line, f"gives {number:,} {names[len(numbers)]}: too many")
            if number == 0 and len(numbers) < 2:
                raise file.error(line, f"says that there are no {names[len(numbers)]}")
            numbers.append(number)
        line += 1
    header = _Header(*numbers)
    # An entry takes six bytes at least: of more documents than bytes, most would be empty.
    limit = max(_ALWAYS, 6 * header.n_entries)
    for number, name in zip(header[:2], names[:2], strict=True):
        if number > limit:
            raise InvalidInputError(
                f"{file.name} says that it has {number:,} {name}, but only {header.n_entries:,} "
                "entries: its header (the first three lines) is wrong"
            )
    return header, line
