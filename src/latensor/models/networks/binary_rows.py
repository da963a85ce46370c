"""Rows of zeros and ones: what noisy-or networks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class BinaryRows:
    """Rows of numbers as rows of zeros and ones.

    Attributes
    ----------
    threshold : float, above which an entry is on; None where all must be 0 or 1 already
    owner : str, the estimator that error messages name
    """

    threshold: float | None
    owner: str

    def __call__(self, rows: Any) -> Any:
        """The same rows, checked or compared with the threshold."""
        if scipy.sparse.issparse(rows):
            rows = scipy.sparse.csr_array(rows, copy=True)
            rows.sum_duplicates()
            if self.threshold is not None and self.threshold < 0:
                raise InvalidInputError(
                    f"binarize={self.threshold} turns the zeros of a sparse X on: give a threshold "
                    "of at least 0, or X.toarray()"
                )
            rows.data = self._entries(rows.data)
            rows.eliminate_zeros()
            return rows
        return self._entries(rows)

    def _entries(self, values: Any) -> Any:
        if self.threshold is not None:
            return (values > self.threshold).astype(values.dtype)
        wrong = (values != 0) & (values != 1)
        if wrong.any():
            first = values[tuple(np.argwhere(wrong)[0])]
            raise InvalidInputError(
                f"X must hold zeros and ones for {self.owner}, but {int(wrong.sum())} entries are "
                f"neither, the first is {first:g}: give binarize=t to count entries above t as on"
            )
        return values
