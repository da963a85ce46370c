"""Rows as estimators receive them, in memory or in batches, as one source with the same checks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, to_host
from latensor.estimation.sample_source import (
    batched_source,
    check_unmatched,
    is_weighted_matrix,
)
from latensor.estimation.samples import counts_nothing, host_dtype, read_samples, read_weights
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind, in_row_order
from latensor.sources.passes import first_filled
from latensor.sources.rows import RowReader
from latensor.sources.shards import Source


def row_source(
    estimator: Any, X: object, sample_weight: object, *, reset: bool, kind: Kind = Kind.ROWS
) -> Source:
    """An array, a frame, a list of batches or a re-iterable as a source.

    The estimator's `n_features_in_`, `feature_names_in_` and `_dtype` are set from the first
    batch (`reset`) or compared.

    Parameters
    ----------
    estimator : with `_takes_sparse`, `_allows_missing` and `_accepted_rows`
    X, sample_weight : what the caller gave
    reset : bool, True where the estimator starts anew
    kind : Kind.ROWS, or one whose first part is rows
    """

    def begin(batches: Any) -> Batch | None:
        check_unmatched(sample_weight)
        return _read_first(estimator, batches) if reset else None

    source = batched_source(kind, X, is_weighted_matrix, begin, lambda: _reader(estimator))
    if source is not None:
        return source
    given, array, weights = read_rows(estimator, X, sample_weight, reset=reset)
    return replace(Source.of(kind, numbered((array,), weights)), original=given)


def _reader(estimator: Any) -> RowReader:
    names = getattr(estimator, "feature_names_in_", None)
    return RowReader(
        estimator.n_features_in_,
        type(estimator).__name__,
        None if names is None else tuple(map(str, names)),
        estimator._takes_sparse,
        estimator._allows_missing,
        estimator._accepted_rows(),
    )


def _read_first(estimator: Any, batches: Any) -> Batch:
    """The first batch with a sample, which fixes names, number and precision of the features."""

    def parts(given: Any) -> Any:
        return given if isinstance(given, list | tuple) else (given, None)

    def is_filled(given: Any) -> bool:
        rows, weights = parts(given)
        is_empty = tuple(getattr(rows, "shape", (1,)))[:1] == (0,)
        return not is_empty and not counts_nothing(weights)

    rows, weights = parts(first_filled(batches, is_filled))
    if scipy.sparse.issparse(rows) and not estimator._takes_sparse:
        rows = rows.toarray()
    _, array, known = read_rows(estimator, rows, weights, reset=True)
    return numbered((array,), known).owned()


def read_rows(
    estimator: Any,
    X: object,
    sample_weight: object,
    *,
    reset: bool,
) -> tuple[Array, Any, Any]:
    """Rows in the caller's library and on the host, and their weights (n,)."""
    array = read_samples(estimator, X, reset=reset)
    weights = read_weights(sample_weight, array)
    if reset:
        estimator._dtype = host_dtype(array)
    known = np.ones(array.shape[0]) if weights is None else weights
    return array, on_host(estimator, array), known


def on_host(estimator: Any, array: Array) -> Any:
    """Rows as accumulators take them: NumPy, or CSR where the estimator takes sparse rows."""
    accept = estimator._accepted_rows()
    if not scipy.sparse.issparse(array):
        host = np.asarray(to_host(array))
        return host if accept is None else accept(host)
    if not estimator._takes_sparse:
        raise InvalidInputError(
            f"{type(estimator).__name__} needs dense data, X is sparse of shape {array.shape}: "
            "give X.toarray()"
        )
    rows = scipy.sparse.csr_array(array)
    return rows if accept is None else accept(rows)


def read_new(estimator: Any, X: object) -> tuple[Array, Any]:
    """Rows for a fitted estimator: as the caller gave them, and on the host."""
    array = read_samples(estimator, X, reset=False)
    return array, on_host(estimator, array)


def numbered(parts: tuple[Any, ...], weights: Any) -> Batch:
    """Units in memory, numbered from zero on; those of weight zero are left out."""
    parts = tuple(in_row_order(part) for part in parts)
    batch = Batch(parts, weights, np.arange(len(weights), dtype=np.uint64))
    return batch if weights.all() else batch.take(np.flatnonzero(weights > 0))
