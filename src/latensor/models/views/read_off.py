"""Weights and conditional means of several views from their cross moments (monograph 4.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from latensor.estimation.homogeneous import EXACT, project_to_simplex, read_homogeneous, symmetrized
from latensor.models.views.family import ViewState
from latensor.models.views.three_views import ViewMaps, view_maps
from latensor.moments.views import ViewCovariances, ViewMoments, standardized

_VARIANCE_RANGE = (0.02, 20.0)

Algorithm = str | Callable[..., Any]


@dataclass(frozen=True)
class MultiViewReadOff:
    """What the cross moments say about a mixture of views.

    Attributes
    ----------
    state : ViewState, conditional means and variances of every view
    off_diagonal : float, of the joint diagonalization
    condition : float, of the maps between the views
    gap : float, smallest cross-correlation of the core over the largest that noise gives
    """

    state: ViewState
    off_diagonal: float
    condition: float
    gap: float


def core_maps(
    known: ViewCovariances, core: tuple[int, int, int], rank: int
) -> tuple[list[Any], ViewMaps]:
    """Maps A_t (d_t, r) of three views, y_t = A_t'(x_t - E x_t), and their spectrum."""
    scales, correlations = standardized(known)
    cross = {(a, b): correlations[core[a], core[b]] for a, b in combinations(range(3), 2)}
    found = view_maps(cross, rank, exact=known.weight > EXACT)
    maps = [each / scales[t][:, None] for t, each in zip(core, found.maps, strict=True)]
    return maps, found


def noise_reach(first: int, second: int, weight: float) -> float:
    """The largest singular value of a cross-correlation of independent views, by their widths."""
    return float((np.sqrt(first) + np.sqrt(second)) / np.sqrt(weight))


def read_off(
    moments: ViewMoments,
    n_components: int,
    kinds: tuple[str, ...],
    rng: np.random.Generator,
    algorithm: Algorithm = "auto",
) -> MultiViewReadOff:
    """Weights, conditional means and variances of every view.

    For anything that depends on the other views by the component only,
    E[f | j] = E f + Cov(f, y) y_j: with f = x_t and its squares, y the mean of the mapped others.

    Parameters
    ----------
    moments : the central moments, whose frames span the maps of the core
    n_components : int, at most one more than the width of every core view
    kinds : "gaussian" or "categorical" per view
    rng : draws the start of the decomposition
    algorithm : of `read_homogeneous`
    """
    known, rank, core = moments.known, n_components - 1, moments.core
    maps, found = core_maps(known, core, rank)
    turns = [frame.T @ each for frame, each in zip(moments.frames, maps, strict=True)]
    third = np.einsum("abc,ai,bj,cl->ijl", moments.third, *turns, optimize=True)
    mixture = read_homogeneous(symmetrized(third), rng, algorithm)
    by_view = dict(zip(core, maps, strict=True))
    turn_of = dict(zip(core, turns, strict=True))
    means, variances = [], []
    for t, mean in enumerate(known.means):
        others = [s for s in core if s != t]
        linear = sum(known.between(t, s) @ by_view[s] for s in others) / len(others)
        shifted = mixture.mean_of(0.0, linear)
        slope = sum(moments.squares[t, s] @ turn_of[s] for s in others) / len(others)
        within = mixture.mean_of(known.variances[t], slope) - shifted**2
        center = mean + shifted
        if kinds[t] == "categorical":
            totals = center.sum(axis=1, keepdims=True)
            center = project_to_simplex(center / np.where(totals > 0, totals, 1.0))
            within = center * (1 - center)
        else:
            typical = np.maximum(mixture.weights @ np.maximum(within, 0.0), 1e-300)
            within = np.clip(within, _VARIANCE_RANGE[0] * typical, _VARIANCE_RANGE[1] * typical)
        means.append(center)
        variances.append(within)
    gap = np.inf
    for values, (t, s) in zip(found.values, combinations(core, 2), strict=True):
        if rank:
            reach = noise_reach(len(known.means[t]), len(known.means[s]), known.weight)
            gap = min(gap, float(values[-1]) / reach)
    state = ViewState(mixture.weights, means, variances)
    return MultiViewReadOff(state, mixture.off_diagonal, found.condition, gap)
