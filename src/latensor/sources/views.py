"""Several views of the same samples in batches: what every batch of a source is checked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import is_array, to_host
from latensor.arrays.masked import unmasked
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import as_weights
from latensor.sources.rows import RowReader
from latensor.sources.shards import Parts


def is_weighted_views(value: Any) -> bool:
    """Whether a batch is a pair of a list of views and weights."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and isinstance(value[0], list | tuple)


def is_view_batch(value: Any) -> bool:
    """Whether a value is a list of views, which have an axis for samples, or one with weights."""
    views = value[0] if is_weighted_views(value) else value
    return isinstance(views, list | tuple) and len(views) > 0 and hasattr(views[0], "ndim")


def split_weights(batch: Any) -> tuple[Any, Any]:
    """The views of a batch and their weights, None where there are none."""
    if is_weighted_views(batch):
        return batch[0], batch[1]
    return batch, None


def is_empty(views: Any) -> bool:
    """Whether no view holds a sample."""
    return isinstance(views, list | tuple) and all(
        tuple(getattr(view, "shape", (1,)))[:1] == (0,) for view in views
    )


def check_rows(views: list[Any]) -> None:
    """Refuse views of different numbers of samples."""
    counts = [view.shape[0] for view in views]
    if len(set(counts)) > 1:
        raise InvalidInputError(
            f"the views have {', '.join(map(str, counts))} rows: all need the same samples, "
            "row by row"
        )


def check_counts(kinds: tuple[str, ...], views: list[Any]) -> None:
    """Refuse a categorical view that holds negative numbers."""
    for t, (kind, view) in enumerate(zip(kinds, views, strict=True)):
        values = view.data if scipy.sparse.issparse(view) else view
        if kind == "categorical" and values.size and values.min() < 0:
            raise InvalidInputError(
                f"X[{t}] is categorical but holds {values.min():.3g}: counts are not negative"
            )


def as_symbols(view: Any) -> Any:
    """One integer per sample as a host array, or None for a view of another kind."""
    if scipy.sparse.issparse(view):
        return None
    view = unmasked(view, "a view of X")
    raw = to_host(view) if is_array(view) else np.asarray(view)
    return raw if raw.ndim == 1 and raw.dtype.kind in "iu" else None


def one_hot(symbols: Any, name: str, size: int | None) -> Any:
    """Rows (n, size) of one 1 each, CSR; the width is that of the largest symbol by default."""
    largest = int(symbols.max()) if len(symbols) else -1
    width = largest + 1 if size is None else size
    if len(symbols) and (int(symbols.min()) < 0 or largest >= width):
        raise InvalidInputError(
            f"{name} holds symbols from {int(symbols.min())} to {largest}, expected 0 to "
            f"{max(width - 1, 0)}"
        )
    return scipy.sparse.csr_array(
        (np.ones(len(symbols)), (np.arange(len(symbols)), symbols)), shape=(len(symbols), width)
    )


@dataclass(frozen=True)
class ViewReader:
    """Batches of views, or pairs of views and weights, as parts on the host.

    Attributes
    ----------
    sizes : columns of every view
    kinds : "gaussian" or "categorical" per view
    sparse : whether every view is kept as CSR; all batches of a view are of one kind
    owner : str, the estimator that error messages name
    """

    sizes: tuple[int, ...]
    kinds: tuple[str, ...]
    sparse: tuple[bool, ...]
    owner: str

    def __call__(self, given: Any) -> Parts | None:
        views, weights = split_weights(given)
        if is_empty(views):
            return None
        if not isinstance(views, list | tuple) or len(views) != len(self.sizes):
            count = len(views) if isinstance(views, list | tuple) else type(views).__name__
            raise InvalidInputError(
                f"X holds {count} views, but {self.owner} is expecting {len(self.sizes)}"
            )
        parts = [self._view(t, view) for t, view in enumerate(views)]
        check_rows(parts)
        check_counts(self.kinds, parts)
        n_rows = parts[0].shape[0]
        known = as_weights(weights, n_rows, "sample_weight")
        return tuple(parts), np.ones(n_rows) if known is None else known

    def _view(self, number: int, view: Any) -> Any:
        name, size = f"X[{number}]", self.sizes[number]
        symbols = as_symbols(view)
        if symbols is not None:
            array = one_hot(symbols, name, size)
        else:
            array = RowReader(size, self.owner, keeps_sparse=True).read(view)
        if array.shape[1] != size:
            raise InvalidInputError(f"{name} has {array.shape[1]} features, expected {size}")
        if self.sparse[number]:
            return scipy.sparse.csr_array(array)
        return array.toarray() if scipy.sparse.issparse(array) else array
