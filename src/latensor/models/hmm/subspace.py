"""The directions in which symbols tell about their neighbours, from pairs at several distances."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from latensor.arrays.threads import one_blas_thread
from latensor.moments.sequences import DECAYS, Pairs

# A symbol seen fewer times than this is not scaled up further: two rare symbols that met once
# would look like a law.
_RARE = 10.0
# Up to so many symbols all singular values are computed.
_DENSE = 512


@dataclass(frozen=True)
class SymbolSubspace:
    """Features of the symbols that the moments of sequences are taken along.

    Attributes
    ----------
    features : (d, r) scaled and centred, by decreasing signal
    spectra : (decays, m) leading singular values of the scaled pair tables, one table per decay,
        over the edge of their noise: above 1 a direction is more than chance
    """

    features: Any
    spectra: Any

    def strength(self, n_components: int) -> float:
        """The weakest of the directions that so many states need, over the edge of its noise."""
        if n_components == 1:
            return np.inf
        if self.spectra.shape[1] < n_components - 1:
            return 0.0
        return float(self.spectra[:, n_components - 2].max())


def find_subspace(pairs: Pairs, rank: int) -> SymbolSubspace:
    """The leading directions of D (N_g - f f') D over all decays g, D = diag(f)^-1/2.

    N_g is the table of pairs, averaged over distances with the weights g^(s-1) of a window that
    forgets at rate g, and f the frequencies. Under no dependence its entries have the variance of
    the average, whatever the symbols, so that the tables are added in units of their noise.

    Parameters
    ----------
    pairs : counts at several distances
    rank : int, directions to keep
    """
    d = len(pairs.counts)
    frequency = pairs.counts / max(pairs.n_rows, 1.0)
    scale = 1 / np.sqrt(frequency + _RARE / max(pairs.n_rows, 1.0))
    n_seen = int((frequency > 0).sum())
    tables = [_scaled_table(pairs, decay, scale) for decay in DECAYS]
    count = min(n_seen - 1, rank + 2)
    with one_blas_thread():
        edge = 2 * np.sqrt(max(n_seen, 1))
        spectra = np.array([_singular_values(table, count) / edge for table in tables])
        basis = _leading(tables, d, min(rank, max(n_seen - 1, 0)))
    features = scale[:, None] * basis
    return SymbolSubspace(features - frequency @ features, spectra)


@dataclass(frozen=True)
class _Table:
    """A (d, d) matrix minus a product of two vectors, scaled by a number."""

    matrix: Any
    left: Any
    right: Any
    factor: float

    def times(self, other: Any) -> Any:
        return self.factor * (self.matrix @ other - np.outer(self.left, self.right @ other))

    def transposed_times(self, other: Any) -> Any:
        return self.factor * (self.matrix.T @ other - np.outer(self.right, self.left @ other))

    def dense(self) -> Any:
        full = self.matrix.toarray() if scipy.sparse.issparse(self.matrix) else self.matrix
        return self.factor * (full - np.outer(self.left, self.right))


def _scaled_table(pairs: Pairs, decay: float, scale: Any) -> _Table:
    lags = sorted(pairs.tables)
    weights = _lag_weights(lags, decay)
    totals = {lag: float(pairs.tables[lag].sum()) for lag in lags}
    used = [lag for lag in lags if weights[lag] > 0 and totals[lag] > 0]
    mass = sum(weights[lag] for lag in used) or 1.0
    matrix: Any = 0.0
    for lag in used:
        matrix = matrix + pairs.tables[lag] * (weights[lag] / mass / totals[lag])
    if not used:
        matrix = np.zeros((len(scale), len(scale)))
    variance = sum((weights[lag] / mass) ** 2 / totals[lag] for lag in used)
    rows, columns = np.asarray(matrix.sum(axis=1)), np.asarray(matrix.sum(axis=0))
    if scipy.sparse.issparse(matrix):
        diagonal = scipy.sparse.diags_array(scale)
        scaled = (diagonal @ matrix @ diagonal).tocsr()
    else:
        scaled = matrix * np.outer(scale, scale)
    return _Table(scaled, scale * rows, scale * columns, 1 / np.sqrt(variance) if used else 0.0)


def _lag_weights(lags: list[int], decay: float) -> dict[int, float]:
    """What a window that forgets at rate `decay` gives to the distances near each of a few."""
    if decay == 0:
        return {lag: float(lag == 1) for lag in lags}
    edges = [0.5, *((a + b) / 2 for a, b in itertools.pairwise(lags)), lags[-1] + 0.5]
    mass = [decay**low - decay**high for low, high in itertools.pairwise(edges)]
    return dict(zip(lags, mass, strict=True))


def _singular_values(table: _Table, count: int) -> Any:
    d = len(table.left)
    if count <= 0:
        return np.zeros(0)
    if d <= _DENSE:
        return np.linalg.svd(table.dense(), compute_uv=False)[:count]

    def product(v: Any) -> Any:
        return table.transposed_times(table.times(v))

    return np.sqrt(np.maximum(_eigenpairs(product, d, count, 1e-6)[0], 0.0))


def _eigenpairs(product: Callable[[Any], Any], d: int, count: int, tol: float) -> tuple[Any, Any]:
    """Of a symmetric map of columns (d, 1) the largest eigenvalues (r,) and vectors (d, r)."""
    start = np.random.default_rng(0).standard_normal(d)
    if not product(start[:, None]).any():
        # No pairs, or independent ones: ARPACK takes no map that is zero.
        return np.zeros(count), np.eye(d, count)
    operator = scipy.sparse.linalg.LinearOperator(
        (d, d), matvec=lambda v: product(v.reshape(-1, 1)).ravel(), dtype=np.float64
    )
    values, vectors = scipy.sparse.linalg.eigsh(operator, k=count, v0=start, tol=tol)
    return values[::-1], vectors[:, ::-1]


def _leading(tables: list[_Table], d: int, rank: int) -> Any:
    """The `rank` leading eigenvectors of the sum of T T' + T' T over all tables."""
    if rank == 0:
        return np.zeros((d, 0))
    if d <= _DENSE:
        full = [table.dense() for table in tables]
        gram = sum((t @ t.T + t.T @ t for t in full), np.zeros((d, d)))
        vectors = np.linalg.eigh(gram)[1][:, ::-1][:, :rank]
    else:

        def product(v: Any) -> Any:
            both = (t.times(t.transposed_times(v)) + t.transposed_times(t.times(v)) for t in tables)
            return sum(both)

        vectors = _eigenpairs(product, d, rank, 1e-8)[1]
    largest = np.argmax(np.abs(vectors), axis=0)
    return vectors * np.where(vectors[largest, np.arange(rank)] < 0, -1.0, 1.0)
