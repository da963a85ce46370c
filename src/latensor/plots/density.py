"""Gaussians on a line: what was counted, each component, and their sum."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import to_host
from latensor.exceptions import InvalidInputError
from latensor.plots.colours import LIGHT, checked_model, checked_names, in_turn, outlined, tidy
from latensor.plots.figures import new_figure

_MOST_BINS, _FEWEST_BINS = 80, 12
# Up to so many values at equal distances, counted, have a bar each.
_MOST_CLASSES = 80
_GRID = 600
# Components that the legend names one by one.
_MOST_NAMED = 8


def density(model: Any, X: Any, *, sample_weight: Any = None, name: str | None = None) -> Figure:
    """Draw a mixture of Gaussians on a line: histogram, every component, and their sum.

    Parameters
    ----------
    model : a fitted mixture of one feature, as `lt.PearsonMixture`
    X : (n,) or (n, 1) samples
    sample_weight : (n,) how often each counts, or None
    name : what was measured

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("weights_", "means_", "covariances_"), "mixture of one feature")
    values = np.asarray(to_host(X), dtype=float)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 or not len(values) or np.shape(model.means_)[1] != 1:
        raise InvalidInputError(
            f"X has shape {np.shape(X)}, the model {np.shape(model.means_)[1]} features: give one "
            "column, or use lt.plots.clusters"
        )
    counts = np.ones(len(values)) if sample_weight is None else np.asarray(sample_weight, float)
    figure = new_figure(8.0, 4.4)
    axis = figure.subplots()
    given = np.asarray(model.covariances_, dtype=float).reshape(-1)
    deviations = np.sqrt(np.broadcast_to(given, len(model.weights_)))
    draw_densities(
        axis, values, counts, np.asarray(model.weights_), np.asarray(model.means_)[:, 0], deviations
    )
    axis.set_xlabel(checked_names(None if name is None else [name], 1, "name", "feature")[0])
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=8)
    return figure


def draw_densities(
    axis: Any, values: Any, counts: Any, weights: Any, means: Any, deviations: Any
) -> None:
    """A histogram of values (n,) with counts (n,), k weighted Gaussians, and their sum."""
    edges = _edges(values, len(means), deviations)
    axis.hist(values, edges, weights=counts / counts.sum() / _widths(values, edges), color=LIGHT)
    low, high = edges[0], edges[-1]
    grid = np.unique(np.concatenate([np.linspace(low, high, _GRID), means]))
    # A narrow component needs points of its own.
    near = (means + np.linspace(-4, 4, 65)[:, None] * deviations).ravel()
    grid = np.unique(np.concatenate([grid, near[(near >= low) & (near <= high)]]))
    each = weights * np.exp(-(((grid[:, None] - means) / deviations) ** 2) / 2)
    each /= deviations * np.sqrt(2 * np.pi)
    total = each.sum(axis=1)
    colours = in_turn(len(means))
    axis.plot(grid, total, color="black", linewidth=1.0, label="sum", zorder=2)
    named = len(means) <= _MOST_NAMED
    dashes = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
    for j, colour in enumerate(colours):
        label = f"{j}: weight {weights[j]:.3g}, mean {means[j]:.4g}, SD {deviations[j]:.3g}"
        shown = each[:, j] > 1e-3 * each[:, j].max()
        axis.plot(
            grid[shown],
            each[shown, j],
            color=colour,
            linestyle=dashes[j // len(set(colours)) % len(dashes)] if not named else dashes[j % 4],
            linewidth=1.8,
            label=label if named else None,
            zorder=3,
        )
        axis.annotate(
            str(j),
            (means[j], each[:, j].max()),
            textcoords="offset points",
            xytext=(0, 2),
            ha="center",
            fontsize=9,
            color=colour,
            path_effects=outlined(),
            zorder=5,
        )
    # A component of no width must not flatten all others.
    bars = max(patch.get_height() for patch in axis.patches)
    axis.set_ylim(0, 1.12 * min(float(total.max()), 4 * bars))
    axis.set_xlim(low, high)
    axis.set_ylabel("density")
    tidy(axis)


def _edges(values: Any, count: int, deviations: Any) -> Any:
    """Bars: one per class where the values are classes, else so wide that clusters are seen."""
    classes = np.unique(values)
    steps = np.diff(classes)
    if 2 < len(classes) <= _MOST_CLASSES and np.allclose(
        np.round(steps / steps.min()), steps / steps.min(), atol=1e-6
    ):
        step = steps.min()
        bars = round((classes[-1] - classes[0]) / step) + 1
        if bars <= 2 * _MOST_CLASSES:
            return classes[0] + step * (np.arange(bars + 1) - 0.5)
    low, high = float(values.min()), float(values.max())
    if not high > low:
        width = max(float(deviations.max()), 1e-9)
        return np.linspace(low - 4 * width, high + 4 * width, _FEWEST_BINS)
    bars = int(np.clip(2 * len(values) ** (1 / 3) * np.sqrt(count), _FEWEST_BINS, _MOST_BINS))
    return np.linspace(low, high, bars + 1)


def _widths(values: Any, edges: Any) -> Any:
    """The width of the bar that each value falls into."""
    at = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.diff(edges)[at]
