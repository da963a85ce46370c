"""Batches kept in a temporary file, so that an expensive source is gone through only once."""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.counts import batch_of
from latensor.sources.source import DocumentSource

_LARGEST_SHORT = np.iinfo(np.uint16).max


class _Record(NamedTuple):
    """Where a batch stands in the file and how: entries per row, columns, counts."""

    position: int
    n_rows: int
    n_entries: int
    stored: np.dtype[Any]
    dtype: np.dtype[Any]


class TemporaryCopy:
    """The batches of another source, which is read once, and from then on a temporary file.

    The first full pass goes through the source and writes what it gives: 4 bytes for a word and
    2 for its count (as many as the count has where it is above 65,535). Later passes read the
    file, one batch in memory at a time. A first pass that the consumer breaks off is forgotten.

    The file has no name where the system allows that, so that it vanishes with the process
    however that ends; `close`, the end of a `with` block or of the TemporaryCopy's life remove it
    earlier.

    Parameters
    ----------
    source : DocumentSource
    directory : folder for the file, None for the system's folder for temporary files

    Raises
    ------
    OSError, when the file cannot be written, with the folder and what to do.
    """

    def __init__(
        self, source: DocumentSource, directory: str | os.PathLike[str] | None = None
    ) -> None:
        if not isinstance(source, DocumentSource):
            raise InvalidInputError(
                f"source is a {type(source).__name__}: make a source of it with as_source"
            )
        self._source = source
        self._directory = tempfile.gettempdir() if directory is None else os.fspath(directory)
        if not os.path.isdir(self._directory):
            raise InvalidInputError(f"directory={self._directory!r} is not a folder that exists")
        self._file: Any = None
        self._records: list[_Record] = []
        self._n_documents: int | None = None
        self._closed = False
        # Two threads may read at once, but the file has one position.
        self._lock = threading.Lock()

    @property
    def n_features(self) -> int:
        """The number of words of the source."""
        return self._source.n_features

    @property
    def vocabulary(self) -> list[str] | None:
        """The words of the source."""
        return self._source.vocabulary

    @property
    def n_documents(self) -> int | None:
        """The number of documents, known after the first full pass at the latest."""
        known = self._n_documents
        return self._source.n_documents if known is None else known

    @property
    def is_complete(self) -> bool:
        """Whether passes read the file already."""
        return self._file is not None

    def __iter__(self) -> Iterator[Any]:
        """The batches of the source."""
        if self._closed:
            raise InvalidInputError("this TemporaryCopy is closed: its file has been removed")
        return self._written() if self._file is None else self._read()

    def _written(self) -> Iterator[Any]:
        """The source's batches, each written before it is given away."""
        file = self._guarded(lambda: tempfile.TemporaryFile(dir=self._directory))  # noqa: SIM115
        try:
            records: list[_Record] = []
            for batch in self._source:
                # A consumer that changes its batch must not change what later passes see.
                records.append(self._guarded(lambda batch=batch: _write(file, batch)))
                yield batch
            self._guarded(file.flush)
        except BaseException:
            _discard(file)
            raise
        with self._lock:
            if self._file is not None or self._closed:
                _discard(file)
                return
            self._file, self._records = file, records
            self._n_documents = sum(record.n_rows for record in records)
            self._finalizer = weakref.finalize(self, file.close)

    def _guarded(self, action: Any) -> Any:
        """The result of `action`; a full disk is explained."""
        try:
            return action()
        except OSError as error:
            reason = error.strerror or str(error)
            raise OSError(
                error.errno,
                f"cannot keep documents in a temporary file ({reason}): free space there, or set "
                "TMPDIR to a folder with more",
                self._directory,
            ) from error

    def _read(self) -> Iterator[Any]:
        for record in self._records:
            lengths = np.empty(record.n_rows, np.int32)
            words = np.empty(record.n_entries, np.int32)
            counts = np.empty(record.n_entries, record.stored)
            with self._lock:
                if self._closed:
                    raise InvalidInputError("this TemporaryCopy was closed during a pass")
                self._file.seek(record.position)
                for array in (lengths, words, counts):
                    if self._file.readinto(array) != array.nbytes:
                        raise OSError(f"a temporary file in {self._directory} was cut short")
            offsets = np.zeros(record.n_rows + 1, np.int64)
            np.cumsum(lengths, out=offsets[1:])
            yield batch_of(counts.astype(record.dtype, copy=False), words, offsets, self.n_features)

    def close(self) -> None:
        """Remove the file; the TemporaryCopy cannot be read any more."""
        with self._lock:
            self._closed = True
            if self._file is not None:
                self._finalizer()
                self._file, self._records = None, []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _discard(file: Any) -> None:
    # Closing flushes what is buffered, which fails once more where the disk is full.
    try:
        file.close()
    except OSError:
        file.raw.close()


def _write(file: Any, batch: Any) -> _Record:
    position = file.tell()
    lengths = np.diff(batch.indptr).astype(np.int32)
    words = np.ascontiguousarray(batch.indices, np.int32)
    counts = np.ascontiguousarray(batch.data)
    short = not len(counts) or counts.max() <= _LARGEST_SHORT
    stored = np.dtype(np.uint16) if short else counts.dtype
    for array in (lengths, words, counts.astype(stored, copy=False)):
        file.write(array)
    return _Record(position, len(lengths), len(words), stored, counts.dtype)
