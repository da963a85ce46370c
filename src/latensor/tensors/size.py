"""A guard against dense results that nobody meant to make."""

from __future__ import annotations

import math
from typing import Any

from latensor.exceptions import InvalidInputError

# Entries of the largest dense result that is made without asking: 1 GiB of float64.
MAX_SIZE = 1 << 27
# Numbers of the largest temporary array of a long sum: 64 MiB of float64.
BLOCK_ENTRIES = 1 << 23


def check_size(shape: tuple[int, ...], dtype: Any, max_size: int, what: str) -> None:
    """Refuse a dense result of too many entries, with its size in memory."""
    if not isinstance(max_size, int) or isinstance(max_size, bool):
        raise InvalidInputError(f"max_size={max_size!r} must be an integer, a number of entries")
    size = math.prod(shape)
    if size > max_size:
        memory = float(size * getattr(dtype, "itemsize", 8))
        units = ["bytes", "kB", "MB", "GB", "TB"]
        while memory >= 1000 and len(units) > 1:
            memory /= 1000
            units.pop(0)
        raise InvalidInputError(
            f"{what} would have shape {shape}: {size:,} entries, {memory:,.3g} {units[0]}, "
            f"above max_size={max_size:,} entries: give a larger max_size if the memory allows"
        )
