"""What a person sees while `latensor topics` works: documents per second, stages, time left."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, TimeRemainingColumn

from latensor.cli.compiling import announce_compiling
from latensor.cli.progress import progress_bar

# What the stages of a fit are called for people.
_STAGES = {
    "reading": "counting words",
    "number of topics": "choosing the number of topics",
    "subspace": "finding the subspace of the words",
    "moments": "gathering the third moment",
    "decomposition": "decomposing",
    "refinement": "refining",
    "weights": "weighing the topics",
}


class TopicMeter:
    """One line that tells what is done, how fast, and how long it will still take.

    Attributes
    ----------
    seconds : name of a step to the seconds it took, for steps that are over
    """

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self._task = progress.add_task("starting", total=None, detail="")
        self._shown = ""
        # When the present step, or the present pass over a file, has begun.
        self._began = time.perf_counter()
        self._bytes = 0

    def reading(self, bytes_read: int, bytes_in_all: int, documents: int) -> None:
        """Show how far a file is read; the callback of `read_documents`."""
        now = time.perf_counter()
        if bytes_read < self._bytes:
            self._began = now
        self._bytes = bytes_read
        rate = documents / max(now - self._began, 1e-3)
        self._progress.update(
            self._task,
            total=bytes_in_all,
            completed=bytes_read,
            detail=f"{documents:,} documents, {rate:,.0f}/s",
        )

    def stage(self, name: str, fraction: float) -> None:
        """Show a stage of a fit and the fraction of it that is done; the callback of a model."""
        text = _STAGES.get(name, name)
        known = math.isfinite(fraction)
        if text != self._shown:
            self._begin(text, 1.0 if known else None)
        if known:
            self._progress.update(self._task, completed=fraction)

    @contextmanager
    def step(self, text: str, name: str | None = None) -> Iterator[None]:
        """Show a step while it runs, and keep its seconds under `name`."""
        self._begin(text, None)
        began = self._began
        yield
        if name is not None:
            self.seconds[name] = time.perf_counter() - began

    def fraction(self, done: float, detail: str = "") -> None:
        """Show which fraction of the present step is done."""
        self._progress.update(self._task, total=1.0, completed=done, detail=detail)

    def _begin(self, text: str, total: float | None) -> None:
        self._shown, self._bytes, self._began = text, 0, time.perf_counter()
        self._progress.reset(self._task, description=text, detail="")
        # `reset` takes None for "as before"; here it is for a length that nobody knows.
        self._progress.tasks[0].total = total


@contextmanager
def topic_meter(console: Console) -> Iterator[TopicMeter]:
    """A meter that disappears when its work is done, and shows nothing in a pipe."""
    left = TimeRemainingColumn(compact=True)
    with announce_compiling(), progress_bar(console, left) as progress:
        yield TopicMeter(progress)
