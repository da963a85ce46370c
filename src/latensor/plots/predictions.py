"""Predictions against what was observed: numbers in a scatter, classes in a table of counts."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import generator, to_host
from latensor.exceptions import InvalidInputError
from latensor.plots.colours import PALETTE, checked_model, tidy
from latensor.plots.figures import new_figure

_MOST_POINTS = 4000


def predictions(model: Any, X: Any, y: Any) -> Figure:
    """Draw what a regression or a classifier predicts, beside what was observed.

    Parameters
    ----------
    model : fitted, with `predict`
    X, y : samples and what was observed of them, numbers (n,) or (n, outputs), or classes

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("predict",), "regression or classifier")
    observed, found = np.asarray(to_host(y)), np.asarray(to_host(model.predict(X)))
    if observed.shape[:1] != found.shape[:1]:
        raise InvalidInputError(f"y has shape {observed.shape}: expected {found.shape}")
    if hasattr(model, "classes_"):
        return _counts(model.classes_, observed.ravel(), found.ravel())
    observed, found = observed.reshape(len(found), -1), found.reshape(len(found), -1)
    figure = new_figure(5.2, 4.8)
    panel = figure.subplots()
    rows = np.arange(len(found))
    if len(rows) > _MOST_POINTS:
        rows = np.sort(generator(0).choice(len(rows), _MOST_POINTS, replace=False))
    for output in range(found.shape[1]):
        colour = PALETTE[output % len(PALETTE)]
        label = f"output {output}" if found.shape[1] > 1 else None
        panel.scatter(observed[rows, output], found[rows, output], s=9, alpha=0.5, color=colour,
                      linewidths=0, label=label)  # fmt: skip
    ends = [min(observed.min(), found.min()), max(observed.max(), found.max())]
    panel.plot(ends, ends, color="0.4", linewidth=1, linestyle="--")
    left = float(((observed - found) ** 2).sum())
    spread = float(((observed - observed.mean(axis=0)) ** 2).sum())
    fraction = f", R² {1 - left / spread:.3f} on these rows" if spread > 0 else ""
    panel.set_title(f"{len(found):,} rows{fraction}", fontsize=9, loc="left")
    panel.set_xlabel("observed")
    panel.set_ylabel("predicted")
    if found.shape[1] > 1:
        panel.legend(fontsize=8, frameon=False)
    tidy(panel)
    return figure


def _counts(classes: Any, observed: Any, found: Any) -> Figure:
    """How often each class was taken for each."""
    known = [str(name) for name in classes]
    table = np.zeros((len(known), len(known)), dtype=int)
    places = {name: i for i, name in enumerate(known)}
    for one, other in zip(observed, found, strict=True):
        if str(one) not in places:
            raise InvalidInputError(f"y holds {one!r}: the model knows {', '.join(known[:8])}")
        table[places[str(one)], places[str(other)]] += 1
    size = max(3.6, 1.6 + 0.42 * len(known))
    figure = new_figure(size + 0.8, size)
    panel = figure.subplots()
    panel.imshow(
        table / np.maximum(table.sum(axis=1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1
    )
    if len(known) <= 20:
        for i, row in enumerate(table):
            for j, count in enumerate(row):
                dark = count > 0.55 * max(row.sum(), 1)
                panel.text(j, i, f"{count}", ha="center", va="center", fontsize=8,
                           color="white" if dark else "0.2")  # fmt: skip
    panel.set_xticks(range(len(known)), known, rotation=90, fontsize=8)
    panel.set_yticks(range(len(known)), known, fontsize=8)
    panel.set_xlabel("predicted")
    panel.set_ylabel("observed")
    right = np.trace(table) / max(table.sum(), 1)
    panel.set_title(f"{table.sum():,} rows, {100 * right:.1f} % right", fontsize=9, loc="left")
    return figure
