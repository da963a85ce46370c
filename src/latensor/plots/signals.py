"""Sources beside each other: what was unmixed, how far from Gaussian, and in which sensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import check_positive_int, to_host
from latensor.plots.colours import checked_model, checked_names, in_turn, number_ticks, tidy
from latensor.plots.factors import GREY
from latensor.plots.figures import new_figure

# Half of the room that a trace may fill, in steps between traces, and the standard deviations it
# shows.
_FRACTION, _REACH = 0.6, 3.0
_MOST_WORDS = 24
# Kurtoses beyond this many times the median would hide all others: their bars are cut.
_FARTHEST = 8.0


def signals(
    model: Any, X: Any, *, names: Sequence[object] | None = None, n_rows: int = 500
) -> Figure:
    """Draw the sources of an ICA: their course, their kurtosis, and their fraction in every sensor.

    Parameters
    ----------
    model : a fitted `lt.ICA`
    X : (n, d) samples, of which the first `n_rows` are unmixed and drawn
    names : what the d sensors are called
    n_rows : int

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    checked_model(model, ("mixing_", "kurtosis_", "transform"), "lt.ICA")
    n_rows = check_positive_int(n_rows, "n_rows")
    mixing = np.asarray(model.mixing_, dtype=float)
    n_features, count = mixing.shape
    named = checked_names(names, n_features, "names", "")
    total = len(X)
    sources = np.asarray(to_host(model.transform(X[:n_rows])), dtype=float)
    figure = new_figure(11.0, float(np.clip(2.0 + 0.55 * count, 3.6, 11.0)))
    course, bars, map_ = figure.subplots(1, 3, width_ratios=(3.2, 1.0, 1.8))
    colours = in_turn(count)
    _draw_course(course, sources, colours)
    shown = f"the first {len(sources):,} of {total:,}" if len(sources) < total else ""
    course.set_xlabel(f"row, {shown}" if shown else "row")
    unsure = getattr(getattr(model, "certificate_", None), "unidentifiable", ())
    _draw_kurtosis(bars, np.asarray(model.kurtosis_, dtype=float), colours, unsure)
    _draw_mixing(map_, figure, mixing, named)
    return figure


def _draw_course(axis: Any, sources: Any, colours: list[str]) -> None:
    count = sources.shape[1]
    at = np.arange(len(sources))
    for j in range(count):
        course = sources[:, j] - sources[:, j].mean()
        # One spike must not paint over its neighbours.
        reach = max(float(np.abs(course).max()), _REACH * float(course.std())) or 1.0
        axis.plot(at, j - _FRACTION * course / reach, color=colours[j], linewidth=0.8)
    number_ticks(axis, count)
    axis.set_ylim(count - 0.4, -0.6)
    axis.set_xlim(0, max(len(sources) - 1, 1))
    axis.set_ylabel("source")
    axis.set_title("unmixed sources", fontsize=10)
    tidy(axis)


def _draw_kurtosis(axis: Any, kurtosis: Any, colours: list[str], unsure: Sequence[int]) -> None:
    count = len(kurtosis)
    largest = np.abs(kurtosis)
    limit = max(_FARTHEST * float(np.median(largest)), 1.0)
    cut = np.clip(kurtosis, -limit, limit)
    painted = [GREY if j in unsure else colours[j] for j in range(count)]
    axis.barh(np.arange(count), cut, color=painted, height=0.6)
    axis.axvline(0.0, color="black", linewidth=0.7)
    for j in np.flatnonzero(largest > limit):
        place, side = (cut[j], "right") if cut[j] > 0 else (cut[j], "left")
        axis.text(place, j, f"{kurtosis[j]:.3g}", ha=side, va="center", fontsize=7, color="white")
    number_ticks(axis, count)
    axis.set_ylim(count - 0.4, -0.6)
    axis.set_xlabel("excess kurtosis")
    axis.set_title("grey: may be Gaussian" if len(unsure) else "0 is Gaussian", fontsize=8)
    tidy(axis)


def _draw_mixing(axis: Any, figure: Any, mixing: Any, names: list[str]) -> None:
    n_features, count = mixing.shape
    largest = np.abs(mixing).max(axis=0)
    scaled = (mixing / np.where(largest > 0, largest, 1.0)).T
    shown = axis.imshow(scaled, cmap="RdBu_r", vmin=-1.0, vmax=1.0, aspect="auto")
    number_ticks(axis, count)
    axis.set_ylim(count - 0.4, -0.6)
    step = -(-n_features // _MOST_WORDS)
    turned = 90 if sum(map(len, names[::step])) > 24 else 0
    axis.set_xticks(range(0, n_features, step), names[::step], rotation=turned)
    axis.tick_params(labelsize=8)
    axis.set_xlabel("sensor")
    axis.set_title("in the sensors, largest entry 1", fontsize=10)
    bar = figure.colorbar(shown, ax=axis, shrink=0.8)
    bar.ax.tick_params(labelsize=8)
