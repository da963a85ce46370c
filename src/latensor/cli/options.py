"""Options that mean the same in every command."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from latensor.cli.refusal import Refusal


class Target(click.Path):
    """A file or folder that will be written; an empty name would mean the folder one is in."""

    def __init__(self, **options: Any) -> None:
        super().__init__(path_type=Path, **options)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the end of the command."""
        if value == "":
            self.fail("the name is empty: name a file or folder", param, ctx)
        return super().convert(value, param, ctx)


class Source(Target):
    """A file or folder that is read, and more than once: the standard input is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the end of the command."""
        if value == "-":
            self.fail("the standard input can be read only once: save it to a file", param, ctx)
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


def typed(context: click.Context) -> str:
    """What was typed, as far as it was, in a form that can be pasted."""
    words = ["latensor", context.info_name or ""]
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif value is not None and _is_given(context, parameter):
            if isinstance(value, bool):
                words.append(parameter.opts[0] if value else (parameter.secondary_opts or [""])[0])
            else:
                words += [parameter.opts[0], str(value)]
    return shlex.join(words)


def refuse_learning(context: click.Context, reading: Collection[str]) -> None:
    """Beside --apply options have a place only where they are `reading`: nothing is learned."""
    for parameter in context.command.params:
        is_reading = isinstance(parameter, click.Argument) or parameter.name in reading
        if not is_reading and _is_given(context, parameter):
            raise Refusal(
                f"{parameter.opts[0]} has no place beside --apply: the model is learned already"
            )


def _is_given(context: click.Context, parameter: click.Parameter) -> bool:
    source = context.get_parameter_source(parameter.name or "")
    return source is not ParameterSource.DEFAULT
