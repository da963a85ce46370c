"""Pairs of rows in batches: two views of the same samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.rows import RowReader
from latensor.sources.shards import Parts


@dataclass(frozen=True)
class PairReader:
    """Batches (X, y) or (X, y, weights) as parts on the host; y of one axis is one column."""

    first: RowReader
    second: RowReader

    def __call__(self, given: Any) -> Parts | None:
        x, y, *weights = given
        if getattr(y, "ndim", 2) == 1:
            y = np.asarray(y).reshape(-1, 1)
        left = self.first((x, weights[0] if weights else None))
        right = self.second((y, None))
        if left is None or right is None:
            return None
        if left[0][0].shape[0] != right[0][0].shape[0]:
            raise InvalidInputError(
                f"X has {left[0][0].shape[0]} samples but y has {right[0][0].shape[0]}: "
                "both need the same samples, row by row"
            )
        return (left[0][0], right[0][0]), left[1]
