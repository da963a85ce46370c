"""A hidden Markov model in one figure: rows and their states, transitions, emissions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from latensor.arrays import check_positive_int, to_host
from latensor.exceptions import InvalidInputError
from latensor.plots.colours import (
    LIGHT,
    MOST_NUMBERED,
    checked_model,
    checked_names,
    in_turn,
    number_ticks,
    tidy,
)
from latensor.plots.density import draw_densities
from latensor.plots.factors import GREY
from latensor.plots.figures import new_figure

# Columns of the emissions that can be told apart; of more, those that tell states apart.
_MOST_COLUMNS = 40
_MOST_WORDS = 24


def states(
    model: Any,
    X: Any,
    lengths: Any = None,
    *,
    names: Sequence[object] | None = None,
    n_rows: int = 300,
) -> Figure:
    """Draw a hidden Markov model: the first rows with their states, transitions, emissions.

    Of points the feature that tells the states apart best is drawn over the rows, and the means
    of all features in units of their standard deviation; of more than 40 features or symbols, those
    that differ most between states.

    Parameters
    ----------
    model : a fitted `CategoricalHMM` or `GaussianHMM`
    X : rows of all sequences, one after the other
    lengths : how many rows each sequence has; None for one sequence
    names : what the symbols or the features are called
    n_rows : int, rows that are drawn

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("startprob_", "transmat_", "predict"), "hidden Markov model")
    symbols = hasattr(model, "emissionprob_")
    rows = np.asarray(to_host(X), dtype=float)
    rows = rows.reshape(-1, 1) if rows.ndim == 1 else rows
    path = np.asarray(model.predict(X, lengths))
    count, shown = len(model.startprob_), min(check_positive_int(n_rows, "n_rows"), len(path))
    table = np.asarray(model.emissionprob_ if symbols else model.means_, dtype=float)
    if not symbols and rows.shape[1] != table.shape[1]:
        raise InvalidInputError(f"X has shape {rows.shape}: expected (n, {table.shape[1]})")
    named = checked_names(names, table.shape[1], "names", "")
    colours = in_turn(count)
    extra = float(np.clip(0.07 * count, 0.2, 4.0))
    figure = new_figure(10.0, 6.0 + 1.6 * extra)
    grid = figure.add_gridspec(3, 2, height_ratios=(1.5, 0.8 + extra, 2.9 + extra))
    above = figure.add_subplot(grid[0, :])
    below = figure.add_subplot(grid[1, :], sharex=above)
    if symbols:
        _draw_symbols(above, rows[:shown, 0], path, named, colours)
    else:
        best = int(np.argmax(_telling(model, table)))
        _draw_values(above, rows[:shown, best], path, table[:, best], colours)
        above.set_ylabel(named[best] if names is not None else f"feature {best}")
    _draw_path(below, path[:shown], colours)
    ends: Any = [] if lengths is None else np.cumsum(np.asarray(lengths))
    for end in [e for e in ends if e < shown]:
        for axis in (above, below):
            axis.axvline(end - 0.5, color=GREY, linewidth=0.7, linestyle="--", zorder=0)
    above.tick_params(labelbottom=False)
    below.set_xlim(-0.5, shown - 0.5)
    below.set_xlabel(f"row, the first {shown:,} of {len(path):,}" if shown < len(path) else "row")
    figure.align_ylabels([above, below])
    transitions, emissions = (figure.add_subplot(grid[2, column]) for column in range(2))
    _draw_transitions(transitions, figure, np.asarray(model.transmat_))
    if symbols:
        _draw_probabilities(emissions, figure, table, named)
    elif table.shape[1] == 1:
        fractions = np.bincount(path, minlength=count) / len(path)
        deviations = np.sqrt(np.asarray(model.covars_)[:, 0, 0])
        values = rows[:, 0]
        draw_densities(emissions, values, np.ones(len(values)), fractions, table[:, 0], deviations)
        emissions.set_xlabel("feature 0" if names is None else named[0])
        emissions.set_title("emissions, weighted by the rows of the states", fontsize=10)
    else:
        _draw_means(emissions, figure, table, rows, _telling(model, table), named)
    return figure


def _telling(model: Any, means: Any) -> Any:
    """How far the means of a feature lie apart, in standard deviations within the states, (p,)."""
    within = np.einsum("jaa->ja", np.asarray(model.covars_)).mean(axis=0)
    return means.var(axis=0) / np.maximum(within, 1e-300)


def _draw_values(axis: Any, values: Any, path: Any, means: Any, colours: list[str]) -> None:
    at = np.arange(len(values))
    axis.plot(at, values, color=LIGHT, linewidth=0.8, zorder=1)
    axis.step(at, means[path[: len(values)]], where="mid", color="black", linewidth=0.9, zorder=2)
    painted = np.array(colours)[path[: len(values)]]
    axis.scatter(at, values, s=9, c=painted, linewidths=0, zorder=3)
    axis.set_title("rows, coloured by state; the line is the mean of the state", fontsize=10)
    tidy(axis)


