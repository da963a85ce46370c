"""A latent tree: leaves on the right, lengths to scale, support at the inner edges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from latensor.plots.colours import PALETTE, checked_model, checked_names, outlined
from latensor.plots.factors import GREY
from latensor.plots.figures import new_figure
from latensor.sources.newick import format_newick, parse_newick

# Support below which an edge is drawn in another colour.
_SURE = 0.95
# Leaves whose names can be read.
_MOST_NAMED = 150


def tree(model: Any, *, names: Sequence[object] | None = None) -> Figure:
    """Draw the tree of a `LatentTree`, rooted at the midpoint of its longest path for display.

    Edges that fewer than 95 in 100 resamples support are drawn in orange with their support.

    Parameters
    ----------
    model : a fitted `LatentTree`
    names : of the leaves; by default the names or numbers of the columns

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("tree_", "newick"), "LatentTree")
    found = model.tree_
    count = found.n_observed
    given = getattr(model, "feature_names_in_", None) if names is None else names
    shown = checked_names(given, count, "names", "")
    parent, length, support, order = _rooted(found)
    children: list[list[int]] = [[] for _ in parent]
    for v in order[1:]:
        children[parent[v]].append(v)
    sizes = np.zeros(len(parent), dtype=int)
    for v in reversed(order):
        sizes[v] = sum(sizes[c] for c in children[v]) + (v < count)
    place = np.zeros(len(parent))
    across = np.zeros(len(parent))
    row = 0
    stack = [order[0]]
    visit: list[int] = []
    while stack:
        v = stack.pop()
        visit.append(v)
        children[v].sort(key=lambda c: sizes[c])
        stack.extend(reversed(children[v]))
        if parent[v] >= 0:
            across[v] = across[parent[v]] + length[v]
    for v in visit:
        if not children[v]:
            place[v], row = row, row + 1
    for v in reversed(visit):
        if children[v]:
            place[v] = np.mean([place[c] for c in children[v]])
    figure = new_figure(8.0, float(np.clip(1.2 + 0.22 * row, 3.0, 30.0)))
    axis = figure.add_subplot()
    lines, colours = [], []
    for v in visit[1:]:
        u = parent[v]
        lines.append([(across[u], place[u]), (across[u], place[v]), (across[v], place[v])])
        weak = np.isfinite(support[v]) and support[v] < _SURE
        colours.append(PALETTE[1] if weak else "black")
        if weak:
            axis.text(
                (across[u] + across[v]) / 2,
                place[v],
                f"{support[v]:.2f}",
                fontsize=7,
                ha="center",
                va="bottom",
                color=PALETTE[1],
                path_effects=outlined(2.0),
            )
    axis.add_collection(LineCollection(lines, colors=colours, linewidths=1.1, joinstyle="miter"))
    reach = float(across.max()) or 1.0
    if count <= _MOST_NAMED:
        for v in range(count):
            axis.text(across[v] + 0.012 * reach, place[v], shown[v], va="center", fontsize=8)
    inner = [v for v in range(count, len(found)) if children[v]]
    axis.plot(across[inner], place[inner], "o", color=GREY, markersize=3)
    axis.set_xlim(-0.02 * reach, 1.18 * reach)
    axis.set_ylim(row - 0.4, -0.6)
    axis.set_yticks([])
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(labelsize=8)
    axis.set_xlabel(
        "length (scale of log-determinants)" if hasattr(model, "leafprob_") else "length"
    )
    title = f"{count} leaves, {found.n_hidden} hidden nodes; the root is for display only"
    axis.set_title(title, fontsize=10)
    return figure


def _rooted(found: Any) -> tuple[list[int], list[float], list[float], list[int]]:
    """Parents, lengths, support and preorder, with a root at the midpoint of the longest path."""
    numbers = [str(i) for i in range(found.n_observed)]
    text = format_newick(found, numbers, root="midpoint")
    again = parse_newick(text, numbers, keep_root=True)[0]
    splits = found.splits()
    support = [float("nan")] * len(again)
    for v, side in enumerate(again.below()):
        key = np.packbits(side ^ side[0]).tobytes()
        if key in splits:
            support[v] = float(found.support[splits[key]])
    return [int(u) for u in again.parent], list(again.length), support, again.preorder()
