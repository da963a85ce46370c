"""Noisy-or networks: hidden causes that turn binary features on (monograph 4.4)."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, check_positive_int, generator
from latensor.engines import LocalEngine
from latensor.estimation.base import LatentEstimator
from latensor.estimation.mixture_inference import DensityInference
from latensor.estimation.model import Answer, Frame
from latensor.estimation.parameter_intervals import PROBABILITY
from latensor.estimation.parameters import (
    ALGORITHM,
    AT_LEAST_ZERO,
    N_COMPONENTS,
    Choice,
    Interval,
    RefinementParameters,
    parameter,
)
from latensor.estimation.samples import in_library_of
from latensor.models.networks.bif import write_bif
from latensor.models.networks.binary_rows import BinaryRows
from latensor.models.networks.noisy_or_certificate import NoisyOrCertificate
from latensor.models.networks.noisy_or_family import NoisyOrFamily
from latensor.models.networks.noisy_or_model import NoisyOrModel
from latensor.models.networks.noisy_or_read_off import CERTAIN, NoisyOrState
from latensor.moments.batch import Batch, Kind
from latensor.sources.shards import Source
from latensor.whole_files import PathLike


@dataclass(eq=False, repr=False)
class NoisyOrNetwork(
    RefinementParameters,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    DensityInference,
    DensityMixin,  # type: ignore[misc]
    LatentEstimator,
):
    """Hidden causes of binary features: which disease turns which symptoms on (monograph 4.4).

    Causes are independent, cause j is active with probability prior_j. An active cause turns
    feature i on with probability F_ji, whatever else happens; a leak does so without a cause. The
    logs of how often features are off together are sums over causes: pairs and triples of them
    give all parameters by a tensor decomposition, without restarts, and EM goes on from there over
    all states of the causes whose posterior counts.

    Parameters
    ----------
    n_components : int or "auto": as many causes as the pointwise mutual information of the pairs
        shows above its noise
    binarize : None for data of zeros and ones, or the threshold above which an entry is on
    n_init : int, random starts of EM that stand beside the moments where those are doubtful
    algorithm : "auto" (joint diagonalization), or one of `latensor.decomposition`
    refine : "auto", or the number of passes of expectation maximization; 0 for moments only
    tol : float, log-likelihood per sample that EM may leave to gain
    max_iter : int, passes of EM over the sample in memory
    random_state : seed of the decomposition and of the starts
    n_jobs : int or None, threads; changes nothing but the time

    Attributes
    ----------
    components_ : (k, d), the probability that a cause alone turns a feature on
    prior_ : (k,), decreasing
    leak_ : (d,), the probability that a feature is on without a cause
    n_components_, n_iter_ : int
    converged_ : bool
    lower_bound_ : float, log-likelihood per sample; NaN for moments only
    certificate_ : NoisyOrCertificate

    Examples
    --------
    >>> import latensor as lt
    >>> sample = lt.datasets.make_noisy_or(5000, 20, 3, random_state=0)
    >>> model = lt.NoisyOrNetwork(3, random_state=0).fit(sample.samples)
    >>> model.components_.shape, model.prior_.shape, model.leak_.shape
    ((3, 20), (3,), (20,))
    """

    n_components: int | str = parameter(2, *N_COMPONENTS)
    _: KW_ONLY
    binarize: float | None = parameter(None, Choice((None,)), Interval(numbers.Real, -np.inf))
    n_init: int = parameter(4, Interval(numbers.Integral, 0))
    algorithm: str | Callable[..., Any] = parameter("auto", *ALGORITHM)
    tol: float = parameter(1e-5, AT_LEAST_ZERO)

    _takes_sparse: ClassVar[bool] = True
    _min_samples: ClassVar[int] = 2
    # Rows of the sample on which EM runs, at most.
    _row_limit: ClassVar[int] = 100_000
    _intervals_of = (
        {"prior": PROBABILITY, "components": PROBABILITY, "leak": PROBABILITY},
        "components",
    )
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "components_",
            "prior_",
            "leak_",
            "n_components_",
            "n_iter_",
            "converged_",
            "lower_bound_",
            "certificate_",
        }
    )

    # ------------------------------------------------------------------ answers
    def predict_proba(self, X: object) -> Array:
        """The probability (n, k) that each cause is active, given the sample."""
        array, found = self._answers(X)
        return in_library_of(np.concatenate([proba for proba, _ in found]), array)

    def transform(self, X: object) -> Array:
        """The probability (n, k) that each cause is active: `predict_proba`."""
        return self.predict_proba(X)

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Any, Any]:
        """Samples (n, d) drawn from the network and the active causes (n, k) of each.

        Parameters
        ----------
        n_samples : int
        random_state : seed; by default that of the estimator
        """
        from latensor.datasets.networks import draw_noisy_or

        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state if random_state is None else random_state)
        state = self._state()
        drawn, causes = draw_noisy_or(rng, n_samples, state.prior, state.components, state.leak)
        return drawn.astype(self._dtype), causes

    def to_bif(
        self,
        path: PathLike,
        *,
        feature_names: Any = None,
        cause_names: Any = None,
        threshold: float = 0.01,
    ) -> Any:
        """Write the network as a BIF file, the format that programs for Bayesian networks read.

        Parameters
        ----------
        path : file to write
        feature_names, cause_names : (d,) and (k,) names; those of a frame, and "cause0", ... by
            default
        threshold : float, causes that turn a feature on with less are no parents of it: tables
            have 2^parents rows
        """
        check_is_fitted(self)
        names = feature_names
        if names is None:
            names = getattr(self, "feature_names_in_", None)
        return write_bif(path, self._state(), names, cause_names, threshold)

    # ------------------------------------------------------------------ inside
    def _model(self) -> NoisyOrModel:
        return NoisyOrModel(
            self.n_components, self.n_features_in_, self._row_limit, self.n_init, self.algorithm
        )

    def _accepted_rows(self) -> BinaryRows:
        return BinaryRows(self.binarize, type(self).__name__)

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        assert answer.state is not None
        state: NoisyOrState = self._model().presented(frame, answer.state)
        kept = self._dtype
        return {
            "components_": np.ascontiguousarray(state.components, dtype=kept),
            "prior_": state.prior.astype(kept),
            "leak_": state.leak.astype(kept),
            "n_components_": len(state.prior),
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "lower_bound_": answer.log_likelihood,
            "certificate_": self._certificate(answer, state),
        }

    def _certificate(self, answer: Answer[Any], state: NoisyOrState) -> NoisyOrCertificate:
        found, unknown = answer.evidence["found"], float("nan")
        moments_only = answer.statistics is None
        sums = None if answer.statistics is None else answer.statistics.seen()
        lengths = np.linalg.norm(state.components, axis=1, keepdims=True)
        units = state.components / np.maximum(lengths, 1e-300)
        cosines = units @ units.T - 2 * np.eye(len(units))
        return NoisyOrCertificate(
            n_components=len(state.prior),
            n_features=self.n_features_in_,
            method="moments" if moments_only else f"{answer.start} + EM",
            off_diagonal=unknown if found is None else found.off_diagonal,
            condition=unknown if found is None else found.condition,
            gap=unknown if found is None else found.gap,
            spectrum=() if found is None else found.spectrum,
            largest_prior=float(state.prior.max()),
            ones=answer.evidence["ones"],
            left_out=0.0 if sums is None else sums["left_out"] / sums["weight"],
            similarity=float(cosines.max()),
            weakest=float(state.components.max(axis=1).min()),
            constant_features=answer.evidence["constant"],
        )

    def _state(self) -> NoisyOrState:
        prior, components, leak = (
            np.asarray(value, dtype=np.float64)
            for value in (self.prior_, self.components_, self.leak_)
        )
        return NoisyOrState(
            np.clip(prior, 1 - CERTAIN, CERTAIN),
            np.clip(components, 0.0, CERTAIN),
            np.clip(leak, 1 - CERTAIN, CERTAIN),
        )

    def _answers(self, X: object) -> tuple[Array, list[tuple[Array, Array]]]:
        array, rows = self._read_new(X)
        family, state = NoisyOrFamily(), self._state()
        count = rows.shape[0]
        units = Batch((rows,), np.ones(count), np.arange(count, dtype=np.uint64))
        engine = LocalEngine(self._n_jobs())
        source = Source.of(Kind.ROWS, units)
        return array, list(engine.map(source, lambda b: family.answers(state, family.prepare(b))))

    def _log_likelihoods(self, X: object) -> tuple[Array, Array]:
        array, found = self._answers(X)
        return array, np.concatenate([total for _, total in found])

    def _n_parameters(self) -> int:
        count = self.n_components_
        return int(count + count * self.n_features_in_ + self.n_features_in_)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_components_)
