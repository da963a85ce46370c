"""Intervals for the parameters of a model, by a bootstrap of its moments."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.arrays import check_positive_int, generator
from latensor.estimation.moment_model import MomentModel
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.refinement.gaussian import GaussianState

_FEWEST_GROUPS = 5
# The values that parameters can take.
PROBABILITY = (0.0, 1.0)
NOT_NEGATIVE = (0.0, np.inf)

# Names of parameters to their values, components along the first axis.
Estimates = Mapping[str, Any]


@dataclass(frozen=True)
class ParameterInterval:
    """Ends of an interval for every entry of a parameter.

    Attributes
    ----------
    low, high : arrays of the parameter's shape, or lists of such where the parameter is a list
    """

    low: Any
    high: Any


@dataclass(frozen=True)
class Bootstrap:
    """The settings of a bootstrap, checked."""

    level: float
    n_resamples: int
    n_groups: int

    @classmethod
    def of(cls, level: float, n_resamples: int, n_groups: int) -> Bootstrap:
        """The settings as the caller gave them, or an error that names the bad one."""
        if not isinstance(level, numbers.Real) or not 0 < level < 1:
            raise InvalidInputError(f"level={level!r} must lie between 0 and 1, for example 0.95")
        n_groups = check_positive_int(n_groups, "n_groups")
        if n_groups < _FEWEST_GROUPS:
            raise InvalidInputError(
                f"n_groups={n_groups} must be at least {_FEWEST_GROUPS}: fewer do not tell how "
                "much they differ"
            )
        return cls(float(level), check_positive_int(n_resamples, "n_resamples"), n_groups)

    def intervals(
        self,
        fitted: Estimates,
        read: Callable[[Any], Estimates | None],
        ranges: Mapping[str, tuple[float, float]],
        rng: np.random.Generator,
    ) -> dict[str, ParameterInterval]:
        """Deviations of resampled estimates from those of all groups, around the fitted ones.

        Parameters
        ----------
        fitted : what the intervals are laid around
        read : from how often every group counts (n_groups,) to estimates, their components in
            the order of the fitted ones; None where a resample cannot be read off
        ranges : the values that a parameter can take, of any number by default
        rng : draws the resamples
        """
        center = read(np.ones(self.n_groups))
        drawn = []
        for _ in range(self.n_resamples):
            counts = rng.multinomial(self.n_groups, np.full(self.n_groups, 1 / self.n_groups))
            drawn.append(read(counts.astype(np.float64)))
        known = [estimates for estimates in drawn if estimates is not None]
        if center is None or 2 * len(known) < len(drawn):
            raise NotIdentifiableError(
                f"only {len(known)} of {len(drawn)} resamples of the moments determine the model: "
                "there are no intervals; give more samples or lower n_components"
            )
        tails = [(1 - self.level) / 2, (1 + self.level) / 2]
        result = {}
        for name, middle in fitted.items():
            moves = np.stack([estimates[name] for estimates in known]) - center[name]
            ends = np.quantile(moves, tails, axis=0) + middle
            low, high = np.clip(ends, *ranges.get(name, (-np.inf, np.inf)))
            result[name] = ParameterInterval(low, high)
        return result


class ResampledModel(MomentModel):
    """Base of the models of samples with `intervals`.

    A model gives `_estimates` (its fitted parameters), `_resampler` and `_ranges`, and
    `_presented` where users know the parameters in another shape.
    """

    _ranges: ClassVar[Mapping[str, tuple[float, float]]] = {
        "weights": PROBABILITY,
        "covariances": NOT_NEGATIVE,
    }

    def _estimates(self) -> Estimates:
        raise NotImplementedError(f"{type(self).__name__} must give its parameters")

    def _resampler(self, samples: Any, n_groups: int) -> Callable[[Any], Estimates | None]:
        """A function from the multiplicities (n_groups,) of groups to what is read off."""
        raise NotImplementedError(f"{type(self).__name__} must read off moments of groups")

    def _presented(self, found: dict[str, ParameterInterval]) -> dict[str, ParameterInterval]:
        return found

    def intervals(
        self,
        X: object,
        *,
        level: float = 0.95,
        n_resamples: int = 200,
        n_groups: int = 50,
    ) -> dict[str, ParameterInterval]:
        """Intervals for all parameters, by a bootstrap of the moments.

        The samples are cut into groups, the moments of each are taken once, and resampled groups
        give resampled moments: no further pass over the data. Every resample is read off as the
        fit was and matched to the fitted components; the deviations from the read-off of all
        groups are laid around the fitted parameters. After a polish these intervals are wide
        rather than narrow: moments are noisier than the likelihood's estimate.

        Parameters
        ----------
        X : samples of the fitted model, usually those it was fitted to
        level : float between 0 and 1, the share of intervals that hold the truth
        n_resamples : int
        n_groups : int

        Returns
        -------
        The fitted attributes, by name without the underscore at the end, -> ParameterInterval of
        that shape
        """
        settings = Bootstrap.of(level, n_resamples, n_groups)
        _, samples = self._read_new(X)
        count = self._n_rows(samples)
        if count < 2 * settings.n_groups:
            raise InvalidInputError(
                f"n_groups={n_groups} needs at least {2 * settings.n_groups} samples, X has {count}"
            )
        read = self._resampler(samples, settings.n_groups)
        rng = generator(self.random_state)
        return self._presented(settings.intervals(self._estimates(), read, self._ranges, rng))


class ResampledMixture(ResampledModel):
    """Base of the mixtures with `weights_`, `means_` and `covariances_`."""

    def _state(self) -> GaussianState:
        return GaussianState(
            np.asarray(self.weights_, dtype=np.float64),
            np.asarray(self.means_, dtype=np.float64),
            np.asarray(self.covariances_, dtype=np.float64),
        )

    def _estimates(self) -> Estimates:
        return state_estimates(self._state())


def state_estimates(state: GaussianState) -> dict[str, Any]:
    """Weights, means and variances under the names of the fitted attributes."""
    return {"weights": state.weights, "means": state.means, "covariances": state.variances}


def random_groups(n_rows: int, n_groups: int, rng: np.random.Generator) -> Any:
    """The group (n_rows,) of every row: groups of equal size, at random."""
    return rng.permutation(np.arange(n_rows) % n_groups)


def matched(found: Estimates, fitted: Estimates, by: str) -> dict[str, Any]:
    """Estimates with their components in the order of the fitted ones, by the nearest of a name."""
    gaps = fitted[by][:, None] - found[by][None]
    squares = (gaps**2).reshape(*gaps.shape[:2], -1).sum(axis=2)
    order = linear_sum_assignment(squares)[1]
    return {name: values[order] for name, values in found.items()}
