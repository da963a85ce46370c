"""Models that are read off mean, covariance and third moment: how these are gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import generator
from latensor.diagnostics.mixture_certificate import MixtureCertificate
from latensor.estimation.intervals import (
    Estimates,
    ResampledMixture,
    matched,
    random_groups,
    state_estimates,
)
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.moments.second import Covariance
from latensor.moments.third import GroupedThirdMoments, ThirdMoment, ThirdMomentAccumulator

# The third moment of more samples than this changes a start that is polished on all of them
# by less than the polish does.
_ROWS_FOR_START = 100_000
# Components that a stream makes room for where their number is left to the spectrum.
_MOST_AUTOMATIC = 20
# Deviations whose cubes are still numbers.
_NARROWEST = 1e-100


class ThirdMomentModel(ResampledMixture):
    """Base of the mixtures that three moments determine.

    A subclass defines

    _basis_of(known, count) : the directions (d, r), orthonormal, along which `fit` takes the
        third moment, from mean and covariance
    _count_automatically(known) : the number of components that the covariance shows
    _found(moment, count, rng) : what is read off, with its `state`, or None where three moments
        do not determine so many components
    _squares : whether E (x_i - m_i)^2 (x_l - m_l) is needed too
    """

    _squares: ClassVar[bool] = False
    _min_samples: ClassVar[int] = 2

    def _basis_of(self, known: Covariance, count: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must give its directions")

    def _count_automatically(self, known: Covariance) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its components")

    def _found(self, moment: ThirdMoment, count: int, rng: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must read its components off")

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

    def _gather(self, batches: Iterable[tuple[Any, Any]]) -> ThirdMomentAccumulator:
        """Moments with the third along the directions that all samples show."""
        moments = self._accumulator()
        for samples, weights in batches:
            moments.update_covariance(samples, weights)
        known = moments.covariance.finalize(host=True)
        moments.fix(self._basis_of(known, self._count(known)), known.mean)
        for samples, weights in batches:
            self._add_third(moments, samples, weights, known)
        return moments

    def _add_third(
        self, moments: ThirdMomentAccumulator, samples: Any, weights: Any, known: Covariance
    ) -> None:
        share = 1.0
        if len(samples) == known.count > _ROWS_FOR_START and self._refines():
            rng = generator(self.random_state)
            chosen = np.sort(rng.choice(len(samples), _ROWS_FOR_START, replace=False))
            samples, weights = samples[chosen], None if weights is None else weights[chosen]
            share = (_ROWS_FOR_START if weights is None else weights.sum()) / known.weight
        moments.update_third(samples, weights, share)

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
        if count > 1 and not np.diag(known.covariance).any():
            raise InvalidInputError(
                f"n_components={count} exceeds the 1 distinct samples of {known.count}: lower "
                "n_components or give more samples"
            )
        spread = float(np.sqrt(np.diag(known.covariance).max()))
        if count > 1 and spread < _NARROWEST:
            raise InvalidInputError(
                f"X varies by no more than {spread:.3g}, and its third moment underflows: give the "
                "samples in a larger unit"
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

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], Estimates]:
        """What is read off the moments of random groups of samples, each counted so many times."""
        count, rng = int(self.n_components_), generator(self.random_state)
        known = ThirdMomentAccumulator(1).update_covariance(samples).covariance.finalize(host=True)
        basis = self._basis_of(known, count)
        groups = random_groups(len(samples), n_groups, generator(self.random_state))
        moments = GroupedThirdMoments(samples, groups, n_groups, basis, known.mean, self._squares)
        fitted = self._estimates()

        def read(multiplicities: Any) -> Estimates:
            found = self._found(moments.resampled(multiplicities), count, rng)
            if found is None:
                raise NotIdentifiableError(
                    f"{count} components of {self.n_features_in_} features have no intervals from "
                    "three moments, which do not determine them"
                )
            return matched(state_estimates(found.state), fitted, "means")

        return read
