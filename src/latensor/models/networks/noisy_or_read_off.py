"""Causes of a noisy-or network, read off pointwise mutual information (monograph 4.4).

With F_ij the probability that cause j alone turns feature i on, u = F / (1 - prior F) and
v = prior (1 - prior), the leak cancels from the logs of the probabilities that features are off:

    log P(a, b off) - log P(a off) - log P(b off) = sum_j log(1 + v_j u_aj u_bj)   exactly,

and the third difference is -sum_j v_j (1 - 2 prior_j) u_aj u_bj u_cj to leading order. The rest
is known once the parameters are: a few rounds of subtracting it make the read-off exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import eigh

from latensor.arrays import Array
from latensor.decomposition import JointDiagonalization
from latensor.value_files import storable

# Rounds in which diagonals are completed at first, and after each correction: the diagonal is known
# from the last round then.
_COMPLETIONS, _FURTHER = 100, 20
# Steps that an extrapolation is made of.
_MEMORY = 6
# Corrections: each shrinks the error by about the largest prior (a fifth at most where it is used).
_ROUNDS = 60
# Rounds without a smaller step than ever, after which there is nothing more to gain.
_STALLED = 8
# Simulations of independent features, and the samples of which their pairs are drawn at most.
_SIMULATIONS = 12
_MOST_SAMPLES = 10**15
# Counts below one half are not told from zero.
_LEAST = 0.5
# Probabilities that are no certainty, so that logarithms stay finite.
CERTAIN = 1 - 1e-9


@storable
@dataclass(frozen=True)
class NoisyOrState:
    """The parameters of a network.

    Attributes
    ----------
    prior : (k,), of the causes
    components : (k, d), the probability that a cause alone turns a feature on
    leak : (d,), that a feature is on without a cause
    """

    prior: Any
    components: Any
    leak: Any


@storable
@dataclass(frozen=True, eq=False)
class Interactions:
    """Logs of the probabilities that features are off, as differences.

    Attributes
    ----------
    off : (d,), log P(feature off)
    scale : (d,), in which the noise of all pairs is n^-1/2; 0 for features that do not vary
    pairs : (d, d), the pointwise mutual information of being off, scaled; the diagonal is free
    weight : float, samples
    """

    off: Any
    scale: Any
    pairs: Any
    weight: float

    @classmethod
    def of(cls, pairs: Array, weight: float) -> Interactions:
        """From how often pairs are on: inclusion and exclusion gives how often they are off."""
        ones = np.diag(pairs)
        both = np.maximum(weight - ones[:, None] - ones[None] + pairs, _LEAST)
        single = np.maximum(weight - ones, _LEAST)
        off = np.log(single / weight)
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = np.sqrt(single / ones)
        scale[(ones <= 0) | (ones >= weight)] = 0.0
        found = np.log(both / weight) - off[:, None] - off[None]
        found *= scale[:, None] * scale[None]
        np.fill_diagonal(found, 0.0)
        return cls(off, scale, found, weight)

    @cached_property
    def edge(self) -> float:
        """The largest eigenvalue that pairs of independent features as frequent as these give.

        By simulation, as pairs of rare features have long tails and few features large deviations;
        that pairs are not independent of each other widens the spectrum from 2 s to 2 s + s^2,
        s^2 = d / n (Marchenko and Pastur).
        """
        rng, size = np.random.default_rng(0), min(round(self.weight), _MOST_SAMPLES)
        ones = np.where(self.scale > 0, -np.expm1(self.off), 0.0)
        upper = np.triu_indices(len(ones), 1)
        found = []
        for _ in range(_SIMULATIONS):
            pairs = np.diag(ones * size)
            pairs[upper] = rng.binomial(size, (ones[upper[0]] * ones[upper[1]]))
            pairs.T[upper] = pairs[upper]
            found.append(top_eigenvalue(Interactions.of(pairs, size).pairs))
        wider = 1 + np.sqrt(np.count_nonzero(ones) / size) / 2
        return float(wider * (np.mean(found) + 3 * np.std(found, ddof=1)))


def complete(
    pairs: Array, rank: int, diagonal: Array, rounds: int, tolerance: float = 0.0
) -> tuple[Array, Array, Array]:
    """Eigenvalues, eigenvectors and diagonal of the matrix of low rank that explains all pairs.

    Replaces the diagonal by that of the leading eigenpairs until it stays; the steps are
    extrapolated from the last few (Anderson), as they shrink slowly where causes have few features.
    """
    matrix = pairs.copy()
    values, vectors = np.empty(0), np.empty((len(pairs), 0))
    rounds = rounds if rank else 0
    points: list[Array] = []
    steps: list[Array] = []
    for _ in range(rounds):
        np.fill_diagonal(matrix, diagonal)
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = np.maximum(values[::-1][:rank], 0.0), vectors[:, ::-1][:, :rank]
        step = (vectors**2) @ values - diagonal
        if np.abs(step).max() <= max(tolerance, 1e-14 * float(values[0])):
            break
        points, steps = [*points, diagonal][-_MEMORY:], [*steps, step][-_MEMORY:]
        diagonal = diagonal + step
        if len(steps) > 1:
            bends = np.stack([step - other for other in steps[:-1]], axis=1)
            moves = np.stack([points[-1] - other for other in points[:-1]], axis=1)
            mixed = np.linalg.lstsq(bends, step, rcond=1e-10)[0]
            diagonal = np.maximum(diagonal - (moves + bends) @ mixed, 0.0)
    return values, vectors, diagonal


def top_eigenvalue(pairs: Array) -> float:
    """The largest eigenvalue of a matrix of pairs (d, d) without its diagonal."""
    matrix = pairs.copy()
    np.fill_diagonal(matrix, 0.0)
    last = len(pairs) - 1
    return float(eigh(matrix, eigvals_only=True, subset_by_index=[last, last])[0])


def left_over(pairs: Array, values: Array, vectors: Array) -> float:
    """The largest eigenvalue of what a matrix of low rank leaves of all pairs.

    The diagonal, which is free, is left out: completed, it would make a cause out of noise.
    """
    return top_eigenvalue(pairs - (vectors * values) @ vectors.T)


def count_causes(known: Interactions, limit: int) -> tuple[int, Array]:
    """How many causes the pairs show: one more as long as what is left over is no noise.

    Also the largest eigenvalues of what is left over by 0, 1, ... causes, up to the first one that
    is noise, or to the limit.
    """
    d = len(known.pairs)
    spectrum: list[float] = []
    diagonal = np.zeros(d)
    values, vectors = np.empty(0), np.empty((d, 0))
    for rank in range(1, min(limit, d) + 1):
        spectrum.append(left_over(known.pairs, values, vectors))
        if spectrum[-1] <= known.edge:
            break
        values, vectors, diagonal = complete(
            known.pairs, rank, diagonal, _COMPLETIONS, 0.01 * known.edge
        )
    count = sum(value > known.edge for value in spectrum)
    return max(count, 1), np.array(spectrum)


def triple_interactions(known: Interactions, pairs: Array, triples: Array, chosen: Array) -> Array:
    """-T (C(m, 3),) of chosen features: the third difference of logs, not scaled.

    Parameters
    ----------
    known : of all features
    pairs : (m, m) fraction of samples in which chosen pairs are on
    triples : (C(m, 3),) of triples
    chosen : (m,) features
    """
    a, b, c = triple_indices(len(chosen))
    ones = np.diag(pairs)
    none = 1 - ones[a] - ones[b] - ones[c] + pairs[a, b] + pairs[a, c] + pairs[b, c] - triples
    none = np.log(np.maximum(none, _LEAST / known.weight))
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = known.scale[chosen]
        twice = known.pairs[np.ix_(chosen, chosen)] / (scale[:, None] * scale[None])
    twice[~np.isfinite(twice)] = 0.0
    off = known.off[chosen]
    return -(none - off[a] - off[b] - off[c] - twice[a, b] - twice[a, c] - twice[b, c])


def triple_indices(count: int) -> tuple[Array, Array, Array]:
    """A < b < c in the order C(c, 3) + C(b, 2) + a."""
    c, b, a = np.nonzero(
        (np.arange(count)[:, None, None] > np.arange(count)[None, :, None])
        & (np.arange(count)[None, :, None] > np.arange(count)[None, None, :])
    )
    return a, b, c


@dataclass(frozen=True)
class NoisyOrReadOff:
    """What the moments say.

    Attributes
    ----------
    state : NoisyOrState
    off_diagonal : float, the fraction of the whitened third moment that causes do not explain
    condition : float, of the whitening
    gap : float, the smallest eigenvalue kept, over what noise gives
    spectrum : (k,) eigenvalues of the completed matrix of pairs, as fractions of the largest
    """

    state: NoisyOrState
    off_diagonal: float
    condition: float
    gap: float
    spectrum: tuple[float, ...]


def read_off(
    known: Interactions,
    triples: Array,
    chosen: Array,
    count: int,
    rng: np.random.Generator,
    algorithm: Callable[..., Any] | None = None,
) -> NoisyOrReadOff:
    """Parameters from interactions of pairs and of chosen triples.

    Parameters
    ----------
    known : Interactions, of all features
    triples : (C(m, 3),), of `triple_interactions`
    chosen : (m,) features
    count : int, causes
    rng : of the decomposition
    algorithm : of `latensor.decomposition`; None for joint diagonalization
    """
    from latensor.models.networks._kernels import third_interactions

    d, m = len(known.scale), len(chosen)
    scale, near = known.scale, known.scale[chosen]
    a, b, c = triple_indices(m)
    apart = near[a] * near[b] * near[c]
    correction, beyond = np.zeros((d, d)), np.zeros(len(a))
    diagonal, repeated = np.zeros(d), np.zeros((m, m, m))
    tensor = np.empty((m, m, m))
    i = np.arange(m)
    equal = i[:, None] == i
    free = equal[:, :, None] | equal[:, None, :] | equal[None, :, :]
    components, least, stalled = np.zeros((count, d)), np.inf, 0
    tolerance = 0.01 / np.sqrt(known.weight)
    for round_ in range(_ROUNDS):
        rounds = _FURTHER if round_ else _COMPLETIONS
        values, vectors, diagonal = complete(
            known.pairs - correction, count, diagonal, rounds, tolerance
        )
        factor = vectors * np.sqrt(np.maximum(values, 1e-12 * max(values[0], 1e-300)))
        tensor[...] = repeated
        entries = apart * (triples - beyond)
        for order in ((a, b, c), (a, c, b), (b, a, c), (b, c, a), (c, a, b), (c, b, a)):
            tensor[order] = entries
        core = _completed_core(tensor, factor[chosen], free, rounds, tolerance)
        found = (algorithm or JointDiagonalization())(core, count, rng)
        weights, (turned, *_) = found
        signs = np.where(weights < 0, -1.0, 1.0)
        # The core is sum_j (1 - 2 prior) v^-1/2 r_j^(x)3, and (1 - 2 prior)^2 = 1 - 4 v.
        variances = 1 / (weights**2 + 4)
        prior = 2 * variances / (1 + np.sqrt(1 - 4 * variances))
        columns = (factor @ (turned * signs)) / np.sqrt(variances)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(scale[:, None] > 0, columns / scale[:, None], 0.0)
        before, components = components, np.clip(ratios / (1 + prior * ratios), 0.0, CERTAIN).T
        step = float(np.abs(components - before).max())
        # Noise beyond what any network explains keeps the steps from shrinking.
        stalled = 0 if step < least else stalled + 1
        least = min(step, least)
        if step <= tolerance or stalled == _STALLED:
            break
        ratios = components.T / (1 - prior * components.T)
        skews = variances * np.sqrt(1 - 4 * variances)
        correction = _second_terms(ratios, variances) * (scale[:, None] * scale[None])
        third_interactions(np.ascontiguousarray(ratios[chosen]), variances, skews, beyond)
        scaled = ratios[chosen] * near[:, None]
        repeated = np.einsum("j,aj,bj,cj->abc", skews, scaled, scaled, scaled, optimize=True)
        diagonal = (ratios**2 @ variances) * scale**2
    leak = 1 - np.exp(known.off - np.log1p(-prior[:, None] * components).sum(axis=0))
    prior = np.maximum(prior, 1 - CERTAIN)
    state = NoisyOrState(prior, components, np.clip(leak, 1 - CERTAIN, CERTAIN))
    off_diagonal = float(getattr(found, "off_diagonal", np.nan))
    smallest = max(float(values[-1]), 1e-300)
    fewer = complete(known.pairs, count - 1, np.zeros(d), _COMPLETIONS, tolerance)
    weakest = left_over(known.pairs, *fewer[:2])
    gap = weakest / known.edge if known.edge > 0 else np.inf
    spectrum = tuple(float(value) for value in values / max(float(values[0]), 1e-300))
    return NoisyOrReadOff(state, off_diagonal, float(values[0]) / smallest, gap, spectrum)


def _completed_core(
    tensor: Array, factor: Array, free: Array, rounds: int, tolerance: float
) -> Array:
    """The symmetric core (k, k, k) that explains a tensor (m, m, m), which has low rank, best.

    In the coordinates of a factor (m, k). Free entries, those with repeated indices, are replaced
    by what the core gives for them until it stays.
    """
    back = np.linalg.pinv(factor)
    core, before = np.empty(0), np.empty(0)
    for _ in range(rounds):
        core = np.einsum("abc,ia,jb,kc->ijk", tensor, back, back, back, optimize=True)
        core = sum(core.transpose(p) for p in _ORDERS) / 6
        if before.size and np.abs(core - before).max() <= tolerance * np.abs(core).max():
            break
        whole = np.einsum("ijk,ai,bj,ck->abc", core, factor, factor, factor, optimize=True)
        tensor[free], before = whole[free], core
    return core


_ORDERS = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


def _second_terms(ratios: Array, variances: Array) -> Array:
    """What pairs interact beyond sum_j v_j u_aj u_bj."""
    total = np.zeros((len(ratios), len(ratios)))
    for column, variance in zip(ratios.T, variances, strict=True):
        product = variance * np.outer(column, column)
        total += np.log1p(product) - product
    return total
