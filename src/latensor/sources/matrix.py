"""Documents in memory: a matrix of counts cut into batches of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.sources.counts import batch_of, read_counts
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.vocabulary import check_vocabulary


class MatrixSource(KnownDocuments):
    """The rows of a matrix of word counts, as batches.

    The entries are checked once. A canonical CSR matrix is not copied: its batches are views of
    the caller's arrays where their dtype is float32 or float64. Other matrices are converted
    once.

    Parameters
    ----------
    counts : (n_documents, n_features) SciPy sparse matrix or array of any format, array of NumPy,
        PyTorch or JAX, data frame, or nested lists, of whole numbers of at least 0
    batch_size : int, rows of a batch
    vocabulary : words in the order of the columns, or None; a frame's columns have names already
    name : str, what error messages call the matrix

    Raises
    ------
    InvalidInputError, for NaN, infinite, negative or fractional entries, with the position of
    the first one.
    """

    def __init__(
        self,
        counts: object,
        batch_size: int = 4096,
        vocabulary: object = None,
        *,
        name: str = "counts",
    ) -> None:
        self.batch_size = check_positive_int(batch_size, "batch_size")
        self._matrix, self._dtype = read_counts(counts, name)
        self._vocabulary = (
            column_names(counts)
            if vocabulary is None
            else check_vocabulary(vocabulary, self.n_features)
        )

    @property
    def n_features(self) -> int:
        """The number of columns."""
        return int(self._matrix.shape[1])

    @property
    def n_documents(self) -> int:
        """The number of rows."""
        return int(self._matrix.shape[0])

    def __iter__(self) -> Iterator[Any]:
        """Batches of at most `batch_size` rows."""
        for first in range(0, self.n_documents, self.batch_size):
            yield self.rows(first, first + self.batch_size)

    def rows(self, first: int, end: int) -> Any:
        """Documents `first` to `end` (exclusive) as one batch."""
        offsets = self._matrix.indptr[first : end + 1]
        entries = slice(int(offsets[0]), int(offsets[-1]))
        return batch_of(
            self._matrix.data[entries].astype(self._dtype, copy=False),
            self._matrix.indices[entries].astype(np.int32, copy=False),
            offsets - offsets[0],
            self.n_features,
        )


def column_names(counts: object) -> list[str] | None:
    """The column names of a data frame, if they are names and tell the columns apart."""
    columns = getattr(counts, "columns", None)
    if columns is None:
        return None
    names = list(columns)
    if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
        return names
    return None
