"""Updates and starts of factors under the constraint that no entry is negative."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latensor.arrays import Array, is_numpy, like, to_host

# Passes over the components per update; the next sweep goes on from there.
_PASSES = 5


def nonnegative_rows(gamma: Array, right: Array, factor: Array, ridge: float = 0.0) -> Array:
    """Lower |A K' - T_(n)|^2 + ridge |A|^2 over nonnegative A by passes over its components (HALS).

    Each component in turn takes its exact constrained optimum,
    a_j = max(0, a_j + (m_j - sum_l Gamma_jl a_l) / Gamma_jj), which never raises the loss.

    Parameters
    ----------
    gamma : (rank, rank) array, or (d, rank, rank) with a matrix for every row of the factor
    right : (rank, d) array, the mttkrp
    factor : (rank, d) array, the present factor; not changed
    ridge : float, penalty on the squared norm of the factor
    """
    rows = np.maximum(to_host(factor), 0.0)
    rows = rows.copy() if rows is factor else rows
    target = to_host(right)
    by_row = gamma.ndim == 3
    for _ in range(_PASSES):
        largest = 0.0
        for j in range(rows.shape[0]):
            weight = gamma[..., j, j] + ridge
            fitted = np.einsum("dl,ld->d", gamma[:, j], rows) if by_row else gamma[j] @ rows
            slope = target[j] - fitted - ridge * rows[j]
            safe = np.where(weight > 0, weight, 1.0)
            change = np.maximum(-rows[j], np.where(weight > 0, slope, 0.0) / safe)
            rows[j] += change
            largest = max(largest, float(np.abs(change).max()))
        if largest <= 1e-12 * float(np.abs(rows).max(initial=0.0)):
            break
    return rows if is_numpy(factor) else like(rows, factor)


def nonnegative_part(
    factors: Sequence[Array], modes: Sequence[int] | None = None
) -> tuple[Array, ...]:
    """Host factors with signs turned, two modes at a time, so that most of each component is
    positive in these modes, and the rest cut off; a component that would vanish keeps a small
    uniform part.
    """
    rows = [np.array(to_host(factor)) for factor in factors]
    chosen = list(range(len(rows)) if modes is None else modes)
    rest = [mode for mode in range(len(rows)) if mode not in chosen]
    signs = np.ones(rows[0].shape[0])
    for mode in chosen:
        energy = np.sign((rows[mode] * np.abs(rows[mode])).sum(axis=1))
        energy[energy == 0] = 1.0
        last = mode == chosen[-1] and not rest
        turn = signs if last else energy
        rows[mode] = rows[mode] * turn[:, None]
        signs = signs * turn
    if rest:
        rows[rest[0]] = rows[rest[0]] * signs[:, None]
    for mode in chosen:
        whole = rows[mode]
        small = 1e-3 * np.linalg.norm(whole, axis=1) / np.sqrt(whole.shape[1])
        rows[mode] = np.maximum(whole, 0.0) + np.where(small > 0, small, 1e-3)[:, None]
    return tuple(rows)
