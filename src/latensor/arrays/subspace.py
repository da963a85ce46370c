"""Leading singular triplets and eigenpairs from products alone, to a tolerance.

Block Lanczos with thick restarts needs the square root of the iterations of plain power
iterations; its blocks find repeated values, and it stops by its own residual.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import array_api_compat
import numpy as np
import scipy.linalg

from latensor.arrays.library import (
    Array,
    Namespace,
    is_complex,
    is_numpy,
    machine_epsilon,
    real_dtype,
)
from latensor.arrays.linear_map import LinearMap, conjugate_transpose
from latensor.arrays.randomness import standard_normal
from latensor.exceptions import ConvergenceWarning, InvalidInputError

_MAX_CYCLES = 100
_MAX_ROUNDS = 8


class Triplets(NamedTuple):
    """Leading singular triplets: M V = U diag(s)."""

    left: Array
    values: Array
    right: Array


def orthonormal(block: Array, passes: int = 2) -> Array:
    """An orthonormal basis that spans the columns of a tall block; columns beyond its rank are
    orthonormal too. One pass instead of two may leave half of the digits.
    """
    return _tall_qr(block, passes)[0]


def _tall_qr(block: Array, passes: int = 2) -> tuple[Array, Array]:
    if is_numpy(block) and block.shape[0] >= 4 * block.shape[1]:
        found = _cholesky_qr(block, passes)
        if found is not None:
            return found
    basis, triangle = namespace(block).linalg.qr(block)
    return basis, triangle


def _cholesky_qr(block: Any, passes: int) -> tuple[Any, Any] | None:
    """QR by two Cholesky factorizations, several times faster than Householder's on tall blocks.

    None where the columns are too dependent for it.
    """
    norms = np.linalg.norm(block, axis=0)
    if not (norms > 0).all():
        return None
    basis, triangle = block / norms, np.diag(norms).astype(block.dtype)
    least = np.finfo(block.dtype).eps ** 0.4
    identity = np.eye(block.shape[1], dtype=block.dtype)
    (potrf,) = scipy.linalg.get_lapack_funcs(("potrf",), (block,))
    for _ in range(passes):
        factor, failed = potrf(basis.conj().T @ basis, lower=False, clean=True)
        if failed or factor.diagonal().real.min() < least:
            return None
        basis = basis @ scipy.linalg.solve_triangular(factor, identity, check_finite=False)
        triangle = factor @ triangle
    return basis, triangle


def _tall_svd(block: Array) -> Triplets:
    basis, triangle = _tall_qr(block)
    left, values, right = thin_svd(triangle)
    return Triplets(basis @ left, values, right)


def namespace(array: Array) -> Namespace:
    """The namespace of one array."""
    return array_api_compat.array_namespace(array)


def _extend(basis: Array, block: Array) -> Array:
    """An orthonormal block, orthogonal to `basis`, that spans `block` beyond it."""
    # Where `basis` all but contains the block, what is left after a round is rounding, and again
    # mostly inside: rounds go on until an orthonormal block had little left to take away.
    xp = namespace(basis)
    room = basis.shape[0] - basis.shape[1]
    block = block[:, : min(room, block.shape[1])]
    adjoint = conjugate_transpose(basis)
    for attempt in range(_MAX_ROUNDS):
        inside = adjoint @ block
        block = orthonormal(block - basis @ inside, passes=2 if attempt else 1)
        if attempt and float(xp.max(xp.abs(inside))) < 0.1:
            break
    return block


def _tolerance(reference: Array) -> float:
    return float(machine_epsilon(reference) ** 0.7)


def _warn_above(limit: float, residual: float, rank: int) -> None:
    # The values have an error of the square of the residual, so that a small one is no harm.
    if residual > limit:
        warnings.warn(
            f"the {rank} leading directions have a relative residual of {residual:.1e} after "
            f"{_MAX_CYCLES} cycles, above {limit:.1e}: the values beyond the last one asked for "
            "are too close to it; choose the rank at a gap of the spectrum",
            ConvergenceWarning,
            stacklevel=4,
        )


class _SingularProblem:
    """The singular triplets of M as Krylov's method sees them: directions on the right side."""

    def __init__(self, linear_map: LinearMap) -> None:
        self.apply = linear_map.matmul
        self._adjoint = linear_map.adjoint_matmul

    def follow(self, image: Array) -> Array:
        """The next block of the Krylov space; orthonormalized halfway, so that small singular
        values are not squared away.
        """
        return self._adjoint(orthonormal(image, passes=1))

    def ritz(self, basis: Array, images: Array, kept: int) -> _Ritz:
        """The best triplets with right vectors in the span of `basis`."""
        left, values, coefficients = _tall_svd(images)
        left, values = left[:, :kept], values[:kept]
        return _Ritz(values, basis @ coefficients[:, :kept], left * values, left)


