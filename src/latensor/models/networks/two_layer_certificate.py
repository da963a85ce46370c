"""How far a fitted network can be trusted, in numbers and in plain words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from latensor.diagnostics.design import (
    collinear_finding,
    samples_finding,
    starts_finding,
    unconverged,
)
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    counted,
    finding,
    shown_spectrum,
)
from latensor.models.networks.two_layer_read_off import DEVIATIONS
from latensor.value_files import storable

# Losses that differ by less than this fraction are one.
_SAME = 0.02


@storable
@dataclass(frozen=True)
class NetworkCertificate(Findings):
    """What can be said about a fitted network with one hidden layer; `print` it for plain words.

    Attributes
    ----------
    n_components, n_features, n_outputs : int
    activation : str
    scores : str, whose score functions were used
    method : str, where the weights come from
    rank : int, directions in which X varies; below n_features its columns are collinear
    n_seen : int, directions along which the moments show that y bends
    spectrum : eigenvalues behind `n_seen`, decreasing, as fractions of the largest
    second_deviations, third_deviations : float, how far the moments of these orders are from zero,
        in standard deviations of their noise
    n_starts, n_agreed : int, starts of L-BFGS and how many of them led to the optimum that was kept
    wide_loss : float, what twice as many hidden units, from random starts, lose on a sample, as a
        fraction of what these lose there; NaN for moments only
    samples_per_weight : float
    fit : float, R2 of the samples, or the fraction of the log loss of the class frequencies alone
        that the network explains
    converged : bool
    constant_features : columns that do not vary
    """

    n_components: int
    n_features: int
    n_outputs: int
    activation: str
    scores: str
    method: str
    rank: int
    n_seen: int
    spectrum: tuple[float, ...]
    second_deviations: float
    third_deviations: float
    n_starts: int
    n_agreed: int
    wide_loss: float
    samples_per_weight: float
    fit: float
    converged: bool
    constant_features: tuple[int, ...] = ()
    _apart: ClassVar[frozenset[str]] = frozenset({"Fit"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        units = counted(self.n_components, "hidden unit")
        features = counted(self.n_features, "feature")
        return f"network of {units} ({self.activation}) on {features}, by {self.method}"

    @finding("Samples")
    def _samples(self) -> Said:
        told = f"{self.samples_per_weight:.3g} samples for every weight."
        return samples_finding(self.samples_per_weight, told)

    @property
    def vanishing(self) -> tuple[int, ...]:
        """The orders, of 2 and 3, whose moment is not above its noise."""
        pairs = ((2, self.second_deviations), (3, self.third_deviations))
        return tuple(order for order, value in pairs if not value > DEVIATIONS)

    @finding("Moments")
    def _moments(self) -> Said:
        if self.n_components > self.rank:
            return CAUTION, (
                f"{self.n_components} hidden units exceed the {self.rank} directions of X: moments "
                "of order three do not determine them, and random starts were used."
            )
        told = (
            f"those of orders 2 and 3 are {self.second_deviations:.3g} and "
            f"{self.third_deviations:.3g} standard deviations from zero."
        )
        if not self.vanishing:
            return GOOD, told
        if self.vanishing == (2,):
            return GOOD, told + " Order 2 vanishes, as for odd activations without biases."
        if self.vanishing == (3,):
            return (CAUTION if self.n_outputs == 1 else GOOD), (
                told + " Order 3 vanishes, as for relu without biases: the second shows the "
                "subspace of the hidden units, not the units."
            )
        return BAD, (
            told + " Both vanish: y shows no hidden unit, depends on X linearly, or has too few "
            "samples."
        )

    @finding("Directions")
    def _spectrum(self) -> Said | None:
        if self.n_components > self.rank or self.n_seen >= self.n_components:
            return None
        return CAUTION, (
            f"the moments show {self.n_seen} of {self.n_components} directions (spectrum "
            f"{shown_spectrum(self.spectrum)} of the largest): give more samples, or lower "
            "n_components."
        )

    @finding("Optimum")
    def _starts(self) -> Said | None:
        if self.method == "moments":
            # Of twenty planted networks moments alone found all units in 0 to 20.
            return CAUTION, (
                "weights are those of the moments, which no likelihood has compared with others: "
                "leave refine at 'auto'."
            )
        if math.isnan(self.wide_loss):
            return None
        if abs(self.wide_loss - 1) <= _SAME:
            text = "twice as many hidden units, from a random start, come to the same loss."
            return GOOD, text
        more = ""
        if self.wide_loss < 1:
            more = f"; twice as many hidden units lower the loss by {1 - self.wide_loss:.2g} of it"
        return starts_finding(self.n_agreed, self.n_starts, more)

    @finding("Fit")
    def _fit(self) -> Said | None:
        if math.isnan(self.fit):
            return None
        return GOOD, f"{100 * self.fit:.3g} % of the samples' y is explained."

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        return unconverged(self.converged)

    @finding("Collinear features")
    def _collinear(self) -> Said | None:
        return collinear_finding(self.rank, self.n_features, self.constant_features, "weights")