def _draw_symbols(axis: Any, values: Any, path: Any, names: list[str], colours: list[str]) -> None:
    painted = np.array(colours)[path[: len(values)]]
    axis.scatter(np.arange(len(values)), values, s=10, marker="s", c=painted, linewidths=0)
    axis.set_ylim(len(names) - 0.4, -0.6)
    step = -(-len(names) // 15)
    axis.set_yticks(range(0, len(names), step), names[::step])
    axis.set_ylabel("symbol")
    axis.set_title("rows, coloured by state", fontsize=10)
    tidy(axis)
    if len(names) > 12:
        axis.tick_params(axis="y", labelsize=6)


def _draw_path(axis: Any, path: Any, colours: list[str]) -> None:
    begins = np.flatnonzero(np.concatenate([[True], path[1:] != path[:-1]]))
    stops = np.append(begins[1:], len(path))
    lines = [
        [(begin - 0.5, path[begin]), (stop - 0.5, path[begin])]
        for begin, stop in zip(begins, stops, strict=True)
    ]
    width = 5.0 if len(colours) <= 12 else 2.5
    painted = [colours[path[begin]] for begin in begins]
    axis.add_collection(LineCollection(lines, colors=painted, linewidths=width, capstyle="butt"))
    axis.set_ylim(len(colours) - 0.4, -0.6)
    number_ticks(axis, len(colours), most=12)
    axis.set_ylabel("state")
    tidy(axis)


def _draw_transitions(axis: Any, figure: Any, matrix: Any) -> None:
    count = len(matrix)
    shown = axis.imshow(matrix, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    if count <= MOST_NUMBERED:
        for i in range(count):
            for j in range(count):
                ink = "white" if matrix[i, j] > 0.55 else "black"
                text = f"{matrix[i, j]:.2f}"
                axis.text(j, i, text, ha="center", va="center", fontsize=8, color=ink)
    number_ticks(axis, count)
    number_ticks(axis, count, "x", most=13)
    axis.tick_params(labelsize=8)
    axis.set_xlabel("to state")
    axis.set_ylabel("from state")
    axis.set_title("transition probabilities", fontsize=10)
    figure.colorbar(shown, ax=axis, shrink=0.8).ax.tick_params(labelsize=8)


def _draw_probabilities(axis: Any, figure: Any, table: Any, names: list[str]) -> None:
    columns = _leading(table.max(axis=0))
    shown = axis.imshow(table[:, columns], cmap="Blues", vmin=0.0, aspect="auto")
    few = len(columns) < table.shape[1]
    _name_columns(axis, [names[j] for j in columns], len(table), "symbol")
    title = f"emission probabilities, {len(columns)} likeliest symbols"
    axis.set_title(title if few else "emission probabilities", fontsize=10)
    figure.colorbar(shown, ax=axis, shrink=0.8).ax.tick_params(labelsize=8)


def _draw_means(
    axis: Any, figure: Any, means: Any, rows: Any, telling: Any, names: list[str]
) -> None:
    columns = _leading(telling)
    deviations = rows.std(axis=0)
    scaled = (means - rows.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)
    scaled = scaled[:, columns]
    largest = float(np.abs(scaled).max()) or 1.0
    shown = axis.imshow(scaled, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    if len(means) <= MOST_NUMBERED and len(columns) <= 6:
        for (i, j), value in np.ndenumerate(means[:, columns]):
            ink = "white" if abs(scaled[i, j]) > 0.6 * largest else "black"
            axis.text(j, i, f"{value:.3g}", ha="center", va="center", fontsize=8, color=ink)
    _name_columns(axis, [names[j] for j in columns], len(means), "feature")
    axis.set_title("means; red is above the average of all rows", fontsize=10)
    bar = figure.colorbar(shown, ax=axis, shrink=0.8, label="in standard deviations")
    bar.ax.tick_params(labelsize=8)


def _leading(sizes: Any) -> Any:
    """The columns that are drawn, in their order."""
    if len(sizes) <= _MOST_COLUMNS:
        return np.arange(len(sizes))
    return np.sort(np.argsort(-sizes, kind="stable")[:_MOST_COLUMNS])


def _name_columns(axis: Any, names: list[str], count: int, what: str) -> None:
    number_ticks(axis, count)
    if len(names) <= _MOST_WORDS:
        turned = 90 if sum(map(len, names)) > 40 else 0
        axis.set_xticks(range(len(names)), names, rotation=turned)
    else:
        step = -(-len(names) // _MOST_WORDS)
        axis.set_xticks(range(0, len(names), step), names[::step], rotation=90)
    axis.tick_params(labelsize=8)
    axis.set_xlabel(what)
    axis.set_ylabel("state")