class _EigenProblem:
    """The eigenpairs of a Hermitian A as Krylov's method sees them."""

    def __init__(self, linear_map: LinearMap, name: str) -> None:
        self.apply = linear_map.matmul
        self._name = name
        self._tolerance = _tolerance(linear_map.reference)

    def follow(self, image: Array) -> Array:
        """The next block of the Krylov space."""
        return image

    def ritz(self, basis: Array, images: Array, kept: int) -> _Ritz:
        """The best eigenpairs with vectors in the span of `basis`."""
        xp = namespace(basis)
        small = conjugate_transpose(basis) @ images
        adjoint = conjugate_transpose(small)
        scale, skew = float(xp.max(xp.abs(small))), float(xp.max(xp.abs(small - adjoint)))
        if skew > 1e3 * self._tolerance * scale:
            raise InvalidInputError(
                f"{self._name} must be symmetric (Hermitian where complex): "
                f"its asymmetry is {skew / scale:.1e} of its largest product"
            )
        values, coefficients = xp.linalg.eigh((small + adjoint) / 2)
        order = by_magnitude(values)[:kept]
        values, coefficients = values[order], coefficients[:, order]
        vectors = basis @ coefficients
        return _Ritz(values, vectors, images @ coefficients, vectors)


class _Ritz(NamedTuple):
    """Approximate values and vectors, the products of the vectors, and their partners, whose
    products with the next block are the residuals.
    """

    values: Array
    vectors: Array
    images: Array
    partners: Array


def _krylov(
    problem: _SingularProblem | _EigenProblem,
    dimension: int,
    rank: int,
    width: int,
    reference: Array,
    rng: np.random.Generator,
    max_cycles: int = _MAX_CYCLES,
) -> _Ritz:
    """Block Lanczos with thick restarts and full orthogonalization.

    The basis grows block by block to twice its kept `width`, is compressed to the `width` best
    vectors, and goes on from the block that would have come next. All residuals lie in that
    block, so that the test for convergence costs no products.
    """
    xp = namespace(reference)
    block_size = max(width - rank, 2)
    capacity = 2 * width + 2 * block_size
    if dimension < capacity + 2 * block_size:
        # So small a problem is solved exactly by filling the basis.
        capacity = dimension
    start = standard_normal(rng, (dimension, min(block_size, dimension)), reference)
    basis = orthonormal(start)
    images = last = problem.apply(basis)
    tolerance = _tolerance(reference)
    previous = np.inf
    for _ in range(max_cycles):
        while basis.shape[1] < capacity:
            block = _extend(basis, problem.follow(last))
            last = problem.apply(block)
            basis, images = xp.concat([basis, block], axis=1), xp.concat([images, last], axis=1)
        found = problem.ritz(basis, images, min(width, dimension))
        if basis.shape[1] == dimension:
            return found
        block = _extend(basis, problem.follow(last))
        last = problem.apply(block)
        coupling = conjugate_transpose(last) @ found.partners[:, :rank]
        residual = float(xp.max(column_norms(coupling)))
        largest = float(xp.abs(found.values[0]))
        if residual <= tolerance * largest:
            return found
        if max_cycles < _MAX_CYCLES and residual > 0.03 * previous:
            break
        previous = residual
        basis = xp.concat([found.vectors, block], axis=1)
        images = xp.concat([found.images, last], axis=1)
    if max_cycles < _MAX_CYCLES:
        raise NotConvergedError
    _warn_above(machine_epsilon(reference) ** 0.5, residual / largest, rank)
    return found


class NotConvergedError(Exception):
    """The iterations allowed were not enough: the caller has another way."""


