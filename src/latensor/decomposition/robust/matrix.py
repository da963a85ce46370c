"""A matrix of given rank under gross errors, by alternating projections.

Alternates between what exceeds a threshold, which counts as gross error and is replaced by the
model, and the closest matrix of the rank in the tangent space at the last one, which costs two thin
products. The threshold comes down from above the largest entry: taken from the residuals
themselves at the start it removes large entries of the matrix, which then never come back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import truncated_svd
from latensor.decomposition.robust.entries import Assessment, Entries, assess

# By what the threshold falls in a step. Hard thresholding reaches the same answer from .5 to .9 for
# errors of both signs; clipping needs .9 where a fifth of the entries have errors of one sign.
_HARD_DECAY, _CLIP_DECAY, _LAST_DECAY = 0.7, 0.9, 0.7
_MAX_ITER = 400
# Where the median residual, or the threshold of clipping, is this fraction of an entry, the last
# phase begins: no entry without an error is missed by more.
_NEAR = 1e-4
# Steps without a median residual a tenth lower that show the noise, and the level where clipping
# begins: above it lie the entries that a heavy tail or an error has.
_PATIENCE, _STALLED, _FIRST_LEVEL = 3, 0.9, 0.8
# Largest relative change of the model in a last step: rounding times the root of some steps.
_CHANGE = {False: 1e-12, True: 1e-7}
# Change of the model, relative to the noise, that no longer matters.
_OF_NOISE = 1e-4


@dataclass(frozen=True, eq=False)
class MatrixFit:
    """U diag(s) V' for a matrix under gross errors.

    Attributes
    ----------
    left, values, right : (n, r), (r,) and (m, r)
    assessment : Assessment
    n_iter : int
    """

    left: Any
    values: Any
    right: Any
    assessment: Assessment
    n_iter: int

    @property
    def rank(self) -> int:
        """The number of directions."""
        return len(self.values)

    def dense(self) -> Any:
        """The matrix."""
        return (self.left * self.values) @ self.right.T


def leading(matrix: Any, rank: int) -> tuple[Any, Any, Any]:
    """Leading singular triplets by two power steps; starts need no more digits."""
    steps = 2 if rank + 10 < min(matrix.shape) // 2 and min(matrix.shape) > 64 else None
    found = truncated_svd(matrix, rank, n_power_iterations=steps)
    return np.asarray(found.left), np.asarray(found.singular_values), np.asarray(found.right)


def project(left: Any, values: Any, right: Any, change: Any) -> tuple[Any, Any, Any, float, float]:
    """The best matrix of the rank in the tangent space at U diag(s) V' to that plus a change.

    Parameters
    ----------
    left, values, right : (n, r), (r,) and (m, r), the matrix
    change : (n, m)

    Returns
    -------
    left, values, right : of the new matrix
    step : float, relative norm of the difference of the two
    following : float, the singular value after the last kept
    """
    rank = len(values)
    image, coimage = left * values + change @ right, right * values + change.T @ left
    inner = left.T @ image
    first, upper = np.linalg.qr(image - left @ inner)
    second, lower = np.linalg.qr(coimage - right @ inner.T)
    small = np.zeros((rank + upper.shape[0], rank + lower.shape[0]))
    small[:rank, :rank], small[:rank, rank:], small[rank:, :rank] = inner, lower.T, upper
    u, s, vt = np.linalg.svd(small)
    v = vt.T
    moved = (u[:, :rank] * s[:rank]) @ v[:, :rank].T
    moved[:rank, :rank] -= np.diag(values)
    step = float(np.linalg.norm(moved)) / max(float(np.linalg.norm(s[:rank])), 1e-300)
    return (
        np.hstack([left, first]) @ u[:, :rank],
        s[:rank],
        np.hstack([right, second]) @ v[:, :rank],
        step,
        float(s[rank]) if len(s) > rank else 0.0,
    )


def fit_hard(entries: Entries, rank: int) -> MatrixFit:
    """Alternating projections with a hard threshold that falls with the singular values."""
    matrix = entries.values
    beta = 1.0 / (2.0 * (matrix.shape[0] * matrix.shape[1]) ** 0.25)
    largest = float(leading(matrix, 1)[1][0])
    threshold = 4.0 * beta * largest / entries.fraction
    kept = np.where(np.abs(matrix) > threshold, 0.0, matrix)
    left, values, right = leading(kept / entries.fraction, rank)
    best, stalled, decay = np.inf, 0, 1.0
    for number in range(_MAX_ITER):
        rest = entries.residual((left * values) @ right.T)
        median = entries.quantile(rest, 0.5)
        stalled = stalled + 1 if median > _STALLED * best else 0
        best = min(median, best)
        typical = _typical(entries, values)
        floor = entries.gross(median, typical)
        if (threshold <= floor and stalled >= _PATIENCE) or median < _NEAR * typical:
            return refine(entries, (left, values, right), threshold, number)
        rest[np.abs(rest) > threshold] = 0.0
        left, values, right, _, following = project(left, values, right, rest)
        decay *= _HARD_DECAY
        threshold = max(beta * (following + decay * values[0]), floor)
    return refine(entries, (left, values, right), threshold, _MAX_ITER)


def fit_clipped(entries: Entries, rank: int) -> MatrixFit:
    """Alternating projections with residuals that are clipped at the threshold, not removed.

    An entry that is not fitted yet goes on pulling: large entries of the matrix come back, and
    errors of one sign, whose mean is a matrix of rank one, do not hold it.
    """
    first = threshold = entries.quantile(entries.values, _FIRST_LEVEL)
    clipped = np.clip(entries.values, -threshold, threshold) / entries.fraction
    left, values, right = leading(clipped, rank)
    number = 0
    while number < _MAX_ITER:
        rest = entries.residual((left * values) @ right.T)
        if threshold < 0.5 * entries.quantile(rest, 0.5) or threshold < _NEAR * first:
            break
        np.clip(rest, -threshold, threshold, out=rest)
        left, values, right, _, _ = project(left, values, right, rest)
        threshold *= _CLIP_DECAY
        number += 1
    return refine(entries, (left, values, right), threshold, number)


def refine(
    entries: Entries, start: tuple[Any, Any, Any], threshold: float = 0.0, n_iter: int = 0
) -> MatrixFit:
    """From a matrix near the answer to the fixed point of thresholding at the noise.

    Parameters
    ----------
    entries : Entries
    start : left (n, r), values (r,), right (m, r)
    threshold : float, where to begin; what the start misses in entries without an error is below
    n_iter : int, steps already done
    """
    left, values, right = start
    for _ in range(_MAX_ITER):
        n_iter += 1
        rest = entries.residual((left * values) @ right.T)
        median, typical = entries.quantile(rest, 0.5), _typical(entries, values)
        floor = entries.gross(median, typical)
        threshold = max(_LAST_DECAY * threshold, floor)
        rest[np.abs(rest) > threshold] = 0.0
        left, values, right, step, _ = project(left, values, right, rest)
        # Noise moves the answer by far more than the steps that are left out.
        enough = max(_CHANGE[entries.single], _OF_NOISE * median / max(typical, 1e-300))
        if threshold <= floor and step <= enough:
            break
    parameters = len(values) * (sum(entries.values.shape) - len(values))
    found = assess(entries, (left * values) @ right.T, parameters)
    return MatrixFit(left, values, right, found, n_iter)


def _typical(entries: Entries, values: Any) -> float:
    """The root mean square of the entries of a matrix with these singular values."""
    return float(np.linalg.norm(values)) / float(np.sqrt(entries.values.size))
