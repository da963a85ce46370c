"""ICA as a model of the one fit: the directions of the signal, the cumulant along them, sources."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy

from latensor.arrays import Array, one_blas_thread
from latensor.diagnostics.serial_dependence import MOST_ROWS, serial_dependence
from latensor.estimation.base import component_order
from latensor.estimation.directions import matched_directions
from latensor.estimation.model import Answer, Effort, Frame, Model
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError, RankDeficientError
from latensor.models.ica.count import SourceCount, choose_sources
from latensor.models.ica.read_off import Unmixing, read_off, read_off_of_kind
from latensor.models.ica.refinement import Refiner
from latensor.models.ica.signal_space import Spectrum, count_sources, signal_space, spectrum
from latensor.moments.fourth import MOST_DIRECTIONS, WHOLE
from latensor.moments.fourth_sums import FourthPowerSums
from latensor.moments.row_sums import CovarianceSums, centre_of
from latensor.moments.second import Covariance, check_total_weight
from latensor.moments.sums import Folded, Joint

# Products spent on the fourth moment: as a start for refinement, and where it is all there is.
_START_PRODUCTS, _MOST_PRODUCTS = 2e10, 2e11
_FEWEST_ROWS = 20_000


@dataclass(frozen=True)
class ICAModel(Model[Unmixing]):
    """The settings of an ICA.

    Attributes
    ----------
    n_components : int, None or "auto"
    noisy : bool, whether sensors have Gaussian noise
    algorithm : of the diagonalization
    refine : "auto" or the number of passes
    n_features : int
    epsilon : float, rounding of the caller's precision
    sample_limit : int, rows that a stream keeps for its refinement
    """

    n_components: int | str | None
    noisy: bool
    algorithm: str | Callable[..., Any]
    refine: int | str
    n_features: int
    epsilon: float
    sample_limit: int
    pilot_size: ClassVar[int] = 20_000
    # Of 25 the spread is known to 14 %, which Student's t makes up for.
    n_refits: ClassVar[int] = 25

    def select(self, run: Run, effort: Effort) -> Selection | None:
        return choose_sources(run, self, effort) if self.n_components == "auto" else None

    def with_selection(self, selection: Selection) -> ICAModel:
        """Samples are unmixed along all directions: a Gaussian rest is part of the mixture."""
        assert isinstance(selection, SourceCount)
        return self.with_count(selection.n_directions)

    def check_streaming(self) -> None:
        self._width()

    def _width(self) -> int:
        """Directions of the fourth moment of a stream."""
        d, wanted = self.n_features, self.n_components
        if wanted is None and d > MOST_DIRECTIONS:
            raise InvalidInputError(
                f"n_components=None asks for all {d} directions, a fourth moment holds at most "
                f"{MOST_DIRECTIONS}: give n_components"
            )
        if isinstance(wanted, numbers.Integral):
            width = max(2 * int(wanted), int(wanted) + 8)
        else:
            width = MOST_DIRECTIONS if wanted is None else 2 * WHOLE
        return min(width, d, MOST_DIRECTIONS)

    def survey(self, run: Run, streaming: bool) -> Frame:
        width = self._width()
        if self.noisy and not streaming:
            run.head(MOST_ROWS)
        summed = run.fold("covariance", CovarianceSums(centre_of(run.head())))
        known = summed.finalize()
        check_total_weight(known.weight)
        seen = self.spectrum(known)
        count = self.count(known, seen)
        lost = 1.0
        if streaming and self.n_features <= max(WHOLE, width):
            basis = np.eye(self.n_features)
        elif streaming:
            basis = np.ascontiguousarray(seen.vectors[:, :width])
        else:
            if self.noisy:
                lost = self._dependence(run, seen.vectors[:, :count])
            basis = self.basis(known, seen, count)
        n_products = ((basis.shape[1] + 1) * (basis.shape[1] + 2) // 2) ** 2
        products = _START_PRODUCTS if self.refine != 0 else _MOST_PRODUCTS
        limit = max(int(products / n_products), _FEWEST_ROWS)
        fraction = 1.0 if streaming or known.count <= limit else limit / known.count
        values = {
            "centre": known.mean,
            "basis": basis,
            "lost": lost,
            "fraction": fraction,
            "seed": run.seed,
        }
        return Frame(values, {"covariance": summed.recentred(known.mean)}, float(known.count))

    def _dependence(self, run: Run, directions: Array) -> float:
        """Samples in time that tell as much of the signal as one independent one."""
        samples = run.head(MOST_ROWS).rows
        with one_blas_thread():
            series = samples @ directions.astype(samples.dtype)
        return float(serial_dependence(series).mean())

    def basis(self, known: Covariance, seen: Spectrum, count: int) -> Array:
        """The directions (d, r) along which the fourth moment of all samples is taken."""
        d = self.n_features
        if d <= WHOLE or count == d:
            return np.eye(d)
        width = count
        if self.noisy and count < seen.rank:
            space = signal_space(known, seen, count)
            if space.kind != "unknown":
                return np.linalg.qr(space.projection)[0]
            width = min(max(2 * count, count + 8), seen.rank, MOST_DIRECTIONS)
        return np.ascontiguousarray(seen.vectors[:, :width])

    def spectrum(self, known: Covariance) -> Spectrum:
        """The directions in which samples vary."""
        seen = spectrum(known.covariance, self.epsilon * self.n_features)
        # A mean of equal numbers is off by rounding, and so is what it leaves of them.
        square = self.epsilon**2 * float((known.mean**2).max())
        if seen.rank == 0 or seen.values[0] <= square * self.n_features:
            raise NotIdentifiableError(
                f"all {known.count} samples are equal: there is nothing to unmix; give samples "
                "that vary"
            )
        if seen.values[0] < np.sqrt(np.finfo(np.float64).tiny):
            raise InvalidInputError(
                f"X varies by no more than {np.sqrt(seen.values[0]):.3g}, and its fourth moment "
                "underflows: give the samples in a larger unit"
            )
        return seen

    def count(self, known: Covariance, seen: Spectrum) -> int:
        """The number of sources, given or shown by the covariance."""
        wanted, d = self.n_components, self.n_features
        if wanted == "auto":
            count = count_sources(known, seen) if self.noisy else seen.rank
            return min(count, MOST_DIRECTIONS)
        if wanted is None:
            return seen.rank
        count = int(wanted)
        if count > d:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_features={d} sensors: lower n_components"
            )
        if count > seen.rank:
            raise RankDeficientError(
                f"n_components={count} exceeds the {seen.rank} directions in which the "
                f"{known.count} samples vary: lower n_components or give more samples",
                seen.values,
                usable_rank=seen.rank,
            )
        return count

    def moments(self, frame: Frame) -> dict[str, Folded]:
        return {
            "covariance": CovarianceSums(frame["centre"]),
            "fourth": FourthPowerSums(
                frame["centre"], frame["basis"], frame["fraction"], frame["seed"]
            ),
        }

    def read_off(self, frame: Frame, moments: Joint, rng: np.random.Generator) -> Answer[Unmixing]:
        known = moments["covariance"].finalize()
        moment = moments["fourth"].central(known)
        if "kind" in frame.values:
            kind, count = frame["kind"], frame["count"]
            return Answer(read_off_of_kind(moment, count, kind, rng, self.algorithm))
        seen, chosen = self.spectrum(known), frame.values.get("selection")
        count = self.count(known, seen) if chosen is None else chosen.n_directions
        if count > moment.basis.shape[1]:
            raise InvalidInputError(
                f"the stream keeps {moment.basis.shape[1]} directions, {count} sources were "
                "found: give n_components"
            )
        found = read_off(moment, seen, count, self.noisy, rng, self.algorithm, frame["lost"])
        return Answer(found, {"moment": moment})

    def keeps_sample(self, frame: Frame) -> bool:
        return True

    def sample_size(self, frame: Frame) -> int:
        return self.sample_limit

    def locally(self, run: Run, frame: Frame, answer: Answer[Unmixing]) -> Answer[Unmixing] | None:
        return Refiner(self, run, answer).refined()

    def order(self, frame: Frame, state: Unmixing) -> Array:
        """The fixed order of the sources that are kept."""
        state, chosen = self.signed(state), frame.values.get("selection")
        order = component_order(np.linalg.norm(state.mixing, axis=0), state.mixing.T)
        if chosen is None or chosen.directions is None:
            return np.asarray(order)
        kept = scipy.optimize.linear_sum_assignment(-np.abs(chosen.directions @ state.mixing))[1]
        return np.asarray([j for j in order if j in kept])

    def signed(self, state: Unmixing) -> Unmixing:
        """The sources with the sign that makes the largest entry of their mixing positive."""
        largest = np.argmax(np.abs(state.mixing), axis=0)
        places = np.arange(state.mixing.shape[1])
        return _flipped(state, np.where(state.mixing[largest, places] < 0, -1.0, 1.0))

    def permuted(self, state: Unmixing, order: Array) -> Unmixing:
        return replace(
            state,
            unmixing=state.unmixing[order],
            mixing=state.mixing[:, order],
            noise=state.noise[np.ix_(order, order)],
            kurtosis=state.kurtosis[order],
            kurtosis_error=state.kurtosis_error[order],
        )

    def parameters(self, frame: Frame, state: Unmixing) -> dict[str, Array]:
        return {
            "mixing": state.mixing,
            "components": state.unmixing,
            "kurtosis": state.kurtosis,
        }

    def presented(self, frame: Frame, state: Unmixing) -> Unmixing:
        return self.permuted(self.signed(state), self.order(frame, state))

    def aligned(
        self, frame: Frame, state: Unmixing, center: Mapping[str, Array], match_by: str
    ) -> Unmixing:
        """Sources in the order of the fitted ones and with their signs, by their mixing."""
        order, signs = matched_directions(center["mixing"], state.mixing)
        return _flipped(self.permuted(state, order), signs)

    def of_parts(self, state: Unmixing) -> ICAModel:
        return self.with_count(len(state.unmixing))

    def resampled_frame(self, frame: Frame, answer: Answer[Unmixing], known: Joint) -> Frame:
        """The kind of noise of resamples is that of all samples.

        A covariance of resampled groups strays further from any noise than that of samples does,
        and would refute them all.
        """
        assert answer.state is not None
        rng = np.random.default_rng(frame["seed"])
        kind = self.read_off(frame, known, rng).state.noise_kind  # type: ignore[union-attr]
        count = len(answer.state.unmixing)
        return replace(frame, values={**frame.values, "kind": kind, "count": count})


def _flipped(state: Unmixing, signs: Array) -> Unmixing:
    return replace(
        state,
        unmixing=state.unmixing * signs[:, None],
        mixing=state.mixing * signs,
        noise=state.noise * np.outer(signs, signs),
    )
