"""Gaussian mixtures with four shapes of covariance as a model: coordinates, starts, evidence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.estimation.model import Answer, Frame, Search, Start
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.gaussian_starts import (
    GivenParts,
    drawn_rows,
    imputed_starts,
    read_off_tied,
    simple_start,
)
from latensor.models.mixtures.mixture_model import MixtureModel
from latensor.models.mixtures.spherical_read_off import (
    check_spread,
    identified,
    read_off,
    smallest_variance,
    spectrum,
)
from latensor.moments.batch import Batch
from latensor.moments.observed import ObservedSums, observed_centre
from latensor.moments.row_sums import ThirdPowerSums
from latensor.moments.second import Covariance
from latensor.moments.sums import Folded, Joint
from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    SPHERICAL,
    TIED,
    as_diagonals,
    as_matrices,
)
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState, Points
from latensor.refinement.mixture_moves import passes
from latensor.refinement.mixture_search import ANOTHER, alternative, compared, search, starts_of
from latensor.refinement.mixture_search import Search as Found
from latensor.refinement.mixture_starts import Coordinates

# Rows on which starts are compared: enough for components of a tenth of the average weight.
_FEWEST_ROWS = 4000
_ROWS_PER_COMPONENT_AND_FEATURE = 60
# Three moments of spherical clusters lead to the right optimum of full covariances for d >= 2 k
# (60 of 62 data sets), and to no better one than other starts below (24 of 48).
_FEATURES_PER_COMPONENT = 2
# The third central moment of means in a common covariance is unique from five components on.
_FEWEST_TIED = 5
# Searches with unobserved entries, at most, until two find the same optimum. With half of the
# entries (d 8, k 5, n 3,000) one of three draws was wrong in 5 of 16 data sets, these in none.
_SEARCHES_UNOBSERVED = 6
# Passes by which starts with unobserved entries are compared: EM is slow there.
_PASSES_UNOBSERVED = 30


# Variances whose inverses and products are numbers too.
_SMALLEST_VARIANCE = 1e-200


def _varies(rows: Array) -> bool:
    """Whether observed entries of a column differ."""
    first = rows[np.argmax(~np.isnan(rows), axis=0), np.arange(rows.shape[1])]
    return bool(((rows != first) & ~np.isnan(rows) & ~np.isnan(first)).any())


@dataclass(frozen=True)
class GaussianModel(MixtureModel):
    """The settings of a Gaussian mixture.

    Attributes
    ----------
    n_components : int or "auto"
    covariance_type : "full", "tied", "diag" or "spherical"
    reg_covar : float
    n_features : int
    init_params : str, which starts are tried
    n_init : int, how many searches
    given : starting values that replace those of the starts
    sample_limit : int, rows on which EM runs in memory
    names : of the features, empty where they have none
    """

    n_components: int | str
    covariance_type: str
    reg_covar: float
    n_features: int
    init_params: str
    n_init: int
    given: GivenParts
    sample_limit: int
    names: tuple[str, ...] = ()
    pilot_size: ClassVar[int] = 20_000

    def survey(self, run: Run, streaming: bool) -> Frame:
        origin = observed_centre(run.source.head())
        summed = run.fold("covariance", ObservedSums(origin))
        self._check_columns(summed.observed)
        known = summed.finalize()
        count = self.count(known)
        head = run.source.head().rows
        if np.diag(known.covariance).max() < _SMALLEST_VARIANCE and _varies(head):
            check_spread(run.source.head())
            raise InvalidInputError(
                "the second moment of X underflows: give the samples in a larger unit"
            )
        missing = summed.n_missing > 0
        family = GaussianFamily.of(
            self.covariance_type,
            known.mean,
            known.covariance,
            self.reg_covar,
            missing=missing or streaming,
        )
        values = {
            "origin": origin,
            "count": count,
            "family": family,
            "missing": missing,
            "weight": known.weight,
            "basis": None if streaming or missing else self._basis(known),
        }
        return Frame(values, {"observed": summed}, float(known.count))

    def _check_columns(self, observed: Array) -> None:
        empty = np.flatnonzero(observed <= 0)
        if len(empty):
            first = int(empty[0])
            named = f" ({self.names[first]!r})" if self.names else ""
            raise InvalidInputError(
                f"column {first}{named} of X holds NaN only: leave out the {len(empty)} such "
                "column(s)"
            )

    def count(self, known: Covariance) -> int:
        if not np.isfinite(known.covariance).all():
            raise InvalidInputError("the second moment of X overflows: give X in a larger unit")
        return super().count(known)

    def _basis(self, known: Covariance) -> Array | None:
        """Directions along which the third moment is taken, None where it tells nothing."""
        count, width = int(self.n_components), self.n_features
        if count == 1 or self.given or self.init_params not in ("auto", "moments"):
            return None
        if self.covariance_type == TIED:
            # Other starts find the same optima in a tenth of the time: only where it is asked for.
            asked = self.init_params == "moments" and count >= _FEWEST_TIED
            return np.eye(width) if asked and count - 1 <= width <= 32 else None
        if self.init_params == "auto" and width < _FEATURES_PER_COMPONENT * count:
            return None
        if not identified(count, width, False):
            return None
        return np.ascontiguousarray(spectrum(known.covariance)[1][:, : count - 1])

    def moments(self, frame: Frame) -> dict[str, Folded]:
        wanted: dict[str, Folded] = {"observed": ObservedSums(frame["origin"])}
        if frame["basis"] is not None:
            wanted["third"] = ThirdPowerSums(frame["origin"], frame["basis"])
        return wanted

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[MixtureState]:
        known: Covariance = moments["observed"].finalize()
        constant = tuple(int(i) for i in np.flatnonzero(np.diag(known.covariance) <= 0))
        evidence: dict[str, Any] = {"found": None, "constant": constant}
        count = frame["count"]
        if count == 1 and not frame["missing"]:
            return Answer(self._single(frame["family"], known), evidence, start="moments")
        if "third" not in moments:
            return Answer(None, evidence, doubtful=True)
        third = moments["third"].central(known)
        if self.covariance_type == TIED:
            state = read_off_tied(third, count, rng)
            inner = None if state is None else frame["family"].inside(state)
            return Answer(inner, evidence, doubtful=True)
        found = read_off(third, count, False, rng)
        state = found.above(smallest_variance(self.reg_covar, known.covariance)).state
        spherical, width = state.covariances, self.n_features
        shapes = {SPHERICAL: spherical, DIAG: as_diagonals(SPHERICAL, spherical, width)}
        if self.covariance_type == FULL:
            shapes[FULL] = as_matrices(SPHERICAL, spherical, count, width)
        state = MixtureState(state.weights, state.means, shapes[self.covariance_type])
        evidence["found"] = found
        return Answer(frame["family"].inside(state), evidence, doubtful=True)

    def _single(self, family: GaussianFamily, known: Covariance) -> MixtureState:
        """The one Gaussian of a mean and a covariance."""
        kind = self.covariance_type
        variances = np.diag(known.covariance)
        shapes = {
            FULL: known.covariance[None],
            TIED: known.covariance,
            DIAG: variances[None],
            SPHERICAL: np.array([variances.mean()]),
        }
        inner = family.inside(MixtureState(np.ones(1), known.mean[None], shapes[kind]))
        return MixtureState(inner.weights, inner.means, inner.covariances + family.floor)

    def check_moments(self, frame: Frame, answer: Answer[MixtureState]) -> None:
        raise NotIdentifiableError("a Gaussian mixture is fitted by likelihood")

    def search(self, frame: Frame, search_: Search[MixtureState]) -> Start[MixtureState]:
        count, family = frame["count"], frame["family"]
        limit = max(_FEWEST_ROWS, _ROWS_PER_COMPONENT_AND_FEATURE * count * (self.n_features + 2))
        sample = self.distinct(search_.sample, count, limit)
        if self.given.is_whole:
            return Start(self.given.applied(family, None), "given")
        if frame["missing"]:
            sample = sample.take(np.flatnonzero(~np.isnan(sample.rows).all(axis=1)))
        found = (self._one_search(frame, search_, sample, count) for _ in range(self.n_init))
        return max(found, key=lambda each: each[1])[0]

    def _one_search(
        self, frame: Frame, search_: Search[MixtureState], sample: Batch, count: int
    ) -> tuple[Start[MixtureState], float]:
        family, rng = frame["family"], search_.rng
        points = family.prepare(sample)
        missing = bool(np.isnan(sample.rows).any())
        if self.given or self.init_params not in ("auto", "moments"):
            name, state = simple_start(family, sample, self.init_params, count, self.given, rng)
            if self.n_init == 1:
                return Start(state, name), 0.0
            found = search(family, points, {name: state}, move=False)
            return Start(found.state, name), found.log_likelihood
        known = {} if search_.state is None else {"moments": search_.state}
        if self.init_params == "moments":
            if not known:
                raise NotIdentifiableError(self._why_no_moments(count, missing))
            return Start(known["moments"]), 0.0
        if missing:
            found = self._search_until_agreed(family, sample, points, count, rng)
        else:
            coordinates = Coordinates.of(family, sample, points)
            starts = starts_of(family, coordinates, count, rng, known, few=bool(known))
            found = search(family, points, starts, alternatives=True)
        start = Start(found.state, found.start, found.n_moves, {"alternative": found.alternative})
        return start, found.log_likelihood

    def _search_until_agreed(
        self,
        family: GaussianFamily,
        sample: Batch,
        points: Points,
        count: int,
        rng: np.random.Generator,
    ) -> Found[MixtureState]:
        """The best of searches with unobserved entries, until another one has found it too."""
        found: list[Found[MixtureState]] = []
        for _ in range(_SEARCHES_UNOBSERVED if count > 1 else 1):
            found.append(self._search_unobserved(family, sample, points, count, rng))
            found.sort(key=lambda each: -each.log_likelihood)
            best, *others = found
            gaps = [compared(family, points, best.state, each.state) for each in others]
            if any(gap.fraction <= ANOTHER for gap in gaps):
                break
        states = [each.state for each in others]
        return replace(best, alternative=alternative(family, points, best.state, states))

    def _search_unobserved(
        self,
        family: GaussianFamily,
        sample: Batch,
        points: Points,
        count: int,
        rng: np.random.Generator,
    ) -> Found[MixtureState]:
        """Starts on imputed rows, first of one Gaussian, then drawn from the mixture found."""
        starts = imputed_starts(family, sample, count, rng)
        first = search(family, points, starts, move=False, n_passes=_PASSES_UNOBSERVED)
        if count == 1:
            return first
        rows = drawn_rows(family, first.state, sample, rng)
        complete = Batch((rows,), sample.weights, sample.keys)
        filled = family.prepare(complete)
        coordinates = Coordinates.of(family, complete, filled)
        starts = starts_of(family, coordinates, count, rng, {"first": first.state})
        found = search(family, filled, starts)
        name = first.start if found.start == "first" else f"{found.start}, imputed"
        state, value = passes(family, points, found.state, _PASSES_UNOBSERVED, accelerate=True)
        if value <= first.log_likelihood or family.collapsed(state, points.weight).any():
            return first
        return Found(state, value, name, first.values, found.n_moves)

    def _why_no_moments(self, count: int, missing: bool) -> str:
        reason = (
            "moments do not see unobserved entries"
            if missing
            else "tied covariances need five components and at most 32 features"
            if self.covariance_type == TIED
            else f"three moments determine at most {self.n_features} components"
        )
        return (
            f"init_params='moments' gives no start for n_components={count} in "
            f"{self.n_features} features: {reason}; use init_params='auto'"
        )

    def order(self, frame: Frame, state: MixtureState) -> Array:
        given = self.given.means is not None
        return np.arange(frame["count"]) if given else super().order(frame, state)

    def permuted(self, state: MixtureState, order: Array) -> MixtureState:
        if self.covariance_type != TIED:
            return super().permuted(state, order)
        return MixtureState(state.weights[order], state.means[order], state.covariances)
