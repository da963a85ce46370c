"""Models that are read off mean, covariance and third moment: how these are gathered."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from latensor.arrays import generator
from latensor.diagnostics.mixture_certificate import MixtureCertificate
from latensor.estimation.moment_model import MomentModel
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.second import Covariance
from latensor.moments.third import GroupedThirdMoments, ThirdMomentAccumulator

# The third moment of more samples than this changes a start that is polished on all of them
# by less than the polish does.
_ROWS_FOR_START = 100_000
# Components that a stream makes room for where their number is left to the spectrum.
_MOST_AUTOMATIC = 20


class ThirdMomentModel(MomentModel):
    """Base of the mixtures that three moments determine.

    A subclass defines

    _basis_of(known, count) : the directions (d, r), orthonormal, along which `fit` takes the
        third moment, from mean and covariance
    _count_automatically(known) : the number of components that the covariance shows
    _squares : whether E (x_i - m_i)^2 (x_l - m_l) is needed too
    """

    _squares: ClassVar[bool] = False
    _min_samples: ClassVar[int] = 2

    def _basis_of(self, known: Covariance, count: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must give its directions")

    def _count_automatically(self, known: Covariance) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its components")

    def _stream_rank(self, count: int) -> int:
        """Directions in which a stream of many features keeps the third moment."""
        return max(2 * count, count + 20)

    def _check_stream(self) -> None:
        """Refuse what can be fitted but not streamed."""

    def _new_moments(self) -> ThirdMomentAccumulator:
        self._check_stream()
        return self._accumulator()

    def _accumulator(self) -> ThirdMomentAccumulator:
        wanted = self.n_components
        count = _MOST_AUTOMATIC if isinstance(wanted, str) else int(wanted)
        return ThirdMomentAccumulator(
            self._stream_rank(count), squares=self._squares, n_threads=self._n_threads()
        )

    def _gather(self, samples: Any, weights: Any) -> ThirdMomentAccumulator:
        """Moments with the third along the directions that all samples show."""
        moments = self._accumulator().update_covariance(samples, weights)
        known = moments.covariance.finalize(host=True)
        moments.fix(self._basis_of(known, self._count(known)), known.mean)
        n_rows = len(samples)
        if n_rows <= _ROWS_FOR_START or not self._refines():
            return moments.update_third(samples, weights, 1.0)
        rng = generator(self.random_state)
        chosen = np.sort(rng.choice(n_rows, _ROWS_FOR_START, replace=False))
        part = None if weights is None else weights[chosen]
        share = _ROWS_FOR_START / n_rows if part is None else part.sum() / known.weight
        return moments.update_third(samples[chosen], part, share)

    def _count(self, known: Covariance) -> int:
        """The number of components, given or shown by the covariance."""
        if isinstance(self.n_components, str):
            # Three samples a component are the least that show one.
            return max(1, min(self._count_automatically(known), int(known.weight) // 3))
        count = int(self.n_components)
        if count > known.count:
            raise InvalidInputError(
                f"n_components={count} exceeds the n_samples={known.count} given: lower "
                "n_components or give more samples"
            )
        return count

    def _refuse_unidentified(self, found: Any, count: int, limit: str) -> None:
        """An error where moments alone determine nothing; `limit` says what they could."""
        if found is None:
            raise NotIdentifiableError(
                f"n_components={count} means in {self.n_features_in_} dimensions are not "
                f"determined by three moments (their condition number is infinite): {limit}"
            )
        if found.gap < 1:
            raise NotIdentifiableError(
                f"n_components={count}: the means are affinely dependent as far as these samples "
                f"can tell (condition number {found.condition:.3g}, narrowest direction "
                f"{found.gap:.2g} times as wide as noise reaches): lower n_components, give more "
                "samples, or, for a Gaussian mixture, leave refine at 'auto' to fit by likelihood"
            )

    def _certificate(
        self, found: Any, method: str, separation: float, constant: tuple[int, ...], **more: Any
    ) -> MixtureCertificate:
        unknown = float("nan")
        return MixtureCertificate(
            n_components=self.n_components_,
            n_features=self.n_features_in_,
            method=method,
            off_diagonal=found.off_diagonal if found is not None else unknown,
            condition=found.condition if found is not None else float("inf"),
            gap=found.gap if found is not None else unknown,
            separation=separation,
            constant_features=constant,
            **more,
        )

    def _grouped(self, samples: Any, n_groups: int) -> GroupedThirdMoments:
        """The moments of random groups of samples, for a bootstrap."""
        gathered = ThirdMomentAccumulator(1).update_covariance(samples)
        known = gathered.covariance.finalize(host=True)
        basis = self._basis_of(known, int(self.n_components_))
        rng = generator(self.random_state)
        groups = rng.permutation(np.arange(len(samples)) % n_groups)
        return GroupedThirdMoments(samples, groups, n_groups, basis, known.mean, self._squares)
