"""How many sources: those that are not Gaussian in samples that did not find them.

The covariance says how many directions hold more than noise. Both halves of the samples, blocks
in time, are unmixed along these. A source counts where its two estimates agree (squared
correlation above 1/2) and where neither is Gaussian on the half that the other was found in:
unmixing looks for what is not Gaussian, and finds some in any sample it may choose from. With the
central moments m_q of n samples and autocovariances g(t) (Lobato and Velasco 2004),

    G = n m_3^2 / (6 sum_t g(t)^3) + z^2,   z = f(m_4 / m_2^2, n / sum_t g(t)^4),

is chi-squared with 2 degrees of freedom for a Gaussian process, and the sum of both halves with 4.
The root of Anscombe and Glynn (1983), f, makes the kurtosis of so many samples normal.
That is a process whose autocovariances vanish with time. A source that repeats itself throughout
the samples, as a sine does, is none, whatever G says.

Independent sources of any variances, one in every sensor, have the covariance of noise. So what is
taken for noise must be Gaussian: otherwise samples are unmixed along all directions.

A single gross error is in both halves' estimates, since all rows are compared. So rows where
Gaussian ones never are do not count, as long as they are fewer than a source needs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from scipy.special import chdtrc, chdtri

from latensor.arrays import Array, one_blas_thread
from latensor.estimation.halves import UNITS, UNITS_A_COMPONENT
from latensor.estimation.learn import learn
from latensor.estimation.model import Effort
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.ica.signal_space import Spectrum, signal_space, spectrum
from latensor.moments.batch import Batch
from latensor.moments.fourth import MOST_DIRECTIONS
from latensor.moments.row_sums import CovarianceSums, centre_of
from latensor.moments.second import Covariance
from latensor.moments.unit_sample import Sample
from latensor.value_files import storable

if TYPE_CHECKING:
    from latensor.models.ica.model import ICAModel

# Blocks of samples in time, every other one in the same half.
_BLOCKS = 20
# How often any of Gaussian sources is taken for another one.
_LEVEL = 1e-3
# The approximation of the kurtosis of Gaussian samples is one of so many and more.
_FEWEST = 20.0
# The squared correlation above which two estimates are more alike than not.
_ALIKE = 0.5
# A source repeats itself where its correlation with itself, a lag between these fractions of the
# samples later, is so high, has been so low before, and is still so high at twice the lag. Of 300
# series of 1,000 numbers no white noise and no random walk was taken for one, 2 and 1 of
# autoregressions of .99 and .999; sines, squares and sawteeth of 2.5 to 8 periods always were.
_LAGS = (0.2, 0.45)
_AGAIN, _BETWEEN, _TWICE = 0.7, -0.3, 0.5


@storable
@dataclass(frozen=True)
class SourceCount(Selection):
    """A number of sources and what spoke for it.

    Attributes
    ----------
    n_components : int, sources that are kept
    reason : str, in one sentence
    n_directions : int, along which samples are unmixed
    directions : (n_components, d), the unmixing of the sources kept, as one half found it
    statistics : (n_directions,), G of every source
    correlations : (n_directions,), squared, of its estimates from the two halves
    repeating : (n_directions,) of bool, whether it repeats itself throughout the samples
    """

    n_directions: int = 0
    directions: Any = None
    statistics: Any = None
    correlations: Any = None
    repeating: Any = False

    @property
    def in_halves(self) -> int:
        """The number of sources, where all are reproduced in the sense of `estimation.selection`.

        Others are not correlated with a source: it is nearer to its partner, four times, where
        their correlation is above 3/4. -1 where no source was told from a Gaussian one.
        """
        if self.choices.get("small") == 0:
            return -1
        if self.choices.get("small") != self.n_components:
            return 0
        kept = self.correlations[
            _are_sources(self.statistics, self.correlations, np.asarray(self.repeating))
        ]
        return self.n_components if (kept > 0.75**2).all() else 0

    def __str__(self) -> str:
        repeating = np.broadcast_to(self.repeating, np.shape(self.statistics))
        rows = (
            f"  not Gaussian by {value:10.4g}   squared correlation of halves {alike:.3f}"
            + "   repeats itself" * bool(again)
            for value, alike, again in zip(
                self.statistics, self.correlations, repeating, strict=True
            )
        )
        return "\n".join([f"{self.n_components} sources: {self.reason}", *rows])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, lists and strings."""
        return {
            **super().to_dict(),
            "n_directions": self.n_directions,
            "statistics": [float(v) for v in self.statistics],
            "correlations": [float(v) for v in self.correlations],
            "repeating": np.broadcast_to(self.repeating, np.shape(self.statistics)).tolist(),
        }


