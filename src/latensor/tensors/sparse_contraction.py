"""Contractions of sparse tensors: multilinear forms, inner products, Gram matrices.

A multilinear form is evaluated along a fibre tree whose root is what the caller keeps: a fibre is
summed with the matrix of its mode into a row, rows with the next matrix into a small block, and
so on upwards. Memory holds the result and one block per level; nothing grows with the number of
nonzeros times the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import Array, check_finite, check_mode, resolve
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.tensors.coordinates import sort_rows
from latensor.tensors.fibres import FibreTree, Nonzeros, by_length
from latensor.tensors.operands import check_operands
from latensor.tensors.size import BLOCK_ENTRIES, check_size

# A dense product makes about this many multiplications in the time of a sparse one.
_DENSE_ADVANTAGE = 30


class StackSweep:
    """Mttkrps of a sparse tensor with factors kept in one stack; see `Sweep`.

    Parameters
    ----------
    nonzeros : of the tensor
    factors : checked (d, rank) matrices of one dtype, None for one that is not needed
    """

    def __init__(self, nonzeros: Nonzeros, factors: Sequence[Array | None]) -> None:
        self._nonzeros = nonzeros
        self._factors = list(factors)
        first = next(factor for factor in factors if factor is not None)
        self._dtype = first.dtype
        self._starts = np.concatenate([[0], np.cumsum(nonzeros.shape)])
        self._stack = np.empty((self._starts[-1] + 1, first.shape[1]), _wide(first.dtype))
        self._stack[-1] = 1
        for mode, factor in enumerate(factors):
            if factor is not None:
                self._place(mode, factor)

    def _place(self, mode: int, factor: Array) -> None:
        # Rows that no nonzero touches never reach a result, so that this is the place to look.
        refuse_nonfinite(factor, f"factors[{mode}]")
        block = self._stack[self._starts[mode] : self._starts[mode + 1]]
        np.conj(factor, out=block, casting="same_kind")

    def image(self, mode: int) -> Array:
        """The mttkrp of `mode`, without a look at whether it is finite."""
        dimension = self._nonzeros.shape[mode]
        if not len(self._nonzeros):
            return np.zeros((dimension, self._stack.shape[1]), self._dtype)
        product = self._nonzeros.tree(mode).mttkrp(self._stack, dimension)
        return product.astype(self._dtype, copy=False)

    def mttkrp(self, mode: int) -> Array:
        """The mttkrp of `mode` with the current factors of the other modes."""
        mode = check_mode(mode, self._nonzeros.order)
        others = [None if m == mode else factor for m, factor in enumerate(self._factors)]
        return check_finite(self.image(mode), factors=others)

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        mode = check_mode(mode, self._nonzeros.order)
        array = factor
        if type(factor) is not np.ndarray or factor.dtype != self._dtype:
            array = resolve(tensor=self._nonzeros.values[:0], factor=factor)[1]["factor"]
        expected = (self._nonzeros.shape[mode], self._stack.shape[1])
        if array.shape != expected:
            raise InvalidInputError(
                f"the factor of mode {mode} must have shape {expected}, got {array.shape}"
            )
        if array.dtype.kind == "c" and self._stack.dtype.kind != "c":
            raise InvalidInputError(
                f"the factor of mode {mode} is complex, but the sweep was begun with real factors"
            )
        self._factors[mode] = array
        self._place(mode, array)


def _wide(*dtypes: Any) -> Any:
    """The dtype in which sums are made."""
    return np.complex128 if any(np.dtype(d).kind == "c" for d in dtypes) else np.float64


def _checked(operands: Sequence[Array | None], nonzeros: Nonzeros) -> list[Array | None]:
    """Operands that fit and are finite, also in rows that no nonzero touches."""
    given = check_operands(operands, nonzeros.shape, nonzeros.values)
    for mode, operand in enumerate(given):
        if operand is not None:
            refuse_nonfinite(operand, f"operands[{mode}]")
    return given


def contract(nonzeros: Nonzeros, operands: Sequence[Array | None], max_size: int) -> Array:
    """T(A, B, C) as a dense array; see `SparseTensor.contract`."""
    given = _checked(operands, nonzeros)
    kept = [mode for mode, operand in enumerate(given) if operand is None]
    dtype = np.result_type(nonzeros.dtype, *(o.dtype for o in given if o is not None))
    open_shape = _open_shape(nonzeros.shape, given)
    check_size(open_shape, dtype, max_size, "the result")
    result = np.zeros(open_shape, dtype)
    if len(kept) == nonzeros.order:
        result[tuple(nonzeros.rows.T)] = nonzeros.values
    elif not len(nonzeros):
        pass
    elif len(open_shape) <= 1:
        result = _contract_vectors(nonzeros, given).astype(dtype, copy=False)
    elif kept:
        tree, numbers, widths = _rows_of_roots(nonzeros, given, kept)
        full = np.zeros((*(nonzeros.shape[mode] for mode in kept), *widths), dtype)
        full[tuple(tree.roots.T)] = numbers.reshape(-1, *widths)
        result = _natural_order(full, [*kept, *tree.levels], given)
    else:
        result = _contract_all(nonzeros, given).astype(dtype, copy=False)
    return check_finite(result[()], operands=given)


def contract_sparse(
    nonzeros: Nonzeros, operands: Sequence[Array | None], max_size: int
) -> tuple[Any, Any, tuple[int, ...]]:
    """Coordinates, values and shape of T(A, I, I); see `SparseTensor.contract_sparse`."""
    given = _checked(operands, nonzeros)
    kept = [mode for mode, operand in enumerate(given) if operand is None]
    if not kept:
        raise InvalidInputError(
            "contract_sparse keeps the modes whose operand is None, and none is: use contract"
        )
    if len(kept) == nonzeros.order:
        return nonzeros.rows, nonzeros.values, nonzeros.shape
    shape = _open_shape(nonzeros.shape, given)
    dtype = np.result_type(nonzeros.dtype, *(o.dtype for o in given if o is not None))
    if not len(nonzeros):
        return np.zeros((0, len(shape)), np.int64), np.zeros(0, dtype), shape
    tree, numbers, widths = _rows_of_roots(nonzeros, given, kept, max_size)
    check_finite(numbers, operands=given)
    within = np.indices(widths).reshape(len(widths), -1)
    columns = {mode: np.repeat(tree.roots[:, i], numbers.shape[1]) for i, mode in enumerate(kept)}
    for level, mode in enumerate(tree.levels):
        if mode is not None:
            columns[mode] = np.tile(within[level], len(numbers))
    coordinates = np.stack([columns[mode] for mode in _open_modes(given)], axis=1)
    return coordinates, numbers.reshape(-1).astype(dtype, copy=False), shape


def _open_modes(given: Sequence[Array | None]) -> list[int]:
    """The modes that the result has: kept, or with a matrix."""
    return [mode for mode, operand in enumerate(given) if operand is None or operand.ndim == 2]


def _open_shape(shape: tuple[int, ...], given: Sequence[Array | None]) -> tuple[int, ...]:
    sizes = (shape[m] if (o := given[m]) is None else o.shape[1] for m in _open_modes(given))
    return tuple(int(size) for size in sizes)


def _contract_vectors(nonzeros: Nonzeros, given: Sequence[Array | None]) -> Array:
    """T(A, v, w) with vectors in all modes but one: an mttkrp of rank one, then a product."""
    mode = next(iter(_open_modes(given)), by_length(nonzeros.shape)[0])
    dtype = _wide(nonzeros.dtype, *(o.dtype for o in given if o is not None))
    ones = np.ones((nonzeros.shape[mode], 1), dtype)
    columns = [
        ones if m == mode else np.conj(_as_matrix(vector)).astype(dtype)
        for m, vector in enumerate(given)
    ]
    image = StackSweep(nonzeros, columns).image(mode)[:, 0]
    operand = given[mode]
    return image if operand is None else np.asarray(image @ operand)


def _rows_of_roots(
    nonzeros: Nonzeros,
    given: Sequence[Array | None],
    kept: Sequence[int],
    max_size: int | None = None,
) -> tuple[FibreTree, Any, tuple[int, ...]]:
    """The contraction at every kept place: the tree, (places, numbers), widths of its levels."""
    tree = nonzeros.tree(*kept)
    flat, shifts, widths = _flatten(tree, nonzeros.shape, given)
    level_widths = tuple(int(w) for w in widths[1:])
    if max_size is not None:
        size = (len(tree.roots), *level_widths)
        check_size(size, flat.dtype, max_size, "the kept places with the columns of the operands")
    numbers = tree.contract(flat, shifts, widths, (0, tree.tasks))
    return tree, numbers, level_widths


def _contract_all(nonzeros: Nonzeros, given: Sequence[Array | None]) -> Array:
    """T(A, B, C) with an operand in every mode: the shortest mode at the root, summed last."""
    root = by_length(nonzeros.shape)[0]
    tree = nonzeros.tree(root)
    flat, shifts, widths = _flatten(tree, nonzeros.shape, given)
    level_widths = tuple(int(w) for w in widths[1:])
    size = math.prod(level_widths)
    blocks = [(block, tree.root_nodes(block)) for block in tree.blocks(BLOCK_ENTRIES, size)]
    widest = tree.levels[int(np.argmax(level_widths))]
    rows = max(nodes.stop - nodes.start for _, nodes in blocks)
    if rows > 1 and rows * size > 4 * BLOCK_ENTRIES and max(level_widths) > 1:
        return _contract_halves(nonzeros, given, int(widest or 0))
    matrix = _as_matrix(given[root]).astype(flat.dtype, copy=False)
    total = np.zeros((matrix.shape[1], size), flat.dtype)
    for block, nodes in blocks:
        total += matrix[tree.roots[nodes, 0]].T @ tree.contract(flat, shifts, widths, block)
    full = total.reshape(matrix.shape[1], *level_widths)
    return _natural_order(full, [root, *tree.levels], given)


def _contract_halves(nonzeros: Nonzeros, given: Sequence[Array | None], mode: int) -> Array:
    """T(A, B, C) with the columns of one operand in two halves, each in half the memory."""
    operand = _as_matrix(given[mode])
    middle = operand.shape[1] // 2
    halves = [
        _contract_all(nonzeros, [*given[:mode], half, *given[mode + 1 :]])
        for half in (operand[:, :middle], operand[:, middle:])
    ]
    return np.concatenate(halves, axis=_open_modes(given).index(mode))


def _natural_order(full: Array, axes: Sequence[int | None], given: Sequence[Array | None]) -> Array:
    """An array with one axis per mode of `axes`, summed modes taken out and the rest in order."""
    open_modes = _open_modes(given)
    summed = tuple(i for i, mode in enumerate(axes) if mode not in open_modes)
    remaining = [mode for mode in axes if mode in open_modes]
    order = [remaining.index(mode) for mode in open_modes]
    return np.ascontiguousarray(np.squeeze(full, axis=summed).transpose(order))


def _as_matrix(operand: Any) -> Any:
    return operand[:, None] if operand.ndim == 1 else operand


def _flatten(
    tree: FibreTree, shape: tuple[int, ...], given: Sequence[Array | None]
) -> tuple[Any, Any, Any]:
    """The operands of a tree's levels in one array, as `FibreTree.contract` reads them."""
    wide = _wide(tree.values.dtype, *(o.dtype for o in given if o is not None))
    offsets = np.concatenate([[0], np.cumsum(shape)])
    pieces: list[Any] = []
    shifts, widths = [0], [1]
    length = 0
    for mode in tree.levels:
        matrix = np.ones((1, 1)) if mode is None else _as_matrix(given[mode])
        first_row = offsets[-1] if mode is None else offsets[mode]
        shifts.append(length - int(first_row) * matrix.shape[1])
        widths.append(matrix.shape[1])
        pieces.append(np.ravel(matrix))
        length += matrix.size
    return np.concatenate(pieces).astype(wide), np.array(shifts), np.array(widths)


