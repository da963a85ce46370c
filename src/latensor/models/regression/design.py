"""Tensor-valued rows as regression sees them: contracted with factors, never unfolded or copied.

Rows are centred, multiplied by the square roots of their weights and divided by one common scale:
a scale per entry would destroy the low rank of the weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.second import CrossCovariance

# Bytes of rows that are worked on together.
_BLOCK = 2**19


class Design:
    """What a fit asks of rows X (m, d_1, .., d_N), with D = d_1 .. d_N."""

    dims: tuple[int, ...]
    n_rows: int
    roots: Array | None  # square roots of the weights of rows, None for ones

    @property
    def split(self) -> int:
        """Modes before it form one group, the others a second: see `half`."""
        return 1

    def half(self, factors: Sequence[Array], mode: int, *, columns: bool) -> Any:
        """X contracted with the group of modes that `mode` is not in; None where rows are sparse.

        All modes of a group share it, so that a sweep over N modes reads X twice, not N times.

        Parameters
        ----------
        factors : N matrices (d_k, R_k)
        mode : int
        columns : bool, column by column (Khatri-Rao), else all with all (Kronecker)
        """
        return None

    def by_columns(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        """(m, d_mode, R): X contracted in all other modes, column by column (Khatri-Rao)."""
        raise NotImplementedError

    def by_all(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        """(m, R_1, .., d_mode, .., R_N): X contracted with all other factors (Kronecker)."""
        raise NotImplementedError

    def cross(self, targets: Array) -> Array:
        """X' Y (D, q)."""
        raise NotImplementedError

    def applied(self, weights: Array) -> Array:
        """X W (m, q) of weights (D, q)."""
        raise NotImplementedError

    @cached_property
    def mode_covariances(self) -> list[Array]:
        """(d, d) of every mode: the average of x x' over its fibres."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class DenseDesign(Design):
    """Rows in one contiguous array (m, d_1, .., d_N), centred and scaled."""

    rows: Array
    roots: Array | None = None

    @cached_property
    def dims(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(self.rows.shape[1:])

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return int(self.rows.shape[0])

    @cached_property
    def split(self) -> int:
        # The smallest intermediates: entries of X contracted with the one and the other group.
        order = range(1, len(self.dims))
        return min(order, key=lambda s: math.prod(self.dims[:s]) + math.prod(self.dims[s:]))

    def half(self, factors: Sequence[Array], mode: int, *, columns: bool) -> Array:
        s, m = self.split, self.n_rows
        first, second = self.dims[:s], self.dims[s:]
        rows = self.rows.reshape(m, math.prod(first), math.prod(second))
        joined = _joined(factors[s:] if mode < s else factors[:s], columns)
        # A product per row of X: BLAS is slow where one matrix is long and the other thin.
        if mode < s:
            ranks = joined.shape[1:]
            product = rows @ np.ascontiguousarray(joined.reshape(len(joined), -1))
            return product.reshape(m, *first, *ranks)
        ranks = joined.shape[1:]
        product = np.matmul(np.ascontiguousarray(joined.reshape(len(joined), -1).T), rows)
        return product.reshape(m, *ranks, *second)

    def by_columns(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        s = self.split
        left = self.half(factors, mode, columns=True) if half is None else half
        if mode < s:  # (m, d_1, .., d_s, R)
            for k in range(s - 1, mode, -1):
                left = np.einsum("...ir,ir->...r", left, factors[k])
            for k in range(mode):
                left = np.einsum("ni...r,ir->n...r", left, factors[k])
            return left
        for k in range(s, mode):  # (m, R, d_{s+1}, .., d_N)
            left = np.einsum("nri...,ir->nr...", left, factors[k])
        for k in range(len(self.dims) - 1, mode, -1):
            left = np.einsum("nr...i,ir->nr...", left, factors[k])
        return np.ascontiguousarray(left.transpose(0, 2, 1))

    def by_all(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        s = self.split
        left = self.half(factors, mode, columns=False) if half is None else half
        for k in range(s) if mode < s else range(s, len(self.dims)):
            if k != mode:
                left = np.moveaxis(np.tensordot(left, factors[k], axes=(k + 1, 0)), -1, k + 1)
        return left

    def cross(self, targets: Array) -> Array:
        return self.rows.reshape(self.n_rows, -1).T @ targets

    def applied(self, weights: Array) -> Array:
        return self.rows.reshape(self.n_rows, -1) @ weights

    @cached_property
    def mode_covariances(self) -> list[Array]:
        found = [np.zeros((d, d)) for d in self.dims]
        for at in _blocks(self.rows):
            block = self.rows[at]
            for k, d in enumerate(self.dims):
                if k == len(self.dims) - 1:
                    fibres = block.reshape(-1, d).T
                else:
                    fibres = np.moveaxis(block, k + 1, 0).reshape(d, -1)
                found[k] += fibres @ fibres.T
        return [sums * (d / self.rows.size) for sums, d in zip(found, self.dims, strict=True)]


def _blocks(rows: Array) -> Iterator[slice]:
    """Groups of rows that fit into a cache: what is done to them twice is read once."""
    count = max(1, _BLOCK // max(rows[:1].nbytes, 1))
    return (slice(k, k + count) for k in range(0, len(rows), count))


def _joined(factors: Sequence[Array], columns: bool) -> Array:
    """Khatri-Rao product (d_1 .. d_s, R) of factors, or Kronecker product (.., R_1, .., R_s)."""
    found = factors[0]
    for factor in factors[1:]:
        if columns:
            found = (found[:, None, :] * factor).reshape(-1, found.shape[-1])
        else:
            outer = np.multiply.outer(found, factor)  # (.., R.., d, r)
            outer = np.moveaxis(outer, -2, 1)
            found = outer.reshape(-1, *outer.shape[2:])
    return found


@dataclass(frozen=True, eq=False)
class SparseDesign(Design):
    """Rows as stored entries; the mean is subtracted from what they are contracted to.

    Attributes
    ----------
    matrix : CSR (m, D), scaled
    shape : d_1, .., d_N
    mean : (D,), of the scaled rows; zeros where nothing is centred
    roots : (m,) square roots of the weights of rows
    """

    matrix: Any
    shape: tuple[int, ...]
    mean: Array
    roots: Array

    @property
    def dims(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.shape

    @property
    def n_rows(self) -> int:  # type: ignore[override]
        return int(self.matrix.shape[0])

    def _places(self) -> tuple[Array, tuple[Array, ...]]:
        owners = np.repeat(np.arange(self.n_rows), np.diff(self.matrix.indptr))
        return owners, np.unravel_index(self.matrix.indices, self.shape)

    def by_columns(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        owners, places = self._places()
        d, rank = self.shape[mode], factors[0 if mode else 1].shape[1]
        cells = owners * d + places[mode]
        average = self.mean.reshape(self.shape)
        found = np.empty((self.n_rows, d, rank))
        for r in range(rank):
            values = self.matrix.data.copy()
            middle = average
            for k in range(len(self.shape) - 1, -1, -1):
                if k != mode:
                    values *= factors[k][places[k], r]
                    middle = np.tensordot(middle, factors[k][:, r], axes=(k, 0))
            sums = np.bincount(cells, weights=values, minlength=self.n_rows * d)
            found[:, :, r] = sums.reshape(self.n_rows, d) - middle
        return found * self.roots[:, None, None]

    def by_all(self, factors: Sequence[Array], mode: int, half: Any = None) -> Array:
        others = [k for k in range(len(self.shape)) if k != mode]
        ranks = [factors[k].shape[1] for k in others]
        chosen = np.unravel_index(np.arange(math.prod(ranks)), ranks)
        columns = list(factors)
        for k, index in zip(others, chosen, strict=True):
            columns[k] = factors[k][:, index]
        left = self.by_columns(columns, mode)
        left = left.reshape(self.n_rows, self.shape[mode], *ranks)
        return np.moveaxis(left, 1, mode + 1)

    def cross(self, targets: Array) -> Array:
        weighted = targets * self.roots[:, None]
        return np.asarray(self.matrix.T @ weighted) - np.outer(self.mean, weighted.sum(axis=0))

    def applied(self, weights: Array) -> Array:
        return (np.asarray(self.matrix @ weights) - self.mean @ weights) * self.roots[:, None]

    @cached_property
    def mode_covariances(self) -> list[Array]:
        return [self._mode_covariance(mode) for mode in range(len(self.shape))]

    def _mode_covariance(self, mode: int) -> Array:
        owners, places = self._places()
        d, n_fibres = self.shape[mode], self.n_rows * self.matrix.shape[1] // self.shape[mode]
        rest = owners
        for k, place in enumerate(places):
            if k != mode:
                rest = rest * self.shape[k] + place
        values = self.matrix.data * self.roots[owners]
        _, rest = np.unique(rest, return_inverse=True)
        fibres = scipy.sparse.csr_array((values, (places[mode], rest)))
        fibres.resize((d, fibres.shape[1]))
        plain = np.asarray((fibres @ fibres.T).todense()) / n_fibres
        average = np.moveaxis(self.mean.reshape(self.shape), mode, 0).reshape(d, -1)
        return plain - average @ average.T * float(self.roots @ self.roots) / n_fibres


@dataclass(frozen=True, eq=False)
class Regression:
    """Rows and targets ready to be fitted, and how to come back from them.

    Attributes
    ----------
    design : Design, of scaled rows
    targets : (m, q), centred, multiplied by the roots of the weights, of mean square one
    rest : float, squares of the targets that no weights explain: lost when rows were reduced
    n_samples : float, how many samples the rows stand for
    x_mean, y_mean : (D,) and (q,), zeros where there is no intercept
    x_scale, y_scale : float, by which rows and targets were divided
    """

    design: Design
    targets: Array
    rest: float
    n_samples: float
    x_mean: Array
    y_mean: Array
    x_scale: float
    y_scale: float

    @property
    def n_outputs(self) -> int:
        """The number q of targets of a row."""
        return int(self.targets.shape[1])

    @property
    def total(self) -> float:
        """The sum of squares of the targets."""
        return float((self.targets**2).sum()) + self.rest


def _scale(mean_square: float) -> float:
    return math.sqrt(mean_square) if mean_square > 0 else 1.0


def _canonical(rows: Any) -> Any:
    """Sparse rows in double precision, no entry stored twice; the caller's stay as they are."""
    matrix = scipy.sparse.csr_array(rows, dtype=np.float64)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    return matrix


