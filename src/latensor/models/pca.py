"""Principal component analysis: the best affine subspace of the data (monograph 2.3)."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latensor.arrays import Array, RandomState, is_array, is_numpy
from latensor.estimation import (
    Choice,
    Interval,
    check_parameters,
    host_dtype,
    in_library_of,
    project,
    read_samples,
    read_weights,
)
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.pca_spectrum import (
    Spectrum,
    choose_components,
    spectrum_of_covariance,
    spectrum_of_samples,
    spectrum_of_sketch,
)
from latensor.moments import CovarianceAccumulator, CovarianceSketchAccumulator

# Up to here a stream keeps the exact covariance (128 MB); beyond, a sketch of leading directions.
_MAX_COVARIANCE_FEATURES = 4096


@dataclass(frozen=True)
class PCACertificate:
    """How far the subspace of a PCA can be trusted.

    `gap` is (v_k - v_{k+1}) / v_1 of the variances v around the last direction kept, the measure
    of how firmly the subspace is determined (Davis and Kahan): noise of size e in the covariance
    turns the subspace by an angle of about e / (gap v_1). `condition` is v_1 / v_k, and `error`
    bounds what a stream of many features has dropped, as a fraction of v_1 (zero: exact).
    """

    gap: float
    condition: float
    next_variance: float
    error: float


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Principal component analysis: the affine subspace closest to the data (monograph 2.3).

    With the mean m and the leading eigenvectors U (d, k) of the covariance, P = U U' and
    p = (I - P) m minimize the average of |x - (P x + p)|^2 over all projections of rank k.

    Dense arrays of NumPy, PyTorch and JAX and SciPy sparse matrices are accepted; sparse data is
    centred implicitly and never made dense. Attributes are NumPy arrays; `transform` answers in
    the library of its argument.

    Parameters
    ----------
    n_components : int, float in (0, 1), "gap" (the same as "auto") or None
        A number of directions; a fraction of the variance to explain; those before the largest
        relative drop of the spectrum; or all in which the data varies.
    whiten : bool, scale the scores to unit variance
    random_state : seed of the iterations that large data needs

    Attributes
    ----------
    components_ : (n_components_, n_features), rows orthonormal, by falling variance; the entry of
        largest magnitude in each is positive
    mean_ : (n_features,)
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,)
    noise_variance_ : float, the mean of the variances left out
    n_components_, n_samples_ : int
    certificate_ : PCACertificate

    Notes
    -----
    `partial_fit` streams in one pass and `merge` joins two PCAs. Up to 4096 features the
    covariance is kept, and any split of the data gives the answer of `fit`. Beyond, the stream
    keeps the leading max(4 k, k + 100) directions (256 where k depends on the spectrum):
    exact while the data spans no more, and otherwise off by at most `certificate_.error`.
    After `fit`, a stream goes on from the components that were kept.
    """

    _parameters = {  # noqa: RUF012
        "n_components": (
            Interval(numbers.Integral, 1),
            Interval(numbers.Real, 0, 1, closed="neither"),
            Choice((None, "auto", "gap")),
        ),
        "whiten": (Choice((True, False)),),
    }
    _read_off_names = frozenset(
        {
            "components_",
            "mean_",
            "explained_variance_",
            "explained_variance_ratio_",
            "singular_values_",
            "noise_variance_",
            "n_components_",
            "n_samples_",
            "certificate_",
        }
    )

    def __init__(
        self,
        n_components: int | float | str | None = None,
        *,
        whiten: bool = False,
        random_state: RandomState = None,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.random_state = random_state

    def fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Find the principal directions of (n, d) samples.

        Parameters
        ----------
        X : (n, d) array, frame or SciPy sparse
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice
        """
        check_parameters(self, self._parameters)
        samples = read_samples(self, X, reset=True, min_samples=2)
        weights = read_weights(sample_weight, samples)
        for name in ("_stream", "_forgotten"):
            self.__dict__.pop(name, None)
        self._dtype = host_dtype(samples)
        self._read_off(spectrum_of_samples(samples, weights, self.random_state))
        return self

    def _read_off(self, spectrum: Spectrum) -> None:
        rank, variances, directions = choose_components(
            spectrum, self.n_components, self.n_features_in_
        )
        kept, total, dtype = variances[:rank], spectrum.total, self._dtype
        rest = min(spectrum.weight, self.n_features_in_) - rank
        left_out = max(total - float(kept.sum()), 0.0)
        following = float(variances[rank]) if len(variances) > rank else 0.0
        largest = float(kept[0]) if kept[0] > 0 else 1.0
        ratio = kept / total if total > 0 else np.zeros(rank)
        self.components_ = np.ascontiguousarray(directions[:, :rank].T, dtype=dtype)
        self.mean_ = np.asarray(spectrum.mean, dtype=dtype)
        self.explained_variance_ = kept.astype(dtype)
        self.explained_variance_ratio_ = ratio.astype(dtype)
        self.singular_values_ = np.sqrt(kept * (spectrum.weight - 1)).astype(dtype)
        self.noise_variance_ = left_out / rest if rest > 0 else 0.0
        self.n_components_ = rank
        self.n_samples_ = round(spectrum.weight)
        self._weight = spectrum.weight
        self.certificate_ = PCACertificate(
            gap=(float(kept[-1]) - following) / largest,
            condition=largest / float(kept[-1]) if kept[-1] > 0 else np.inf,
            next_variance=following,
            error=(spectrum.error + self.__dict__.get("_forgotten", 0.0)) / largest,
        )

    def partial_fit(self, X: object, y: object = None, sample_weight: object = None) -> Self:
        """Add a batch of samples; the directions are found when they are first asked for.

        Parameters
        ----------
        X : (n, d) array, frame or SciPy sparse
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice
        """
        check_parameters(self, self._parameters)
        fresh = not self._has_started()
        samples = read_samples(self, X, reset=fresh)
        weights = read_weights(sample_weight, samples)
        if fresh:
            self._dtype = host_dtype(samples)
            self._stream = self._new_stream()
        else:
            self._resume()
        self._stream.update(samples, weights)
        self._forget()
        return self

    def merge(self, other: PCA) -> Self:
        """Add the samples that another PCA has seen; `other` is unchanged.

        Exact for PCAs fitted by `partial_fit` up to 4096 features, and for those fitted by `fit`
        that kept all components; otherwise `certificate_.error` bounds what is missing.
        """
        for name, estimator in (("self", self), ("other", other)):
            if not isinstance(estimator, PCA) or not estimator._has_started():
                raise InvalidInputError(f"{name} must be a PCA that has seen samples")
        if other.n_features_in_ != self.n_features_in_:
            raise InvalidInputError(
                f"other has seen {other.n_features_in_} features, but self "
                f"{self.n_features_in_}: only PCAs of the same features can be merged"
            )
        self._resume()
        other_stream = other.__dict__.get("_stream")
        forgotten = other.__dict__.get("_forgotten", 0.0)
        if other_stream is None:
            other_stream, forgotten = self._stream_of_fit(other)
        self._stream.merge(other_stream)
        self._forgotten = self.__dict__.get("_forgotten", 0.0) + forgotten
        self._forget()
        return self

    def _has_started(self) -> bool:
        return "_stream" in self.__dict__ or "components_" in self.__dict__

    def _new_stream(self) -> Any:
        if self.n_features_in_ <= _MAX_COVARIANCE_FEATURES:
            return CovarianceAccumulator()
        wanted = self.n_components
        if not isinstance(wanted, numbers.Integral):
            return CovarianceSketchAccumulator(256)
        return CovarianceSketchAccumulator(max(4 * int(wanted), int(wanted) + 100))

    def _resume(self) -> None:
        """Make a PCA fitted by `fit` ready to take more samples."""
        if "_stream" not in self.__dict__:
            self._stream, self._forgotten = self._stream_of_fit(self)

    def _stream_of_fit(self, fitted: PCA) -> tuple[Any, float]:
        """The sums that the components of a fitted PCA stand for, and the largest variance lost.

        What the components leave out is spread evenly over the other directions, as in
        probabilistic PCA, which keeps the total variance.
        """
        stream = self._new_stream()
        count, weight = fitted.n_samples_, fitted._weight
        degrees, next_variance = weight - 1, fitted.certificate_.next_variance
        factor = fitted.singular_values_.astype(np.float64)[:, None] * fitted.components_
        rest = min(weight, self.n_features_in_) - fitted.n_components_
        left_out = fitted.noise_variance_ * max(rest, 0) * degrees
        if isinstance(stream, CovarianceSketchAccumulator):
            trace = float((factor**2).sum()) + left_out
            stream.absorb(count, weight, fitted.mean_, factor, trace, next_variance * degrees)
            return stream, 0.0
        scatter = factor.T @ factor
        unexplained = self.n_features_in_ - fitted.n_components_
        if left_out > 0 and unexplained:
            residual = np.eye(self.n_features_in_) - fitted.projector_
            scatter += left_out / unexplained * residual
        stream.absorb(count, weight, fitted.mean_, scatter)
        return stream, next_variance

    def _forget(self) -> None:
        for name in self._read_off_names:
            self.__dict__.pop(name, None)

    def __getattr__(self, name: str) -> Any:
        # Reading off costs an eigenproblem: a stream does it once asked, not once per batch.
        if name in type(self)._read_off_names and "_stream" in self.__dict__:
            stream = self._stream
            if isinstance(stream, CovarianceAccumulator):
                self._read_off(spectrum_of_covariance(stream, self.random_state))
            else:
                self._read_off(spectrum_of_sketch(stream))
            return self.__dict__[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def projector_(self) -> Any:
        """P = U U' (d, d), formed when asked for: x is projected to P x + `offset_`."""
        check_is_fitted(self)
        return self.components_.T @ self.components_

    @property
    def offset_(self) -> Any:
        """The displacement p = (I - P) mean (d,): the point of the subspace next to the origin."""
        check_is_fitted(self)
        return self.mean_ - (self.components_ @ self.mean_) @ self.components_

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _scale(self) -> Any:
        """The deviation of every score, infinite for directions without variance."""
        variances = np.asarray(self.explained_variance_, dtype=np.float64)
        floor = np.finfo(self.components_.dtype).eps * self.n_features_in_ * variances[0]
        return np.where(variances > floor, np.sqrt(variances), np.inf)

    def transform(self, X: object) -> Array:
        """Scores (n, n_components_) of samples, in the library of `X`.

        A whitened direction in which the training data does not vary has the score zero.
        """
        check_is_fitted(self)
        samples = read_samples(self, X, reset=False)
        axes = self.components_.T.astype(np.float64)
        return project(samples, self.mean_, axes / self._scale() if self.whiten else axes)

    def inverse_transform(self, X: object) -> Array:
        """Points (n, d) of the affine subspace from their scores (n, n_components_)."""
        check_is_fitted(self)
        scores = _read_scores(X, self.n_components_)
        axes = self.components_.astype(np.float64)
        if self.whiten:
            scale = self._scale()
            axes = axes * np.where(np.isfinite(scale), scale, 0.0)[:, None]
        return scores @ in_library_of(axes, scores) + in_library_of(self.mean_, scores)

    def score_samples(self, X: object) -> Array:
        """The log-likelihood of every sample under probabilistic PCA.

        The model is a Gaussian whose covariance has the explained variances along the components
        and the noise variance in every other direction; no d x d matrix is formed.
        """
        check_is_fitted(self)
        samples = read_samples(self, X, reset=False)
        variances = self.explained_variance_.astype(np.float64)
        noise = float(self.noise_variance_)
        n_rest = self.n_features_in_ - self.n_components_
        if (n_rest and noise <= 0) or not (variances > 0).all():
            raise NotIdentifiableError(
                "the likelihood is unbounded: the model has a direction without variance; "
                "lower n_components or give more samples"
            )
        axes = self.components_.T.astype(np.float64)
        mean = self.mean_.astype(np.float64)
        if scipy.sparse.issparse(samples):
            squares = np.asarray(samples.multiply(samples).sum(axis=1)).ravel()
            distances = squares - 2 * np.asarray(samples @ mean) + mean @ mean
        else:
            centered = samples - in_library_of(mean, samples)
            distances = (centered * centered).sum(1)
        scores = project(samples, mean, axes)
        inside = scores * scores
        quadratic = inside @ in_library_of(1 / variances, inside)
        constant = self.n_features_in_ * np.log(2 * np.pi) + np.log(variances).sum()
        if n_rest:
            constant += n_rest * np.log(noise)
            quadratic = quadratic + (distances - inside.sum(1)) / noise
        return -0.5 * (quadratic + float(constant))

    def score(self, X: object, y: object = None) -> float:
        """The average log-likelihood of the samples under probabilistic PCA."""
        return float(self.score_samples(X).mean())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _read_scores(scores: object, n_components: int) -> Array:
    if is_array(scores) and not is_numpy(scores):
        array: Array = scores
    else:
        array = check_array(scores, dtype=(np.float64, np.float32))
    if array.ndim != 2 or array.shape[1] != n_components:
        raise InvalidInputError(
            f"scores must be (n, {n_components}), got shape {tuple(array.shape)}"
        )
    return array
