"""Whether the likelihood speaks for every component of a mixture, whatever its components are."""

from __future__ import annotations

import numpy as np

from latensor.diagnostics.findings import CAUTION, GOOD, Said


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
