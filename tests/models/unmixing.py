"""Exact moments of mixed sources, and how far an unmixing is from the truth."""

import numpy as np

from latensor.engines import LocalEngine
from latensor.moments.batch import Batch, Kind
from latensor.moments.fourth import FourthMoment
from latensor.sources.shards import Source


def amari_distance(unmixing, mixing):
    """0 where every row of the unmixing gives one source, at most 1."""
    gains = np.abs(unmixing @ mixing)
    count = len(gains)
    if count == 1:
        return 0.0
    rows = (gains / gains.max(axis=1, keepdims=True)).sum()
    columns = (gains / gains.max(axis=0, keepdims=True)).sum()
    return float(rows + columns - 2 * count) / (2 * count * (count - 1))


def population_moment(mixing, kurtosis, noise_covariance, mean=None, weight=1e24):
    """The FourthMoment of x = A h + z for endless samples, h of variance one."""
    d = len(mixing)
    covariance = mixing @ mixing.T + noise_covariance
    cumulant = np.einsum("j,aj,bj,cj,dj->abcd", kurtosis, mixing, mixing, mixing, mixing)
    mean = np.zeros(d) if mean is None else mean
    return FourthMoment(int(weight), weight, mean, covariance, np.eye(d), weight, cumulant)


def matched_columns(found, true):
    """Columns of `found` in the order and with the signs of `true`."""
    from scipy.optimize import linear_sum_assignment

    unit = found / np.linalg.norm(found, axis=0)
    gains = unit.T @ (true / np.linalg.norm(true, axis=0))
    rows, columns = linear_sum_assignment(-np.abs(gains))
    order = rows[np.argsort(columns)]
    return found[:, order] * np.sign(gains[order, np.arange(len(order))])


def over_scores(scores, weights=None, sensors=None, n_jobs=1):
    """Passes over scores in memory."""
    known = np.ones(len(scores)) if weights is None else np.asarray(weights, dtype=np.float64)
    parts = (scores, scores[:, :0] if sensors is None else sensors)
    units = Batch(parts, known, np.arange(len(scores), dtype=np.uint64))
    source, engine = Source.of(Kind.ROWS, units), LocalEngine(n_jobs)
    return lambda start: engine.fold(source, start)
