"""Principal component pursuit: low rank plus sparse without a rank, as a convex problem.

Minimizes sum_k w_k |L_(k)|_* + |S|_1 subject to L + S = X over the observed entries, with the
nuclear norms of the unfoldings of L. For a matrix there is one unfolding, and w = sqrt(p max(n, m))
with p the fraction observed, that is lambda = 1 / w (Candes, Li, Ma and Wright 2011), recovers L
exactly where it is incoherent and few entries have errors. For a tensor the weights of the modes
are of the same form, divided by their number (Goldfarb and Qin 2014).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.decomposition.robust.entries import Entries
from latensor.tensors.entries import fold, unfold

# Growth of the penalty in a step: 1.5 is what the matrix problem is known to stand; several
# unfoldings that have to agree need smaller steps.
_GROWTH = {True: 1.5, False: 1.2}
# What X - L - S leaves, relative, at the end: later stages start here.
_TOL = 1e-6
_MAX_ITER = 200
# A side so many times the other goes through the Gram matrix of the shorter.
_LONG = 2


@dataclass(frozen=True, eq=False)
class Pursuit:
    """What the convex problem gives.

    Attributes
    ----------
    low_rank : array, X - S where observed, else the mean of the unfoldings' estimates
    spectra : the singular values of the unfolding along each mode, after thresholding
    n_iter : int
    converged : bool
    """

    low_rank: Any
    spectra: tuple[Any, ...]
    n_iter: int
    converged: bool


def pursue(entries: Entries) -> Pursuit:
    """Principal component pursuit by the alternating direction method of multipliers."""
    tensor = entries.values
    shape, size = tensor.shape, tensor.size
    modes = [0] if tensor.ndim == 2 else list(range(tensor.ndim))
    sides = [max(shape[k], size // shape[k]) for k in modes]
    weights = [np.sqrt(entries.fraction * side) / len(modes) for side in sides]
    norm = float(np.linalg.norm(tensor))
    largest = max(float(np.linalg.norm(unfold(tensor, k), 2)) for k in modes)
    # The scale at which the first thresholds remove all but the largest directions.
    penalty = 1.25 * max(weights) / largest
    growth = _GROWTH[len(modes) == 1]
    sparse = np.zeros_like(tensor)
    multipliers = [np.zeros_like(tensor) for _ in modes]
    estimates: list[Any] = []
    spectra: list[Any] = []
    converged, number = False, 0
    while not converged and number < _MAX_ITER:
        number += 1
        estimates, spectra = [], []
        for k, weight, multiplier in zip(modes, weights, multipliers, strict=True):
            target = tensor - sparse + multiplier / penalty
            low, spectrum = _shrunk(unfold(target, k), weight / penalty)
            estimates.append(fold(low, k, shape))
            spectra.append(spectrum)
        rest = sum(
            tensor - low + multiplier / penalty
            for low, multiplier in zip(estimates, multipliers, strict=True)
        ) / len(modes)
        level = 1.0 / (len(modes) * penalty)
        sparse = rest - np.clip(rest, -level, level)
        if entries.observed is not None:
            sparse = np.where(entries.observed, sparse, rest)
        missed = 0.0
        for low, multiplier in zip(estimates, multipliers, strict=True):
            gap = tensor - low - sparse
            multiplier += penalty * gap
            missed = max(missed, float(np.linalg.norm(gap)))
        converged = missed <= _TOL * norm
        penalty *= growth
    low_rank = sum(estimates) / len(modes)
    per_mode = tuple(spectra) if tensor.ndim > 2 else tuple(spectra * 2)
    return Pursuit(low_rank, per_mode, number, converged)


def _shrunk(matrix: Any, threshold: float) -> tuple[Any, Any]:
    """A matrix with its singular values lowered by a threshold, and what is left of them."""
    n, m = matrix.shape
    if max(n, m) <= _LONG * min(n, m):
        u, s, vt = np.linalg.svd(matrix, full_matrices=False)
        kept = np.maximum(s - threshold, 0.0)
        count = int((kept > 0).sum())
        return (u[:, :count] * kept[:count]) @ vt[:count], kept
    wide = m > n
    gram = matrix @ matrix.T if wide else matrix.T @ matrix
    squares, vectors = np.linalg.eigh(gram)
    s = np.sqrt(np.maximum(squares, 0.0))[::-1]
    kept = np.maximum(s - threshold, 0.0)
    count = int((kept > 0).sum())
    vectors = vectors[:, ::-1][:, :count]
    # L = U diag((s - t) / s) U' X needs the short side's vectors alone.
    filter_ = (vectors * (kept[:count] / s[:count])) @ vectors.T
    return (filter_ @ matrix if wide else matrix @ filter_), kept