def krylov_triplets(
    linear_map: LinearMap,
    rank: int,
    width: int,
    rng: np.random.Generator,
    max_cycles: int = _MAX_CYCLES,
) -> Triplets:
    """The `width` leading singular triplets of a map, of which the first `rank` have converged
    to a residual of eps^0.7 of the largest value.

    Parameters
    ----------
    linear_map : LinearMap of shape (n, m)
    rank : int
    width : int, the vectors carried; the difference to `rank` is the size of a block
    rng : Generator that draws the start
    max_cycles : int, restarts allowed; fewer than the default raise NotConvergedError
    """
    rows, columns = linear_map.shape
    if columns > rows:
        swapped = krylov_triplets(linear_map.adjoint(), rank, width, rng, max_cycles)
        return Triplets(swapped.right, swapped.values, swapped.left)
    problem = _SingularProblem(linear_map)
    found = _krylov(problem, columns, rank, width, linear_map.reference, rng, max_cycles)
    return Triplets(found.partners, found.values, found.vectors)


def krylov_eigenpairs(
    linear_map: LinearMap, rank: int, width: int, rng: np.random.Generator, name: str
) -> tuple[Array, Array]:
    """The eigenpairs of a Hermitian map that are largest in magnitude, the first `rank` converged.

    Returns
    -------
    values (width,), vectors (d, width), in order of decreasing magnitude.
    """
    problem = _EigenProblem(linear_map, name)
    found = _krylov(problem, linear_map.shape[0], rank, width, linear_map.reference, rng)
    return found.values, found.vectors


def power_triplets(
    linear_map: LinearMap, width: int, n_iterations: int, rng: np.random.Generator
) -> Triplets:
    """The `width` leading singular triplets after a fixed number of randomized power iterations.

    Reads the matrix 2 (`n_iterations` + 1) times; each product is orthonormalized, so that small
    singular values survive.
    """
    rows, columns = linear_map.shape
    start = standard_normal(rng, (columns, min(width, rows, columns)), linear_map.reference)
    basis = orthonormal(linear_map.matmul(start))
    for _ in range(n_iterations):
        basis = orthonormal(linear_map.adjoint_matmul(basis))
        basis = orthonormal(linear_map.matmul(basis))
    return finish_triplets(linear_map, basis)


def finish_triplets(linear_map: LinearMap, left_basis: Array) -> Triplets:
    """The best triplets whose left vectors lie in the span of an orthonormal basis."""
    right, values, coefficients = _tall_svd(linear_map.adjoint_matmul(left_basis))
    return Triplets(left_basis @ coefficients, values, right)


def by_magnitude(values: Array) -> Array:
    """The order that sorts real values in decreasing magnitude."""
    xp = namespace(values)
    return xp.argsort(-xp.abs(values), stable=True)


def column_norms(block: Array) -> Array:
    """The Euclidean norm of every column."""
    xp = namespace(block)
    return xp.linalg.vector_norm(block, axis=0)


def thin_svd(matrix: Array) -> Triplets:
    """The full thin SVD of a dense matrix by LAPACK, with V as columns."""
    xp = namespace(matrix)
    try:
        left, values, adjoint = xp.linalg.svd(matrix, full_matrices=False)
    except np.linalg.LinAlgError:
        # Divide and conquer fails on rare matrices that the older QR iteration solves.
        left, values, adjoint = scipy.linalg.svd(
            matrix, full_matrices=False, lapack_driver="gesvd", check_finite=False
        )
    return Triplets(left, values, conjugate_transpose(adjoint))


def phases(vectors: Array) -> Array:
    """The factor per column that makes its largest entry real and positive.

    Entries within rounding of the largest count as largest, and the first of them decides, so
    that a tie does not leave the sign to the last bit.
    """
    xp = namespace(vectors)
    magnitudes = xp.abs(vectors)
    near = magnitudes >= xp.max(magnitudes, axis=0) * (1 - machine_epsilon(vectors) ** 0.5)
    first = xp.argmax(xp.astype(near, xp.int32), axis=0)
    columns = xp.arange(vectors.shape[1])
    entries: Any = vectors[first, columns]
    sizes = xp.abs(entries)
    one = xp.ones((), dtype=real_dtype(vectors))
    conjugate = xp.conj(entries) if is_complex(vectors) else entries
    return xp.where(sizes > 0, conjugate / xp.where(sizes > 0, sizes, one), one)


def real_columns(vectors: Array) -> Array:
    """Host columns, with real and imaginary parts in place of complex conjugate pairs."""
    if not np.iscomplexobj(vectors):
        return vectors
    result = vectors.real.copy()
    pairs = np.flatnonzero(np.abs(vectors.imag).max(axis=0) > 0)
    result[:, pairs[1::2]] = vectors.imag[:, pairs[: 2 * (len(pairs) // 2) : 2]]
    return result
