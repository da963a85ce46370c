"""How far a Gaussian mixture with full, tied, diagonal or spherical covariances can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Statement
from latensor.diagnostics.mixture_certificate import MixtureCertificate
from latensor.value_files import storable

# Below so many rows per feature the optimum of the likelihood is not the better model: with 3.3 a
# tied or diagonal covariance had the higher held-out likelihood in all settings, with 8 in none.
_ENOUGH_ROWS, _FEWEST_ROWS = 10.0, 5.0


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
    converged : bool
    """

    covariance_type: str = "full"
    rows_per_feature: float = float("inf")
    collapsed: int = 0
    missing: float = 0.0
    n_patterns: int = 1
    converged: bool = True

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        common = [s for s in super().statements if s.topic in ("Constant features", "Note")]
        found = [self._start(), self._size(), self._collapse(), self._unobserved(), self._end()]
        return (*(s for s in found if s is not None), *common)

    def _start(self) -> Statement | None:
        if self.n_components == 1:
            return None
        moves = f", {self.n_moves} split and merge move(s)" if self.n_moves else ""
        return Statement("Start", GOOD, f"{self.method}{moves}.")

    def _size(self) -> Statement:
        text = f"the smallest component has {self.rows_per_feature:.3g} rows per feature."
        if self.rows_per_feature >= _ENOUGH_ROWS or self.covariance_type != "full":
            return Statement("Sample size", GOOD, text)
        level = CAUTION if self.rows_per_feature >= _FEWEST_ROWS else BAD
        advice = " Compare covariance_type='tied' or 'diag' by held-out likelihood."
        return Statement("Sample size", level, text + advice)

    def _collapse(self) -> Statement | None:
        if not self.collapsed:
            return None
        return Statement(
            "Collapse",
            BAD,
            f"{self.collapsed} component(s) have shrunk onto too few rows to determine a "
            "covariance: lower n_components, or raise reg_covar.",
        )

    def _unobserved(self) -> Statement | None:
        if not self.missing:
            return None
        return Statement(
            "Missing entries",
            GOOD,
            f"{100 * self.missing:.3g} % in {self.n_patterns} patterns, taken for missing at "
            "random.",
        )

    def _end(self) -> Statement | None:
        if self.converged:
            return None
        return Statement("Convergence", CAUTION, "EM stopped before its optimum: raise max_iter.")


def mahalanobis_separation(means: np.ndarray, covariances: np.ndarray) -> float:
    """The smallest distance of two means (k, d) in the wider of their covariances (k, d, d).

    Infinite for one component.
    """
    smallest = np.inf
    for i in range(len(means)):
        for j in range(i):
            gap = means[i] - means[j]
            pooled = (covariances[i] + covariances[j]) / 2
            solved = np.linalg.lstsq(pooled, gap, rcond=None)[0]
            smallest = min(smallest, float(np.sqrt(max(gap @ solved, 0.0))))
    return smallest
