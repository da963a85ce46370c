"""Topics: the words of each, as bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.plots.colours import checked_model, checked_names, tidy
from latensor.plots.factors import BLUE
from latensor.plots.figures import new_figure

# Topics that have a panel of their own, panels in a row, and words in a panel.
_MOST_TOPICS = 24
_ACROSS = 4
_WORDS = 8


def topics(model: Any, *, names: Sequence[object] | None = None) -> Figure:
    """Draw a topic model: the most probable words of every topic, the largest topics first.

    Parameters
    ----------
    model : a fitted LatentDirichletAllocation or SingleTopic
    names : the words; by default those that the model knows

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("components_",), "LatentDirichletAllocation or SingleTopic")
    components = np.asarray(model.components_, dtype=float)
    known = getattr(model, "vocabulary_", None) if names is None else names
    words = checked_names(known, components.shape[1], "names", "word")
    sizes = np.asarray(model.alpha_ if hasattr(model, "alpha_") else model.weights_, dtype=float)
    fractions = sizes / sizes.sum()
    order = np.argsort(-fractions, kind="stable")[:_MOST_TOPICS]
    across = min(_ACROSS, len(order))
    down = -(-len(order) // across)
    figure = new_figure(2.6 * across + 0.4, 0.4 + 1.9 * down)
    panels = np.atleast_1d(figure.subplots(down, across, squeeze=False)).ravel()
    for panel in panels[len(order) :]:
        panel.set_axis_off()
    for panel, j in zip(panels, order, strict=False):
        chosen = np.argsort(-components[j], kind="stable")[:_WORDS]
        places = np.arange(len(chosen))
        panel.barh(places, 100 * components[j, chosen], color=BLUE, height=0.72)
        panel.set_yticks(places, [words[i] for i in chosen], fontsize=8)
        panel.invert_yaxis()
        panel.set_title(f"topic {j}: {100 * fractions[j]:.3g} %", fontsize=9, loc="left")
        tidy(panel)
        panel.tick_params(axis="y", length=0)
    left = len(fractions) - len(order)
    note = "probability of a word in its topic, in %" + (
        f"; {left} smaller topics are not shown" if left else ""
    )
    figure.supxlabel(note, fontsize=8)
    return figure
