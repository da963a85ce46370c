"""Principal component analysis: the best affine subspace of the data (monograph 2.3)."""

from __future__ import annotations

import numbers
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_array, check_is_fitted

from latensor.arrays import Array, RandomState, is_array, is_numpy
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, counted, finding
from latensor.diagnostics.sampled_subspace import level_of, measured_angle, subspace_angle
from latensor.estimation import in_library_of, project, read_samples
from latensor.estimation.base import LatentEstimator
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, REAL
from latensor.estimation.parameters import AT_LEAST_ONE, FLAG, Choice, Interval, parameter
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.matrices.pca_model import PCAModel, PCAState
from latensor.value_files import storable


@storable
@dataclass(frozen=True)
class PCACertificate(Findings):
    """How far the subspace of a PCA can be trusted.

    `gap` is (v_k - v_{k+1}) / v_1 of the variances v around the last direction kept, the measure
    of how firmly the subspace is determined (Davis and Kahan): noise of size e in the covariance
    turns the subspace by an angle of about e / (gap v_1). `angle` is that of sampling, in radians,
    as the rows spread along the directions; of a stream, if they are Gaussian. `condition` is
    v_1 / v_k, and `error` bounds what a stream of many features has dropped, as a fraction of v_1
    (zero: exact).
    """

    gap: float
    condition: float
    next_variance: float
    error: float
    n_components: int = 0
    explained: float = float("nan")
    angle: float = 0.0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        many = counted(self.n_components, "principal direction")
        return f"{many}, {100 * self.explained:.4g} % of the variance"

    @finding("Subspace")
    def _subspace(self) -> Said:
        text = (
            f"the next direction has {self.gap:.2g} of the largest variance less than the last "
            f"kept: sampling turns that one by about {np.degrees(self.angle):.2g} degrees."
        )
        level = level_of(self.angle)
        if level == BAD:
            text += " Where the cut falls is chance: keep more directions, or fewer."
        return level, text

    @finding("Dropped")
    def _dropped(self) -> Said | None:
        if not self.error > 0:
            return None
        level = GOOD if self.error < self.gap else CAUTION
        return level, f"a stream has dropped at most {self.error:.2g} of the largest variance."


@dataclass(eq=False, repr=False)
class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentEstimator):  # type: ignore[misc]
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
    components_ : (n_components_, n_features), rows orthonormal, by decreasing variance; the entry
        of largest magnitude in each is positive
    mean_ : (n_features,)
    explained_variance_, explained_variance_ratio_, singular_values_ : (n_components_,)
    noise_variance_ : float, the mean of the variances left out
    n_components_, n_samples_ : int
    certificate_ : PCACertificate
    selection_ : Selection, where n_components is "auto" or "gap"

    Notes
    -----
    `partial_fit` streams in one pass and `merge` joins two PCAs. Up to 4096 features the
    covariance is kept, and any split of the data gives the answer of `fit`. Beyond, the stream
    keeps the leading max(4 k, k + 100) directions (256 where k depends on the spectrum):
    exact while the data spans no more, and otherwise off by at most `certificate_.error`.
    After `fit`, a stream goes on from the components that were kept.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).standard_normal((500, 3)) * [3.0, 1.0, 0.1]
    >>> model = lt.PCA(2).fit(rows)
    >>> model.transform(rows).shape
    (500, 2)
    >>> bool(model.explained_variance_ratio_[0] > 0.8)
    True
    """

    n_components: int | float | str | None = parameter(
        None,
        AT_LEAST_ONE,
        Interval(numbers.Real, 0, 1, closed="neither"),
        Choice((None, "auto", "gap")),
    )
    _: KW_ONLY
    whiten: bool = parameter(False, FLAG)
    random_state: RandomState = None

    _takes_sparse = True
    _min_samples = 2
    _intervals_of = (
        {"components": (-1.0, 1.0), "mean": REAL, "explained_variance": NOT_NEGATIVE},
        "components",
    )
    _fitted_names = frozenset(
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

    def _model(self) -> PCAModel:
        return PCAModel(self.n_components, self.n_features_in_, self.random_state)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        found: PCAState = answer.state  # type: ignore[assignment]
        kept, total, dtype = found.variances[: found.rank], found.total, self._dtype
        rest = min(found.weight, self.n_features_in_) - found.rank
        left_out = max(total - float(kept.sum()), 0.0)
        largest = float(kept[0]) if kept[0] > 0 else 1.0
        ratio = kept / total if total > 0 else np.zeros(found.rank)
        sizes = (found.following, left_out, found.weight, self.n_features_in_)
        spread = answer.evidence.get("spread")
        angle = subspace_angle(kept, *sizes)
        if spread is not None:
            angle = measured_angle(np.asarray(kept, dtype=np.float64), *sizes, spread)
        chosen = {}
        if self.n_components in ("auto", "gap"):
            last, limits = float(kept[-1]), np.finfo(np.float64)
            drop = last / max(found.following, float(limits.eps) * last, float(limits.tiny))
            reason = f"the largest drop of the spectrum, by a factor of {drop:.3g}, comes after it"
            chosen["selection_"] = Selection(found.rank, reason, tests={"drop": drop})
        return {
            **chosen,
            "components_": np.ascontiguousarray(found.directions.T, dtype=dtype),
            "mean_": np.asarray(found.mean, dtype=dtype),
            "explained_variance_": kept.astype(dtype),
            "explained_variance_ratio_": ratio.astype(dtype),
            "singular_values_": np.sqrt(kept * (found.weight - 1)).astype(dtype),
            "noise_variance_": left_out / rest if rest > 0 else 0.0,
            "n_components_": found.rank,
            "n_samples_": round(found.weight),
            "certificate_": PCACertificate(
                gap=(float(kept[-1]) - found.following) / largest,
                condition=largest / float(kept[-1]) if kept[-1] > 0 else np.inf,
                next_variance=found.following,
                error=(found.error + frame.values.get("forgotten", 0.0)) / largest,
                n_components=found.rank,
                explained=float(ratio.sum()),
                angle=angle,
            ),
        }

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
        """The standard deviation of every score, infinite for directions without variance."""
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
