"""Writing documents to the UCI bag-of-words format, the plainest that other programs read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.whole_files import check_outputs, whole_stream


def write_bag_of_words(path: str | os.PathLike[str], source: Any) -> Path:
    """Write a source of documents as a UCI bag-of-words file, in constant memory.

    The file starts with three lines, the numbers of documents, of words and of entries; then
    comes one line `document word count` an entry, counted from 1. It is gzipped where the name
    ends in `.gz`. The name appears only once everything is written: a run that is stopped leaves
    nothing behind.

    Parameters
    ----------
    path : where to write; the folder must exist
    source : a matrix (n, V) of counts, or a re-iterable with `n_features` that gives batches of
        them; it is read twice, first to count

    Returns
    -------
    The path.
    """
    path = Path(path)
    check_outputs({"path": path})
    batches, n_features = _as_batches(source)
    n_documents = n_entries = 0
    for batch in batches:
        counts = _as_counts(batch, n_features)
        n_documents += counts.shape[0]
        n_entries += counts.nnz
    with whole_stream(path) as stream:
        stream.write(f"{n_documents}\n{n_features}\n{n_entries}\n".encode())
        first = written = 0
        for batch in batches:
            counts = _as_counts(batch, n_features)
            stream.write(_lines(counts, first))
            first += counts.shape[0]
            written += counts.nnz
        if (first, written) != (n_documents, n_entries):
            raise InvalidInputError(
                f"source gave {first} documents with {written} entries on its second reading, "
                f"{n_documents} with {n_entries} on its first: it must give the same batches "
                "every time"
            )
    return path


def _as_batches(source: Any) -> tuple[Any, int]:
    if scipy.sparse.issparse(source) or isinstance(source, np.ndarray):
        return [source], int(source.shape[1])
    if iter(source) is source or not hasattr(source, "n_features"):
        raise InvalidInputError(
            f"source of type {type(source).__name__} must be a matrix of counts, or have "
            "`n_features` and give batches anew every time it is iterated"
        )
    return source, int(source.n_features)


def _as_counts(batch: Any, n_features: int) -> Any:
    counts = scipy.sparse.csr_array(batch)
    if counts.shape[1] != n_features:
        raise InvalidInputError(f"a batch has {counts.shape[1]} columns, others {n_features}")
    if not counts.has_canonical_format or (counts.data == 0).any():
        counts = counts.copy()
        counts.sum_duplicates()
        counts.eliminate_zeros()
    wrong = (counts.data < 1) | (counts.data % 1 != 0)
    if wrong.any():
        value = counts.data[int(np.argmax(wrong))]
        raise InvalidInputError(f"source holds {value:.6g}: counts must be whole and not negative")
    return counts


def _lines(counts: Any, first: int) -> bytes:
    """Lines `document word count` of a batch whose first document follows `first` others."""
    documents = np.repeat(np.arange(counts.shape[0]) + first + 1, np.diff(counts.indptr))
    columns = (documents, counts.indices.astype(np.int64) + 1, counts.data.astype(np.int64))
    pieces, keep = [], []
    for values, end in zip(columns, (b"  \n"), strict=True):
        digits, shown = _decimal(values)
        pieces += [digits, np.full((values.size, 1), end, dtype=np.uint8)]
        keep += [shown, np.ones((values.size, 1), dtype=bool)]
    text: bytes = np.hstack(pieces)[np.hstack(keep)].tobytes()
    return text


def _decimal(values: Any) -> tuple[Any, Any]:
    """ASCII digits (n, width) of positive integers, and which of them are no leading zeros.

    Eighty million lines make a million documents: formatting them one by one would take longer
    than drawing them.
    """
    width = len(str(int(values.max(initial=1))))
    digits = np.empty((values.size, width), dtype=np.uint8)
    shown = np.empty((values.size, width), dtype=bool)
    rest = values
    for column in range(width - 1, -1, -1):
        shown[:, column] = rest > 0
        rest, digit = np.divmod(rest, 10)
        digits[:, column] = digit + ord("0")
    return digits, shown
