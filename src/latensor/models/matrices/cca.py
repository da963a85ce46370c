"""Canonical correlation analysis: what two views of the same samples share (monograph 2.5)."""

from __future__ import annotations

import numbers
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, library_name, to_host
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Statement,
    present,
)
from latensor.engines import engine_of
from latensor.estimation import (
    Choice,
    Interval,
    describe_samples,
    host_dtype,
    project,
    read_samples,
    read_weights,
)
from latensor.estimation.base import LatentEstimator
from latensor.estimation.learn import Answer, Frame, Model, Resumed
from latensor.estimation.row_input import numbered, on_host
from latensor.estimation.run import Run
from latensor.estimation.sample_source import as_batches, is_matrix
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.models.matrices.noise_correlation import largest_noise_correlation
from latensor.moments import CrossCovariance, centered_operator
from latensor.moments.batch import Kind
from latensor.moments.batches import centered_rows, total_weight, weighted_mean
from latensor.moments.row_sums import CrossCovarianceSums, mean_of
from latensor.moments.sums import Folded, Joint
from latensor.sources.pairs import PairReader
from latensor.sources.partitions import Partitioned
from latensor.sources.passes import first_filled
from latensor.sources.rows import RowReader
from latensor.sources.shards import Source
from latensor.value_files import storable
from latensor.whitening import (
    CanonicalDirections,
    canonical_directions,
    canonical_directions_of_samples,
)

# Whitening that magnifies more than this loses half of the digits.
_CONDITION = 1e6
# Up to here, features of both views together, `fit` keeps its sums, so that it can be merged.
_MAX_KEPT_FEATURES = 1000
# Up to here a stream keeps the covariances of both views together (0.5 GB).
_MAX_STREAM_FEATURES = 8192
# A sparse view with more features than the first number is whitened in at most the second.
_MAX_SPARSE_COVARIANCE = 2000
_SPARSE_DIRECTIONS = 500


@storable
@dataclass(frozen=True)
class CCACertificate(Findings):
    """How far the canonical directions can be trusted.

    `gap` is the difference between the last correlation kept and the next; `x_condition` and
    `y_condition` are the ratios of the largest to the smallest variance that was whitened in
    each view, and `x_rank` and `y_rank` their numbers. Where `saturated`, the ranks together
    exceed the degrees of freedom of the samples: some correlations are then one whatever the
    data, and a ridge or more samples are needed. `noise_correlation` is the largest correlation
    that two independent Gaussian views of these ranks reach in 99 of 100 samples of this size
    (Johnstone 2008), NaN with a ridge, and `n_above_noise` the number of correlations beyond it:
    the others may be overfitted.
    """

    gap: float
    x_condition: float
    y_condition: float
    x_rank: int
    y_rank: int
    saturated: bool
    noise_correlation: float
    n_above_noise: int
    n_components: int = 0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        noun = "pair" if self.n_components == 1 else "pairs"
        return f"{self.n_components} {noun} of canonical directions"

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return present(self._samples(), self._noise(), self._conditioning())

    def _samples(self) -> Statement | None:
        if not self.saturated:
            return None
        return Statement(
            "Samples",
            BAD,
            "there are more directions than samples can tell: some correlations are 1 whatever "
            "the data. Give more rows or fewer columns.",
        )

    def _noise(self) -> Statement | None:
        if self.saturated or not self.noise_correlation >= 0:
            return None
        text = (
            f"{self.n_above_noise} of {self.n_components} correlations exceed "
            f"{self.noise_correlation:.2f}, which independent views of these sizes reach once in "
            "a hundred samples."
        )
        if self.n_above_noise == self.n_components:
            return Statement("Overfitting", GOOD, text)
        level = BAD if self.n_above_noise == 0 else CAUTION
        return Statement("Overfitting", level, text + " Judge the others by `score` on new data.")

    def _conditioning(self) -> Statement:
        worst = max(self.x_condition, self.y_condition)
        level = GOOD if worst < _CONDITION else CAUTION
        text = f"variances within a view differ up to {worst:.2g} times."
        return Statement("Conditioning", level, text)


@storable
@dataclass(frozen=True, eq=False)
class CCAState:
    """Canonical directions, and what the samples say about both views."""

    found: CanonicalDirections
    means: tuple[Any, Any]
    loadings: tuple[Any, Any]
    weight: float


