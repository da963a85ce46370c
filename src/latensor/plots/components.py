"""The components of a decomposition, one row each, with one column per mode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latensor.arrays import to_host
from latensor.diagnostics.components import as_cp, components_of
from latensor.plots.factors import ModeAxis, chosen_modes, grid, mode_axis
from latensor.tensors.tucker import TuckerTensor

# Components that have a row of their own; of more, this many lead and the others share a row.
MOST_ROWS = 12
_LEADING = 8


def components(
    decomposition: Any,
    modes: Sequence[int] | None = None,
    labels: Any = None,
    *,
    names: Any = None,
) -> Figure:
    """Draw what a decomposition found: one row per component, one column per mode.

    Vectors have unit length. Long modes whose neighbours are alike are drawn as lines, other
    long modes as stems, short ones as bars. With more than 12 components the leading 8 have
    rows, and all others share one of heat maps, scaled to a largest entry of one.

    Parameters
    ----------
    decomposition : Decomposition, CPTensor or pair (weights, factors); or a TuckerTensor or its
        decomposition, whose rows are the directions of each mode, with the fraction of the core's
        energy along each
    modes : modes to draw, all by default
    labels : mapping from modes, or sequence with one entry per mode: one number or word per index;
        by default those that the data had
    names : the same, with what the modes are called

    Returns
    -------
    matplotlib Figure; `latensor.plots.save` writes it
    """
    known = getattr(decomposition, "mode_labels", None)
    if known is not None:
        labels = [mode.values for mode in known] if labels is None else labels
        names = [mode.name for mode in known] if names is None else names
    tucker = _tucker_of(decomposition)
    if tucker is not None:
        return _directions(tucker, modes, labels, names)
    found = components_of(as_cp(decomposition, "decomposition"), "decomposition")
    chosen = chosen_modes(modes, found.order)
    order = np.argsort(-found.magnitudes, kind="stable")
    rows = order if found.rank <= MOST_ROWS else order[:_LEADING]
    rest = order[len(rows) :]
    axes = [mode_axis(m, _parts(found.factors[m]), labels, names, found.order) for m in chosen]
    figure, panels = grid(len(rows) + (1 if len(rest) else 0), axes)
    for row, component in enumerate(rows):
        for column, axis in enumerate(axes):
            panel = panels[row, column]
            vector = found.factors[axis.mode][:, component]
            axis.draw(panel, _real_and_imaginary(vector))
            panel.set_title(axis.largest(vector), fontsize=8, pad=2)
        weight = found.weights[component]
        _name_row(panels[row, 0], f"component {component}\nweight {_number(weight)}")
    if len(rest):
        for column, axis in enumerate(axes):
            _heat_map(panels[-1, column], axis, found.factors[axis.mode][:, rest].real, rest)
        panels[-1, 0].set_title("red is positive, blue negative", fontsize=8, pad=2)
        low, high = found.magnitudes[rest].min(), found.magnitudes[rest].max()
        text = f"{len(rest)} others\nweights\n{_number(high)}\nto {_number(low)}"
        _name_row(panels[-1, 0], text)
    for column, axis in enumerate(axes):
        axis.finish(panels[-1, column])
    if np.iscomplexobj(found.factors[0]):
        figure.suptitle("real part (blue) and imaginary part (vermilion)", fontsize=10)
    return figure


def _directions(
    tucker: TuckerTensor, modes: Sequence[int] | None, labels: Any, names: Any
) -> Figure:
    core = np.abs(to_host(tucker.core)).astype(np.float64)
    factors = [None if f is None else to_host(f) for f in tucker.factors]
    chosen = [m for m in chosen_modes(modes, tucker.order) if factors[m] is not None]
    chosen = chosen or list(chosen_modes(modes, tucker.order))
    matrices = {m: _matrix(factors[m], core.shape[m]) for m in chosen}
    axes = [mode_axis(m, _parts(matrices[m]), labels, names, tucker.order) for m in chosen]
    counts = [min(core.shape[m], MOST_ROWS) for m in chosen]
    figure, panels = grid(max(counts), axes)
    scale = float(core.max()) or 1.0
    for column, (axis, count) in enumerate(zip(axes, counts, strict=True)):
        others = tuple(m for m in range(core.ndim) if m != axis.mode)
        energy = ((core / scale) ** 2).sum(axis=others)
        fractions = energy / (float(energy.sum()) or 1.0)
        for row in range(max(counts)):
            panel = panels[row, column]
            if row >= count:
                panel.set_axis_off()
                continue
            axis.draw(panel, _real_and_imaginary(matrices[axis.mode][:, row]))
            panel.set_title(_percent(fractions[row]), fontsize=8, pad=2)
        axis.finish(panels[count - 1, column])
        panels[count - 1, column].tick_params(labelbottom=True)
        if core.shape[axis.mode] > count:
            left = core.shape[axis.mode] - count
            axis_text = f"{axis.name}, and {left} more with {_percent(fractions[count:].sum())}"
            panels[count - 1, column].set_xlabel(axis_text, fontsize=10)
    for row in range(max(counts)):
        if panels[row, 0].axison:
            _name_row(panels[row, 0], f"direction {row}")
    core_shape = " x ".join(str(d) for d in tucker.ranks)
    figure.suptitle(
        f"core {core_shape}; above each direction its fraction of the energy", fontsize=10
    )
    return figure


def _tucker_of(value: Any) -> TuckerTensor | None:
    inner = value if isinstance(value, TuckerTensor) else getattr(value, "tensor", None)
    return inner if isinstance(inner, TuckerTensor) else None


def _matrix(factor: Any, dimension: int) -> Any:
    """A factor, or the identity that stands in where a mode was kept whole."""
    return np.eye(dimension) if factor is None else factor


def _parts(factor: Any) -> Any:
    return np.hstack([factor.real, factor.imag]) if np.iscomplexobj(factor) else factor


def _real_and_imaginary(vector: Any) -> list[Any]:
    return [vector.real, vector.imag] if np.iscomplexobj(vector) else [vector]


def _heat_map(panel: Any, axis: ModeAxis, vectors: Any, numbers: Any) -> None:
    largest = np.abs(vectors).max(axis=0)
    scaled = (vectors / np.where(largest > 0, largest, 1.0)).T
    edges = _edges(axis.positions)
    panel.pcolormesh(
        edges,
        np.arange(len(numbers) + 1) - 0.5,
        scaled,
        cmap="RdBu_r",
        vmin=-1.0,
        vmax=1.0,
        rasterized=True,
    )
    panel.set_ylim(len(numbers) - 0.5, -0.5)
    panel.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    ticks = sorted({0, len(numbers) - 1})
    panel.set_yticks(ticks, [str(numbers[t]) for t in ticks])
    panel.tick_params(labelsize=8)


def _edges(positions: Any) -> Any:
    """Boundaries half-way between neighbours."""
    if len(positions) == 1:
        return positions[0] + np.array([-0.5, 0.5])
    middle = (positions[1:] + positions[:-1]) / 2
    return np.concatenate(
        [[2 * positions[0] - middle[0]], middle, [2 * positions[-1] - middle[-1]]]
    )


def _name_row(panel: Any, text: str) -> None:
    panel.set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)


def _number(value: Any) -> str:
    if np.iscomplexobj(value):
        return f"{abs(value):.3g}"
    magnitude = abs(float(value))
    return f"{value:,.0f}" if 1e3 <= magnitude < 1e6 else f"{value:.3g}"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %" if fraction >= 1e-3 else f"{100 * fraction:.1g} %"
