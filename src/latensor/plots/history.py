"""The residual of a decomposition, iteration by iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from latensor.exceptions import InvalidInputError
from latensor.plots.colours import CURVES
from latensor.plots.figures import new_figure

# Curves beyond the colours repeat them with other dashes.
_DASHES = ("-", "--", ":", "-.")
# Residuals that span more than this factor are drawn on a logarithmic scale.
_WIDE = 5.0


def residual_history(decomposition: Any) -> Figure:
    """Draw how the residual fell while a decomposition was fitted.

    Parameters
    ----------
    decomposition : Decomposition, or mapping of names to several, drawn together

    Returns
    -------
    matplotlib Figure
    """
    several = decomposition if isinstance(decomposition, Mapping) else {"": decomposition}
    if not several:
        raise InvalidInputError("decomposition is an empty mapping: give at least one")
    curves = {str(name): _history(name, one) for name, one in several.items()}
    figure = new_figure(6.4, 4.0)
    axis = figure.subplots()
    values = np.concatenate(list(curves.values()))
    positive = values[values > 0]
    wide = len(positive) > 0 and positive.max() > _WIDE * positive.min()
    for number, (name, curve) in enumerate(curves.items()):
        # A single point has no line, and two or three are better seen as points too.
        marker = "o" if len(curve) <= 30 else ""
        shown = np.where(curve > 0, curve, np.nan) if wide else curve
        axis.plot(
            np.arange(1, len(curve) + 1),
            shown,
            color=CURVES[number % len(CURVES)],
            linestyle=_DASHES[number // len(CURVES) % len(_DASHES)],
            marker=marker,
            markersize=4,
            linewidth=1.5,
            label=f"{name}: {curve[-1]:.4g}" if name else None,
        )
    if wide:
        axis.set_yscale("log")
        if positive.max() < 1e3 * positive.min():
            axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        # A narrow range is not blown up to look like progress.
        low, high = float(values.min()), float(values.max())
        margin = max(0.1 * (high - low), 0.05 * high, 1e-3)
        axis.set_ylim(max(low - margin, 0.0), high + margin)
        axis.ticklabel_format(axis="y", useOffset=False)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_xlabel("iteration")
    axis.set_ylabel("relative residual")
    axis.grid(visible=True, color="#E0E0E0", linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
    if "" in curves:
        axis.set_title(_caption(several[""], curves[""]), fontsize=10)
    else:
        axis.legend(fontsize=9, frameon=False, title="final residual")
    return figure


def _history(name: object, decomposition: Any) -> Any:
    history = getattr(decomposition, "history", None)
    if history is None:
        raise InvalidInputError(
            f"{name or 'decomposition'} is a {type(decomposition).__name__} without a history: "
            "give what lt.decompose returned"
        )
    curve = np.asarray(history, dtype=float).reshape(-1)
    residual = getattr(decomposition, "residual", None)
    # An answer that is computed at once has no iterations, only its end.
    return curve if len(curve) else np.array([0.0 if residual is None else float(residual)])


def _caption(decomposition: Any, curve: Any) -> str:
    final = float(getattr(decomposition, "residual", curve[-1]))
    status = getattr(getattr(decomposition, "status", None), "name", "")
    words = status.lower().replace("_", " ")
    return f"residual {final:.4g} after {len(curve)} iterations" + (f", {words}" if words else "")
