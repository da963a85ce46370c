"""Figures without global state: no pyplot, no window, nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any

from matplotlib.figure import Figure

from latensor.whole_files import whole_stream


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches that belongs to the caller alone."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> Path:
    """Write a figure to a file whose ending names the format; folders are made as needed.

    The file appears whole or not at all.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_stream(target) as stream:
        draw(figure, stream, target.suffix[1:] or None, dpi)
    return target


def draw(figure: Any, stream: IO[bytes], format: str | None = None, dpi: int = 120) -> None:
    """Write a figure into a binary stream, as PNG unless `format` says otherwise."""
    figure.savefig(stream, format=format or "png", dpi=dpi)
