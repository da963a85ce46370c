"""One BLAS thread for a while: small products are slower on two, and far slower on a busy machine.

A product of 20 x 20 matrices takes microseconds; waking a second thread for it costs as much, and
a thread that waits for a busy core spins. Measured on a 30 x 30 x 30 tensor at rank 45: 0.016 s
with one thread, 0.8 s with two.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class _Limit:
    """A limit that several threads may hold at once: the first sets it, the last takes it back.

    Restoring by nested context managers would leave the process limited for good when two threads
    enter and leave in turn.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: Any = None
        self._limiter: Any = None

    def acquire(self) -> None:
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._limiter = self._known_libraries().limit(limits=1, user_api="blas")

    def release(self) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                self._limiter.restore_original_limits()

    def _known_libraries(self) -> Any:
        # Looking for the loaded libraries costs milliseconds, setting a number microseconds.
        if self._controller is None:
            import scipy.linalg  # noqa: F401 - brings its own BLAS, which must be found too
            from threadpoolctl import ThreadpoolController

            self._controller = ThreadpoolController()
        return self._controller


_limit = _Limit()


@contextmanager
def one_blas_thread(wanted: bool = True) -> Iterator[None]:
    """Let BLAS use one thread inside the block, in the whole process, unless not `wanted`."""
    if not wanted:
        yield
        return
    _limit.acquire()
    try:
        yield
    finally:
        _limit.release()
