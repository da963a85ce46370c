"""Fitting a model to samples that are seen in several views: how these are read and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.utils.validation import check_is_fitted

from latensor.estimation.intervals import ResampledModel
from latensor.estimation.samples import counts_nothing, read_weights
from latensor.estimation.view_samples import kinds_of, read_views
from latensor.exceptions import InvalidInputError


class ViewModel(ResampledModel):
    """Base of the models of a list of views (n, d_t) of the same samples.

    To the hooks of `MomentModel` samples come as a list of host arrays or CSR matrices. A subclass
    has the parameter `kinds`, what every view is.
    """

    kinds: str | Sequence[str]
    _takes_sparse: ClassVar[bool] = True
    view_sizes_: tuple[int, ...]
    kinds_: tuple[str, ...]

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn the model from three or more views of the same samples.

        Parameters
        ----------
        X : list of views, each (n, d_t) numbers, dense or sparse, or (n,) symbols 0, 1, ...; or a
            source: a list of such lists, or an object whose `__iter__` yields them anew each
            time, gone over twice in constant memory
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice. With
            a source, pairs (views, sample_weight) stand in place of lists of views
        """
        fitted: Self = super().fit(X, y, sample_weight)
        return fitted

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add a batch of samples; the parameters are read off when they are first asked for.

        Parameters
        ----------
        X : list of views, as `fit` takes it; the first batch says what every view is
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice
        """
        fitted: Self = super().partial_fit(X, y, sample_weight)
        return fitted

    def _read(
        self, X: object, sample_weight: object, *, reset: bool, min_samples: int = 1
    ) -> tuple[Any, Any]:
        views = read_views(X, None if reset else self.view_sizes_)
        if views[0].shape[0] < min_samples:
            raise InvalidInputError(f"views hold no samples: at least {min_samples} are required")
        weights = read_weights(sample_weight, views[0])
        if reset:
            kinds = kinds_of(self.kinds, views)
            self.view_sizes_ = tuple(int(view.shape[1]) for view in views)
            self.n_features_in_ = sum(self.view_sizes_)
            self.kinds_ = kinds
        if weights is not None and not weights.all():
            views, weights = [view[weights > 0] for view in views], weights[weights > 0]
        return views, weights

    def _is_batch(self, value: Any) -> bool:
        # A batch is a list of views, and views have an axis for samples.
        views = value[0] if _is_weighted(value) else value
        return isinstance(views, list | tuple) and len(views) > 0 and hasattr(views[0], "ndim")

    def _read_batch(self, batch: Any, first: bool) -> tuple[Any, Any] | None:
        views, weights = batch if _is_weighted(batch) else (batch, None)
        if counts_nothing(weights):
            return None
        if isinstance(views, list | tuple) and all(
            tuple(getattr(view, "shape", (1,)))[:1] == (0,) for view in views
        ):
            return None
        return self._read(views, weights, reset=first)

    def _n_rows(self, samples: Any) -> int:
        return int(samples[0].shape[0])

    def _stacked(self, samples: list[Any]) -> Any:
        return [
            scipy.sparse.vstack(parts) if scipy.sparse.issparse(parts[0]) else np.concatenate(parts)
            for parts in zip(*samples, strict=True)
        ]

    def _begin(self, samples: Any) -> None:
        super()._begin(samples[0])

    def spawn(self) -> Self:
        """An empty model for a second worker, whose samples can be merged into this one exactly."""
        worker: Self = super().spawn()
        worker.view_sizes_, worker.kinds_ = self.view_sizes_, self.kinds_
        return worker

    def _as_rows(self, samples: Any) -> Any:
        return np.hstack(
            [view.toarray() if scipy.sparse.issparse(view) else view for view in samples]
        )

    def _from_rows(self, rows: Any) -> Any:
        return np.split(rows, np.cumsum(self.view_sizes_)[:-1], axis=1)

    def _read_new(self, X: object) -> tuple[Any, Any]:
        check_is_fitted(self)
        views = read_views(X, self.view_sizes_)
        return views, views


def _is_weighted(value: Any) -> bool:
    """Whether a batch is a pair of a list of views and weights."""
    pair = isinstance(value, list | tuple) and len(value) == 2
    return pair and isinstance(value[0], list | tuple)
