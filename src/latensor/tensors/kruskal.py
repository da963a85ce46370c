"""The Kruskal rank of a matrix, on which uniqueness of a CP decomposition rests (monograph 3.3)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from latensor.arrays import Array, machine_epsilon, require_matrix, resolve, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError

# Subsets whose singular values are computed in one batch.
_BATCH = 4096
# Bases from which dependent subsets are looked for, where not all subsets can be tried.
_BASES = 50


class KruskalRank(int):
    """A Kruskal rank, or what is certain of it: an int that equals its lower bound.

    Attributes
    ----------
    lower, upper : int, certified bounds; every `lower` columns are independent, some
        `upper + 1` are not (or there are no more columns)
    exact : bool, whether they agree
    method : str, how the bounds were found

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> found = lt.kruskal_rank(np.eye(3))
    >>> found.lower, found.upper
    (3, 3)
    """

    lower: int
    upper: int
    method: str

    def __new__(cls, lower: int, upper: int, method: str) -> KruskalRank:
        """Bounds as an integer; see the class."""
        self = super().__new__(cls, lower)
        self.lower, self.upper, self.method = lower, upper, method
        return self

    @property
    def exact(self) -> bool:
        """Whether the bounds agree."""
        return self.lower == self.upper

    def __repr__(self) -> str:
        if self.exact:
            return f"KruskalRank({self.lower}, by {self.method})"
        return f"KruskalRank(between {self.lower} and {self.upper}, by {self.method})"

    def __reduce__(self) -> Any:
        return (KruskalRank, (self.lower, self.upper, self.method))


@with_guests
def kruskal_rank(
    matrix: Array, *, tol: float | None = None, max_subsets: int = 200_000
) -> KruskalRank:
    """The largest r such that every r columns of a matrix are linearly independent.

    Exact where at most `max_subsets` subsets of columns need be tried; otherwise bounds:
    from below by coherence (r unit columns are independent if, for each, the r - 1 largest
    inner products with others sum to less than one), from above by the rank and by small
    dependent subsets found from random bases.

    Parameters
    ----------
    matrix : (d, k) array
    tol : float, columns (scaled to unit length) count as dependent if their smallest singular
        value is at most this; None derives it from dtype and size
    max_subsets : int

    Returns
    -------
    KruskalRank, an int with `lower`, `upper`, `exact` and `method`

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> int(lt.kruskal_rank(np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])))
    2
    """
    _, arrays = resolve(matrix=matrix)
    require_matrix(arrays["matrix"], "matrix")
    refuse_nonfinite(arrays["matrix"], "matrix")
    epsilon = machine_epsilon(arrays["matrix"])
    columns = to_host(arrays["matrix"])
    columns = columns.astype(np.complex128 if columns.dtype.kind == "c" else np.float64)
    d, k = columns.shape
    if tol is not None and not (isinstance(tol, int | float | np.floating) and tol >= 0):
        raise InvalidInputError(f"tol={tol!r} must be a number of at least 0")
    tolerance = max(d, k) * epsilon if tol is None else float(tol)
    largest = np.abs(columns).max(axis=0)
    if (largest == 0).any():
        return KruskalRank(0, 0, "a zero column")
    if tolerance >= 1:
        return KruskalRank(0, 0, "a tolerance that no unit column exceeds")
    scaled = columns / largest  # columns of any magnitude, whose squares may leave the range
    unit = scaled / np.linalg.norm(scaled, axis=0)
    rank = int((np.linalg.svd(unit, compute_uv=False) > tolerance).sum())
    if rank == k:
        return KruskalRank(k, k, "full column rank")
    lower, method = _coherence_bound(unit, tolerance), "coherence"
    upper = min(rank, _smallest_circuit(unit, rank, tolerance) - 1)
    budget = max_subsets
    while lower < upper:
        # All sets of one size decide both ways: the middle size that the budget allows.
        sizes = [r for r in range(lower + 1, upper + 1) if math.comb(k, r) <= budget]
        if not sizes:
            break
        size = sizes[-1] if sizes[-1] == upper else sizes[len(sizes) // 2]
        budget -= math.comb(k, size)
        method = "subsets of columns"
        if _all_independent(unit, size, tolerance):
            lower = size
        else:
            upper = size - 1
    return KruskalRank(lower, upper, method)


def _coherence_bound(unit: Any, tolerance: float) -> int:
    """The largest r for which Gershgorin's theorem keeps every r unit columns independent.

    Their Gram matrix has unit diagonal; row sums off it below one keep it positive definite.
    """
    products = np.abs(unit.conj().T @ unit)
    np.fill_diagonal(products, 0.0)
    largest_first = -np.sort(-products, axis=1)
    worst = np.cumsum(largest_first[:, :-1], axis=1).max(axis=0, initial=0.0)
    independent = worst < 1.0 - max(tolerance**2, 4 * unit.shape[0] * np.finfo(float).eps)
    return 1 + int(np.argmin(independent) if not independent.all() else len(independent))


def _smallest_circuit(unit: Any, rank: int, tolerance: float) -> int:
    """The size of a small dependent set of columns, found by writing columns in random bases.

    A column outside a basis depends on just the basis columns that its coordinates name.
    """
    import scipy.linalg

    rng = np.random.default_rng(0)
    smallest = rank + 1
    for attempt in range(_BASES):
        shuffled = np.arange(unit.shape[1]) if attempt == 0 else rng.permutation(unit.shape[1])
        # Pivoting picks a well-conditioned basis out of a random few columns more than needed.
        few = shuffled[: min(unit.shape[1], 2 * rank + 2)]
        _, triangle, pivots = scipy.linalg.qr(unit[:, few], mode="economic", pivoting=True)
        diagonal = np.abs(np.diag(triangle))
        size = int((diagonal > tolerance).sum())
        if size < rank or size == len(few):
            continue
        basis, others = few[pivots[:size]], few[pivots[size:]]
        coordinates, *_ = np.linalg.lstsq(unit[:, basis], unit[:, others], rcond=None)
        for column, other in zip(coordinates.T, others, strict=True):
            support = basis[np.abs(column) > 1e-8]
            chosen = np.append(support, other)
            if len(chosen) < smallest and not _all_independent(
                unit[:, chosen], len(chosen), tolerance
            ):
                smallest = len(chosen)
    return smallest


def _all_independent(unit: Any, size: int, tolerance: float) -> bool:
    """Whether every subset of `size` columns has a smallest singular value above `tolerance`."""
    if size > unit.shape[0]:
        return False
    subsets = itertools.combinations(range(unit.shape[1]), size)
    while batch := list(itertools.islice(subsets, _BATCH)):
        stacked = unit.T[np.array(batch)]
        if (np.linalg.svd(stacked, compute_uv=False)[:, -1] <= tolerance).any():
            return False
    return True
