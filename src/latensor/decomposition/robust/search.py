"""Which of several fits to believe, and of which rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.decomposition.result import Status
from latensor.decomposition.robust.convex import pursue
from latensor.decomposition.robust.entries import OVERDETERMINED, Entries
from latensor.decomposition.robust.low_rank import (
    SLOW,
    Fit,
    descend,
    directions,
    fit_ranks,
    parameters,
    refine,
    truncate,
)
from latensor.tensors.entries import unfold

# Singular values that are so many times the next one stand apart: below are noise or the few
# errors that a rank above the true one takes up.
_GAP = 5.0
# Directions stand clear of noise where their singular values are so many times the largest of noise
# alone. By the limits for a low-rank matrix in noise they are then within 16 degrees of the right
# ones (squared cosine 1 - 1 / t^2, t + 1 / t = 4). Measured: fits to a wrong answer that two ways
# agreed on had .8 to 1.3, right ones 10 and more.
_CLEAR = 2.0
# Rounds in which the rank follows from what a fit leaves, and what the largest singular value of
# pure noise does not exceed, relative to its limit: fluctuations are far smaller.
_ROUNDS, _EDGE = 6, 1.1

# Entries of a direction below this fraction of its largest are zero: the root of rounding, at which
# fits are exact, with room for their condition.
_ZERO = 1e-5
# Slices next to which such a direction is looked for: 12 to 14 of them found every one that was
# left by a rank of one or two too many.
_STARTS = 14


@dataclass(frozen=True, eq=False)
class Found:
    """The best fit, and whether it was confirmed."""

    fit: Fit
    status: Status
    n_iter: int


def fit_given(entries: Entries, ranks: tuple[int, ...]) -> Found:
    """A fit of given ranks, or of the lower ones that explain as much without an odd direction."""
    found = _search(entries, ranks)
    while local := _local_modes(found.fit) if found.fit.assessment.exact else ():
        every = range(entries.values.ndim) if entries.values.ndim == 2 else local
        fewer = tuple(r - (k in every) for k, r in enumerate(found.fit.core.shape))
        if min(fewer) == 0:
            return replace(found, status=Status.UNCONFIRMED)
        lower = _search(entries, fewer)
        n_iter = found.n_iter + lower.n_iter
        if not lower.fit.assessment.exact or _explains_more(found.fit, lower.fit):
            return replace(found, status=Status.UNCONFIRMED, n_iter=n_iter)
        found = replace(lower, n_iter=n_iter)
    return found


def _search(entries: Entries, ranks: tuple[int, ...]) -> Found:
    """A fit of given ranks: exact, or confirmed by a second way, or the best of four."""
    ways = _ways(entries)
    tried: list[Fit] = []
    while ways:
        way = ways.pop(0)
        tried.append(_without_excess(way(ranks), way))
        *others, last = tried
        if not others and _one_sided(entries, last):
            # Gradient descent with clipped residuals follows errors that pull together.
            ways.append(ways.pop(0))
        # Where directions vanish in most slices, other exact fits may meet more entries.
        final = last.assessment.exact and _ranks_by_gap(last) == last.core.shape
        final = final and not _local_modes(last)
        if final or any(_confirm(entries, last, one) for one in others):
            break
    total = sum(one.n_iter for one in tried)
    exact = [one for one in tried if one.assessment.exact]
    if exact:
        best, *others = sorted(exact, key=lambda one: one.assessment.parameters)
        for one in others:
            best = one if _explains_more(one, best) else best
        return Found(best, Status.CONVERGED, total)
    # All are compared by the same loss: squares up to the smallest of their thresholds.
    level = min(one.assessment.threshold for one in tried)
    losses = [_trimmed(entries, one, level) for one in tried]
    best = tried[int(np.argmin(losses))]
    confirmed = any(one is not best and _confirm(entries, best, one) for one in tried)
    return Found(best, Status.CONVERGED if confirmed else Status.UNCONFIRMED, total)


def fit_any(entries: Entries) -> Found:
    """A fit without a rank: the convex problem, then the rank that stands out, then its fit."""
    pursuit = pursue(entries)
    n_iter = pursuit.n_iter
    positive = tuple(max(int((s > 0).sum()), 1) for s in pursuit.spectra)
    if all(4 * rank <= len(s) for rank, s in zip(positive, pursuit.spectra, strict=True)):
        found = _next_to(entries, pursuit.low_rank)(positive)
        n_iter += found.n_iter
        found = _without_excess(found, _next_to(entries, pursuit.low_rank))
        excess = _ranks_by_gap(found) != found.core.shape
        if found.assessment.exact and not excess and not _local_modes(found):
            return Found(found, Status.CONVERGED, n_iter)
    # Noise makes every direction positive: those before the widest gap, then what the fit says.
    counts = [_count(s) for s in pursuit.spectra]
    ranks = tuple(counts)
    if not _testable(entries, ranks):
        ranks = (1,) * len(counts)
    given, first = fit_given(entries, ranks), ranks
    n_iter += given.n_iter
    found = given.fit
    for _ in range(0 if found.assessment.exact else _ROUNDS):
        following = _ranks_by_noise(entries, found)
        if following == ranks or not _testable(entries, following):
            break
        ranks = following
        found = _next_to(entries, found.dense() + _within(entries, found))(ranks)
        n_iter += found.n_iter
    if ranks != first:
        given = fit_given(entries, ranks)
        n_iter += given.n_iter
    stable = given.fit.assessment.exact or (
        _ranks_by_noise(entries, given.fit) == ranks and not _follows_one_slice(given.fit)
    )
    return Found(given.fit, given.status if stable else Status.UNCONFIRMED, n_iter)


def _follows_one_slice(fit: Fit) -> bool:
    """Whether a direction has more of its weight in one slice than in all the others.

    Where no rank was asked for, nothing tells such a direction from errors of that slice.
    """
    return any(float((factor**2).sum(axis=1).max()) > 0.5 for factor in fit.factors)


def _local_modes(fit: Fit) -> tuple[int, ...]:
    """The modes of an exact fit of which some direction is zero in most slices.

    A rank above the true one leaves directions that meet errors of a few slices and vanish in all
    others. Directions of a generic mode vanish in as many slices as there are other directions.
    """
    return tuple(k for k, factor in enumerate(fit.factors) if _zeros(factor) > 0.5)


def _zeros(factor: Any) -> float:
    """The largest fraction of zeros of a direction in the span of orthonormal columns.

    Found by reweighted least squares from the directions next to single slices, of which the
    slices with most weight are tried.
    """
    weight = (factor**2).sum(axis=1)
    starts = np.argsort(-weight, kind="stable")[:_STARTS]
    squares = (factor[:, :, None] * factor[:, None, :]).reshape(len(factor), -1)
    found = np.abs(factor[starts] @ factor.T)
    for halvings in range(1, 31):
        largest = np.maximum(found.max(axis=1, keepdims=True), 1e-300)
        sizes = np.maximum(found / largest, 0.5**halvings)
        grams = (1.0 / sizes) @ squares
        _, vectors = np.linalg.eigh(grams.reshape(-1, factor.shape[1], factor.shape[1]))
        found = np.abs(vectors[:, :, 0] @ factor.T)
    zeros = found <= _ZERO * found.max(axis=1, keepdims=True)
    return float(zeros.mean(axis=1).max())


def _testable(entries: Entries, ranks: tuple[int, ...]) -> bool:
    """Whether so many entries are left over that they can speak against a fit of these ranks."""
    return entries.count >= OVERDETERMINED * parameters(ranks, entries.values.shape)


def _ways(entries: Entries) -> list[Callable[[tuple[int, ...]], Fit]]:
    """Independent ways to the answer, the one that most often finds it first."""
    ways: list[Callable[[tuple[int, ...]], Fit]] = [
        lambda ranks: fit_ranks(entries, ranks),
        lambda ranks: descend(entries, ranks, SLOW),
        lambda ranks: fit_ranks(entries, ranks, 2, SLOW),
        lambda ranks: _next_to(entries, pursue(entries).low_rank)(ranks),
    ]
    if entries.values.ndim > 2:
        # Their heavy tails are what gradient descent is good at.
        ways[:3] = lambda ranks: descend(entries, ranks), ways[1], ways[0]
    return ways


def _next_to(entries: Entries, low_rank: Any) -> Callable[[tuple[int, ...]], Fit]:
    """The way to the fit of given ranks next to a model."""
    typical = float(np.linalg.norm(low_rank)) / float(np.sqrt(low_rank.size))
    return lambda ranks: refine(entries, *truncate(low_rank, ranks), 1e-3 * typical)


def _count(spectrum: Any) -> int:
    """The number of singular values before the widest gap in the upper half, all without a gap."""
    values = np.maximum(np.asarray(spectrum), 1e-12 * spectrum[0] or np.finfo(float).tiny)
    ratios = (values[:-1] / values[1:])[: max(len(values) // 2, 1)]
    widest = int(np.argmax(ratios)) if len(ratios) else 0
    return widest + 1 if len(ratios) and ratios[widest] > _GAP else len(values)


def _without_excess(fit: Fit, way: Callable[[tuple[int, ...]], Fit]) -> Fit:
    """A fit, or the exact one of lower ranks where its own were above the true ones."""
    while True:
        ranks = _ranks_by_gap(fit)
        if ranks == fit.core.shape:
            return fit
        fewer = way(ranks)
        if not fewer.assessment.exact or (fit.assessment.exact and _explains_more(fit, fewer)):
            return fit
        fit = fewer


def _explains_more(one: Fit, other: Fit) -> bool:
    """Whether an exact fit meets more entries than another than its parameters do by chance.

    Each parameter meets one entry. Where most of the data are zero, as around blocks, a rank that
    is too low meets most entries too.
    """
    more, fewer = one.assessment, other.assessment
    return more.kept - fewer.kept >= OVERDETERMINED * max(more.parameters - fewer.parameters, 1)


def _ranks_by_gap(fit: Fit) -> tuple[int, ...]:
    """Ranks without directions in excess, which are far weaker than the others.

    What such a direction takes up are the errors of a few slices: its weight is judged by the
    median of its entries.
    """
    counts = []
    for mode, factor in enumerate(fit.factors):
        turn, values, _ = np.linalg.svd(unfold(fit.core, mode), full_matrices=False)
        spread = np.median(np.abs(factor @ turn), axis=0) * np.sqrt(len(factor))
        weights = np.sort(values * np.minimum(spread, 1.0))[::-1]
        # Continued by the last value, so that a gap may stand anywhere.
        count = _count(np.append(weights, np.full(len(weights), weights[-1])))
        counts.append(min(count, len(weights)))
    return tuple(counts)


def _one_sided(entries: Entries, fit: Fit) -> bool:
    """Whether three of four gross errors, or more, have the same sign."""
    rest = entries.residual(fit.dense())
    above = int((rest > fit.assessment.threshold).sum())
    below = int((rest < -fit.assessment.threshold).sum())
    return 2 * abs(above - below) > above + below


def _confirm(entries: Entries, one: Fit, other: Fit) -> bool:
    return _agree(entries, one, other) and _credible(entries, one) and _credible(entries, other)


def _credible(entries: Entries, fit: Fit) -> bool:
    """Whether a fit has converged, its noise is centred, and its directions stand clear of noise.

    Residuals that lie closest together away from zero are no noise, but what many errors of one
    sign leave of the other entries. Noise of standard deviation sigma in a fraction p of the
    entries of an n x m matrix disturbs it by singular values up to sigma (sqrt(n) + sqrt(m)) /
    sqrt(p).
    """
    rest = entries.residual(fit.dense())
    middle, width = entries.shortest_half(rest)
    if not fit.converged or 2 * abs(middle) > width or not entries.is_centred(rest):
        return False
    size = entries.values.size
    sigma = fit.assessment.noise * float(np.sqrt(size / max(fit.assessment.kept, 1)))
    sides = [(d, size / d) for d in entries.values.shape]
    edges = [_CLEAR * sigma * (np.sqrt(n) + np.sqrt(m)) for n, m in sides]
    return all(s[-1] > edge for s, edge in zip(fit.spectra(), edges, strict=True))


def _agree(entries: Entries, one: Fit, other: Fit) -> bool:
    """Whether two models differ by less than noise makes either of them err.

    Noise of standard deviation sigma in n entries leaves a model of q parameters with an error of
    about sigma sqrt(q / n) in every entry.
    """
    found = one.assessment
    error = found.noise * float(np.sqrt(found.parameters / max(found.kept, 1)))
    apart = float(np.linalg.norm(one.dense() - other.dense()))
    return apart < error * float(np.sqrt(entries.values.size))


def _trimmed(entries: Entries, fit: Fit, level: float) -> float:
    rest = np.minimum(np.abs(entries.residual(fit.dense())), level)
    return float(np.vdot(rest, rest))


def _within(entries: Entries, fit: Fit) -> Any:
    """What a fit leaves of the entries without gross errors; zero elsewhere."""
    rest = entries.residual(fit.dense())
    rest[np.abs(rest) > fit.assessment.threshold] = 0.0
    return rest


def _ranks_by_noise(entries: Entries, fit: Fit) -> tuple[int, ...]:
    """Ranks with the directions of the fit, or of what it leaves, that noise alone does not give.

    Noise of standard deviation sigma in a fraction p of the entries of an n x m matrix has no
    singular value above sigma sqrt(p) (sqrt(n) + sqrt(m)), up to small fluctuations.
    """
    rest = _within(entries, fit)
    sigma = fit.assessment.noise
    found = []
    for mode, spectrum in enumerate(fit.spectra()):
        unfolding = unfold(rest, mode)
        n, m = unfolding.shape
        edge = _EDGE * sigma * np.sqrt(entries.fraction) * (np.sqrt(n) + np.sqrt(m))
        first = directions(unfolding, 10)
        above = int((np.linalg.svd(first.T @ unfolding, compute_uv=False) > edge).sum())
        kept = int((spectrum > edge).sum())
        # Half of them: the larger ones change what the smaller ones are.
        found.append(max(kept + (above + 1) // 2, 1))
    return tuple(found) if rest.ndim > 2 else (max(found),) * 2