def inner_dense(nonzeros: Nonzeros, other: Array) -> Any:
    """The sum of conj(tensor) * other with a dense array of the same shape."""
    entries = other[tuple(nonzeros.rows.T)]
    total = _total(nonzeros.values.conj() * entries)
    return check_finite(total, other=entries)


def inner_sparse(left: Nonzeros, right: Nonzeros) -> Any:
    """The sum of conj(left) * right: entries in one place meet where both are sorted as one."""
    rows = np.concatenate([left.rows, right.rows])
    rows, which = sort_rows(rows, np.arange(len(rows)), range(left.order), left.shape)
    met = np.flatnonzero(np.all(rows[1:] == rows[:-1], axis=1))
    mine, theirs = which[met], which[met + 1] - len(left)
    return _total(left.values[mine].conj() * right.values[theirs])


def _total(products: Any) -> Any:
    wide = _wide(products.dtype)
    return np.sum(products, dtype=wide).astype(products.dtype)


def unfold_gram(nonzeros: Nonzeros, mode: int, max_size: int) -> Array:
    """X X^H of the mode-`mode` unfolding X; see `SparseTensor.unfold_gram`."""
    from scipy.sparse import csc_array

    dimension = nonzeros.shape[mode]
    check_size((dimension, dimension), nonzeros.dtype, max_size, "the Gram matrix")
    wide = _wide(nonzeros.dtype)
    if not len(nonzeros):
        return np.zeros((dimension, dimension), nonzeros.dtype)
    others = [m for m in by_length(nonzeros.shape) if m != mode]
    rows, values = sort_rows(nonzeros.rows, nonzeros.values, [*others, mode], nonzeros.shape)
    changed = np.zeros(max(0, len(rows) - 1), dtype=bool)
    for other in others:
        changed |= rows[1:, other] != rows[:-1, other]
    starts = np.flatnonzero(np.concatenate([[True], changed, [True]]))
    columns = len(starts) - 1
    matrix = csc_array((values.astype(wide), rows[:, mode], starts), shape=(dimension, columns))
    lengths = np.diff(starts).astype(np.float64)
    if _DENSE_ADVANTAGE * np.dot(lengths, lengths) < float(dimension) ** 2 * columns:
        return (matrix @ matrix.conj().T).toarray().astype(nonzeros.dtype, copy=False)
    gram = np.zeros((dimension, dimension), wide)
    step = max(1, BLOCK_ENTRIES // dimension)
    for start in range(0, columns, step):
        block = matrix[:, start : start + step].toarray()
        gram += block @ block.conj().T
    return gram.astype(nonzeros.dtype, copy=False)
