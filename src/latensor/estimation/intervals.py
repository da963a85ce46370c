"""Intervals for the parameters of a mixture, by a bootstrap of its moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.arrays import check_positive_int, generator
from latensor.estimation.moment_model import MomentModel
from latensor.exceptions import InvalidInputError
from latensor.refinement.gaussian import GaussianState


@dataclass(frozen=True)
class ParameterInterval:
    """Ends of an interval for every entry of a parameter.

    Attributes
    ----------
    low, high : arrays of the parameter's shape
    """

    low: Any
    high: Any


class ResampledModel(MomentModel):
    """Base of the mixtures with `intervals`; a model gives `_state` and `_resampler`."""

    def _state(self) -> GaussianState:
        raise NotImplementedError(f"{type(self).__name__} must give its parameters")

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], GaussianState]:
        """A function from the multiplicities (n_groups,) of groups to the state read off."""
        raise NotImplementedError(f"{type(self).__name__} must read off moments of groups")

    def intervals(
        self,
        X: object,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for weights, means and variances, by a bootstrap of the moments.

        The samples are cut into groups, the moments of each are taken once, and resampled groups
        give resampled moments: no further pass over the data. Every resample is read off as the
        fit was and matched to the fitted components; the deviations from the read-off of all
        groups are laid around the fitted parameters. After a polish these intervals are wide
        rather than narrow: moments are noisier than the likelihood's estimate.

        Parameters
        ----------
        X : (n, d), samples of the fitted mixture, usually those it was fitted to
        level : float between 0 and 1, the share of intervals that hold the truth
        n_resamples : int
        n_groups : int

        Returns
        -------
        {"weights", "means", "covariances"} -> ParameterInterval of that shape
        """
        if not 0 < level < 1:
            raise InvalidInputError(f"level={level!r} must lie between 0 and 1, for example 0.95")
        n_resamples = check_positive_int(n_resamples, "n_resamples")
        n_groups = check_positive_int(n_groups, "n_groups")
        _, samples = self._read_new(X)
        if len(samples) < 2 * n_groups:
            raise InvalidInputError(
                f"n_groups={n_groups} needs at least {2 * n_groups} samples, X has {len(samples)}"
            )
        rng = generator(self.random_state)
        fitted = self._state()
        read = self._resampler(samples, n_groups)
        center = _matched(read(np.ones(n_groups)), fitted)
        drawn = []
        for _ in range(n_resamples):
            counts = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups))
            drawn.append(_matched(read(counts.astype(np.float64)), fitted))
        tails = [(1 - level) / 2, (1 + level) / 2]
        result = {}
        for name, attribute in (
            ("weights", "weights"),
            ("means", "means"),
            ("covariances", "variances"),
        ):
            middle = getattr(fitted, attribute)
            moves = np.stack([getattr(state, attribute) for state in drawn])
            low, high = np.quantile(moves - getattr(center, attribute), tails, axis=0)
            low, high = middle + low, middle + high
            if name == "weights":
                low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
            elif name == "covariances":
                low = np.maximum(low, 0)
            result[name] = ParameterInterval(low, high)
        return result


def _matched(state: GaussianState, fitted: GaussianState) -> GaussianState:
    """The components in the order of the fitted ones, by the nearest means."""
    squares = ((fitted.means[:, None] - state.means[None]) ** 2).sum(axis=2)
    order = linear_sum_assignment(squares)[1]
    return GaussianState(state.weights[order], state.means[order], state.variances[order])
