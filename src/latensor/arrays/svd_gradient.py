"""Leading singular triplets of a matrix that PyTorch or JAX follows.

Both libraries differentiate all triplets, and divide by the differences of all squared singular
values: a matrix of low rank, whose values beyond it are all zero, gets NaN for triplets that are
smooth. Here only the leading ones are differentiated, against each other and against the rest.
"""

from __future__ import annotations

from typing import Any

import array_api_compat

from latensor.arrays.library import Array, is_traced, library_name, machine_epsilon
from latensor.arrays.linear_map import conjugate_transpose
from latensor.arrays.subspace import Triplets, thin_svd
from latensor.exceptions import NotIdentifiableError


def followed_triplets(matrix: Array, rank: int) -> Triplets:
    """The `rank` leading triplets of a dense matrix, with gradients of their own.

    PyTorch raises NotIdentifiableError from `backward` where a triplet that matters is no function
    of the matrix (equal or zero values); JAX, which knows no numbers then, gives NaN.
    """
    if library_name(matrix) == "torch":
        return Triplets(*_by_torch(matrix, rank))
    return Triplets(*_by_jax(matrix, rank))


def _by_torch(matrix: Array, rank: int) -> tuple[Array, ...]:
    import torch

    class Leading(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, followed: Array) -> tuple[Array, ...]:
            context.triplets = thin_svd(followed.detach())
            return _cut(context.triplets, rank)

        @staticmethod
        @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
        def backward(context: Any, *cotangents: Array) -> Array:
            return cotangent_of_matrix(context.triplets, rank, cotangents)

    found: tuple[Array, ...] = Leading.apply(matrix)
    return found


def _by_jax(matrix: Array, rank: int) -> tuple[Array, ...]:
    import jax

    def backward(triplets: Triplets, cotangents: tuple[Array, ...]) -> tuple[Array]:
        # JAX's cotangents of complex arrays are the conjugates of PyTorch's.
        return (cotangent_of_matrix(triplets, rank, [c.conj() for c in cotangents]).conj(),)

    def forward(values: Array) -> tuple[tuple[Array, ...], Triplets]:
        triplets = thin_svd(values)
        return _cut(triplets, rank), triplets

    leading = jax.custom_vjp(lambda values: _cut(thin_svd(values), rank))
    leading.defvjp(forward, backward)
    found: tuple[Array, ...] = leading(matrix)
    return found


def _cut(triplets: Triplets, rank: int) -> tuple[Array, ...]:
    return triplets.left[:, :rank], triplets.values[:rank], triplets.right[:, :rank]


def cotangent_of_matrix(triplets: Triplets, rank: int, cotangents: Any) -> Array:
    """The cotangent of M from those of the leading left vectors U, values s and right vectors V.

    With G = (1 - U U') cot U and H = (1 - V V') cot V, and N = M - U diag(s) V', the columns of X
    and Y solve s x - N y = g and s y - N' x = h, and X V' + U Y' is what turns of the subspaces
    contribute; turns inside them follow from differences of squared values.
    """
    xp = array_api_compat.array_namespace(triplets.left)
    (left, values, right), (of_left, of_values, of_right) = _cut(triplets, rank), cotangents
    rest_left, rest_right = triplets.left[:, rank:], triplets.right[:, rank:]
    rest = triplets.values[rank:]
    rounding = machine_epsilon(left) ** 0.5 * (_size(xp, of_left) + _size(xp, of_right))
    small = 10 * max(left.shape[0], right.shape[0]) * machine_epsilon(left) * values[0]

    def over(above: Array, below: Array, vanishing: Array, needed: Array) -> Array:
        """A quotient; zero where nothing `needed` would be divided by nothing but rounding."""
        wrong = vanishing & (needed > rounding)
        if not is_traced(wrong) and bool(xp.any(wrong)):
            raise NotIdentifiableError(
                "no gradient: singular values are equal or zero, so that their singular vectors "
                "are no function of the matrix. Lower the rank"
            )
        quotient = above / xp.where(vanishing, xp.ones_like(below), below)
        quotient = xp.where(vanishing, xp.zeros_like(quotient), quotient)
        return xp.where(wrong, xp.full_like(quotient, xp.nan), quotient)

    def turn(first: Array, second: Array, ours: Array, theirs: Array) -> Array:
        """(ours first + theirs second) / (ours^2 - theirs^2) for pairs of singular values."""
        needed = xp.abs(first) + xp.abs(second)
        below = (ours - theirs) * (ours + theirs)
        return over(ours * first + theirs * second, below, xp.abs(ours - theirs) <= small, needed)

    row, column, others = values[None, :], values[:, None], rest[:, None]
    inner_left = _skew(conjugate_transpose(left) @ of_left)
    inner_right = _skew(conjugate_transpose(right) @ of_right)
    eye = xp.eye(rank, dtype=values.dtype)
    inside = turn((1 - eye) * inner_left, (1 - eye) * inner_right, row, column)
    # The phase that a left and a right vector share.
    phase, low = eye * inner_left / 2, row <= small
    inside = inside + over(phase, row, low, xp.abs(phase)) + eye * of_values
    outer_left = of_left - left @ (conjugate_transpose(left) @ of_left)
    outer_right = of_right - right @ (conjugate_transpose(right) @ of_right)
    alpha = conjugate_transpose(rest_left) @ outer_left
    beta = conjugate_transpose(rest_right) @ outer_right
    beyond_left, beyond_right = outer_left - rest_left @ alpha, outer_right - rest_right @ beta
    x = rest_left @ turn(alpha, beta, row, others)
    y = rest_right @ turn(beta, alpha, row, others)
    x = x + over(beyond_left, row, low, xp.abs(beyond_left))
    y = y + over(beyond_right, row, low, xp.abs(beyond_right))
    return (left @ inside + x) @ conjugate_transpose(right) + left @ conjugate_transpose(y)


def _skew(matrix: Array) -> Array:
    return matrix - conjugate_transpose(matrix)


def _size(xp: Any, array: Array) -> Array:
    return xp.sum(xp.abs(array) ** 2) ** 0.5
