"""Whether data speak for every component of a mixture, whatever its components are."""

from __future__ import annotations

import numpy as np

from latensor.arrays import Array
from latensor.diagnostics.findings import BAD, CAUTION, GOOD, Said

# Rows by which a number is known at all, and to a third of itself.
_FEWEST, _ENOUGH = 5.0, 10.0


def evidence_finding(n_components: int, gain: float, asked: float) -> Said | None:
    """What the least component is worth; None for one component, or where that is not known.

    Parameters
    ----------
    n_components : int
    gain : float, log-likelihood that is lost if the two components are joined that lose least
    asked : float, `component_worth`
    """
    if n_components == 1 or not np.isfinite(gain):
        return None
    if gain >= asked:
        text = f"no two components can be joined without a loss of {gain:.4g}"
        return GOOD, f"{text} in log-likelihood; one more is worth {asked:.4g}."
    return CAUTION, (
        "two components tell apart too little to be sure of both: joined, the log-likelihood "
        f"would be {max(gain, 0.0):.3g} lower, where a component must be worth "
        f"{asked:.3g} (BIC; infinite for more parameters than rows). Lower n_components, "
        "or give more rows."
    )


def component_worth(n_parameters: int, n_fewer: int, n_rows: float) -> float:
    """Log-likelihood that one more component must gain; infinite for more parameters than rows.

    Half of the additional parameters times log n (BIC), times n / (n - p - 1) as for few rows in
    the corrected criterion of Hurvich and Tsai (1989).

    Parameters
    ----------
    n_parameters, n_fewer : int, of the mixture and of one with a component less
    """
    left = n_rows - n_parameters - 1
    if left <= 0:
        return float("inf")
    return float((n_parameters - n_fewer) / 2 * np.log(n_rows) * n_rows / left)


def fewest_observed(fractions: Array, observed: Array, kind: str) -> float:
    """Rows of a component that show a feature, or two whose covariance is free: the fewest.

    Parameters
    ----------
    fractions : (n, k), how much of every row belongs to each component
    observed : (n, d) of bool
    kind : "full", "tied", "diag" or "spherical"
    """
    shown = observed.astype(np.float64)
    together = [(shown * own[:, None]).T @ shown for own in fractions.T]
    if kind == "full":
        return float(np.min(together))
    fewest = float(np.min([np.diag(each) for each in together]))
    return min(fewest, float(np.sum(together, axis=0).min())) if kind == "tied" else fewest


def observed_finding(said: str, fewest: float) -> Said:
    """What is left of missing entries.

    Parameters
    ----------
    said : which entries are missing
    fewest : float, `fewest_observed`
    """
    if fewest >= _ENOUGH:
        return GOOD, f"{said}."
    return BAD if fewest < _FEWEST else CAUTION, (
        f"{said}. A component has {fewest:.2g} rows that show some feature, or some two together: "
        "what it says of these comes from where EM began. Leave features out, or lower "
        "n_components."
    )
