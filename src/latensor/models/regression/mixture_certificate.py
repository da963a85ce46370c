"""How far a mixture of regressions can be trusted, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import chdtri, entr, expit, rel_entr

from latensor.diagnostics.design import collinear_finding, samples_finding, starts_finding
from latensor.diagnostics.evidence import evidence_finding
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    finding,
    shown_spectrum,
)
from latensor.value_files import storable

# Distance of the two closest components in standard deviations of the noise.
_APART, _CLOSE = 1.0, 0.3
# Logistic mixtures had errors of .36 at 20,000 samples and .09 at 200,000 (ten features, three
# components).
_LOGISTIC = 100_000
_DRAWS = 4096
# Slopes are the same where they differ by less than so many times what equal ones differ by on
# average, or by this fraction of the smaller noise.
_TIMES, _FRACTION = 2.0, 0.3
# Two modes are told apart where the density between them falls below this fraction of the lower
# one: exponential noise, fitted by two Gaussians, falls to .9 of it.
_VALLEY, _GRID = 0.5, 201
# How often chance alone may move the features of a component.
_LEVEL = 1e-4
# Steps of Newton's method for a logistic regression of as many draws.
_NEWTON = 20


@storable
@dataclass(frozen=True)
class RegressionMixtureCertificate(Findings):
    """What can be said about a fitted mixture of regressions; `print` it for plain words.

    Attributes
    ----------
    n_components, n_features : int
    link : str
    method : str, where the parameters come from
    rank : int, directions in which X varies; below n_features its columns are collinear
    samples_per_coefficient : float, of the smallest component
    separation : float, the smallest root mean square distance of two predictions, in standard
        deviations of the noise (of the target for links without one); infinite for one component
    n_starts, n_agreed : int, starts of EM and how many of them led to the optimum that was kept
    n_samples : float
    constant_features : columns that do not vary
    n_seen : int, how many directions of coefficients the second moment shows above its noise; None
        where moments determine nothing
    spectrum : its eigenvalues, decreasing, as fractions of the largest
    gain : float, log-likelihood of all samples that is lost if the two components are joined that
        lose least; infinite for counts, where it is not known
    asked : float, what the Bayesian information criterion asks of that gain for a component
    noise_only : bool, whether two components have the same slopes and intercepts so close that
        they are no two modes
    widest : float, the noise of a component over the standard deviation of all other samples, at
        most; 0 where there is none
    feature_shift : float, how far the mean of the features of a component is from that of all, at
        most, over what chance reaches; 0 where it is not known
    """

    n_components: int
    n_features: int
    link: str
    method: str
    rank: int
    samples_per_coefficient: float
    separation: float
    n_starts: int
    n_agreed: int
    n_samples: float
    constant_features: tuple[int, ...] = ()
    n_seen: int | None = None
    spectrum: tuple[float, ...] = ()
    gain: float = float("inf")
    asked: float = 0.0
    noise_only: bool = False
    widest: float = 0.0
    feature_shift: float = 0.0

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        by = "moments" if self.method == "moments" else "EM"
        return f"mixture of {self.n_components} regressions on {self.n_features} features, by {by}"

    @finding("Samples")
    def _samples(self) -> Said:
        each = self.samples_per_coefficient
        told = f"the smallest component has {each:.3g} samples for every coefficient."
        return samples_finding(each, told)

    @finding("Separation")
    def _separation(self) -> Said | None:
        if self.n_components == 1:
            return None
        text = (
            f"the two closest components predict {self.separation:.3g} standard deviations apart."
        )
        if self.separation >= _APART:
            return GOOD, text
        level = CAUTION if self.separation >= _CLOSE else BAD
        return level, text + " They may be one: lower n_components."

    @finding("Evidence")
    def _evidence(self) -> Said | None:
        return evidence_finding(self.n_components, self.gain, self.asked)

    @finding("Noise")
    def _noise(self) -> Said | None:
        if not self.noise_only:
            return None
        return CAUTION, (
            "two components have the same slopes and intercepts that are no two modes: a single "
            "regression whose noise is skewed or heavy-tailed explains them as well."
        )

    @finding("Outliers")
    def _background(self) -> Said | None:
        if self.widest <= 1:
            return None
        return CAUTION, (
            f"the noise of one component is {self.widest:.3g} times as wide as all other samples: "
            "it may hold outliers of y, in place of a regression. Take them out."
        )

    @finding("Features")
    def _features(self) -> Said | None:
        if self.feature_shift <= 1:
            return None
        return CAUTION, (
            f"the features of one component are {self.feature_shift:.2g} times as far from those "
            "of all samples as chance reaches: which component holds depends on X. One curve may "
            "have been cut in pieces."
        )

    @finding("Optimum")
    def _starts(self) -> Said | None:
        return starts_finding(self.n_agreed, self.n_starts) if self.n_starts > 1 else None

    @finding("Moments")
    def _directions(self) -> Said | None:
        if self.n_seen is None or self.n_seen >= self.n_components:
            return None
        text = (
            f"the second moment shows {self.n_seen} of {self.n_components} directions (spectrum "
            f"{shown_spectrum(self.spectrum)} of the largest)"
        )
        if self.n_agreed > 1:
            return GOOD, text + ": the components rest on the likelihood."
        return CAUTION, text + ": give more samples, or lower n_components."

    @finding("Logistic components")
    def _logistic(self) -> Said | None:
        if self.link != "logit" or self.n_components == 1 or self.n_samples >= _LOGISTIC:
            return None
        return CAUTION, (
            f"{self.n_samples:,.0f} samples of one bit each: below 100,000 the components of a "
            "logistic mixture are rarely determined."
        )

    @finding("Collinear features")
    def _collinear(self) -> Said | None:
        return collinear_finding(self.rank, self.n_features, self.constant_features, "coefficients")


def smallest_gain(weights: np.ndarray, coefficients: np.ndarray, variances: np.ndarray) -> float:
    """Log-likelihood per sample that is lost when the two regressions become one that lose least.

    One regression in place of two of weights a, b (of sum s) has the noise S = (a v_i + b v_j) / s
    + a b g / s^2, g the mean square difference of predictions. The loss is s [ln S - (a ln v_i + b
    ln v_j) / s] / 2 - s I, with I what a sample tells of its component: the entropy of (a, b) / s
    less that of its posterior, by draws of Gaussian features.

    Parameters
    ----------
    weights, variances : (k,)
    coefficients : (k, 1 + d), intercepts first, of whitened features
    """
    rng = np.random.default_rng(0)
    smallest = np.inf
    for pair in combinations(range(len(weights)), 2):
        places = list(pair)
        total = float(weights[places].sum())
        fractions, noise = weights[places] / total, variances[places]
        gap = coefficients[pair[0]] - coefficients[pair[1]]
        joined = float(fractions @ noise + fractions.prod() * (gap @ gap))
        told = float(entr(fractions).sum())
        for own in range(2):
            apart = gap[0] + np.linalg.norm(gap[1:]) * rng.standard_normal(_DRAWS)
            error = np.sqrt(noise[own]) * rng.standard_normal(_DRAWS)
            logs = np.log(fractions) - np.log(noise) / 2
            odds = (
                logs[own] - error**2 / noise[own] / 2
                - logs[1 - own] + (error + apart) ** 2 / noise[1 - own] / 2
            )  # fmt: skip
            posterior = expit(odds)
            told -= float(fractions[own] * (entr(posterior) + entr(1 - posterior)).mean())
        loss = (np.log(joined) - fractions @ np.log(noise)) / 2 - told
        smallest = min(smallest, float(total * loss))
    return smallest


def widest_noise(weights: np.ndarray, coefficients: np.ndarray, variances: np.ndarray) -> float:
    """The largest noise of a component over the standard deviation of the samples of all others.

    Parameters
    ----------
    weights, variances : (k,)
    coefficients : (k, 1 + d), intercepts first, of whitened features
    """
    widest = 0.0
    for own in range(len(weights) if len(weights) > 1 else 0):
        others = np.delete(weights, own) / np.delete(weights, own).sum()
        means = np.delete(coefficients, own, axis=0)
        spread = (means**2).sum(axis=1) + np.delete(variances, own)
        total = others @ spread - (others @ means[:, 0]) ** 2
        widest = max(widest, float(np.sqrt(variances[own] / total)))
    return widest


def feature_shift(grams: np.ndarray, counts: np.ndarray) -> float:
    """How far the mean of the features of a component is from that of all, over chance.

    Components are drawn whatever the features are, so that n_j |mean_j|^2 of whitened features is
    at most chi-squared of d degrees (less where a posterior is not certain).

    Parameters
    ----------
    grams, counts : (k, 1 + d, 1 + d) and (k,), sums of z z' and of 1 over a component; z_0 = 1
    """
    if len(counts) == 1 or grams.shape[1] == 1 or not counts.min() > 0:
        return 0.0
    means = grams[:, 0, 1:] / counts[:, None]
    chance = chdtri(means.shape[1], _LEVEL / len(counts))
    return float(np.sqrt((counts * (means**2).sum(axis=1)).max() / chance))


def differs_in_noise_only(
    weights: np.ndarray, coefficients: np.ndarray, variances: np.ndarray, count: float
) -> bool:
    """Whether two components are one regression whose noise is no Gaussian.

    Their slopes differ by no more than errors of estimation, whose mean square is d (v_i / w_i +
    v_j / w_j) / n, and between their intercepts the density of both has no deep valley.

    Parameters
    ----------
    weights, variances : (k,)
    coefficients : (k, 1 + d), intercepts first, of whitened features
    count : float, samples
    """
    for i, j in combinations(range(len(weights)), 2):
        gap, noise = coefficients[i] - coefficients[j], np.sqrt(variances[[i, j]])
        error = np.sqrt((len(gap) - 1) * (noise**2 / weights[[i, j]]).sum() / count)
        same = np.linalg.norm(gap[1:]) < max(_TIMES * error, _FRACTION * noise.min())
        along = np.linspace(0.0, gap[0], _GRID)[:, None] - np.array([gap[0], 0.0])
        density = np.exp(-0.5 * (along / noise) ** 2) @ (weights[[i, j]] / noise)
        lowest = int(density.argmin())
        peaks = min(density[: lowest + 1].max(), density[lowest:].max())
        if same and density[lowest] > _VALLEY * peaks:
            return True
    return False


def smallest_logistic_gain(weights: np.ndarray, coefficients: np.ndarray) -> float:
    """What `smallest_gain` is for targets of one bit: the loss by the likeliest single regression.

    The probability (a p_i + b p_j) / s of two components, by draws of Gaussian features, is fitted
    by one logistic regression; the loss is s times the divergence that is left. It lies in the
    plane of both slopes.
    """
    rng = np.random.default_rng(0)
    draws = np.column_stack([np.ones(_DRAWS), rng.standard_normal((_DRAWS, 2))])
    smallest = np.inf
    for pair in combinations(range(len(weights)), 2):
        total = float(weights[list(pair)].sum())
        plane = np.linalg.qr(coefficients[list(pair), 1:].T)[1].T
        flat = np.zeros((2, 3))
        flat[:, 0], flat[:, 1 : 1 + plane.shape[1]] = coefficients[list(pair), 0], plane
        chances = expit(draws @ flat.T) @ (weights[list(pair)] / total)
        one = weights[list(pair)] @ flat / total
        for _ in range(_NEWTON):
            found = expit(draws @ one)
            divergence = rel_entr(chances, found) + rel_entr(1 - chances, 1 - found)
            smallest = min(smallest, total * float(divergence.mean()))
            hessian = (draws * (found * (1 - found))[:, None]).T @ draws
            hessian += np.finfo(float).eps * _DRAWS * np.eye(3)
            one = one + np.linalg.solve(hessian, draws.T @ (chances - found))
    return smallest
