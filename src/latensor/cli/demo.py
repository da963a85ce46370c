"""`latensor demo`: the image example of the monograph's section 5.4, on a photograph at hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import latensor as lt

RANKS = (5, 15, 50)


@click.command(epilog="Example: latensor demo --out pictures")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo-output"),
    show_default=True,
    help="Folder for the picture; made if it does not exist.",
)
@click.option(
    "--image",
    type=click.Choice(["china", "flower"]),
    default="china",
    show_default=True,
    help="Which of the two photographs that scikit-learn ships.",
)
def demo(out: Path, image: str) -> None:
    """Compress a photograph by CP decomposition and draw the result."""
    console = Console()
    photograph = _load(image)
    shape = " x ".join(str(d) for d in photograph.shape)
    console.print(f"A photograph is a tensor of {shape} numbers (rows, columns, colours).")
    table = Table("rank", "numbers kept", "times smaller", "relative error", "seconds")
    for column in table.columns:
        column.justify = "right"
    pictures = {f"original, {photograph.size:,} numbers": photograph}
    with _progress(console) as progress:
        task = progress.add_task("decomposing", total=len(RANKS))
        for rank in RANKS:
            progress.update(task, description=f"CP of rank {rank}")
            start = time.perf_counter()
            found = lt.decompose(photograph, rank, random_state=0)
            seconds = time.perf_counter() - start
            kept = rank * (sum(photograph.shape) + 1)
            table.add_row(
                str(rank),
                f"{kept:,}",
                f"{photograph.size / kept:.0f}",
                f"{found.residual:.3f}",
                f"{seconds:.2f}",
            )
            pictures[f"CP of rank {rank}, {kept:,} numbers"] = found.tensor.to_dense()
            progress.advance(task)
    console.print(table)
    path = _draw(pictures, out)
    console.print(f"The pictures are in {path}")


def _load(image: str) -> Any:
    from sklearn.datasets import load_sample_image

    return load_sample_image(f"{image}.jpg").astype(float)


def _progress(console: Console) -> Progress:
    """A bar on a terminal, silence in a pipe."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _draw(pictures: dict[str, Any], out: Path) -> Path:
    try:
        from latensor.plots import images, save
    except ImportError as error:
        raise click.ClickException(
            "drawing needs matplotlib: pip install 'latensor[plots]'"
        ) from error
    return save(images(pictures), out / "image.png")
