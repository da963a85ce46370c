"""How far a Gaussian mixture with full, tied, diagonal or spherical covariances can be trusted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.special import entr

from latensor.diagnostics.evidence import evidence_finding, observed_finding
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Said, Statement, finding
from latensor.diagnostics.mixture_certificate import MixtureCertificate
from latensor.refinement.families.covariances import (
    DIAG,
    FULL,
    cholesky,
    log_determinants,
    merge_costs,
    of_components,
)
from latensor.refinement.mixture_search import ANOTHER, ERRORS
from latensor.value_files import storable

# Below so many rows per feature the optimum of the likelihood is not the better model: with 3.3 a
# tied or diagonal covariance had the higher held-out likelihood in all settings, with 8 in none.
_ENOUGH_ROWS, _FEWEST_ROWS = 10.0, 5.0
_DRAWS = 4096
# What is said of all mixtures, here at the end, and what only where they are read off moments.
_OF_ALL = ("Convergence", "Halves", "Fit", "Shape", "Separation", "Constant features", "Note")
_OF_MOMENTS = ("Third moment", "Independent means", "Range of the features")


@storable
@dataclass(frozen=True)
class GaussianMixtureCertificate(MixtureCertificate):
    """What can be said about a fitted Gaussian mixture; `print` it for plain words.

    Attributes
    ----------
    covariance_type : str
    rows_per_feature : float, rows of the smallest component over the number of features
    collapsed : int, components that have shrunk onto too few rows for a covariance
    missing : float, fraction of entries that are not observed
    n_patterns : int, distinct patterns of observed entries in a sample of the rows
    n_observed : float, rows of a component that show a feature, or two features whose covariance is
        free, the fewest; infinite where nothing is missing
    gain : float, log-likelihood of all rows that is lost if the two components are joined that
        can be joined at the least loss
    asked : float, what the Bayesian information criterion asks of that gain for a component, with
        its correction for few rows; rows that are all given several times count once in both
    ahead : float, standard errors by which another optimum that was met is less likely (Vuong
        1989); infinite where none came near
    moved : float, fraction of the rows that it puts into other components
    is_same : bool, whether its components are those that were found, by the measure that halves of
        the data are compared by: 4 d2(partners) < d2(nearest other component)
    """

    covariance_type: str = "full"
    rows_per_feature: float = float("inf")
    collapsed: int = 0
    missing: float = 0.0
    n_patterns: int = 1
    n_observed: float = float("inf")
    gain: float = float("inf")
    asked: float = 0.0
    ahead: float = float("inf")
    moved: float = 0.0
    is_same: bool = False
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit", "Shape"})

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        found = super().statements
        own = [s for s in found if s.topic not in _OF_MOMENTS + _OF_ALL]
        return (*own, *(s for s in found if s.topic in _OF_ALL))

    @finding("Start")
    def _start(self) -> Said | None:
        if self.n_components == 1:
            return None
        began = self.method.removesuffix(" + EM")
        moves = "" if self.n_moves == 1 else "s"
        then = (
            f"; {self.n_moves} move{moves} split one component and merged two"
            if self.n_moves
            else ""
        )
        return GOOD, f"EM began from {began}{then}."

    @finding("Evidence")
    def _evidence(self) -> Said | None:
        return evidence_finding(self.n_components, self.gain, self.asked)

    @finding("Optima")
    def _optima(self) -> Said | None:
        if self.ahead >= ERRORS or self.moved <= ANOTHER:
            return None
        text = (
            f"another optimum puts {100 * self.moved:.0f} % of the rows into other components and "
            f"is {max(self.ahead, 0.0):.2g} standard errors less likely: "
        )
        if self.in_halves and self.is_same:
            text += "still the same components, as those of the two halves of the data are."
            return GOOD, text
        return CAUTION, (
            f"{text}these rows do not say which is right. Give more rows, or compare other "
            "n_components and covariance types."
        )

    @finding("Sample size")
    def _size(self) -> Said:
        text = f"the smallest component has {self.rows_per_feature:.3g} rows per feature."
        if self.rows_per_feature >= _ENOUGH_ROWS or self.covariance_type != "full":
            return GOOD, text
        level = CAUTION if self.rows_per_feature >= _FEWEST_ROWS else BAD
        advice = " Compare covariance_type='tied' or 'diag' by held-out likelihood."
        return level, text + advice

    @finding("Collapse")
    def _collapse(self) -> Said | None:
        if not self.collapsed:
            return None
        return BAD, (
            f"{self.collapsed} component(s) have shrunk onto too few rows to determine a "
            "covariance: lower n_components, or raise reg_covar."
        )

    @finding("Missing entries")
    def _unobserved(self) -> Said | None:
        if not self.missing:
            return None
        said = (
            f"{100 * self.missing:.3g} % in {self.n_patterns} patterns, taken for missing at random"
        )
        return observed_finding(said, self.n_observed)


def smallest_divergence(means: np.ndarray, covariances: np.ndarray) -> float:
    """How far apart the two closest of k Gaussians are, in standard deviations; infinite for one.

    sqrt(8 B) with the Bhattacharyya distance B = g' S^-1 g / 8 + ln(|S| / sqrt(|S_i| |S_j|)) / 2,
    g the difference of the means (k, d) and S the mean of the two covariances (k, d, d). Of equal
    covariances it is the Mahalanobis distance; components of one centre and other shapes are apart
    too. Diagonal covariances may be given as variances (k, d).
    """
    logs = _log_determinants(covariances)
    smallest = np.inf
    for i in range(1, len(means)):
        gaps = means[:i] - means[i]
        pooled = (covariances[:i] + covariances[i]) / 2
        with np.errstate(invalid="ignore"):
            shapes = _log_determinants(pooled) - (logs[:i] + logs[i]) / 2
        if pooled.ndim == 2:
            squared = (gaps**2 / np.where(pooled > 0, pooled, np.inf)).sum(axis=1)
        else:
            inverses = np.linalg.pinv(pooled, hermitian=True)
            squared = np.einsum("ja,jab,jb->j", gaps, inverses, gaps)
        squared += 4 * np.where(np.isfinite(shapes), shapes, 0.0)
        smallest = min(smallest, float(np.sqrt(max(squared.min(), 0.0))))
    return smallest


def smallest_gain(
    weights: np.ndarray, means: np.ndarray, covariances: np.ndarray, kind: str
) -> float:
    """Log-likelihood per row that is lost when the two of k Gaussians become one that lose least.

    A pair of weights a, b (of sum s) and the Gaussian of its mean and covariance S differ in
    entropy by [ln|S| - (a ln|S_i| + b ln|S_j|) / s] / 2 - I, with I the information that a row has
    about its component: at most the entropy of (a, b) / s, and less where the two overlap.

    Parameters
    ----------
    weights, means : (k,), (k, d)
    covariances : in the shape of their kind
    kind : "full", "tied", "diag" or "spherical"
    """
    count, width = means.shape
    one, other = np.triu_indices(count, 1)
    sums = weights[one] + weights[other]
    fractions = np.stack([weights[one], weights[other]], axis=1) / sums[:, None]
    bounds = merge_costs(kind, weights, means, covariances, one, other)
    bounds -= sums * entr(fractions).sum(axis=1)
    each = of_components(kind, covariances, count, width)
    smallest = np.inf
    for p in np.argsort(bounds, kind="stable"):
        if bounds[p] >= smallest:
            break
        pair = [int(one[p]), int(other[p])]
        left = _left_open(fractions[p], means[pair], each[pair])
        smallest = min(smallest, float(bounds[p] + sums[p] * left))
    return smallest


def _log_determinants(covariances: np.ndarray) -> np.ndarray:
    """Of matrices (p, d, d), or of diagonal ones given as variances (p, d)."""
    if covariances.ndim == 3:
        return np.asarray(np.linalg.slogdet(covariances)[1])
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(covariances).sum(axis=1))


def _left_open(fractions: np.ndarray, means: np.ndarray, covariances: np.ndarray) -> float:
    """What a row leaves open about which of two Gaussians it is from: the mean entropy.

    By as many draws as bring its standard error, at most ln 2 / 2 over their root, below 0.006.
    """
    rng = np.random.default_rng(0)
    is_diagonal = covariances.ndim == 2
    roots = np.sqrt(covariances) if is_diagonal else cholesky(covariances)
    logs = log_determinants(DIAG if is_diagonal else FULL, covariances, means.shape[1]) / 2
    open_ = 0.0
    for i, fraction in enumerate(fractions):
        noise, other = rng.standard_normal((_DRAWS, means.shape[1])), 1 - i
        moved = (noise * roots[i] if is_diagonal else noise @ roots[i].T) + means[i] - means[other]
        if is_diagonal:
            white = (moved / roots[other]).T
        else:
            white = solve_triangular(roots[other], moved.T, lower=True)
        # The logarithm of the ratio of the two posterior probabilities, and its entropy.
        ratios = ((white**2).sum(axis=0) - (noise**2).sum(axis=1)) / 2 + logs[other] - logs[i]
        odds = np.log(np.maximum(fractions[[i, other]], 1e-300))
        ratios = np.abs(ratios + odds[0] - odds[1])
        smaller = np.exp(-ratios)
        open_ += float(fraction * (np.log1p(smaller) + ratios * smaller / (1 + smaller)).mean())
    return open_
