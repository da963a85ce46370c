"""Entries of dense arrays in other places: unfoldings, fibers and slices (monograph 3.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from latensor.arrays import (
    Array,
    check_index,
    check_mode,
    check_positive_int,
    describe,
    require_matrix,
    resolve,
)
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.conversion import require_dense
from latensor.tensors.operands import require_one_shape, resolve_sequence

Order = Literal["C", "F"]


def _unfolding_axes(mode: int, n_modes: int, order: str) -> tuple[int, ...]:
    """The mode that becomes the rows, then the others from slowest to fastest."""
    if order not in ("C", "F"):
        raise InvalidInputError(f"order={order!r} must be 'C' (the monograph's) or 'F' (Kolda's)")
    others = [m for m in range(n_modes) if m != mode]
    return (mode, *(others if order == "C" else reversed(others)))


@with_guests
def unfold(tensor: Array, mode: int, order: Order = "C") -> Array:
    """A tensor as a matrix whose columns are its mode-`mode` fibres (monograph, equation 3.2).

    Parameters
    ----------
    tensor : dense array of order 1 or more
    mode : int, counted from 0
    order : "C", the last of the other modes varies fastest along the columns, as in the monograph
        and TensorLy; "F", the first does, as in Kolda's papers, pyttb and the Tensor Toolbox

    Returns
    -------
    (d_mode, product of the other dimensions) array; a view where the layout allows

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.unfold(np.arange(8.0).reshape(2, 2, 2), 1).tolist()
    [[0.0, 1.0, 4.0, 5.0], [2.0, 3.0, 6.0, 7.0]]
    """
    dense = require_dense(tensor, "tensor", "unfolding")
    mode = check_mode(mode, dense.array.ndim)
    xp = dense.namespace
    axes = _unfolding_axes(mode, dense.array.ndim, order)
    return xp.reshape(xp.permute_dims(dense.array, axes), (dense.shape[mode], -1))


@with_guests
def fold(matrix: Array, mode: int, shape: Sequence[int], order: Order = "C") -> Array:
    """The tensor of `shape` whose unfolding along `mode` is `matrix`; the inverse of `unfold`.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> tensor = np.arange(24).reshape(2, 3, 4)
    >>> bool((lt.fold(lt.unfold(tensor, 1), 1, (2, 3, 4)) == tensor).all())
    True
    """
    xp, arrays = resolve(matrix=matrix)
    matrix = arrays["matrix"]
    require_matrix(matrix, "matrix")
    if not isinstance(shape, Sequence) or isinstance(shape, str):
        raise InvalidInputError(f"shape={shape!r} must be a sequence of dimensions")
    dimensions = tuple(check_positive_int(d, f"shape[{m}]") for m, d in enumerate(shape))
    mode = check_mode(mode, len(dimensions))
    if tuple(matrix.shape) != (dimensions[mode], math.prod(dimensions) // dimensions[mode]):
        raise InvalidInputError(
            f"matrix of shape {tuple(matrix.shape)} is not the mode-{mode} unfolding of a tensor "
            f"of shape {dimensions}, which has shape "
            f"({dimensions[mode]}, {math.prod(dimensions) // dimensions[mode]})"
        )
    axes = _unfolding_axes(mode, len(dimensions), order)
    folded = xp.reshape(matrix, tuple(dimensions[m] for m in axes))
    return xp.permute_dims(folded, tuple(axes.index(m) for m in range(len(axes))))


@with_guests
def from_frontal_slices(*slices: Array) -> Array:
    """Stack matrices T(:, :, 0), T(:, :, 1), ... along a new last mode.

    Takes the matrices one by one, or one sequence of them.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.from_frontal_slices([np.zeros((2, 3)), np.ones((2, 3))]).shape
    (2, 3, 2)
    """
    xp, matrices = resolve_sequence(slices, "slices")
    for i, matrix in enumerate(matrices):
        require_matrix(matrix, f"slices[{i}]")
    require_one_shape(matrices, "slices")
    return xp.stack(matrices, axis=-1)


@with_guests
def frontal_slices(tensor: Array) -> list[Array]:
    """The matrices T(:, :, 0), T(:, :, 1), ... of a third-order tensor.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> [part.tolist() for part in lt.frontal_slices(np.arange(4.0).reshape(1, 2, 2))]
    [[[0.0, 2.0]], [[1.0, 3.0]]]
    """
    dense = require_dense(tensor, "tensor", "slicing")
    if dense.array.ndim != 3:
        raise InvalidInputError(f"tensor must have order 3, got {describe(dense.array)}")
    return [dense.array[:, :, i] for i in range(dense.shape[2])]


@with_guests
def fiber(tensor: Array, mode: int, at: Sequence[int]) -> Array:
    """The vector of a tensor's entries along one mode, all other indices fixed.

    Parameters
    ----------
    tensor : dense array
    mode : int, the mode that runs
    at : the indices of the other modes, in order

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.fiber(np.arange(8.0).reshape(2, 2, 2), 1, (0, 1)).tolist()
    [1.0, 3.0]
    """
    return _cut(tensor, (mode,), at)


@with_guests
def matrix_slice(tensor: Array, modes: tuple[int, int], at: Sequence[int]) -> Array:
    """The matrix of a tensor's entries along two modes, all other indices fixed.

    Parameters
    ----------
    tensor : dense array of order 2 or more
    modes : the modes that run, rows first: (0, 1) with at=(l,) is the frontal slice T(:, :, l)
    at : the indices of the other modes, in order

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.matrix_slice(np.arange(8.0).reshape(2, 2, 2), (0, 1), (1,)).tolist()
    [[1.0, 3.0], [5.0, 7.0]]
    """
    if not isinstance(modes, Sequence) or len(modes) != 2:
        raise InvalidInputError(f"modes={modes!r} must name two modes")
    return _cut(tensor, modes, at)


def _cut(tensor: Array, modes: tuple[int, ...], at: Sequence[int]) -> Array:
    dense = require_dense(tensor, "tensor", "slicing")
    n_modes = dense.array.ndim
    running = tuple(check_mode(mode, n_modes) for mode in modes)
    if len(set(running)) != len(running):
        raise InvalidInputError(f"modes={modes!r} names one mode twice")
    fixed = [m for m in range(n_modes) if m not in running]
    if not isinstance(at, Sequence):
        raise InvalidInputError(f"at={at!r} must be a sequence of indices, one for each of {fixed}")
    if len(at) != len(fixed):
        raise InvalidInputError(
            f"at={tuple(at)!r} must hold {len(fixed)} indices, one for each of the modes {fixed}"
        )
    index: list[Any] = [slice(None)] * n_modes
    for m, i in zip(fixed, at, strict=True):
        index[m] = check_index(i, dense.shape[m], f"the index of mode {m}")
    piece = dense.array[tuple(index)]
    if running == tuple(sorted(running)):
        return piece
    return dense.namespace.permute_dims(piece, (1, 0))
