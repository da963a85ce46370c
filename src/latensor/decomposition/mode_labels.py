"""What the modes of a tensor and their indices are called, from data that say so."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.lib.npyio import NpzFile

from latensor.tensors.conversion import read_archive
from latensor.value_files import storable


@storable
class ModeLabels(NamedTuple):
    """The name of a mode and one number or word per index of it; None where there is none."""

    name: str | None
    values: Any


def mode_labels_of(tensor: Any) -> tuple[ModeLabels, ...] | None:
    """Labels of a pandas or xarray object or an .npz archive, mode by mode; None for plain arrays.

    Anything with `dims` and `coords` is read as an xarray DataArray, anything two-dimensional with
    `index` and `columns` as a pandas DataFrame. In an archive a vector as long as one mode and no
    other labels it, if it is the only one, and its name becomes that of the mode. A plain count
    from 0 is no label.
    """
    if isinstance(tensor, NpzFile):
        return _archived_labels(tensor)
    if hasattr(tensor, "dims") and hasattr(tensor, "coords"):
        values = [tensor.coords.get(d) for d in tensor.dims]
        return tuple(_labels(d, v) for d, v in zip(tensor.dims, values, strict=True))
    if hasattr(tensor, "index") and hasattr(tensor, "columns") and hasattr(tensor, "iloc"):
        axes = (tensor.index, tensor.columns)
        return tuple(_labels(axis.name, axis) for axis in axes)
    return None


def _archived_labels(archive: Any) -> tuple[ModeLabels, ...] | None:
    tensor, others = read_archive(archive)
    shape = tensor.shape
    vectors = {key: array for key, array in others.items() if array.ndim == 1}
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
    if found.dtype.kind in "iu" and np.array_equal(found, np.arange(len(found))):
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
