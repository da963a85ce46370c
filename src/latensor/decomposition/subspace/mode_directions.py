"""The leading directions of one mode of a dense array, in the library that made the array.

The directions are the left singular vectors of an unfolding, which is never factored whole: its
short side has a small Gram matrix. Squaring costs half of the digits, so that where the smallest
direction asked for could be lost to rounding, a triangular factor takes the place of the Gram. An
unfolding that would need a copy is read in blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays import (
    Array,
    Namespace,
    generator,
    is_complex,
    is_numpy,
    like,
    machine_epsilon,
    standard_normal,
    to_host,
)
from latensor.arrays.linear_map import conjugate_transpose
from latensor.arrays.subspace import orthonormal, thin_svd

# Entries of a block of an unfolding that is copied: 8 MiB of float64.
BLOCK_ENTRIES = 1 << 20
# An eigenproblem up to this size costs next to nothing; larger ones are solved in a subspace.
SMALL = 128
# Sums of squares resolve a part of the energy that is so many rounding errors of it: a Gram is
# trusted while what it leaves out is that much,
RESOLVED = 1e4
# or while the last direction kept has this fraction of the energy of the first.
_TRUSTED_RATIO = 1e-6


@dataclass(frozen=True)
class Directions:
    """Orthonormal directions of a mode and what they leave out.

    Attributes
    ----------
    basis : (d, r) array with orthonormal columns, in decreasing energy
    discarded : float, the energy (squared norm) outside of their span
    """

    basis: Array
    discarded: float


def leading_directions(
    xp: Namespace,
    array: Array,
    mode: int,
    *,
    rank: int | None = None,
    budget: float | None = None,
) -> Directions:
    """The directions of a mode that hold most of its energy.

    Parameters
    ----------
    xp : namespace of the array
    array : dense array of order 1 or more
    mode : int
    rank : int, how many directions; None to take as few as `budget` allows
    budget : float, the energy that may be left out, where `rank` is None
    """
    dimension = int(array.shape[mode])
    columns = prod(array.shape) // dimension
    if rank is None and budget is None:
        raise TypeError("either a rank or a budget is needed")
    if columns < dimension:
        return _from_short_side(xp, array, mode, rank, budget)
    gram = mode_gram(xp, array, mode)
    energy = _trace(xp, gram)
    if budget is None or budget > RESOLVED * machine_epsilon(array) * energy:
        squares, vectors = leading_eigenpairs(xp, gram, rank)
        count, tail = _count(squares, energy, rank, budget, machine_epsilon(array))
        if budget is not None or _trusted(squares, tail, energy, machine_epsilon(array)):
            return Directions(like_array(vectors[:, :count], array), tail)
    triangle = _triangle(xp, array, mode)
    left, values, _ = thin_svd(conjugate_transpose(triangle))
    return _cut(left, values, rank, budget)


def improved_directions(xp: Namespace, array: Array, mode: int, start: Array) -> Array:
    """A basis of a mode that holds at least the energy of `start`, and mostly the most possible.

    The leading directions, unless the unfolding M is large in both directions: then two steps
    of subspace iteration, X <- orth(M M' X), which never lose energy.
    """
    dimension, rank = int(array.shape[mode]), int(start.shape[1])
    if min(dimension, prod(array.shape) // dimension) <= max(10 * rank, SMALL):
        return leading_directions(xp, array, mode, rank=rank).basis
    matrix = unfolding(xp, array, mode)
    for _ in range(2):
        start = orthonormal(matrix @ (conjugate_transpose(matrix) @ start))
    return start


def _from_short_side(
    xp: Namespace, array: Array, mode: int, rank: int | None, budget: float | None
) -> Directions:
    """Directions of a mode that is longer than all others together."""
    matrix = unfolding(xp, array, mode)
    count = int(matrix.shape[1]) if rank is None else min(rank, int(matrix.shape[1]))
    if budget is None:
        gram = conjugate_transpose(matrix) @ matrix
        energy = _trace(xp, gram)
        squares, vectors = leading_eigenpairs(xp, gram, count)
        _, tail = _count(squares, energy, count, None, machine_epsilon(array))
        if _trusted(squares, tail, energy, machine_epsilon(array)):
            basis = orthonormal(matrix @ like_array(vectors, array))
            return Directions(widened_basis(xp, basis, rank), tail)
    left, values, _ = thin_svd(matrix)
    found = _cut(left, values, None if rank is None else count, budget)
    return Directions(widened_basis(xp, found.basis, rank), found.discarded)


def _cut(left: Array, values: Array, rank: int | None, budget: float | None) -> Directions:
    squares = np.asarray(to_host(values), dtype=np.float64) ** 2
    # Singular values are exact to rounding of the largest, their squares far below it.
    count, tail = _count(squares, float(squares.sum()), rank, budget, 0.0)
    return Directions(left[:, :count], tail)


def _count(
    squares: Any, energy: float, rank: int | None, budget: float | None, epsilon: float
) -> tuple[int, float]:
    """How many directions to keep, and the energy of the others."""
    if rank is not None:
        return rank, max(energy - float(squares[:rank].sum()), 0.0)
    assert budget is not None
    tails = np.maximum(squares, 0.0)[::-1].cumsum()[::-1]
    tails = np.append(tails, 0.0)
    # Rounding in the Gram must not make a promise of accuracy come out a little short.
    slack = 10.0 * epsilon * energy
    count = max(int(np.argmax(tails <= max(budget - slack, 0.0))), 1)
    return count, float(tails[count])


def _trusted(squares: Any, tail: float, energy: float, epsilon: float) -> bool:
    return bool(
        tail > RESOLVED * epsilon * energy or squares[-1] >= _TRUSTED_RATIO * squares[0] > 0
    )


def leading_eigenpairs(xp: Namespace, gram: Array, count: int | None = None) -> tuple[Any, Any]:
    """The leading eigenpairs of a Gram matrix, in decreasing value.

    Returns
    -------
    values : (count,) host array in double precision
    vectors : (d, count) array; double precision on the host for NumPy, of the Gram's kind elsewhere
    """
    size = int(gram.shape[0])
    count = size if count is None else min(count, size)
    if not is_numpy(gram):
        values, vectors = xp.linalg.eigh((gram + conjugate_transpose(gram)) / 2)
        host = np.asarray(to_host(values), dtype=np.float64)
        return host[::-1][:count], xp.flip(vectors, axis=1)[:, :count]
    wide = gram.astype(np.complex128 if gram.dtype.kind == "c" else np.float64, copy=False)
    if 4 * count < size:
        values, vectors = scipy.linalg.eigh(
            wide, subset_by_index=(size - count, size - 1), check_finite=False
        )
    else:
        values, vectors = np.linalg.eigh(wide)
    return values[::-1][:count], vectors[:, ::-1][:, :count]


def mode_gram(xp: Namespace, array: Array, mode: int) -> Array:
    """The (d, d) product of the unfolding with its own adjoint."""
    total: Array = None
    for block in _blocks(xp, array, mode):
        part = block @ conjugate_transpose(block)
        total = part if total is None else total + part
    return total


def _triangle(xp: Namespace, array: Array, mode: int) -> Array:
    """The triangular factor R of the adjoint unfolding M' = Q R, from blocks, without Q."""
    dimension = int(array.shape[mode])
    step = max(4 * dimension, BLOCK_ENTRIES // dimension)
    triangle: Array = None
    for block in _blocks(xp, array, mode):
        rows = conjugate_transpose(block)
        for start in range(0, int(rows.shape[0]), step):
            part = rows[start : start + step, :]
            stacked = part if triangle is None else xp.concat([triangle, part], axis=0)
            triangle = xp.linalg.qr(stacked)[1]
    return triangle


def _blocks(xp: Namespace, array: Array, mode: int) -> Iterator[Array]:
    """(d, columns) matrices whose columns together are those of the unfolding, in some order."""
    shape = tuple(int(d) for d in array.shape)
    if mode in (0, len(shape) - 1):
        yield unfolding(xp, array, mode)
        return
    left, dimension, right = prod(shape[:mode]), shape[mode], prod(shape[mode + 1 :])
    cube = xp.reshape(array, (left, dimension, right))
    step = max(1, BLOCK_ENTRIES // (dimension * right))
    for start in range(0, left, step):
        slab = xp.permute_dims(cube[start : start + step, :, :], (1, 0, 2))
        yield xp.reshape(slab, (dimension, -1))


def unfolding(xp: Namespace, array: Array, mode: int) -> Array:
    """The (d, rest) unfolding of an array; a view where the mode is first or last."""
    shape = tuple(int(d) for d in array.shape)
    if mode == len(shape) - 1:
        return xp.permute_dims(xp.reshape(array, (-1, shape[-1])), (1, 0))
    axes = (mode, *(m for m in range(len(shape)) if m != mode))
    return xp.reshape(xp.permute_dims(array, axes), (shape[mode], -1))


def widened_basis(xp: Namespace, basis: Array, rank: int | None) -> Array:
    """A basis with more columns, orthonormal to those it has; always the same ones."""
    have = int(basis.shape[1])
    if rank is None or rank <= have:
        return basis
    more = standard_normal(generator(0), (int(basis.shape[0]), rank - have), basis)
    for _ in range(2):
        more = orthonormal(more - basis @ (conjugate_transpose(basis) @ more))
    return xp.concat([basis, more], axis=1)


def like_array(vectors: Any, reference: Array) -> Array:
    """Vectors in the precision of a reference; host vectors in its library too."""
    return like(vectors, reference) if is_numpy(vectors) else vectors


def _trace(xp: Namespace, gram: Array) -> float:
    total = xp.linalg.trace(gram)
    return float(xp.real(total) if is_complex(gram) else total)
