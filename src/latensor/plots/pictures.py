"""Images and their approximations side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from latensor.arrays import to_host
from latensor.exceptions import InvalidInputError
from latensor.plots.figures import new_figure


def images(pictures: Mapping[str, Any]) -> Figure:
    """Draw images in a grid, each under its title.

    Parameters
    ----------
    pictures : mapping of titles to (rows, columns) or (rows, columns, 3) arrays; the first sets
        the range of brightness for all, values outside are clipped
    """
    if not pictures:
        raise InvalidInputError("pictures is empty: give at least one image")
    arrays = {title: to_host(picture) for title, picture in pictures.items()}
    for title, array in arrays.items():
        if array.ndim not in (2, 3) or (array.ndim == 3 and array.shape[2] not in (1, 3, 4)):
            raise InvalidInputError(
                f"picture {title!r} has shape {array.shape}: expected (rows, columns) or "
                "(rows, columns, 1, 3 or 4)"
            )
    first = next(iter(arrays.values()))
    low, high = float(first.min()), float(first.max())
    scale = high - low if high > low else 1.0
    columns = math.ceil(math.sqrt(len(arrays)))
    rows = math.ceil(len(arrays) / columns)
    aspect = first.shape[0] / first.shape[1]
    figure = new_figure(5.0 * columns, (5.0 * aspect + 0.35) * rows)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for axis in axes:
        axis.axis("off")
    for axis, (title, array) in zip(axes, arrays.items(), strict=False):
        shown = np.clip((array - low) / scale, 0.0, 1.0)
        axis.imshow(np.squeeze(shown), cmap="gray", vmin=0.0, vmax=1.0)
        axis.set_title(title, fontsize=10)
    return figure