def choose_sources(run: Run, model: ICAModel, effort: Effort) -> SourceCount:
    """The sources that both halves find and that are not Gaussian.

    Parameters
    ----------
    run : the samples; up to 20,000 of them are looked at
    model : with n_components "auto"
    effort : how far fits of the halves go
    """
    units = run.fold("number of sources", Sample(UNITS, run.seed)).in_order()
    if len(units) <= model.n_features:
        raise NotIdentifiableError(
            f"n_components='auto' compares halves of the samples and needs more of them than the "
            f"{model.n_features} features, X has {len(units)}: give X.T if its columns are the "
            "samples, or say n_components"
        )
    units, known = _ordinary(run, units)
    seen = model.spectrum(known)
    count = model.count(known, seen)
    if count < seen.rank and not _rest_is_gaussian(units, known, seen, count):
        count = min(seen.rank, MOST_DIRECTIONS)
    first = np.arange(len(units)) * _BLOCKS // len(units) % 2 == 0
    parts = [units.take(np.flatnonzero(chosen)) for chosen in (first, ~first)]
    candidate = replace(model, n_components=count)
    try:
        fits = [learn(run.on(part), candidate, effort).answer.state for part in parts]
    except (NotIdentifiableError, InvalidInputError, np.linalg.LinAlgError):
        reason = "halves of the samples cannot be unmixed: all directions above the noise are kept"
        none = np.full(count, np.nan)
        return SourceCount(
            count, reason, n_directions=count, directions=None, statistics=none, correlations=none
        )
    with one_blas_thread():
        rows = np.asarray(units.rows, dtype=np.float64) - known.mean
        one, other = (rows @ fit.unmixing.T for fit in fits if fit is not None)
    cosines = _correlations(one, other, units.weights)
    partner = scipy.optimize.linear_sum_assignment(-(cosines**2))[1]
    other = other[:, partner]
    alike = cosines[np.arange(count), partner] ** 2
    values = _statistic(one[~first], parts[1]) + _statistic(other[first], parts[0])
    again = np.array([_repeats(series) for series in one.T])
    unmixing = fits[0].unmixing  # type: ignore[union-attr]
    return _counted(unmixing, values, alike, again)


def _ordinary(run: Run, units: Batch) -> tuple[Batch, Covariance]:
    """Samples without a few that are where no Gaussian ones are, and the covariance of the rest.

    Where these are more than a source needs they tell of one, and all samples stay.
    """

    def covariance(part: Batch) -> Covariance:
        start = CovarianceSums(centre_of(part))
        return run.on(part).fold("number of sources", start).finalize()

    whole = known = covariance(units)
    kept = units
    while len(kept) > known.covariance.shape[0]:
        seen = spectrum(known.covariance)
        with one_blas_thread():
            scores = (kept.rows - known.mean) @ seen.vectors[:, : seen.rank]
        distances = (scores**2 / seen.values[: seen.rank]).sum(axis=1)
        far = distances > chdtri(seen.rank, _LEVEL / len(kept))
        if not far.any():
            return kept, known
        kept = kept.take(np.flatnonzero(~far))
        if units.weight - kept.weight > 2 * UNITS_A_COMPONENT * units.weights.mean():
            break
        known = covariance(kept)
    return units, whole


def _rest_is_gaussian(units: Batch, known: Covariance, seen: Spectrum, count: int) -> bool:
    """Whether samples are Gaussian along the directions that hold noise alone.

    These are orthogonal to the signal in units of the noise; nothing was fitted to how samples are
    distributed along them.
    """
    space = signal_space(known, seen, count)
    scale = np.sqrt(space.sensor_noise)
    scale = np.where(scale > 0, scale, 1.0)
    with one_blas_thread():
        free = np.linalg.qr(space.lift / scale[:, None], mode="complete")[0][:, count:]
        rest = (np.asarray(units.rows, dtype=np.float64) - known.mean) @ (free / scale[:, None])
    return float(chdtrc(2 * rest.shape[1], _statistic(rest, units).sum())) > _LEVEL


