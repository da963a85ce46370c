"""How firmly samples determine a fitted mixture, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.diagnostics.design import unconverged
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    Statement,
    counted,
    finding,
    listed,
)
from latensor.diagnostics.fit import UNKNOWN_FIT, fit_closing, fit_finding
from latensor.value_files import storable

# Above this fraction of unexplained third moment the start from moments often failed (recipe of the
# portfolio: 11 of 32 runs, against 1 of 22 below).
DOUBTFUL_OFF_DIAGONAL = 0.15
# A spread of the means below the largest that noise gives cannot be told from noise.
NOISE_EDGE = 1.0


@storable
@dataclass(frozen=True)
class MixtureCertificate(Findings):
    """What can be said about a fitted mixture; `print` it for plain words.

    Attributes
    ----------
    n_components, n_features : int
    method : str, where the parameters come from: "moments", or the start of the refinement that was
        kept, "moments + EM" or "k-means++ + EM"
    off_diagonal : float, fraction of the whitened third moment that the components leave
        unexplained; NaN where moments give no start
    condition : float, of the whitening: the ratio of the largest to the smallest spread of the
        means; infinite where they are affinely dependent
    gap : float, the smallest spread of the means over the largest that noise gives: below 1 it
        cannot be told from noise
    separation : float, the smallest distance of two means in units of their standard deviation
    spread : float, the widest component over what its variance and noise explain: above 1.25 one
        component covers several clusters, or clusters are not of the assumed shape; NaN without
        samples at hand
    outside : float, the distance of a mean from the range of its feature, in units of that range;
        above 0 no mixture has such means. NaN where it was not measured
    n_moves : int, split and merge moves of the refinement
    converged : bool
    constant_features : tuple of int, columns that do not vary
    notes : tuple of str, what else the user should know
    in_halves : int, the number of components where both halves of the samples found all of them; 0
        where that was not tried
    larger : int, a larger number that may be right too; 0 where there is none
    n_reproduced : int, components that searches on two halves of the rows both found, tried where
        rows are not shown to be Gaussian (a test rejects that, entries are missing, or a component
        has fewer than 50 rows), so that likelihoods do not show it; -1 where that was not tried
    misfit : of the component whose rows are least like those of a Gaussian: p-value, number, and
        fraction of its rows at other distances from its mean; NaN where it was not measured. It
        says nothing about stability
    """

    n_components: int
    n_features: int
    method: str
    off_diagonal: float
    condition: float
    gap: float
    separation: float
    spread: float = float("nan")
    outside: float = float("nan")
    n_moves: int = 0
    converged: bool = True
    constant_features: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    in_halves: int = 0
    n_reproduced: int = -1
    larger: int = 0
    misfit: tuple[float, int, float] = UNKNOWN_FIT
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})
    _inferred: ClassVar[frozenset[str]] = frozenset(
        {"Third moment", "Independent means", "Separation", "Shape", "Sample size"}
    )

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        return (*super().statements, *(Statement("Note", CAUTION, note) for note in self.notes))

    @property
    def closing(self) -> str:
        """What follows the verdict."""
        return fit_closing(self.misfit)

    @finding("Halves")
    def _halves(self) -> Said | None:
        count = self.n_components
        if count in (self.in_halves, self.n_reproduced):
            return GOOD, f"each half of the data finds all {count} by itself."
        if self.n_reproduced < 0:
            return None
        return CAUTION, (
            f"two halves of the data have {self.n_reproduced} of the {count} components in common: "
            "other data would give other components."
        )

    @finding("Fit")
    def _fit(self) -> Said | None:
        return fit_finding(self.misfit)

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return unconverged(self.converged)

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        by = "moments" if self.method == "moments" else "EM"
        features = counted(self.n_features, "feature")
        return f"mixture of {self.n_components} in {features}, by {by}"

    @finding("Third moment")
    def _third_moment(self) -> Said | None:
        if self.n_components == 1:
            return None
        if np.isnan(self.off_diagonal):
            return CAUTION, (
                f"{self.n_components} means in {self.n_features} dimensions are not determined by "
                "three moments: the parameters come from likelihood alone, with restarts."
            )
        text = f"{100 * self.off_diagonal:.3g} % of it is not explained by the components read off."
        if self.off_diagonal < DOUBTFUL_OFF_DIAGONAL:
            return GOOD, text
        cure = (
            " Restarts and split and merge moves stood beside them."
            if self.method != "moments"
            else " Refine them (refine='auto'), or give more samples."
        )
        return CAUTION, text + cure

    @finding("Independent means")
    def _whitening(self) -> Said | None:
        if self.n_components == 1 or np.isnan(self.gap):
            return None
        text = (
            f"in their narrowest direction the means spread {self.gap:.3g} times as far as noise "
            f"reaches (condition number {self.condition:.3g})."
        )
        if self.gap >= NOISE_EDGE:
            return GOOD, text
        return (CAUTION if self.method != "moments" else BAD), (
            text
            + " They are affinely dependent as far as these samples can tell: fewer components "
            "or more samples would make them identifiable by moments."
        )

    @finding("Separation")
    def _separation(self) -> Said | None:
        if self.n_components == 1:
            return None
        text = f"the two closest means are {self.separation:.3g} standard deviations apart."
        if self.separation >= 2:
            return GOOD, text
        if self.separation >= 0.5:
            return CAUTION, text + " Their weights are uncertain."
        return BAD, text + " They may be one component: lower n_components."

    @finding("Shape")
    def _spread(self) -> Said | None:
        if np.isnan(self.spread):
            return None
        text = f"the widest component is {self.spread:.3g} times as wide as its variance explains."
        if self.spread <= 1.25:
            return GOOD, text
        return (
            CAUTION,
            text + " It covers several clusters, or the clusters are not of the assumed shape.",
        )

    @finding("Range of the features")
    def _range(self) -> Said | None:
        if not self.outside > 0:
            return None
        return BAD, (
            f"a mean lies {100 * self.outside:.2g} % of the range of its feature outside of it, "
            "which no cluster can: given the component the features are not independent, or the "
            "samples are too few."
        )

    @finding("Constant features")
    def _constant(self) -> Said | None:
        if not self.constant_features:
            return None
        return CAUTION, (
            f"column {listed(self.constant_features, 5)} does not vary: it says nothing "
            "about the components, and pulls variances shared between columns down. Leave it out."
        )


def smallest_separation(means: Any, deviations: Any) -> float:
    """The smallest distance of two means (k, d) over the larger standard deviation.

    These are (k,) or (k, d). Infinite for one component.
    """
    if len(means) < 2:
        return float("inf")
    deviations = np.asarray(deviations, dtype=np.float64).reshape(len(means), -1)
    smallest = np.inf
    for j in range(1, len(means)):
        larger = np.maximum(deviations[:j], deviations[j])
        distances = np.sqrt((((means[:j] - means[j]) / larger) ** 2).sum(axis=1))
        smallest = min(smallest, float(distances.min()))
    return smallest
