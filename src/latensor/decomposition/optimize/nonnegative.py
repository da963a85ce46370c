"""Updates of one factor under the constraint that no entry is negative."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latensor.arrays import Array, is_numpy, like, to_host
from latensor.decomposition.optimize.alternating import row_norms

_PASSES = 5


def nonnegative_rows(gamma: Array, right: Array, factor: Array) -> Array:
    """Lower |A K' - T_(n)| over nonnegative A by passes over its components (HALS).

    Each component in turn takes its exact constrained optimum,
    a_j = max(0, a_j + (m_j - sum_l Gamma_jl a_l) / Gamma_jj), which never raises the loss.

    Parameters
    ----------
    gamma : (rank, rank) array
    right : (rank, d) array, the mttkrp
    factor : (rank, d) array, the present factor; not changed
    """
    rows = np.maximum(to_host(factor), 0.0)
    if rows is factor:
        rows = rows.copy()
    target = to_host(right)
    for _ in range(_PASSES):
        largest = 0.0
        for j in np.flatnonzero(gamma.diagonal() > 0):
            change = np.maximum(-rows[j], (target[j] - gamma[j] @ rows) / gamma[j, j])
            rows[j] += change
            largest = max(largest, float(np.abs(change).max()))
        if largest <= 1e-12 * float(np.abs(rows).max(initial=0.0)):
            break
    return rows if is_numpy(factor) else like(rows, factor)


def nonnegative_part(factors: Sequence[Array]) -> tuple[Array, ...]:
    """Host factors with signs turned, two modes at a time, so that most of each component is
    positive, and the rest cut off; a component that would vanish keeps a small uniform part.
    """
    rows = [np.array(to_host(factor)) for factor in factors]
    signs = np.ones(rows[0].shape[0])
    for mode, row in enumerate(rows):
        energy = np.sign((row * np.abs(row)).sum(axis=1))
        energy[energy == 0] = 1.0
        turn = energy if mode < len(rows) - 1 else signs
        rows[mode] = row * turn[:, None]
        signs = signs * turn
    cut = [np.maximum(row, 0.0) for row in rows]
    for row, whole in zip(cut, rows, strict=True):
        small = 1e-3 * row_norms(whole) / np.sqrt(row.shape[1])
        row += np.where(small > 0, small, 1e-3)[:, None]
    return tuple(cut)
