"""Canonical directions from covariances or from samples, as a model of the one fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, RandomState, to_host
from latensor.diagnostics.serial_dependence import MOST_ROWS, serial_dependence
from latensor.estimation import host_dtype
from latensor.estimation.directions import matched_directions
from latensor.estimation.model import Answer, Frame, Model, Resumed
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.models.matrices.pca_spectrum import MAX_SPARSE_COVARIANCE
from latensor.moments import CrossCovariance, centered_operator
from latensor.moments.batch import Kind
from latensor.moments.batches import centered_rows, total_weight, weighted_mean
from latensor.moments.row_sums import CrossCovarianceSums, mean_of
from latensor.moments.score_spread import PairSpread
from latensor.moments.sums import Folded, Joint
from latensor.value_files import storable
from latensor.whitening import (
    CanonicalDirections,
    canonical_directions,
    canonical_directions_of_samples,
)

# Up to here, features of both views together, `fit` keeps its sums, so that it can be merged.
MOST_KEPT_FEATURES = 1000
# Up to here a stream keeps the covariances of both views together (0.5 GB).
_MAX_STREAM_FEATURES = 8192
# A sparse view with more features than a covariance is formed of is whitened in at most these.
_SPARSE_DIRECTIONS = 500


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
        keeps_sums = self.n_features + self.n_targets <= MOST_KEPT_FEATURES
        sums = None
        if by_covariance or keeps_sums:
            sums = run.fold("covariances", CrossCovarianceSums(frame["x"], frame["y"]))
        kept = {"sums": sums} if keeps_sums else {}
        if by_covariance and sums is not None:
            found = self._by_covariances(sums.finalize(), x, y)
            if found is not None:
                return self.locally(run, frame, Answer(found, kept))
        return self.locally(run, frame, Answer(self._by_samples(x, y, weights), kept))

    def locally(self, run: Run, frame: Frame, answer: Answer[CCAState]) -> Answer[CCAState]:
        """With how many independent Gaussian samples would tell as much of every pair.

        Gaussian scores of correlation r have E u^2 v^2 = 1 + 2 r^2: more is in few samples.
        """
        state = answer.state
        assert state is not None
        parts = (*state.means, *state.found[:3])
        *frames, correlations = (np.asarray(to_host(part), dtype=np.float64) for part in parts)
        start = PairSpread(*frames)
        excess = np.maximum(run.fold("pairs", start).finalize() / (1 + 2 * correlations**2), 1.0)
        series = np.hstack(start.scores(run.head(MOST_ROWS)))
        count = len(correlations)
        lost = np.diag(serial_dependence(series)[:count, count:])
        size = {"effective size": state.weight / (excess * lost)}
        return replace(answer, evidence={**answer.evidence, **size})

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
            return bool(view.shape[1] <= MAX_SPARSE_COVARIANCE)
        return bool(view.shape[1] < view.shape[0])

    def check_resuming(self, answer: Answer[CCAState]) -> None:
        if "sums" not in answer.evidence:
            raise InvalidInputError(
                "this CCA was fitted by fit on more features than it keeps sums for "
                f"({MOST_KEPT_FEATURES}): start a new one and give all batches to partial_fit"
            )

    def resumed(self, frame: Frame, answer: Answer[CCAState]) -> Resumed:
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
        return not scipy.sparse.issparse(view) or min(view.shape) <= MAX_SPARSE_COVARIANCE

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

    # ------------------------------------------------------------------ intervals
    def check_intervals(self) -> None:
        count = self.n_features + self.n_targets
        if self.n_directions is not None or count > MOST_KEPT_FEATURES:
            raise InvalidInputError(
                f"n_directions={self.n_directions} and {count} features together have no "
                "intervals, which come from the covariances of every group: leave n_directions at "
                f"None and give at most {MOST_KEPT_FEATURES} features"
            )

    def presented(self, frame: Frame, state: CCAState) -> CCAState:
        return state

    def parameters(self, frame: Frame, state: CCAState) -> dict[str, Array]:
        host = [np.asarray(to_host(part), dtype=np.float64) for part in state.found[:3]]
        x_loadings, y_loadings = (np.asarray(each, dtype=np.float64) for each in state.loadings)
        return {
            "correlations": host[2],
            "x_weights": host[0],
            "y_weights": host[1],
            "x_loadings": x_loadings,
            "y_loadings": y_loadings,
        }

    def aligned(
        self, frame: Frame, state: CCAState, center: Mapping[str, Array], match_by: str
    ) -> CCAState:
        """Pairs next to the fitted ones, with their signs; correlations stay in their order.

        Loadings tell pairs apart: scores of nearly the same variables have far weights where
        variables are collinear.
        """
        found, (x, y) = state.found, state.loadings
        # Both views count alike, whatever their units.
        known = [center["x_loadings"], center["y_loadings"]]
        units = [np.linalg.norm(each) for each in known]
        order, signs = matched_directions(
            np.vstack([known[0] / units[0], known[1] / units[1]]),
            np.vstack([x / units[0], y / units[1]]),
        )
        turned = found._replace(
            x_directions=found.x_directions[:, order] * signs,
            y_directions=found.y_directions[:, order] * signs,
        )
        return replace(state, found=turned, loadings=(x[:, order] * signs, y[:, order] * signs))


def _state_of(found: CanonicalDirections, moments: CrossCovariance) -> CCAState:
    loadings = (
        moments.x_covariance @ found.x_directions,
        moments.y_covariance @ found.y_directions,
    )
    return CCAState(found, (moments.x_mean, moments.y_mean), loadings, moments.weight)


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
