"""Canonical correlation analysis: what two views of the same samples share (monograph 2.5)."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, library_name, to_host
from latensor.estimation import (
    Choice,
    Interval,
    check_parameters,
    describe_samples,
    host_dtype,
    project,
    read_samples,
    read_weights,
)
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.moments import CrossCovariance, CrossCovarianceAccumulator, centered_operator
from latensor.moments.batches import centered_rows, total_weight, weighted_mean
from latensor.whitening import (
    CanonicalDirections,
    canonical_directions,
    canonical_directions_of_samples,
)

# Up to here, features of both views together, `fit` keeps its sums, so that it can be merged.
_MAX_KEPT_FEATURES = 1000
# Up to here a stream keeps the covariances of both views together (0.5 GB).
_MAX_STREAM_FEATURES = 8192
# A sparse view with more features than the first number is whitened in at most the second.
_MAX_SPARSE_COVARIANCE = 2000
_SPARSE_DIRECTIONS = 500


@dataclass(frozen=True)
class CCACertificate:
    """How far the canonical directions can be trusted.

    `gap` is the difference between the last correlation kept and the next; `x_condition` and
    `y_condition` are the ratios of the largest to the smallest variance that was whitened in
    each view, and `x_rank` and `y_rank` their numbers. Where `saturated`, the ranks together
    exceed the degrees of freedom of the samples: some correlations are then one whatever the
    data, and a ridge or more samples are needed.
    """

    gap: float
    x_condition: float
    y_condition: float
    x_rank: int
    y_rank: int
    saturated: bool


class CCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Canonical correlation analysis of two views (monograph 2.5).

    Finds directions u_j and v_j with scores x'u_j and y'v_j of variance one, uncorrelated between
    different j, whose correlations are the largest possible, in falling order: whitens both views
    and takes the SVD of their cross-covariance. No iteration over components, no order to repair.

    Dense arrays of NumPy, PyTorch and JAX and SciPy sparse matrices are accepted, and sparse views
    are never made dense. Attributes are NumPy arrays; `transform` answers in the library of its
    argument.

    Parameters
    ----------
    n_components : int, at most the number of directions that vary in either view
    ridge : float, this multiple of the mean variance of a view is added to its variances before
        whitening. Without it whitening is restricted to the numerical rank of the view; with
        fewer samples than features the correlations are then one (`certificate_.saturated`).
    n_directions : int or None, whiten only this many leading principal directions of each view.
        None takes all that vary, but 500 of a sparse view with more than 2000 features.
    random_state : seed of the iterations that large views need

    Attributes
    ----------
    correlations_ : (n_components,), of the scores of the training samples, falling
    x_weights_, y_weights_ : (n_features, n_components), the directions u and v; the entry of
        largest magnitude in each u is positive. Also called `x_rotations_` and `y_rotations_`:
        no deflation comes between them.
    x_loadings_, y_loadings_ : (n_features, n_components), the covariance of features and scores
    x_mean_, y_mean_ : (n_features,)
    certificate_ : CCACertificate

    Notes
    -----
    `partial_fit` streams pairs of batches in one pass and `merge` joins two streams exactly, in
    memory for the covariances of both views (at most 8192 features together). `fit` can be
    continued or merged up to 1000 features together.
    """

    _parameters = {  # noqa: RUF012
        "n_components": (Interval(numbers.Integral, 1),),
        "ridge": (Interval(numbers.Real, 0, closed="left"),),
        "n_directions": (Interval(numbers.Integral, 1), Choice((None,))),
    }
    _n_targets: int
    _read_off_names = frozenset(
        {
            "correlations_",
            "x_weights_",
            "y_weights_",
            "x_loadings_",
            "y_loadings_",
            "x_mean_",
            "y_mean_",
            "certificate_",
        }
    )

    def __init__(
        self,
        n_components: int = 2,
        *,
        ridge: float = 0.0,
        n_directions: int | None = None,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.n_directions = n_directions
        self.random_state = random_state

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Find the canonical directions of two views of the same samples.

        Parameters
        ----------
        X : (n, d1) array, frame or SciPy sparse
        y : (n, d2) or (n,), the second view
        sample_weight : (n,) or None; a weight of 2 is the same as giving the pair twice
        """
        x, second, weights = self._read_pair(X, y, sample_weight, reset=True, min_samples=2)
        self.__dict__.pop("_stream", None)
        self._dtype = host_dtype(x)
        by_covariance = self._forms_covariance(x) and self._forms_covariance(second)
        keeps_sums = x.shape[1] + second.shape[1] <= _MAX_KEPT_FEATURES
        if by_covariance or keeps_sums:
            stream = CrossCovarianceAccumulator().update((x, second), weights)
            if keeps_sums:
                self._stream = stream
            if by_covariance and self._fit_moments(stream.finalize(host=True), x, second):
                return self
        self._fit_samples(x, second, weights)
        return self

    def _fit_moments(self, moments: CrossCovariance, x: Array, y: Array) -> bool:
        """Try the route by covariances; False where it loses digits that dense samples have."""
        sparse = scipy.sparse.issparse(x) or scipy.sparse.issparse(y)
        try:
            found = self._directions(moments)
        except RankDeficientError:
            if sparse:
                raise
            return False
        if not sparse and not _is_well_conditioned(found, (x.shape[1], y.shape[1]), self._dtype):
            return False
        self._read_off(found, moments)
        return True

    def _forms_covariance(self, view: Array) -> bool:
        if self.n_directions is not None:
            return False
        if scipy.sparse.issparse(view):
            return bool(view.shape[1] <= _MAX_SPARSE_COVARIANCE)
        return bool(view.shape[1] < view.shape[0])

    def _read_pair(
        self, X: object, y: object, sample_weight: object, *, reset: bool, min_samples: int = 1
    ) -> tuple[Array, Array, Any]:
        check_parameters(self, self._parameters)
        x = read_samples(self, X, reset=reset, min_samples=min_samples)
        second = read_samples(self, y, name="y", reset=reset, min_samples=1, target=True)
        if x.shape[0] != second.shape[0]:
            raise InvalidInputError(
                f"X has {x.shape[0]} samples but y has {second.shape[0]}: "
                "both views need the same samples, row by row"
            )
        if _library(x) != _library(second):
            raise InvalidInputError(
                f"X is {describe_samples(x)} but y is {describe_samples(second)}: "
                "give both views in one library"
            )
        if not reset and second.shape[1] != self._n_targets:
            raise InvalidInputError(
                f"y has {second.shape[1]} features, but CCA is expecting {self._n_targets}"
            )
        self._n_targets = second.shape[1]
        return x, second, read_weights(sample_weight, x)

    def _fit_samples(self, x: Array, y: Array, weights: Any) -> None:
        """The route without covariances: the SVD of each view."""
        means = [weighted_mean(view, weights) for view in (x, y)]
        weight = total_weight(x.shape[0], weights)
        rows: list[Any] = [
            centered_operator(view, mean, weights)
            if scipy.sparse.issparse(view)
            else centered_rows(view, mean, weights)
            for view, mean in zip((x, y), means, strict=True)
        ]
        limit = self.n_directions
        if limit is None and not (self._is_small(x) and self._is_small(y)):
            limit = _SPARSE_DIRECTIONS
        try:
            found = canonical_directions_of_samples(
                rows[0],
                rows[1],
                int(self.n_components),
                ridge=float(self.ridge),
                n_directions=limit,
                weight=weight,
                random_state=self.random_state,
            )
        except RankDeficientError as error:
            raise self._named(error) from error
        loadings = []
        for row, directions in zip(rows, found[:2], strict=True):
            adjoint = row.adjoint() if hasattr(row, "adjoint") and not _is_dense(row) else row.T
            loadings.append(to_host(adjoint @ (row @ directions)) / weight)
        self._store(found, means, loadings, weight)

    def _is_small(self, view: Array) -> bool:
        return not scipy.sparse.issparse(view) or min(view.shape) <= _MAX_SPARSE_COVARIANCE

    def _directions(self, moments: CrossCovariance) -> CanonicalDirections:
        try:
            return canonical_directions(
                moments.x_covariance,
                moments.y_covariance,
                moments.cross_covariance,
                int(self.n_components),
                ridge=float(self.ridge),
            )
        except RankDeficientError as error:
            raise self._named(error) from error

    def _named(self, error: RankDeficientError) -> RankDeficientError:
        return RankDeficientError(str(error).replace("rank=", "n_components="))

    def _read_off(self, found: CanonicalDirections, moments: CrossCovariance) -> None:
        loadings = [
            moments.x_covariance @ found.x_directions,
            moments.y_covariance @ found.y_directions,
        ]
        self._store(found, [moments.x_mean, moments.y_mean], loadings, moments.weight)

    def _store(
        self, found: CanonicalDirections, means: list[Any], loadings: list[Any], weight: float
    ) -> None:
        dtype = self._dtype
        host = [np.asarray(to_host(part)) for part in found[:5]]
        correlations, x_spectrum, y_spectrum = host[2:]
        self.x_weights_, self.y_weights_, self.x_loadings_, self.y_loadings_ = (
            np.ascontiguousarray(part, dtype=dtype) for part in (*host[:2], *loadings)
        )
        self.correlations_ = correlations.astype(dtype)
        self.x_mean_, self.y_mean_ = (np.asarray(mean, dtype=dtype) for mean in means)
        self.certificate_ = CCACertificate(
            gap=float(correlations[-1]) - found.next_correlation,
            x_condition=float(x_spectrum[0] / x_spectrum[-1]),
            y_condition=float(y_spectrum[0] / y_spectrum[-1]),
            x_rank=len(x_spectrum),
            y_rank=len(y_spectrum),
            saturated=bool(len(x_spectrum) + len(y_spectrum) > weight - 1),
        )

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add a batch of pairs; the directions are found when they are first asked for."""
        if "_stream" not in self.__dict__ and "x_weights_" in self.__dict__:
            raise InvalidInputError(
                "this CCA was fitted by fit on more features than it keeps sums for "
                f"({_MAX_KEPT_FEATURES}): start a new one and give all batches to partial_fit"
            )
        fresh = "_stream" not in self.__dict__
        x, second, weights = self._read_pair(X, y, sample_weight, reset=fresh)
        n_features = x.shape[1] + second.shape[1]
        if n_features > _MAX_STREAM_FEATURES:
            raise InvalidInputError(
                f"X and y have {n_features} features together, but partial_fit keeps their "
                f"covariances, for at most {_MAX_STREAM_FEATURES}: use fit, or reduce each view "
                "by PCA first"
            )
        if fresh:
            self._stream = CrossCovarianceAccumulator()
            self._dtype = host_dtype(x)
        self._stream.update((x, second), weights)
        self._forget()
        return self

    def merge(self, other: CCA) -> Self:
        """Add the pairs that another CCA has seen; exact, and `other` is unchanged."""
        for name, estimator in (("self", self), ("other", other)):
            if not isinstance(estimator, CCA) or "_stream" not in estimator.__dict__:
                raise InvalidInputError(
                    f"{name} holds no sums to merge: it must be a CCA fitted by partial_fit, or "
                    f"by fit on at most {_MAX_KEPT_FEATURES} features"
                )
        self._stream.merge(other._stream)
        self._forget()
        return self

    def _forget(self) -> None:
        for name in self._read_off_names:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        # Reading off costs two eigenproblems: a stream does it once asked, not once per batch.
        if name in type(self)._read_off_names and "_stream" in self.__dict__:
            moments = self._stream.finalize(host=True)
            self._read_off(self._directions(moments), moments)
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def x_rotations_(self) -> Any:
        """The directions of the first view: scores are (X - x_mean_) @ x_rotations_."""
        return self.x_weights_

    @property
    def y_rotations_(self) -> Any:
        """The directions of the second view: scores are (Y - y_mean_) @ y_rotations_."""
        return self.y_weights_

    @property
    def _n_features_out(self) -> int:
        return int(self.x_weights_.shape[1])

    def transform(self, X: object, y: object = None) -> Any:
        """Scores (n, n_components) of the first view, or of both as a pair where `y` is given."""
        check_is_fitted(self)
        x = read_samples(self, X, reset=False)
        x_scores = project(x, self.x_mean_, self.x_weights_)
        if y is None:
            return x_scores
        second = read_samples(self, y, name="y", reset=False, target=True)
        if second.shape[1] != self._n_targets:
            raise InvalidInputError(
                f"y has {second.shape[1]} features, but CCA is expecting {self._n_targets}"
            )
        return x_scores, project(second, self.y_mean_, self.y_weights_)

    def fit_transform(self, X: object, y: object = None) -> Any:
        """The scores of both views (a pair) after fitting to them."""
        return self.fit(X, y).transform(X, y)

    def score(self, X: object, y: object) -> float:
        """The mean, over components, of the correlation between the scores of the two views.

        On samples that were not used to fit, this says how much of the correlation is real.
        """
        pairs = self.transform(X, y)
        x, second = (np.asarray(to_host(scores), dtype=np.float64) for scores in pairs)
        x, second = x - x.mean(axis=0), second - second.mean(axis=0)
        norms = np.linalg.norm(x, axis=0) * np.linalg.norm(second, axis=0)
        products = (x * second).sum(axis=0)
        return float(np.mean(np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _library(view: Array) -> str:
    return "numpy" if scipy.sparse.issparse(view) else library_name(view)


def _is_dense(rows: Any) -> bool:
    return hasattr(rows, "__array__")


def _is_well_conditioned(found: CanonicalDirections, sizes: tuple[int, int], dtype: Any) -> bool:
    """Whether whitening by the covariance has kept the digits that the samples have."""
    limit = float(np.finfo(dtype).eps) ** 0.45
    spectra = (found.x_spectrum, found.y_spectrum)
    return all(
        len(spectrum) == size and spectrum[-1] > limit * spectrum[0]
        for spectrum, size in zip(spectra, sizes, strict=True)
    )
