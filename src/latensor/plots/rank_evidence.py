"""What speaks for and against each rank, side by side."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullFormatter

from latensor.exceptions import InvalidInputError
from latensor.plots.factors import BLUE, GREY, VERMILION
from latensor.plots.figures import new_figure


class _Panel(NamedTuple):
    """One kind of evidence: what it is, how to read it, and where it is cut off below.

    With far too many components core consistency falls without bound, and signal below zero.
    """

    field: str
    title: str
    reading: str
    floor: float | None = None
    line: float | None = None


_PANELS = (
    _Panel("residual", "relative residual", "what the fit leaves over"),
    _Panel("signal", "signal of the last component", "real ones have more than 1", 0.1, 1.0),
    _Panel("structure", "structure left over", "about 1 or less is only noise", line=1.0),
    _Panel("replicability", "agreement of halves", "1 is perfect", line=0.9),
    _Panel("core_consistency", "core consistency in %", "100 is perfect", floor=0.0, line=50.0),
    _Panel("condition", "condition number", "small is stable"),
)
_SPAN = 20.0


def rank_evidence(selection: Any) -> Figure:
    """Draw why a rank was proposed: each kind of evidence against the rank.

    The proposed rank is marked in every panel. Values below the range of a panel stand at its
    edge as triangles; a thin line shows the limit by which a panel is read.

    Parameters
    ----------
    selection : RankSelection, what `lt.select_rank` returned

    Returns
    -------
    matplotlib Figure
    """
    rows = getattr(selection, "evidence", None)
    if not rows:
        raise InvalidInputError(
            f"selection must be what lt.select_rank returned, not {type(selection).__name__}"
        )
    panels = [panel for panel in _PANELS if _known(rows, panel.field)[0].size]
    columns = min(3, len(panels))
    height = -(-len(panels) // columns)
    figure = new_figure(1.0 + 3.2 * columns, 1.0 + 2.4 * height)
    grid = np.atleast_1d(figure.subplots(height, columns)).ravel()
    for axis in grid[len(panels) :]:
        axis.set_axis_off()
    last = max(row.rank for row in rows)
    for axis, panel in zip(grid, panels, strict=False):
        _draw(axis, panel, rows, int(selection.rank))
        axis.set_xlim(-0.4, last + 0.4)
        axis.set_xlabel("rank", fontsize=9)
    text = f"Proposed rank: {selection.rank}. {selection.reason}"
    figure.suptitle("\n".join(textwrap.wrap(text, 40 * columns)), fontsize=10)
    return figure


def _known(rows: Sequence[Any], field: str) -> tuple[Any, Any]:
    """Ranks and values, without those that are not known or, for rank zero, say nothing."""
    kept = [
        (row.rank, float(getattr(row, field)))
        for row in rows
        if getattr(row, field) is not None and (row.rank > 0 or field == "residual")
    ]
    kept = [(rank, value) for rank, value in kept if np.isfinite(value)]
    ranks, values = zip(*kept, strict=True) if kept else ((), ())
    return np.array(ranks), np.array(values, dtype=float)


def _draw(axis: Any, panel: _Panel, rows: Sequence[Any], proposed: int) -> None:
    ranks, values = _known(rows, panel.field)
    low = panel.floor is not None and values < panel.floor
    shown = values if panel.floor is None else np.maximum(values, panel.floor)
    axis.axvline(proposed, color=VERMILION, linewidth=6, alpha=0.25, zorder=1)
    if panel.line is not None:
        axis.axhline(panel.line, color=GREY, linewidth=0.8, linestyle="--", zorder=1)
    axis.plot(ranks, shown, color=BLUE, linewidth=1.5, zorder=2)
    inside = ~np.broadcast_to(low, ranks.shape)
    axis.plot(ranks[inside], shown[inside], "o", color=BLUE, markersize=5, zorder=3)
    axis.plot(ranks[~inside], shown[~inside], "v", color=BLUE, markersize=6, zorder=3)
    positive = shown[shown > 0]
    if positive.size == shown.size and positive.max() > _SPAN * positive.min():
        axis.set_yscale("log")
        axis.yaxis.set_minor_formatter(NullFormatter())
    else:
        bottom = min(0.0, float(shown.min()))
        top = max(float(shown.max()), panel.line or 0.0) or 1.0
        axis.set_ylim(bottom - 0.05 * (top - bottom), top + 0.08 * (top - bottom))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_title(f"{panel.title}\n{panel.reading}", fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)
