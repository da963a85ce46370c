"""The functions by which independent components are told apart, and the best of them for a source.

The score of a density p, phi = -(log p)', is the function whose equations are the most exact: of
all g with E g = 0 it has the largest 2 E[g'] - E[g^2], which samples tell without knowing p. Here g
runs over combinations of a few smooth functions and, where samples that were not fitted agree that
it pays, of lines that bend at quantiles, the less the more they are smoothed. All of them are
straight between the edges of narrow cells, so that counts of samples in cells say all there is to
know, and E[g'] is exactly that of the g in use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

N_FUNCTIONS = 4
_STRAIGHT = 3.0
# Cells reach so many standard deviations to each side; beyond them a score goes on as a straight
# line.
_REACH = 8.0
_CELLS_PER_DEVIATION = 32
N_CELLS = int(2 * _REACH * _CELLS_PER_DEVIATION)
EDGES = np.linspace(-_REACH, _REACH, N_CELLS + 1)
# Every cell is cut into slices that belong to the two halves of the samples in turn: which half
# a sample is in does not depend on its place, and equal samples are in the same.
_SLICES = 16
_N_BENDS = 24
_SMALLEST_TAIL = 0.002
# Smoothing of the bends, times n^-4/5, from strong to weak.
_SMOOTHING = (3.0, 0.3, 0.03)
# Standard errors by which the other half must prefer less smoothing.
_CLEARLY = 2.0
# Keeps functions that coincide on few values apart.
RIDGE = 1e-4
_BEND_RIDGE = 1e-6
# Beyond so many samples, rounding would be taken for noise.
MOST_SAMPLES = 1e10


def functions(scores: Any) -> tuple[Any, Any]:
    """The functions f_m (M, n, k) of scores and their derivatives, (M, n, k)."""
    values = np.empty((N_FUNCTIONS, *scores.shape))
    slopes = np.empty_like(values)
    squares = scores * scores
    np.tanh(scores, out=values[0])
    slopes[0] = 1 - values[0] ** 2
    bell = np.exp(-squares / 2)
    values[1] = scores * bell
    slopes[1] = (1 - squares) * bell
    # y^3 and y^2, straight lines from where a few large scores would rule their means.
    inner = np.clip(scores, -_STRAIGHT, _STRAIGHT)
    outer = scores - inner
    squares = inner * inner
    values[2] = squares * (inner + 3 * outer)
    slopes[2] = 3 * squares
    values[3] = inner * (inner + 2 * outer)
    slopes[3] = 2 * inner
    return values, slopes


@dataclass(frozen=True)
class ScoreTables:
    """Score functions of k sources of standard deviation one: offset + slope y in every cell.

    Attributes
    ----------
    offsets, slopes : (k, N_CELLS)
    bend, second_bend : (k,), E[phi''] and E[phi'''], as far as the score is that of the density
    """

    offsets: Any
    slopes: Any
    bend: Any
    second_bend: Any

    def __call__(self, scores: Any) -> tuple[Any, Any]:
        """The values phi and phi' (n, k) at scores (n, k)."""
        place = cells(scores) // _SLICES + N_CELLS * np.arange(scores.shape[1])
        slopes = self.slopes.ravel()[place]
        return self.offsets.ravel()[place] + slopes * scores, slopes


def cells(scores: Any) -> Any:
    """The slice (n, k) of a cell that every score of standard deviation one is in."""
    places = (scores + _REACH) * (_CELLS_PER_DEVIATION * _SLICES)
    return np.clip(places, 0, N_CELLS * _SLICES - 1).astype(np.intp)


def counted(scores: Any, weights: Any) -> Any:
    """The weight (k, N_CELLS, 2) of the two halves of scores (n, k) in every cell."""
    width = scores.shape[1]
    place = cells(scores)
    place = 2 * (place // _SLICES) + place % 2 + 2 * N_CELLS * np.arange(width)
    fractions = None if weights is None else np.repeat(weights, width)
    counts = np.bincount(place.ravel(), fractions, minlength=2 * width * N_CELLS)
    return counts.reshape(width, N_CELLS, 2)


def estimate_scores(counts: Any) -> ScoreTables:
    """The score functions of sources of standard deviation one.

    Parameters
    ----------
    counts : (k, N_CELLS, 2), as `counted` gives
    """
    edge_values = np.stack([_score(halves.T) for halves in counts])
    slopes = np.diff(edge_values, axis=1) * _CELLS_PER_DEVIATION
    offsets = edge_values[:, :-1] - slopes * EDGES[:-1]
    fractions = counts.sum(axis=2)
    fractions = fractions / fractions.sum(axis=1, keepdims=True)
    middle = (edge_values[:, :-1] + edge_values[:, 1:]) / 2
    # By parts: E[g'] = E[g phi].
    bend = (fractions * slopes * middle).sum(axis=1)
    second_bend = (fractions * slopes * (middle**2 - slopes)).sum(axis=1)
    return ScoreTables(offsets, slopes, bend, second_bend)


@dataclass(frozen=True)
class _Expectations:
    """Over the cells: means (p,), covariance (p, p) and mean slopes (p,) of basis functions."""

    fractions: Any
    weight: float
    means: Any
    spread: Any
    slopes: Any


_BASE = np.column_stack([EDGES, functions(EDGES[:, None])[0][:, :, 0].T])


def _score(halves: Any) -> Any:
    """The score (N_CELLS + 1,) at the edges of the cells, from the counts (2, N_CELLS)."""
    counts = halves.sum(axis=0)
    weight = float(counts.sum())
    hats, roughness = _bends(counts, weight)
    n_smooth = _BASE.shape[1]
    basis = np.hstack([_BASE, hats])
    # Cells without samples have no say.
    taken = np.flatnonzero(counts)
    below, above = basis[taken], basis[taken + 1]
    values, slopes = (below + above) / 2, (above - below) * _CELLS_PER_DEVIATION
    halves = halves[:, taken]
    penalty = np.zeros((basis.shape[1], basis.shape[1]))
    penalty[n_smooth:, n_smooth:] = roughness

    def expectations(part: Any) -> _Expectations:
        fractions = part / part.sum()
        means = fractions @ values
        spread = (values * fractions[:, None]).T @ values - np.outer(means, means)
        return _Expectations(fractions, float(part.sum()), means, spread, fractions @ slopes)

    def solved(known: _Expectations, smoothing: float) -> Any:
        found = np.zeros(basis.shape[1])
        if np.isinf(smoothing):
            spread = known.spread[:n_smooth, :n_smooth]
            spread = spread + RIDGE * np.diag(np.diag(spread) + RIDGE)
            found[:n_smooth] = np.linalg.solve(spread, known.slopes[:n_smooth])
        else:
            ridge = _BEND_RIDGE * (np.diag(known.spread) + _BEND_RIDGE)
            matrix = known.spread + smoothing * penalty + np.diag(ridge)
            found[:] = np.linalg.solve(matrix, known.slopes)
        return found

    def losses(fitted: _Expectations, smoothing: float) -> Any:
        found = solved(fitted, smoothing)
        return (values @ found - fitted.means @ found) ** 2 - 2 * (slopes @ found)

    best = np.inf
    if halves.sum(axis=1).min() >= 0.1 * weight:
        parts = [expectations(part) for part in halves]
        held = [losses(part, best) for part in parts]
        for strength in _SMOOTHING:
            smoothing = strength * weight**-0.8
            other = [losses(part, smoothing) for part in parts]
            gain, variance = 0.0, 0.0
            # Each half judges what was fitted to the other.
            for new, old, judge in zip(other, held, parts[::-1], strict=True):
                change = new - old
                mean = float(judge.fractions @ change)
                gain -= mean
                variance += (float(judge.fractions @ change**2) - mean**2) / judge.weight
            if not gain > _CLEARLY * np.sqrt(variance):
                break
            best, held = smoothing, other
    known = expectations(counts[taken])
    found = solved(known, best)
    return basis @ found - known.means @ found


def _bends(counts: Any, weight: float) -> tuple[Any, Any]:
    """Hat functions (N_CELLS + 1, m) at quantiles, and the squared bends (m, m) of their sums."""
    below = np.concatenate([[0.0], np.cumsum(counts)]) / weight
    tail = min(max(_SMALLEST_TAIL, 10 / weight), 0.25)
    inner = (np.arange(_N_BENDS) + 0.5) / _N_BENDS
    inner = inner[(inner > 1.5 * tail) & (inner < 1 - 1.5 * tail)]
    levels = np.concatenate([[tail / 4, tail], inner, [1 - tail, 1 - tail / 4]])
    places = np.unique(np.clip(np.searchsorted(below, levels), 1, N_CELLS - 1))
    if len(places) < 3:
        return np.zeros((N_CELLS + 1, 0)), np.zeros((0, 0))
    knots = EDGES[places]
    count, gaps = len(knots), np.diff(knots)
    rows = np.arange(N_CELLS + 1)
    segment = np.clip(np.searchsorted(places, rows, side="right") - 1, 0, count - 2)
    along = (EDGES - knots[segment]) / gaps[segment]
    hats = np.zeros((N_CELLS + 1, count))
    hats[rows, segment] = 1 - along
    hats[rows, segment + 1] = along
    slopes = np.diff(np.eye(count), axis=0) / gaps[:, None]
    bends = np.diff(slopes, axis=0) / np.sqrt((gaps[1:] + gaps[:-1]) / 2)[:, None]
    return hats, bends.T @ bends
