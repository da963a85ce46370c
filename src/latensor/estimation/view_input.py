"""Views as estimators receive them, in memory or in batches, as one source with the same checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import to_host
from latensor.estimation.row_input import numbered
from latensor.estimation.sample_source import batched_source, check_unmatched
from latensor.estimation.samples import counts_nothing, host_dtype, read_samples, read_weights
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch, Kind
from latensor.sources.passes import first_filled
from latensor.sources.shards import Source
from latensor.sources.views import (
    ViewReader,
    as_symbols,
    check_counts,
    check_rows,
    is_empty,
    is_view_batch,
    one_hot,
    split_weights,
)

_KINDS = ("gaussian", "categorical")


def view_source(estimator: Any, X: object, sample_weight: object, *, reset: bool) -> Source:
    """A list of views, a list of such batches or a re-iterable as a source.

    The estimator's `view_sizes_`, `kinds_`, `n_features_in_` and `_dtype` are set from the first
    batch (`reset`) or compared.

    Parameters
    ----------
    estimator : with the parameter `kinds`
    X, sample_weight : what the caller gave
    reset : bool, True where the estimator starts anew
    """

    def begin(batches: Any) -> Batch | None:
        check_unmatched(sample_weight, "pairs (views, sample_weight) in place of lists of views")
        return _read_first(estimator, batches) if reset else None

    def reader() -> ViewReader:
        known = estimator.view_sizes_, estimator.kinds_, estimator._sparse_views
        return ViewReader(*known, type(estimator).__name__)

    source = batched_source(Kind.VIEWS, X, is_view_batch, begin, reader)
    if source is not None:
        return source
    return Source.of(Kind.VIEWS, _read(estimator, X, sample_weight, reset=reset))


def _read_first(estimator: Any, batches: Any) -> Batch:
    """The first batch with a sample, which says what every view is."""

    def is_filled(given: Any) -> bool:
        views, weights = split_weights(given)
        return not is_empty(views) and not counts_nothing(weights)

    views, weights = split_weights(first_filled(batches, is_filled))
    return _read(estimator, views, weights, reset=True).owned()


def _read(estimator: Any, X: object, sample_weight: object, *, reset: bool) -> Batch:
    views = read_views(X, None if reset else estimator.view_sizes_)
    weights = read_weights(sample_weight, views[0])
    if reset:
        kinds = kinds_of(estimator.kinds, views)
        estimator.view_sizes_ = tuple(int(view.shape[1]) for view in views)
        estimator.n_features_in_ = sum(estimator.view_sizes_)
        estimator.kinds_ = kinds
        estimator._sparse_views = tuple(bool(scipy.sparse.issparse(view)) for view in views)
        estimator._dtype = host_dtype(views[0])
    else:
        check_counts(estimator.kinds_, views)
    # Batches of a stream are joined: a view is sparse in all of them or in none.
    parts = tuple(
        _as(view, sparse) for view, sparse in zip(views, estimator._sparse_views, strict=True)
    )
    return numbered(parts, np.ones(views[0].shape[0]) if weights is None else weights)


def _as(view: Any, sparse: bool) -> Any:
    if sparse:
        return scipy.sparse.csr_array(view)
    return view.toarray() if scipy.sparse.issparse(view) else view


def read_views(views: object, sizes: tuple[int, ...] | None) -> list[Any]:
    """Views (n, d_t) on the host, three or more, of the same samples.

    A view of one integer per sample is a view of symbols, read as one-hot rows.

    Parameters
    ----------
    views : list or tuple of arrays of any library, or SciPy sparse matrices
    sizes : the widths that a fitted model expects, None for a new one
    """
    if isinstance(views, str) or not isinstance(views, list | tuple):
        raise InvalidInputError(
            f"X must be a list of three or more views, got {type(views).__name__}: give "
            "[view, view, view], each (n, d_t)"
        )
    if len(views) < 3:
        raise InvalidInputError(f"X holds {len(views)} views: three or more are needed")
    if sizes is not None and len(views) != len(sizes):
        raise InvalidInputError(f"X holds {len(views)} views, but the model has {len(sizes)}")
    arrays = [
        _read_view(view, f"X[{t}]", None if sizes is None else sizes[t])
        for t, view in enumerate(views)
    ]
    check_rows(arrays)
    if arrays[0].shape[0] == 0:
        raise InvalidInputError("the views hold 0 samples: at least one is required")
    return arrays


def _read_view(view: Any, name: str, size: int | None) -> Any:
    symbols = as_symbols(view)
    if symbols is not None:
        return one_hot(symbols, name, size)
    if getattr(view, "ndim", 2) == 1:
        raise InvalidInputError(
            f"{name} must be real numbers (n, d) or integers (n,), got shape {view.shape}. Reshape "
            "your data: a view of one feature is (n, 1)"
        )
    array = read_samples(None, view, name=name, reset=False, target=True)
    array = scipy.sparse.csr_array(array) if scipy.sparse.issparse(array) else to_host(array)
    if size is not None and array.shape[1] != size:
        raise InvalidInputError(f"{name} has {array.shape[1]} features, expected {size}")
    return array


def kinds_of(kinds: str | Sequence[str], views: list[Any]) -> tuple[str, ...]:
    """What every view is: as given, or "categorical" where all rows are one-hot."""
    if isinstance(kinds, str):
        if kinds != "auto":
            raise InvalidInputError(
                f"kinds={kinds!r} must be 'auto', or 'gaussian' or 'categorical' per view"
            )
        return tuple("categorical" if _is_one_hot(view) else "gaussian" for view in views)
    found = tuple(kinds)
    if len(found) != len(views) or any(kind not in _KINDS for kind in found):
        raise InvalidInputError(
            f"kinds={kinds!r} must name 'gaussian' or 'categorical' for each of {len(views)} views"
        )
    check_counts(found, views)
    return found


def _is_one_hot(view: Any) -> bool:
    values = view.data if scipy.sparse.issparse(view) else view
    if not np.isin(values, (0, 1)).all():
        return False
    return bool((np.asarray(view.sum(axis=1)).ravel() == 1).all() and view.shape[1] > 1)
