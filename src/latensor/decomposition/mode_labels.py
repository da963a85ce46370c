"""What the modes of a tensor and their indices are called, from data that say so."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.lib.npyio import NpzFile

from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import read_archive
from latensor.value_files import storable

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@storable
class ModeLabels(NamedTuple):
    """The name of a mode and one number or word per index of it; None where there is none."""

    name: str | None
    values: Any


def with_mode_labels(
    read: Callable[[Any], tuple[ModeLabels, ...] | None],
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """A decomposition whose result has the labels that its first argument came with.

    Parameters
    ----------
    read : `mode_labels_of` or `slice_labels_of`
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        first = next(iter(inspect.signature(function).parameters))

        @functools.wraps(function)
        def wrapped(*arguments: Parameters.args, **options: Parameters.kwargs) -> Result:
            labels = read(arguments[0] if arguments else options.get(first))
            found: Any = function(*arguments, **options)
            return found if labels is None else replace(found, mode_labels=labels)  # type: ignore[no-any-return]

        return wrapped

    return decorate


def mode_labels_of(tensor: Any) -> tuple[ModeLabels, ...] | None:
    """Labels of a pandas or xarray object or an .npz archive, mode by mode; None for plain arrays.

    Anything with `dims` and `coords` is read as an xarray DataArray, anything two-dimensional with
    `index` and `columns` as a pandas DataFrame. In an archive a vector as long as one mode and no
    other labels it, if it is the only one, and its name becomes that of the mode. A plain count
    from 0 is no label.
    """
    if isinstance(tensor, NpzFile):
        held, others = read_archive(tensor)
        return vector_labels(held.shape, others)
    if hasattr(tensor, "dims") and hasattr(tensor, "coords"):
        values = [tensor.coords.get(d) for d in tensor.dims]
        return tuple(_labels(d, v) for d, v in zip(tensor.dims, values, strict=True))
    if hasattr(tensor, "index") and hasattr(tensor, "columns") and hasattr(tensor, "iloc"):
        axes = (tensor.index, tensor.columns)
        return tuple(_labels(axis.name, axis) for axis in axes)
    return None


def slice_labels_of(slices: Any) -> tuple[ModeLabels, ...] | None:
    """Labels of slices, rows and columns, for matrices that share their columns.

    The keys of a mapping name the slices, and data frames name the columns, by which they must
    agree; rows are each slice's own. One object with three modes is read like any tensor.
    """
    if not isinstance(slices, Mapping | list | tuple):
        return mode_labels_of(slices)
    named = isinstance(slices, Mapping)
    matrices = list(slices.values()) if isinstance(slices, Mapping) else list(slices)
    found = [mode_labels_of(matrix) for matrix in matrices]
    columns = [(labels or (None, ModeLabels(None, None)))[-1] for labels in found]
    first = next((each for each in columns if each is not None and each.values is not None), None)
    if first is None and not named:
        return None
    if first is not None:
        for number, own in enumerate(columns):
            if own is not None and not _agree(own.values, first.values):
                raise InvalidInputError(
                    f"slices[{number}] calls its columns {_few(own.values)}, but another slice "
                    f"{_few(first.values)}: slices share their columns, in one order"
                )
    own_names = _labels(None, list(slices)) if named else ModeLabels(None, None)
    return own_names, ModeLabels(None, None), first or ModeLabels(None, None)


def _agree(one: Any, other: Any) -> bool:
    return one is None or np.array_equal(one, other)


def _few(values: Any) -> str:
    return ", ".join(map(str, values[:4])) + (", ..." if len(values) > 4 else "")


def vector_labels(
    shape: tuple[int, ...], arrays: Mapping[str, Any]
) -> tuple[ModeLabels, ...] | None:
    """Labels among the arrays that lie beside a tensor of this shape, as `mode_labels_of` says."""
    vectors = {key: array for key, array in arrays.items() if array.ndim == 1}
    fitting = [[key for key, vector in vectors.items() if len(vector) == d] for d in shape]
    alone = [len(keys) == 1 and shape.count(d) == 1 for keys, d in zip(fitting, shape, strict=True)]
    if not any(alone):
        return None
    return tuple(
        _labels(keys[0], vectors[keys[0]]) if only else ModeLabels(None, None)
        for keys, only in zip(fitting, alone, strict=True)
    )


def _labels(name: Any, values: Any) -> ModeLabels:
    text = None if name is None else str(name)
    if values is None:
        return ModeLabels(text, None)
    found = np.asarray(values)
    if found.dtype.kind in "iuf" and np.array_equal(found, np.arange(len(found))):
        return ModeLabels(text, None)
    if found.dtype.kind == "M":
        # Days as days: files hold numbers and text.
        found = np.datetime_as_string(found, unit="auto")
    elif found.dtype == object or found.dtype.kind == "m":
        # Several levels, or words: as text, which files and figures can hold.
        found = np.array([_text(value) for value in found])
    return ModeLabels(text, found)


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
