"""Directions: in which features vary, and which of a resample are which of a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.exceptions import InvalidInputError

# Eigenvalues of a correlation below this fraction of the largest are collinear columns.
_COLLINEAR = 1e-10


def varying_directions(covariance: Any) -> tuple[Array, Array]:
    """What makes features white, and what brings them back, without collinear columns.

    Parameters
    ----------
    covariance : (d, d). It is judged as a correlation: units of the features make none collinear

    Returns
    -------
    W, L : (d, r) with W' covariance W = I and L W' the identity on what varies

    Raises
    ------
    InvalidInputError, where nothing varies
    """
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if not spread.any():
        raise InvalidInputError("no feature of X varies: give samples that differ")
    scale = np.where(spread > 0, spread, 1.0)
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    kept = values > _COLLINEAR * values[-1]
    values, vectors = values[kept], vectors[:, kept]
    return vectors / np.sqrt(values) / scale[:, None], vectors * np.sqrt(values) * scale[:, None]


def matched_directions(known: Any, found: Any) -> tuple[Array, Array]:
    """The order (k,) and signs (k,) that bring columns next to known ones, by their cosines.

    Parameters
    ----------
    known, found : (d, k), columns of any length above zero
    """
    known, found = (np.asarray(each, dtype=np.float64) for each in (known, found))
    cosines = (known / np.linalg.norm(known, axis=0)).T @ (found / np.linalg.norm(found, axis=0))
    places, order = scipy.optimize.linear_sum_assignment(-np.abs(cosines))
    return np.asarray(order), np.where(cosines[places, order] < 0, -1.0, 1.0)
