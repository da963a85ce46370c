"""Products and symmetry of the monograph's section 3.2, for every kind of tensor.

Functions that contract take dense arrays and all latensor tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from latensor.arrays import (
    Array,
    Namespace,
    check_finite,
    check_mode,
    describe,
    is_complex,
    require_matrix,
    resolve,
    to_host,
)
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Sweep
from latensor.tensors.conversion import as_contractible, require_dense
from latensor.tensors.dense import DenseTensor, frobenius
from latensor.tensors.factored import FactoredTensor
from latensor.tensors.operands import require_one_shape, resolve_sequence
from latensor.tensors.tensor_train import TensorTrain
from latensor.tensors.tucker import TuckerTensor


@with_guests
def mode_product(tensor: Any, matrix: Array, mode: int) -> Array:
    """Multiply every mode-`mode` fibre by a (rows, d) matrix, or sum it against a (d,) vector.

    This is Kolda's and TensorLy's convention: the matrix acts from the left. The multilinear form
    T(A, B, C) acts with the transpose, see `multilinear`.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.mode_product(np.ones((2, 3, 4)), np.ones((5, 3)), 1).shape
    (2, 5, 4)
    """
    contractible = as_contractible(tensor)
    mode = check_mode(mode, len(contractible.shape))
    _, arrays = resolve(tensor=contractible.reference, matrix=matrix)
    operand = arrays["matrix"]
    if operand.ndim not in (1, 2) or operand.shape[-1] != contractible.shape[mode]:
        raise InvalidInputError(
            f"matrix must have {contractible.shape[mode]} columns (or be a vector of that length), "
            f"as mode {mode} of the tensor, got {describe(operand)}"
        )
    if 0 in operand.shape:
        raise InvalidInputError(f"matrix is empty: {describe(operand)}")
    refuse_nonfinite(operand, "matrix")
    operand = operand.T if operand.ndim == 2 else operand
    operands: list[Array | None] = [None] * len(contractible.shape)
    operands[mode] = operand
    return contractible.contract(*operands)


@with_guests
def multilinear(tensor: Any, *operands: Array | None) -> Array:
    """The multilinear form T(A, B, C) (monograph, equation 3.3).

    T(A, B, C)[j1, j2, j3] = sum over i of T[i1, i2, i3] A[i1, j1] B[i2, j2] C[i3, j3].

    Parameters
    ----------
    tensor : dense array or latensor tensor
    *operands : one per mode: a (d, k) matrix, a (d,) vector, which sums the mode away, or None for
        the identity, which keeps it

    Returns
    -------
    array with one mode per matrix and None, or a scalar where all operands are vectors

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> T = lt.outer(np.array([1.0, 2.0]), np.array([3.0, 4.0]), np.array([5.0, 6.0]))
    >>> lt.multilinear(T, None, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    array([18., 36.])
    """
    return as_contractible(tensor).contract(*operands)


@with_guests
def outer(*tensors: Array) -> Array:
    """The outer product of vectors, matrices or tensors: one entry per choice of entries.

    Takes the arrays one by one, or one sequence of them.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.outer([np.array([1.0, 2.0]), np.array([3.0, 4.0])]).tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    xp, items = resolve_sequence(tensors, "tensors")
    result = items[0]
    for item in items[1:]:
        shape = (*result.shape, *item.shape)
        result = xp.reshape(xp.reshape(result, (-1, 1)) * xp.reshape(item, (1, -1)), shape)
    return check_finite(result, tensors=items)


@with_guests
def inner(a: Any, b: Any, n_modes: int | None = None) -> Any:
    """The inner product of two tensors of one shape: sum of conj(a) b over all entries.

    Any kinds may be paired; nothing is densified: a CP, Tucker or moment tensor is contracted
    with the other, sparse tensors meet where both have entries.

    Parameters
    ----------
    a, b : dense arrays or latensor tensors
    n_modes : int, for dense arrays: sum over the last modes of `a` and as many first ones of `b`
        only, of the same dimensions; all other modes stay, as in a matrix product, and nothing is
        conjugated. None for all

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> float(lt.inner(np.array([1.0, 2.0]), np.array([3.0, 4.0])))
    11.0
    >>> lt.inner(np.ones((2, 3, 4)), np.ones((3, 4, 5)), n_modes=2).shape
    (2, 5)
    """
    if n_modes is not None:
        return _contracted(a, b, n_modes)
    left, right = as_contractible(a, "a"), as_contractible(b, "b")
    if left.shape != right.shape:
        raise InvalidInputError(
            f"a has shape {left.shape} but b has shape {right.shape}: they must agree"
        )
    xp, _ = resolve(a=left.reference, b=right.reference)
    return check_finite(_inner(xp, left, right), **_entries("a", left), **_entries("b", right))


def _contracted(a: Any, b: Any, n_modes: int) -> Any:
    """The last modes of a dense tensor summed against the first of another."""
    left, right = (require_dense(t, name, "inner with n_modes") for t, name in ((a, "a"), (b, "b")))
    xp, both = resolve(a=left.array, b=right.array)
    most = min(left.array.ndim, right.array.ndim)
    whole = isinstance(n_modes, int) and not isinstance(n_modes, bool)
    if not whole or not 1 <= n_modes <= most:
        raise InvalidInputError(f"n_modes={n_modes!r} must be an integer from 1 to {most}")
    if left.shape[-n_modes:] != right.shape[:n_modes]:
        raise InvalidInputError(
            f"the last {n_modes} dimensions of a, {left.shape[-n_modes:]}, must be the first of b, "
            f"{right.shape[:n_modes]}"
        )
    return check_finite(xp.tensordot(both["a"], both["b"], axes=n_modes), **both)


def _inner(xp: Namespace, left: Any, right: Any) -> Any:
    if isinstance(left, DenseTensor) and isinstance(right, DenseTensor):
        _, both = resolve(a=left.array, b=right.array)
        return xp.sum(_conjugate(xp, both["a"]) * both["b"])
    # One side is contracted with the terms of the other; what has fewer terms is taken apart.
    if isinstance(left, FactoredTensor) and isinstance(right, FactoredTensor):
        if left.n_terms <= right.n_terms:
            return _inner_with_terms(xp, left, right)
        return _conjugate(xp, _inner_with_terms(xp, right, left))
    if isinstance(left, FactoredTensor):
        return _inner_with_terms(xp, left, right)
    if isinstance(right, FactoredTensor):
        return _conjugate(xp, _inner_with_terms(xp, right, left))
    if isinstance(left, TuckerTensor):
        return _inner_with_core(xp, left, right)
    if isinstance(right, TuckerTensor):
        return _conjugate(xp, _inner_with_core(xp, right, left))
    if isinstance(right, TensorTrain) and not isinstance(left, TensorTrain):
        return _conjugate(xp, right.inner(left))  # a sparse tensor does not know trains
    if hasattr(left, "inner"):
        return left.inner(right.array if isinstance(right, DenseTensor) else right)
    if hasattr(right, "inner"):
        return _conjugate(xp, right.inner(left.array if isinstance(left, DenseTensor) else left))
    # A tensor of the caller's own kind, which answers contractions only.
    left, right = (t.array if isinstance(t, DenseTensor) else _all_kept(t) for t in (left, right))
    return xp.sum(_conjugate(xp, left) * right)


def _all_kept(tensor: Any) -> Array:
    return tensor.contract(*([None] * len(tensor.shape)))


def _entries(name: str, tensor: Any) -> dict[str, Any]:
    """The arrays a tensor is made of, under the caller's name, to be searched for NaN."""
    if isinstance(tensor, DenseTensor):
        return {name: tensor.array}
    if isinstance(tensor, TuckerTensor):
        return {f"{name}.core": tensor.core, f"{name}.factors": tensor.factors}
    if isinstance(tensor, FactoredTensor):
        return {f"{name}.{key.split('.')[-1]}": item for key, item in tensor._entries().items()}
    return {}


def _conjugate(xp: Namespace, array: Array) -> Array:
    return xp.conj(array) if is_complex(array) else array


def _inner_with_terms(xp: Namespace, terms: FactoredTensor, other: Any) -> Any:
    """<terms, other> by the mttkrp of `other` with the vectors of the terms, in blocks of them."""
    total: Any = 0.0
    for block in terms._blocks(sum(terms.shape)):
        factors = [xp.permute_dims(terms._load(m, None, block), (1, 0)) for m in range(terms.order)]
        image = other.mttkrp(factors, 0)
        per_term = xp.sum(_conjugate(xp, factors[0]) * image, axis=0)
        total = total + xp.sum(_conjugate(xp, terms._weights(block)) * per_term)
    return total


def _inner_with_core(xp: Namespace, tucker: TuckerTensor, other: Any) -> Any:
    """<tucker, other> on the core: <S, other(conj A, conj B, conj C)>."""
    operands = [None if f is None else _conjugate(xp, f) for f in tucker.factors]
    return xp.sum(_conjugate(xp, tucker.core) * other.contract(*operands))


@with_guests
def kronecker(*matrices: Array) -> Array:
    """The Kronecker product of matrices, taken one by one or as one sequence.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.kronecker([np.eye(2), np.ones((3, 2))]).shape
    (6, 4)
    """
    xp, items = resolve_sequence(matrices, "matrices")
    for i, matrix in enumerate(items):
        require_matrix(matrix, f"matrices[{i}]")
    result = items[0]
    for matrix in items[1:]:
        product = result[:, None, :, None] * matrix[None, :, None, :]
        shape = (result.shape[0] * matrix.shape[0], result.shape[1] * matrix.shape[1])
        result = xp.reshape(product, shape)
    return check_finite(result, matrices=items)


@with_guests
def khatri_rao(*matrices: Array) -> Array:
    """The column-wise Kronecker product of matrices with equal numbers of columns (equation 3.9).

    Takes the matrices one by one, or one sequence of them; the rows of the last vary fastest, so
    that `unfold(T, 0) = A @ khatri_rao([B, C]).T` for a CP tensor with factors A, B, C.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.khatri_rao([np.eye(2), np.ones((3, 2))]).shape
    (6, 2)
    """
    xp, items = resolve_sequence(matrices, "matrices")
    for i, matrix in enumerate(items):
        require_matrix(matrix, f"matrices[{i}]")
        if matrix.shape[1] != items[0].shape[1]:
            raise InvalidInputError(
                f"matrices[{i}] has {matrix.shape[1]} columns, "
                f"but matrices[0] has {items[0].shape[1]}"
            )
    result = items[0]
    for matrix in items[1:]:
        result = xp.reshape(result[:, None, :] * matrix[None, :, :], (-1, result.shape[1]))
    return check_finite(result, matrices=items)


@with_guests
def hadamard(*tensors: Array) -> Array:
    """The entrywise product of arrays of one shape (equation 3.10), one by one or as a sequence.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.hadamard(np.array([1.0, 2.0]), np.array([3.0, 4.0])).tolist()
    [3.0, 8.0]
    """
    _, items = resolve_sequence(tensors, "tensors")
    require_one_shape(items, "tensors")
    result = items[0]
    for item in items[1:]:
        result = result * item
    return check_finite(result, tensors=items)


@with_guests
def mttkrp(tensor: Any, factors: Sequence[Array], mode: int) -> Array:
    """Unfolding times the Khatri-Rao product of all other factors, the step of every CP fit.

    Equal to `unfold(tensor, mode) @ conj(khatri_rao(factors without that of mode))`, computed
    without an unfolding, and without a Khatri-Rao product larger than the tensor. To visit all
    modes in turn, `sweep` shares work between them.

    Parameters
    ----------
    tensor : dense array or latensor tensor
    factors : one (d, rank) matrix per mode; that of `mode` is not read and may be None
    mode : int

    Returns
    -------
    (d_mode, rank) array

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> factors = [np.ones((d, 2)) for d in (3, 4, 5)]
    >>> lt.mttkrp(np.ones((3, 4, 5)), factors, 0).tolist()
    [[20.0, 20.0], [20.0, 20.0], [20.0, 20.0]]
    """
    return as_contractible(tensor).mttkrp(factors, mode)


def sweep(tensor: Any, factors: Sequence[Array]) -> Sweep:
    """The mttkrps of all modes while factors are replaced, with shared work between the modes.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> T = np.arange(24.0).reshape(2, 3, 4)
    >>> factors = [np.ones((d, 2)) for d in T.shape]
    >>> run = lt.sweep(T, factors)
    >>> for mode in range(3):
    ...     run.replace(mode, run.mttkrp(mode) / 100)
    >>> run.mttkrp(0).shape
    (2, 2)
    """
    return as_contractible(tensor).sweep(factors)


@with_guests
def symmetrize(tensor: Array) -> Array:
    """The average of a tensor over all permutations of its modes.

    Costs p(p+1)/2 transpositions for order p rather than p!: a tensor symmetric in its first m
    modes becomes symmetric in m + 1 by averaging over the swaps of the last of them.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.symmetrize(np.array([[0.0, 2.0], [0.0, 0.0]])).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    dense = require_dense(tensor, "tensor", "symmetrizing")
    _require_cubic(dense)
    xp, result = dense.namespace, dense.array
    for last in range(1, result.ndim):
        total = result
        for m in range(last):
            axes = list(range(result.ndim))
            axes[m], axes[last] = last, m
            total = total + xp.permute_dims(result, tuple(axes))
        result = total / (last + 1)
    return check_finite(result, tensor=dense.array)


@with_guests
def asymmetry(tensor: Array) -> float:
    """How far a tensor is from symmetric: the largest relative change by swapping two modes.

    Swaps of neighbouring modes generate all permutations, so that zero means symmetric. A tensor
    whose modes differ in dimension cannot be symmetric and gets infinity.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> float(lt.asymmetry(np.eye(3))), bool(lt.asymmetry(np.triu(np.ones((3, 3)))) > 0)
    (0.0, True)
    """
    dense = require_dense(tensor, "tensor", "measuring asymmetry")
    if len(set(dense.shape)) > 1:
        return math.inf
    xp, array = dense.namespace, dense.array
    scale = float(to_host(dense.norm()))
    worst = 0.0
    for m in range(array.ndim - 1):
        axes = list(range(array.ndim))
        axes[m], axes[m + 1] = m + 1, m
        change = array - xp.permute_dims(array, tuple(axes))
        worst = max(worst, float(to_host(frobenius(xp, change))))
    return worst / scale if scale > 0 else 0.0


def _require_cubic(dense: DenseTensor) -> None:
    if len(set(dense.shape)) > 1:
        raise InvalidInputError(
            f"tensor of shape {dense.shape} cannot be symmetric: all modes must have one dimension"
        )
