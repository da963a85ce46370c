"""Figures without global state: no pyplot, no window, nothing half-written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from latensor.whole_files import whole_file


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches that belongs to the caller alone."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> Path:
    """Write a figure to a file whose ending names the format; folders are made as needed.

    The file appears whole or not at all.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target) as passing:
        figure.savefig(passing, dpi=dpi)
    return target
