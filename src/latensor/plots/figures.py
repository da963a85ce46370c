"""Figures without global state: no pyplot, no window, nothing half-written."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of a size in inches that belongs to the caller alone."""
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: str | os.PathLike[str], dpi: int = 120) -> Path:
    """Write a figure to a file whose ending names the format; folders are made as needed.

    The file appears whole or not at all.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Not by tempfile, whose files only their owner may read.
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(6)}{target.suffix}")
    try:
        figure.savefig(temporary, dpi=dpi)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return target
