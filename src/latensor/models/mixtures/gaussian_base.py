"""Gaussian mixtures that three moments determine: what they share beyond their read-off."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.diagnostics.mixture_certificate import (
    DOUBTFUL_OFF_DIAGONAL,
    NOISE_EDGE,
    MixtureCertificate,
    smallest_separation,
)
from latensor.estimation.model import Answer, Effort, Frame, Search, Start
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY, REAL
from latensor.estimation.parameters import ALGORITHM, N_COMPONENTS, Choice, parameter
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.estimator import GaussianEstimator
from latensor.models.mixtures.feature_views import check_streamed
from latensor.models.mixtures.mixture_model import MixtureModel
from latensor.models.mixtures.spherical_read_off import check_spread, smallest_variance
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums, centre_of
from latensor.moments.second import Covariance, check_total_weight
from latensor.moments.sums import Folded, Joint
from latensor.moments.third import WHOLE, ThirdMoment
from latensor.refinement.families.covariances import as_diagonals
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.mixture_moves import EDGE_FACTOR, fits, passes, split_and_merge, spreads
from latensor.refinement.mixture_search import search, starts_of
from latensor.refinement.mixture_starts import Coordinates

# Standard deviations whose cubes are still numbers.
_NARROWEST, _WIDEST = 1e-100, 1e102
# Passes after which a read-off that fits needs no other start beside it.
_PASSES_TO_JUDGE = 20


@dataclass(frozen=True)
class GaussianMixtureModel(MixtureModel):
    """Base of the Gaussian mixtures that are read off mean, covariance and third moment.

    A subclass gives `basis` and `found`, the read-off, with its `state` in the features, or None
    where three moments do not determine so many components.

    Attributes
    ----------
    n_components : int or "auto"
    reg_covar : float
    n_features : int
    sample_limit : int, rows on which EM runs in memory
    by_views : bool, whether three views are read off
    algorithm : of the decomposition
    """

    n_components: int | str
    reg_covar: float
    n_features: int
    sample_limit: int
    by_views: bool = False
    algorithm: str | Callable[..., Any] = "auto"
    common: bool = False
    covariance_type: ClassVar[str] = ""
    # Below so many features per component three moments alone are not trusted.
    features_per_component: ClassVar[float] = 1.0
    squares: ClassVar[bool] = False
    # A stream fixes its coordinates once it has seen so many rows.
    pilot_size: ClassVar[int] = 20_000

    def basis(self, known: Covariance, count: int, values: dict[str, Any]) -> Array:
        """The directions (d, r), orthonormal, along which the third moment is taken."""
        raise NotImplementedError(f"{type(self).__name__} must give its directions")

    def check_streaming(self) -> None:
        if self.by_views:
            check_streamed(self.n_features)

    def stream_rank(self, count: int) -> int:
        """Directions in which a stream of many features keeps the third moment."""
        return self.n_features if self.by_views else max(2 * count, count + 20)

    def found(self, frame: Frame, moment: ThirdMoment, rng: np.random.Generator) -> Any:
        """What is read off, or None."""
        raise NotImplementedError(f"{type(self).__name__} must read its components off")

    def doubtful(self, found: Any, count: int) -> bool:
        """Whether restarts should stand beside what was read off."""
        return count > 1 and (
            found.off_diagonal >= DOUBTFUL_OFF_DIAGONAL
            or found.gap < NOISE_EDGE
            or self.n_features <= count
            or self.n_features < self.features_per_component * count
        )

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
        if not np.diag(known.covariance).any():
            check_spread(run.source.head())
        count = self.count(known)
        values = self.survey_values(run, known, count, streaming)
        if streaming and self.n_features <= WHOLE:
            basis = np.eye(self.n_features)
        elif streaming:
            basis = self.stream_basis(known, min(self.stream_rank(count), self.n_features))
        else:
            basis = self.basis(known, count, values)
        values |= {
            "centre": known.mean,
            "basis": basis,
            "count": count,
            "floor": smallest_variance(self.reg_covar, known.covariance),
            "family": GaussianFamily.of(
                self.covariance_type,
                known.mean,
                known.covariance,
                self.reg_covar,
                common=self.common,
            ),
        }
        return Frame(values, {"covariance": summed.recentred(known.mean)}, float(known.count))

    def select(self, run: Run, effort: Effort) -> Selection | None:
        rows = np.asarray(run.source.head().rows, np.float64)
        # Numbers of components whose moments underflow are not tried, and one is no answer then.
        if isinstance(self.n_components, str) and np.ptp(rows, axis=0).any():
            with np.errstate(over="ignore", invalid="ignore"):
                _check_unit(float(np.std(rows, axis=0).max()))
        return super().select(run, effort)

    def count(self, known: Covariance) -> int:
        """The number of components, where the samples allow it."""
        count = super().count(known)
        if count > 1 and not np.diag(known.covariance).any():
            raise InvalidInputError(
                f"n_components={count} exceeds the 1 distinct samples of {known.count}: lower "
                "n_components or give more samples"
            )
        if count > 1:
            _check_unit(float(np.sqrt(np.diag(known.covariance).max())))
        return count

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "covariance": CovarianceSums(frame["centre"]),
            "third": ThirdPowerSums(frame["centre"], frame["basis"], self.squares),
        }

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[MixtureState]:
        known = moments["covariance"].finalize()
        count = frame["count"]
        found = self.found(frame, moments["third"].central(known), rng)
        constant = np.flatnonzero(np.diag(known.covariance) <= 0)
        evidence = {
            "found": found,
            "constant": tuple(int(i) for i in constant),
            "weight": known.weight,
        }
        if found is None:
            return Answer(None, evidence, doubtful=True)
        state = frame["family"].inside(found.state)
        return Answer(state, evidence, doubtful=self.doubtful(found, count))

    def most_by_moments(self) -> str:
        """How many components three moments determine, and what else to do, as a sentence."""
        raise NotImplementedError(f"{type(self).__name__} must say what moments determine")

    def check_moments(self, frame: Frame, answer: Answer[MixtureState]) -> None:
        check_total_weight(answer.evidence["weight"])
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

    def search(self, frame: Frame, search_: Search[MixtureState]) -> Start[MixtureState]:
        return self._searched(frame, search_, few=True)

    def _searched(
        self, frame: Frame, search_: Search[MixtureState], few: bool
    ) -> Start[MixtureState]:
        count, family = frame["count"], frame["family"]
        sample = self.distinct(search_.sample, count, self.search_size)
        points = family.prepare(sample)
        known = {} if search_.state is None else {"moments": search_.state}
        if few and known:
            state, _ = passes(family, points, known["moments"], _PASSES_TO_JUDGE)
            if fits(family, points, state):
                return Start(state, "moments")
            known["moments"] = state
        coordinates = Coordinates.of(family, sample, points)
        starts = starts_of(family, coordinates, count, search_.rng, known, few)
        found = search(family, points, starts, alternatives=True)
        return Start(found.state, found.start, found.n_moves, {"alternative": found.alternative})

    def review(
        self, frame: Frame, search_: Search[MixtureState], answer: Answer[MixtureState]
    ) -> Start[MixtureState] | None:
        # No mixture of this kind describes the samples, or one component covers two clusters.
        assert answer.state is not None
        if self.widest(frame, search_.sample, answer.state) <= EDGE_FACTOR:
            return None
        if answer.start == "moments" and not answer.doubtful:
            family: GaussianFamily = frame["family"]
            points = family.prepare(search_.sample)
            state, _, n_moves = split_and_merge(family, points, answer.state)
            if n_moves:
                return Start(state, answer.start, n_moves)
        return self._searched(frame, replace(search_, state=None), few=False)

    def widest(self, frame: Frame, sample: Batch, state: MixtureState) -> float:
        """The largest ratio of a component's spread to what its variance and noise explain."""
        family: GaussianFamily = frame["family"]
        return float(spreads(family, family.prepare(sample), state).max())

    def evidence(
        self, frame: Frame, search_: Search[MixtureState], answer: Answer[MixtureState]
    ) -> dict[str, Any]:
        assert answer.state is not None
        return {
            **super().evidence(frame, search_, answer),
            "spread": self.widest(frame, search_.sample, answer.state),
        }