def _repeats(series: Array) -> bool:
    """Whether a series (n,) in the order of time repeats itself throughout.

    Correlations are those of the first n - l and the last n - l numbers, for a lag l.
    """
    n = len(series)
    series = series - series.mean()
    length = 1 << int(2 * n).bit_length()
    products = np.fft.irfft(np.abs(np.fft.rfft(series, length)) ** 2, length)[:n]
    lags, left = np.arange(n), np.arange(n, 0, -1)
    sums, squares = (np.concatenate([[0.0], np.cumsum(series**q)]) for q in (1, 2))
    first, last = sums[left], sums[n] - sums[lags]
    spread = (squares[left] - first**2 / left) * (squares[n] - squares[lags] - last**2 / left)
    spread = np.sqrt(np.maximum(spread, np.finfo(float).tiny))
    alike = (products - first * last / left) / spread
    low = np.minimum.accumulate(alike)
    seen = np.arange(int(_LAGS[0] * n), int(_LAGS[1] * n))
    seen = seen[(alike[seen] > _AGAIN) & (low[seen] < _BETWEEN)]
    return bool((alike[2 * seen] > _TWICE).any())


def _are_sources(values: Array, alike: Array, again: Array) -> Array:
    """Which are not Gaussian, and like their estimate, in the half that did not find them."""
    chosen: Array = ((chdtrc(4, values) < _LEVEL / len(values)) | again) & (alike > _ALIKE)
    return chosen


def _counted(unmixing: Array, values: Array, alike: Array, again: Array) -> SourceCount:
    chosen = _are_sources(values, alike, again)
    found, count = int(chosen.sum()), len(chosen)
    reason = "each is not Gaussian, and like its estimate, in the half that did not find it"
    if (again & chosen & (chdtrc(4, values) >= _LEVEL / len(values))).any():
        reason = "each is not Gaussian or repeats itself, and halves of the samples find it alike"
    if found < count:
        reason += f"; a remainder of {count - found} directions is Gaussian as far as these tell"
    if found == 0:
        reason = "no source is clearly not Gaussian: one is kept that is as good as any"
        chosen = np.arange(count) == np.argmax(values)
    return SourceCount(
        max(found, 1),
        reason,
        {"small": found, "medium": found, "large": count},
        n_fits=2,
        n_directions=count,
        directions=unmixing[chosen],
        statistics=values,
        correlations=alike,
        repeating=again,
    )


def _correlations(one: Array, other: Array, weights: Array) -> Array:
    """Correlations (k, k) of the columns of two arrays."""
    weights = (weights / weights.sum())[:, None]
    scaled = []
    for values in (one, other):
        centred = (values - (weights * values).sum(axis=0)) * np.sqrt(weights)
        norms = np.linalg.norm(centred, axis=0)
        scaled.append(centred / np.where(norms > 0, norms, 1.0))
    return np.asarray(scaled[0].T @ scaled[1])


def _statistic(series: Array, part: Batch) -> Array:
    """G (k,) of series (n, k) in the order of time."""
    weights = (part.weights / part.weight)[:, None]
    centred = series - (weights * series).sum(axis=0)
    # In units of the standard deviation: nothing over- or underflows.
    spread = np.sqrt((weights * centred**2).sum(axis=0))
    centred = centred / np.where(spread > 0, spread, 1.0)
    third, fourth = ((weights * centred**q).sum(axis=0) for q in (3, 4))
    length = 1 << int(2 * len(series)).bit_length()
    power = np.abs(np.fft.rfft(centred, length, axis=0)) ** 2
    lags = np.fft.irfft(power, length, axis=0)[: len(series)] / len(series)
    lags = lags[1:] / np.maximum(lags[0], np.finfo(float).tiny)
    cubes, squares = (1 + 2 * (lags**q).sum(axis=0) for q in (3, 4))
    skewed = part.weight * third**2 / (6 * np.maximum(cubes, 1.0))
    return np.asarray(skewed + _normal_kurtosis(fourth, part.weight / squares) ** 2)


def _normal_kurtosis(kurtosis: Array, size: Array) -> Array:
    """Kurtoses of so many Gaussian samples as standard normal numbers (Anscombe, Glynn 1983)."""
    n = np.maximum(size, _FEWEST)
    variance = 24 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    excess = (kurtosis - 3 * (n - 1) / (n + 1)) / np.sqrt(variance)
    skewness = 6 * (n**2 - 5 * n + 2) / ((n + 7) * (n + 9))
    skewness = skewness * np.sqrt(6 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    freedom = 6 + 8 / skewness * (2 / skewness + np.sqrt(1 + 4 / skewness**2))
    ratio = 1 + excess * np.sqrt(2 / (freedom - 4))
    root = np.cbrt((1 - 2 / freedom) / np.where(ratio == 0, np.finfo(float).tiny, ratio))
    return np.asarray((1 - 2 / (9 * freedom) - root) / np.sqrt(2 / (9 * freedom)))
