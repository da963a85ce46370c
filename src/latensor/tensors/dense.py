"""Dense tensors: contraction as reshape and matmul, on any array library.

Inside this file the rank stands first: factors are held as (rank, dimension), Khatri-Rao products
as (rank, rows). Sums over a mode are then contiguous and every step is a BLAS product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays import (
    Array,
    Namespace,
    check_finite,
    describe,
    is_complex,
    is_traced,
    matmul,
    resolve,
    to_host,
)
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Sweep
from latensor.tensors.operands import check_factors, check_operands

# Below this many trailing entries a batched product is slower than one product after a copy.
_SHORT_TAIL = 8
# Entries that are widened to double precision at a time.
_BLOCK = 1 << 16


class DenseTensor:
    """A dense array adapted to `Contractible`, without a copy of its entries.

    Parameters
    ----------
    array : array of any library, of order 1 or more, with no empty mode
    name : str, what error messages call it
    """

    def __init__(self, array: object, name: str = "tensor") -> None:
        xp, arrays = resolve(**{name: array})
        self.array: Array = arrays[name]
        self.namespace: Namespace = xp
        self._name = name
        if self.array.ndim == 0:
            raise InvalidInputError(f"{name} is a single number: a tensor needs at least one mode")
        if 0 in self.array.shape:
            raise InvalidInputError(f"{name} is empty: {describe(self.array)}")

    def __reduce__(self) -> Any:
        return DenseTensor, (self.array, self._name)

    def __repr__(self) -> str:
        return f"DenseTensor({describe(self.array)})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(d) for d in self.array.shape)

    @property
    def reference(self) -> Array:
        """The array itself: its library, device and dtype are the tensor's."""
        return self.array

    @cached_property
    def _flat(self) -> Array:
        # One copy at most, for arrays not in row-major order; every reshape of it is a view.
        return self.namespace.reshape(self.array, (-1,))

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C); see `Contractible.contract`."""
        given = check_operands(operands, self.shape, self.array)
        result = contract_modes(self.namespace, self.array, given)
        return check_finite(result, **{self._name: self.array, "operands": given})

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product; see `Contractible.mttkrp`."""
        mode, given = check_factors(factors, self.shape, mode, self.array)
        xp = self.namespace
        rows = [None if f is None else transposed(xp, f) for f in given]
        left, right = math.prod(self.shape[:mode]), math.prod(self.shape[mode + 1 :])
        if left > right:  # sum the longer side first: what remains for the second step is shorter
            part = contract_front(xp, self._flat, left, rows[:mode])
            part = sum_back(xp, part, self.shape[mode], rows[mode + 1 :])
        else:
            part = contract_back(xp, self._flat, right, rows[mode + 1 :], rows)
            part = sum_front(xp, part, self.shape[mode], rows[:mode])
        result = xp.permute_dims(part, (1, 0))
        return check_finite(result, **{self._name: self.array, "factors": given})

    @cached_property
    def squared_norm(self) -> float:
        """The squared Frobenius norm in double precision; inf or 0 where squares leave its range.

        Entries that are not finite make it inf or NaN; `norm` refuses them.
        """
        flat = to_host(self._flat)
        wide = np.complex128 if flat.dtype.kind == "c" else np.float64
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if flat.dtype == wide:
                return float(np.vdot(flat, flat).real)
            parts = (
                flat[start : start + _BLOCK].astype(wide) for start in range(0, flat.size, _BLOCK)
            )
            return float(sum(np.vdot(part, part).real for part in parts))

    def norm(self) -> Any:
        """The Frobenius norm."""
        result = frobenius(self.namespace, self.array)
        return check_finite(result, **{self._name: self.array})

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """Mttkrps by a dimension tree: two contractions of the tensor for all modes."""
        from latensor.tensors.dimension_tree import DimensionTree

        _, given = check_factors(factors, self.shape, None, self.array)
        return DimensionTree(self.namespace, self._flat, self.shape, given)


def frobenius(xp: Namespace, array: Array) -> Any:
    """The Frobenius norm of a dense array, also where squares over- or underflow."""
    flat = xp.reshape(array, (-1,))
    with np.errstate(over="ignore", under="ignore"):
        norm = xp.linalg.vector_norm(flat)
    if not is_extreme(norm):
        return norm
    largest = xp.max(xp.abs(flat))
    if not 0 < float(to_host(largest)) < np.inf:
        return norm
    return largest * xp.linalg.vector_norm(flat / largest)


def is_extreme(norm: Array) -> bool:
    """Whether a norm may have been lost where its square over- or underflowed; not if traced."""
    if is_traced(norm):
        return False
    limits = np.finfo(to_host(norm).dtype)
    return not np.sqrt(limits.tiny) / limits.eps < float(to_host(norm)) < np.inf


