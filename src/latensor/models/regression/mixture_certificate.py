"""How far a mixture of regressions can be trusted, in numbers and in plain words."""

from __future__ import annotations

from dataclasses import dataclass

from latensor.diagnostics.design import (
    collinear_finding,
    samples_finding,
    starts_finding,
)
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

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        return (
            f"mixture of {self.n_components} regressions on {self.n_features} features, by "
            f"{self.method}"
        )

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
