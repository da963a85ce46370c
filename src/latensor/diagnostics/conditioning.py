"""The condition number of a CP decomposition, and the error bars that follow from it.

A perturbation E of the tensor moves the components A_j by at most kappa |E|, to first order:
(sum_j |dA_j|^2)^1/2 <= kappa |E|, with Frobenius norms (Breiding and Vannieuwenhoven 2018). Here
1 / kappa is the smallest singular value of Terracini's matrix, whose columns are orthonormal bases
of the tangent spaces to the rank-one tensors at the components, side by side.

All is computed in coordinates of the spans of the factors, of q_n = min(d_n, rank) dimensions:
directions outside them contribute only the Khatri-Rao products of the other factors, which are
added at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from latensor.diagnostics.components import Components, as_cp, components_of

# Columns up to which Terracini's matrix is decomposed as it is; its Gram matrix is faster beyond.
_SMALL = 200
# Entries of the largest Terracini matrix that is formed where its Gram matrix lacks the digits.
_LARGEST_MATRIX = 20_000_000
# Columns of the largest Gram matrix.
LARGEST_GRAM = 4_000
# A smallest singular value above this has at least eight correct digits when found from the Gram.
_SAFE_IN_GRAM = 1e-4


@dataclass(frozen=True)
class ConditionNumber:
    """How much a decomposition magnifies errors of the tensor.

    Attributes
    ----------
    value : float, at least 1; infinite where the components are not even locally unique
    exact : bool, whether `value` is the number itself, or known only to be at least that
    method : str, how it was found
    """

    value: float
    exact: bool
    method: str

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{'' if self.exact else 'at least '}{self.value:.4g}"


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """How a unit of white noise per entry moves the components, to first order.

    Attributes
    ----------
    condition : ConditionNumber
    components : (rank,) root mean square change of each component, in Frobenius norm
    weights : (rank,) the same of each weight
    vectors : (rank, order) the same of each unit vector, in radians
    """

    condition: ConditionNumber
    components: Any
    weights: Any
    vectors: Any


def condition_number(decomposition: object) -> ConditionNumber:
    """How much a CP decomposition magnifies errors of the tensor: kappa = 1 / sigma_min(U).

    U is Terracini's matrix, the orthonormal tangent bases of all components side by side. To
    first order, |change of the components| <= kappa |change of the tensor|, in Frobenius norms.
    It is 1 for orthogonal components, grows with collinearity, does not depend on the weights,
    and is infinite where a whole family of decompositions fits equally well. Where all modes
    share one factor only symmetric changes count.

    Parameters
    ----------
    decomposition : CPTensor, Decomposition or pair (weights, factors), of order 2 or more

    Returns
    -------
    ConditionNumber; beyond 4000 tangent directions a lower bound
    """
    components = components_of(as_cp(decomposition, "decomposition"), "decomposition")
    return sensitivity(components).condition


def sensitivity(components: Components) -> Sensitivity:
    """The condition number of a decomposition and what unit noise does to each component."""
    rank, order = components.rank, components.order
    if (components.magnitudes == 0).any() or order < 2:
        reason = "a zero component" if order >= 2 else "a vector has no unique components"
        return unknown(rank, order, ConditionNumber(np.inf, True, reason))
    if rank == 1:
        return _single(components)
    small: list[Any] = [
        np.linalg.qr(f, mode="r") if f.shape[0] > rank else f for f in components.factors
    ]
    frames = [tangent_frames(f) for f in (small[:1] if components.symmetric else small)]
    dimensions = [f.shape[0] for f in small]
    rows = _ambient(dimensions, components.symmetric)
    per_component = _tangent_dimension(dimensions, components.symmetric)
    columns = rank * per_component
    outside = _outside_variances(components)
    if columns > rows:
        return unknown(
            rank, order, ConditionNumber(np.inf, True, f"{columns} parameters for {rows} numbers")
        )
    if outside is None:
        return unknown(rank, order, ConditionNumber(np.inf, True, "dependent components"))
    if columns > LARGEST_GRAM:
        return unknown(rank, order, _lower_bound(components))
    solved = None
    if columns > _SMALL:
        gram = _symmetric_gram if components.symmetric else _general_gram
        solved, method = _by_gram(gram(frames, order)), "Gram matrix of Terracini's matrix"
    if solved is None and rows * columns <= _LARGEST_MATRIX:
        build = _symmetric_matrix if components.symmetric else _general_matrix
        solved = _by_singular_values(build(frames, order))
        method = "singular values of Terracini's matrix"
    if solved is None:
        limit = ConditionNumber(1.0 / _SAFE_IN_GRAM, False, method)
        return unknown(rank, order, limit)
    variances, smallest = solved
    variances = variances.reshape(rank, per_component)
    condition = _condition(components, smallest, method)
    if not np.isfinite(condition.value):
        return unknown(rank, order, condition)
    return collected(components, dimensions, variances, outside, condition)


def unknown(rank: int, order: int, condition: ConditionNumber) -> Sensitivity:
    """A condition number without error bars: infinite ones, or not known."""
    value = np.inf if not np.isfinite(condition.value) else np.nan
    return Sensitivity(
        condition, np.full(rank, value), np.full(rank, value), np.full((rank, order), value)
    )


def _single(components: Components) -> Sensitivity:
    freedom = np.array([[d - 1.0 for d in components.shape]])
    total = 1 + (freedom[:, 0] if components.symmetric else freedom.sum(axis=1))
    fraction = components.order if components.symmetric else 1
    return Sensitivity(
        ConditionNumber(1.0, True, "one component"),
        np.sqrt(total),
        np.ones(1),
        np.sqrt(freedom / fraction) / components.magnitudes[:, None],
    )


def _ambient(dimensions: Sequence[int], symmetric: bool) -> int:
    if symmetric:
        return math.comb(dimensions[0] + len(dimensions) - 1, len(dimensions))
    return math.prod(dimensions)


def _tangent_dimension(dimensions: Sequence[int], symmetric: bool) -> int:
    return dimensions[0] if symmetric else sum(dimensions) - len(dimensions) + 1


def _condition(components: Components, smallest: float, method: str) -> ConditionNumber:
    """The condition number from the smallest singular value inside the spans of the factors."""
    if components.symmetric and components.shape[0] > components.rank:
        # For unshared factors the directions outside the spans are never the worst.
        others = components.grams[0] ** (components.order - 1)
        smallest = min(smallest, math.sqrt(max(np.linalg.eigvalsh(others)[0], 0.0)))
    if smallest <= components.rank * components.order * np.finfo(float).eps:
        return ConditionNumber(np.inf, True, method)
    return ConditionNumber(max(1.0, 1.0 / smallest), True, method)


def _lower_bound(components: Components) -> ConditionNumber:
    """At least the inverse of the smallest singular value of each Khatri-Rao product."""
    least = 1.0
    for mode in range(components.order):
        least = min(least, float(np.linalg.eigvalsh(_others(components, mode))[0]))
    limit = components.rank * np.finfo(float).eps
    bound = 1.0 / math.sqrt(max(least, limit))
    return ConditionNumber(max(1.0, bound), False, "Khatri-Rao products of all factors but one")


def _others(components: Components, mode: int) -> Any:
    """Gram matrix of the Khatri-Rao product of all factors but that of `mode`."""
    product = np.ones((components.rank, components.rank))
    for other, gram in enumerate(components.grams):
        if other != mode:
            product = product * gram
    return product


def _outside_variances(components: Components) -> Any:
    """(rank, order) variance per direction outside the span of each factor, or None if infinite.

    Along such a direction a mode sees a least-squares problem with the Khatri-Rao product of the
    other factors.
    """
    variances = np.zeros((components.rank, components.order))
    for mode in range(components.order):
        if components.shape[mode] > components.rank:
            values, vectors = np.linalg.eigh(_others(components, mode))
            if values[0] <= components.rank * np.finfo(float).eps:
                return None
            variances[:, mode] = (np.abs(vectors) ** 2) @ (1.0 / values)
    return variances


def tangent_frames(unit: Any) -> Any:
    """(rank, q, q) orthonormal bases, each beginning with a column of `unit`, by reflections."""
    vectors = unit.T
    q = vectors.shape[1]
    first = vectors[:, 0]
    phase = np.where(np.abs(first) > 0, first / np.where(first == 0, 1.0, np.abs(first)), 1.0)
    normal = vectors.copy()
    normal[:, 0] += phase
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    frames = np.eye(q) - 2.0 * normal[:, :, None] * normal[:, None, :].conj()
    frames[:, :, 0] *= -phase[:, None]
    return frames


def _general_matrix(frames: Sequence[Any], order: int) -> Any:
    """Terracini's matrix (product of q, rank * tangent dimension)."""
    rank = frames[0].shape[0]
    blocks = []
    for j in range(rank):
        vectors = [frame[j, :, :1] for frame in frames]
        columns = [_kronecker_columns(vectors)]
        for mode in range(order):
            turned = [*vectors[:mode], frames[mode][j, :, 1:], *vectors[mode + 1 :]]
            columns.append(_kronecker_columns(turned))
        blocks.append(np.concatenate(columns, axis=1))
    return np.concatenate(blocks, axis=1)


