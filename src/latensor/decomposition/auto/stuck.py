"""Free the few components of a large overcomplete fit that stick in the wrong place.

With more components than dimensions nearly all are found at once; about one in a hundred ends on a
pair of true ones, or beside one, and holds the residual at a few per cent for hundreds of sweeps.
Those that may be wrong are taken out generously, more than are, and as many are fitted to what
the others leave, which is easy: they are fewer than the dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.auto.core import Core, Fit, Task
from latensor.decomposition.optimize.iteration import ROUGH, Monitor
from latensor.decomposition.optimize.problem import DenseProblem
from latensor.decomposition.optimize.sweeps import row_norms
from latensor.tensors.dense import DenseTensor


def unstick(core: Core, fit: Fit) -> Fit:
    """A start with suspicious components fitted anew to what the others leave."""
    from latensor.decomposition.auto.pipeline import run  # the same stages, for few components

    chosen = suspicious(core, fit.factors)
    kept = [np.delete(f, chosen, axis=0) for f in fit.factors]
    rest = DenseProblem(core.problem.residual(kept))
    task = Task(
        DenseTensor(rest.tensor),
        rest,
        len(chosen),
        core.rng,
        Monitor(rest.squared_norm),
        ROUGH,
        False,
    )
    found = run(task)
    joined = [np.vstack([f, g]) for f, g in zip(kept, found.factors, strict=True)]
    return Fit(tuple(joined), found.loss)


def most_suspicious(core: Core) -> int:
    """How many components are taken out at most: half as many as dimensions."""
    return max(min(core.shape) // 2, 2)


def suspicious(core: Core, factors: Sequence[Array]) -> Array:
    """The components that may be in the wrong place.

    Half of them are those that the residual pulls hardest; the others those most like another one
    in two modes.
    """
    units = [f / np.maximum(row_norms(f), np.finfo(float).tiny)[:, None] for f in factors]
    cosines = [np.abs(u @ u.conj().T) for u in units]
    for cosine in cosines:
        np.fill_diagonal(cosine, 0.0)
    alike = np.max([(a * b).max(axis=1) for a, b in combinations(cosines, 2)], axis=0)
    products = DenseProblem(core.problem.residual(factors)).products(units)
    pulls = np.max([row_norms(products.mttkrp(m)) for m in range(len(units))], axis=0)
    most = most_suspicious(core)
    pulled, pairs = np.argsort(-pulls)[: most // 2], np.argsort(-alike)
    return np.array(list(dict.fromkeys([*pulled, *pairs]))[:most])
