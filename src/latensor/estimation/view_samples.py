"""Views as estimators receive them: a list of arrays or sparse matrices of the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import is_array, to_host
from latensor.estimation.samples import read_samples
from latensor.exceptions import InvalidInputError

_KINDS = ("gaussian", "categorical")


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
    counts = [array.shape[0] for array in arrays]
    if len(set(counts)) > 1:
        raise InvalidInputError(
            f"the views have {', '.join(map(str, counts))} rows: all need the same samples, "
            "row by row"
        )
    if counts[0] == 0:
        raise InvalidInputError("the views hold 0 samples: at least one is required")
    return arrays


def _read_view(view: Any, name: str, size: int | None) -> Any:
    symbols = None if scipy.sparse.issparse(view) else _as_symbols(view)
    if symbols is not None:
        return _one_hot(symbols, name, size)
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


def _as_symbols(view: Any) -> Any:
    """One integer per sample as a host array, or None for a view of another kind."""
    raw = to_host(view) if is_array(view) else np.asarray(view)
    return raw if raw.ndim == 1 and raw.dtype.kind in "iu" else None


def _one_hot(symbols: Any, name: str, size: int | None) -> Any:
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
    for t, (kind, view) in enumerate(zip(found, views, strict=True)):
        values = view.data if scipy.sparse.issparse(view) else view
        if kind == "categorical" and values.size and values.min() < 0:
            raise InvalidInputError(
                f"X[{t}] is categorical but holds {values.min():.3g}: counts are not negative"
            )
    return found


def _is_one_hot(view: Any) -> bool:
    values = view.data if scipy.sparse.issparse(view) else view
    if not np.isin(values, (0, 1)).all():
        return False
    return bool((np.asarray(view.sum(axis=1)).ravel() == 1).all() and view.shape[1] > 1)
