"""The evidence for a number of topics: the spectrum, and the perplexity of documents held out."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator, ScalarFormatter

from latensor.exceptions import InvalidInputError
from latensor.plots.figures import new_figure

_INK, _CHOSEN, _GRID = "#0072B2", "#D55E00", "#E0E0E0"


def topic_count(selection: Any) -> Figure:
    """Draw why `n_components="auto"` took as many topics as it did.

    Parameters
    ----------
    selection : `selection_` of a topic model fitted with `n_components="auto"`

    Returns
    -------
    matplotlib Figure
    """
    spectrum = getattr(selection, "spectrum", None)
    if spectrum is None or not hasattr(selection, "candidates"):
        raise InvalidInputError(
            f"selection is a {type(selection).__name__}: give the selection_ of a topic model "
            "that was fitted with n_components='auto'"
        )
    tried = len(selection.candidates) > 0
    figure = new_figure(9.0 if tried else 5.0, 3.8)
    axes = figure.subplots(1, 2 if tried else 1, squeeze=False)[0]
    _draw_spectrum(axes[0], np.asarray(spectrum, dtype=float), selection.n_components)
    if tried:
        _draw_perplexity(axes[1], selection)
    figure.suptitle(f"{selection.n_components} topics: {selection.reason}", fontsize=10, wrap=True)
    return figure


def _draw_spectrum(axis: Any, values: Any, chosen: int) -> None:
    positive = np.flatnonzero(values > 0)
    axis.plot(positive + 1, values[positive], color=_INK, marker="o", markersize=3, linewidth=1)
    axis.axvline(chosen + 0.5, color=_CHOSEN, linewidth=1.2, linestyle="--")
    axis.set_yscale("log")
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_xlabel("direction")
    axis.set_ylabel("eigenvalue of the second moment")
    _tidy(axis)


def _draw_perplexity(axis: Any, selection: Any) -> None:
    candidates, values = np.array(selection.candidates), np.array(selection.perplexities)
    axis.plot(candidates, values, color=_INK, marker="o", markersize=4, linewidth=1.2)
    at = candidates == selection.n_components
    axis.plot(candidates[at], values[at], "o", color=_CHOSEN, markersize=8)
    axis.set_xscale("log")
    axis.set_xticks(candidates)
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_locator(NullLocator())
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.set_xlabel("topics")
    axis.set_ylabel("perplexity of held-out documents")
    _tidy(axis)


def _tidy(axis: Any) -> None:
    axis.grid(visible=True, color=_GRID, linewidth=0.6)
    axis.spines[["top", "right"]].set_visible(False)
