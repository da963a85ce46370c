"""From what the moments say of sources to what all samples say: the polish of `ICA`.

Under noise that the covariance shows, or none, a rotation is polished and then let go; under any
other noise the sources are unmixed without it. Which of the two is decided by what the sources
themselves show.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from latensor.arrays import generator, one_blas_thread
from latensor.estimation.ica_answers import UnmixingAnswers
from latensor.estimation.ica_certificate import TOGETHER
from latensor.estimation.ica_read_off import Unmixing, fitted, read_off, turned_to
from latensor.estimation.ica_signal import Spectrum
from latensor.moments.fourth import FourthMoment
from latensor.moments.second import Covariance
from latensor.refinement.ica import Polished, polish, polish_freely
from latensor.refinement.ica_dependence import MOST_ROWS, serial_dependence
from latensor.refinement.ica_pairs import Settled, settle

_MOST_PASSES = 50
# Rows on which the polish runs before the last moves over all of them.
_ROWS_TO_POLISH = 100_000
# Below this information in all samples, an unmixing without any knowledge of the noise is worse
# than the fit of the cumulant that it starts from.
_ENOUGH_INFORMATION = 1000.0
# The same where it starts from sources taken for noise-free that show noise.
_SOME_INFORMATION = 50.0
# Sources have noise where those without it are so far from independent this rarely.
_NOISE_SHOWS = 1e-3
# A polish on fewer rows than this share of a stream is less exact than the moments of all.
_ENOUGH_ROWS = 0.25
# A mixing that the sensors show through Gaussian sources may be anything.
_NEARLY_INVERSE = 0.5
# Sources whose unmixing is nearer to singular than this have run into each other (otherwise the
# smallest singular value was above 0.3 on all noisy sets tried).
_RUN_TOGETHER = 0.05


class PolishedUnmixing(UnmixingAnswers):
    """Base of `ICA`, which gives `_adopt`, and reads `_moment` and `_found` off the moments."""

    _moment: FourthMoment
    _found: Unmixing

    def _adopt(
        self, found: Unmixing, information: Any, n_iter: int, rest: Settled | None = None
    ) -> None:
        raise NotImplementedError(f"{type(self).__name__} must set its attributes")

    def _polish(self, samples: Any, weights: Any) -> None:
        moment, found = self._moment, self._found
        weight = float(len(samples)) if weights is None else float(weights.sum())
        if weight < _ENOUGH_ROWS * moment.weight:
            return
        centered = samples - moment.mean
        count = len(found.unmixing)
        if found.space is None:
            freed, polished, settled = self._freed(found, centered, weights)
            # With more sensors than sources, their covariance has shown the noise.
            heard = settled.noise_p_value < _NOISE_SHOWS or self._n_directions() > count
            if not self._together(settled, weight) and (heard or not polished.converged):
                shown = polished.information * weight
                if freed is not None and shown.min() >= _ENOUGH_INFORMATION:
                    self._adopt(freed, shown / settled.dependence / 2, polished.n_iter, settled)
                return
            found = self._silent()
        assert found.space is not None
        with one_blas_thread():
            scores = centered @ found.space.projection
        noise, threads = found.space.noise, self._n_threads()
        part, shares = self._some(scores, weights)
        passes = _MOST_PASSES if isinstance(self.refine, str) else int(self.refine)
        turned = polish(part, shares, noise, found.rotation, max_iter=passes, n_threads=threads)
        information, unmixing = turned.information * weight, turned.unmixing
        rest: Settled | None = None
        if turned.nearly:
            with one_blas_thread():
                lost = serial_dependence(scores[:MOST_ROWS] @ unmixing)
            information = information / np.diag(lost)
            rest = settle(scores, weights, noise, unmixing, dependence=lost, n_threads=threads)
        heard = False
        if rest is not None and self._together(rest, weight):
            turned = polish(
                part, shares, noise, unmixing, max_iter=passes, to_the_end=True, n_threads=threads
            )
            unmixing = turned.unmixing
        elif rest is not None:
            unmixing = rest.unmixing / np.linalg.norm(rest.unmixing, axis=0)
            # Directions that k sources leave over hold noise, whether the sources show it or not.
            heard = rest.noise_p_value < _NOISE_SHOWS or self._n_directions() > count
        found = turned_to(found, unmixing, moment.fourth_weight)
        if self.noise is not None and found.noise_kind == "none" and heard:
            share = found.off_diagonal
            start = fitted(moment, found.whitening.T, found.mixing, found.core, share)
            freed, polished, settled = self._freed(start, centered, weights)
            shown = polished.information * weight
            usable = polished.converged and shown.min() >= _SOME_INFORMATION
            if freed is not None and usable:
                shown = shown / settled.dependence / 2
                self._adopt(freed, shown, turned.n_iter + polished.n_iter, settled)
                return
        self._adopt(found, information, turned.n_iter, rest)

    def _together(self, settled: Settled, weight: float) -> bool:
        """Whether the sources are clearly not independent."""
        chance = float(np.sqrt(settled.dependence / weight))
        return settled.energy_correlation > TOGETHER + chance

    def _some(self, scores: Any, weights: Any) -> tuple[Any, Any]:
        """As many rows, in their order, and their weights, as the polish needs."""
        if len(scores) <= _ROWS_TO_POLISH or not isinstance(self.refine, str):
            return scores, weights
        rng = generator(self.random_state)
        chosen = np.sort(rng.choice(len(scores), _ROWS_TO_POLISH, replace=False))
        return scores[chosen], None if weights is None else weights[chosen]

    def _seen(self) -> Spectrum:
        moment = self._moment
        return self._spectrum(
            Covariance(moment.count, moment.weight, moment.mean, moment.covariance)
        )

    def _n_directions(self) -> int:
        return self._seen().rank

    def _silent(self) -> Unmixing:
        """What the moments say where there is no noise."""
        rng, count = generator(self.random_state), int(self.n_components_)
        return read_off(self._moment, self._seen(), count, False, rng, self.algorithm)

    def _freed(
        self, found: Unmixing, centered: Any, weights: Any
    ) -> tuple[Unmixing | None, Polished, Settled]:
        """Polished without any knowledge of the noise; None where sources ran into each other."""
        passes = _MOST_PASSES if isinstance(self.refine, str) else int(self.refine)
        threads = self._n_threads()
        with one_blas_thread():
            scores = centered @ found.unmixing.T
        part, shares = self._some(scores, weights)
        polished = polish_freely(part, shares, max_iter=passes, n_threads=threads)
        with one_blas_thread():
            lost = serial_dependence(scores[:MOST_ROWS] @ polished.unmixing)
        settled = settle(
            scores,
            weights,
            None,
            polished.unmixing,
            sensors=centered,
            dependence=lost,
            n_threads=threads,
        )
        with one_blas_thread():
            columns = settled.unmixing / np.linalg.norm(settled.unmixing, axis=0)
            apart = np.linalg.svd(columns, compute_uv=False)[-1] >= _RUN_TOGETHER
            if not apart:
                return None, polished, settled
            unmixing = settled.unmixing.T @ found.unmixing
            product = unmixing @ settled.mixing
            if np.abs(product - np.eye(len(product))).max() < _NEARLY_INVERSE:
                # At the solution this product is the identity; what is left of it is rounding.
                mixing = settled.mixing @ np.linalg.inv(product)
            else:
                mixing = np.linalg.solve(settled.unmixing, found.mixing.T).T
        return replace(found, unmixing=unmixing, mixing=mixing), polished, settled
