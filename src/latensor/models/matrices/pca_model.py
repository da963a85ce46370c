"""Principal directions from samples, a covariance or a sketch, as a model of the one fit."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, RandomState
from latensor.estimation.directions import matched_directions
from latensor.estimation.model import Answer, Frame, Model, Resumed
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.models.matrices.pca_spectrum import (
    Spectrum,
    choose_components,
    spectrum_of_covariance,
    spectrum_of_samples,
    spectrum_of_sketch,
)
from latensor.moments.row_sums import CovarianceSums, centre_of
from latensor.moments.score_spread import DirectionSpread
from latensor.moments.sketch import CovarianceSketchAccumulator
from latensor.moments.sketch_sums import SketchedCovariance
from latensor.moments.sums import Folded, Joint
from latensor.value_files import storable

# Up to here a stream keeps the exact covariance (128 MB); beyond, a sketch of leading directions.
_MAX_COVARIANCE_FEATURES = 4096
# Up to here intervals keep a covariance for each of fifty groups (0.4 GB).
_MOST_INTERVAL_FEATURES = 1000


@storable
@dataclass(frozen=True, eq=False)
class PCAState:
    """The leading directions of a covariance.

    Attributes
    ----------
    rank : int, the number of directions kept
    mean : (d,)
    variances : decreasing, `rank` of them and possibly more
    directions : (d, rank)
    following : float, the first variance that is left out
    total : float, the sum of all variances
    weight : float, of the samples
    error : float, a bound on what a sketch has dropped
    """

    rank: int
    mean: Any
    variances: Any
    directions: Any
    following: float
    total: float
    weight: float
    error: float


@dataclass(frozen=True)
class PCAModel(Model[PCAState]):
    """The settings of a PCA, and its directions from samples, a covariance or a sketch."""

    n_components: int | float | str | None
    n_features: int
    random_state: RandomState

    @property
    def _sketches(self) -> bool:
        return self.n_features > _MAX_COVARIANCE_FEATURES

    def survey(self, run: Run, streaming: bool) -> Frame:
        return Frame({} if self._sketches else {"centre": centre_of(run.source.head())})

    def at_once(self, run: Run, frame: Frame) -> Answer[PCAState] | None:
        samples, units = run.source.original, run.source.in_memory
        if samples is None or units is None:
            return None
        weights = None if (units.weights == 1).all() else units.weights
        if len(units) < samples.shape[0]:
            samples = units.rows
        answer = self._answer(spectrum_of_samples(samples, weights, self.random_state))
        return self.locally(run, frame, answer)

    def moments(self, frame: Frame) -> dict[str, Folded]:
        if not self._sketches:
            return {"covariance": CovarianceSums(frame["centre"])}
        wanted = self.n_components
        if not isinstance(wanted, numbers.Integral):
            return {"sketch": SketchedCovariance(256)}
        return {"sketch": SketchedCovariance(max(4 * int(wanted), int(wanted) + 100))}

    def read_off(self, frame: Frame, moments: Joint, rng: Any) -> Answer[PCAState]:
        if self._sketches:
            return self._answer(spectrum_of_sketch(moments["sketch"].finalize()))
        return self._answer(
            spectrum_of_covariance(moments["covariance"].finalize(), self.random_state)
        )

    def locally(self, run: Run, frame: Frame, answer: Answer[PCAState]) -> Answer[PCAState]:
        """With how far rows spread along the directions, which says how firm these are."""
        found = answer.state
        assert found is not None
        kept = np.asarray(found.variances[: found.rank], dtype=np.float64)
        left_out = found.total - float(kept.sum())
        if not (found.following > 0 and left_out > 0):
            return answer
        mean, directions = (np.asarray(x, dtype=np.float64) for x in (found.mean, found.directions))
        start = DirectionSpread(mean, directions, np.sqrt(kept), left_out)
        spread = run.fold("subspace", start).finalize()
        return replace(answer, evidence={"spread": spread})

    def _answer(self, spectrum: Spectrum) -> Answer[PCAState]:
        rank, variances, directions = choose_components(
            spectrum, self.n_components, self.n_features
        )
        following = float(variances[rank]) if len(variances) > rank else 0.0
        return Answer(
            PCAState(
                rank,
                spectrum.mean,
                variances,
                np.ascontiguousarray(directions[:, :rank]),
                following,
                spectrum.total,
                spectrum.weight,
                spectrum.error,
            )
        )

    def resumed(self, frame: Frame, answer: Answer[PCAState]) -> Resumed:
        """The sums that the directions stand for, and the largest variance that was lost.

        What the directions leave out is spread evenly over the others, as in probabilistic PCA,
        which keeps the total variance.
        """
        found = answer.state
        assert found is not None
        degrees, mean = found.weight - 1, np.asarray(found.mean, dtype=np.float64)
        kept = np.asarray(found.variances[: found.rank], dtype=np.float64)
        directions = np.asarray(found.directions, dtype=np.float64)
        factor = np.sqrt(kept * degrees)[:, None] * directions.T
        left_out = max(found.total - float(kept.sum()), 0.0) * degrees
        count = round(found.weight)
        if self._sketches:
            empty = self.moments(frame)["sketch"]
            assert isinstance(empty, SketchedCovariance)
            trace = float((factor**2).sum()) + left_out
            sketch = CovarianceSketchAccumulator(empty.rank).absorb(
                count, found.weight, mean, factor, trace, found.following * degrees
            )
            return Resumed({"sketch": empty.received(sketch)}, {})
        scatter = factor.T @ factor
        unexplained = self.n_features - found.rank
        if left_out > 0 and unexplained:
            residual = np.eye(self.n_features) - directions @ directions.T
            scatter += left_out / unexplained * residual
        sums = {
            "count": count,
            "weight": found.weight,
            "first": np.zeros(self.n_features),
            "second": scatter,
        }
        summed = CovarianceSums(mean, sums=sums).recentred(frame["centre"])
        return Resumed({"covariance": summed}, {"forgotten": found.following})

    # ------------------------------------------------------------------ intervals
    def check_intervals(self) -> None:
        if self.n_features > _MOST_INTERVAL_FEATURES:
            raise InvalidInputError(
                f"X has {self.n_features} features, but intervals keep a covariance for every "
                f"group, for at most {_MOST_INTERVAL_FEATURES}: leave some out"
            )

    def read_near(
        self, frame: Frame, moments: Joint, rng: np.random.Generator, state: PCAState
    ) -> Answer[PCAState]:
        """As many directions as the fit has, however they were counted."""
        return replace(self, n_components=state.rank).read_off(frame, moments, rng)

    def presented(self, frame: Frame, state: PCAState) -> PCAState:
        return state

    def parameters(self, frame: Frame, state: PCAState) -> dict[str, Array]:
        return {
            "components": np.asarray(state.directions, dtype=np.float64).T,
            "mean": np.asarray(state.mean, dtype=np.float64),
            "explained_variance": np.asarray(state.variances[: state.rank], dtype=np.float64),
        }

    def aligned(
        self, frame: Frame, state: PCAState, center: Mapping[str, Array], match_by: str
    ) -> PCAState:
        """Directions next to the fitted ones, with their signs; variances stay in their order."""
        order, signs = matched_directions(center["components"].T, state.directions)
        return replace(state, directions=state.directions[:, order] * signs)
