"""Canonical correlation analysis: what two views of the same samples share (monograph 2.5)."""

from __future__ import annotations

import numbers
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, library_name, to_host
from latensor.estimation import (
    describe_samples,
    host_dtype,
    project,
    read_samples,
)
from latensor.estimation.base import LatentEstimator
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import PROBABILITY, REAL
from latensor.estimation.parameters import AT_LEAST_ONE, Choice, Interval, parameter
from latensor.estimation.sample_source import is_matrix
from latensor.estimation.target_input import pair_source
from latensor.exceptions import InvalidInputError
from latensor.models.matrices.cca_certificate import CCACertificate
from latensor.models.matrices.cca_model import CCAModel, CCAState
from latensor.models.matrices.noise_correlation import largest_noise_correlation
from latensor.sources.pairs import PairReader
from latensor.sources.rows import RowReader
from latensor.sources.shards import Source

_BOTH_VIEWS = ("x_weights", "y_weights", "x_loadings", "y_loadings")


@dataclass(eq=False, repr=False)
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

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> shared = rng.standard_normal(500)
    >>> left = np.column_stack([shared + 0.1 * rng.standard_normal(500), rng.standard_normal(500)])
    >>> right = np.column_stack([rng.standard_normal(500), shared + 0.1 * rng.standard_normal(500)])
    >>> lt.CCA(1).fit(left, right).correlations_.round(2)
    array([0.99])
    """

    n_components: int = parameter(2, AT_LEAST_ONE)
    _: KW_ONLY
    ridge: float = parameter(0.0, Interval(numbers.Real, 0, closed="left"))
    n_directions: int | None = parameter(None, AT_LEAST_ONE, Choice((None,)))
    random_state: RandomState = None

    _takes_sparse = True
    _min_samples = 2
    _intervals_of = (
        {"correlations": PROBABILITY, **dict.fromkeys(_BOTH_VIEWS, REAL)},
        "correlations",
    )
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

        def reader() -> PairReader:
            sizes = (self.n_features_in_, self._n_targets)
            return PairReader(*(RowReader(size, "CCA", keeps_sparse=True) for size in sizes))

        return pair_source(self, (X, y, sample_weight), _is_pair, self._read_pair, reader, reset)

    def _read_pair(self, X: object, y: object, reset: bool) -> tuple[Array, Array]:
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
        self._n_targets: int = second.shape[1]
        if reset:
            self._dtype = host_dtype(x)
        return x, second

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        state: CCAState = answer.state  # type: ignore[assignment]
        found, dtype = state.found, self._dtype
        host = [np.asarray(to_host(part)) for part in found[:5]]
        correlations, x_spectrum, y_spectrum = host[2:]
        weights_and_loadings = [
            np.ascontiguousarray(part, dtype=dtype) for part in (*host[:2], *state.loadings)
        ]
        ranks = len(x_spectrum), len(y_spectrum)
        sizes = np.broadcast_to(
            answer.evidence.get("effective size", state.weight), correlations.shape
        )
        noise = np.full(len(sizes), np.nan)
        if self.ridge == 0:
            noise = np.array([largest_noise_correlation(*ranks, float(size)) for size in sizes])
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
                noise_correlation=float(noise.max()),
                n_above_noise=int((correlations > noise).sum()),
                effective_size=float(sizes.min()),
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
