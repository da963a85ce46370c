"""Starts from eigenvectors: for graphs too small or too sparse for third moments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.refinement.em import Loop
from latensor.refinement.mixture_starts import kmeans

# Nodes up to which the adjacency is made dense, and its spectrum is exact.
_DENSE = 1500
_PASSES = 12
_EXTRA = 10
_RESTARTS = 10


def leading_eigenvectors(
    product: Callable[[Array], Array],
    n: int,
    count: int,
    rng: np.random.Generator,
    loop: Loop,
    *,
    signed: bool = False,
) -> tuple[Array, Array]:
    """Eigenvalues (k,) of largest magnitude and their vectors (n, k), by products alone.

    With `signed` the largest ones, positive first. `loop` keeps the vectors after every product.
    """
    if n <= _DENSE:
        matrix = product(np.eye(n))
        values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    else:
        begin, basis = 0, rng.standard_normal((n, count + _EXTRA))
        begin, basis = loop.state or (begin, basis)
        for number in range(begin, _PASSES):
            basis = np.linalg.qr(product(basis))[0]
            loop.commit((number + 1, basis))
        small = basis.T @ product(basis)
        values, rotation = np.linalg.eigh((small + small.T) / 2)
        vectors = basis @ rotation
    order = np.argsort(-(values if signed else np.abs(values)), kind="stable")[:count]
    return values[order], vectors[:, order]


def clustered(
    vectors: Array, k: int, rng: np.random.Generator, *, directions: bool = True
) -> Array:
    """(n,) labels of rows, or of their directions, by k-means; the tightest of ten starts."""
    rows = vectors
    if directions:
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        rows = vectors / np.maximum(norms, 1e-12 * max(float(norms.max()), 1e-300))
    ones = np.ones(len(rows))
    found = [kmeans(rows, ones, k, rng, 100) for _ in range(_RESTARTS)]

    def between(labels: Array) -> float:
        members = np.eye(k)[labels]
        squares = ((members.T @ rows) ** 2).sum(axis=1)
        return float((squares / np.maximum(members.sum(axis=0), 1)).sum())

    return max(found, key=between)


def successive_projection(values: Array, vectors: Array, k: int) -> Array:
    """Memberships (n, k) from corners of the eigenvectors, as mixed memberships have them.

    Rows of the eigenvectors lie in a simplex whose corners are pure nodes: the longest row is
    one, and the next are the longest after projection (Araujo et al. 2001). Long rows are means of
    their nearest neighbours, so that one odd node is no corner.
    """
    rows = vectors * np.abs(values)
    lengths = np.linalg.norm(rows, axis=1)
    left, corners = rows.copy(), []
    near = max(3, len(rows) // (20 * k))
    for _ in range(k):
        sizes = np.linalg.norm(left, axis=1)
        sizes[lengths < np.median(lengths) / 4] = 0.0
        top = int(np.argmax(sizes))
        close = np.argsort(((rows - rows[top]) ** 2).sum(axis=1), kind="stable")[:near]
        corner = rows[close].mean(axis=0)
        corners.append(corner)
        direction = left[close].mean(axis=0)
        size = np.linalg.norm(direction)
        if size > 0:
            left = left - np.outer(left @ direction, direction) / size**2
    found = np.maximum(rows @ np.linalg.pinv(np.array(corners)), 0.0)
    totals = found.sum(axis=1, keepdims=True)
    return np.where(totals > 0, found / np.where(totals > 0, totals, 1.0), 1 / k)


def softened(labels: Array, k: int, fraction: float = 0.9) -> Array:
    """Memberships (n, k) that are mostly those of labels."""
    found = np.full((len(labels), k), (1 - fraction) / max(k - 1, 1))
    found[np.arange(len(labels)), labels] = fraction if k > 1 else 1.0
    return found


def normalized_rows(values: Any) -> Array:
    """Rows that sum to one; equal where they are zero."""
    totals = values.sum(axis=1, keepdims=True)
    return np.where(totals > 0, values / np.where(totals > 0, totals, 1.0), 1 / values.shape[1])
