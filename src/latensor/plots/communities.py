"""Communities of a network: its edges sorted by community, and how communities are linked."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.exceptions import InvalidInputError
from latensor.plots.colours import MOST_NUMBERED, checked_model, in_turn, number_ticks, tidy
from latensor.plots.figures import new_figure
from latensor.sources.graph import read_graph

# Edges that are drawn one by one; of more, an equal sample.
_MOST_EDGES = 60_000


def communities(model: Any, adjacency: Any) -> Figure:
    """Draw a network by community: adjacency, memberships, rates between communities.

    Nodes are sorted by the community that explains most of their edges, within it by how much of
    them belongs to it.

    Parameters
    ----------
    model : a fitted `MixedMembershipBlockModel`
    adjacency : the network, as `fit` takes it

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("membership_", "block_matrix_"), "MixedMembershipBlockModel")
    matrix = read_graph(adjacency)[0].tocoo()
    membership, labels = np.asarray(model.membership_), np.asarray(model.labels_)
    n, k = membership.shape
    if matrix.shape[0] != n:
        raise InvalidInputError(
            f"adjacency has {matrix.shape[0]} nodes: the model was fitted to {n}"
        )
    order = np.lexsort((-membership[np.arange(n), labels], labels))
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    colours = in_turn(k)
    figure = new_figure(11.0, 5.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(1.15, 1.0), height_ratios=(1.0, 1.15))
    edges = figure.add_subplot(grid[:, 0])
    i, j = place[matrix.coords[0]], place[matrix.coords[1]]
    if len(i) > _MOST_EDGES:
        step = -(-len(i) // _MOST_EDGES)
        i, j = i[::step], j[::step]
    size = float(np.clip((300.0 / max(n, 1)) ** 2, 0.1, 18.0))
    inside = labels[order][i] == labels[order][j]
    painted = np.where(inside, np.array(colours)[labels[order][i]], "#9A9A9A")
    edges.scatter(j, i, s=size, c=painted, marker="s", linewidths=0, rasterized=True)
    ends = np.cumsum(np.bincount(labels, minlength=k))
    for end in ends[:-1]:
        edges.axhline(end - 0.5, color="black", linewidth=0.5)
        edges.axvline(end - 0.5, color="black", linewidth=0.5)
    edges.set_xlim(-0.5, n - 0.5)
    edges.set_ylim(n - 0.5, -0.5)
    edges.set_aspect("equal")
    edges.set_title(f"edges of {n:,} nodes, sorted by community", fontsize=10)
    edges.set_xlabel("to node")
    edges.set_ylabel("from node")
    edges.tick_params(labelsize=8)
    fractions = figure.add_subplot(grid[0, 1])
    bottoms = np.zeros(n)
    for c in range(k):
        values = membership[order, c]
        fractions.fill_between(
            np.arange(n), bottoms, bottoms + values, color=colours[c], step="mid", linewidth=0
        )
        bottoms += values
    fractions.set_xlim(-0.5, n - 0.5)
    fractions.set_ylim(0, 1)
    fractions.set_title("memberships of the nodes, in the same order", fontsize=10)
    fractions.set_xlabel("node")
    tidy(fractions)
    rates = figure.add_subplot(grid[1, 1])
    block = np.asarray(model.block_matrix_)
    shown = rates.imshow(block, cmap="Blues", vmin=0.0)
    if k <= MOST_NUMBERED:
        for (a, b), value in np.ndenumerate(block):
            ink = "white" if value > 0.55 * block.max() else "black"
            rates.text(b, a, f"{value:.2g}", ha="center", va="center", fontsize=7, color=ink)
    number_ticks(rates, k)
    number_ticks(rates, k, "x")
    rates.tick_params(labelsize=8)
    rates.set_title("rates between communities", fontsize=10)
    rates.set_xlabel("to community")
    rates.set_ylabel("from community")
    figure.colorbar(shown, ax=rates, shrink=0.9).ax.tick_params(labelsize=8)
    return figure
