"""Checks that the public functions share; errors name the argument, what it was and what to do.

Checks read shapes. Whether the numbers are finite is asked of results, not of inputs: a NaN or an
infinity that enters a contraction always leaves it, so the small result tells for the large
input at no cost, and only a bad result is traced back to the entry that caused it.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

import array_api_compat
import numpy as np

from latensor.arrays.library import Array, describe, is_traced, refuse_meta, to_host
from latensor.exceptions import InvalidInputError


def check_mode(mode: object, order: int, name: str = "mode") -> int:
    """`mode` as an index in 0..order-1; negative modes count from the end."""
    try:
        index = operator.index(mode)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(f"{name}={mode!r} must be an integer") from None
    if isinstance(mode, bool | np.bool_):
        raise InvalidInputError(f"{name}={mode!r} must be an integer, not a truth value")
    if not -order <= index < order:
        raise InvalidInputError(
            f"{name}={index} is out of range for a tensor of order {order}: "
            f"modes count from 0 to {order - 1}"
        )
    return index % order


def check_index(index: object, dimension: int, name: str) -> int:
    """`index` in 0..dimension-1; negative ones count from the end."""
    try:
        number = operator.index(index)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(f"{name} is {index!r}: it must be an integer") from None
    if not -dimension <= number < dimension:
        raise InvalidInputError(
            f"{name} is {number}, out of range for a mode of dimension {dimension}"
        )
    return number % dimension


def check_positive_int(value: object, name: str) -> int:
    """`value` as an integer of at least 1."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise InvalidInputError(f"{name}={value!r} must be a positive integer") from None
    if isinstance(value, bool | np.bool_) or number < 1:
        raise InvalidInputError(f"{name}={value!r} must be a positive integer")
    return number


def require_matrix(array: Array, name: str) -> None:
    """Refuse anything but two axes, none of them empty."""
    if array.ndim != 2:
        raise InvalidInputError(f"{name} must be a matrix (2 axes), got {describe(array)}")
    if 0 in array.shape:
        raise InvalidInputError(f"{name} is empty: {describe(array)}")


def require_vector(array: Array, name: str) -> None:
    """Refuse anything but one axis."""
    if array.ndim != 1:
        raise InvalidInputError(f"{name} must be a vector (1 axis), got {describe(array)}")


def check_finite(result: Array, **inputs: Array | None) -> Array:
    """`result`, after making sure that no input held NaN or infinity.

    Parameters
    ----------
    result : array computed from `inputs` by sums of products
    **inputs : the arrays it was computed from, under the caller's names

    Raises
    ------
    InvalidInputError, naming the input, the count of bad entries and the position of the first.
    Where all inputs are finite the product has overflowed; the result is then returned as it is.
    """
    if is_traced(result) or _all_finite(result):
        return result
    for name, array in _flatten(inputs):
        refuse_nonfinite(array, name)
    return result


def _all_finite(array: Array) -> bool:
    # A sum is finite only if every term is, and reads the array once without a temporary; a sum
    # of finite terms may still overflow, so that only the second look decides against an array.
    xp = array_api_compat.array_namespace(array)
    refuse_meta(array)
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(xp.isfinite(xp.sum(array))) or bool(xp.all(xp.isfinite(array)))


def refuse_nonfinite(array: Array, name: str) -> None:
    """Raise if an array holds NaN or infinity, with the count and the first position."""
    if is_traced(array) or _all_finite(array):
        return
    host = to_host(array)
    bad = ~np.isfinite(host)
    first = tuple(int(i[0]) for i in np.nonzero(bad)) if host.ndim else ()
    raise InvalidInputError(
        f"{name} holds {int(bad.sum())} NaN or infinite entries of {host.size}, "
        f"the first at {first}: remove or mask them"
    )


def _flatten(inputs: Mapping[str, object]) -> list[tuple[str, Array]]:
    pairs: list[tuple[str, Array]] = []
    for name, value in inputs.items():
        if isinstance(value, list | tuple):
            pairs += [(f"{name}[{i}]", item) for i, item in enumerate(value) if item is not None]
        elif value is not None:
            pairs.append((name, value))
    return pairs
