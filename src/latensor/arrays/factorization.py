"""Matrix factorizations that the array standard lacks (monograph chapter 2).

Truncated SVD, pseudo-inverse and best low-rank approximation of dense matrices of any array
library, SciPy sparse matrices and LinearOperators; leading eigenpairs by magnitude; and the
rank-safe solve of a positive semi-definite system.
"""

from __future__ import annotations

import contextlib
from typing import Literal, NamedTuple, TypeAlias

import array_api_compat
import numpy as np
import scipy.linalg

from latensor.arrays.checks import check_positive_int
from latensor.arrays.gradients import requires_gradient
from latensor.arrays.guests import with_guests
from latensor.arrays.library import (
    Array,
    is_numpy,
    is_traced,
    machine_epsilon,
    to_host,
)
from latensor.arrays.linear_map import (
    DenseMap,
    LinearMap,
    OperatorMap,
    SparseMap,
    as_linear_map,
    conjugate_transpose,
)
from latensor.arrays.positive import solve_positive
from latensor.arrays.randomness import RandomState, generator
from latensor.arrays.subspace import (
    NotConvergedError,
    Triplets,
    by_magnitude,
    column_norms,
    finish_triplets,
    krylov_eigenpairs,
    krylov_triplets,
    orthonormal,
    phases,
    power_triplets,
    thin_svd,
)
from latensor.arrays.svd_gradient import followed_triplets
from latensor.exceptions import InvalidInputError

__all__ = [
    "SVD",
    "Eigenpairs",
    "leading_eigenpairs",
    "low_rank_approximation",
    "pseudo_inverse",
    "solve_positive",
    "svd_with_next",
    "truncated_svd",
]

Method: TypeAlias = Literal["auto", "exact", "gram", "randomized"]
_METHODS = ("auto", "exact", "gram", "randomized")

# Below this short side LAPACK on the whole matrix beats every alternative.
_SMALL = 64
# The d x d problem that an eigensolver still solves in seconds.
_MODERATE = 3000


# The block of the Krylov methods: few products, and repeated values are still found.
_BLOCK = 5


class SVD(NamedTuple):
    """The rank-k truncated SVD M ~ U diag(s) V', with V' the conjugate transpose.

    `left` is U (n, k), `singular_values` is s (k,) in decreasing order, `right` is V (m, k): its
    columns are the right singular vectors, so that U and V are used alike.
    """

    left: Array
    singular_values: Array
    right: Array


class Eigenpairs(NamedTuple):
    """Eigenvalues (k,) in order of decreasing magnitude, and their vectors as columns (d, k)."""

    values: Array
    vectors: Array


@with_guests
def truncated_svd(
    matrix: object,
    rank: int,
    *,
    method: Method = "auto",
    n_oversamples: int | None = None,
    n_power_iterations: int | None = None,
    random_state: RandomState = 0,
) -> SVD:
    """The leading singular triplets of a matrix, however it is given (monograph 2.2.2).

    With M = U diag(s) V', keeps the `rank` largest singular values.

    Parameters
    ----------
    matrix : (n, m) array of any library, SciPy sparse matrix or array, or LinearOperator
    rank : int, at most min(n, m)
    method : {"auto", "exact", "gram", "randomized"}
        "exact" is LAPACK on the whole (dense) matrix. "gram" takes the eigenvectors of the
        product of the matrix with itself on its shorter side and then refines them against the
        matrix, so that squaring costs no digits. "randomized" starts from random directions and
        reads the matrix only through products. "auto" chooses by shape and rank.
    n_oversamples : int or None, directions carried beyond `rank` by the iterative methods; None
        means 10, or 5, the size of a block, where iterations go on until convergence
    n_power_iterations : int or None, for "randomized": None iterates (block Krylov) until the
        residual is below eps^0.7 of the largest singular value; a number does exactly that many
        power iterations and reads the matrix 2 (n_power_iterations + 1) times
    random_state : seed of the start; the default always draws the same numbers

    Returns
    -------
    SVD, with `left` U (n, rank), `singular_values` s (rank,) and `right` V (m, rank) in the
    library and precision of `matrix`. The entry of largest magnitude in each left vector is
    real and positive (the first one, where several tie).

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> u, s, vt = lt.truncated_svd(np.diag([3.0, 2.0, 1.0]), 2)
    >>> s.round(6).tolist()
    [3.0, 2.0]
    """
    linear_map = as_linear_map(matrix, "matrix")
    rank = _check_rank(rank, min(linear_map.shape), linear_map.shape)
    if method not in _METHODS:
        raise InvalidInputError(f"method={method!r} must be one of {', '.join(_METHODS)}")
    if n_power_iterations is not None and (
        not isinstance(n_power_iterations, int | np.integer) or n_power_iterations < 0
    ):
        raise InvalidInputError(
            f"n_power_iterations={n_power_iterations!r} must be None or an integer of at least 0"
        )
    if n_oversamples is not None and (
        not isinstance(n_oversamples, int | np.integer) or n_oversamples < 0
    ):
        raise InvalidInputError(
            f"n_oversamples={n_oversamples!r} must be None or an integer of at least 0"
        )
    if requires_gradient(matrix):
        return _signed(followed_triplets(linear_map.to_dense(), rank), rank)
    if method == "auto" and n_power_iterations is not None:
        method = "randomized"
    if n_oversamples is None:
        n_oversamples = _BLOCK if n_power_iterations is None else 10
    width = rank + int(n_oversamples)
    return _factorize(linear_map, rank, width, rank, method, n_power_iterations, random_state)


