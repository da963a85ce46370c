"""Symmetric tensors of order 4 as matrices over symmetric matrices: what the algebra needs.

T = sum_j w_j a_j^(x)4 becomes M = sum_j w_j b_j b_j', b_j = vec(a_j a_j'): of rank k up to
d (d + 1) / 2, and its range holds the vec of a rank-one matrix only for the components themselves,
as long as k (k - 1) / 2 <= d^2 (d^2 - 1) / 12 (for components in general position).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.decomposition.algorithms.overcomplete import dense_symmetric
from latensor.decomposition.setup import refuse_rank
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible


def largest_rank(dimension: int) -> int:
    """The most components that a fourth-order tensor of this dimension shows algebraically."""
    bound = dimension**2 * (dimension**2 - 1) / 12.0
    rank = int((1.0 + np.sqrt(1.0 + 8.0 * bound)) / 2.0)
    return max(min(rank, dimension * (dimension + 1) // 2), 1)


def fourth_order(data: Contractible, rank: object, algorithm: str) -> tuple[Any, int]:
    """The dense array of a symmetric tensor of order 4, and a rank within the bound."""
    number = refuse_rank(rank)
    order, dimension = len(data.shape), data.shape[0]
    if order != 4:
        remedy = "Tensorization" if order > 4 else "algorithm='auto' with symmetric=True"
        raise InvalidInputError(
            f"tensor has order {order}, but {algorithm} is for order 4: use {remedy}"
        )
    limit = largest_rank(dimension)
    if number > limit:
        raise InvalidInputError(
            f"rank={number} is above {limit}, up to which {algorithm} finds the components of a "
            f"tensor of order 4 and dimension {dimension} (k (k - 1) / 2 <= d^2 (d^2 - 1) / 12): "
            "use algorithm='auto', which takes any rank but may miss components there"
        )
    return dense_symmetric(data), number


def squares(vectors: Any) -> Any:
    """(N, k) coordinates of a a' in an orthonormal basis of symmetric matrices, a in columns."""
    first, second, scale = _triangle(vectors.shape[0])
    return scale[:, None] * vectors[first] * vectors[second]


def flattened(array: Any) -> Any:
    """The (N, N) matrix of a symmetric tensor of order 4 in the basis of `squares`."""
    first, second, scale = _triangle(array.shape[0])
    return scale[:, None] * array[first, second][:, first, second] * scale


def matrices(columns: Any, dimension: int) -> Any:
    """(d, d, k) symmetric matrices with coordinates in the columns (N, k)."""
    first, second, scale = _triangle(dimension)
    found = np.zeros((dimension, dimension, columns.shape[1]))
    found[first, second] = found[second, first] = columns / scale[:, None]
    return found


def _triangle(dimension: int) -> tuple[Any, Any, Any]:
    first, second = np.triu_indices(dimension)
    return first, second, np.where(first == second, 1.0, np.sqrt(2.0))
