"""`latensor demo --image`: a photograph compressed (monograph 5.4)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

import latensor as lt
from latensor.cli.findings import say
from latensor.cli.progress import progress_meter

RANKS = (5, 15, 50)


def image_demo(image: str, path: Path, console: Console) -> None:
    """Compress a photograph by CP and Tucker decomposition and draw the result.

    Parameters
    ----------
    image : "china" or "flower", the photographs that scikit-learn ships
    path : file for the picture
    """
    plots = _plots()
    photograph = _load(image)
    shape = " x ".join(str(d) for d in photograph.shape)
    console.print(f"A photograph is a tensor of {shape} numbers (rows, columns, colours).")
    table, pictures = _compress(photograph, console)
    plots.save(plots.images(pictures), path)
    console.print(table)
    say(console, f"The pictures are in {path}")


def _compress(photograph: Any, console: Console) -> tuple[Table, dict[str, Any]]:
    """CP of several ranks, and Tucker as large and as exact as the last of them."""
    table = Table("form", "numbers kept", "times smaller", "relative error", "seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    pictures = {f"original, {photograph.size:,} numbers": photograph}

    def add(form: str, found: Any, kept: int, start: float) -> None:
        seconds = f"{time.perf_counter() - start:.2f}"
        smaller = f"{photograph.size / kept:.0f}"
        table.add_row(form, f"{kept:,}", smaller, f"{found.residual:.3f}", seconds)
        pictures[f"{form}, {kept:,} numbers"] = found.tensor.to_dense()

    with progress_meter(console, len(RANKS) + 2) as meter:
        for rank in RANKS:
            show, start = meter.step(f"CP of rank {rank}"), time.perf_counter()
            found = lt.decompose(photograph, rank, random_state=0, callback=show)
            kept = rank * (sum(photograph.shape) + 1)
            add(f"CP of rank {rank}", found, kept, start)
            meter.done()
        side = _side_of_size(photograph.shape, kept)
        for same, settings in (("size", {"ranks": side}), ("error", {"error": found.residual})):
            meter.step(f"Tucker of the same {same}")
            start = time.perf_counter()
            # Three colours are few enough: cutting them saves little and shows at once.
            other = lt.tucker(photograph, modes=(0, 1), **settings, random_state=0)
            core = " x ".join(str(d) for d in other.ranks)
            add(f"Tucker {core}", other, _tucker_size(photograph.shape, other.ranks), start)
            meter.done()
    return table, pictures


def _tucker_size(shape: tuple[int, ...], ranks: tuple[int, ...]) -> int:
    """The numbers in a core and in the factors of rows and columns."""
    return ranks[0] * ranks[1] * ranks[2] + shape[0] * ranks[0] + shape[1] * ranks[1]


def _side_of_size(shape: tuple[int, ...], numbers: int) -> int:
    """The largest core, as many rows as columns and all colours, that needs no more numbers."""
    side = 1
    while _tucker_size(shape, (side + 1, side + 1, shape[2])) <= numbers:
        side += 1
    return side


def _load(image: str) -> Any:
    from sklearn.datasets import load_sample_image

    return load_sample_image(f"{image}.jpg").astype(float)


def _plots() -> Any:
    """The module that draws; without it the work would be for nothing."""
    try:
        from latensor import plots
    except ImportError as error:
        raise click.ClickException(
            "drawing needs matplotlib: pip install 'latensor[plots]'"
        ) from error
    return plots
