"""Options that mean the same in every command."""

from __future__ import annotations

import click

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
    help="Threads; the answer is the same for any number.  [default: all processors]",
)
