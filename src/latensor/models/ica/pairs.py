"""The last steps of unmixing: what is left of one source in another, as exactly as can be known.

For scores y_i = h_i + a h_j + e_i and y_j = h_j + b h_i + e_j of independent sources h, Gaussian
noise e of covariance N, and phi the score function of a source with its noise, the likelihood sees
a, b and N_ij through three means alone,

    E[phi_i y_j] - N_ij s_i,   E[y_i phi_j] - N_ij s_j,   E[phi_i phi_j] - N_ij s_i s_j,

s = E[phi'] (derivatives of its logarithm; Stein's identity for the noise). They are linear in a, b
and what N_ij is off, and their covariance is known, for the sources are independent: least squares
gives the move of maximum likelihood. For noise of unknown covariance all three are unknown, and
the variance of a, 1 / (n J_i (v_j - 1 / J_j)) with J = E[phi^2] and v = E[y^2], is the least that
any estimate has (docs/theory.md). Off-diagonal entries of N that are small for all pairs are held
to be so: they are drawn to zero by what their own spread over the pairs says of their size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc

from latensor.models.ica.scores import ScoreTables, estimate_scores
from latensor.models.ica.sums import CellCounts, PairSums, Pass, ScoreCovariance

# No fraction of a source is moved by more than this at once.
_LONGEST_MOVE = 0.3
# Moves whose square is below this fraction of a standard error are exact enough.
_SECOND_ORDER = 0.1
# What two sources that may be Gaussian hold of each other, nobody knows: fractions are drawn to
# zero as by so many samples that show none.
_FLAT = 20.0
# Information in all samples, n (J - 1), that a Gaussian source shows by chance.
_GAUSSIAN = 75.0
_RIDGE = 1e-5
# Correlations of the noise are taken for this many times as variable as the pairs show: some pairs
# have more than others.
_UNEVEN = 4.0
# Squares that vary by less than a tenth of those of a Gaussian source say nothing of energies:
# those of two values do not vary, but by what is left of other sources.
_LEAST_VARIATION = 0.2


@dataclass(frozen=True)
class RefinedPairs:
    """Sources told apart as exactly as the samples allow.

    Attributes
    ----------
    unmixing : (k, k), columns: sources are scores @ unmixing
    mixing : (d, k), what every sensor sees of each source; None without sensors
    noise_p_value : float, how often noise of the covariance that was assumed (none, where nothing
        was) leaves scores as correlated
    energy_correlation : float, of the squares of two sources, less what Gaussian noise gives them,
        root mean square over the pairs
    dependence : float, samples that tell as much as one independent one, in the mean of all pairs
    """

    unmixing: Any
    mixing: Any
    noise_p_value: float
    energy_correlation: float
    dependence: float


@dataclass(frozen=True)
class Means:
    """Expectations over scores y of variance one and their score functions phi.

    crossed, both, second : (k, k), of phi_i y_j, phi_i phi_j and y_i y_j; energy : (k, k), the
    correlations of y^2 but for the noise; slopes, bend, second_bend : (k,), of phi' and its two
    derivatives.
    """

    crossed: Any
    both: Any
    second: Any
    energy: Any
    slopes: Any
    bend: Any
    second_bend: Any


def refine_pairs(
    scores: Pass,
    noise: Any,
    unmixing: Any,
    *,
    with_sensors: bool = False,
    dependence: Any = None,
    max_iter: int = 4,
) -> RefinedPairs:
    """Take out of every source what is left of the others in it.

    Parameters
    ----------
    scores : passes over (n, k) and the sensors
    noise : (k, k), covariance of the noise in the scores; None where it is unknown
    unmixing : (k, k), columns that nearly unmix the scores; their variance or length does not count
    with_sensors : bool, whether to see the mixing in the sensors
    dependence : (k, k), samples that tell as much as one independent one, of every pair; None: 1
    max_iter : int, moves
    """
    weight, mean, covariance, center = scores(ScoreCovariance()).finalize()
    if dependence is None:
        dependence = np.ones(covariance.shape)
    evidence, energy = float("nan"), float("nan")
    tables: ScoreTables | None = None
    for _ in range(max(max_iter, 1)):
        unmixing = _scaled(unmixing, covariance)
        counts = scores(CellCounts(mean, unmixing)).finalize()
        # How samples depend on each other in time would only make the functions too smooth: on
        # audio it cost 9 % of the Amari distance. It counts where noise is tested for, below.
        tables = estimate_scores(counts)
        sums = scores(PairSums(mean, unmixing, tables)).seen()
        found = _means(sums, unmixing, tables, covariance)
        known = None if noise is None else unmixing.T @ noise @ unmixing
        move, evidence = pair_moves(found, known, weight / dependence)
        pairs = found.energy[np.triu_indices(len(move), 1)]
        energy = float(np.sqrt((pairs**2).mean())) if len(pairs) else float("nan")
        longest = float(np.abs(move).max(initial=0.0))
        unmixing = unmixing - unmixing @ move.T * min(1.0, _LONGEST_MOVE / max(longest, 1e-300))
        precision = float(np.sqrt(weight * found.slopes.max()))
        if longest**2 * precision < _SECOND_ORDER:
            break
    unmixing = _scaled(unmixing, covariance)
    mixing = None
    if with_sensors and tables is not None:
        mixing = _mixing(scores(PairSums(mean, unmixing, tables, True)).seen(), center)
    return RefinedPairs(unmixing, mixing, evidence, energy, float(dependence.mean()))


def pair_moves(found: Means, noise: Any, weight: Any) -> tuple[Any, float]:
    """What every source holds of each other (k, k), and the p-value of the noise.

    Parameters
    ----------
    found : Means
    noise : (k, k), of the scores, or None
    weight : (k, k), independent samples n of every pair
    """
    size = len(found.slopes)
    first, second = np.triu_indices(size, 1)
    moves = np.zeros((size, size))
    if len(first) == 0:
        return moves, float("nan")
    # What noise puts into two scores; of unknown noise, its first order is the third unknown.
    left, told = (found.second, 0.0) if noise is None else (noise, noise)
    noise_variance = np.zeros(size) if noise is None else np.diag(noise)
    s, m, q = found.slopes, np.diag(found.crossed), np.diag(found.both)
    crossed = found.crossed - told * s[:, None]
    # The series of Gaussian noise in both scores: N^r / r! E[phi_i^(r)] E[phi_j^(r)].
    both = found.both - told * np.outer(s, s)
    both = both - left**2 / 2 * np.outer(found.bend, found.bend)
    both = both - left**3 / 6 * np.outer(found.second_bend, found.second_bend)
    values = np.stack([crossed[first, second], crossed[second, first], both[first, second]], 1)

    adjusted = m - noise_variance * s
    signal = 1 - noise_variance
    i, j = first, second
    samples = weight[first, second]
    one = np.ones(len(i))
    design = np.array(
        [
            [s[i] * signal[j], adjusted[i], s[i]],
            [adjusted[j], s[j] * signal[i], s[j]],
            [s[i] * adjusted[j], adjusted[i] * s[j], s[i] * s[j]],
        ]
    ).transpose(2, 0, 1)
    spread = np.array(
        [
            [q[i], m[i] * m[j], q[i] * m[j]],
            [m[i] * m[j], q[j], m[i] * q[j]],
            [q[i] * m[j], m[i] * q[j], q[i] * q[j]],
        ]
    ).transpose(2, 0, 1)
    scale = 1 / np.sqrt(
        np.stack([q[i], q[j], q[i] * q[j]], 1) + np.finfo(float).tiny * one[:, None]
    )
    design, values = design * scale[:, :, None], values * scale
    spread = spread * scale[:, :, None] * scale[:, None, :] + _RIDGE * np.eye(3)
    weighted = np.linalg.solve(spread, design)
    normal = design.transpose(0, 2, 1) @ weighted
    right = np.einsum("pef,pe->pf", weighted, values)

    def solved(precision: float) -> tuple[Any, Any]:
        prior = np.array([_FLAT, _FLAT, precision]) / samples[:, None]
        inverse = np.linalg.inv(normal + prior[:, :, None] * np.eye(3))
        return np.einsum("pef,pf->pe", inverse, right), inverse

    free, inverse = solved(0.0)
    variances = np.maximum(inverse[:, 2, 2], np.finfo(float).tiny) / samples
    evidence = float(chdtrc(len(first), (free[:, 2] ** 2 / variances).sum()))
    size_of_noise = 0.0
    if noise is None:
        trust = (variances.min() / variances) ** 2
        size_of_noise = float((trust * (free[:, 2] ** 2 - variances)).sum() / trust.sum())
    if size_of_noise > 0:
        fractions = solved(1 / (_UNEVEN * size_of_noise))[0]
    else:
        prior = (_FLAT / samples)[:, None, None] * np.eye(2)
        fractions = np.linalg.solve(normal[:, :2, :2] + prior, right[:, :2, None])[:, :, 0]
    # Two sources that may be Gaussian are made white, and not turned into each other.
    gaussian = np.maximum(s[i], s[j]) - 1 < _GAUSSIAN / samples
    fractions[gaussian, :2] = 0.0
    if noise is not None:
        fractions[gaussian, :2] = (found.second - noise)[i, j][gaussian, None] / 2
    moves[first, second], moves[second, first] = fractions[:, 0], fractions[:, 1]
    return moves, evidence


def _scaled(unmixing: Any, covariance: Any) -> Any:
    """Columns for scores of variance one."""
    return unmixing / np.sqrt(np.einsum("ij,ik,kj->j", unmixing, covariance, unmixing))


def _means(sums: dict[str, Any], unmixing: Any, tables: ScoreTables, covariance: Any) -> Means:
    weight = float(sums["weight"])
    offset, level = sums["offsets"] / weight, sums["power"] / weight
    energy = sums["energy"] / weight - np.outer(level, level)
    size = np.sqrt(np.maximum(np.diag(energy), _LEAST_VARIATION))
    second = unmixing.T @ covariance @ unmixing
    # Gaussian noise that two sources share gives their squares a covariance of 2 N_ij^2.
    energy = energy - 2 * second**2
    return Means(
        sums["crossed"] / weight,
        sums["both"] / weight - np.outer(offset, offset),
        second,
        energy / np.outer(size, size),
        sums["slopes"] / weight,
        tables.bend,
        tables.second_bend,
    )


def _mixing(sums: dict[str, Any], center: Any) -> Any:
    """The columns (d, k) of the mixing matrix: E[(y_j - phi_j / s_j) x], which no noise enters.

    In units in which its source has variance one, that is divided by v_j - E[phi_j y_j] / s_j.
    """
    weight = float(sums["weight"])
    slopes, linear = sums["slopes"] / weight, np.diag(sums["crossed"]) / weight
    # The scores y have mean zero; of phi the sensors' own mean is taken off.
    tangent = sums["tangent"] / weight - np.outer(center, sums["offsets"] / weight)
    scale = 1 - linear / slopes
    divisor = np.where(np.abs(scale) > 1e-12, scale, 1e-12)
    return (sums["seen"] / weight - tangent / slopes) / divisor
