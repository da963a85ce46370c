"""Alternating least squares over observed entries only, by normal equations row by row.

Row i of factor A_n solves (sum over observed entries of slice i of h h') a_i = sum t h, where h is
the Hadamard product of the other factors' rows. With W the pattern of observed entries, the
matrices on the left are an mttkrp of W with products of two factor columns, the right-hand sides
one of W o T: the same contractions that every fit uses, dense or sparse. Nothing is filled in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, describe, is_array, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.optimize.alternating import Point, balanced
from latensor.decomposition.optimize.problem import ContractibleProblem, DenseProblem, Problem
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor

# Pairs of columns contracted at once: bounds the memory of the partial results.
_PAIRS_AT_ONCE = 128
_PASSES = 5
_RIDGES = 6
_SWEEPS_PER_RIDGE = 8
_SWEEPS_AFTER = 20


@dataclass(frozen=True)
class Observed:
    """The observed entries of a tensor.

    Attributes
    ----------
    values : problem of W o T, zero where nothing was observed
    pattern : problem of W, one where an entry was observed
    coordinates : one (n,) index array per mode, of the observed entries
    entries : (n,) array of the observed entries
    """

    values: Problem
    pattern: Problem
    coordinates: tuple[Array, ...]
    entries: Array

    def residual(self, factors: Sequence[Array]) -> float:
        """The squared residual over the observed entries, one by one."""
        terms = np.ones((len(self.entries), 1))
        for factor, index in zip(factors, self.coordinates, strict=True):
            terms = terms * factor.T[index]
        rest = self.entries - terms.sum(axis=1)
        return float(rest @ rest)


def observe(tensor: Contractible, mask: Any) -> Observed:
    """A tensor and its mask (True where observed) as problems, after checking both.

    A sparse tensor with a sparse mask stays sparse: the stored entries of the mask are the
    observed ones, and the tensor is zero at those that it does not store.
    """
    if not isinstance(tensor, DenseTensor):
        return _observe_sparse(tensor, mask)
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
    for mode in range(array.ndim):
        seen = pattern.any(axis=tuple(m for m in range(array.ndim) if m != mode))
        _refuse_hidden(seen, mode)
    values = np.where(pattern, array, 0.0).astype(
        np.complex128 if array.dtype.kind == "c" else np.float64
    )
    refuse_nonfinite(values, "tensor (observed entries)")
    return Observed(
        DenseProblem(values),
        DenseProblem(pattern.astype(np.float64)),
        np.nonzero(pattern),
        values[pattern],
    )


def _observe_sparse(tensor: Any, mask: Any) -> Observed:
    if not (hasattr(tensor, "coordinates") and hasattr(mask, "coordinates")):
        raise InvalidInputError(
            f"a mask needs a dense tensor, or a SparseTensor with a SparseTensor as mask, "
            f"not {type(tensor).__name__} with {type(mask).__name__}"
        )
    if tuple(mask.shape) != tuple(tensor.shape):
        raise InvalidInputError(
            f"mask has shape {tuple(mask.shape)}, but the tensor has shape {tuple(tensor.shape)}"
        )
    shape = tuple(tensor.shape)
    seen = _linear_index(mask, shape)
    stored = _linear_index(tensor, shape)
    kept = np.isin(stored, seen)
    values = np.asarray(tensor.values, dtype=np.float64)[kept]
    rows = np.asarray(tensor.coordinates)[kept]
    observed_rows = np.asarray(mask.coordinates)
    order = np.argsort(seen)
    entries = np.zeros(len(seen))
    entries[order[np.searchsorted(seen, stored[kept], sorter=order)]] = values
    for mode, d in enumerate(shape):
        _refuse_hidden(np.bincount(observed_rows[:, mode], minlength=d) > 0, mode)
    kind: Any = type(tensor)
    return Observed(
        ContractibleProblem(kind(rows, values, shape)),
        ContractibleProblem(kind(observed_rows, np.ones(len(observed_rows)), shape)),
        tuple(observed_rows.T),
        entries,
    )


def _linear_index(tensor: Any, shape: tuple[int, ...]) -> Array:
    return np.ravel_multi_index(tuple(np.asarray(tensor.coordinates).T), shape)


def _refuse_hidden(seen: Array, mode: int) -> None:
    hidden = np.flatnonzero(~seen)
    if len(hidden):
        raise InvalidInputError(
            f"mask hides all of slice {int(hidden[0])} of mode {mode} "
            f"({len(hidden)} hidden slices there): nothing can be said about it; remove the slice"
        )


@dataclass(frozen=True)
class MaskedSweeps:
    """How a sweep updates factors from observed entries only; as `Sweeps` otherwise.

    Parameters
    ----------
    observed : the entries to fit
    modes : the modes to update
    ridge : float, penalty on the squared norm of every factor
    nonnegative : bool
    lift : float, share of its mean that is added to the diagonal of every row's matrix
    """

    observed: Observed
    modes: tuple[int, ...]
    ridge: float = 0.0
    nonnegative: bool = False
    lift: float = 1e-12

    def start(self, factors: Sequence[Array]) -> Point:
        """The point of given factors."""
        mode = self.modes[-1]
        matrices, right = self._equations(factors, mode)
        return Point(tuple(factors), (), self._loss(factors, matrices, right, mode))

    def sweep(self, point: Point) -> Point:
        """One update of every free mode."""
        factors = list(point.factors)
        for mode in self.modes:
            matrices, right = self._equations(factors, mode)
            if self.nonnegative:
                factors[mode] = _nonnegative_solution(matrices, right, factors[mode])
            else:
                factors[mode] = _solution(matrices, right, self.ridge, self.lift)
        loss = self._loss(factors, matrices, right, mode)
        return replace(point, factors=tuple(factors), loss=loss)

    def extrapolated(self, point: Point) -> Point:
        """A sweep that starts ahead of `point`; see `Sweeps.extrapolated`."""
        if point.previous is not None:
            step = point.momentum
            pairs = zip(point.factors, point.previous, strict=True)
            ahead = tuple(f if f is p else f + step * (f - p) for f, p in pairs)
            if self.nonnegative:
                ahead = tuple(np.maximum(f, 0.0) for f in ahead)
            reached = self.sweep(Point(ahead, (), point.loss))
            if reached.loss < point.loss:
                return replace(reached, previous=point.factors, momentum=min(step * 1.15, 0.98))
            point = replace(point, momentum=0.5 * step)
        return replace(self.sweep(point), previous=point.factors)

    def _equations(self, factors: Sequence[Array], mode: int) -> tuple[Array, Array]:
        """Matrices (d, rank, rank) and right-hand sides (rank, d) of one mode."""
        rank, d = factors[mode].shape
        right = self.observed.values.products(factors).mttkrp(mode)
        first, second = np.triu_indices(rank)
        columns = np.empty((len(first), d))
        for start in range(0, len(first), _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            pairs = [f[first[part]] * f[second[part]] for f in factors]
            columns[part] = self.observed.pattern.products(pairs).mttkrp(mode)
        matrices = np.empty((d, rank, rank))
        matrices[:, first, second] = columns.T
        matrices[:, second, first] = columns.T
        return matrices, right

    def _loss(self, factors: Sequence[Array], matrices: Array, right: Array, mode: int) -> float:
        rows = factors[mode].T
        fitted = np.matmul(matrices, rows[:, :, None])[:, :, 0]
        total = self.observed.values.squared_norm
        loss = total - 2.0 * float(np.vdot(right.T, rows)) + float(np.vdot(fitted, rows))
        if loss < 1e-9 * total:
            loss = self.observed.residual(factors)
        if self.ridge:
            loss += self.ridge * sum(float(np.vdot(f, f)) for f in factors)
        return loss


def _solution(matrices: Array, right: Array, ridge: float, share: float) -> Array:
    rank = matrices.shape[1]
    # A row with fewer observations than components is held by this alone.
    lift = share * np.trace(matrices, axis1=1, axis2=2) / rank + ridge
    lifted = matrices + np.maximum(lift, 1e-300)[:, None, None] * np.eye(rank)
    try:
        rows = np.linalg.solve(lifted, right.T[:, :, None])[:, :, 0]
    except np.linalg.LinAlgError:
        rows = (np.linalg.pinv(lifted, hermitian=True) @ right.T[:, :, None])[:, :, 0]
    return np.ascontiguousarray(rows.T)


def _nonnegative_solution(matrices: Array, right: Array, factor: Array) -> Array:
    rows = np.maximum(factor, 0.0)
    for _ in range(_PASSES):
        for j in range(rows.shape[0]):
            diagonal = matrices[:, j, j]
            slope = right[j] - np.einsum("dl,ld->d", matrices[:, j, :], rows)
            move = np.divide(slope, diagonal, out=np.zeros_like(slope), where=diagonal > 0)
            rows[j] = np.maximum(rows[j] + move, 0.0)
    return rows


def annealed(
    observed: Observed, factors: Sequence[Array], modes: tuple[int, ...], nonnegative: bool
) -> Point:
    """Sweeps under a ridge that falls from strong to weak, then some without it.

    The ridge is a share of the mean diagonal of each row's matrix: rows with few observations do
    not run away while the components are still wrong.
    """
    point = Point(balanced(factors), (), np.inf)
    for share in np.geomspace(1e-2, 1e-6, _RIDGES):
        sweeps = MaskedSweeps(observed, modes, 0.0, nonnegative, lift=float(share))
        for _ in range(_SWEEPS_PER_RIDGE):
            point = sweeps.sweep(point)
        point = replace(point, factors=balanced(point.factors))
    sweeps = MaskedSweeps(observed, modes, 0.0, nonnegative)
    point = replace(point, previous=None)
    for _ in range(_SWEEPS_AFTER):
        point = sweeps.extrapolated(point)
    return point


def filled(observed: Observed, factors: Sequence[Array] | None = None) -> Any:
    """Observed entries with those of a model, or their mean, in place of the others.

    A sparse tensor is left as it is, with zeros for what was not observed.
    """
    values, pattern = observed.values, observed.pattern
    if not (isinstance(values, DenseProblem) and isinstance(pattern, DenseProblem)):
        return values.tensor
    if factors is None:
        mean = values.tensor.sum() / pattern.tensor.sum()
        return values.tensor + (1.0 - pattern.tensor) * mean
    model = values.tensor - values.residual(factors)
    return np.where(pattern.tensor > 0, values.tensor, model)
