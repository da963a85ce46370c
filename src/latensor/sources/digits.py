"""Whole numbers out of text, millions a second, for files that hold little else."""

from __future__ import annotations

from typing import Any

import numpy as np

# Larger numbers are left to a reader that takes its time.
_LARGEST = 10**16
_HUGE = 1 << 62
_DIGITS, _BETWEEN = b"0123456789", b" :\n"
_BLANKS = bytes.maketrans(_BETWEEN, b" " * len(_BETWEEN))


def whole_numbers(text: bytes) -> tuple[Any, Any] | None:
    """The numbers (n,) of a text, and the byte (n,) after each: a blank, a colon or a line end.

    None for any other text, also where there is more than one such byte, or a number is too large.
    """
    between = text.translate(None, _DIGITS)
    if not text[:1].isdigit() or between.translate(None, _BETWEEN):
        return None
    values = np.fromstring(text.translate(_BLANKS), np.int64, sep=" ")
    if len(values) != len(between) or values.max() >= _LARGEST:
        return None
    return values, np.frombuffer(between, np.uint8)


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
