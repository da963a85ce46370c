"""What a description of a page may hold; errors name the field and what was expected."""

from __future__ import annotations

import math
import operator

from latensor.exceptions import InvalidInputError


def require_text(value: object, name: str) -> None:
    """Refuse anything but a string."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be text, not {type(value).__name__}")


def require_count(value: object, name: str, least: int = 0) -> None:
    """Refuse anything but a whole number of at least `least`."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InvalidInputError(f"{name} is {value!r}: it must be a whole number >= {least}")


def require_finite(
    value: object, name: str, least: float = -math.inf, most: float = math.inf
) -> None:
    """Refuse anything but a finite number from `least` to `most`."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and least <= number <= most):
        bounds = "a finite number"
        if math.isfinite(least):
            bounds += f" >= {least:g}"
        if math.isfinite(most):
            bounds += f" and <= {most:g}"
        raise InvalidInputError(f"{name} is {value!r}: it must be {bounds}")


def require_fraction(value: object, name: str) -> None:
    """Refuse anything but a fraction of a whole; rounding may carry it a hair above one."""
    require_finite(value, name, 0.0, 1.000001)


def require_level(value: object, name: str) -> None:
    """Refuse anything but the three levels."""
    if value not in ("good", "caution", "bad"):
        raise InvalidInputError(f'{name} is {value!r}: it must be "good", "caution" or "bad"')
