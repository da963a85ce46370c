"""Options that mean the same in every command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


class Target(click.Path):
    """A file or folder that will be written; an empty name would mean the folder one is in."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the end of the command."""
        if value == "":
            self.fail("the name is empty: name a file or folder", param, ctx)
        return super().convert(value, param, ctx)


seed_option = click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Same seed, same answer.",
)
jobs_option = click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    show_default="all processors",
    help="Threads; the answer is the same for any number.",
)
nonnegative_option = click.option(
    "--nonnegative", is_flag=True, help="Keep all factors at or above zero."
)
max_iter_option = click.option(
    "--max-iter",
    metavar="N",
    type=click.IntRange(min=1),
    show_default="as many as it takes",
    help="Most iterations.",
)
array_option = click.option("--array", metavar="NAME", help="Which array of an .npz file.")
mask_option = click.option(
    "--mask",
    metavar="NAME",
    help="What was observed: an array of the same .npz file, or a file; True is observed.",
)
labels_option = click.option(
    "--labels",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="CSV with a line per mode: its name, and a label for every index.  [default: the vectors "
    "of an .npz file that are as long as one mode]",
)
title_option = click.option(
    "--title", metavar="TEXT", help="What the page calls it.  [default: FILE]"
)
