"""Separate components by generalized eigenspaces of slices, one pencil after another.

A pencil (M_x, M_y) of slices M_x = A diag(.) B' has one eigenvalue per component. Where some lie
close, only the space they span together is well determined: it is split off whole, by the QZ
algorithm, and the slices restricted to it are separated by another pencil.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays.subspace import real_columns

# Eigenvalues nearer than this over their number count as one group, and the least such distance.
_CLOSE = 0.1


def separate(slices: Any, rng: np.random.Generator, n_pencils: int) -> Any:
    """The (n, n) factor A of slices C[:, :, i] = A diag(c_i) B', with unit columns.

    Parameters
    ----------
    slices : (n, n, q) array; where q is 1 or all pencils are defective, the columns are a best
        effort for a least-squares fit to improve
    rng : draws the pencils
    n_pencils : int, of which the one with the best separated eigenvalues is used
    """
    size, _, count = slices.shape
    if size == 1:
        return np.ones((1, 1), dtype=slices.dtype)
    if count == 1:
        return np.linalg.svd(slices[:, :, 0])[0]
    pencils = [_draw(slices, rng) for _ in range(n_pencils if count > 2 else 1)]
    pencil = max(pencils, key=lambda p: p.quality)
    columns: list[Any] = []
    for group in pencil.groups:
        if len(group) == 1:
            columns.append(_image(slices, pencil.vector(group[0]), 1))
        elif len(group) == size:
            columns.append(_best_effort(slices, pencil))
        else:
            space = pencil.space(group)
            image = _image(slices, space, len(group))
            inner = np.einsum("abi,ac,bd->cdi", slices, image.conj(), space, optimize=True)
            columns.append(image @ separate(inner, rng, n_pencils))
    return np.hstack(columns)


def _image(slices: Any, space: Any, width: int) -> Any:
    """The leading directions to which all slices send a space, as (n, width)."""
    sent = np.tensordot(slices, space, axes=(1, 0)).reshape(slices.shape[0], -1)
    return np.linalg.svd(sent, full_matrices=False)[0][:, :width]


@dataclass(frozen=True)
class _Pencil:
    """Two slices, their eigenvalues as points (alpha, beta) of unit length, vectors and groups."""

    first: Any
    second: Any
    points: Any
    vectors: Any
    groups: list[list[int]]
    quality: tuple[float, float]

    def vector(self, index: int) -> Any:
        """The eigenvector of a simple eigenvalue, as a column."""
        column = self.vectors[:, [index]]
        return column if self.first.dtype.kind == "c" else column.real

    def space(self, group: list[int]) -> Any:
        """An orthonormal basis of the right deflating subspace of a group of eigenvalues."""
        kind = "complex" if self.first.dtype.kind == "c" else "real"

        def belongs(alpha: Any, beta: Any) -> Any:
            points = _points(np.asarray(alpha), np.asarray(beta))
            nearest = np.argmin(_distances(points, self.points), axis=1)
            return np.isin(nearest, group)

        try:
            right = scipy.linalg.ordqz(self.first, self.second, sort=belongs, output=kind)[5]
        except (ValueError, np.linalg.LinAlgError):
            # Reordering a nearly singular pencil can fail; the eigenvectors span the same space.
            right = np.linalg.svd(self._spanning(group), full_matrices=False)[0]
        return right[:, : len(group)]

    def _spanning(self, group: list[int]) -> Any:
        vectors = self.vectors[:, group]
        if self.first.dtype.kind == "c":
            return vectors
        return np.hstack([vectors.real, vectors.imag])


def _draw(slices: Any, rng: np.random.Generator) -> _Pencil:
    """One random pencil, with its eigenvalues grouped."""
    size, _, count = slices.shape
    pair = rng.standard_normal((count, 2))
    if slices.dtype.kind == "c":
        pair = pair + 1j * rng.standard_normal((count, 2))
    first, second = np.moveaxis(slices @ np.linalg.qr(pair)[0], 2, 0)
    (alpha, beta), vectors = scipy.linalg.eig(
        first, second, homogeneous_eigvals=True, check_finite=False
    )
    points = _points(alpha, beta)
    distances = _distances(points, points)
    np.fill_diagonal(distances, np.inf)
    bond = np.eye(size, dtype=bool)
    if slices.dtype.kind != "c":
        conjugates = _distances(points, points.conj())
        complex_ones = np.abs(points[0] * points[1].conj() - points[0].conj() * points[1]) > 1e-14
        partner = np.argmin(conjugates, axis=1)
        for index in np.flatnonzero(complex_ones):
            bond[index, partner[index]] = bond[partner[index], index] = True
    limit = _CLOSE / size
    groups = _connected(bond | (distances < limit))
    while len(groups) == 1 and limit > np.finfo(float).eps:
        limit /= 4
        groups = _connected(bond | (distances < limit))
    quality = (-float(max(len(group) for group in groups)), float(distances.min()))
    return _Pencil(first, second, points, vectors, groups, quality)


def _points(alpha: Any, beta: Any) -> Any:
    """Eigenvalues alpha / beta as pairs of unit length; (0, 0), undetermined, stays."""
    points = np.stack([alpha, beta]).astype(complex)
    norms = np.sqrt((np.abs(points) ** 2).sum(axis=0))
    return points / np.where(norms > 0, norms, 1.0)


def _distances(points: Any, others: Any) -> Any:
    """Chordal distances |alpha1 beta2 - alpha2 beta1|, finite for infinite eigenvalues too."""
    return np.abs(points[0][:, None] * others[1] - points[1][:, None] * others[0])


def _connected(bond: Any) -> list[list[int]]:
    """The groups that a symmetric relation connects, by first member."""
    groups: list[list[int]] = []
    seen: set[int] = set()
    for start in range(bond.shape[0]):
        if start in seen:
            continue
        group, frontier = {start}, [start]
        while frontier:
            fresh = set(np.flatnonzero(bond[frontier.pop()]).tolist()) - group
            group |= fresh
            frontier += sorted(fresh)
        seen |= group
        groups.append(sorted(group))
    return groups


def _best_effort(slices: Any, pencil: _Pencil) -> Any:
    """Columns for components that no pencil tells apart, or that are complex in a real tensor."""
    vectors = pencil.vectors
    if slices.dtype.kind != "c":
        vectors = real_columns(vectors)
    columns = [_image(slices, vectors[:, [j]], 1) for j in range(vectors.shape[1])]
    return np.hstack(columns)
