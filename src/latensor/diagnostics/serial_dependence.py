"""How much less samples tell that follow each other in time than independent ones would.

For independent sources with autocorrelations r(l), the mean of y_i y_j over n samples has the
variance of n / T_ij independent ones, T_ij = 1 + 2 sum_l r_i(l) r_j(l): what is slow in one source
costs only as far as the other is slow too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# So many rows are enough to see how they depend on each other.
MOST_ROWS = 5_000
# Where these lags show nothing, none are looked for.
_FIRST_LAGS = 4
_MOST_LAGS = 1_000
# Autocorrelations below so many standard errors are taken for none.
_CLEARLY = 4.0
# Less than this fraction of the samples lost is taken for chance.
_NEGLIGIBLE = 0.1


def serial_dependence(series: Any) -> Any:
    """Samples that tell as much as one independent one, of every pair of sources: T (k, k).

    All ones where samples do not depend on those before them. Rows equal to the one before are
    passed over: they stand for a weight.

    Parameters
    ----------
    series : (n, k), sources in the order in which they were observed
    """
    series = series[:MOST_ROWS]
    independent = np.ones((series.shape[1], series.shape[1]))
    if len(series) <= 4 * _FIRST_LAGS or not _shows(series):
        return independent
    fresh = np.concatenate([[True], (series[1:] != series[:-1]).any(axis=1)])
    if not fresh.all():
        series = series[fresh]
        if len(series) <= 4 * _FIRST_LAGS or not _shows(series):
            return independent
    n_rows = len(series)
    series = series - series.mean(axis=0)
    power = np.maximum((series**2).sum(axis=0), np.finfo(float).tiny)
    n_lags = min(_MOST_LAGS, n_rows // 4)
    length = 1 << int(n_rows + n_lags).bit_length()
    spectrum = np.abs(np.fft.rfft(series, length, axis=0)) ** 2
    lags = np.fft.irfft(spectrum, length, axis=0)[1 : n_lags + 1] / power
    lags[np.abs(lags) < _CLEARLY / np.sqrt(n_rows)] = 0.0
    # Decreasing weights keep the sum from being that of far lags, which are known worst.
    taper = 1 - np.arange(1, n_lags + 1) / (n_lags + 1)
    found = 1 + 2 * (lags * taper[:, None]).T @ lags
    return np.where(found > 1 + _NEGLIGIBLE, found, 1.0)


def _shows(series: Any) -> bool:
    """Whether the first lags show that rows depend on those before them."""
    series = series - series.mean(axis=0)
    power = np.maximum((series**2).sum(axis=0), np.finfo(float).tiny)
    products = [
        np.einsum("ij,ij->j", series[lag:], series[:-lag]) / power
        for lag in range(1, _FIRST_LAGS + 1)
    ]
    return bool(np.abs(products).max() * np.sqrt(len(series)) >= _CLEARLY)