def _kronecker_columns(matrices: Sequence[Any]) -> Any:
    """Outer products of columns; at most one of the matrices has several."""
    result = matrices[0]
    for matrix in matrices[1:]:
        product = result[:, None, :] * matrix[None, :, :]
        result = product.reshape(result.shape[0] * matrix.shape[0], -1)
    return result


def _symmetric_matrix(frames: Sequence[Any], order: int) -> Any:
    """Terracini's matrix of symmetric components, in orthonormal coordinates.

    Tangent to a^N are a^N itself and N^1/2 sym(u a^(N-1)), of unit norm, for u orthogonal to a.
    An entry that occurs m times in a symmetric tensor counts m^1/2 times.
    """
    frame = frames[0]
    rank, q, _ = frame.shape
    places = np.array(list(itertools.combinations_with_replacement(range(q), order)))
    counts = [
        math.factorial(order) / math.prod(math.factorial(c) for c in np.bincount(place))
        for place in places
    ]
    blocks = []
    for j in range(rank):
        entries = frame[j, places, 0]
        block = np.zeros((len(places), q), dtype=frame.dtype)
        for n in range(order):
            rest = np.prod(np.delete(entries, n, axis=1), axis=1)
            block += rest[:, None] * frame[j, places[:, n], :]
        # The first column has been added up `order` times, the others are divided by N^1/2.
        block[:, 0] /= order
        block[:, 1:] /= math.sqrt(order)
        blocks.append(block)
    return np.concatenate(blocks, axis=1) * np.sqrt(counts)[:, None]