@dataclass(eq=False, repr=False)
class ReadOffParameters:
    """How components of a Gaussian mixture are read off moments."""

    n_components: int | str = parameter(2, *N_COMPONENTS)
    _: KW_ONLY
    method: str = parameter("moments", Choice(("moments", "views")))
    algorithm: str | Callable[..., Any] = parameter("auto", *ALGORITHM)


class MomentMixture(GaussianEstimator):
    """Base of the Gaussian mixtures that are read off moments: attributes and certificate."""

    _model_class: ClassVar[type[GaussianMixtureModel]]
    # Rows of the sample on which EM runs, at most.
    _row_limit: ClassVar[int] = 100_000
    _intervals_of = (
        {"weights": PROBABILITY, "means": REAL, "covariances": NOT_NEGATIVE},
        "means",
    )

    def _model(self) -> GaussianMixtureModel:
        given = self.get_params(deep=False)
        return self._model_class(
            given["n_components"],
            given.get("reg_covar", 0.0),
            self.n_features_in_,
            self._row_limit,
            given["method"] == "views",
            given["algorithm"],
            given.get("variance") == "common",
        )

    def _attributes(self, answer: Answer[Any], frame: Frame) -> dict[str, Any]:
        assert answer.state is not None
        found = self._parameters_of(frame["family"].outside(answer.state))
        return {
            **found,
            "lower_bound_": answer.log_likelihood,
            "n_iter_": answer.n_iter,
            "converged_": answer.converged,
            "certificate_": self._certificate(answer, found),
        }

    def _certificate(self, answer: Answer[Any], fitted: dict[str, Any]) -> Any:
        if answer.statistics is not None:
            parts = (np.asarray(fitted[f"{name}_"]) for name in ("weights", "means", "covariances"))
            outer, weight = MixtureState(*parts), answer.statistics.weight
            return self._optimum_certificate(answer, outer, weight, self._notes(answer))
        found, unknown = answer.evidence["found"], float("nan")
        width = self.n_features_in_
        variances = as_diagonals(self._covariance_type, fitted["covariances_"], width)
        return MixtureCertificate(
            n_components=fitted["n_components_"],
            n_features=width,
            method="moments",
            off_diagonal=found.off_diagonal if found is not None else unknown,
            condition=found.condition if found is not None else float("inf"),
            gap=found.gap if found is not None else unknown,
            separation=smallest_separation(fitted["means_"], np.sqrt(variances)),
            outside=answer.evidence.get("outside", unknown),
            constant_features=answer.evidence["constant"],
            notes=self._notes(answer),
        )

    def _notes(self, answer: Answer[Any]) -> tuple[str, ...]:
        """What else the certificate says."""
        return ()


def _check_unit(spread: float) -> None:
    """Refuse samples whose largest standard deviation has no cube."""
    if spread < _NARROWEST:
        raise InvalidInputError(
            f"X varies by no more than {spread:.3g}, and its third moment underflows: give the "
            "samples in a larger unit"
        )
    if not spread < _WIDEST:
        raise InvalidInputError(
            f"the third moment of X overflows (standard deviation {spread:.3g}): give the samples "
            "in a smaller unit"
        )