def regression_of_rows(
    rows: Any, targets: Array, weights: Array, dims: tuple[int, ...], *, intercept: bool
) -> Regression:
    """Rows (n, D), dense or CSR, as they are.

    Parameters
    ----------
    rows : (n, D) array or CSR matrix
    targets : (n, q)
    weights : (n,), above zero
    dims : d_1, .., d_N
    intercept : bool, whether to subtract the means
    """
    total, size, roots = float(weights.sum()), math.prod(dims), np.sqrt(weights)
    targets = np.asarray(targets, dtype=np.float64)
    y_mean = weights @ targets / total if intercept else np.zeros(targets.shape[1])
    squares = float(weights @ ((targets - y_mean) ** 2).sum(axis=1))
    y_scale = _scale(squares / (total * targets.shape[1]))
    centred = (targets - y_mean) * roots[:, None]
    design: Design
    if scipy.sparse.issparse(rows):
        matrix = _canonical(rows)
        x_mean = np.asarray(matrix.T @ weights) / total if intercept else np.zeros(size)
        squares = float(weights @ np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        x_scale = _scale((squares - total * float(x_mean @ x_mean)) / (total * size))
        design = SparseDesign(matrix / x_scale, dims, x_mean / x_scale, roots)
    else:
        x_mean = weights @ rows / total if intercept else np.zeros(size)
        values, squares = np.empty(rows.shape), 0.0
        for at in _blocks(rows):
            own = np.subtract(rows[at], x_mean, out=values[at])
            squares += float(weights[at] @ np.einsum("ij,ij->i", own, own))
        x_scale = _scale(squares / (total * size))
        values *= (roots / x_scale)[:, None]
        design = DenseDesign(values.reshape(-1, *dims), roots)
    return Regression(design, centred / y_scale, 0.0, total, x_mean, y_mean, x_scale, y_scale)


def scaled_design(rows: Any, dims: tuple[int, ...], mean: Array, scale: float) -> Design:
    """Rows (n, D), dense or CSR, less a mean (D,) and divided by a scale."""
    if scipy.sparse.issparse(rows):
        matrix = _canonical(rows)
        return SparseDesign(matrix / scale, dims, mean / scale, np.ones(matrix.shape[0]))
    values = np.asarray(rows - mean, dtype=np.float64)
    values /= scale
    return DenseDesign(np.ascontiguousarray(values).reshape(-1, *dims))


def regression_of_moments(
    known: CrossCovariance, dims: tuple[int, ...], *, intercept: bool
) -> Regression:
    """At most D rows with the covariances of all samples: every later cost is free of their number.

    With G = E[x x'] and c = E[x y'], centred where there is an intercept, the rows are n^1/2 L'
    of G = L L' and their targets n^1/2 L^-1 c.
    """
    n, size = known.weight, math.prod(dims)
    x_mean, y_mean = known.x_mean, known.y_mean
    gram, cross = known.x_covariance, known.cross_covariance
    spread = np.diagonal(known.y_covariance)
    if not intercept:
        gram, cross = gram + np.outer(x_mean, x_mean), cross + np.outer(x_mean, y_mean)
        spread = spread + y_mean**2
        x_mean, y_mean = np.zeros_like(x_mean), np.zeros_like(y_mean)
    x_scale = _scale(float(np.trace(gram)) / size)
    y_scale = _scale(float(spread.mean()))
    gram, cross = gram / x_scale**2 * n, cross / (x_scale * y_scale) * n
    try:
        root = np.linalg.cholesky(gram)
        rows, targets = root.T, scipy.linalg.solve_triangular(root, cross, lower=True)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(gram)
        kept = values > np.finfo(float).eps * size * max(values[-1], 0.0)
        roots = np.sqrt(values[kept])
        rows, targets = roots[:, None] * vectors[:, kept].T, vectors[:, kept].T @ cross
        targets = targets / roots[:, None]
    if not len(rows):
        rows, targets = np.zeros((1, size)), np.zeros((1, cross.shape[1]))
    rest = max(float(spread.sum()) / y_scale**2 * n - float((targets**2).sum()), 0.0)
    design = DenseDesign(np.ascontiguousarray(rows).reshape(-1, *dims))
    return Regression(design, targets, rest, n, x_mean, y_mean, x_scale, y_scale)