def svd_with_next(matrix: object, rank: int, *, random_state: RandomState = 0) -> tuple[SVD, Array]:
    """A truncated SVD and the singular value after its last, the edge of its gap.

    The next value is only as exact as it comes by the way: waiting for it would take longest
    exactly where the gap is clear and the wanted triplets are found at once.

    Returns
    -------
    SVD of `rank`, and an array that holds the next value (empty where there is none).
    """
    linear_map = as_linear_map(matrix, "matrix")
    rank = _check_rank(rank, min(linear_map.shape), linear_map.shape)
    found = _factorize(linear_map, rank, rank + _BLOCK, rank + 1, "auto", None, random_state)
    left, values, right = found
    return SVD(left[:, :rank], values[:rank], right[:, :rank]), values[rank:]


def _factorize(
    linear_map: LinearMap,
    rank: int,
    width: int,
    returned: int,
    method: Method,
    n_power_iterations: int | None,
    random_state: RandomState,
) -> SVD:
    """The `returned` leading triplets, the first `rank` of them converged."""
    if method == "auto":
        method = _choose(linear_map, rank)
        short, long = sorted(linear_map.shape)
        if method == "gram" and short * (1 + 4 * short / long) > 96 * (rank + 10):
            # Far cheaper where the spectrum has a gap, which only trying can tell.
            with contextlib.suppress(NotConvergedError):
                few = krylov_triplets(linear_map, rank, width, generator(random_state), 4)
                return _signed(few, returned)
    if method == "exact":
        triplets = thin_svd(linear_map.to_dense())
    elif method == "gram":
        triplets = _gram_triplets(linear_map, rank, width)
    elif n_power_iterations is None:
        triplets = krylov_triplets(linear_map, rank, width, generator(random_state))
    else:
        rng = generator(random_state)
        triplets = power_triplets(linear_map, width, int(n_power_iterations), rng)
    return _signed(triplets, returned)


def _check_rank(rank: object, largest: int, shape: tuple[int, ...]) -> int:
    number = check_positive_int(rank, "rank")
    if number > largest:
        raise InvalidInputError(
            f"rank={number} exceeds the {largest} that a matrix of shape {tuple(shape)} can have: "
            f"ask for at most {largest}"
        )
    return number


def _choose(linear_map: LinearMap, rank: int) -> Method:
    short = min(linear_map.shape)
    if short <= _SMALL or is_traced(linear_map.reference):
        return "exact"
    # So many vectors take as much memory as the dense matrix.
    if rank > short // 3:
        return "exact"
    if short <= _MODERATE and not isinstance(linear_map, OperatorMap):
        return "gram"
    return "randomized"


def _gram_triplets(linear_map: LinearMap, rank: int, width: int) -> Triplets:
    rows, columns = linear_map.shape
    if columns > rows:
        swapped = _gram_triplets(linear_map.adjoint(), rank, width)
        return Triplets(swapped.right, swapped.values, swapped.left)
    gram = linear_map.gram()
    if gram is None:
        raise InvalidInputError(
            "method='gram' needs the entries of the matrix, not a LinearOperator: "
            "use method='randomized'"
        )
    width = min(width, columns)
    squares, vectors = _largest_eigenpairs(gram, width)
    epsilon = machine_epsilon(gram)
    largest, smallest = (float(to_host(squares[j])) for j in (0, rank - 1))
    if smallest <= 100 * columns * epsilon * largest and not isinstance(linear_map, SparseMap):
        # The square of the last value asked for is lost in the rounding of the first.
        return thin_svd(linear_map.to_dense())
    # Squaring costs at most three digits here, and one in single precision.
    if largest < min(1e3, 1e-6 / epsilon) * smallest:
        # One vector more, for whoever asks for the edge of the gap.
        kept = (
            vectors[:, : rank + 1]
            if float(squares[min(rank, width - 1)]) > 0
            else vectors[:, :rank]
        )
        images = linear_map.matmul(kept)
        values = column_norms(images)
        order = array_api_compat.array_namespace(values).argsort(-values, stable=True)
        return Triplets((images / values)[:, order], values[order], kept[:, order])
    basis = vectors
    for _ in range(1 if smallest > epsilon**0.5 * largest else 3):
        left_basis = orthonormal(linear_map.matmul(basis))
        triplets = finish_triplets(linear_map, left_basis)
        basis = triplets.right
    return triplets


