"""Kernels are compiled once for a machine: whoever waits for it is told why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

NOTICE = "compiling for this machine, once: some ten seconds"


@contextmanager
def compiling_told() -> Iterator[None]:
    """Say so on a terminal when the first kernel within the block has to be compiled.

    Kernels that come from the cache are no reason to say anything, nor is a run without a terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    from numba.core import event

    told: list[Any] = []

    class Listener(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            if not told:
                told.append(event)
                click.echo(NOTICE, err=True)

        def on_end(self, event: Any) -> None:
            pass

    listener = Listener()
    event.register("numba:compile", listener)
    try:
        yield
    finally:
        event.unregister("numba:compile", listener)
