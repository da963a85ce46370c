"""Which algebraic method solves an overcomplete tensor, if one does: what "auto" asks first."""

from __future__ import annotations

from math import comb

import numpy as np

from latensor.arrays import is_complex, machine_epsilon
from latensor.decomposition.algorithms.jennrich import group_modes
from latensor.decomposition.algorithms.overcomplete import dense_symmetric
from latensor.decomposition.algorithms.subspace_power import SubspacePower
from latensor.decomposition.algorithms.sym_squares import flattened, largest_rank
from latensor.decomposition.algorithms.symmetric import measured_asymmetry
from latensor.decomposition.algorithms.tensorization import Tensorization
from latensor.decomposition.auto.core import exact_residual
from latensor.decomposition.result import Decomposition
from latensor.decomposition.subspace.compression import LARGEST_CORE
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor


def is_exact(found: Decomposition) -> bool:
    """Whether only rounding is left of the tensor."""
    return found.residual <= exact_residual(machine_epsilon(found.weights))


def solve_overcomplete(
    data: Contractible, rank: int, rng: np.random.Generator, symmetric: bool | None
) -> Decomposition | None:
    """A decomposition of more components than dimensions by algebra, or None where none applies.

    Order 4, symmetric: the subspace power method. Order 5 and more: tensorization. Where symmetry
    was not asked for, only an exact solution is given.

    Parameters
    ----------
    data : tensor of order 4 or more; None is given for others, and for ranks that are no larger
        than a dimension
    rank : int
    rng : Generator
    symmetric : bool or None, as the caller of `decompose` gave it
    """
    shape = tuple(int(d) for d in data.shape)
    order = len(shape)
    if (
        not isinstance(data, DenseTensor)
        or order < 4
        or rank <= max(shape)
        or np.prod(shape, dtype=float) > LARGEST_CORE
        or is_complex(data.reference)
    ):
        return None
    tolerance = machine_epsilon(data.reference) ** 0.5
    alike = len(set(shape)) == 1 and symmetric is not False
    alike = alike and measured_asymmetry(data) <= tolerance
    refine = 100 if symmetric else 0
    found: Decomposition | None = None
    if alike and order == 4 and rank <= largest_rank(shape[0]):
        if symmetric or _has_rank(data, rank):
            found = SubspacePower(refine=refine)(data, rank, rng)
    elif alike and order > 4 and rank <= comb(shape[0] + (order - 1) // 2 - 1, (order - 1) // 2):
        found = Tensorization(symmetric=True, refine=refine)(data, rank, rng)
    elif not alike and order > 4 and not symmetric and _has_room(shape, rank):
        found = Tensorization(symmetric=False, refine=0)(data, rank, rng)
    return found if found is not None and (symmetric or is_exact(found)) else None


def _has_rank(data: DenseTensor, rank: int) -> bool:
    """Whether the flattening of a tensor of order 4 has no more than `rank` directions."""
    values = np.sort(np.abs(np.linalg.eigvalsh(flattened(dense_symmetric(data)))))[::-1]
    rounding = exact_residual(machine_epsilon(data.reference)) * values[0]
    return len(values) <= rank or bool(values[rank] <= rounding)


def _has_room(shape: tuple[int, ...], rank: int) -> bool:
    try:
        group_modes(shape, rank)
    except InvalidInputError:
        return False
    return True