@dataclass(frozen=True)
class CCAModel(Model[CCAState]):
    """The settings of a CCA, and its directions from covariances or from the samples."""

    n_components: int
    ridge: float
    n_directions: int | None
    random_state: RandomState
    n_features: int
    n_targets: int
    kind = Kind.TARGETED

    def check_streaming(self) -> None:
        count = self.n_features + self.n_targets
        if count > _MAX_STREAM_FEATURES:
            raise InvalidInputError(
                f"X and y have {count} features together, but partial_fit keeps their "
                f"covariances, for at most {_MAX_STREAM_FEATURES}: use fit, or reduce each view "
                "by PCA first"
            )

    def survey(self, run: Run, streaming: bool) -> Frame:
        if run.source.original is None:
            self.check_streaming()
        first = run.source.head()
        centres = [mean_of(part, first.weights) for part in first.parts]
        return Frame({"x": centres[0], "y": centres[1]})

    def at_once(self, run: Run, frame: Frame) -> Answer[CCAState] | None:
        """Where covariances lose digits that the samples have, or are too large, the samples."""
        units = run.source.in_memory
        if run.source.original is None or units is None:
            return None
        x, y = run.source.original
        if len(units) < x.shape[0]:
            x, y = units.parts
        weights = None if (units.weights == 1).all() else units.weights
        by_covariance = self._forms_covariance(x) and self._forms_covariance(y)
        keeps_sums = self.n_features + self.n_targets <= _MAX_KEPT_FEATURES
        sums = None
        if by_covariance or keeps_sums:
            sums = run.fold("covariances", CrossCovarianceSums(frame["x"], frame["y"]))
        kept = {"sums": sums} if keeps_sums else {}
        if by_covariance and sums is not None:
            found = self._by_covariances(sums.finalize(), x, y)
            if found is not None:
                return Answer(found, kept)
        return Answer(self._by_samples(x, y, weights), kept)

    def _by_covariances(self, moments: CrossCovariance, x: Array, y: Array) -> CCAState | None:
        """None where covariances lose digits that dense samples have."""
        sparse = scipy.sparse.issparse(x) or scipy.sparse.issparse(y)
        try:
            found = self._directions(moments)
        except RankDeficientError:
            if sparse:
                raise
            return None
        sizes = (x.shape[1], y.shape[1])
        if not sparse and not _is_well_conditioned(found, sizes, host_dtype(x)):
            return None
        return _state_of(found, moments)

    def _forms_covariance(self, view: Array) -> bool:
        if self.n_directions is not None:
            return False
        if scipy.sparse.issparse(view):
            return bool(view.shape[1] <= _MAX_SPARSE_COVARIANCE)
        return bool(view.shape[1] < view.shape[0])

    def resumed(self, frame: Frame, answer: Answer[CCAState]) -> Resumed:
        if "sums" not in answer.evidence:
            raise InvalidInputError(
                "this CCA was fitted by fit on more features than it keeps sums for "
                f"({_MAX_KEPT_FEATURES}): start a new one and give all batches to partial_fit"
            )
        return Resumed({"covariances": answer.evidence["sums"]}, {})

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {"covariances": CrossCovarianceSums(frame["x"], frame["y"])}

    def read_off(self, frame: Frame, moments: Joint, rng: Any) -> Answer[CCAState]:
        known = moments["covariances"].finalize()
        return Answer(_state_of(self._directions(known), known))

    def _by_samples(self, x: Array, y: Array, weights: Any) -> CCAState:
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
        return CCAState(found, (means[0], means[1]), (loadings[0], loadings[1]), weight)

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

    @staticmethod
    def _named(error: RankDeficientError) -> RankDeficientError:
        return RankDeficientError(str(error).replace("rank=", "n_components="))


def _state_of(found: CanonicalDirections, moments: CrossCovariance) -> CCAState:
    loadings = (
        moments.x_covariance @ found.x_directions,
        moments.y_covariance @ found.y_directions,
    )
    return CCAState(found, (moments.x_mean, moments.y_mean), loadings, moments.weight)


class CCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, LatentEstimator):  # type: ignore[misc]
    """Canonical correlation analysis of two views (monograph 2.5).

    Finds directions u_j and v_j with scores x'u_j and y'v_j of variance one, uncorrelated between
    different j, whose correlations are the largest possible, in decreasing order: whitens both
    views and takes the SVD of their cross-covariance. No iteration over components, no order to
    repair.

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
    correlations_ : (n_components,), of the scores of the training samples, decreasing
    x_weights_, y_weights_ : (n_features, n_components), the directions u and v; the entry of
        largest magnitude in each u is positive. Also called `x_rotations_` and `y_rotations_`:
        no deflation comes between them.
    x_loadings_, y_loadings_ : (n_features, n_components), the covariance of features and scores
    x_mean_, y_mean_ : (n_features,)
    certificate_ : CCACertificate

    Notes
    -----
    `fit` also takes batches of pairs (X, y) or triples (X, y, sample_weight) in place of X.
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
    _takes_sparse = True
    _min_samples = 2
    _input_names: ClassVar[tuple[str, ...]] = ("_n_targets",)
    _fitted_names = frozenset(
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

    def _model(self) -> CCAModel:
        return CCAModel(
            int(self.n_components),
            float(self.ridge),
            self.n_directions,
            self.random_state,
            self.n_features_in_,
            self._n_targets,
        )

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        """Two views in memory, or batches of pairs (X, y) or triples (X, y, sample_weight)."""
        parts = X if isinstance(X, Partitioned) and y is None else None
        batches = as_batches(X, _is_pair) if y is None else None
        if parts is not None:
            batches = parts.heads(Kind.TARGETED)
        if batches is None:
            x, second, weights = self._read_pair(X, y, sample_weight, reset=reset)
            known = np.ones(x.shape[0]) if weights is None else weights
            units = numbered((on_host(self, x), on_host(self, second)), known)
            if reset:
                self._dtype = host_dtype(x)
            return replace(Source.of(Kind.TARGETED, units), original=(x, second))
        if sample_weight is not None:
            raise InvalidInputError(
                "sample_weight cannot be matched to a source: give triples (X, y, sample_weight)"
            )
        if reset:
            first = first_filled(batches, lambda pair: bool(pair[0].shape[0]))
            x, _, _ = self._read_pair(first[0], first[1], None, reset=True)
            self._dtype = host_dtype(x)
        readers = [
            RowReader(size, "CCA", keeps_sparse=True)
            for size in (self.n_features_in_, self._n_targets)
        ]
        reader = PairReader(readers[0], readers[1])
        if parts is not None:
            return parts.source(Kind.TARGETED, reader, engine_of(parts))
        copies = not isinstance(batches, list | tuple)
        return Source(Kind.TARGETED, (batches,), reader, copies=copies)

    def _read_pair(
        self, X: object, y: object, sample_weight: object, *, reset: bool
    ) -> tuple[Array, Array, Any]:
        x = read_samples(self, X, reset=reset)
        second = read_samples(self, y, name="y", reset=reset, target=True)
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

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        state: CCAState = answer.state  # type: ignore[assignment]
        found, dtype = state.found, self._dtype
        host = [np.asarray(to_host(part)) for part in found[:5]]
        correlations, x_spectrum, y_spectrum = host[2:]
        weights_and_loadings = [
            np.ascontiguousarray(part, dtype=dtype) for part in (*host[:2], *state.loadings)
        ]
        ranks = len(x_spectrum), len(y_spectrum)
        noise = float("nan")
        if self.ridge == 0:
            noise = largest_noise_correlation(*ranks, state.weight)
        return {
            "x_weights_": weights_and_loadings[0],
            "y_weights_": weights_and_loadings[1],
            "x_loadings_": weights_and_loadings[2],
            "y_loadings_": weights_and_loadings[3],
            "correlations_": correlations.astype(dtype),
            "x_mean_": np.asarray(state.means[0], dtype=dtype),
            "y_mean_": np.asarray(state.means[1], dtype=dtype),
            "certificate_": CCACertificate(
                gap=float(correlations[-1]) - found.next_correlation,
                x_condition=float(x_spectrum[0] / x_spectrum[-1]),
                y_condition=float(y_spectrum[0] / y_spectrum[-1]),
                x_rank=ranks[0],
                y_rank=ranks[1],
                saturated=bool(sum(ranks) > state.weight - 1),
                noise_correlation=noise,
                n_above_noise=int((correlations > noise).sum()),
                n_components=len(correlations),
            ),
        }

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
        tags.target_tags.required = True
        tags.target_tags.one_d_labels = False
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _is_pair(value: Any) -> bool:
    """Whether a value is a batch: two views of the same samples, and perhaps their weights."""
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        return False
    return is_matrix(value[0]) and hasattr(value[1], "ndim")


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
