"""What the compression of a network did to its layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.exceptions import InvalidInputError
from latensor.plots.figures import new_figure

_INK, _PALE, _CHOSEN = "#0072B2", "#C8C8C8", "#D55E00"


def compression(report: Any) -> Figure:
    """Draw weights before and after compression, and output errors, layer by layer.

    Parameters
    ----------
    report : `report` of a network from `lt.nn.compress`

    Returns
    -------
    matplotlib Figure
    """
    layers = getattr(report, "layers", None)
    if not layers or not hasattr(report, "output_error"):
        raise InvalidInputError(
            f"report is a {type(report).__name__}: give the report of lt.nn.compress"
        )
    place = np.arange(len(layers))
    figure = new_figure(9.0, 1.5 + 0.35 * len(layers))
    left, right = figure.subplots(1, 2, sharey=True)
    left.barh(place, [e.n_weights_before for e in layers], color=_PALE, label="before")
    left.barh(place, [e.n_weights for e in layers], color=_INK, height=0.5, label="after")
    left.set_xscale("log")
    least = min(e.n_weights for e in layers)
    left.set_xlim(10.0 ** (math.ceil(math.log10(max(least, 1))) - 1))  # the shortest bar is seen
    left.xaxis.set_minor_formatter("")  # labels between powers of ten overlap
    left.set_yticks(place, [e.name for e in layers])
    left.invert_yaxis()
    left.set_xlabel("weights")
    left.legend(frameon=False, fontsize=8)
    right.barh(place, [e.output_error for e in layers], color=_CHOSEN, height=0.5)
    right.set_xlabel("relative error of the layer's outputs")
    for axis in (left, right):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{100 * report.keep:.0f} % of the parameters; outputs of the network off by "
        f"{report.output_error:.3f}",
        fontsize=10,
    )
    return figure