def _largest_eigenpairs(gram: Array, width: int) -> tuple[Array, Array]:
    """The `width` algebraically largest eigenpairs of a Hermitian matrix, in decreasing order."""
    xp = array_api_compat.array_namespace(gram)
    size = gram.shape[0]
    if is_numpy(gram) and 4 * width < size:
        values, vectors = scipy.linalg.eigh(
            gram, subset_by_index=(size - width, size - 1), check_finite=False
        )
    else:
        values, vectors = xp.linalg.eigh(gram)
    values, vectors = xp.flip(values, axis=0)[:width], xp.flip(vectors, axis=1)[:, :width]
    return values, vectors


def _signed(triplets: Triplets, rank: int) -> SVD:
    left, values, right = triplets
    left, right = left[:, :rank], right[:, :rank]
    turn = phases(left)
    return SVD(left * turn, values[:rank], right * turn)


@with_guests
def low_rank_approximation(matrix: object, rank: int, *, random_state: RandomState = 0) -> Array:
    """The closest matrix of a given rank, in both norms (Eckart and Young; monograph 2.2.2).

    With M = U diag(s) V', returns the dense (n, m) matrix U_k diag(s_k) V_k', whose distance
    from M is s_{k+1} in the spectral norm.

    Parameters
    ----------
    matrix : (n, m) array of any library, SciPy sparse matrix or array, or LinearOperator
    rank : int, at most min(n, m)
    random_state : seed, used where the matrix is large

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> matrix = np.diag([3.0, 2.0, 1e-9])
    >>> bool(np.abs(lt.low_rank_approximation(matrix, 2) - matrix).max() < 1e-8)
    True
    """
    left, values, right = truncated_svd(matrix, rank, random_state=random_state)
    return (left * values) @ conjugate_transpose(right)


@with_guests
def pseudo_inverse(matrix: object, *, tolerance: float | None = None) -> Array:
    """The Moore-Penrose inverse, which solves least squares at any rank (monograph 2.2.2).

    With M = U diag(s) V' over its nonzero singular values, returns V diag(1/s) U' (m, n).

    Parameters
    ----------
    matrix : (n, m) array of any library, or SciPy sparse matrix (the result is dense)
    tolerance : float or None, singular values up to `tolerance` times the largest count as zero;
        None means max(n, m) eps

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.pseudo_inverse(np.diag([2.0, 0.0])).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """
    linear_map = as_linear_map(matrix, "matrix")
    if tolerance is not None and not 0 <= tolerance < 1:
        raise InvalidInputError(f"tolerance={tolerance!r} must be None or lie in [0, 1)")
    left, values, right = thin_svd(linear_map.to_dense())
    xp = array_api_compat.array_namespace(left)
    if tolerance is None:
        tolerance = max(linear_map.shape) * machine_epsilon(left)
    keep = values > tolerance * values[0]
    one = xp.ones((), dtype=values.dtype)
    inverse = xp.where(keep, one / xp.where(keep, values, one), 0 * one)
    return (right * inverse) @ conjugate_transpose(left)


def leading_eigenpairs(matrix: object, rank: int, *, random_state: RandomState = 0) -> Eigenpairs:
    """The eigenpairs of a symmetric matrix that are largest in magnitude.

    Parameters
    ----------
    matrix : (d, d) array of any library, SciPy sparse or LinearOperator; symmetric, or Hermitian
        where complex
    rank : int, at most d
    random_state : seed of the iterations that a large matrix needs

    Returns
    -------
    Eigenpairs, `values` (rank,) in decreasing magnitude with their signs, `vectors` (d, rank) with
    the entry of largest magnitude of each real and positive.
    """
    linear_map = as_linear_map(matrix, "matrix")
    dimension, other = linear_map.shape
    if dimension != other:
        raise InvalidInputError(f"matrix must be square, got shape {linear_map.shape}")
    rank = _check_rank(rank, dimension, linear_map.shape)
    width = rank + _BLOCK
    if _by_lapack(linear_map, width):
        dense = linear_map.to_dense()
        _refuse_asymmetry(dense)
        xp = array_api_compat.array_namespace(dense)
        values, vectors = xp.linalg.eigh((dense + conjugate_transpose(dense)) / 2)
        order = by_magnitude(values)[:rank]
        values, vectors = values[order], vectors[:, order]
    else:
        values, vectors = krylov_eigenpairs(
            linear_map, rank, width, generator(random_state), "matrix"
        )
        values, vectors = values[:rank], vectors[:, :rank]
    return Eigenpairs(values, vectors * phases(vectors))


def _by_lapack(linear_map: LinearMap, width: int) -> bool:
    dimension = linear_map.shape[0]
    if dimension <= 4 * width or is_traced(linear_map.reference):
        return True
    return dimension <= (500 if isinstance(linear_map, DenseMap) else 200)


def _refuse_asymmetry(matrix: Array) -> None:
    if is_traced(matrix):
        return
    xp = array_api_compat.array_namespace(matrix)
    scale = float(xp.max(xp.abs(matrix)))
    asymmetry = float(xp.max(xp.abs(matrix - conjugate_transpose(matrix))))
    if asymmetry > machine_epsilon(matrix) ** 0.5 * scale:
        raise InvalidInputError(
            "matrix must be symmetric (Hermitian where complex): its largest asymmetry is "
            f"{asymmetry / scale:.1e} of its largest entry; give (M + M') / 2 if that is meant"
        )
