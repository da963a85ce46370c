"""Kernels are compiled once for a machine: whoever waits for it is told why."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

NOTICE = "compiling for this machine, once: some ten seconds"


@contextmanager
def announce_compiling() -> Iterator[None]:
    """Say so on a terminal when the first kernel within the block has to be compiled.

    Kernels that come from the cache are no reason to say anything, nor is a run without a terminal.
    """
    if not sys.stderr.isatty():
        yield
        return
    from latensor.arrays._kernels import compilations

    told = False

    def tell() -> None:
        nonlocal told
        if not told:
            told = True
            click.echo(NOTICE, err=True)

    with compilations(tell):
        yield
