"""Logistic and softmax regression with weights of low rank as one model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.diagnostics.design import unconverged
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, finding
from latensor.estimation.model import Answer, Frame
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.models.regression.class_path import ClassFit, fit_passes, fit_rows, select_class_rank
from latensor.models.regression.fit import RankScore, Settings
from latensor.models.regression.model import TensorModel, WeightState
from latensor.models.regression.starts import Rank
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CrossCovarianceSums
from latensor.moments.sums import Folded, Joint
from latensor.moments.unit_sample import Sample
from latensor.value_files import storable


@storable
@dataclass(frozen=True)
class ClassCertificate(Findings):
    """How well weights of low rank tell classes apart.

    Attributes
    ----------
    n_samples : float
    loss : float, the mean log loss of the training samples
    loss_left_out : float, the same by approximate leave-one-out: an estimate for new samples
    loss_null : float, that of the frequencies of the classes alone
    converged : bool
    """

    n_samples: float
    loss: float
    loss_left_out: float
    loss_null: float
    converged: bool

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return f"classes told apart by weights from {self.n_samples:g} samples"

    @finding("Prediction")
    def _prediction(self) -> Said:
        held, null = self.loss_left_out, self.loss_null
        level = GOOD
        if not held < null:
            level = BAD
        elif held - self.loss > 0.5 * (null - held):
            level = CAUTION
        text = (
            f"log loss is {self.loss:.3g} on these samples and about {held:.3g} on new ones; "
            f"frequencies of the classes alone have {null:.3g}."
        )
        if level != GOOD:
            text += " Lower the rank, raise alpha, or give more samples."
        return level, text

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return unconverged(self.converged)


@dataclass(frozen=True)
class ClassModel(TensorModel[WeightState]):
    """The settings of a classifier of tensors (d_1, .., d_N).

    The likelihood of labels is no function of a few sums: rows in memory are fitted as they are;
    of anything else covariances give the start, and every step of Fisher scoring is a fold.

    Attributes
    ----------
    settings : Settings
    rank : int, one per mode, or None to choose among `candidates`
    candidates : ranks, increasing
    """

    settings: Settings
    rank: Rank | None
    candidates: tuple[Rank, ...]

    def is_pilot(self, held: Sequence[Batch]) -> bool:
        return False  # a stream keeps all of its rows

    def check_streaming(self) -> None:
        """A stream keeps rows, not covariances."""

    def survey(self, run: Run, streaming: bool) -> Frame:
        if streaming:
            raise InvalidInputError(
                "spawn has no coordinates to share: the likelihood of labels is no function of a "
                "few sums. Let workers partial_fit models of their own and merge those, or give "
                "all batches to fit as one source"
            )
        if run.source.in_memory is not None:
            return Frame({})
        super().check_streaming()
        return super().survey(run, streaming)

    def at_once(self, run: Run, frame: Frame) -> Answer[WeightState]:
        units = run.source.in_memory
        if units is not None:
            rank, scores = self._ranked(units)
            _, labels = units.parts
            chances = units.weights @ labels / units.weight
            self._check_classes(chances)
            fit = fit_rows(units, self.dims, rank, self.settings)
            return self._answer(fit, rank, scores, chances)
        moments: dict[str, Folded] = {"covariances": CrossCovarianceSums(frame["x"], frame["y"])}
        if self.rank is None:
            moments["rows"] = Sample(self.search_size, run.seed)
        found = run.fold("moments", Joint(moments))
        known = found["covariances"].finalize()
        self._check_classes(known.y_mean)
        rank, scores = self._ranked(found["rows"].units if self.rank is None else None)
        fit = fit_passes(run, known, self.dims, rank, self.settings)
        return self._answer(fit, rank, scores, known.y_mean)

    def _ranked(self, units: Batch | None) -> tuple[Rank, tuple[RankScore, ...]]:
        if self.rank is not None or units is None:
            assert self.rank is not None
            return self.rank, ()
        return select_class_rank(units, self.dims, self.candidates, self.settings)

    def _check_classes(self, chances: Any) -> None:
        """Refuse labels of one class: no weights maximize their likelihood."""
        tiny = float(np.finfo(float).eps) * len(chances)
        if float(np.max(np.append(chances, 1 - chances[:1]))) >= 1 - tiny:
            raise InvalidInputError(
                "y needs samples of at least 2 classes in the data, but all have the same label: "
                "give samples of the others"
            )

    def _answer(
        self, fit: ClassFit, rank: Rank, scores: tuple[RankScore, ...], chances: Any
    ) -> Answer[WeightState]:
        fitted, n = fit.fitted, fit.regression.n_samples
        every = np.append(chances, 1 - chances) if len(chances) == 1 else chances
        seen = every[every > 0]
        certificate = ClassCertificate(
            n, fitted.loss / n, fit.error, float(-seen @ np.log(seen)), fitted.converged
        )
        state = WeightState(
            fitted.weights.times(1 / fit.regression.x_scale),
            fit.intercept(),
            fit.alpha,
            fitted.ridge.penalty,
            rank,
            scores,
            certificate,
            fitted.n_iter,
        )
        return Answer(state, n_iter=fitted.n_iter)

    def check_resuming(self, answer: Answer[WeightState]) -> None:
        raise InvalidInputError(
            "a classifier that fit has learned keeps no samples, and the likelihood of labels is "
            "no function of a few sums: start a new one and give all batches to partial_fit, which "
            "keeps them in memory, or to fit as one source"
        )
