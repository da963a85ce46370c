"""Starts of fits over observed entries: from subspaces of the unfoldings, by falling ridges.

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

from latensor.arrays import Array
from latensor.decomposition.auto.constrained import Constraints
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.optimize.nonnegative import nonnegative_part
from latensor.decomposition.optimize.sweeps import Point, Sweeps, balanced

# Random starts within the first subspaces, the sweeps of each, and those after every widening.
_STARTS, _FIRST_SWEEPS, _SWEEPS = 8, 30, 10
# Subspaces widen by this factor while a mode has at most so many parameters in them.
_WIDENING, _MOST_PARAMETERS = 1.5, 150
# Entries per parameter of a mode that the subspace stage looks at.
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
        every other start does without them
    constraints : what holds of the factors
    rng : generator
    """
    if number % 2:
        scale = (observed.squared_norm / len(observed.entries)) ** (0.5 / len(bases))
        factors = tuple(scale * rng.standard_normal((rank, d)) for d in observed.shape)
    else:
        factors = _within_subspaces(observed, bases, rank, rng)
    if constraints.nonnegative:
        factors = nonnegative_part(factors, constraints.nonnegative)
    return _annealed(observed, factors, constraints)


def leading_directions(observed: Observed, mode: int) -> Array:
    """(d, d) eigenvectors of the estimated Gram of an unfolding, by decreasing eigenvalue."""
    shape = observed.shape
    others = [m for m in range(len(shape)) if m != mode]
    columns = np.ravel_multi_index(
        [observed.coordinates[m] for m in others], [shape[m] for m in others]
    )
    # Columns are numbered anew, so that an unfolding may be wider than memory.
    _, columns = np.unique(columns, return_inverse=True)
    matrix = scipy.sparse.csr_array((observed.entries, (observed.coordinates[mode], columns)))
    gram = (matrix @ matrix.T).toarray()
    fraction = len(observed.entries) / prod(shape)
    gram[np.diag_indices_from(gram)] *= fraction
    return np.linalg.eigh(gram)[1][:, ::-1]


def _within_subspaces(
    observed: Observed, bases: Sequence[Array], rank: int, rng: np.random.Generator
) -> tuple[Array, ...]:
    """The best of a few fits whose factors lie in leading directions, which then widen."""
    width = rank + 1
    best: tuple[list[Array], float] | None = None
    for _ in range(_STARTS):
        inside = [rng.standard_normal((rank, min(width, u.shape[1]))) for u in bases]
        trial = _sweep_inside(observed, bases, inside, _FIRST_SWEEPS, rng)
        if best is None or trial[1] < best[1]:
            best = trial
        if best[1] <= observed.epsilon * observed.squared_norm:
            break
    assert best is not None
    inside = best[0]
    while width < max(observed.shape) and int(_WIDENING * width) * rank <= _MOST_PARAMETERS:
        width = max(int(_WIDENING * width), width + 1)
        sizes = [min(width, u.shape[1]) for u in bases]
        inside = [
            np.pad(a, ((0, 0), (0, s - a.shape[1]))) for a, s in zip(inside, sizes, strict=True)
        ]
        inside, _ = _sweep_inside(observed, bases, inside, _SWEEPS, rng)
    return tuple(a @ u[:, : a.shape[1]].T for a, u in zip(inside, bases, strict=True))


def _sweep_inside(
    observed: Observed,
    bases: Sequence[Array],
    inside: list[Array],
    n_sweeps: int,
    rng: np.random.Generator,
) -> tuple[list[Array], float]:
    """Alternating least squares over coordinates (rank, width) of the factors in their bases."""
    parameters = inside[0].size
    most = _ENTRIES * max(parameters, sum(observed.shape))
    part = observed
    if len(observed.entries) > most:
        part = observed.take(np.sort(rng.choice(len(observed.entries), most, replace=False)))
    seen = [u[:, : a.shape[1]][i] for u, a, i in zip(bases, inside, part.coordinates, strict=True)]
    inside, rank = list(inside), inside[0].shape[0]
    for _ in range(n_sweeps):
        values = [s @ a.T for s, a in zip(seen, inside, strict=True)]
        for mode, s in enumerate(seen):
            others = np.prod([v for m, v in enumerate(values) if m != mode], axis=0)
            design = (others[:, :, None] * s[:, None, :]).reshape(len(others), -1)
            gram = design.T @ design
            gram[np.diag_indices_from(gram)] *= 1.0 + 1e-10
            gram[np.diag_indices_from(gram)] += np.finfo(float).tiny
            solution = scipy.linalg.lstsq(
                gram, design.T @ part.entries, lapack_driver="gelsy", check_finite=False
            )[0]
            inside[mode] = solution.reshape(rank, -1)
            values[mode] = s @ inside[mode].T
        inside = list(balanced(inside))
    rest = part.entries - np.prod([s @ a.T for s, a in zip(seen, inside, strict=True)], axis=0).sum(
        axis=1
    )
    return inside, float(rest @ rest) * len(observed.entries) / len(part.entries)


def _annealed(
    observed: Observed, factors: Sequence[Array], constraints: Constraints
) -> tuple[Array, ...]:
    """Sweeps under ridges that fall from strong to weak: rows with few observations do not grow
    without bound while the components are still wrong.
    """
    point = Point(balanced(factors), (), np.inf)
    for lift in _RIDGES:
        sweeps = Sweeps(observed, None, 0.0, constraints.nonnegative, float(lift))
        point = replace(sweeps.start(balanced(point.factors)))
        for _ in range(_SWEEPS_PER_RIDGE):
            point = sweeps.sweep(point)
    return balanced(point.factors)
