"""How firmly data determine a hidden Markov model: its moments, its likelihood, its starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from latensor.diagnostics.evidence import observed_finding
from latensor.diagnostics.findings import (
    BAD,
    CAUTION,
    GOOD,
    Findings,
    Said,
    counted,
    finding,
    listed,
)
from latensor.value_files import storable

# The weakest direction over the edge of its noise.
_FIRM, _DOUBTFUL = 2.0, 1.0
# Fraction of the whitened third moment off the diagonals, and correlation of neighbours beyond the
# states: above, components are rarely right.
_FITS, _MISFITS = 0.15, 0.3
_CONDITION = 100.0
# Standard errors by which states must predict rows better than if two were one, and a chain better
# than the mixture of its states.
ERRORS = 2.0
# Models whose likelihoods per row differ by less are equally good.
_SAME = 0.002


@storable
@dataclass(frozen=True, eq=False)
class HMMCertificate(Findings):
    """What speaks for and against the states of a fit.

    Attributes
    ----------
    n_components : int
    strength : float, the weakest of the directions that so many states need, over the edge of
        the noise of the pair tables; infinite for one state
    off_diagonal : float, fraction of the whitened third moment that the states do not explain; NaN
        where the moments cannot give so many states
    condition : float, largest over smallest singular value of the moment of past and future
    start : str, what the fit was started from: "lag", "window" or "random 1", ...
    trials : dict, log-likelihood per row of the starts that came into the last round of trials
    n_iter : int, passes of EM
    converged : bool or None, whether it stopped by itself; None without refinement
    n_rows, n_sequences : int
    constant_features : columns that do not vary
    dependence : float, largest canonical correlation of what a row and the row before it show
        beyond what all rows before them predict, less that of noise; 0 where rows are independent
        given the states, NaN without refinement
    rows_alone : float, standard errors by which the states predict rows of other sequences, without
        their order, better than if any two of them were one of any covariance; NaN where that was
        not measured, as with few sequences, whose parts depend on each other
    n_entries : int, numbers in all rows
    n_parameters : int, free parameters
    n_observed : float, rows of a state that show a feature, or two features whose covariance is
        free, the fewest; infinite where no entry of a point is missing
    in_halves : int, the number of states where both halves of the rows found all of them; 0 where
        that was not tried
    larger : int, a larger number of states that may be right too; 0 where there is none
    """

    n_components: int
    strength: float
    off_diagonal: float
    condition: float
    start: str
    trials: dict[str, float]
    n_iter: int
    converged: bool | None
    n_rows: int
    n_sequences: int
    constant_features: tuple[int, ...] = ()
    dependence: float = float("nan")
    rows_alone: float = float("nan")
    n_observed: float = float("inf")
    in_halves: int = 0
    larger: int = 0
    n_entries: int = 0
    n_parameters: int = 0
    _inferred: ClassVar[frozenset[str]] = frozenset({"Noise", "Fit", "Conditioning", "Starts"})

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        data = f"{counted(self.n_rows, 'row')} in {counted(self.n_sequences, 'sequence')}"
        return f"{counted(self.n_components, 'hidden state')} of {data}"

    @finding("Sample size")
    def _size(self) -> Said | None:
        if self.n_parameters <= self.n_entries:
            return None
        return BAD, (
            f"the model has {self.n_parameters} free parameters, the rows only {self.n_entries} "
            "numbers: lower n_components, or give more rows."
        )

    @finding("Noise")
    def _noise(self) -> Said:
        if self.n_components == 1:
            return GOOD, "One state needs no direction."
        value = self.strength
        level = GOOD if value >= _FIRM else CAUTION if value >= _DOUBTFUL else BAD
        tail = {
            GOOD: f"the sequences support {self.n_components} states",
            CAUTION: "the last states are supported weakly",
            BAD: "pairs of rows do not support so many states: lower n_components or give more "
            "data; what EM found may be one of many answers",
        }[level]
        # A refined model may be right where its moments are not: the likelihood decides then.
        if level == BAD and self.converged is not None:
            level = CAUTION
        return level, f"The weakest direction is {value:.2g} times its noise: {tail}."

    @finding("Fit")
    def _fit(self) -> Said | None:
        fraction = self.off_diagonal
        if fraction != fraction:  # NaN: there was no third moment to explain
            return CAUTION, "The moments cannot give so many states: only random starts were tried."
        level = GOOD if fraction < _FITS else CAUTION if fraction < _MISFITS else BAD
        if level == BAD and self.converged is not None:
            level = CAUTION
        tail = {
            GOOD: "rows look independent given the states",
            CAUTION: "noise, or neighbours that depend on each other beyond the states",
            BAD: "the moments do not show these states",
        }[level]
        return level, f"{100 * fraction:.1f} % of the third moment is left unexplained: {tail}."

    @finding("Dependence")
    def _dependence(self) -> Said | None:
        value = self.dependence
        if value != value:
            return None
        if value < _FITS:
            return GOOD, "Rows look independent given the states."
        text = (
            f"A row is correlated by {value:.2g} with the one before beyond what the states "
            "predict: drift, repeated rows or too few states."
        )
        if self.in_halves and self.rows_alone >= ERRORS:
            return GOOD, (
                f"{text} The states are more than a summary of that: rows of other sequences tell "
                f"all apart without their order (by {self.rows_alone:.3g} standard errors)."
            )
        text += " The states are a summary of that, not what made the sequences"
        if self.rows_alone < ERRORS:
            text += ": rows of other sequences do not tell all of them apart without their order"
        return CAUTION, f"{text}."

    @finding("Conditioning")
    def _conditioning(self) -> Said | None:
        if self.condition != self.condition or self.n_components == 1:
            return None
        level = GOOD if self.condition < _CONDITION else CAUTION
        tail = "well conditioned" if level == GOOD else "similar states may be confused"
        return level, (
            f"The strongest link of past and future is {self.condition:.3g} times the weakest: "
            f"{tail}."
        )

    @finding("Starts")
    def _starts(self) -> Said | None:
        if len(self.trials) < 2:
            return None
        best = max(self.trials.values())
        close = sorted(name for name, value in self.trials.items() if value > best - _SAME)
        listing = ", ".join(close)
        rest = [value for name, value in self.trials.items() if not name.startswith("random")]
        if self.start.startswith("random") and best > max(rest, default=best) + _SAME:
            return CAUTION, (
                f"A random start ({self.start}) ended highest, above those of the moments: the "
                "model is not the whole truth about these sequences. Compare several seeds."
            )
        return GOOD, f"Of the starts these ended highest: {listing}."

    @finding("Convergence")
    def _convergence(self) -> Said | None:
        if self.converged is None:
            return None
        if self.converged:
            return GOOD, f"EM converged after {self.n_iter} passes."
        return CAUTION, f"EM had not converged after {self.n_iter} passes: raise max_iter."

    @finding("Missing entries")
    def _unobserved(self) -> Said | None:
        if self.n_observed == float("inf"):
            return None
        return observed_finding("Some are missing, taken for missing at random", self.n_observed)

    @finding("Constant columns")
    def _constant(self) -> Said | None:
        if not self.constant_features:
            return None
        return CAUTION, (
            f"Column {listed(self.constant_features)} does not vary: it says nothing about the "
            "states, and its variance is min_covar. Leave it out."
        )
