"""A matrix or tensor of given Tucker ranks under gross errors, by imputation.

Entries whose residual exceeds a threshold count as errors and are replaced by the model, which then
follows by one sweep of orthogonal iteration, while the threshold falls. What decides is the start.
The mean of errors of one sign is nearly a matrix of rank one, often stronger than the data: least
squares with one direction more than asked for in every mode takes it up, and then the residuals of
the entries without an error lie close together, but not at zero. The half of all residuals that
lies closest together shows where.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import truncated_svd
from latensor.decomposition.robust.entries import Assessment, Entries, assess
from latensor.tensors.entries import unfold

# By what the threshold falls in a step; the slower one is for a second way.
DECAY, SLOW = 0.8, 0.9
# Errors that are so many times the largest other residual stand apart.
_APART = 2.0
# Steps of imputation: 1 / p where a fraction p of the entries is kept, which is what a projection
# of evenly spread entries asks for; any pattern converges with steps below 2.
_LONGEST = 1.9
# Residuals are clipped down to this fraction of a typical entry of the model, so that its large
# entries come back; below, where only errors are left to be large, they pull the less.
_CLIPPED = 0.1
# Steps of the start and of the fit, and the relative change of the model that ends the start: it
# only has to tell errors from other entries.
_START_ITER, _MAX_ITER, _STARTED = 20, 400, 1e-2
# Scaled gradient descent: its step, the quantile of the magnitudes where clipping begins, and the
# fraction of it where it ends.
_STEP, _FIRST_LEVEL, _NEAR = 0.5, 0.8, 1e-4
# Largest relative change of the model in a last step: rounding times the root of some steps; and
# relative to the noise, which moves the answer by far more.
_CHANGE, _OF_NOISE = {False: 1e-12, True: 1e-7}, 1e-4


@dataclass(frozen=True, eq=False)
class Fit:
    """A core with orthonormal factors, fitted under gross errors.

    Attributes
    ----------
    core : array with one mode per factor
    factors : one (dimension, rank) array per mode, two for a matrix
    assessment : Assessment
    n_iter : int
    converged : bool, whether the last step changed nothing
    """

    core: Any
    factors: tuple[Any, ...]
    assessment: Assessment
    n_iter: int
    converged: bool

    def dense(self) -> Any:
        """The tensor."""
        return expand(self.core, self.factors)

    def spectra(self) -> tuple[Any, ...]:
        """The singular values of every unfolding."""
        modes = range(self.core.ndim)
        return tuple(np.linalg.svd(unfold(self.core, k), compute_uv=False) for k in modes)


def expand(core: Any, factors: Sequence[Any]) -> Any:
    """Core x_1 U_1 ... x_p U_p."""
    for mode, factor in enumerate(factors):
        core = _times(core, factor, mode)
    return core


def _times(tensor: Any, matrix: Any, mode: int) -> Any:
    if mode == tensor.ndim - 1:
        return tensor @ matrix.T
    return np.moveaxis(np.tensordot(matrix, tensor, axes=(1, mode)), 0, mode)


def directions(matrix: Any, rank: int) -> Any:
    """Leading left singular vectors; two power steps do where the matrix is large."""
    rank = min(rank, *matrix.shape)
    steps = 2 if rank + 10 < min(matrix.shape) // 2 and min(matrix.shape) > 64 else None
    return np.asarray(truncated_svd(matrix, rank, n_power_iterations=steps).left)


def truncate(tensor: Any, ranks: Sequence[int]) -> tuple[Any, list[Any]]:
    """The sequentially truncated higher-order SVD: core and orthonormal factors."""
    factors = []
    for mode, rank in enumerate(ranks):
        factors.append(directions(unfold(tensor, mode), rank))
        tensor = _times(tensor, factors[-1].T, mode)
    return tensor, factors


def _follow(filled: Any, factors: list[Any]) -> Any:
    """The core after one sweep of orthogonal iteration, which changes the factors in place."""
    for mode, factor in enumerate(factors):
        reduced = filled
        for k, other in enumerate(factors):
            reduced = reduced if k == mode else _times(reduced, other.T, k)
        unfolding, rank = unfold(reduced, mode), factor.shape[1]
        # As many columns as directions: any basis of them, without singular vectors.
        few = unfolding.shape[1] <= rank
        factors[mode] = np.linalg.qr(unfolding)[0] if few else directions(unfolding, rank)
    return _times(reduced, factors[-1].T, len(factors) - 1)


def fit_ranks(
    entries: Entries, ranks: tuple[int, ...], extra: int = 1, decay: float = DECAY
) -> Fit:
    """The fit of given ranks, from least squares of ranks that are `extra` larger.

    Residuals are clipped where they are gross errors by their median, which falls as the start
    gets better: errors of another order of magnitude pull no more than others, while large entries
    of the low-rank part come back.
    """
    bound = entries.gross(entries.quantile(entries.values, 0.5), 0.0) or np.inf
    clipped = np.clip(entries.values, -bound, bound) / entries.fraction
    core, factors = truncate(clipped, [r + extra for r in ranks])
    model = expand(core, factors)
    for _ in range(_START_ITER):
        rest = entries.residual(model)
        bound = max(decay * bound, entries.gross(entries.quantile(rest, 0.5), 0.0))
        core = _follow(model + np.clip(rest, -bound, bound), factors)
        last, model = model, expand(core, factors)
        if np.linalg.norm(model - last) <= _STARTED * np.linalg.norm(core):
            break
    rest = entries.residual(model)
    middle, width = entries.shortest_half(rest)
    if abs(middle) <= width:
        return refine(entries, *truncate(model, ranks), bound, decay)
    away = np.abs(rest - middle) > width
    rest[away if entries.observed is None else away | ~entries.observed] = middle
    start = truncate(model + rest, ranks)
    return refine(entries, *start, entries.gross(width, 0.0), decay, redescend=True)


def descend(entries: Entries, ranks: tuple[int, ...], decay: float = DECAY) -> Fit:
    """The fit of given ranks by scaled gradient descent with clipped residuals.

    Every factor moves by its own least squares step, which ill-conditioned tensors of heavy tails
    need: their large entries are far above any threshold, and pull by no more than it.
    """
    first = threshold = entries.quantile(entries.values, _FIRST_LEVEL)
    clipped = np.clip(entries.values, -threshold, threshold) / entries.fraction
    core, factors = truncate(clipped, ranks)
    step = _STEP / entries.fraction
    for _ in range(_MAX_ITER):
        rest = entries.residual(expand(core, factors))
        if threshold < max(0.5 * entries.quantile(rest, 0.5), _NEAR * first):
            break
        np.clip(rest, -threshold, threshold, out=rest)
        inverses = [np.linalg.pinv(u) for u in factors]
        moved = []
        for mode, factor in enumerate(factors):
            others = [np.eye(len(u.T)) if k == mode else u for k, u in enumerate(factors)]
            loading = unfold(expand(core, others), mode)
            gram = loading @ loading.T
            gram += len(gram) * np.finfo(float).eps * np.trace(gram) * np.eye(len(gram))
            gradient = unfold(rest, mode) @ loading.T
            moved.append(factor + step * np.linalg.lstsq(gram, gradient.T, rcond=None)[0].T)
        core = core + step * expand(rest, inverses)
        factors = moved
        threshold *= decay
    for mode, factor in enumerate(factors):
        factors[mode], upper = np.linalg.qr(factor)
        core = _times(core, upper, mode)
    return refine(entries, core, factors, threshold)


def refine(
    entries: Entries,
    core: Any,
    factors: list[Any],
    threshold: float,
    decay: float = DECAY,
    redescend: bool = False,
) -> Fit:
    """From near the answer to the fixed point of thresholding at the noise, by imputation.

    Parameters
    ----------
    entries : Entries
    core, factors : the start, with orthonormal factors
    threshold : float, where to begin; what the start misses in most entries without an error is
        below
    decay : float, by what the threshold falls in a step
    redescend : bool, whether residuals above a threshold that still falls pull the less, the
        larger they are, instead of by the threshold: many errors of one sign would pull together,
        while large entries of a model with heavy tails only come back when they are clipped
    """
    model = expand(core, factors)
    n_iter, converged = 0, False
    while n_iter < _MAX_ITER and not converged:
        n_iter += 1
        typical = float(np.linalg.norm(core)) / float(np.sqrt(model.size))
        rest = entries.residual(model)
        median = entries.quantile(rest, 0.5)
        floor = entries.gross(median, typical)
        threshold = max(decay * threshold, floor)
        sizes = np.abs(rest)
        below = sizes <= threshold
        sizes *= below
        largest = float(sizes.max())
        if threshold <= floor or _APART * largest < threshold:
            # Errors are told from other entries: they pull no more, and the rest converges by
            # steps of its own length, so that the threshold may fall with it.
            kept = np.count_nonzero(below) / below.size + entries.fraction - 1.0
            rest *= below
            rest *= min(1.0 / kept, _LONGEST)
            threshold = max(min(threshold, _APART * largest), floor)
        elif not redescend and threshold > _CLIPPED * typical:
            np.clip(rest, -threshold, threshold, out=rest)
        else:
            excess = np.divide(rest, threshold, out=sizes)
            excess *= excess
            excess += 1.0
            rest /= excess
        rest += model
        core = _follow(rest, factors)
        last, model = model, expand(core, factors)
        change = float(np.linalg.norm(model - last)) / max(float(np.linalg.norm(core)), 1e-300)
        enough = max(_CHANGE[entries.single], _OF_NOISE * median / max(typical, 1e-300))
        converged = threshold <= floor and change <= enough
    found = assess(entries, model, parameters(core.shape, model.shape))
    return Fit(core, tuple(factors), found, n_iter, converged)


def parameters(ranks: Sequence[int], shape: Sequence[int]) -> int:
    """The number of free parameters of a tensor of given Tucker ranks."""
    return prod(ranks) + sum(r * (d - r) for r, d in zip(ranks, shape, strict=True))
