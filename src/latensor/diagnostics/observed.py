"""How noise moves the components of a fit to some of the entries only.

The tangent directions of all components, as in `conditioning`, are seen through the observed
entries: with U the rows of Terracini's matrix that were observed and white noise of unit variance,
(U'U)^-1 is the covariance of the coordinates along these directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from latensor.diagnostics.components import Components
from latensor.diagnostics.conditioning import (
    LARGEST_GRAM,
    ConditionNumber,
    Sensitivity,
    collected,
    tangent_frames,
    unknown,
)

_METHOD = "tangent directions at the observed entries"


def observed_sensitivity(components: Components, places: Sequence[Any]) -> Sensitivity:
    """The condition number of a masked fit, and what unit noise per entry does to each component.

    Parameters
    ----------
    components : Components
    places : one array of indices per mode, of the entries that were observed
    """
    rank, order, shape = components.rank, components.order, components.shape
    parameters = rank * (sum(shape) - order + 1)
    if (components.magnitudes == 0).any() or order < 2:
        return unknown(rank, order, ConditionNumber(np.inf, True, "a zero component"))
    if parameters > len(places[0]):
        reason = f"{parameters} parameters for {len(places[0])} observed entries"
        return unknown(rank, order, ConditionNumber(np.inf, True, reason))
    if rank * sum(shape) > LARGEST_GRAM:
        return unknown(rank, order, ConditionNumber(1.0, False, "too large to compute"))
    gram = _tangent_gram(components, places)
    values, vectors = scipy.linalg.eigh(gram, check_finite=False)
    # Squares of singular values have lost what is below the rounding of the largest.
    if values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        return unknown(rank, order, ConditionNumber(np.inf, True, _METHOD))
    variances = (np.abs(vectors) ** 2 @ (1.0 / values)).reshape(rank, -1)
    # Unlike that of a whole tensor it counts the entries left out: few of them magnify noise.
    condition = ConditionNumber(max(1.0, 1.0 / math.sqrt(values[0])), True, _METHOD)
    free = Components(components.weights, components.factors, False)
    return collected(free, shape, variances, np.zeros((rank, order)), condition)


def _tangent_gram(components: Components, places: Sequence[Any]) -> Any:
    """U'U for the rows of Terracini's matrix at `places`, component by component."""
    derivatives = _derivatives(components, places)
    raw = np.asarray((derivatives.conj().T @ derivatives).todense())
    rank, shape = components.rank, components.shape
    starts = np.concatenate([[0], np.cumsum([d * rank for d in shape])])
    columns = []
    frames = [tangent_frames(factor) for factor in components.factors]
    for j in range(rank):
        for mode, frame in enumerate(frames):
            # The component itself is the first direction of the first mode.
            kept = frame[j] if mode == 0 else frame[j][:, 1:]
            block = np.zeros((int(starts[-1]), kept.shape[1]), dtype=frame.dtype)
            block[starts[mode] + j + rank * np.arange(shape[mode])] = kept
            columns.append(block)
    basis = np.concatenate(columns, axis=1)
    return basis.conj().T @ (raw @ basis)


def _derivatives(components: Components, places: Sequence[Any]) -> Any:
    """Observed entries by the entries of the unit factors, mode by mode, row by row: sparse."""
    rank, shape = components.rank, components.shape
    rows = [factor[index] for factor, index in zip(components.factors, places, strict=True)]
    n = len(places[0])
    values, columns = [], []
    start = 0
    for mode, d in enumerate(shape):
        others = np.ones((n, rank), dtype=rows[0].dtype)
        for other, row in enumerate(rows):
            if other != mode:
                others = others * row
        values.append(others)
        columns.append(start + rank * places[mode][:, None] + np.arange(rank)[None, :])
        start += d * rank
    data, indices = np.concatenate(values, axis=1), np.concatenate(columns, axis=1)
    pointers = np.arange(n + 1) * indices.shape[1]
    return scipy.sparse.csr_array((data.ravel(), indices.ravel(), pointers), shape=(n, start))
