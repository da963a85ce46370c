"""What the tests ask of every figure: that it can be drawn, and that no panel covers another."""

from itertools import combinations

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg


def panels(figure):
    return [axis for axis in figure.axes if axis.axison]


def overlapping(figure, slack=1.0):
    """Pairs of panels whose drawings, with all ticks and titles, cover each other."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axis.get_tightbbox(renderer) for axis in panels(figure)]
    found = []
    for (i, a), (j, b) in combinations(enumerate(boxes), 2):
        wide = min(a.x1, b.x1) - max(a.x0, b.x0)
        high = min(a.y1, b.y1) - max(a.y0, b.y0)
        if wide > slack and high > slack:
            found.append((i, j, wide, high))
    return found


def no_global_state():
    """Whether matplotlib's settings are untouched and no figure is registered with pyplot."""
    import sys

    pyplot = sys.modules.get("matplotlib.pyplot")
    return mpl.rcParams["font.size"] == 10.0 and (pyplot is None or not pyplot.get_fignums())
