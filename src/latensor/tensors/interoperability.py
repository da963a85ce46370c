"""In and out of TensorLy and pyttb, without importing either unless the caller asks for it.

Objects that come in are recognised by the name of their class and read through their public
attributes; only the functions that make a TensorLy or pyttb object import that package.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import to_host
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor
from latensor.tensors.parafac2 import Parafac2Tensor
from latensor.tensors.tensor_train import TensorTrain
from latensor.tensors.tucker import TuckerTensor


def from_tensorly(value: Any) -> CPTensor | TuckerTensor | TensorTrain | Parafac2Tensor:
    """A TensorLy `CPTensor`, `TuckerTensor`, `TTTensor` or `Parafac2Tensor`, or a pair.

    In a pair, (weights, factors) or (core, factors), the first item tells the form: None or a
    vector is the weights of a CP tensor, an array with one mode per factor is the core of a Tucker
    tensor.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> lt.from_tensorly((np.ones(2), [np.ones((3, 2)), np.ones((4, 2))])).shape
    (3, 4)
    """
    if type(value).__name__ == "TTTensor":
        return TensorTrain(tuple(value.factors))
    if type(value).__name__ == "Parafac2Tensor":
        weights, factors, projections = value
        return Parafac2Tensor(weights, tuple(factors), tuple(projections))
    try:
        head, factors = value
        factors = list(factors)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "expected a TensorLy CPTensor, TuckerTensor, TTTensor, Parafac2Tensor or pair, got "
            f"{type(value).__name__}"
        ) from None
    order = getattr(head, "ndim", None)
    if head is None or (order == 1 and not _is_tucker(value)):
        return CPTensor(head, tuple(factors))
    if order == len(factors):
        return TuckerTensor(head, tuple(factors))
    raise InvalidInputError(
        f"the first item of the pair has {order} axes beside {len(factors)} factors: expected "
        "(rank,) weights of a CP tensor, or a core with one axis per factor"
    )


def _is_tucker(value: Any) -> bool:
    return type(value).__name__ == "TuckerTensor"


def cp_to_tensorly(tensor: CPTensor) -> Any:
    """A CP tensor as TensorLy's; its arrays are shared, not copied."""
    from tensorly.cp_tensor import CPTensor as TensorlyCPTensor

    return TensorlyCPTensor((tensor.weights, list(tensor.factors)))


def tucker_to_tensorly(tensor: TuckerTensor) -> Any:
    """A Tucker tensor as TensorLy's; a mode without a factor gets the identity."""
    from tensorly.tucker_tensor import TuckerTensor as TensorlyTuckerTensor

    return TensorlyTuckerTensor((tensor.core, _with_identities(tensor)))


def _with_identities(tensor: TuckerTensor) -> list[Any]:
    xp = tensor._namespace
    return [
        xp.eye(dimension, dtype=tensor.core.dtype, device=tensor.core.device)
        if factor is None
        else factor
        for dimension, factor in zip(tensor.core.shape, tensor.factors, strict=True)
    ]


def from_pyttb(value: Any) -> Any:
    """A pyttb `ktensor`, `ttensor`, `sptensor` or `tensor` as latensor's kind of the same form.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> pyttb = __import__("pyttb")
    >>> lt.from_pyttb(pyttb.tensor(np.ones((2, 3)))).shape
    (2, 3)
    """
    kind = type(value).__name__
    if kind == "ktensor":
        return CPTensor(
            np.asarray(value.weights), tuple(np.asarray(f) for f in value.factor_matrices)
        )
    if kind == "ttensor":
        core = from_pyttb(value.core)
        core = core if isinstance(core, np.ndarray) else core.to_dense()
        return TuckerTensor(core, tuple(np.asarray(f) for f in value.factor_matrices))
    if kind == "sptensor":
        from latensor.tensors.sparse import SparseTensor

        return SparseTensor.from_pyttb(value)
    if kind == "tensor":
        return np.asarray(value.data)
    raise InvalidInputError(f"expected a pyttb ktensor, ttensor, sptensor or tensor, got {kind}")


def cp_to_pyttb(tensor: CPTensor) -> Any:
    """A CP tensor as `pyttb.ktensor`, which copies it to host memory in column-major order."""
    import pyttb

    factors = [np.asfortranarray(to_host(factor)) for factor in tensor.factors]
    return pyttb.ktensor(factors, np.array(to_host(tensor.weights)))


def tucker_to_pyttb(tensor: TuckerTensor) -> Any:
    """A Tucker tensor as `pyttb.ttensor`; a mode without a factor gets the identity."""
    import pyttb

    core = pyttb.tensor(np.asfortranarray(to_host(tensor.core)))
    return pyttb.ttensor(core, [np.asfortranarray(to_host(f)) for f in _with_identities(tensor)])
