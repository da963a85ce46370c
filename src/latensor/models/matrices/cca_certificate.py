"""How far canonical directions can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Findings, Said, finding
from latensor.value_files import storable

# Whitening that magnifies more than this loses half of the digits.
_CONDITION = 1e6


@storable
@dataclass(frozen=True)
class CCACertificate(Findings):
    """How far the canonical directions can be trusted.

    `gap` is the difference between the last correlation kept and the next; `x_condition` and
    `y_condition` are the ratios of the largest to the smallest variance that was whitened in
    each view, and `x_rank` and `y_rank` their numbers. Where `saturated`, the ranks together
    exceed the degrees of freedom of the samples: some correlations are then one whatever the
    data, and a ridge or more samples are needed. `noise_correlation` is the largest correlation
    that two independent Gaussian views of these ranks reach in 99 of 100 sets of `effective_size`
    independent samples (Johnstone 2008), NaN with a ridge. So many would tell as much as these do
    of the pair of which they tell least: samples with long tails, or that follow each other in
    time, are worth less than their number. `n_above_noise` is the number of correlations beyond
    what noise reaches in the effective size of their own pair: the others may be overfitted.
    """

    gap: float
    x_condition: float
    y_condition: float
    x_rank: int
    y_rank: int
    saturated: bool
    noise_correlation: float
    n_above_noise: int
    n_components: int = 0
    effective_size: float = float("nan")

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        noun = "pair" if self.n_components == 1 else "pairs"
        return f"{self.n_components} {noun} of canonical directions"

    @finding("Samples")
    def _samples(self) -> Said | None:
        if not self.saturated:
            return None
        return BAD, (
            "there are more directions than samples can tell: some correlations are 1 whatever "
            "the data. Give more rows or fewer columns."
        )

    @finding("Overfitting")
    def _noise(self) -> Said | None:
        if self.saturated or not self.noise_correlation >= 0:
            return None
        known = self.effective_size > 0
        sets = f"sets of {self.effective_size:.0f} independent" if known else "sets of as many"
        text = (
            f"{self.n_above_noise} of {self.n_components} correlations exceed "
            f"{self.noise_correlation:.2f}, which independent views of these sizes reach once in "
            f"a hundred {sets} samples."
        )
        if self.n_above_noise == self.n_components:
            return GOOD, text
        level = BAD if self.n_above_noise == 0 else CAUTION
        return level, text + " Judge the others by `score` on new data."

    @finding("Conditioning")
    def _conditioning(self) -> Said:
        worst = max(self.x_condition, self.y_condition)
        level = GOOD if worst < _CONDITION else CAUTION
        text = f"variances within a view differ up to {worst:.2g} times."
        return level, text
