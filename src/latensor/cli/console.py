"""Where commands print: files are more precious than what is printed about them.

A reader that goes away (`... | head`), a full disk behind the standard output and an encoding
without the right characters never end a run: what cannot be printed is dropped, the command
completes its files, and its exit code tells.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

import click
from rich.console import Console

# What a shell reports for a program that a closed pipe has ended.
CLOSED_PIPE = 141
# Control characters but tab and line feed, and those that turn the direction of what follows.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Text that cannot steer a terminal, whatever a file or its name holds."""
    return _UNSEEN.sub("\N{REPLACEMENT CHARACTER}", text)


class _Output:
    """A standard stream that remembers an error in place of raising it, and is silent after it."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.error: OSError | None = None
        # Characters that the encoding lacks must not end a run either.
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def encoding(self) -> str:
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> int:
        self._try(lambda stream: stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(lambda stream: stream.flush())

    def _try(self, action: Any) -> None:
        if self._stream is None or self.error is not None:
            return
        try:
            action(self._stream)
        except OSError as error:
            self.error = error
            drop_output(self._stream)


def drop_output(stream: TextIO) -> None:
    """Let what is still in the buffer go nowhere, so that the interpreter can end in peace."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


@contextmanager
def printing(stderr: bool = False) -> Iterator[Console]:
    """A console on a standard stream; where it failed, the exit code says so after the block.

    Parameters
    ----------
    stderr : bool, whether to print on the standard error, because the output is for the result
    """
    output = _Output(sys.stderr if stderr else sys.stdout)
    yield Console(file=cast(TextIO, output))
    output.flush()
    if output.error is not None:
        if output.error.errno in (errno.EPIPE, errno.ESHUTDOWN):
            raise click.exceptions.Exit(CLOSED_PIPE)
        raise output.error
