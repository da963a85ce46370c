"""Colours for any number of components, and how panels that show them look."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.patheffects import withStroke

from latensor.exceptions import InvalidInputError

# Colours that the colour-blind tell apart (Okabe and Ito), without the yellow that white swallows.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#5F5F5F")
# Of them those of thin lines.
CURVES = PALETTE[:6]
LIGHT = "#E0E0E0"
# Up to so many rows a matrix in colours shows its numbers.
MOST_NUMBERED = 10
_LONGEST = 18


def in_turn(count: int) -> list[str]:
    """A colour (count,) for each component, in the fixed order of the palette."""
    return [PALETTE[j % len(PALETTE)] for j in range(count)]


def apart(centers: Any) -> list[str]:
    """A colour for each of k centres (k, 2); where colours repeat, those of one are far apart."""
    centers = np.asarray(centers, dtype=float)
    spread = np.ptp(centers, axis=0)
    places = centers / np.where(spread > 0, spread, 1.0)
    chosen: list[int] = []
    for j, place in enumerate(places):
        distances = np.full(len(PALETTE), np.inf)
        for earlier, colour in enumerate(chosen):
            distance = float(np.hypot(*(place - places[earlier])))
            distances[colour] = min(distances[colour], distance)
        chosen.append(j if j < len(PALETTE) else int(np.argmax(distances)))
    return [PALETTE[colour] for colour in chosen]


def outlined(size: float = 2.5) -> list[Any]:
    """The effect that keeps a text readable on any ground."""
    return [withStroke(linewidth=size, foreground="white")]


def tidy(axis: Any) -> None:
    """No frame above and to the right, small ticks."""
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def number_ticks(axis: Any, count: int, which: str = "y", most: int = 26) -> None:
    """Ticks at 0..count-1, every one, or every so many that no two touch."""
    step = max(-(-count // most), 1)
    ticks = np.arange(0, count, step)
    (axis.set_yticks if which == "y" else axis.set_xticks)(ticks)


def checked_names(
    names: Sequence[object] | None, count: int, argument: str, stem: str
) -> list[str]:
    """Names of `count` columns, cut to a length that fits; `stem` and a number unless given.

    Names that end differently keep their ends.
    """
    if names is None:
        return [f"{stem} {j}".strip() for j in range(count)]
    given = [str(name) for name in names]
    if len(given) != count:
        raise InvalidInputError(f"{argument} holds {len(given)} names: expected {count}")
    short = [name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…" for name in given]
    if len(set(short)) == len(set(given)):
        return short
    half = _LONGEST // 2
    return [
        name if len(name) <= _LONGEST else f"{name[: half - 1]}…{name[-half:]}" for name in given
    ]


def checked_model(model: Any, attributes: Sequence[str], kinds: str) -> None:
    """Refuse what is no fitted model of the kind that a figure shows."""
    missing = [name for name in attributes if not hasattr(model, name)]
    if missing:
        raise InvalidInputError(
            f"model is a {type(model).__name__} without {', '.join(missing)}: give a fitted {kinds}"
        )
