"""A positive definite combination of the slices of a symmetric tensor.

For T = sum_j w_j a_j^(x)p every combination of slices is M(c) = sum_j m_j(c) a_j a_j'. Where the
a_j are independent some c makes all m_j positive, but a random c does with probability 2^-k only.
The a_j are the eigenvectors of one random combination over another; with z_j dual to them, slice i
has m_ij = z_j' S_i z_j, and sum_i c_i m_ij = 1 for all j gives c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays.subspace import real_columns


def definite_combination(slices: Any, n_draws: int, rng: np.random.Generator) -> tuple[Any, bool]:
    """A (k, k) combination of (k, k, m) slices, definite and well conditioned where one is found.

    Parameters
    ----------
    slices : host array (k, k, m), symmetric in its first two modes
    n_draws : int, pairs of random combinations; the best conditioned result is kept
    rng : draws them

    Returns
    -------
    the combination, and whether it is positive definite; where none is, the random one that is best
    conditioned in magnitude
    """
    size, _, count = slices.shape
    if not slices.any():
        return np.zeros((size, size)), False
    draws = rng.standard_normal((n_draws, count, 2))
    found, best = None, size * np.finfo(float).eps
    for draw in draws:
        combination = _from_pair(slices, draw)
        if combination is None:
            continue
        values = np.linalg.eigvalsh(combination)
        if values[0] > best * values[-1]:
            found, best = combination, values[0] / values[-1]
    if found is not None:
        return found, True
    plain = np.moveaxis(slices @ draws[:, :, 0].T, 2, 0)
    spectra = np.abs(np.linalg.eigvalsh(plain))
    return plain[int(np.argmax(spectra.min(axis=1) / spectra.max(axis=1)))], False


def _from_pair(slices: Any, draw: Any) -> Any:
    """The combination that the eigenvectors of a pair lead to; None where it is singular."""
    first, second = np.moveaxis(slices @ draw, 2, 0)
    try:
        _, vectors = np.linalg.eig(np.linalg.solve(second.T, first.T).T)
        duals = np.linalg.inv(real_columns(vectors))
    except np.linalg.LinAlgError:
        return None
    weights = np.einsum("ja,abi,jb->ji", duals, slices, duals, optimize=True)
    return slices @ np.linalg.lstsq(weights, np.ones(len(weights)), rcond=None)[0]
