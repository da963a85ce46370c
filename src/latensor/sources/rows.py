"""Rows of numbers in batches: what every batch of a source is checked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import describe, is_array, is_complex, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.masked import unmasked
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import as_weights
from latensor.sources.shards import Parts


@dataclass(frozen=True)
class RowReader:
    """Batches of rows, or pairs of rows and weights, as parts on the host.

    Attributes
    ----------
    n_features : int, columns of every batch
    owner : str, the estimator that error messages name
    names : columns of the first batch, where it was a frame
    keeps_sparse : bool, whether SciPy matrices stay sparse; one batch is small, whatever the source
    allows_missing : bool, whether NaN stands for an entry that was not observed
    accept : what the estimator makes of rows, or refuses them by; None for any numbers
    """

    n_features: int
    owner: str
    names: tuple[str, ...] | None = None
    keeps_sparse: bool = False
    allows_missing: bool = False
    accept: Callable[[Any], Any] | None = None

    def __call__(self, given: Any) -> Parts | None:
        rows, weights = given if isinstance(given, list | tuple) else (given, None)
        if tuple(getattr(rows, "shape", (1,)))[:1] == (0,):
            return None
        self._check_names(rows)
        array = self.read(rows)
        if self.accept is not None:
            array = self.accept(array)
        if array.shape[1] != self.n_features:
            raise InvalidInputError(
                f"X has {array.shape[1]} features, but {self.owner} is expecting "
                f"{self.n_features} features as input"
            )
        known = as_weights(weights, array.shape[0], "sample_weight")
        return (array,), np.ones(array.shape[0]) if known is None else known

    def read(self, rows: Any) -> Any:
        """Rows (n, d) on the host: floating NumPy array or SciPy CSR."""
        rows = unmasked(rows, "X", allows_missing=self.allows_missing)
        if scipy.sparse.issparse(rows):
            array = scipy.sparse.csr_array(rows) if self.keeps_sparse else rows.toarray()
            if array.dtype not in (np.float32, np.float64):
                array = array.astype(np.float64)
            refuse_nonfinite(array.data if self.keeps_sparse else array, "X")
            return array
        if not is_array(rows):
            rows = np.asarray(rows)
            if rows.dtype.kind not in "fiub":
                raise InvalidInputError(f"X must hold numbers, a batch is of dtype {rows.dtype}")
        array = resolve(X=rows)[1]["X"]
        if is_complex(array):
            raise InvalidInputError(f"Complex data not supported: X is {describe(array)}")
        host = np.asarray(to_host(array))
        if host.ndim != 2:
            raise InvalidInputError(f"Expected 2D array, a batch of X is {describe(array)}")
        if self.allows_missing:
            if np.isinf(host).any():
                raise InvalidInputError("X holds infinite entries: give NaN for what is missing")
        else:
            refuse_nonfinite(host, "X")
        return host

    def _check_names(self, rows: Any) -> None:
        columns = getattr(rows, "columns", None)
        if self.names is None or columns is None:
            return
        if tuple(map(str, columns)) != self.names:
            raise InvalidInputError(
                f"The feature names should match those that were passed to {self.owner} first: "
                f"got {list(columns)[:5]}, expected {list(self.names)[:5]}"
            )
