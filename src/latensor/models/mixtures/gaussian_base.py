"""What all mixtures of Gaussians share: prediction, likelihood, sampling, peers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils.validation import check_is_fitted

from latensor.arrays import Array, RandomState, check_positive_int, generator
from latensor.diagnostics.mixture_certificate import MixtureCertificate
from latensor.engines import LocalEngine
from latensor.estimation.base import LatentEstimator, component_order
from latensor.estimation.halves import select_by_halves
from latensor.estimation.learn import Answer, Effort, Frame, Model, Search, Start
from latensor.estimation.mixture_answers import MixtureAnswers
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY, REAL
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.batch import Batch, Kind
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums, centre_of
from latensor.moments.rows import RowSample
from latensor.moments.second import Covariance
from latensor.moments.sums import Folded, Joint
from latensor.moments.third import WHOLE, ThirdMoment
from latensor.refinement.family import Family
from latensor.refinement.gaussian import GaussianFamily, GaussianState
from latensor.refinement.linear_family import HeldFeatures, LinearFamily
from latensor.refinement.portfolio import EDGE_FACTOR, search, split_and_merge, spreads
from latensor.sources.shards import Source

# Standard deviations whose cubes are still numbers.
_NARROWEST = 1e-100
# Numbers in the sample on which EM runs: 128 MB.
_SAMPLE_ENTRIES = 2**24


def smallest_variance(reg_covar: float, covariance: Any) -> float:
    """What is added to every variance: `reg_covar`, or rounding where that is zero."""
    total = float(np.trace(covariance)) / len(covariance)
    return max(float(reg_covar), np.finfo(float).eps * total or 1e-100)


@dataclass(frozen=True)
class GaussianMixtureModel(Model[GaussianState]):
    """Base of the Gaussian mixtures that are read off mean, covariance and third moment.

    A subclass gives `basis`, `found` (the read-off, with its `state` in the
    features, or None where three moments do not determine so many components), `densities` and
    `doubtful`.
    """

    n_components: int | str
    reg_covar: float
    n_features: int
    sample_limit: int
    squares: ClassVar[bool] = False
    # A stream fixes its coordinates once it has seen so many rows.
    pilot_size: ClassVar[int] = 20_000

    def select(self, run: Run, effort: Effort) -> Selection | None:
        automatic = isinstance(self.n_components, str)
        return select_by_halves(run, self, effort) if automatic else None

    def basis(self, known: Covariance, count: int, values: dict[str, Any]) -> Array:
        """The directions (d, r), orthonormal, along which the third moment is taken."""
        raise NotImplementedError(f"{type(self).__name__} must give its directions")

    def stream_rank(self, count: int) -> int:
        """Directions in which a stream of many features keeps the third moment."""
        return max(2 * count, count + 20)

    def found(self, frame: Frame, moment: ThirdMoment, rng: np.random.Generator) -> Any:
        """What is read off, or None."""
        raise NotImplementedError(f"{type(self).__name__} must read its components off")

    def densities(self, frame: Frame) -> GaussianFamily:
        """The family in all features."""
        raise NotImplementedError(f"{type(self).__name__} must give its family")

    def doubtful(self, found: Any, count: int) -> bool:
        """Whether restarts should stand beside what was read off."""
        raise NotImplementedError(f"{type(self).__name__} must judge its read-off")

    def survey_values(
        self, run: Run, known: Covariance, count: int, streaming: bool
    ) -> dict[str, Any]:
        """What the frame holds besides centre, basis and number of components."""
        return {}

    def stream_basis(self, known: Covariance, rank: int) -> Array:
        """The directions (d, rank), orthonormal, in which a stream keeps the third moment."""
        return np.ascontiguousarray(np.linalg.eigh(known.covariance)[1][:, ::-1][:, :rank])

    def survey(self, run: Run, streaming: bool) -> Frame:
        summed = run.fold("covariance", CovarianceSums(centre_of(run.source.head())))
        known = summed.finalize()
        count = self.count(known)
        values = self.survey_values(run, known, count, streaming)
        if streaming and self.n_features <= WHOLE:
            basis = np.eye(self.n_features)
        elif streaming:
            basis = self.stream_basis(known, min(self.stream_rank(count), self.n_features))
        else:
            basis = self.basis(known, count, values)
        scale = float(np.sqrt(max(np.trace(known.covariance) / len(known.mean), 1e-200)))
        values |= {
            "centre": known.mean,
            "basis": basis,
            "count": count,
            "floor": smallest_variance(self.reg_covar, known.covariance),
            "unit": scale,
            "scale": np.sqrt(np.diag(known.covariance)),
        }
        return Frame(values, {"covariance": summed.recentred(known.mean)}, float(known.count))

    def count(self, known: Covariance) -> int:
        """The number of components, where the samples allow it."""
        count = int(self.n_components)
        if count > known.count:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.count} given: lower "
                "n_components or give more samples"
            )
        if count > 1 and not np.diag(known.covariance).any():
            raise InvalidInputError(
                f"n_components={count} exceeds the 1 distinct samples of {known.count}: lower "
                "n_components or give more samples; where X varies, its second moment underflows: "
                "give it in a larger unit"
            )
        spread = float(np.sqrt(np.diag(known.covariance).max()))
        if count > 1 and spread < _NARROWEST:
            raise InvalidInputError(
                f"X varies by no more than {spread:.3g}, and its third moment underflows: give the "
                "samples in a larger unit"
            )
        return count

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "covariance": CovarianceSums(frame["centre"]),
            "third": ThirdPowerSums(frame["centre"], frame["basis"], self.squares),
        }

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[GaussianState]:
        known = moments["covariance"].finalize()
        count = frame["count"]
        found = self.found(frame, moments["third"].central(known), rng)
        constant = np.flatnonzero(np.diag(known.covariance) <= 0)
        evidence = {"found": found, "constant": tuple(int(i) for i in constant)}
        if found is None:
            return Answer(None, evidence, doubtful=True)
        state = self.densities(frame).inside(found.state)
        return Answer(state, evidence, doubtful=self.doubtful(found, count))

    def most_by_moments(self) -> str:
        """How many components three moments determine, and what else to do, as a sentence."""
        raise NotImplementedError(f"{type(self).__name__} must say what moments determine")

    def check_moments(self, frame: Frame, answer: Answer[GaussianState]) -> None:
        found, count, limit = answer.evidence["found"], frame["count"], self.most_by_moments()
        if found is None:
            raise NotIdentifiableError(
                f"n_components={count} means in {self.n_features} dimensions are not "
                f"determined by three moments (their condition number is infinite): {limit}"
            )
        if found.gap < 1:
            raise NotIdentifiableError(
                f"n_components={count}: the means are affinely dependent as far as these samples "
                f"can tell (condition number {found.condition:.3g}, narrowest direction "
                f"{found.gap:.2g} times as wide as noise reaches): lower n_components, give more "
                "samples, or, for a Gaussian mixture, leave refine at 'auto' to fit by likelihood"
            )

    def family(self, frame: Frame) -> Family[GaussianState] | None:
        return LinearFamily(self.densities(frame))

    def sample_size(self, frame: Frame) -> int:
        return min(self.sample_limit, max(self.search_size, _SAMPLE_ENTRIES // self.n_features))

    def search(self, frame: Frame, search_: Search[GaussianState]) -> Start[GaussianState]:
        count = frame["count"]
        # Equal rows become one of their weight: starts do not depend on how data are repeated.
        few = RowSample(self.search_size).update(search_.sample.rows, search_.sample.weights)
        if len(few.samples) < count:
            raise InvalidInputError(
                f"n_components={count} exceeds the {len(few.samples)} distinct samples of "
                f"{few.count}: lower n_components or give more samples"
            )
        densities = self.densities(frame)
        starts = [] if search_.state is None else [search_.state]
        rows = HeldFeatures(densities.features(few.samples), few.weights)
        found = search(rows, densities, starts, count, search_.rng)
        return Start(found.state, found.start, found.n_moves)

    def review(
        self, frame: Frame, search_: Search[GaussianState], answer: Answer[GaussianState]
    ) -> Start[GaussianState] | None:
        # No mixture of this kind describes the samples, or one component covers two clusters.
        assert answer.state is not None
        if self.widest(frame, search_.sample, answer.state) <= EDGE_FACTOR:
            return None
        if answer.start == "moments" and not answer.doubtful:
            densities = self.densities(frame)
            sample = search_.sample
            rows = HeldFeatures(densities.features(sample.rows), sample.weights)
            state, _, n_moves = split_and_merge(rows, densities, answer.state)
            if n_moves:
                return Start(state, answer.start, n_moves)
        return self.search(frame, replace(search_, state=None))

    def widest(self, frame: Frame, sample: Batch, state: GaussianState) -> float:
        """The largest ratio of a component's spread to what its variance and noise explain."""
        densities = self.densities(frame)
        features = densities.features(sample.rows)
        owners = np.argmax(features @ densities.natural(state), axis=1)
        return float(spreads(features, sample.weights, densities, state, owners)[0].max())

    def order(self, frame: Frame, state: GaussianState) -> Array:
        outside = self.densities(frame).outside(state)
        return component_order(outside.weights, outside.means)

    def permuted(self, state: GaussianState, order: Array) -> GaussianState:
        return GaussianState(state.weights[order], state.means[order], state.variances[order])

    def parameters(self, frame: Frame, state: GaussianState) -> dict[str, Array]:
        outside = self.densities(frame).outside(state)
        return {
            "weights": outside.weights,
            "means": outside.means,
            "covariances": outside.variances,
        }

    def evidence(
        self, frame: Frame, search_: Search[GaussianState], answer: Answer[GaussianState]
    ) -> dict[str, Any]:
        assert answer.state is not None
        return {"spread": self.widest(frame, search_.sample, answer.state)}


