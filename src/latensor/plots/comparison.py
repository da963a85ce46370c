"""Two decompositions of one tensor, matched and laid over each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from latensor.diagnostics.components import as_cp, components_of
from latensor.diagnostics.matching import match
from latensor.exceptions import InvalidInputError
from latensor.plots.components import MOST_ROWS
from latensor.plots.factors import BLUE, VERMILION, chosen_modes, grid, mode_axis


def comparison(
    a: Any,
    b: Any,
    modes: Sequence[int] | None = None,
    labels: Any = None,
    *,
    names: Any = None,
    titles: tuple[str, str] = ("a", "b"),
) -> Figure:
    """Draw two decompositions over each other, component by matched component.

    Components are paired by `lt.match`; the vectors of `b` get the signs of their partners. Each
    row states the score of its pair, each panel the cosine of its two vectors. With more than 12
    pairs the heaviest 6 and the 6 that agree least are drawn.

    Parameters
    ----------
    a, b : Decomposition, CPTensor or pair (weights, factors), of real tensors
    modes : modes to draw, all by default; the pairs are found by all of them
    labels, names : as in `components`
    titles : what `a` and `b` are called

    Returns
    -------
    matplotlib Figure
    """
    found = match(a, b)
    ours = components_of(as_cp(a, "a"), "a")
    theirs = components_of(found.aligned, "b")
    for name, side in (("a", ours), ("b", theirs)):
        if np.iscomplexobj(side.weights):
            raise InvalidInputError(
                f"{name} is complex: compare the numbers of lt.match(a, b), vectors of complex "
                "numbers do not lie over each other"
            )
    chosen = chosen_modes(modes, ours.order)
    pairs = sorted(enumerate(found.pairs), key=lambda item: -max(item[1].weights))
    drawn = pairs
    if len(pairs) > MOST_ROWS:
        half = MOST_ROWS // 2
        worst = sorted(pairs[half:], key=lambda item: item[1].score)[:half]
        drawn = pairs[:half] + worst
    axes = [
        mode_axis(m, np.hstack([ours.factors[m], theirs.factors[m]]), labels, names, ours.order)
        for m in chosen
    ]
    figure, panels = grid(len(drawn), axes)
    for row, (position, pair) in enumerate(drawn):
        for column, axis in enumerate(axes):
            panel = panels[row, column]
            left, right = ours.factors[axis.mode], theirs.factors[axis.mode]
            axis.draw(panel, [left[:, pair.a], right[:, position]])
            cosine = f"cosine {_rounded(pair.congruences[axis.mode])}"
            panel.set_title(cosine, fontsize=8, pad=2, loc="right")
        text = f"{pair.a} and {pair.b}\nscore {_rounded(pair.score)}"
        panels[row, 0].set_ylabel(text, rotation=0, ha="right", va="center", fontsize=9, labelpad=8)
    for column, axis in enumerate(axes):
        axis.finish(panels[-1, column])
    figure.suptitle(_summary(found, len(drawn), titles), fontsize=10)
    figure.legend(
        handles=[
            Line2D([], [], color=BLUE, linewidth=2, label=titles[0]),
            Line2D([], [], color=VERMILION, linewidth=2, linestyle=(0, (4, 2)), label=titles[1]),
        ],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=10,
    )
    return figure


def _rounded(value: float) -> str:
    """Four decimals, but never 1 for what is not."""
    return f"{np.floor(value * 1e4) / 1e4:.4f}" if value < 1 - 1e-12 else "1"


def _summary(found: Any, drawn: int, titles: tuple[str, str]) -> str:
    parts = [f"score {_rounded(found.score)} over {len(found.pairs)} matched pairs"]
    if drawn < len(found.pairs):
        parts[0] += f", {drawn // 2} heaviest and {drawn // 2} least alike shown"
    for title, left in zip(titles, (found.unmatched_a, found.unmatched_b), strict=True):
        if left:
            shown = ", ".join(map(str, left[:8])) + (", ..." if len(left) > 8 else "")
            parts.append(f"without a partner in {title}: {shown}")
    return "\n".join(parts)
