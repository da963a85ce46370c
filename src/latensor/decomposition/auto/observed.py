"""Starts of fits over observed entries: from subspaces of the unfoldings, by decreasing ridges.

A random start of alternating least squares over few entries mostly ends where it describes them by
factors that are wild elsewhere. Two things prevent that. The leading directions of every mode can
be estimated from the observed entries alone: the Gram of an unfolding with fraction p observed has
expectation p^2 G off its diagonal and p G on it, so that the diagonal is weighted down by p. And
within k + 1 such directions per mode there are so few parameters that sweeps from random starts
find the components; the directions are then made more and more until the whole space is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from latensor.arrays import Array
from latensor.decomposition.auto.constrained import Constraints
from latensor.decomposition.auto.core import Fit
from latensor.decomposition.optimize.iteration import SLOW
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.optimize.multistart import Multistart
from latensor.decomposition.optimize.nonnegative import nonnegative_part
from latensor.decomposition.optimize.solves import solve_gram
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced

# Random starts within the first subspaces, the sweeps of each, and those after every widening.
_STARTS, _FIRST_SWEEPS, _SWEEPS = 8, 30, 10
# Dimensions up to which the Gram of an unfolding is formed.
_DENSE_GRAM = 1500
# Subspaces widen by this factor while a mode has at most so many parameters in them.
_WIDENING, _MOST_PARAMETERS = 1.5, 150
# Entries per parameter of a mode that the first starts look at.
_ENTRIES = 40
# Ridges, as fractions of the mean diagonal of each row's matrix, and sweeps under each.
_RIDGES = np.geomspace(2e-2, 1e-7, 14)
_SWEEPS_PER_RIDGE = 6


def observed_start(
    observed: Observed,
    bases: Sequence[Array],
    rank: int,
    number: int,
    constraints: Constraints,
    rng: np.random.Generator,
) -> tuple[Array, ...]:
    """Transposed factors to begin from, drawn anew.

    Parameters
    ----------
    observed : the entries
    bases : `leading_directions` of every mode
    rank : int
    number : int, counted from 0: where the subspaces mislead, they mislead every time, so that
        one start of four does without them
    constraints : what holds of the factors
    rng : generator
    """
    if number % 4 == 2:
        scale = (observed.squared_norm / len(observed.entries)) ** (0.5 / len(bases))
        factors = tuple(scale * rng.standard_normal((rank, d)) for d in observed.shape)
    else:
        factors = _within_subspaces(observed, bases, rank, rng)
    if constraints.nonnegative:
        factors = nonnegative_part(factors, constraints.nonnegative)
    return _annealed(observed, factors, constraints)


def replace_wild(
    observed: Observed,
    factors: Sequence[Array],
    constraints: Constraints,
    rng: np.random.Generator,
) -> tuple[Array, ...]:
    """Factors with the wildest component drawn anew from what the others leave.

    A start that is wrong mostly has all components but one, and that one follows what is left of a
    few entries and is large elsewhere: its size over all entries is several times that over the
    observed ones. Every start from the same subspaces ends there, while what the right components
    leave shows the missing one.
    """
    sizes = []
    for rows in zip(*factors, strict=True):
        model = observed.model([row[None] for row in rows])
        everywhere = prod(float(np.linalg.norm(row)) for row in rows)
        sizes.append(everywhere / max(float(np.linalg.norm(model)), np.finfo(float).tiny))
    kept = [np.delete(factor, int(np.argmax(sizes)), axis=0) for factor in factors]
    rest = replace(observed, entries=observed.entries - observed.model(kept))
    bases = [leading_directions(rest, mode, most_directions(1)) for mode in range(len(kept))]
    drawn = _within_subspaces(rest, bases, 1, rng)
    if constraints.nonnegative:
        drawn = nonnegative_part(drawn, constraints.nonnegative)
    joined = [np.vstack(pair) for pair in zip(kept, drawn, strict=True)]
    return _annealed(observed, joined, constraints)


def leading_directions(observed: Observed, mode: int, count: int) -> Array:
    """(d, count) eigenvectors of the estimated Gram of an unfolding, by decreasing eigenvalue."""
    shape = observed.shape
    # Columns are numbered anew, so that an unfolding may be wider than memory.
    columns = np.zeros(len(observed.entries), dtype=np.int64)
    for other, (index, d) in enumerate(zip(observed.coordinates, shape, strict=True)):
        if other != mode:
            _, columns = np.unique(columns * d + index, return_inverse=True)
    matrix = scipy.sparse.csr_array(
        (observed.entries, (observed.coordinates[mode], columns)),
        shape=(shape[mode], int(columns.max()) + 1),
    )
    fraction = len(observed.entries) / prod(shape)
    d, count = shape[mode], min(count, shape[mode])
    if d <= _DENSE_GRAM:
        gram = (matrix @ matrix.T).toarray()
        gram[np.diag_indices_from(gram)] *= fraction
        return scipy.linalg.eigh(gram, subset_by_index=(d - count, d - 1))[1][:, ::-1]
    bias = (1.0 - fraction) * np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel()
    adjoint = matrix.T.tocsr()

    def multiply(vector: Array) -> Array:
        return matrix @ (adjoint @ vector) - bias * vector.ravel()

    operator = scipy.sparse.linalg.LinearOperator((d, d), multiply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(d)
    values, vectors = scipy.sparse.linalg.eigsh(operator, count, which="LA", v0=start, tol=1e-6)
    return vectors[:, np.argsort(-values)]


def most_directions(rank: int) -> int:
    """How many directions of a mode the widest subspaces have."""
    return max(rank + 1, int(_MOST_PARAMETERS / rank))


def _within_subspaces(
    observed: Observed, bases: Sequence[Array], rank: int, rng: np.random.Generator
) -> tuple[Array, ...]:
    """The best of a few fits whose factors lie in leading directions, which then widen."""
    width = rank + 1
    most = _ENTRIES * max(width * rank, sum(observed.shape))
    part = observed
    if len(observed.entries) > most:
        part = observed.take(np.sort(rng.choice(len(observed.entries), most, replace=False)))
    trials = (
        _sweep_inside(
            part,
            bases,
            [rng.standard_normal((rank, min(width, u.shape[1]))) for u in bases],
            _FIRST_SWEEPS,
        )
        for _ in range(_STARTS)
    )
    rule = Multistart(SLOW, enough=observed.epsilon * part.squared_norm)
    inside = rule.search(next(trials), trials).state.factors
    while width < max(u.shape[1] for u in bases):
        width = max(int(_WIDENING * width), width + 1)
        sizes = [min(width, u.shape[1]) for u in bases]
        wider = [
            np.pad(a, ((0, 0), (0, s - a.shape[1]))) for a, s in zip(inside, sizes, strict=True)
        ]
        inside = _sweep_inside(observed, bases, wider, _SWEEPS).factors
    return _outside(inside, bases)


def _outside(inside: Sequence[Array], bases: Sequence[Array]) -> tuple[Array, ...]:
    return tuple(a @ u[:, : a.shape[1]].T for a, u in zip(inside, bases, strict=True))


def _sweep_inside(
    observed: Observed, bases: Sequence[Array], inside: Sequence[Array], n_sweeps: int
) -> Fit:
    """Alternating least squares over coordinates (rank, width) of the factors in their bases.

    With (M_i, r_i) the normal equations of row i of a factor and u_i the row of its basis, those of
    the coordinates are sum_i M_i (x) u_i u_i' and sum_i r_i u_i': they cost no more than a sweep
    over the rows.
    """
    inside, rank = list(inside), inside[0].shape[0]
    narrow = [np.ascontiguousarray(u[:, : a.shape[1]]) for u, a in zip(bases, inside, strict=True)]
    for _ in range(n_sweeps):
        inside = list(balanced(inside))
        products = observed.products(_outside(inside, narrow))
        for mode, basis in enumerate(narrow):
            matrices, right = products.equations(mode)
            width = basis.shape[1]
            gram = np.empty((rank, width, rank, width))
            for a in range(rank):
                for b in range(a + 1):
                    block = basis.T @ (matrices[:, a, b, None] * basis)
                    gram[a, :, b], gram[b, :, a] = block, block
            inside[mode] = solve_gram(
                gram.reshape(rank * width, -1), (right.T @ basis).reshape(-1, 1)
            ).reshape(rank, width)
            products.replace(mode, inside[mode] @ basis.T)
    return Fit(tuple(inside), observed.explicit_loss(_outside(inside, narrow)))


def _annealed(
    observed: Observed, factors: Sequence[Array], constraints: Constraints
) -> tuple[Array, ...]:
    """Sweeps under ridges that fall from strong to weak: rows with few observations do not grow
    without bound while the components are still wrong.
    """
    point = Point(balanced(factors), (), np.inf)
    for lift in _RIDGES:
        sweeps = Sweeps(observed, None, 0.0, constraints.nonnegative, float(lift))
        point = sweeps.start(balanced(point.factors))
        for _ in range(_SWEEPS_PER_RIDGE):
            before = point.loss
            point = sweeps.sweep(point)
            if abs(before - point.loss) <= SLOW * before:
                break
    return balanced(point.factors)
