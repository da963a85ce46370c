"""Lists of coordinates: checked, sorted, and with duplicates summed.

A list is a (nonzeros, order) array of integers beside a (nonzeros,) array of values. Its sorted
order is lexicographic in a given order of the modes, by one stable counting sort per mode from
the last to the first: linear in the number of nonzeros, and indifferent to shapes whose product
overflows an integer.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import as_array, describe, library_name
from latensor.exceptions import InvalidInputError

# From this many nonzeros on, the first use of a kernel costs less than it saves.
_KERNEL_NONZEROS = 1 << 16
# Larger indices are not exact in float64, and sums of dimensions must stay below 2**63.
_LARGEST_DIMENSION = 1 << 53
# Digits of more bits touch more memory at once than the second-level cache holds.
_DIGIT_BITS = 16


def check_shape(shape: object, order: int | None = None) -> tuple[int, ...]:
    """A shape as positive Python integers, of `order` modes where that is known."""
    try:
        dimensions = tuple(operator.index(d) for d in shape)  # type: ignore[attr-defined]
    except TypeError:
        raise InvalidInputError(f"shape={shape!r} must be a sequence of integers") from None
    if not dimensions:
        raise InvalidInputError("shape=() has no modes: a tensor needs at least one")
    if order is not None and len(dimensions) != order:
        raise InvalidInputError(
            f"shape={dimensions} has {len(dimensions)} modes, but coordinates have {order} columns"
        )
    for mode, dimension in enumerate(dimensions):
        if not 1 <= dimension <= _LARGEST_DIMENSION:
            raise InvalidInputError(
                f"shape={dimensions} has dimension {dimension} in mode {mode}: "
                "every mode needs a dimension from 1 to 2**53"
            )
    return dimensions


def host_array(value: object, name: str) -> Any:
    """An argument as a NumPy array; sparse tensors live in host memory only."""
    array = as_array(value, name)
    if library_name(array) != "numpy":
        raise InvalidInputError(
            f"{name} is a {library_name(array)} array ({describe(array)}): "
            "sparse tensors are made of NumPy arrays, convert it first"
        )
    return array


def check_coordinates(
    coordinates: object, shape: object | None
) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """Coordinates as a (nonzeros, order) array of int32, or int64 where needed, and the shape.

    Parameters
    ----------
    coordinates : (nonzeros, order) whole numbers
    shape : one dimension per mode, or None for the smallest that holds all coordinates
    """
    rows = host_array(coordinates, "coordinates")
    if rows.ndim != 2 or rows.shape[1] == 0:
        raise InvalidInputError(
            "coordinates must be a matrix with one row per nonzero and one column per mode, "
            f"got shape {rows.shape}"
        )
    order = int(rows.shape[1])
    dimensions = None if shape is None else check_shape(shape, order)
    if rows.shape[0] == 0:
        if dimensions is None:
            raise InvalidInputError(
                "coordinates are empty and shape is not given: give the shape of the zero tensor"
            )
        return np.zeros((0, order), _index_dtype(dimensions)), dimensions
    if rows.dtype.kind not in "iu":
        rows = _whole_numbers(rows)
    for mode in range(order):
        column = rows[:, mode]
        if column.min() < 0:
            at = int(np.argmax(column < 0))
            raise InvalidInputError(
                f"coordinates[{at}, {mode}] = {column[at]} is negative: indices count from 0"
            )
        if column.max() >= _LARGEST_DIMENSION:
            at = int(np.argmax(column >= _LARGEST_DIMENSION))
            raise InvalidInputError(
                f"coordinates[{at}, {mode}] = {column[at]} is too large: indices stay below 2**53"
            )
    largest = tuple(int(rows[:, mode].max()) for mode in range(order))
    if dimensions is None:
        dimensions = check_shape([index + 1 for index in largest])
    for mode, (index, dimension) in enumerate(zip(largest, dimensions, strict=True)):
        if index >= dimension:
            at = int(np.argmax(rows[:, mode] >= dimension))
            raise InvalidInputError(
                f"coordinates[{at}, {mode}] = {rows[at, mode]} is beyond mode {mode}, "
                f"whose indices run from 0 to {dimension - 1} in shape {dimensions}"
            )
    # Always a copy: the caller may change theirs.
    return np.array(rows, _index_dtype(dimensions), order="C"), dimensions


def _index_dtype(shape: tuple[int, ...]) -> type[np.signedinteger[Any]]:
    return np.int32 if max(shape) <= 2**31 - 1 else np.int64


def _whole_numbers(rows: Any) -> Any:
    if rows.dtype.kind != "f":
        raise InvalidInputError(
            f"coordinates have dtype {rows.dtype}: they must be integers counted from 0"
        )
    bad = ~np.isfinite(rows) | (np.floor(rows) != rows) | (np.abs(rows) > _LARGEST_DIMENSION)
    if bad.any():
        at, mode = (int(i[0]) for i in np.nonzero(bad))
        raise InvalidInputError(
            f"coordinates[{at}, {mode}] = {rows[at, mode]} is not a whole number "
            "that can be an index"
        )
    return rows.astype(np.int64)


def sort_rows(
    rows: Any, values: Any, modes: Sequence[int], shape: tuple[int, ...]
) -> tuple[Any, Any]:
    """Coordinates and values in lexicographic order of `modes`; rows equal in them keep theirs."""
    if is_sorted(rows, modes):
        return rows, values
    if len(rows) < _KERNEL_NONZEROS:
        order = _lexicographic_order(rows, modes, shape)
        return rows[order], values[order]
    for mode in reversed(modes):
        rows, values = _sort_by_mode(rows, values, mode, shape[mode])
    return rows, values


def _lexicographic_order(rows: Any, modes: Sequence[int], shape: tuple[int, ...]) -> Any:
    """The stable order of few rows; by one number per row, an eighth of the time, if it fits."""
    if prod(shape[mode] for mode in modes) > np.iinfo(np.int64).max:
        return np.lexsort([rows[:, mode] for mode in reversed(modes)])
    key = np.zeros(len(rows), dtype=np.int64)
    for mode in modes:
        key *= shape[mode]
        key += rows[:, mode]
    order = np.argsort(key)
    in_order = key[order]
    if (in_order[1:] > in_order[:-1]).all():
        return order
    return np.argsort(key, kind="stable")


def _sort_by_mode(rows: Any, values: Any, mode: int, dimension: int) -> tuple[Any, Any]:
    """One stable sort by the index in `mode`, which a sorted column makes free."""
    from latensor.tensors._kernels import scatter_rows

    if is_sorted(rows, [mode]):
        return rows, values
    bits = max(1, (dimension - 1).bit_length())
    passes = -(-bits // _DIGIT_BITS)
    width = -(-bits // passes)
    for digit in range(passes):
        rows, values = frozen(rows), frozen(values)
        rows_out, values_out = np.empty_like(rows), np.empty_like(values)
        scatter_rows(rows, values, mode, digit * width, (1 << width) - 1, rows_out, values_out)
        rows, values = rows_out, values_out
    return rows, values


def frozen(array: Any) -> Any:
    """A read-only view. Kernels are compiled anew for writable arrays: all get the same kind."""
    view = array.view()
    view.flags.writeable = False
    return view


def is_sorted(rows: Any, modes: Sequence[int]) -> bool:
    """Whether rows stand in lexicographic order of `modes`."""
    tied: Any = True
    for mode in modes:
        before, after = rows[:-1, mode], rows[1:, mode]
        if np.any(tied & (after < before)):
            return False
        tied = tied & (after == before)
    return True


def sum_duplicates(rows: Any, values: Any) -> tuple[Any, Any]:
    """Sorted coordinates made distinct, the values of equal rows summed, and zeros left out.

    The sum of equal rows does not depend on the order in which they came: from three on they
    are added in the order of their values.
    """
    repeated = np.ones(max(0, len(rows) - 1), dtype=bool)
    for mode in range(rows.shape[1]):
        repeated &= rows[1:, mode] == rows[:-1, mode]
    if repeated.any():
        starts = np.flatnonzero(np.concatenate([[True], ~repeated]))
        values = _sort_within_groups(values, starts)
        wide = np.complex128 if values.dtype.kind == "c" else np.float64
        with np.errstate(over="ignore"):
            total = np.add.reduceat(values.astype(wide, copy=False), starts).astype(values.dtype)
        rows, values = np.take(rows, starts, axis=0), total
        if not np.isfinite(values).all():
            at = int(np.argmax(~np.isfinite(values)))
            raise InvalidInputError(
                f"the values given for the coordinates {tuple(rows[at].tolist())} "
                f"add up to more than {values.dtype} can hold"
            )
    if not values.all():
        nonzero = values != 0
        rows, values = rows[nonzero], values[nonzero]
    return rows, values


def _sort_within_groups(values: Any, starts: Any) -> Any:
    """Values with every group of three or more, which begin at `starts`, sorted."""
    lengths = np.diff(np.append(starts, len(values)))
    large = np.flatnonzero(lengths > 2)
    if not large.size:
        return values
    group = np.repeat(np.arange(large.size), lengths[large])
    before = np.cumsum(lengths[large]) - lengths[large]
    members = np.arange(group.size) + (starts[large] - before)[group]
    order = np.lexsort((values[members].imag, values[members].real, group))
    values = values.copy()
    values[members] = values[members[order]]
    return values
