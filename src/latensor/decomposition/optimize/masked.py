"""The observed entries of a tensor as a problem: normal equations row by row, nothing filled in.

Row i of factor A_n solves (sum over observed entries of slice i of h h') a_i = sum t h, where h is
the Hadamard product of the other factors' rows. Entries are held by their coordinates, so that
dense arrays with a mask and sparse tensors with a sparse mask are one case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, describe, is_array, is_complex, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.optimize.solves import solve_rows
from latensor.decomposition.optimize.starts import parameters
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors.contractible import Contractible
from latensor.tensors.coordinates import check_coordinates, host_array, sort_rows
from latensor.tensors.dense import DenseTensor
from latensor.value_files import storable

# Entries with which incoherent components are found: so many times the rank times the root of the
# number of all entries, and so many times the parameters.
_TIMES_ROOT, _TIMES_PARAMETERS = 1.5, 8


@storable(fields=("shape", "coordinates", "entries"))
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
    def places(self) -> Array:
        """(n, order): the rows of the factors of every entry, in one stack of all factors."""
        begin = np.concatenate([[0], np.cumsum(self.shape)])
        kind = np.int32 if begin[-1] < np.iinfo(np.int32).max else np.int64
        columns = [index + start for index, start in zip(self.coordinates, begin, strict=False)]
        return np.stack(columns, axis=1).astype(kind)

    @cached_property
    def slices(self) -> tuple[Slices, ...]:
        """The entries in the order of every mode."""
        result = []
        for mode, (index, d) in enumerate(zip(self.coordinates, self.shape, strict=True)):
            order = np.argsort(index, kind="stable")
            begin = np.searchsorted(index[order], np.arange(d + 1))
            places = np.delete(self.places[order], mode, axis=1)
            result.append(Slices(begin, order, places, self.entries[order]))
        return tuple(result)

    def products(self, factors: Sequence[Array]) -> ObservedProducts:
        """Right-hand sides and matrices that start from `factors`."""
        return ObservedProducts(self, factors)

    def gram(self, factor: Array) -> Array:
        """The (rank, rank) Gram matrix of a factor."""
        return factor @ factor.T

    def gamma(self, products: ObservedProducts, grams: Sequence[Array], mode: int) -> Array:
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
        from latensor.decomposition.optimize._kernels import entries_of

        result = np.empty(len(self.entries))
        entries_of(self.places, _stacked(factors), result)
        return result

    def native(self, factor: Array) -> Array:
        """The factor as it is."""
        return factor

    def take(self, chosen: Array) -> Observed:
        """Some of the observed entries."""
        kept = tuple(index[chosen] for index in self.coordinates)
        return Observed(self.shape, kept, self.entries[chosen])


@dataclass(frozen=True)
class Slices:
    """Observed entries sorted by their index in one mode.

    Attributes
    ----------
    begin : (d + 1,) where the entries of each slice begin
    order : (n,) what sorts the entries
    places : (n, order - 1) their rows in the stack of factors, without the mode itself
    entries : (n,)
    """

    begin: Array
    order: Array
    places: Array
    entries: Array


def _stacked(factors: Sequence[Array]) -> Array:
    """Transposed factors (rank, d) as one array (sum of dimensions, rank)."""
    return np.concatenate([np.asarray(factor, dtype=np.float64).T for factor in factors])


class ObservedProducts:
    """Normal equations of an `Observed` problem while the factors are replaced one by one."""

    def __init__(self, problem: Observed, factors: Sequence[Array]) -> None:
        self._problem = problem
        self._begin = np.concatenate([[0], np.cumsum(problem.shape)])
        self._stack = _stacked(factors)
        self._rank = self._stack.shape[1]
        self._kept: dict[int, tuple[Array, Array]] = {}

    def equations(self, mode: int) -> tuple[Array, Array]:
        """(d, rank, rank) matrices and (d, rank) right-hand sides of the rows of one factor."""
        if mode not in self._kept:
            from latensor.decomposition.optimize._kernels import row_equations

            part, d = self._problem.slices[mode], self._problem.shape[mode]
            matrices, right = np.empty((d, self._rank, self._rank)), np.empty((d, self._rank))
            row_equations(part.begin, part.places, part.entries, self._stack, matrices, right)
            self._kept[mode] = matrices, right
        return self._kept[mode]

    def matrices(self, mode: int) -> Array:
        """(d, rank, rank) matrices of the rows of one factor."""
        return self.equations(mode)[0]

    def mttkrp(self, mode: int) -> Array:
        """(rank, d) right-hand sides of one factor."""
        return np.ascontiguousarray(self.equations(mode)[1].T)

    def gathered(self, values: Array, mode: int) -> Array:
        """(rank, d) sums of values, one per entry, times the other factors' rows."""
        from latensor.decomposition.optimize._kernels import gather

        part = self._problem.slices[mode]
        right = np.empty((self._problem.shape[mode], self._rank))
        gather(part.begin, part.order, part.places, values, self._stack, right)
        return np.ascontiguousarray(right.T)

    def spread(self, change: Sequence[Array]) -> Array:
        """(n,) first-order change of the model at the observed entries."""
        from latensor.decomposition.optimize._kernels import derivatives_of

        result = np.empty(len(self._problem.entries))
        derivatives_of(self._problem.places, self._stack, _stacked(change), result)
        return result

    def curvature(self) -> Array:
        """J'J of all factors, padded to the longest mode; its upper triangle."""
        from latensor.decomposition.optimize._kernels import curvature_of

        order, longest = len(self._problem.shape), max(self._problem.shape)
        result = np.zeros((order * self._rank * longest,) * 2)
        curvature_of(self._problem.places, self._begin, self._stack, longest, result)
        return result

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        self._stack[self._begin[mode] : self._begin[mode + 1]] = factor.T
        self._kept = {m: kept for m, kept in self._kept.items() if m == mode}


