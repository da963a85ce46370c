"""How many directions to keep, read off the spectrum (monograph 2.3)."""

from __future__ import annotations

from typing import Any

import numpy as np


def rank_by_fraction(variances: Any, total: float, fraction: float) -> int | None:
    """The smallest number of directions that explain more than a fraction of the variance.

    None where the given leading `variances` do not reach it.
    """
    if total <= 0:
        return 1
    reached = int(np.searchsorted(np.cumsum(variances) / total, fraction, side="right")) + 1
    return reached if reached <= len(variances) else None


def rank_by_gap(variances: Any, dimension: int) -> int:
    """The number of directions before the largest drop of the spectrum.

    The drop after direction j is the ratio of the variances j and j + 1 (Ahn and Horenstein's
    eigenvalue ratio): unlike a difference it does not favour the first direction of several that
    stand out. Variances below rounding count as equal, and beyond ten directions only the upper
    half of the spectrum is searched, because the ratios of the smallest variances of pure noise
    grow without bound.

    Parameters
    ----------
    variances : (m,) array in decreasing order, the leading ones
    dimension : int, the number of all variances, of which the given ones are the first
    """
    values = np.asarray(variances, dtype=np.float64)
    if values[0] <= 0 or len(values) == 1:
        return 1
    floor = dimension * np.finfo(np.float64).eps * values[0]
    values = np.maximum(values, floor)
    last = min(len(values) - 1, max(dimension // 2, 10))
    return int(np.argmax(values[:last] / values[1 : last + 1])) + 1
