"""How many threads work, and one BLAS thread for a while.

Small products are slower on two BLAS threads, and far slower on a busy machine.

A product of 20 x 20 matrices takes microseconds; waking a second thread for it costs as much, and
a thread that waits for a busy core spins. Measured on a 30 x 30 x 30 tensor at rank 45: 0.016 s
with one thread, 0.8 s with two.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any


class Setting:
    """A setting of the process that threads may share: the first sets it, the last undoes it.

    Restoring by nested context managers would leave the process with it for good when two threads
    enter and leave in turn.

    Parameters
    ----------
    begin : sets it, and returns what undoes that
    """

    def __init__(self, begin: Callable[[], Callable[[], object]]) -> None:
        self._begin = begin
        self._lock = threading.Lock()
        self._holders = 0
        self._undo: Callable[[], object] | None = None

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Inside the block it is set."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._undo = self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0 and self._undo is not None:
                    self._undo()


@functools.cache
def _libraries() -> Any:
    # Looking for the loaded libraries costs milliseconds, setting a number microseconds.
    import scipy.linalg  # noqa: F401 - brings its own BLAS, which must be found too
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def _limit_blas() -> Callable[[], object]:
    undo: Callable[[], object] = (
        _libraries().limit(limits=1, user_api="blas").restore_original_limits
    )
    return undo


_limit = Setting(_limit_blas)


@contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """Let BLAS use one thread inside the block, in the whole process, unless not `wanted`."""
    with _limit.hold() if wanted else nullcontext():
        yield


def thread_count(n_jobs: int | None = None) -> int:
    """The number of threads that `n_jobs` stands for.

    None means every processor this process may use, or fewer where NUMBA_NUM_THREADS or
    OMP_NUM_THREADS say so; a negative number counts from the last processor, as in scikit-learn.
    """
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    processors = available or 1
    if n_jobs is not None:
        return n_jobs if n_jobs > 0 else max(1, processors + 1 + n_jobs)
    for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"):
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) > 0:
            return min(int(value), processors)
    return processors


_inner: ContextVar[int] = ContextVar("inner threads", default=1)


@contextmanager
def inner_threads(count: int) -> Iterator[None]:
    """Lend so many threads to the compiled loops that run inside the block, in this thread."""
    token = _inner.set(count)
    try:
        yield
    finally:
        _inner.reset(token)


def inner_thread_count() -> int:
    """The threads that compiled loops may use here: one, unless they were lent more."""
    return _inner.get()


def run_tasks(
    function: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], n_threads: int
) -> list[Any]:
    """Call a function that frees the interpreter lock for every tuple of arguments, in threads.

    The tasks must write to places of their own: then any number of threads gives the same bits.
    Threads of Python rather than Numba's: Numba's fallback threading layer ends the process when
    two threads call it at once, and its number of threads is a setting of the whole process.

    Returns
    -------
    what the function gave, in the order of the tasks
    """
    if n_threads <= 1 or len(tasks) <= 1:
        return [function(*task) for task in tasks]
    with ThreadPoolExecutor(min(n_threads, len(tasks))) as pool:
        return [done.result() for done in [pool.submit(function, *task) for task in tasks]]