def observe(tensor: Contractible, mask: Any, *, fitted: bool = True) -> Observed:
    """A tensor and its mask (True where observed) as a problem, after checking both.

    Only real entries can be `fitted`.

    A sparse tensor with a sparse mask stays sparse: the stored entries of the mask are the
    observed ones, and the tensor is zero at those that it does not store.
    """
    if isinstance(mask, Observed):
        return mask
    if fitted and is_complex(tensor.reference):
        raise InvalidInputError("mask needs a real tensor, but this one is complex")
    if not isinstance(tensor, DenseTensor):
        coordinates, entries = _observe_sparse(tensor, mask)
    else:
        coordinates, entries = _observe_dense(tensor, mask)
    refuse_hidden_slices(coordinates, tensor.shape)
    return Observed(tuple(tensor.shape), coordinates, entries)


def observe_entries(coordinates: object, values: object, shape: object) -> Observed:
    """A list of observed entries as a problem, after checking it; zeros are values like others.

    Parameters
    ----------
    coordinates : (n, order) whole numbers counted from 0, no row twice
    values : (n,) real numbers
    shape : one dimension per mode
    """
    rows, dimensions = check_coordinates(coordinates, shape)
    given = host_array(values, "values")
    if given.ndim != 1 or len(given) != len(rows):
        raise InvalidInputError(
            f"values must be a vector with one number per row of coordinates ({len(rows)}), "
            f"got shape {given.shape}"
        )
    if is_complex(given):
        raise InvalidInputError("values are complex: completion is for real tensors")
    entries = np.asarray(resolve(values=given)[1]["values"], dtype=np.float64)
    refuse_nonfinite(entries, "values")
    rows, entries = sort_rows(rows, entries, range(len(dimensions)), dimensions)
    repeated = np.flatnonzero((rows[1:] == rows[:-1]).all(axis=1))
    if len(repeated):
        raise InvalidInputError(
            f"coordinates have {len(repeated)} rows that occur before, the first being "
            f"{tuple(rows[repeated[0]].tolist())}: an entry has one value; average those given "
            "more than once"
        )
    columns = tuple(np.ascontiguousarray(column) for column in rows.T)
    refuse_hidden_slices(columns, dimensions)
    return Observed(dimensions, columns, entries)


def refuse_hidden_slices(coordinates: Sequence[Array], shape: Sequence[int]) -> None:
    """Refuse entries that leave an index of some mode without any."""
    for mode, (index, d) in enumerate(zip(coordinates, shape, strict=True)):
        hidden = np.flatnonzero(np.bincount(index, minlength=d) == 0)
        if len(hidden):
            raise InvalidInputError(
                f"no entry of slice {int(hidden[0])} of mode {mode} was observed ({len(hidden)} "
                "such slices there): nothing can be said about it; remove the slice"
            )


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
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.nonzero(pattern), array[pattern].astype(wide)


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
        total = prod(observed.shape)
        enough = min(max(sufficient_entries(observed.shape, rank), needed), total)
        remedy = (
            f"at least {needed} entries are needed, and in practice about {enough}; or give a "
            "lower rank, or a ridge"
        )
        raise NotIdentifiableError(
            f"{len(observed.entries)} entries were observed, but rank={rank} of shape "
            f"{observed.shape} has {needed} free parameters: "
            + (remedy if needed <= total else f"more than its {total} entries; lower rank")
        )


def sufficient_entries(shape: Sequence[int], rank: int) -> int:
    """How many entries, drawn evenly, suffice in practice: 1.5 d^(p/2) k and 8 per parameter.

    Below, no method recovered components in the measurements; above, nearly all were. Components
    that live in a few entries, and entries that are not drawn evenly, need more.
    """
    return int(
        max(
            _TIMES_ROOT * rank * float(np.sqrt(prod(float(d) for d in shape))),
            _TIMES_PARAMETERS * parameters(shape, rank),
        )
    )
