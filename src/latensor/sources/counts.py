"""Word counts as the batches that models read: checked once, in canonical CSR form."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import as_array, to_host
from latensor.exceptions import InvalidInputError

# From here on float32 no longer tells neighbouring whole numbers apart.
LARGEST_SINGLE = 1 << 24
# From here on not every count has a number in double precision.
_TOO_MANY = 1 << 53
_LARGEST_INDEX = np.iinfo(np.int32).max
# Entries looked at together: the temporaries of a check stay in the cache.
_CHUNK = 1 << 18


def canonical(counts: Any, words: Any, offsets: Any, n_features: int) -> Any:
    """A batch (n, n_features) from the entries of its rows, which this may reorder in place.

    Parameters
    ----------
    counts : (nnz,) float32 or float64
    words : (nnz,) int32, column indices; a word given twice in a row is counted together
    offsets : (n + 1,), the entries of row i being offsets[i]:offsets[i + 1]
    n_features : int
    """
    # SciPy widens the indices to the dtype of the offsets.
    if offsets[-1] <= _LARGEST_INDEX:
        offsets = offsets.astype(np.int32, copy=False)
    shape = (len(offsets) - 1, n_features)
    batch = scipy.sparse.csr_array((counts, words, offsets), shape=shape)
    if not batch.has_canonical_format:
        batch.sum_duplicates()
    return batch


def batch_of(counts: Any, words: Any, offsets: Any, n_features: int) -> Any:
    """A batch from entries that are known to be in canonical order; nothing is copied."""
    if offsets[-1] <= _LARGEST_INDEX:
        offsets = offsets.astype(np.int32, copy=False)
    batch = scipy.sparse.csr_array((len(offsets) - 1, n_features), dtype=counts.dtype)
    # Given to the constructor, a small part of a large array would be copied.
    batch.data, batch.indices, batch.indptr = counts, words, offsets
    batch.has_canonical_format = True
    return batch


def first_fault(faults: Iterable[tuple[Any, str, Any]]) -> tuple[int, str] | None:
    """The first entry of a file that a check marks, and what is wrong with it.

    Parameters
    ----------
    faults : for each check, which entries (m,) it marks, the message, and the numbers (m,) of
        which the marked one is put into the message
    """
    found = [(int(np.argmax(wrong)), text, column) for wrong, text, column in faults if wrong.any()]
    if not found:
        return None
    entry, text, column = min(found, key=lambda item: item[0])
    return entry, text.format(int(column[entry]))


def read_counts(counts: object, name: str) -> tuple[Any, np.dtype[Any]]:
    """A matrix of counts as a canonical CSR array, and the dtype of its batches.

    The arrays of a canonical CSR matrix are shared with the caller and never written to.

    Raises
    ------
    InvalidInputError, for what is no matrix of counts: the position and the reason.
    """
    matrix = _as_csr(counts, name)
    n_documents, n_features = matrix.shape
    if n_features == 0:
        raise InvalidInputError(f"{name} has no words: shape {matrix.shape}, 0 columns")
    if n_documents == 0:
        raise InvalidInputError(f"{name} has no documents: shape {matrix.shape}, 0 rows")
    if n_features > _LARGEST_INDEX:
        raise InvalidInputError(
            f"{name} has {n_features:,} columns: at most {_LARGEST_INDEX:,} words can be told apart"
        )
    _check_structure(matrix, name)
    largest, has_zeros = _check_entries(matrix, name)
    if has_zeros or not matrix.has_canonical_format:
        # A copy: these arrays may be the caller's.
        matrix = matrix.copy()
        if matrix.dtype.kind in "bu" or matrix.dtype.itemsize < 4:
            # Summed in their own dtype, repeated entries of few bits would wrap around.
            matrix = matrix.astype(np.int64 if matrix.dtype.kind in "biu" else np.float32)
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    return matrix, _batch_dtype(matrix.dtype, largest)


def _as_csr(counts: object, name: str) -> Any:
    """`counts` as a CSR array of its own dtype, without a copy where it is one."""
    if not scipy.sparse.issparse(counts) and hasattr(counts, "to_scipy_sparse"):
        counts = counts.to_scipy_sparse()
    if not scipy.sparse.issparse(counts):
        return scipy.sparse.csr_array(_dense(counts, name))
    sparse: Any = counts
    _check_kind(sparse, name)
    try:
        rows = sparse.tocsr()
        # A new object around the same arrays: SciPy notes on a matrix what it finds out about it.
        return scipy.sparse.csr_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)
    except ValueError as error:
        raise InvalidInputError(f"{name} is a damaged sparse matrix: {error}") from error


def _dense(counts: object, name: str) -> Any:
    """A dense matrix on the host, of a dtype that SciPy can make sparse."""
    try:
        dense = to_host(as_array(counts, name))
    except (TypeError, RuntimeError) as error:
        raise InvalidInputError(
            f"{name} is a {type(counts).__name__} that cannot be read as a dense array: {error}"
        ) from error
    _check_kind(dense, name)
    if dense.dtype == np.float16:
        return dense.astype(np.float32)
    return dense.astype(dense.dtype.newbyteorder("="), copy=False)


def _check_kind(array: Any, name: str) -> None:
    if array.ndim != 2:
        raise InvalidInputError(
            f"{name} must be a matrix (documents, words), got shape {tuple(array.shape)}"
        )
    if array.dtype.kind not in "biuf":
        fault = "complex" if array.dtype.kind == "c" else "not of numbers"
        raise InvalidInputError(
            f"{name} is {fault} (dtype {array.dtype}): counts are whole numbers, as the output of "
            "CountVectorizer"
        )


def _check_structure(matrix: Any, name: str) -> None:
    """Refuse indices that point outside, which compiled code would follow."""
    offsets, words = matrix.indptr, matrix.indices
    inside = not len(words) or (words.min() >= 0 and words.max() < matrix.shape[1])
    if offsets[0] != 0 or offsets[-1] > len(words) or (np.diff(offsets) < 0).any() or not inside:
        raise InvalidInputError(
            f"{name} is a damaged sparse matrix: its indices point outside its shape "
            f"{matrix.shape}; see its check_format()"
        )


def _check_entries(matrix: Any, name: str) -> tuple[float, bool]:
    """The largest entry and whether zeros are stored, after making sure that all are counts."""
    entries = matrix.data
    floating = entries.dtype.kind == "f"
    largest, has_zeros = 0.0, False
    for start in range(0, len(entries), _CHUNK):
        chunk = entries[start : start + _CHUNK]
        low, high = chunk.min(), chunk.max()
        # A NaN is its chunk's minimum and maximum, and fails every comparison.
        sound = low >= 0 and high < _TOO_MANY
        if sound and floating:
            sound = not (np.rint(chunk) != chunk).any()
        if not sound:
            _refuse_first(matrix, start, chunk, name)
        largest = max(largest, float(high))
        has_zeros = has_zeros or bool(low == 0)
    return largest, has_zeros


def _refuse_first(matrix: Any, start: int, chunk: Any, name: str) -> None:
    with np.errstate(invalid="ignore"):
        bad = ~((chunk >= 0) & (chunk < _TOO_MANY) & (np.rint(chunk) == chunk))
    entry = start + int(np.argmax(bad))
    row = int(np.searchsorted(matrix.indptr, entry, side="right")) - 1
    value = matrix.data[entry].item()
    where = f"{name} holds {value:.6g} at row {row}, column {int(matrix.indices[entry])}"
    if not np.isfinite(value):
        raise InvalidInputError(f"{where}: remove NaN and infinite entries, or make them 0")
    if value < 0:
        raise InvalidInputError(
            f"{where}: Negative values in data; a word cannot occur a negative number of times"
        )
    if value >= _TOO_MANY:
        raise InvalidInputError(f"{where}: counts must be below {_TOO_MANY:.0g}")
    raise InvalidInputError(
        f"{where}: moments need counts: give the output of CountVectorizer, not of TfidfVectorizer"
    )


def _batch_dtype(dtype: Any, largest: float) -> np.dtype[Any]:
    if dtype.kind == "f":
        return np.dtype(np.float64 if dtype.itemsize > 4 else np.float32)
    return np.dtype(np.float64 if largest >= LARGEST_SINGLE else np.float32)
