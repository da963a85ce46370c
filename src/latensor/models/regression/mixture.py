"""Mixtures of regressions: several linear or generalized linear models in one sample."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, generator
from latensor.diagnostics.evidence import component_worth
from latensor.estimation.base import LatentEstimator
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY, REAL
from latensor.estimation.parameters import (
    AT_LEAST_ONE,
    AT_LEAST_ZERO,
    N_COMPONENTS,
    Choice,
    RefinementParameters,
    parameter,
)
from latensor.estimation.samples import in_library_of
from latensor.estimation.target_input import read_pair, target_source
from latensor.exceptions import InvalidInputError
from latensor.models.regression.mixture_certificate import (
    RegressionMixtureCertificate,
    differs_in_noise_only,
    feature_shift,
    smallest_gain,
    smallest_logistic_gain,
    widest_noise,
)
from latensor.models.regression.mixture_family import (
    LINKS,
    RegressionMixtureFamily,
    RegressionMixtureState,
)
from latensor.models.regression.mixture_model import RegressionMixtureModel
from latensor.moments.batch import Batch
from latensor.sources.shards import Source


@dataclass(frozen=True)
class Targets:
    """Targets (n, 1) as a link allows them."""

    link: str

    def __call__(self, targets: Any) -> Any:
        """The same, checked."""
        if targets.shape[1] != 1:
            raise InvalidInputError(f"y must be one column, it has {targets.shape[1]}")
        if self.link == "logit" and not np.isin(targets, (0, 1)).all():
            raise InvalidInputError(
                "link='logit' needs y of zeros and ones, got "
                f"{targets[~np.isin(targets, (0, 1))][0]:g}: use link='identity' for numbers"
            )
        if self.link == "log" and ((targets < 0) | (targets != np.floor(targets))).any():
            wrong = targets[(targets < 0) | (targets != np.floor(targets))][0]
            raise InvalidInputError(
                f"link='log' needs counts as y, whole numbers of at least 0, got {wrong:g}: use "
                "link='identity' for numbers"
            )
        return targets


@dataclass(eq=False, repr=False)
class MixtureOfRegressions(RefinementParameters, LatentEstimator):
    """Several regressions in one sample: which holds for a row is hidden (monograph 4.5).

    With probability weights_j, y given x is Gaussian ("identity"), Bernoulli ("logit") or Poisson
    ("log") with linear predictor intercept_j + coef_j'x. For the identity link the coefficients
    span the leading eigenspace of E[y^2 (z z' - 1)], z being whitened x; EM starts from random
    rotations inside that subspace until two reach the best optimum, and goes on over all features.

    Parameters
    ----------
    n_components : int or "auto": the most that both halves of the samples find (`selection_`)
    link : "identity", "logit" (y of zeros and ones) or "log" (y of counts)
    n_init : int, starts of EM at most
    reg_covar : float, the least variance of the noise
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only, which
        assume Gaussian features
    tol : float, log-likelihood per sample that EM may leave to gain
    max_iter : int, passes of EM over the sample in memory
    random_state : seed of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    weights_ : (k,), decreasing
    coef_ : (k, d)
    intercept_ : (k,)
    variances_ : (k,), of the noise; 1 for links other than "identity"
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood of y given x per sample; NaN for moments only
    certificate_ : RegressionMixtureCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_regressions(1000, 3, 2, random_state=0)
    >>> model = lt.MixtureOfRegressions(2, random_state=0).fit(sample.X, sample.y)
    >>> model.coef_.shape, model.predict_proba(sample.X, sample.y).shape
    ((2, 3), (1000, 2))
    """

    n_components: int | str = parameter(2, *N_COMPONENTS)
    _: KW_ONLY
    link: str = parameter("identity", Choice(LINKS))
    n_init: int = parameter(10, AT_LEAST_ONE)
    reg_covar: float = parameter(1e-6, AT_LEAST_ZERO)

    _min_samples: ClassVar[int] = 2
    _for_labels: ClassVar[str] = "; code two labels as 0 and 1, and give link='logit'"
    # Rows of the sample on which EM runs, at most.
    _row_limit: ClassVar[int] = 100_000
    _input_names: ClassVar[tuple[str, ...]] = ("_n_targets",)
    _intervals_of = (
        {"weights": PROBABILITY, "coef": REAL, "intercept": REAL, "variances": NOT_NEGATIVE},
        "coef",
    )
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "weights_",
            "coef_",
            "intercept_",
            "variances_",
            "n_components_",
            "n_iter_",
            "converged_",
            "lower_bound_",
            "certificate_",
        }
    )

    # ------------------------------------------------------------------ answers
    def predict(self, X: object, *, by_component: bool = False) -> Array:
        """The mean (n,) of y over components, or that of every component (n, k).

        Parameters
        ----------
        X : (n, d)
        by_component : bool
        """
        array, rows = self._read_new(X)
        means = self._means(np.asarray(rows, dtype=np.float64))
        found = means if by_component else means @ np.asarray(self.weights_, dtype=np.float64)
        return in_library_of(found, array)

    def predict_proba(self, X: object, y: object = None) -> Array:
        """The probability (n, k) that each component holds for a row, given its target.

        Without targets those are the weights: a row alone says nothing about its component.
        """
        if y is None:
            array, rows = self._read_new(X)
            weights = np.asarray(self.weights_, dtype=np.float64)
            return in_library_of(np.tile(weights, (rows.shape[0], 1)), array)
        array, logs = self._joint_logs(X, y)
        return in_library_of(np.exp(logs - logsumexp(logs, axis=1, keepdims=True)), array)

    def score(self, X: object, y: object) -> float:
        """The average log-likelihood of the targets given their rows."""
        return float(logsumexp(self._joint_logs(X, y)[1], axis=1).mean())

    def bic(self, X: object, y: object) -> float:
        """Schwarz's criterion: -2 log-likelihood + parameters x log n; lower is better."""
        each = logsumexp(self._joint_logs(X, y)[1], axis=1)
        return float(-2 * each.sum() + self._n_parameters() * np.log(len(each)))

    def aic(self, X: object, y: object) -> float:
        """Akaike's criterion: -2 log-likelihood + 2 parameters; lower is better."""
        each = logsumexp(self._joint_logs(X, y)[1], axis=1)
        return float(-2 * each.sum() + 2 * self._n_parameters())

    def sample(self, X: object, random_state: RandomState = None) -> tuple[Any, Any]:
        """Targets (n,) drawn for given rows, and the component (n,) of each.

        Parameters
        ----------
        X : (n, d)
        random_state : seed; by default that of the estimator
        """
        from latensor.datasets.regressions import draw_targets

        _, rows = self._read_new(X)
        rng = generator(self.random_state if random_state is None else random_state)
        weights = np.asarray(self.weights_, dtype=np.float64)
        labels = rng.choice(len(weights), len(rows), p=weights / weights.sum())
        means = self._means(np.asarray(rows, dtype=np.float64))
        chosen = means[np.arange(len(rows)), labels]
        drawn = draw_targets(rng, chosen, np.sqrt(self.variances_)[labels], self.link)
        return drawn.astype(self._dtype), labels

    # ------------------------------------------------------------------ inside
    def _source(self, X: object, y: object, sample_weight: object, *, reset: bool) -> Source:
        return target_source(self, X, y, sample_weight, reset=reset)

    def _accepted_targets(self) -> Callable[[Any], Any]:
        return Targets(self.link)

    def _model(self) -> RegressionMixtureModel:
        return RegressionMixtureModel(
            self.n_components,
            self.link,
            self.n_features_in_,
            self._row_limit,
            self.n_init,
            self.reg_covar,
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model = self._model()
        assert answer.state is not None
        state: RegressionMixtureState = model.presented(frame, answer.state)
        found = {
            f"{name}_": np.ascontiguousarray(value, dtype=self._dtype)
            for name, value in model.parameters(frame, state).items()
        }
        return {
            **found,
            "n_components_": len(state.weights),
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "lower_bound_": answer.log_likelihood,
            "certificate_": self._certificate(answer, frame, state),
        }

    def _certificate(
        self, answer: Answer[Any], frame: Frame, state: RegressionMixtureState
    ) -> RegressionMixtureCertificate:
        k, count = len(state.weights), answer.evidence["n_samples"]
        gaps = state.coefficients[:, None] - state.coefficients[None]
        # In whitened coordinates the mean square of a difference of predictions is a sum.
        noise = np.sqrt(np.maximum(state.variances[:, None], state.variances[None]))
        apart = np.sqrt((gaps**2).sum(axis=2)) / noise + np.diag(np.full(k, np.inf))
        gain, free = np.inf, self.n_features_in_ + 3
        if self.link == "identity":
            gain = count * smallest_gain(state.weights, state.coefficients, state.variances)
        elif self.link == "logit":
            gain = count * smallest_logistic_gain(state.weights, state.coefficients)
            free -= 1
        return RegressionMixtureCertificate(
            n_components=k,
            n_features=self.n_features_in_,
            link=self.link,
            method="moments" if answer.statistics is None else f"{answer.start} + EM",
            rank=frame["rank"],
            samples_per_coefficient=float(
                count * state.weights.min() / state.coefficients.shape[1]
            ),
            separation=float(apart.min()),
            n_starts=answer.evidence.get("n_starts", 1),
            n_agreed=answer.evidence.get("n_agreed", 1),
            n_samples=count,
            constant_features=frame["constant"],
            n_seen=answer.evidence.get("n_seen"),
            spectrum=answer.evidence.get("spectrum", ()),
            gain=gain,
            asked=component_worth(free * k - 1, free * (k - 1) - 1, count),
            noise_only=self.link == "identity"
            and differs_in_noise_only(state.weights, state.coefficients, state.variances, count),
            widest=0.0
            if self.link != "identity"
            else widest_noise(state.weights, state.coefficients, state.variances),
            feature_shift=0.0
            if self.link != "identity" or answer.statistics is None
            else feature_shift(*(answer.statistics.seen()[s] for s in ("grams", "counts"))),
        )

    def _family(self) -> tuple[RegressionMixtureFamily, RegressionMixtureState]:
        """The family in the features themselves, and the fitted state there."""
        check_is_fitted(self)
        d = self.n_features_in_
        coefficients = np.column_stack([self.intercept_, self.coef_]).astype(np.float64)
        state = RegressionMixtureState(
            np.asarray(self.weights_, dtype=np.float64),
            coefficients,
            np.maximum(np.asarray(self.variances_, dtype=np.float64), 1e-300),
        )
        target = np.array([0.0, 1.0])
        return RegressionMixtureFamily(np.zeros(d), np.eye(d), self.link, 0.0, target), state

    def _means(self, rows: Any) -> Array:
        family, state = self._family()
        return family.means(rows @ state.coefficients[:, 1:].T + state.coefficients[:, 0])

    def _joint_logs(self, X: object, y: object) -> tuple[Any, Array]:
        check_is_fitted(self)
        array, targets = read_pair(self, X, y, reset=False)
        targets = self._accepted_targets()(targets)
        _, rows = self._read_new(X)
        family, state = self._family()
        count = len(targets)
        units = Batch((rows, targets), np.ones(count), np.arange(count, dtype=np.uint64))
        return array, family.log_density(state, family.prepare(units))

    def _n_parameters(self) -> int:
        k = self.n_components_
        noise = k if self.link == "identity" else 0
        return int(k - 1 + k * (self.n_features_in_ + 1) + noise)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
