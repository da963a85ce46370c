"""The two parts of robust PCA, and the ranks of a tensor train."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latensor.arrays import to_host
from latensor.plots.colours import LIGHT, tidy
from latensor.plots.factors import BLUE
from latensor.plots.figures import new_figure

# Rows and columns of a matrix that are drawn, evenly spaced, and gross errors one by one.
_MOST_LINES = 600
_MOST_POINTS = 60_000


def low_rank_and_errors(found: Any) -> Figure:
    """Draw what `lt.robust_pca` found: the low-rank part, and where the gross errors are.

    Of a tensor, the fraction of gross errors in every slice of every mode.

    Parameters
    ----------
    found : a RobustDecomposition

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    places, shape = np.asarray(found.sparse.coordinates), tuple(found.low_rank.shape)
    if len(shape) > 2:
        return _errors_by_slice(places, shape)
    figure = new_figure(11.0, 4.8)
    left, right = figure.subplots(1, 2)
    weights, (rows, columns) = found.low_rank
    rows, columns = (to_host(f)[:: -(-len(f) // _MOST_LINES)] for f in (rows, columns))
    part = (rows * to_host(weights)) @ columns.T
    size = float(np.abs(part).max()) or 1.0
    extent = (-0.5, shape[1] - 0.5, shape[0] - 0.5, -0.5)
    image = left.imshow(part, aspect="auto", cmap="RdBu_r", vmin=-size, vmax=size, extent=extent)
    figure.colorbar(image, ax=left)
    left.set_title(f"low-rank part, rank {found.rank}", fontsize=10)
    step = -(-len(places) // _MOST_POINTS) if len(places) else 1
    values = to_host(found.sparse.values)[::step]
    largest = float(np.abs(values).max(initial=0.0)) or 1.0
    area = float(np.clip((300.0 / max(shape)) ** 2, 0.2, 18.0))
    points = right.scatter(
        places[::step, 1], places[::step, 0], s=area, c=values, marker="s", linewidths=0,
        cmap="RdBu_r", vmin=-largest, vmax=largest, rasterized=True,
    )  # fmt: skip
    figure.colorbar(points, ax=right)
    right.set_xlim(*extent[:2])
    right.set_ylim(*extent[2:])
    right.set_facecolor(LIGHT)
    right.set_title(f"{len(places):,} gross errors", fontsize=10)
    for panel in (left, right):
        panel.set_xlabel("column")
        panel.set_ylabel("row")
    return figure


def _errors_by_slice(places: Any, shape: tuple[int, ...]) -> Figure:
    figure = new_figure(min(3.6 * len(shape), 14.0), 3.6)
    entries = float(np.prod(shape, dtype=float))
    for mode, (panel, size) in enumerate(
        zip(np.atleast_1d(figure.subplots(1, len(shape))), shape, strict=True)
    ):
        counts = np.bincount(places[:, mode], minlength=size)
        panel.step(np.arange(size), 100 * counts * size / entries, where="mid", color=BLUE)
        panel.set_ylim(bottom=0)
        panel.set_xlabel(f"mode {mode}")
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        tidy(panel)
    figure.axes[0].set_ylabel("% of the entries of a slice")
    figure.suptitle(f"{len(places):,} gross errors", fontsize=10)
    return figure


def train_ranks(train: Any) -> Figure:
    """Draw the ranks of a `lt.TensorTrain` between its modes, and the largest that they can be.

    Parameters
    ----------
    train : a TensorTrain

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    logs = np.log2(np.array(train.shape, dtype=float))
    cuts = np.arange(1, train.order)
    largest = 2.0 ** np.array([min(logs[:m].sum(), logs[m:].sum()) for m in cuts])
    figure = new_figure(7.0, 4.0)
    axis = figure.subplots()
    axis.bar(cuts - 0.5, train.ranks, color=BLUE, label="rank")
    axis.plot(
        cuts - 0.5, largest, color="black", marker="_", linestyle="", label="largest possible"
    )
    axis.set_xticks(np.arange(train.order), [str(m) for m in range(train.order)])
    axis.set_xlim(-0.6, train.order - 0.4)
    axis.set_xlabel("between modes")
    axis.set_ylabel("rank")
    if len(cuts):
        axis.set_yscale("log")
        axis.set_ylim(0.8, 1.5 * largest.max())
        axis.legend(frameon=False)
    axis.set_title(f"{train.n_entries:,} numbers in {train.order} cores", fontsize=10)
    tidy(axis)
    return figure