def norm_of_product(xp: Namespace, parts: Sequence[Array], norm: Callable[..., Array]) -> Array:
    """The norm of a tensor that is linear in each of several arrays, at any scale of these.

    Parameters
    ----------
    xp : their library
    parts : the arrays
    norm : the norm of the tensor that such arrays make, by squares that may over- or underflow
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = norm(*parts)
    if not is_extreme(result):
        return result
    sizes = [float(to_host(xp.max(xp.abs(part)))) for part in parts]
    if not all(0.0 < size < np.inf for size in sizes):
        return result
    exponents = [int(np.frexp(size)[1]) for size in sizes]
    result = norm(*(_shifted(part, -e) for part, e in zip(parts, exponents, strict=True)))
    return _shifted(result, sum(exponents))


def _shifted(array: Array, exponent: int) -> Array:
    """An array times a power of two that may itself be out of its range."""
    while exponent:
        step = max(-100, min(100, exponent))
        array, exponent = array * 2.0**step, exponent - step
    return array


def transposed(xp: Namespace, factor: Array) -> Array:
    """A (d, rank) factor as (rank, d), conjugated as a least-squares contraction needs it."""
    rows = xp.permute_dims(factor, (1, 0))
    return xp.conj(rows) if is_complex(factor) else rows


def khatri_rao_rows(xp: Namespace, rows: Sequence[Array]) -> Array:
    """Khatri-Rao product of factors held as (rank, d): (rank, product of d)."""
    product = rows[0]
    for factor in rows[1:]:
        rank = product.shape[0]
        product = xp.reshape(product[:, :, None] * factor[:, None, :], (rank, -1))
    return product


def _rank_of(rows: Sequence[Array | None]) -> int:
    return next(int(row.shape[0]) for row in rows if row is not None)


def _by_rank_blocks(xp: Namespace, rows: Sequence[Array], block: int, product: Any) -> Array:
    """`product` of the Khatri-Rao product of `rows`, formed for at most `block` columns at once."""
    rank = _rank_of(rows)
    if rank <= block or len(rows) == 1:
        return product(khatri_rao_rows(xp, rows))
    parts = [
        product(khatri_rao_rows(xp, [row[start : start + block, :] for row in rows]))
        for start in range(0, rank, block)
    ]
    return xp.concat(parts, axis=0)


def contract_back(
    xp: Namespace, flat: Array, size: int, rows: Sequence[Array], all_rows: Sequence[Array | None]
) -> Array:
    """Sum the trailing modes, of `size` entries, of a flat tensor against factors: (rank, rest).

    The Khatri-Rao product is formed for at most as many columns as there are leading entries,
    which keeps it no larger than the tensor.
    """
    matrix = xp.reshape(flat, (-1, size))
    if not rows:
        only = next(row for row in all_rows if row is not None)
        return xp.ones_like(only) * xp.permute_dims(matrix, (1, 0))
    turned = xp.permute_dims(matrix, (1, 0))
    return _by_rank_blocks(xp, rows, int(matrix.shape[0]), lambda kr: matmul(xp, kr, turned))


def contract_front(xp: Namespace, flat: Array, size: int, rows: Sequence[Array]) -> Array:
    """Sum the leading modes, of `size` entries, of a flat tensor against factors: (rank, rest)."""
    matrix = xp.reshape(flat, (size, -1))
    return _by_rank_blocks(xp, rows, int(matrix.shape[1]), lambda kr: matmul(xp, kr, matrix))


def sum_front(xp: Namespace, part: Array, keep: int, rows: Sequence[Array]) -> Array:
    """Sum the leading modes of a (rank, front * keep) part against factors: (rank, keep)."""
    if not rows:
        return part
    rank = part.shape[0]
    kr = khatri_rao_rows(xp, rows)
    cube = xp.reshape(part, (rank, -1, keep))
    return xp.reshape(matmul(xp, kr[:, None, :], cube), (rank, keep))


def sum_back(xp: Namespace, part: Array, keep: int, rows: Sequence[Array]) -> Array:
    """Sum the trailing modes of a (rank, keep * back) part against factors: (rank, keep)."""
    if not rows:
        return part
    rank = part.shape[0]
    kr = khatri_rao_rows(xp, rows)
    cube = xp.reshape(part, (rank, keep, -1))
    return xp.reshape(matmul(xp, cube, kr[:, :, None]), (rank, keep))


def contract_mode(xp: Namespace, array: Array, operand: Array, axis: int) -> Array:
    """Sum one axis of an array against a (d, k) matrix, which takes its place, or a (d,) vector."""
    shape = tuple(array.shape)
    left, d, right = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    kept: tuple[int, ...] = () if operand.ndim == 1 else (int(operand.shape[1]),)
    new_shape = (*shape[:axis], *kept, *shape[axis + 1 :])
    if right == 1:
        result = matmul(xp, xp.reshape(array, (left, d)), operand)
    elif operand.ndim == 1:
        result = matmul(xp, operand[None, :], xp.reshape(array, (left, d, right)))
    elif left == 1:
        result = matmul(xp, xp.permute_dims(operand, (1, 0)), xp.reshape(array, (d, right)))
    elif right < _SHORT_TAIL:
        turned = xp.permute_dims(xp.reshape(array, (left, d, right)), (0, 2, 1))
        product = matmul(xp, xp.reshape(turned, (left * right, d)), operand)
        result = xp.permute_dims(xp.reshape(product, (left, right, kept[0])), (0, 2, 1))
    else:
        turned = xp.permute_dims(operand, (1, 0))
        result = matmul(xp, turned, xp.reshape(array, (left, d, right)))
    return xp.reshape(result, new_shape)


def contract_modes(xp: Namespace, array: Array, operands: Sequence[Array | None]) -> Array:
    """T(A, B, C) of a dense array, the mode that shrinks most first."""

    def growth(mode: int) -> float:
        operand = operands[mode]
        assert operand is not None
        return 0.0 if operand.ndim == 1 else operand.shape[1] / operand.shape[0]

    axes = list(range(array.ndim))  # where each mode stands now; summed modes leave the list
    for mode in sorted((m for m, o in enumerate(operands) if o is not None), key=growth):
        operand = operands[mode]
        assert operand is not None
        array = contract_mode(xp, array, operand, axes.index(mode))
        if operand.ndim == 1:
            axes.remove(mode)
    return array
