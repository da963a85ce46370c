"""The largest canonical correlation of views that have nothing to do with each other."""

from __future__ import annotations

import numpy as np

# The 99th percentile of the Tracy-Widom law of order one.
_TRACY_WIDOM = 2.0234


def largest_noise_correlation(x_rank: int, y_rank: int, weight: float) -> float:
    """What the first correlation of independent Gaussian views stays below in 99 of 100 samples.

    Johnstone's approximation of the largest root of a double Wishart problem (Annals of Statistics
    36, 2008): with N = n - 1 degrees of freedom and angles sin^2(a / 2) = (min(p, q) - 1/2) /
    (N - 1), sin^2(b / 2) = (max(p, q) - 1/2) / (N - 1), the logit of the squared correlation is
    about m + s W, W of the law of Tracy and Widom, m = 2 log tan((a + b) / 2) and
    s^3 = 16 / ((N - 1)^2 sin^2(a + b) sin a sin b). One where the views saturate the samples.

    Parameters
    ----------
    x_rank, y_rank : int, directions of either view
    weight : float, number of samples
    """
    degrees = weight - 2
    low, high = sorted((x_rank, y_rank))
    if low + high > weight - 1 or (high - 0.5) >= degrees:
        return 1.0
    first, second = (2 * np.arcsin(np.sqrt((size - 0.5) / degrees)) for size in (low, high))
    if first + second >= np.pi:
        return 1.0
    middle = 2 * np.log(np.tan((first + second) / 2))
    spread = np.sin(first + second) ** 2 * np.sin(first) * np.sin(second)
    scale = (16 / degrees / degrees / spread) ** (1 / 3)
    return float(np.sqrt(1 / (1 + np.exp(-(middle + _TRACY_WIDOM * scale)))))
