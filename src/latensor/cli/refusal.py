"""Errors of the command line: one clear line and exit code 2, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from latensor.cli.console import visible
from latensor.exceptions import InvalidInputError, NotIdentifiableError


class Refusal(click.ClickException):
    """Something that cannot be done as asked; the text is shown in one line."""

    exit_code = 2

    def __init__(self, message: object) -> None:
        super().__init__(visible(" ".join(str(message).split())))


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn what a user can mend (wrong input, unreadable files, too little memory) into a line."""
    try:
        yield
    except (InvalidInputError, NotIdentifiableError) as error:
        raise Refusal(error) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise Refusal(f"{error.filename}: {reason}" if error.filename else reason) from error
    except MemoryError as error:
        raise Refusal(
            f"not enough memory: {error}" if str(error) else "not enough memory"
        ) from error
