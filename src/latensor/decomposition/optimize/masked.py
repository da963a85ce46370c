"""The observed entries of a tensor as a problem: normal equations row by row, nothing filled in.

Row i of factor A_n solves (sum over observed entries of slice i of h h') a_i = sum t h, where h is
the Hadamard product of the other factors' rows. Entries are held by their coordinates, so that
dense arrays with a mask and sparse tensors with a sparse mask are one case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, describe, is_array, is_complex, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.optimize.solves import solve_rows
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor


@dataclass(frozen=True)
class Observed:
    """The observed entries of a tensor, as a problem.

    Attributes
    ----------
    shape : of the tensor
    coordinates : one (n,) index array per mode, of the observed entries
    entries : (n,) array of the observed entries, double precision
    """

    shape: tuple[int, ...]
    coordinates: tuple[Array, ...]
    entries: Array
    epsilon: float = float(np.finfo(float).eps)

    @property
    def reference(self) -> Array:
        """The entries: their library and dtype are the problem's."""
        return self.entries

    @cached_property
    def squared_norm(self) -> float:
        """The squared norm of the observed entries."""
        return float(self.entries @ self.entries)

    @cached_property
    def sorted_by(self) -> tuple[tuple[Array, Array], ...]:
        """Per mode the order that sorts the entries by their index, and where each index begins."""
        result = []
        for index, d in zip(self.coordinates, self.shape, strict=True):
            order = np.argsort(index, kind="stable")
            result.append((order, np.searchsorted(index[order], np.arange(d + 1))))
        return tuple(result)

    @cached_property
    def selection(self) -> tuple[Any, ...]:
        """Per mode the sparse (d, n) matrix that sums what belongs to one index."""
        n = len(self.entries)
        ones, columns = np.ones(n), np.arange(n)
        return tuple(
            scipy.sparse.csr_array((ones, (index, columns)), shape=(d, n))
            for index, d in zip(self.coordinates, self.shape, strict=True)
        )

    def products(self, factors: Sequence[Array]) -> _MaskedProducts:
        """Right-hand sides and matrices that start from `factors`."""
        return _MaskedProducts(self, factors)

    def gram(self, factor: Array) -> Array:
        """The (rank, rank) Gram matrix of a factor."""
        return factor @ factor.T

    def gamma(self, products: _MaskedProducts, grams: Sequence[Array], mode: int) -> Array:
        """(d, rank, rank): the matrix of every row of a factor."""
        return products.matrices(mode)

    def solve(self, gamma: Array, right: Array, ridge: float) -> Array:
        """The least-squares factor, row by row."""
        return solve_rows(gamma, right, ridge)

    def loss(
        self, factors: Sequence[Array], grams: Sequence[Array], product: Array, mode: int
    ) -> float:
        """The squared residual over the observed entries, one by one."""
        return self.explicit_loss(factors)

    def explicit_loss(self, factors: Sequence[Array]) -> float:
        """The squared residual over the observed entries, one by one."""
        rest = self.entries - self.model(factors)
        return float(rest @ rest)

    def model(self, factors: Sequence[Array]) -> Array:
        """The (n,) values of a CP tensor at the observed entries."""
        return _rows(factors, self.coordinates).sum(axis=1)

    def native(self, factor: Array) -> Array:
        """The factor as it is."""
        return factor

    def take(self, chosen: Array) -> Observed:
        """Some of the observed entries."""
        kept = tuple(index[chosen] for index in self.coordinates)
        return Observed(self.shape, kept, self.entries[chosen])


def _rows(factors: Sequence[Array], coordinates: Sequence[Array], skip: int = -1) -> Array:
    """(n, rank): the products of the factors' entries at given coordinates, one mode left out."""
    result: Array = None
    for mode, (factor, index) in enumerate(zip(factors, coordinates, strict=True)):
        if mode != skip:
            part = factor.T[index]
            result = part if result is None else result * part
    return np.ones((len(coordinates[0]), factors[0].shape[0])) if result is None else result


