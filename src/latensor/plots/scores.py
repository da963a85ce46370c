"""Principal and canonical directions: how much each holds, and the samples along the first."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latensor.arrays import generator, to_host
from latensor.exceptions import InvalidInputError
from latensor.plots.colours import checked_model, tidy
from latensor.plots.factors import BLUE, GREY
from latensor.plots.figures import new_figure

_MOST_POINTS = 4000


def scores(model: Any, X: Any, y: Any = None) -> Figure:
    """Draw a `lt.PCA` or a `lt.CCA`: what each direction holds, and the samples along them.

    Of a PCA the samples stand along its first two directions (the first alone has a histogram),
    of a CCA along the first direction of either view.

    Parameters
    ----------
    model : a fitted PCA or CCA
    X : (n, d) samples
    y : the second view of a CCA

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    two_views = hasattr(model, "correlations_")
    if not two_views:
        checked_model(model, ("explained_variance_ratio_", "transform"), "PCA or CCA")
    elif y is None:
        raise InvalidInputError("y is missing: give the second view of the CCA")
    figure = new_figure(10.0, 4.6)
    sizes, points = figure.subplots(1, 2, width_ratios=(1.0, 1.4))
    held = np.asarray(model.correlations_ if two_views else model.explained_variance_ratio_)
    _draw_sizes(sizes, held if two_views else 100 * held, two_views)
    chosen = _chosen(X.shape[0])
    right: Any
    if two_views:
        pair = model.transform(X[chosen], y[chosen])
        left, right = (np.asarray(to_host(each))[:, 0] for each in pair)
        labels = ("first view", "second view")
    else:
        found = np.asarray(to_host(model.transform(X[chosen])))
        left = found[:, 0]
        right = found[:, 1] if found.shape[1] > 1 else None
        labels = ("direction 0", "direction 1")
    if right is None:
        points.hist(left, 40, color=BLUE)
        labels = (labels[0], "samples")
    else:
        size = float(np.clip(6000 / len(left), 5.0, 18.0))
        points.scatter(left, right, s=size, color=BLUE, alpha=0.45, linewidths=0, rasterized=True)
    points.set_xlabel(f"score of {labels[0]}" if right is not None else labels[0])
    points.set_ylabel(f"score of {labels[1]}" if right is not None else labels[1])
    points.set_title(f"{len(left):,} of {X.shape[0]:,} samples", fontsize=10)
    tidy(points)
    return figure


def _chosen(total: int) -> Any:
    if total <= _MOST_POINTS:
        return np.arange(total)
    return np.sort(generator(0).choice(total, _MOST_POINTS, replace=False))


def _draw_sizes(axis: Any, held: Any, two_views: bool) -> None:
    axis.bar(np.arange(len(held)), held, color=BLUE)
    axis.set_xlabel("pair of directions" if two_views else "direction")
    axis.set_ylabel("correlation" if two_views else "% of the variance")
    if not two_views and len(held) > 1:
        axis.plot(np.arange(len(held)), np.cumsum(held), color=GREY, marker="o", markersize=3)
        axis.set_title("bars: each direction; line: cumulative", fontsize=10)
    axis.set_ylim(0, 1.05 * (1.0 if two_views else float(held.sum())))
    axis.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    tidy(axis)
