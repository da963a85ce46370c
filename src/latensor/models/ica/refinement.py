"""From what the moments say of sources to what all samples say: the refinement of `ICA`.

Under noise that the covariance shows, or none, a rotation is refined and then let go; under any
other noise the sources are unmixed without it. Which of the two is decided by what the sources
themselves show. Every pass over the samples is a fold.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from latensor.arrays import Array, one_blas_thread
from latensor.diagnostics.serial_dependence import MOST_ROWS, serial_dependence
from latensor.estimation.model import Answer
from latensor.estimation.run import Run
from latensor.models.ica.pairs import RefinedPairs, refine_pairs
from latensor.models.ica.read_off import Unmixing, fitted, read_off, turned_to
from latensor.models.ica.rotation import Refined, refine_rotation, refine_unconstrained
from latensor.models.ica.scores import MOST_SAMPLES
from latensor.models.ica.signal_space import Spectrum
from latensor.models.ica.sums import Pass, Scoring, scored
from latensor.moments.batch import Batch
from latensor.moments.second import Covariance
from latensor.moments.unit_sample import Sample

if TYPE_CHECKING:
    from latensor.models.ica.model import ICAModel

_MOST_PASSES = 50
# Rows on which a rotation is refined before the last moves over all of them.
_ROWS_TO_REFINE = 100_000
# Below this information in all samples, an unmixing without any knowledge of the noise is worse
# than the fit of the cumulant that it starts from.
_ENOUGH_INFORMATION = 1000.0
# The same where it starts from sources taken for noise-free that show noise.
_SOME_INFORMATION = 50.0
# Sources have noise where those without it are so far from independent this rarely.
_NOISE_SHOWS = 1e-3
# A mixing that the sensors show through Gaussian sources may be anything.
_NEARLY_INVERSE = 0.5
# Sources whose unmixing is nearer to singular than this have run into each other (otherwise the
# smallest singular value was above 0.3 on all noisy sets tried).
_COLLAPSED = 0.05
# Sources whose energies are correlated by more than this are not independent, and what noise would
# do to independent sources cannot be told from what they do to each other.
DEPENDENT = 0.1


class Refiner:
    """One refinement: the samples, and what the moments said of them.

    Parameters
    ----------
    model : ICAModel
    run : the samples
    answer : read off the moments, with its "moment"
    """

    def __init__(self, model: ICAModel, run: Run, answer: Answer[Unmixing]) -> None:
        self._model, self._run, self._answer = model, run, answer
        self._moment = answer.evidence["moment"]
        self._units = run.source.in_memory
        self._first = run.head(MOST_ROWS).rows - self._moment.mean
        self._passes = _MOST_PASSES if isinstance(model.refine, str) else int(model.refine)
        self._part = self._some()

    def _some(self) -> Batch | None:
        """As many rows, in their order, as a rotation needs; None for all of them."""
        if not isinstance(self._model.refine, str):
            return self._units
        if self._units is not None and len(self._units) <= _ROWS_TO_REFINE:
            return self._units
        empty = Sample.expecting(_ROWS_TO_REFINE, self._run.seed, self._moment.count)
        if self._units is not None:
            return empty.update(self._units).in_order()
        return self._run.fold("sample", empty).in_order()

    def _scores(self, projection: Array) -> tuple[Pass, Pass, Array]:
        """Passes over a part of the scores and over all, and the first of them."""
        scoring = Scoring(self._moment.mean, projection)
        part = scored(self._run, scoring, self._part)
        with one_blas_thread():
            first = self._first @ projection
        if self._part is self._units:
            return part, part, first
        return part, scored(self._run, scoring, self._units), first

    def refined(self) -> Answer[Unmixing]:
        """The answer of all samples."""
        found, weight = self._answer.state, min(self._moment.weight, MOST_SAMPLES)
        assert found is not None
        count = len(found.unmixing)
        if found.space is None:
            unconstrained, refined, pairs = self._unconstrained(found)
            # With more sensors than sources, their covariance has shown the noise.
            noise_detected = pairs.noise_p_value < _NOISE_SHOWS or self._n_directions() > count
            if not self._dependent(pairs) and (noise_detected or not refined.converged):
                shown = refined.information * weight
                if unconstrained is not None and shown.min() >= _ENOUGH_INFORMATION:
                    lost = shown / pairs.dependence / 2
                    return self._adopted(unconstrained, lost, refined.n_iter, pairs)
                return self._answer
            found = self._noise_free(count)
        assert found.space is not None
        part, whole, first = self._scores(found.space.projection)
        noise = found.space.noise
        turned = refine_rotation(part, noise, found.rotation, max_iter=self._passes)
        information, unmixing = turned.information * weight, turned.unmixing
        rest: RefinedPairs | None = None
        if turned.nearly:
            with one_blas_thread():
                lost = serial_dependence(first @ unmixing)
            information = information / np.diag(lost)
            rest = refine_pairs(whole, noise, unmixing, dependence=lost)
        noise_detected = False
        if rest is not None and self._dependent(rest):
            turned = refine_rotation(part, noise, unmixing, max_iter=self._passes, to_the_end=True)
            unmixing = turned.unmixing
        elif rest is not None:
            unmixing = rest.unmixing / np.linalg.norm(rest.unmixing, axis=0)
            # Directions that k sources leave over hold noise, whether the sources show it or not.
            noise_detected = rest.noise_p_value < _NOISE_SHOWS or self._n_directions() > count
        found = turned_to(found, unmixing, self._moment.fourth_weight)
        if self._model.noisy and found.noise_kind == "none" and noise_detected:
            start = fitted(
                self._moment, found.whitening.T, found.mixing, found.core, found.off_diagonal
            )
            unconstrained, refined, pairs = self._unconstrained(start)
            shown = refined.information * weight
            usable = refined.converged and shown.min() >= _SOME_INFORMATION
            if unconstrained is not None and usable:
                n_iter = turned.n_iter + refined.n_iter
                return self._adopted(unconstrained, shown / pairs.dependence / 2, n_iter, pairs)
        return self._adopted(found, information, turned.n_iter, rest)

    def _adopted(
        self, found: Unmixing, information: Array, n_iter: int, rest: RefinedPairs | None
    ) -> Answer[Unmixing]:
        energy = float("nan") if rest is None else rest.energy_correlation
        evidence: dict[str, Any] = {"information": information, "energy_correlation": energy}
        return replace(
            self._answer,
            state=found,
            n_iter=n_iter,
            evidence={**self._answer.evidence, **evidence},
        )

    def _dependent(self, pairs: RefinedPairs) -> bool:
        """Whether the sources are clearly not independent."""
        chance = float(np.sqrt(pairs.dependence / self._moment.weight))
        return pairs.energy_correlation > DEPENDENT + chance

    def _seen(self) -> Spectrum:
        moment = self._moment
        return self._model.spectrum(
            Covariance(moment.count, moment.weight, moment.mean, moment.covariance)
        )

    def _n_directions(self) -> int:
        return self._seen().rank

    def _noise_free(self, count: int) -> Unmixing:
        """What the moments say where there is no noise."""
        rng = self._run.rng("read off")
        return read_off(self._moment, self._seen(), count, False, rng, self._model.algorithm)

    def _unconstrained(self, found: Unmixing) -> tuple[Unmixing | None, Refined, RefinedPairs]:
        """Refined without any knowledge of the noise; None where sources ran into each other."""
        part, whole, first = self._scores(found.unmixing.T)
        refined = refine_unconstrained(part, max_iter=self._passes)
        with one_blas_thread():
            lost = serial_dependence(first @ refined.unmixing)
        pairs = refine_pairs(whole, None, refined.unmixing, with_sensors=True, dependence=lost)
        with one_blas_thread():
            columns = pairs.unmixing / np.linalg.norm(pairs.unmixing, axis=0)
            apart = np.linalg.svd(columns, compute_uv=False)[-1] >= _COLLAPSED
            if not apart:
                return None, refined, pairs
            unmixing = pairs.unmixing.T @ found.unmixing
            product = unmixing @ pairs.mixing
            if np.abs(product - np.eye(len(product))).max() < _NEARLY_INVERSE:
                # At the solution this product is the identity; what is left of it is rounding.
                mixing = pairs.mixing @ np.linalg.inv(product)
            else:
                mixing = np.linalg.solve(pairs.unmixing, found.mixing.T).T
        return replace(found, unmixing=unmixing, mixing=mixing), refined, pairs
