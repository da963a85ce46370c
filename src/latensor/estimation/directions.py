"""Directions of resamples beside those of a fit: which is which, and with which sign."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from latensor.arrays import Array


def matched_directions(known: Any, found: Any) -> tuple[Array, Array]:
    """The order (k,) and signs (k,) that bring columns next to known ones, by their cosines.

    Parameters
    ----------
    known, found : (d, k), columns of any length above zero
    """
    known, found = (np.asarray(each, dtype=np.float64) for each in (known, found))
    cosines = (known / np.linalg.norm(known, axis=0)).T @ (found / np.linalg.norm(found, axis=0))
    places, order = linear_sum_assignment(-np.abs(cosines))
    return np.asarray(order), np.where(cosines[places, order] < 0, -1.0, 1.0)
