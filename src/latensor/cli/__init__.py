"""The command line: thin, and written over the public API only."""

from __future__ import annotations

import atexit
import gc
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import click

import latensor
from latensor.cli.console import CLOSED_PIPE, drop_output

# What a shell reports for a program that Ctrl-C has ended.
_INTERRUPTED = 130
# In a line each, so that a list of them imports none.
_COMMANDS = {
    "compile": "Compile all kernels now, for images and clusters.",
    "complete": "Fill in a tensor from its observed entries.",
    "decompose": "Decompose a tensor, and say how far to trust it.",
    "demo": "Learn the topics of the documentation on this machine.",
    "fit": "Fit a model to the rows of a table.",
    "topics": "Learn the topics of documents, and write a report.",
}
# Signals that end a program and would leave its temporary files behind.
_ENDINGS = ("SIGTERM", "SIGHUP")
# Imports and compiling make a quarter of a million objects that stay: looking for garbage among
# them after every 700 takes 0.4 s of a run, and 1.0 s of the first.
_OBJECTS_BETWEEN_COLLECTIONS = 50_000


class _Commands(click.Group):
    """Commands that end quietly, and leave nothing by half, when they are interrupted.

    Each is a module of its name, imported when it is asked for: an interruption meanwhile is one
    like any other.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        with _said("starting"):
            command: click.Command = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from latensor.cli.fit_tables import nearest

            meant = nearest(args[0], list(_COMMANDS))
            ctx.fail(f"there is no command {args[0]!r}{meant or '; see latensor --help'}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _signals_as_exits(), _rare_collections():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            ctx.exit(_INTERRUPTED)
        except BrokenPipeError:
            drop_output(sys.stdout)
            ctx.exit(CLOSED_PIPE)


@contextmanager
def _signals_as_exits() -> Iterator[None]:
    """Let signals that end the program end it as errors do: what is unfinished is removed."""

    def leave(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [getattr(signal, name) for name in _ENDINGS if hasattr(signal, name)]
    # One that is ignored, as by nohup, stays ignored.
    before = {n: signal.getsignal(n) for n in numbers if signal.getsignal(n) == signal.SIG_DFL}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _said(word: str) -> Iterator[None]:
    """A word on a terminal while the block takes its time, which is gone after it."""
    shown = f"{word} ..." if sys.stderr is not None and sys.stderr.isatty() else ""
    click.echo(shown, nl=False, err=True)
    try:
        yield
    finally:
        click.echo("\r" + " " * len(shown) + "\r" if shown else "", nl=False, err=True)


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for unreachable objects less often than Python does, and not at all at the end.

    What is left then vanishes with the process: to go over it takes another half second.
    """
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(latensor.__version__, prog_name="latensor")
def main() -> None:
    """Latent variable models from moment tensors, and decompositions of any tensor.

    Start with: latensor demo
    """


__all__ = ["main"]