def _by_singular_values(matrix: Any) -> tuple[Any, float]:
    """Diagonal of (U'U)^-1 and the smallest singular value of U, without squaring it."""
    triangle = scipy.linalg.qr(matrix, mode="r", overwrite_a=True, check_finite=False)[0]
    triangle = triangle[: matrix.shape[1]]
    _, values, right = np.linalg.svd(triangle)
    safe = np.maximum(values, np.finfo(float).tiny ** 0.25)
    return (np.abs(right) ** 2 / safe[:, None] ** 2).sum(axis=0), float(values[-1])


def _by_gram(gram: Any) -> tuple[Any, float] | None:
    """The same from U'U by one Cholesky factor; None where that has too few digits."""
    try:
        lower = scipy.linalg.cholesky(gram, lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    inverse = scipy.linalg.solve_triangular(
        lower, np.eye(len(gram)), lower=True, overwrite_b=True, check_finite=False
    )

    def solve(vector: Any) -> Any:
        return inverse.conj().T @ (inverse @ vector)

    operator = scipy.sparse.linalg.LinearOperator(gram.shape, solve, dtype=gram.dtype)
    start = np.cos(np.arange(len(gram)))
    largest = scipy.sparse.linalg.eigsh(operator, 1, v0=start, return_eigenvectors=False)[0]
    smallest = 1.0 / math.sqrt(float(largest))
    if smallest < _SAFE_IN_GRAM:
        return None
    return (np.abs(inverse) ** 2).sum(axis=0), smallest


def _cross(frame: Any) -> Any:
    """(rank, q, rank, q) inner products of all basis vectors of one mode."""
    rank, q, _ = frame.shape
    flat = np.moveaxis(frame, 1, 0).reshape(q, rank * q)
    return (flat.conj().T @ flat).reshape(rank, q, rank, q)


def _general_gram(frames: Sequence[Any], order: int) -> Any:
    """U'U block by block: products over the modes of inner products of basis vectors."""
    crosses = [_cross(frame) for frame in frames]
    rank = frames[0].shape[0]
    starts = np.concatenate([[1], 1 + np.cumsum([f.shape[1] - 1 for f in frames])])
    width = int(starts[-1])
    gram = np.empty((rank, width, rank, width), dtype=np.result_type(*frames))
    places = [(None, slice(0, 1)), *((m, slice(starts[m], starts[m + 1])) for m in range(order))]
    for left, rows in places:
        for right, columns in places:
            block: Any = 1.0
            for mode, cross in enumerate(crosses):
                i = slice(1, None) if mode == left else slice(0, 1)
                j = slice(1, None) if mode == right else slice(0, 1)
                block = block * cross[:, i, :, j]
            gram[:, rows, :, columns] = block
    return gram.reshape(rank * width, rank * width)


def _symmetric_gram(frames: Sequence[Any], order: int) -> Any:
    """U'U of symmetric components; the basis is that of `_symmetric_matrix`."""
    cross = _cross(frames[0])
    rank, q = cross.shape[:2]
    both = cross[:, :1, :, :1]
    gram = cross * both ** (order - 1)
    gram = gram + (order - 1) * cross[:, :1] * cross[:, :, :, :1] * both ** (order - 2)
    scale = np.ones(q)
    scale[0] = 1.0 / math.sqrt(order)
    gram = gram * scale[None, :, None, None] * scale[None, None, None, :]
    return gram.reshape(rank * q, rank * q)


def collected(
    components: Components,
    dimensions: Sequence[int],
    variances: Any,
    outside: Any,
    condition: ConditionNumber,
) -> Sensitivity:
    """Variances along all tangent directions, gathered per component, weight and vector."""
    extra = np.array(components.shape) - np.array(dimensions)
    moved = outside * extra[None, :]
    magnitudes = components.magnitudes[:, None]
    if components.symmetric:
        inside = variances[:, 1:].sum(axis=1, keepdims=True) + moved[:, :1]
        vectors = np.sqrt(inside / components.order) / magnitudes
        vectors = np.repeat(vectors, components.order, axis=1)
        total = variances[:, 0] + inside[:, 0]
    else:
        stops = np.cumsum([d - 1 for d in dimensions])
        parts = np.split(variances[:, 1:], stops[:-1], axis=1)
        inside = np.stack([part.sum(axis=1) for part in parts], axis=1) + moved
        vectors = np.sqrt(inside) / magnitudes
        total = variances[:, 0] + inside.sum(axis=1)
    return Sensitivity(condition, np.sqrt(total), np.sqrt(variances[:, 0]), vectors)
