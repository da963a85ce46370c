"""A line on the terminal that shows how a decomposition comes along, for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from latensor.decomposition.optimize.iteration import Progress


@contextmanager
def watched(
    callback: Callable[[Any], Any] | None,
    progress: bool,
    console: Any = None,
    describe: Callable[[Any], str] | None = None,
) -> Iterator[Any]:
    """The caller's callback, with a line on standard error beside it where `progress` is asked.

    The line shows iteration, residual and time, disappears at the end, and is not written where
    there is no terminal.

    Parameters
    ----------
    callback : of the caller, or None
    progress : bool
    console : rich Console to write to; None for standard error
    describe : what the line says of a state; None for iteration and residual
    """
    if not progress:
        yield callback
        return
    from rich.console import Console
    from rich.progress import Progress as Line
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True) if console is None else console
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Line(*columns, console=console, transient=True, disable=not console.is_terminal) as line:
        task = line.add_task("decomposing", total=None)

        def show(state: Any) -> Any:
            line.update(task, description=(describe or _described)(state))
            return callback(state) if callback is not None else None

        yield show


def _described(state: Progress) -> str:
    return f"iteration {state.iteration}, relative residual {state.residual:.6g}"
