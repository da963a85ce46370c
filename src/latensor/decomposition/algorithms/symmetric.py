"""What the algorithms for symmetric tensors share: their checks, their cores, their results."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays import is_complex, like, machine_epsilon, resolve, to_host
from latensor.decomposition.setup import refuse_rank
from latensor.exceptions import InvalidInputError
from latensor.tensors.algebra import asymmetry, symmetrize
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor


def symmetric_tensor(tensor: object, algorithm: str, complex_allowed: bool = False) -> Contractible:
    """What the caller brought as a symmetric tensor of order 3 or more, or a refusal.

    Parameters
    ----------
    tensor : dense array of any library, or a latensor tensor
    algorithm : str, what error messages call the algorithm
    complex_allowed : bool
    """
    data = as_contractible(tensor)
    if len(data.shape) < 3:
        raise InvalidInputError(
            f"tensor has order {len(data.shape)} (shape {data.shape}), but {algorithm} needs "
            "order 3 or more: use truncated_svd for a matrix"
        )
    refuse_nonfinite_tensor(data)
    if is_complex(data.reference) and not complex_allowed:
        raise InvalidInputError(
            f"tensor is complex, but {algorithm} needs real entries: "
            "use SimultaneousDiagonalization or AlternatingLeastSquares"
        )
    measured = measured_asymmetry(data)
    limit = machine_epsilon(data.reference) ** 0.5
    if measured > limit:
        if np.isinf(measured):
            why = f"its modes differ in dimension (shape {data.shape})"
        else:
            why = (
                f"swapping two modes changes it by {measured:.1e} of its norm (at most {limit:.0e})"
            )
        raise InvalidInputError(
            f"tensor is not symmetric: {why}. {algorithm} needs a symmetric tensor: give "
            "latensor.symmetrize(tensor) if that is meant, or use SimultaneousDiagonalization, "
            "AlternatingLeastSquares or PowerMethod(symmetric=False)"
        )
    return data


def refuse_nonfinite_tensor(tensor: Contractible) -> None:
    """Refuse NaN and infinity in a dense tensor; others are checked when they are made."""
    if isinstance(tensor, DenseTensor):
        tensor.norm()


def measured_asymmetry(tensor: Contractible) -> float:
    """The largest relative change by swapping two neighbouring modes.

    Exact for dense tensors and CP tensors that share their factor; for other tensors measured on
    contractions with fixed random vectors.
    """
    shape = tensor.shape
    if len(set(shape)) > 1:
        return np.inf
    if isinstance(tensor, DenseTensor):
        return asymmetry(tensor.array)
    if isinstance(tensor, CPTensor) and tensor.is_symmetric:
        return 0.0
    rng = np.random.default_rng(0)
    probes = [like(rng.standard_normal((d, 1)) / np.sqrt(d), tensor.reference) for d in shape]
    base = to_host(tensor.mttkrp(probes, 0))
    swaps = [tensor.mttkrp([probes[1], probes[0], *probes[2:]], 1)]
    for mode in range(1, len(shape) - 1):
        turned = list(probes)
        turned[mode], turned[mode + 1] = turned[mode + 1], turned[mode]
        swaps.append(tensor.mttkrp(turned, 0))
    change = max(float(np.linalg.norm(to_host(swap) - base)) for swap in swaps)
    scale = float(np.linalg.norm(base))
    return change / scale if scale > 0 else 0.0


def rank_at_most(
    rank: object,
    limit: int,
    algorithm: str,
    why: str,
    remedy: str = "AlternatingLeastSquares or algorithm='auto'",
) -> int:
    """`rank` as an integer between one and what an algorithm can do."""
    number = refuse_rank(rank)
    if number > limit:
        raise InvalidInputError(
            f"rank={number} is above the {limit} that {algorithm} can find, {why}: use {remedy}"
        )
    return number


def exactly_symmetric(core: Any) -> Any:
    """A core without the asymmetry that rounding gave it."""
    return np.ascontiguousarray(symmetrize(core))


def symmetric_cp(reference: Any, weights: Any, vectors: Any, order: int) -> CPTensor:
    """A symmetric CP tensor in the caller's library and dtype, in canonical form.

    All modes share one factor object. At odd order w v^(x)p = -w (-v)^(x)p: there the sign goes
    to the vector, which is then determined, and no weight of a real tensor is negative.
    """
    factor = like(vectors, reference)
    cp = CPTensor(like(weights, reference), (factor,) * order).canonical()
    if order % 2 == 0 or is_complex(cp.weights):
        return cp
    signs = like(np.where(np.asarray(to_host(cp.weights)) < 0, -1.0, 1.0), reference)
    return CPTensor(cp.weights * signs, (cp.factors[0] * signs[None, :],) * order)


def completed(vectors: Any, count: int) -> Any:
    """Unit columns, then orthonormal ones outside their span for components of weight zero."""
    missing = count - vectors.shape[1]
    if missing <= 0:
        return vectors
    # A fixed draw: which directions carry no weight is not a matter of the caller's seed.
    noise = np.random.default_rng(0).standard_normal((vectors.shape[0], missing))
    return np.hstack([vectors, np.linalg.qr(np.hstack([vectors, noise]))[0][:, -missing:]])


def relative_residual(tensor: Contractible, model: CPTensor) -> float:
    """The Frobenius norm of tensor minus model relative to that of the tensor.

    Entry by entry for dense tensors; from inner products, and then no smaller than rounding
    leaves it (about 1e-8 in double precision), for all others.
    """
    scale = float(tensor.norm())
    if scale == 0.0:
        return 0.0
    if isinstance(tensor, DenseTensor):
        left = tensor.array - model.to_dense()
        norm = tensor.namespace.linalg.vector_norm(tensor.namespace.reshape(left, (-1,)))
        return float(norm) / scale
    xp, _ = resolve(tensor=tensor.reference)
    image = tensor.mttkrp(list(model.factors), 0)
    first = model.factors[0]
    conjugate = xp.conj(first) if is_complex(first) else first
    weights = xp.conj(model.weights) if is_complex(model.weights) else model.weights
    inner = complex(to_host(xp.sum(weights * xp.sum(conjugate * image, axis=0)))).real
    loss = scale**2 - 2.0 * inner + float(model.norm()) ** 2
    return float(np.sqrt(max(loss, 0.0))) / scale
