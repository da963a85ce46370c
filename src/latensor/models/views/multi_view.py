"""Mixtures seen in three or more views that are independent given the component (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.diagnostics.mixture_certificate import MixtureCertificate, smallest_separation
from latensor.engines import LocalEngine
from latensor.estimation.base import LatentEstimator
from latensor.estimation.mixture_inference import MixtureInference
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import (
    NOT_NEGATIVE,
    PROBABILITY,
    REAL,
    ParameterInterval,
)
from latensor.estimation.parameters import (
    ALGORITHM,
    AT_LEAST_ZERO,
    N_COMPONENTS,
    RefinementParameters,
    parameter,
)
from latensor.estimation.row_input import numbered
from latensor.estimation.view_input import read_views, view_source
from latensor.models.views.family import ViewDensities, ViewState
from latensor.models.views.model import ViewMixtureModel, blended
from latensor.moments.batch import Kind
from latensor.sources.shards import Source
from latensor.whole_files import PathLike


@dataclass(eq=False, repr=False)
class MultiViewMixture(
    RefinementParameters,
    MixtureInference,
    DensityMixin,  # type: ignore[misc]
    LatentEstimator,
):
    """Clusters seen from several sides: conditional means of every view, and weights.

    Given the component the views are independent. Cross-covariances of three views turn them into
    one another, their third cross moment gives the components, and any further view follows
    linearly. A few steps of expectation maximization follow, in which the features of a view are
    independent too: Gaussian, or counts of symbols; k-means++ starts stand beside the moments.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    kinds : "auto", or "gaussian" or "categorical" per view; "auto" takes one-hot views, and
        views given as one integer per sample, as categorical
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, log-likelihood per sample that EM may leave to gain
    reg_covar : float, added to every Gaussian variance by EM; in the squared unit of a
        feature, at most that fraction of its variance
    max_iter : int, passes of EM over the sample in memory
    random_state : seed of the decomposition and of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), decreasing
    means_ : list of (k, d_t), the conditional means of every view; probabilities if categorical
    variances_ : list of (k, d_t)
    kinds_ : tuple of "gaussian" or "categorical"
    view_sizes_ : tuple of int, the widths d_t
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample; NaN for moments only
    certificate_ : MixtureCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_multi_view(1000, (4, 5, 6), 2, random_state=0)
    >>> model = lt.MultiViewMixture(2, random_state=0).fit(sample.views)
    >>> [means.shape for means in model.means_]
    [(2, 4), (2, 5), (2, 6)]
    """

    n_components: int | str = parameter(2, *N_COMPONENTS)
    _: KW_ONLY
    kinds: str | Sequence[str] = "auto"
    algorithm: str | Callable[..., Any] = parameter("auto", *ALGORITHM)
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)

    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "weights_",
            "means_",
            "variances_",
            "n_components_",
            "certificate_",
            "lower_bound_",
            "n_iter_",
            "converged_",
        }
    )
    _intervals_of = (
        {"weights": PROBABILITY, "means": REAL, "variances": NOT_NEGATIVE},
        "means",
    )
    _takes_sparse: ClassVar[bool] = True
    _input_names: ClassVar[tuple[str, ...]] = ("view_sizes_", "kinds_", "_sparse_views")
    # Samples on which EM runs in memory, at most.
    _row_limit: ClassVar[int] = 100_000

    def fit(
        self,
        X: object,
        y: object = None,
        sample_weight: object = None,
        *,
        callback: Callable[[str, int], object] | None = None,
        checkpoint: PathLike | None = None,
    ) -> Self:
        """Learn the model from three or more views of the same samples.

        Parameters
        ----------
        X : list of views, each (n, d_t) numbers, dense or sparse, or (n,) symbols 0, 1, ...; or a
            source: a list of such lists, or an object whose `__iter__` yields them anew each
            time, gone over in constant memory. The first batch says what every view is
        y : ignored
        sample_weight : (n,) or None; a weight of 2 is the same as giving the sample twice. With
            a source, pairs (views, sample_weight) stand in place of lists of views
        callback : called with the name and the number of every pass over the data
        checkpoint : folder in which a fit that is ended at any moment leaves what it has done, so
            that the same call goes on from there and ends with the same bits; needs an integer
            random_state
        """
        return super().fit(X, y, sample_weight, callback=callback, checkpoint=checkpoint)

    def intervals(
        self,
        X: object,
        y: object = None,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for all parameters, as `means_` and `variances_` per view.

        Parameters
        ----------
        X, y, level, n_resamples, n_groups : as for all models: a bootstrap of groups of samples
        """
        found = super().intervals(X, y, level=level, n_resamples=n_resamples, n_groups=n_groups)
        for name in ("means", "variances"):
            ends = (self._by_view(found[name].low), self._by_view(found[name].high))
            found[name] = ParameterInterval(*ends)
        return found

    def _by_view(self, ends: Any) -> list[Any]:
        """Ends of all features view by view; probabilities lie between 0 and 1."""
        views = np.split(ends, np.cumsum(self.view_sizes_)[:-1], axis=1)
        return [
            np.clip(view, *PROBABILITY) if kind == "categorical" else view
            for kind, view in zip(self.kinds_, views, strict=True)
        ]

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[list[Any], Any]:
        """Views drawn from the mixture, one symbol in each categorical one, and components (n,).

        Parameters
        ----------
        n_samples : int
        random_state : seed; by default that of the estimator
        """
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state if random_state is None else random_state)
        fractions = np.asarray(self.weights_, dtype=np.float64)
        counts = rng.multinomial(n_samples, fractions / fractions.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        views = []
        for kind, mean, variance in zip(self.kinds_, self.means_, self.variances_, strict=True):
            if kind == "gaussian":
                noise = rng.standard_normal((n_samples, mean.shape[1]))
                views.append((mean[labels] + noise * np.sqrt(variance[labels])).astype(mean.dtype))
            else:
                bounds = np.cumsum(mean, axis=1)[labels]
                symbols = (rng.random((n_samples, 1)) * bounds[:, -1:] > bounds).sum(axis=1)
                views.append(np.eye(mean.shape[1], dtype=mean.dtype)[symbols])
        return views, labels

    def _model(self) -> ViewMixtureModel:
        return ViewMixtureModel(
            self.n_components,
            self.kinds_,
            self.view_sizes_,
            self.reg_covar,
            self._row_limit,
            self.algorithm,
        )

    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        return view_source(self, X, sample_weight, reset=reset)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model = self._model()
        assert answer.state is not None
        state: ViewState = model.permuted(answer.state, model.order(frame, answer.state))
        kept = self._dtype
        return {
            "weights_": state.weights.astype(kept),
            "means_": [each.astype(kept) for each in state.means],
            "variances_": [each.astype(kept) for each in state.variances],
            "n_components_": len(state.weights),
            "lower_bound_": answer.log_likelihood,
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": self._certificate(answer, state),
        }

    def _certificate(self, answer: Answer[Any], state: ViewState) -> MixtureCertificate:
        found, unknown = answer.evidence["found"], float("nan")
        deviations = np.sqrt(np.maximum(np.hstack(state.variances), 1e-12))
        return MixtureCertificate(
            n_components=len(state.weights),
            n_features=self.n_features_in_,
            method="moments" if answer.statistics is None else f"{answer.start} + EM",
            off_diagonal=found.off_diagonal if found is not None else unknown,
            condition=found.condition if found is not None else float("inf"),
            gap=found.gap if found is not None else unknown,
            separation=smallest_separation(np.hstack(state.means), deviations),
            converged=answer.statistics is None or answer.converged,
            constant_features=answer.evidence["constant"],
        )

    def _n_parameters(self) -> int:
        free = [
            2 * width if kind == "gaussian" else width - 1
            for kind, width in zip(self.kinds_, self.view_sizes_, strict=True)
        ]
        count = int(self.n_components_)
        return int(count - 1 + count * sum(free))

    def _joint_logs(self, X: object) -> tuple[Any, Any]:
        check_is_fitted(self)
        views = read_views(X, self.view_sizes_)
        state = ViewState(
            np.asarray(self.weights_, dtype=np.float64),
            [np.asarray(each, dtype=np.float64) for each in self.means_],
            [np.asarray(each, dtype=np.float64) for each in self.variances_],
        )
        if self.n_iter_ == 0:
            state = blended(state, self.kinds_)
        centres = tuple(state.weights @ each for each in state.means)
        scales = tuple(
            np.sqrt(np.maximum(state.weights @ (v + (m - c) ** 2), 1e-100))
            for m, v, c in zip(state.means, state.variances, centres, strict=True)
        )
        floors = tuple(np.zeros(len(scale)) for scale in scales)
        densities = ViewDensities(self.kinds_, centres, scales, floors)
        natural = np.ascontiguousarray(densities.natural(state))
        units = Source.of(Kind.VIEWS, numbered(tuple(views), np.ones(views[0].shape[0])))
        engine = LocalEngine(self._n_jobs())
        found = engine.map(units, lambda b: densities.features(b.parts) @ natural)
        logs = np.concatenate(list(found))
        return logs, logs
