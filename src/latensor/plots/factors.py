"""How the vectors of a mode are drawn: against what, as a line, as bars, or as thin stems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from latensor.arrays import check_mode
from latensor.exceptions import InvalidInputError
from latensor.plots.figures import new_figure

# Colours that the colour-blind tell apart (Okabe and Ito), the first two also in grey.
BLUE, VERMILION, GREY = "#0072B2", "#D55E00", "#9A9A9A"
# Modes up to this long are categories unless they are known to be numbers on an axis.
_FEW = 24
# Up to so many words stand below an axis; of more, each panel names its largest entries.
_WORDS = 30
_LONGEST_WORD = 16
# Neighbours that agree better than this (lag-one correlation) lie on a curve.
_SMOOTH = 0.5


@dataclass(frozen=True)
class ModeAxis:
    """The horizontal axis of one mode.

    Attributes
    ----------
    mode : int
    name : str, what is written below
    positions : (d,) floats, where the entries stand
    words : (d,) strings or None, what the entries are called
    style : "line", "bars" or "stems"
    limits : (low, high), the range of all vectors of the mode
    """

    mode: int
    name: str
    positions: Any
    words: tuple[str, ...] | None
    style: str
    limits: tuple[float, float]

    def draw(self, axis: Any, vectors: Sequence[Any]) -> None:
        """Draw one vector, or two for comparison, and the zero line.

        The second of two lies over the first, in another colour and shape.
        """
        axis.axhline(0.0, color=GREY, linewidth=0.6, zorder=1)
        for number, vector in enumerate(vectors):
            colour = (BLUE, VERMILION)[number]
            if self.style == "line":
                dashes: Any = "-" if number == 0 else (0, (4, 2))
                axis.plot(self.positions, vector, color=colour, linestyle=dashes, linewidth=1.5)
            elif self.style == "bars":
                width = 0.8 / len(vectors)
                shift = (number - (len(vectors) - 1) / 2) * width
                axis.bar(self.positions + shift, vector, width, color=colour, zorder=2)
            else:
                # The second is a broad shadow of the first: where they agree, both are seen.
                width = (1.2, 3.4)[number]
                shadow = {"alpha": 0.55} if number else {}
                axis.vlines(
                    self.positions,
                    0.0,
                    vector,
                    color=colour,
                    linewidth=width,
                    zorder=3 - number,
                    **shadow,
                )
        axis.set_ylim(*self.limits)
        axis.yaxis.set_major_locator(MaxNLocator(3))
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)

    def finish(self, axis: Any) -> None:
        """The ticks and the name of the mode, below the last row."""
        named = self.words is not None and len(self.words) <= _WORDS
        if named or (self.style == "bars" and len(self.positions) <= 12):
            words = self.words or tuple(str(i) for i in range(len(self.positions)))
            longest = max(len(word) for word in words)
            turned = 90 if longest * len(words) > 30 else 0
            axis.set_xticks(self.positions, [_shortened(w) for w in words], rotation=turned)
        else:
            whole = bool(np.all(self.positions == np.round(self.positions)))
            axis.xaxis.set_major_locator(MaxNLocator(5, integer=whole))
        margin = 0.6 if self.style != "line" else 0.0
        axis.set_xlim(self.positions.min() - margin, self.positions.max() + margin)
        axis.set_xlabel(self.name, fontsize=10)

    def largest(self, vector: Any, count: int = 3) -> str:
        """The words at the largest entries, where there are too many words for the axis."""
        if self.words is None or len(self.words) <= _WORDS:
            return ""
        leading = np.argsort(-np.abs(vector), kind="stable")[:count]
        return ", ".join(_shortened(self.words[i]) for i in leading if vector[i] != 0)


def grid(rows: int, axes: Sequence[ModeAxis], row_height: float = 1.15) -> tuple[Figure, Any]:
    """A figure with one row per component and one column per mode, and its panels."""
    figure = new_figure(1.6 + 3.0 * len(axes), 1.1 + row_height * rows)
    return figure, figure.subplots(rows, len(axes), sharex="col", squeeze=False)


def chosen_modes(modes: Sequence[int] | None, order: int) -> tuple[int, ...]:
    """The modes to draw, all by default, each at most once."""
    given = tuple(range(order) if modes is None else modes)
    chosen = tuple(check_mode(mode, order, "modes") for mode in given)
    if not chosen or len(set(chosen)) < len(chosen):
        raise InvalidInputError(f"modes={given} must name at least one mode, and none twice")
    return chosen


def mode_axis(mode: int, vectors: Any, labels: Any, names: Any, order: int) -> ModeAxis:
    """The axis that suits a mode.

    Parameters
    ----------
    vectors : (d, n) real array, all that will be drawn in the mode
    labels, names : as the caller of the figure gave them
    order : int, the number of modes of the tensor
    """
    d = len(vectors)
    label = _entry(labels, mode, order, "labels")
    words: tuple[str, ...] | None = None
    positions = np.arange(d, dtype=float)
    numbers = False
    if label is not None:
        values = np.asarray(label)
        if values.shape != (d,):
            raise InvalidInputError(
                f"labels of mode {mode} have shape {values.shape}: expected {d} of them, "
                "one per index of the mode"
            )
        numbers = values.dtype.kind in "iuf" and bool(np.all(np.diff(values) > 0)) and d > 1
        if numbers and d > 3:
            positions = values.astype(float)
        else:
            words, numbers = tuple(str(value) for value in values), False
    if numbers:
        style = "line"
    elif d <= _FEW:
        style = "bars"
    else:
        style = "line" if words is None and _smoothness(vectors) > _SMOOTH else "stems"
    name = _entry(names, mode, order, "names")
    return ModeAxis(
        mode,
        f"mode {mode}" if name is None else str(name),
        positions,
        words,
        style,
        _limits(vectors),
    )


def _entry(given: Any, mode: int, order: int, argument: str) -> Any:
    """What was given for a mode, in a mapping or in a sequence with one entry per mode."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        for key in given:
            check_mode(key, order, argument)
        return given.get(mode, given.get(mode - order))
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != order:
        raise InvalidInputError(
            f"{argument} must be a mapping from modes, or a sequence of {order} entries, one per "
            "mode, with None for a mode that has none"
        )
    return given[mode]


def _limits(vectors: Any) -> tuple[float, float]:
    finite = vectors[np.isfinite(vectors)]
    low, high = min(float(finite.min()), 0.0), max(float(finite.max()), 0.0)
    margin = 0.06 * (high - low) or 1.0
    return (low - margin if low < 0 else 0.0), high + margin


def _smoothness(vectors: Any) -> float:
    """The lag-one correlation of the vectors, averaged by their variance."""
    centred = vectors - vectors.mean(axis=0)
    total = float((centred**2).sum())
    return float((centred[1:] * centred[:-1]).sum()) / total if total > 0 else 1.0


def _shortened(word: str) -> str:
    return word if len(word) <= _LONGEST_WORD else word[: _LONGEST_WORD - 1] + "…"
