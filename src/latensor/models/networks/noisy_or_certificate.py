"""How far a fitted noisy-or network can be trusted, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    finding,
    shown_spectrum,
    unvarying,
)
from latensor.diagnostics.mixture_certificate import DOUBTFUL_OFF_DIAGONAL, NOISE_EDGE
from latensor.value_files import storable

_LARGE_PRIOR, _MANY_ONES = 0.2, 0.3
# The fraction of rows with states left out that no longer is a small bias.
_MUCH_LEFT_OUT = 0.01
# Two causes with a larger cosine are hardly told apart; with a smaller effect one does nothing.
_ALIKE, _WITHOUT_EFFECT = 0.95, 0.05


@storable
@dataclass(frozen=True)
class NoisyOrCertificate(Findings):
    """What can be said about a fitted noisy-or network; `print` it for plain words.

    Attributes
    ----------
    n_components, n_features : int
    method : str, where the parameters come from: "moments", or the start of EM that was kept
    off_diagonal : float, the fraction of the whitened third-order interactions that causes leave
        unexplained; NaN where moments give no start
    condition : float, of the completed matrix of pointwise mutual information
    gap : float, the eigenvalue of the weakest cause over the largest that noise gives
    largest_prior : float
    ones : float, the fraction of entries that are on
    left_out : float, the fraction of rows of which states that count were left out by EM
    similarity : float, the largest cosine between two causes
    weakest : float, the largest probability of the cause that does least
    constant_features : columns that do not vary
    spectrum : eigenvalues of the completed matrix of pairs, decreasing, as fractions of the largest
    """

    n_components: int
    n_features: int
    method: str
    off_diagonal: float
    condition: float
    gap: float
    largest_prior: float
    ones: float
    left_out: float
    similarity: float
    weakest: float
    constant_features: tuple[int, ...] = ()
    spectrum: tuple[float, ...] = ()

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return (
            f"noisy-or network of {self.n_components} causes and {self.n_features} features, by "
            f"{self.method}"
        )

    @finding("Pairs of features")
    def _pairs(self) -> Said:
        if np.isnan(self.gap):
            text = "too few features vary for moments: the causes come from likelihood alone."
            return CAUTION, text
        text = (
            f"the weakest cause stands out {self.gap:.3g} times as far as noise reaches "
            f"(condition number {self.condition:.3g})."
        )
        if self.gap >= NOISE_EDGE:
            return GOOD, text
        level = BAD if self.method == "moments" else CAUTION
        return level, (
            text + " Pairs do not show so many causes (spectrum "
            f"{shown_spectrum(self.spectrum)} of the largest): lower n_components or give more "
            "samples."
        )

    @finding("Triples of features")
    def _triples(self) -> Said | None:
        if np.isnan(self.off_diagonal) or self.n_components == 1:
            return None
        text = f"{100 * self.off_diagonal:.3g} % of their interactions are not explained by causes."
        if self.off_diagonal < DOUBTFUL_OFF_DIAGONAL:
            return GOOD, text
        return (
            CAUTION,
            text + " The data are too few, or no noisy-or network; random starts stood beside.",
        )

    @finding("Rare causes")
    def _prior(self) -> Said:
        text = f"the most frequent cause is active in {100 * self.largest_prior:.3g} % of samples."
        if self.largest_prior <= _LARGE_PRIOR:
            return GOOD, text
        return (
            CAUTION,
            text + " Above 20 % causes are hard to tell from leaks and from each other's sum.",
        )

    @finding("Density")
    def _ones(self) -> Said | None:
        if self.ones <= _MANY_ONES:
            return None
        return CAUTION, (
            f"{100 * self.ones:.3g} % of the entries are on; above 30 % features rarely tell that "
            "a cause is absent."
        )

    @finding("Likelihood")
    def _states(self) -> Said | None:
        if self.method == "moments":
            return None
        if self.left_out == 0:
            return GOOD, "all states of the causes that count are gone through."
        text = (
            f"{100 * self.left_out:.2g} % of the rows may come from more states of the causes than "
            "EM goes through."
        )
        return (GOOD if self.left_out < _MUCH_LEFT_OUT else CAUTION), text

    @finding("Distinct causes")
    def _alike(self) -> Said | None:
        if self.n_components == 1 or self.similarity < _ALIKE:
            return None
        return CAUTION, f"two causes have a cosine of {self.similarity:.3g}: they may be one."

    @finding("Effect")
    def _effect(self) -> Said | None:
        if self.weakest > _WITHOUT_EFFECT:
            return None
        return (
            BAD,
            f"one cause turns no feature on with more than {self.weakest:.2g}: lower n_components.",
        )

    @finding("Constant features")
    def _constant(self) -> Said | None:
        if not self.constant_features:
            return None
        return (
            CAUTION,
            f"{unvarying(self.constant_features)}, which says nothing of causes.",
        )