class _MaskedProducts:
    """Normal equations of an `Observed` problem while the factors are replaced one by one."""

    def __init__(self, problem: Observed, factors: Sequence[Array]) -> None:
        self._problem = problem
        self._factors = list(factors)
        self._kept: dict[int, Array] = {}

    def rows(self, mode: int) -> Array:
        """(n, rank) Hadamard products of the other factors' rows at the observed entries."""
        if mode not in self._kept:
            self._kept[mode] = _rows(self._factors, self._problem.coordinates, mode)
        return self._kept[mode]

    def matrices(self, mode: int) -> Array:
        """(d, rank, rank) matrices of the rows of one factor."""
        order, begin = self._problem.sorted_by[mode]
        rows = self.rows(mode)[order]
        result = np.empty((len(begin) - 1, rows.shape[1], rows.shape[1]))
        for i, matrix in enumerate(result):
            part = rows[begin[i] : begin[i + 1]]
            np.matmul(part.T, part, out=matrix)
        return result

    def mttkrp(self, mode: int) -> Array:
        """(rank, d) right-hand sides of one factor."""
        return self.gathered(self._problem.entries, mode)

    def gathered(self, values: Array, mode: int) -> Array:
        """(rank, d) sums of values, one per entry, times the rows of one mode."""
        sums = self._problem.selection[mode] @ (self.rows(mode) * values[:, None])
        return np.ascontiguousarray(sums.T)

    def spread(self, change: Sequence[Array]) -> Array:
        """(n,) first-order change of the model at the observed entries."""
        total = np.zeros(len(self._problem.entries))
        for mode, (x, index) in enumerate(zip(change, self._problem.coordinates, strict=True)):
            total += np.einsum("ij,ij->i", self.rows(mode), x.T[index])
        return total

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        self._factors[mode] = factor
        self._kept = {m: rows for m, rows in self._kept.items() if m == mode}


def observe(tensor: Contractible, mask: Any) -> Observed:
    """A tensor and its mask (True where observed) as a problem, after checking both.

    A sparse tensor with a sparse mask stays sparse: the stored entries of the mask are the
    observed ones, and the tensor is zero at those that it does not store.
    """
    if isinstance(mask, Observed):
        return mask
    if is_complex(tensor.reference):
        raise InvalidInputError("mask needs a real tensor, but this one is complex")
    if not isinstance(tensor, DenseTensor):
        coordinates, entries = _observe_sparse(tensor, mask)
    else:
        coordinates, entries = _observe_dense(tensor, mask)
    for mode, (index, d) in enumerate(zip(coordinates, tensor.shape, strict=True)):
        hidden = np.flatnonzero(np.bincount(index, minlength=d) == 0)
        if len(hidden):
            raise InvalidInputError(
                f"mask hides all of slice {int(hidden[0])} of mode {mode} ({len(hidden)} hidden "
                "slices there): nothing can be said about it; remove the slice"
            )
    return Observed(tuple(tensor.shape), coordinates, entries)


def _observe_dense(tensor: DenseTensor, mask: Any) -> tuple[tuple[Array, ...], Array]:
    array = to_host(tensor.array)
    if hasattr(mask, "coordinates"):
        mask = to_host(mask.to_dense()) != 0
    pattern = to_host(mask) if is_array(mask) else np.asarray(mask)
    if pattern.shape != array.shape:
        raise InvalidInputError(
            f"mask has shape {pattern.shape}, but the tensor has shape {array.shape}"
        )
    if pattern.dtype != np.bool_ and not np.isin(pattern, (0, 1)).all():
        raise InvalidInputError(
            "mask must hold truth values, True where an entry was observed, "
            f"got {describe(pattern)}"
        )
    pattern = pattern.astype(np.bool_)
    refuse_nonfinite(np.where(pattern, array, 0.0), "tensor (observed entries)")
    return np.nonzero(pattern), array[pattern].astype(np.float64)


def _observe_sparse(tensor: Any, mask: Any) -> tuple[tuple[Array, ...], Array]:
    if not (hasattr(tensor, "coordinates") and hasattr(mask, "coordinates")):
        raise InvalidInputError(
            f"a mask needs a dense tensor, or a SparseTensor with a SparseTensor as mask, "
            f"not {type(tensor).__name__} with {type(mask).__name__}"
        )
    shape = tuple(tensor.shape)
    if tuple(mask.shape) != shape:
        raise InvalidInputError(
            f"mask has shape {tuple(mask.shape)}, but the tensor has shape {shape}"
        )
    rows = np.asarray(mask.coordinates)
    seen = np.ravel_multi_index(tuple(rows.T), shape)
    stored = np.ravel_multi_index(tuple(np.asarray(tensor.coordinates).T), shape)
    kept = np.isin(stored, seen)
    order = np.argsort(seen)
    entries = np.zeros(len(seen))
    places = order[np.searchsorted(seen, stored[kept], sorter=order)]
    entries[places] = np.asarray(tensor.values, dtype=np.float64)[kept]
    return tuple(rows.T), entries


def refuse_too_few_entries(observed: Observed, rank: int, fixed: Sequence[int] = ()) -> None:
    """Refuse a mask that leaves fewer entries than the factors have free parameters."""
    free = [d for mode, d in enumerate(observed.shape) if mode not in fixed]
    needed = rank * (sum(free) - (len(free) - 1 if not fixed else 0))
    if len(observed.entries) < needed:
        raise NotIdentifiableError(
            f"mask leaves {len(observed.entries)} observed entries, but rank={rank} of shape "
            f"{observed.shape} has {needed} free parameters: at least {needed} entries are needed "
            "(in practice five to eight times as many), or a lower rank, or a ridge"
        )
