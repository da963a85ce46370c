"""Least squares with weights of low rank as one model: covariances from a fold, or the rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.diagnostics.design import unconverged
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, finding
from latensor.estimation.model import Answer, Frame, Model
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.models.regression.design import Regression, regression_of_moments, regression_of_rows
from latensor.models.regression.fit import (
    FOLD_SEED,
    N_FOLDS,
    RankScore,
    Settings,
    check_folds,
    fold_of,
    select_rank,
)
from latensor.models.regression.starts import Rank
from latensor.models.regression.tucker_weights import TuckerWeights
from latensor.models.regression.weights import CPWeights
from latensor.moments.batch import Batch, Kind
from latensor.moments.row_sums import CrossCovarianceSums, mean_of
from latensor.moments.second import CrossCovariance
from latensor.moments.sums import Folded, Grouped, Joint
from latensor.refinement.family import State
from latensor.value_files import storable

# Rows are replaced by their covariances where there are this many times more of them than entries.
_MANY_ROWS = 1.5
# Up to here, entries and targets together, covariances are kept (0.5 GB).
MAX_COVARIANCE = 8192


@storable
@dataclass(frozen=True)
class RegressionCertificate(Findings):
    """How well the data determine weights of low rank.

    Attributes
    ----------
    n_samples : float
    n_free : float, effective degrees of freedom of weights and intercepts
    r2 : float, of the training samples
    r2_cross_validated : float, by generalized cross-validation: an estimate for new samples
    converged : bool
    n_outputs : int, targets
    left_over : float, the largest component that the residuals still have, of the largest that
        noise has; 0 for matrices, which have no local optima to fear
    """

    n_samples: float
    n_free: float
    r2: float
    r2_cross_validated: float
    converged: bool
    n_outputs: int = 1
    left_over: float = 0.0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return f"weights with {self.n_free:.4g} degrees of freedom from {self.n_samples:g} samples"

    @finding("Prediction")
    def _prediction(self) -> Said:
        r2, held = self.r2, self.r2_cross_validated
        # What new samples lose: more than half of what they keep is what weights of noise lose.
        allowed = 0.5 * min(held, 1 - r2 + 0.2)
        worth = held * self.n_samples * self.n_outputs > self.n_free
        level = BAD if not worth else CAUTION if r2 - held > allowed else GOOD
        text = f"R2 is {r2:.3g} on these samples and about {held:.3g} on new ones."
        if not worth:
            text += " That is less than as many free weights gain on noise."
        if level != GOOD:
            text += " Lower the rank, raise alpha, or give more samples."
        return level, text

    @finding("Residuals")
    def _residuals(self) -> Said | None:
        if self.left_over <= 1:
            return None
        return CAUTION, (
            f"The residuals still have a component, {self.left_over:.2g} times what noise has: the "
            "rank is too low, alpha too large, or this is a local optimum. Try a higher rank."
        )

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return unconverged(self.converged)


@storable
@dataclass(frozen=True, eq=False)
class WeightState:
    """Fitted weights in the units of the data, and how they came about.

    Attributes
    ----------
    weights : CPWeights or TuckerWeights
    intercept : (q,)
    alpha, penalty : the ridge that was used
    rank : int, or one per mode
    scores : what cross-validation said of every rank that was tried
    certificate : RegressionCertificate or ClassCertificate
    n_iter : int
    """

    weights: CPWeights | TuckerWeights
    intercept: Any
    alpha: float
    penalty: str
    rank: Any
    scores: tuple[RankScore, ...]
    certificate: Findings
    n_iter: int


@dataclass(frozen=True)
class TensorModel(Model[State]):
    """What models of targets given tensors share: covariances around the means of the first rows.

    Attributes
    ----------
    dims : d_1, .., d_N
    n_outputs : int
    """

    dims: tuple[int, ...]
    n_outputs: int
    kind = Kind.TARGETED

    @property
    def _size(self) -> int:
        return math.prod(self.dims)

    def check_streaming(self) -> None:
        count = self._size + self.n_outputs
        if count > MAX_COVARIANCE:
            raise InvalidInputError(
                f"X and y have {count} entries together, but streams and sources keep their "
                f"covariances, for at most {MAX_COVARIANCE}: give all samples to fit as one array"
            )

    def survey(self, run: Run, streaming: bool) -> Frame:
        if run.source.original is None or streaming:
            self.check_streaming()
        first = run.source.head()
        x, y = (mean_of(part, first.weights) for part in first.parts)
        return Frame({"x": x, "y": y})


@dataclass(frozen=True)
class RegressionModel(TensorModel[WeightState]):
    """The settings of a regression on tensors (d_1, .., d_N).

    Attributes
    ----------
    settings : Settings
    rank : int, one per mode, or None to choose among `candidates`
    candidates : ranks, increasing
    """

    settings: Settings
    rank: Rank | None
    candidates: tuple[Rank, ...]

    def at_once(self, run: Run, frame: Frame) -> Answer[WeightState] | None:
        """Where there are few rows for their size, their covariances would be larger than they."""
        units = run.source.in_memory
        if run.source.original is None or units is None:
            return None
        if self._size + self.n_outputs <= MAX_COVARIANCE:
            many = _MANY_ROWS * self._size
            if len(units) > many:
                return None
            if scipy.sparse.issparse(units.rows) and units.rows.nnz > many * self._size:
                return None
        rank: Rank | None = self.rank
        scores: tuple[RankScore, ...] = ()
        if rank is None:
            errors = partial(self.settings.left_out, self._row_folds(units))
            rank, scores = select_rank(errors, self.candidates, self.settings.tol)
        return self._answer(self._of_rows(units), rank, scores)

    def _of_rows(self, units: Batch) -> Regression:
        rows, targets = units.parts
        return regression_of_rows(
            rows, targets, units.weights, self.dims, intercept=self.settings.intercept
        )

    def _row_folds(self, units: Batch) -> list[tuple[Regression, Callable[[Array], float]]]:
        place = fold_of(len(units))
        folds: list[tuple[Regression, Callable[[Array], float]]] = []
        for k in range(N_FOLDS):
            kept = self._of_rows(units.take(np.flatnonzero(place != k)))
            out = units.take(np.flatnonzero(place == k))
            folds.append((kept, partial(_error_on_rows, kept, out)))
        return folds

    def moments(self, frame: Frame) -> dict[str, Folded]:
        empty = CrossCovarianceSums(frame["x"], frame["y"])
        if self.rank is None:
            return {"folds": Grouped.of(empty, N_FOLDS, FOLD_SEED)}
        return {"covariances": empty}

    def read_off(self, frame: Frame, moments: Joint, rng: Any) -> Answer[WeightState]:
        if self.rank is not None:
            known = moments["covariances"].finalize()
            return self._answer(self._of_moments(known), self.rank, ())
        groups = moments["folds"]
        check_folds(sum(int(g.sums["count"]) for g in groups.groups if g.sums is not None))
        folds: list[tuple[Regression, Callable[[Array], float]]] = []
        for k in range(N_FOLDS):
            kept = self._of_moments(
                groups.resampled([float(j != k) for j in range(N_FOLDS)]).finalize()
            )
            folds.append((kept, partial(_error_on_moments, kept, groups.groups[k].finalize())))
        errors = partial(self.settings.left_out, folds)
        rank, scores = select_rank(errors, self.candidates, self.settings.tol)
        known = groups.resampled([1.0] * N_FOLDS).finalize()
        return self._answer(self._of_moments(known), rank, scores)

    def _of_moments(self, known: CrossCovariance) -> Regression:
        return regression_of_moments(known, self.dims, intercept=self.settings.intercept)

    def _answer(
        self, regression: Regression, rank: Rank, scores: tuple[RankScore, ...]
    ) -> Answer[WeightState]:
        path = self.settings.path(regression, rank)
        fitted, n = path.fitted, regression.n_samples
        factor = regression.y_scale / regression.x_scale
        dense = fitted.weights.dense() * factor
        extra = self.n_outputs if self.settings.intercept else 0
        total = regression.total
        constant = total <= np.finfo(float).tiny  # nothing to explain, and nothing learnt
        r2 = 0.0 if constant else 1 - 2 * fitted.loss / total
        # Of the mean alone, generalized cross-validation has the error total n q / (n q - q)^2.
        count = n * self.n_outputs
        null = total * count / max(count - extra, 1.0) ** 2
        held = 0.0 if constant else 1 - path.error / null
        free, converged = path.n_free + extra, fitted.converged
        certificate = RegressionCertificate(
            n, free, r2, float(held), converged, self.n_outputs, path.left_over
        )
        state = WeightState(
            fitted.weights.times(factor),
            regression.y_mean - regression.x_mean @ dense,
            path.alpha,
            fitted.ridge.penalty,
            rank,
            scores,
            certificate,
            fitted.n_iter,
        )
        return Answer(state, n_iter=fitted.n_iter)

    def check_resuming(self, answer: Answer[WeightState]) -> None:
        raise InvalidInputError(
            "this regression was fitted by fit to fewer samples than it keeps covariances for "
            f"({_MANY_ROWS} times the {self._size} entries of one): start a new one and give all "
            "batches to partial_fit"
        )


def _error_on_rows(kept: Regression, units: Batch, weights: Array) -> float:
    """The squared error of weights (D, q) on rows, relative to that of the mean of the others."""
    rows, targets = units.parts
    shift = kept.y_mean - kept.x_mean @ weights
    residual = targets - shift - np.asarray(rows @ weights)
    total = float(units.weights @ ((targets - kept.y_mean) ** 2).sum(axis=1))
    found = float(units.weights @ (residual**2).sum(axis=1))
    return found / total if total > 0 else 0.0


def _error_on_moments(kept: Regression, known: CrossCovariance, weights: Array) -> float:
    """The same from the covariances of the rows that were left out."""
    spread = float(np.trace(known.y_covariance))
    explained = np.einsum("iq,iq->", weights, known.cross_covariance)
    quadratic = np.einsum("iq,iq->", weights, known.x_covariance @ weights)
    gap = known.y_mean - kept.y_mean
    bias = gap - (known.x_mean - kept.x_mean) @ weights
    total = spread + float(gap @ gap)
    found = spread - 2 * float(explained) + float(quadratic) + float(bias @ bias)
    return max(found, 0.0) / total if total > 0 else 0.0
