"""Fitting a latent variable model to rows of numbers, written once (fit, stream, merge).

A model says which moments it needs (`_new_moments`), how parameters are read off them
(`_read_off`) and, where it has a likelihood, how they are refined (`_polish`). All else is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, to_host
from latensor.arrays.threads import thread_count
from latensor.estimation.parameters import ALGORITHM as ALGORITHM
from latensor.estimation.parameters import N_COMPONENTS as N_COMPONENTS
from latensor.estimation.parameters import N_JOBS as N_JOBS
from latensor.estimation.parameters import REFINE as REFINE
from latensor.estimation.parameters import Range
from latensor.estimation.parameters import check_parameters as _check_parameters
from latensor.estimation.sample_source import SampleBatches, as_batches, is_weighted_matrix
from latensor.estimation.samples import counts_nothing, host_dtype, read_samples, read_weights
from latensor.exceptions import InvalidInputError
from latensor.moments.rows import RowSample


class MomentModel(BaseEstimator):  # type: ignore[misc]
    """Base of the models that are learnt from the moments of samples.

    A subclass stores its parameters in `__init__` (`n_components`, `algorithm`, `refine`,
    `random_state`, `n_jobs` and its own) and defines

    _parameters : the ranges of its parameters (`estimation.Choice`, `estimation.Interval`)
    _read_off_names : the fitted attributes that `_read_off` and `_polish` set
    _new_moments() : an empty accumulator for `n_features_in_` features, with
        update(samples, weights), merge(other) and spawn() (an empty one that shares whatever the
        first batches have fixed)
    _read_off(moments) : sets the fitted attributes
        (`_polish_follows` says whether a start for the polish is enough)
    _polish(samples, weights) : improves them on rows of numbers; not called for refine=0

    and, where `fit` does better with all samples at hand than by one pass in given coordinates,

    _gather(batches) : the accumulator that `fit` reads off, from pairs (samples, weights) that can
        be gone over again

    Samples reach these hooks as NumPy arrays (SciPy CSR or CSC where `_takes_sparse`) in the
    precision of the caller, weights as (n,) float64 arrays or None; rows of weight zero are gone.
    A stream keeps its accumulator and, unless refine is 0, a sample of at most `_row_limit` rows
    to polish on. Attributes of a stream are read off when they are first asked for.
    """

    _parameters: ClassVar[Mapping[str, Sequence[Range]]] = {}
    _read_off_names: ClassVar[frozenset[str]] = frozenset()
    _takes_sparse: ClassVar[bool] = False
    _min_samples: ClassVar[int] = 1
    _row_limit: ClassVar[int] = 20_000

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Learn the model from (n, d) samples.

        Parameters
        ----------
        X : (n, d) array or frame; or a source: a list of such batches, or an object whose
            `__iter__` yields them anew each time, gone over twice in constant memory
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice. With
            a source, pairs (batch, sample_weight) stand in place of batches

        Notes
        -----
        A source of few rows is read into memory and gives what its rows give. For a longer one the
        moments are those of all rows, and the polish runs on a sample of them.
        """
        self._check_parameters()
        batches = as_batches(X, self._is_batch)
        if batches is not None:
            return self._fit_source(batches, sample_weight)
        samples, weights = self._read(X, sample_weight, reset=True, min_samples=self._min_samples)
        return self._fit_samples(samples, weights)

    def _fit_samples(self, samples: Any, weights: Any) -> Self:
        self._begin(samples)
        self._moments = self._gather([(samples, weights)])
        self._finish(samples, weights)
        return self

    def _fit_source(self, given: Any, sample_weight: object) -> Self:
        if sample_weight is not None:
            raise InvalidInputError(
                "sample_weight cannot be matched to a source: give pairs (batch, sample_weight) "
                "in place of batches"
            )
        source = SampleBatches(given, self._read_batch, self._n_rows)
        held, complete = source.head(self._row_limit)
        if complete:
            return self._fit_samples(*self._joined(held))
        self._begin(held[0][0])
        del held
        if not self._refines():
            self._moments = self._gather(source)
            self._finish(None, None)
            return self
        rows = RowSample(self._row_limit)
        self._moments = self._gather(source.recorded(rows, self._as_rows))
        self._finish(self._from_rows(rows.samples), rows.weights)
        return self

    def _read_batch(self, batch: Any, first: bool) -> tuple[Any, Any] | None:
        samples, weights = batch if isinstance(batch, list | tuple) else (batch, None)
        if tuple(getattr(samples, "shape", (1,)))[:1] == (0,) or counts_nothing(weights):
            return None
        if scipy.sparse.issparse(samples) and not self._takes_sparse:
            # One batch is small, whatever the source.
            samples = samples.toarray()
        return self._read(samples, weights, reset=first)

    def _is_batch(self, value: Any) -> bool:
        return is_weighted_matrix(value)

    def _n_rows(self, samples: Any) -> int:
        return int(samples.shape[0])

    def _joined(self, batches: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        """Samples and weights of several batches as one."""
        samples = self._stacked([samples for samples, _ in batches])
        if all(weights is None for _, weights in batches):
            return samples, None
        parts = [np.ones(self._n_rows(s)) if w is None else w for s, w in batches]
        return samples, np.concatenate(parts)

    def _stacked(self, samples: list[Any]) -> Any:
        return np.concatenate(samples)

    def _finish(self, samples: Any, weights: Any) -> None:
        """Read the parameters off the moments, and polish them on rows, if there are any."""
        self._polish_follows = samples is not None and self._refines()
        self._read_off(self._moments)
        if self._polish_follows:
            self._polish(samples, weights)

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add a batch of samples; the parameters are read off when they are first asked for.

        After `fit` the stream goes on from the moments of the fit, without its rows: what is then
        read off is not polished.

        Parameters
        ----------
        X : (n, d) array or frame
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice
        """
        self._check_parameters()
        fresh = not self._has_started()
        samples, weights = self._read(X, sample_weight, reset=fresh)
        if fresh:
            self._begin(samples)
            self._moments = self._new_moments()
            if self._refines():
                self._rows = RowSample(self._row_limit)
        self._moments.update(samples, weights)
        if "_rows" in self.__dict__:
            self._rows.update(self._as_rows(samples), weights)
        self._forget()
        return self

    def merge(self, other: Self) -> Self:
        """Add the samples that another model of the same kind has seen; `other` is unchanged.

        Exact for models that share their coordinates: see `spawn`.
        """
        name = type(self).__name__
        for role, model in (("self", self), ("other", other)):
            if type(model) is not type(self) or not model._has_started():
                raise InvalidInputError(f"{role} must be a {name} that has seen samples")
        if other.n_features_in_ != self.n_features_in_:
            raise InvalidInputError(
                f"other has seen {other.n_features_in_} features, but self "
                f"{self.n_features_in_}: only models of the same features can be merged"
            )
        self._moments.merge(other._moments)
        if "_rows" in self.__dict__ and "_rows" in other.__dict__:
            self._rows.merge(other._rows)
        else:
            # Half of the rows would pull the polish towards one of the two models.
            self.__dict__.pop("_rows", None)
        self._forget()
        return self

    def spawn(self) -> Self:
        """An empty model for a second worker, whose samples can be merged into this one exactly.

        It has the same parameters and the same coordinates, fixed by what this model has seen.
        """
        if not self._has_started():
            raise InvalidInputError("self must have seen samples: call partial_fit or fit first")
        worker: Self = clone(self)
        worker.n_features_in_ = self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            worker.feature_names_in_ = self.feature_names_in_
        worker._dtype = self._dtype
        worker._moments = self._moments.spawn()
        if worker._refines():
            worker._rows = RowSample(worker._row_limit)
        return worker

    def _new_moments(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must say which moments it needs")

    def _read_off(self, moments: Any) -> None:
        raise NotImplementedError(f"{type(self).__name__} must say how parameters are read off")

    def _polish(self, samples: Any, weights: Any) -> None:
        """A model without a likelihood stays as it was read off."""

    def _as_rows(self, samples: Any) -> Any:
        """Samples as dense rows (n, d), of which a stream keeps some for the polish."""
        return samples

    def _from_rows(self, rows: Any) -> Any:
        """Samples, as `_polish` takes them, from such rows."""
        return rows

    def _gather(self, batches: Iterable[tuple[Any, Any]]) -> Any:
        moments = self._new_moments()
        for samples, weights in batches:
            moments.update(samples, weights)
        return moments

    def _check_parameters(self) -> None:
        _check_parameters(self, self._parameters)

    def _read(
        self, X: object, sample_weight: object, *, reset: bool, min_samples: int = 1
    ) -> tuple[Any, Any]:
        """Samples on the host and their weights, without the rows of weight zero."""
        array: Array = read_samples(self, X, reset=reset, min_samples=min_samples)
        weights = read_weights(sample_weight, array)
        samples = self._on_host(array)
        if weights is not None and not weights.all():
            samples, weights = samples[weights > 0], weights[weights > 0]
        return samples, weights

    def _on_host(self, array: Array) -> Any:
        if scipy.sparse.issparse(array):
            if not self._takes_sparse:
                raise InvalidInputError(
                    f"{type(self).__name__} needs dense data, X is sparse of shape {array.shape}: "
                    "give X.toarray()"
                )
            return array
        return to_host(array)

    def _read_new(self, X: object) -> tuple[Array, Any]:
        """Samples for a fitted model: as the caller gave them, and on the host."""
        check_is_fitted(self)
        array = read_samples(self, X, reset=False)
        return array, self._on_host(array)

    def _begin(self, samples: Any) -> None:
        """Start anew: forget what was fitted or streamed before."""
        self._forget()
        for name in ("_moments", "_rows", "_polish_follows"):
            self.__dict__.pop(name, None)
        self._dtype = host_dtype(samples)

    def _forget(self) -> None:
        for name in self._read_off_names:
            self.__dict__.pop(name, None)

    def _refines(self) -> bool:
        return bool(self.refine != 0)

    def _n_threads(self) -> int:
        return thread_count(self.n_jobs)

    def _has_started(self) -> bool:
        return "_moments" in self.__dict__

    def __sklearn_is_fitted__(self) -> bool:
        return self._has_started() or not self._read_off_names.isdisjoint(self.__dict__)

    def __getattr__(self, name: str) -> Any:
        # Reading off costs a decomposition: a stream does it once asked, not once per batch.
        if name in type(self)._read_off_names and "_moments" in self.__dict__:
            rows = self.__dict__.get("_rows")
            if rows is not None and rows.count:
                self._finish(self._from_rows(rows.samples), rows.weights)
            else:
                self._finish(None, None)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self._takes_sparse
        return tags


def component_order(weights: Any, vectors: Any) -> Any:
    """The fixed order (k,) of components: by falling weight, ties by their first large entry.

    Weights that agree to nine digits tie; then the component whose first entry above half of its
    largest magnitude comes earlier, or is larger at the same place, goes first.

    Parameters
    ----------
    weights : (k,) array
    vectors : (k, d) array, what the components are
    """
    weights = np.asarray(weights, dtype=np.float64)
    vectors = np.asarray(vectors, dtype=np.float64)
    magnitudes = np.abs(vectors)
    large = magnitudes > magnitudes.max(axis=1, keepdims=True) / 2
    first = np.argmax(large, axis=1)
    value = vectors[np.arange(len(vectors)), first]
    largest = float(np.abs(weights).max()) or 1.0
    rounded = np.round(weights / largest, 9)
    return np.lexsort((-value, first, -rounded))