class GaussianMixtureEstimator(MixtureAnswers, DensityMixin, LatentEstimator):  # type: ignore[misc]
    """Base of the Gaussian mixtures: all that follows from weights, means and variances.

    A subclass gives `_covariance_type`, `_densities()` (the family in which `_state()` stands)
    and `_n_free_variances()`.
    """

    _covariance_type: ClassVar[str] = ""
    _min_samples: ClassVar[int] = 2
    # Rows of the sample on which EM runs, at most.
    _row_limit: ClassVar[int] = 100_000
    _intervals_of = (
        {"weights": PROBABILITY, "means": REAL, "covariances": NOT_NEGATIVE},
        "means",
    )
    _fitted_names: ClassVar[frozenset[str]] = frozenset(
        {
            "weights_",
            "means_",
            "covariances_",
            "precisions_",
            "precisions_cholesky_",
            "n_components_",
            "certificate_",
            "lower_bound_",
            "n_iter_",
            "converged_",
        }
    )

    def sample(self, n_samples: int = 1, random_state: RandomState = None) -> tuple[Any, Any]:
        """Samples (n, d) drawn from the mixture and the component (n,) of each.

        In the order of the components, as scikit-learn's.

        Parameters
        ----------
        n_samples : int
        random_state : seed; by default that of the estimator
        """
        check_is_fitted(self)
        n_samples = check_positive_int(n_samples, "n_samples")
        rng = generator(self.random_state if random_state is None else random_state)
        shares = np.asarray(self.weights_, dtype=np.float64)
        counts = rng.multinomial(n_samples, shares / shares.sum())
        labels = np.repeat(np.arange(self.n_components_), counts)
        deviations = np.sqrt(np.asarray(self.covariances_, dtype=np.float64))
        deviations = deviations.reshape(self.n_components_, -1)
        noise = rng.standard_normal((n_samples, self.n_features_in_))
        drawn = self.means_[labels] + noise * deviations[labels]
        return drawn.astype(self.means_.dtype), labels

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn GaussianMixture with these parameters."""
        from sklearn.mixture import GaussianMixture

        check_is_fitted(self)
        peer = GaussianMixture(
            self.n_components_,
            covariance_type=self._covariance_type,
            reg_covar=self.reg_covar,
            random_state=self.random_state,
        )
        for name in (
            "weights_",
            "means_",
            "covariances_",
            "precisions_",
            "precisions_cholesky_",
            "converged_",
            "n_iter_",
            "lower_bound_",
            "n_features_in_",
        ):
            setattr(peer, name, getattr(self, name))
        return peer

    @classmethod
    def from_sklearn(cls, peer: Any, **parameters: Any) -> Self:
        """A mixture with the parameters of a fitted scikit-learn GaussianMixture.

        Parameters
        ----------
        peer : GaussianMixture, its `covariance_type` that of this class
        parameters : of this class, n_components excepted
        """
        kind = getattr(peer, "covariance_type", None)
        if kind != cls._covariance_type:
            raise InvalidInputError(
                f"peer must be a GaussianMixture with covariance_type={cls._covariance_type!r} "
                f"for {cls.__name__}, got {peer!r}"
            )
        check_is_fitted(peer)
        model: Self = cls(n_components=peer.n_components, **parameters)
        model._check_parameters()
        model.n_features_in_ = peer.means_.shape[1]
        if hasattr(peer, "feature_names_in_"):
            model.feature_names_in_ = peer.feature_names_in_
        model._dtype = peer.means_.dtype
        state = GaussianState(peer.weights_, peer.means_, peer.covariances_)
        for name, value in model._parameters_of(state).items():
            setattr(model, name, value)
        model.lower_bound_ = peer.lower_bound_
        model.n_iter_ = peer.n_iter_
        model.converged_ = peer.converged_
        return model

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        model: GaussianMixtureModel = self._model()  # type: ignore[assignment]
        assert answer.state is not None
        found = self._parameters_of(model.densities(frame).outside(answer.state))
        return {
            **found,
            "lower_bound_": answer.log_likelihood,
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": self._certificate(answer, found),
        }

    def _parameters_of(self, state: GaussianState) -> dict[str, Any]:
        """Weights, means and variances of a state in the features, in their fixed order."""
        order = component_order(state.weights, state.means)
        kept = self._dtype
        covariances = state.variances[order].astype(kept)
        return {
            "weights_": state.weights[order].astype(kept),
            "means_": np.ascontiguousarray(state.means[order], dtype=kept),
            "covariances_": covariances,
            "precisions_": 1 / covariances,
            "precisions_cholesky_": np.sqrt(1 / covariances),
            "n_components_": len(order),
        }

    def _certificate(self, answer: Answer[Any], fitted: dict[str, Any]) -> MixtureCertificate:
        found, unknown = answer.evidence["found"], float("nan")
        method = "moments" if answer.statistics is None else f"{answer.start} + EM"
        return MixtureCertificate(
            n_components=fitted["n_components_"],
            n_features=self.n_features_in_,
            method=method,
            off_diagonal=found.off_diagonal if found is not None else unknown,
            condition=found.condition if found is not None else float("inf"),
            gap=found.gap if found is not None else unknown,
            separation=self._separation(fitted),
            spread=answer.evidence.get("spread", unknown),
            outside=answer.evidence.get("outside", unknown),
            n_moves=answer.n_moves,
            constant_features=answer.evidence["constant"],
            notes=self._notes(answer),
        )

    def _notes(self, answer: Answer[Any]) -> tuple[str, ...]:
        """What else the certificate says."""
        return ()

    def _state(self) -> GaussianState:
        return GaussianState(
            np.asarray(self.weights_, dtype=np.float64),
            np.asarray(self.means_, dtype=np.float64),
            np.asarray(self.covariances_, dtype=np.float64),
        )

    def _joint_logs(self, X: object) -> tuple[Array, Any]:
        array, samples = self._read_new(X)
        densities, state = self._densities()
        natural = np.ascontiguousarray(densities.natural(state))
        engine = LocalEngine(self._n_jobs())
        units = Batch((samples,), np.ones(len(samples)), np.arange(len(samples), dtype=np.uint64))
        logs = engine.map(
            Source.of(Kind.ROWS, units), lambda b: densities.features(b.rows) @ natural
        )
        return array, np.concatenate(list(logs))

    def _n_parameters(self) -> int:
        count = self.n_components_
        return int(count - 1 + count * self.n_features_in_ + self._n_free_variances())

    def _separation(self, fitted: dict[str, Any]) -> float:
        raise NotImplementedError(f"{type(self).__name__} must measure its separation")

    def _densities(self) -> tuple[GaussianFamily, GaussianState]:
        raise NotImplementedError(f"{type(self).__name__} must give its family")

    def _n_free_variances(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its variances")
