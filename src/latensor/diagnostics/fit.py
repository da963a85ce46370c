"""Whether rows are distributed as a fitted mixture says, apart from how firmly it was found."""

from __future__ import annotations

import numpy as np

from latensor.diagnostics.findings import CAUTION, GOOD, Said

# P-value, component and fraction of its rows; NaN where they were not measured.
UNKNOWN_FIT = float("nan"), -1, 0.0
# One of ten thousand data sets of Gaussian components is said to be none.
_LEVEL = 1e-4


def is_fitting(misfit: tuple[float, int, float]) -> bool:
    """Whether nothing shows that rows are distributed otherwise."""
    return not misfit[0] < _LEVEL


def fit_finding(misfit: tuple[float, int, float]) -> Said | None:
    """Whether rows lie about the means of Gaussian components as those of Gaussians do.

    Parameters
    ----------
    misfit : p-value of the component that fits worst, its number, and the fraction of its rows
        that lie at other distances from its mean
    """
    p_value, component, fraction = misfit
    if np.isnan(p_value):
        return None
    if is_fitting(misfit):
        return GOOD, (
            "rows lie about the means of their components as those of Gaussians do (p-value "
            f"{p_value:.2g})."
        )
    return CAUTION, (
        f"the rows of component {component} are not Gaussian: {100 * fraction:.2g} % of them lie "
        f"at other distances from its mean (p-value {p_value:.2g}). Components say where the rows "
        "are; likelihoods, tails and numbers of components are those of the model."
    )


def fit_closing(misfit: tuple[float, int, float]) -> str:
    """What follows the verdict where the mixture does not describe the rows."""
    return "" if is_fitting(misfit) else " The mixture does not describe the rows: see Fit."
