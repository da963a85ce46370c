"""What a person sees while a command works: a bar on a terminal, silence in a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)


class Meter:
    """One line that tells which step runs, how far it is and how long it has taken."""

    def __init__(self, progress: Progress, steps: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task("starting", total=steps, detail="")

    def step(self, text: str) -> Callable[[Any], None]:
        """Begin a step; what it returns shows the state of a fit, as a callback."""
        self._progress.update(self._task, description=text, detail="")
        return self._show

    def done(self) -> None:
        """Count the present step as finished."""
        self._progress.advance(self._task)

    def _show(self, state: Any) -> None:
        detail = f"iteration {state.iteration}, residual {state.residual:.4g}"
        self._progress.update(self._task, detail=detail)


@contextmanager
def progress_meter(console: Console, steps: int | None = None) -> Iterator[Meter]:
    """A meter that disappears when its work is done.

    Parameters
    ----------
    steps : int, how many steps there will be; None where it is not known
    """
    with progress_bar(console) as progress:
        yield Meter(progress, steps)


def progress_bar(console: Console, *more: ProgressColumn) -> Progress:
    """A bar that disappears when its work is done, and shows nothing in a pipe."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        *more,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
