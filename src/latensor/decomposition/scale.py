"""Bring a tensor of any kind to a scale at which squares and products of its entries are finite.

A fit is equivariant: the components of c T are those of T with weights c w. Tensors whose squared
norm leaves the range of their dtype are divided by a power of two, which loses no digit, and the
weights found are multiplied by it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import singledispatch
from typing import Any

import numpy as np

from latensor.arrays import Array, is_numpy, machine_epsilon, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.optimize.masked import Observed
from latensor.decomposition.result import Decomposition
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.moment import MomentTensor
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tensor_train import TensorTrain
from latensor.tensors.tucker import TuckerTensor

# Norms up to which a fit may square what it meets twice over: the eighth root of the range, which
# leaves room for products with factors and Grams.
_LARGEST_EXPONENT = {"double": 128, "single": 16}


def rescaled(tensor: Contractible) -> tuple[Contractible, float]:
    """A tensor at a scale near one where its own is extreme, and the power of two between them."""
    kind = "single" if machine_epsilon(tensor.reference) > 1e-10 else "double"
    return _rescaled(tensor, _LARGEST_EXPONENT[kind])


@singledispatch
def _rescaled(tensor: Any, limit: int) -> tuple[Any, float]:
    """Tensors that are known through contractions alone stay as they are."""
    return tensor, 1.0


@_rescaled.register
def _(tensor: DenseTensor, limit: int) -> tuple[Any, float]:
    if is_numpy(tensor.array):
        square = tensor.squared_norm
        if not np.isfinite(square):
            refuse_nonfinite(tensor.array, "tensor")
        if np.ldexp(1.0, -2 * limit) < square < np.ldexp(1.0, 2 * limit):
            return tensor, 1.0
    scale = _power(_largest(tensor.array))
    if 2.0**-limit < scale < 2.0**limit:
        return tensor, 1.0
    return DenseTensor(_divided(tensor.array, scale)), scale


@_rescaled.register
def _(tensor: SparseTensor, limit: int) -> tuple[Any, float]:
    scale = _power(_largest(tensor.values)) if tensor.nnz else 1.0
    if 2.0**-limit < scale < 2.0**limit:
        return tensor, 1.0
    values = _divided(tensor.values, scale)
    return SparseTensor(tensor.coordinates, values, tensor.shape), scale


@_rescaled.register
def _(tensor: CPTensor, limit: int) -> tuple[Any, float]:
    parts, exponent = _normalized([tensor.weights, *tensor.factors], limit)
    if parts is None:
        return tensor, 1.0
    return CPTensor(parts[0], tuple(parts[1:])), _product(exponent)


@_rescaled.register
def _(tensor: TuckerTensor, limit: int) -> tuple[Any, float]:
    given = [f for f in tensor.factors if f is not None]
    parts, exponent = _normalized([tensor.core, *given], limit)
    if parts is None:
        return tensor, 1.0
    rest = iter(parts[1:])
    factors = tuple(None if f is None else next(rest) for f in tensor.factors)
    return TuckerTensor(parts[0], factors), _product(exponent)


@_rescaled.register
def _(tensor: TensorTrain, limit: int) -> tuple[Any, float]:
    parts, exponent = _normalized(list(tensor.cores), limit)
    if parts is None:
        return tensor, 1.0
    return TensorTrain(tuple(parts), tensor.residual), _product(exponent)


@_rescaled.register
def _(tensor: MomentTensor, limit: int) -> tuple[Any, float]:
    if not tensor.views:
        return _rescaled_batches(tensor, limit)
    weights, views = tensor.weights, tensor.views
    parts, exponent = _normalized([weights, *views], limit)
    if parts is None:
        return tensor, 1.0
    return MomentTensor(tuple(parts[1:]), parts[0]), _product(exponent)


def _rescaled_batches(tensor: Any, limit: int) -> tuple[Any, float]:
    """Of batches the first says how large entries are."""
    scales = [_power(largest) for largest in tensor.largest_entries]
    exponents = [int(np.log2(scales[view])) for view in tensor.modes_read]
    if all(abs(e) <= limit // len(exponents) for e in exponents):
        return tensor, 1.0
    return tensor.divided(scales), _product(sum(exponents))


@_rescaled.register
def _(tensor: Observed, limit: int) -> tuple[Any, float]:
    scale = _power(float(np.abs(tensor.entries).max(initial=0.0)))
    if 2.0**-limit < scale < 2.0**limit:
        return tensor, 1.0
    return replace(tensor, entries=tensor.entries / scale), scale


def _normalized(arrays: list[Any], limit: int) -> tuple[list[Any] | None, int]:
    """Arrays whose product makes a tensor, each with a largest entry near one; and the exponent.

    None in place of the arrays where none of them, nor their product, is extreme.
    """
    distinct = {id(array): array for array in arrays}
    scales = {key: _power(_largest(array)) for key, array in distinct.items()}
    exponents = [int(np.log2(scales[id(array)])) for array in arrays]
    tame = limit // max(len(arrays), 1)
    if all(abs(e) <= tame for e in exponents):
        return None, 0
    divided = {key: _divided(array, scales[key]) for key, array in distinct.items()}
    return [divided[id(array)] for array in arrays], sum(exponents)


def _product(exponent: int) -> float:
    if not -1074 <= exponent <= 1023:
        raise InvalidInputError(
            f"tensor has entries of about 2^{exponent}, outside the range of double precision: "
            "multiply its weights or factors by a constant first"
        )
    return float(np.ldexp(1.0, exponent))


def _power(largest: float) -> float:
    """The power of two at or below a magnitude; one for zero."""
    if not 0.0 < largest < np.inf:
        return 1.0
    return float(np.ldexp(1.0, int(np.frexp(largest)[1]) - 1))


def _largest(array: Any) -> float:
    if hasattr(array, "tocoo"):
        return float(np.abs(array.data).max(initial=0.0))
    if is_numpy(array) and array.dtype.kind == "c":
        return float(max(np.abs(array.real).max(), np.abs(array.imag).max()))
    return float(to_host(abs(array).max()))


def _divided(array: Array, scale: float) -> Any:
    """An array over a power of two; in two steps where its reciprocal is out of range."""
    if scale < 2.0**-1000:
        return _divided(array * 2.0**500, scale * 2.0**500)
    return array * (1.0 / scale)


def restored(result: Decomposition, scale: float) -> Decomposition:
    """A result of a rescaled tensor as one of the tensor itself."""
    return result if scale == 1.0 else replace(result, tensor=restored_tensor(result.tensor, scale))


def restored_tensor(cp: CPTensor, scale: float) -> CPTensor:
    """A CP tensor with its weights multiplied back; refused where they leave the range."""
    with np.errstate(over="ignore", under="ignore"):
        weights = cp.weights * scale
    if not np.isfinite(to_host(abs(weights))).all():
        raise InvalidInputError(
            f"tensor has entries up to {scale:.0e}, so that the weights of its components leave "
            f"the range of {cp.weights.dtype}: divide the tensor first, and multiply the weights"
        )
    return CPTensor(weights, cp.factors)


def scaled_start(start: CPTensor, scale: float, norm: float) -> CPTensor:
    """A start for T / scale, whose norm is given, from one for T.

    One so much smaller or larger than the tensor that the squares of one vanish in the rounding of
    the other's is brought to its size.
    """
    largest = float(np.abs(to_host(start.normalized().weights)).max(initial=0.0))
    root = machine_epsilon(start.weights) ** 0.5
    if largest > 0.0 < norm and not root * norm < largest / scale < norm / root:
        scale = largest / norm
    return CPTensor(start.weights / scale, start.factors)


def scaled_ridge(ridge: float, scale: float, order: int) -> float:
    """The ridge that makes the fit of T / scale equivalent to that of T.

    With factors A_n / scale^(1/p), |T - M|^2 + ridge sum |A_n|^2 is scale^2 times
    |T / scale - M / scale|^2 + ridge scale^(2/p - 2) sum |A_n|^2 / scale^(2/p).
    """
    exponent = (2.0 / order - 2.0) * float(np.log2(scale))
    return float(ridge * np.exp2(np.clip(exponent, -1000.0, 1000.0)))
