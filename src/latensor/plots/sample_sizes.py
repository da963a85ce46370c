"""How errors fall with the number of samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.plots.colours import CURVES
from latensor.plots.figures import new_figure


def sample_sizes(plan: Any) -> Figure:
    """Draw the error of every parameter against the number of samples, on logarithmic axes.

    Parameters
    ----------
    plan : SamplePlan, what `lt.plan` returns

    Returns
    -------
    matplotlib Figure
    """
    figure = new_figure(6.4, 4.2)
    axis = figure.subplots()
    for colour, (name, errors) in zip(CURVES * 2, plan.errors.items(), strict=False):
        medians = np.median(errors, axis=1)
        axis.plot(plan.n_samples, medians, "o-", color=colour, label=name)
        axis.fill_between(
            plan.n_samples, errors.min(axis=1), errors.max(axis=1), color=colour, alpha=0.15
        )
    first = float(np.median(next(iter(plan.errors.values()))[-1]))
    line = first * np.sqrt(plan.n_samples[-1] / plan.n_samples)
    axis.plot(plan.n_samples, line, ":", color="0.4", label="1 / sqrt(n)")
    if plan.target is not None:
        axis.axhline(plan.target, color="0.6", linewidth=0.8, linestyle="--", label="target")
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("samples")
    axis.set_ylabel("relative error, median and range")
    axis.legend(frameon=False, fontsize="small")
    return figure
