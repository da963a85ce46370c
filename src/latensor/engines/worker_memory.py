"""Memory of workers: arrays that come and go stay with the process while a task runs.

Dask's nanny sets MALLOC_TRIM_THRESHOLD_, so that workers give memory back. With it glibc no longer
learns which arrays are temporary: it maps each above 128 kB anew and lets go of it at once, and
page faults double the time of a pass over documents (V = 20,000, r = 50: 0.64 s for 0.30 s).
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from typing import Any

from latensor.arrays.threads import Setting

# Of malloc.h, and the sizes that glibc ends at where it learns (its largest, and twice that) and
# begins with.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LEARNED, _FIRST = 1 << 25, 1 << 17


@functools.cache
def _library() -> Any:
    """The C library where it has these settings, None elsewhere."""
    try:
        found = ctypes.CDLL(None)
        return found if hasattr(found, "mallopt") and hasattr(found, "malloc_trim") else None
    except (OSError, TypeError):
        return None


def _keep_memory() -> Callable[[], object]:
    told = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    library = _library() if told.isdigit() else None
    if library is None:
        return lambda: None
    library.mallopt(_MMAP_THRESHOLD, _LEARNED)
    library.mallopt(_TRIM_THRESHOLD, 2 * _LEARNED)

    def give_back() -> None:
        library.mallopt(_MMAP_THRESHOLD, _FIRST)
        library.mallopt(_TRIM_THRESHOLD, int(told))
        library.malloc_trim(0)

    return give_back


kept_memory = Setting(_keep_memory)
