"""Whole numbers out of text, millions a second, for files that hold little else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

# Numbers of more digits are left to a reader that takes its time.
_MOST_DIGITS = 16
_HUGE = 1 << 62
_EVEN_BYTES = np.uint64(0x000000FF000000FF)


class WholeNumbers(NamedTuple):
    """Runs of digits in a text: their values, and where they start and end."""

    values: Any
    starts: Any
    ends: Any


def whole_numbers(text: Any) -> WholeNumbers | None:
    """All runs of digits in a text (n,) uint8; None where there are none or one is too long."""
    padded = np.zeros(len(text) + 8, np.uint8)
    digits = padded[8:]
    np.subtract(text, np.uint8(ord("0")), out=digits)  # what comes before "0" becomes large
    inside = np.zeros(len(text) + 2, np.bool_)
    np.less(digits, 10, out=inside[1:-1])
    edges = np.flatnonzero(inside[1:] != inside[:-1])
    if not len(edges):
        return None
    starts, ends = edges[0::2].copy(), edges[1::2].copy()
    lengths = ends - starts
    longest = int(lengths.max())
    if longest > _MOST_DIGITS:
        return None
    # Element e holds the eight digits before position e of the text, the last one in the highest
    # byte; with the padding in front there are eight for every position.
    before = np.ndarray(len(text) + 1, np.dtype("<u8"), padded, 0, (1,))
    values = _eight_digits(before[ends], np.minimum(lengths, 8))
    if longest > 8:
        long = np.flatnonzero(lengths > 8)
        leading = _eight_digits(before[ends[long] - 8], lengths[long] - 8)
        values[long] += leading * np.int64(10**8)
    return WholeNumbers(values, starts, ends)


def _eight_digits(packed: Any, lengths: Any) -> Any:
    """The numbers that the last `lengths` (1 to 8) of eight packed digits stand for.

    Pairs of digits are joined, then the four pairs p0 p1 p2 p3 by one product each for the even
    and the odd ones: the upper halves add up to p0 10^6 + p1 10^4 + p2 10^2 + p3.
    """
    foreign = ((8 - lengths) * 8).astype(np.uint64)
    packed >>= foreign
    packed <<= foreign
    pairs = packed >> np.uint64(8)
    packed *= np.uint64(10)
    pairs += packed
    odd = pairs >> np.uint64(16)
    pairs &= _EVEN_BYTES
    pairs *= np.uint64(100 + (10**6 << 32))
    odd &= _EVEN_BYTES
    odd *= np.uint64(1 + (10**4 << 32))
    pairs += odd
    pairs >>= np.uint64(32)
    return pairs.view(np.int64)


def bounded(number: int) -> int:
    """A number that fits into 64 bits, and is as much out of range as it was."""
    return max(-_HUGE, min(number, _HUGE))


def whole_number(word: bytes) -> int | None:
    """One number, also when it is written like 2.0 or 1e3; None where it is not whole."""
    try:
        return int(word) if b"_" not in word else None
    except ValueError:
        pass
    try:
        value = float(word)
    except ValueError:
        return None
    return int(value) if value.is_integer() else None
