"""Whitening of symmetric tensors, and the way back (monograph 3.4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from latensor.arrays import (
    Array,
    check_positive_int,
    describe,
    generator,
    is_complex,
    like,
    machine_epsilon,
    resolve,
    standard_normal,
    to_host,
)
from latensor.arrays.factorization import truncated_svd
from latensor.arrays.randomness import RandomState
from latensor.arrays.subspace import orthonormal
from latensor.exceptions import InvalidInputError, NotIdentifiableError, RankDeficientError
from latensor.tensors.algebra import asymmetry, symmetrize
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor
from latensor.whitening.definite_slice import definite_combination
from latensor.whitening.matrix import Whitening, whiten

Scale = Literal["equal", "unit_l1", "unit_l2", "unknown"]
SCALES = ("equal", "unit_l1", "unit_l2", "unknown")
_OVERSAMPLING = 10


@dataclass(frozen=True)
class WhitenedTensor:
    """A symmetric tensor in whitened coordinates.

    Attributes
    ----------
    tensor : (rank, ..., rank) array T(W, ..., W), exactly symmetric
    whitening : Whitening, with W as its `projection`
    definite : bool, whether the second moment was positive: only then are the components of
        `tensor` orthogonal
    """

    tensor: Array
    whitening: Whitening
    definite: bool


@dataclass(frozen=True)
class UnwhitenedComponents:
    """Components in the original coordinates.

    Attributes
    ----------
    tensor : CPTensor T = sum_j l_j a_j^(x)p, in the order of the whitened components
    second_weights : (rank,) array m_j with M = sum_j m_j a_j a_j'
    """

    tensor: CPTensor
    second_weights: Array


def whiten_tensor(
    tensor: object,
    rank: int,
    second_moment: object = None,
    *,
    n_draws: int = 20,
    random_state: RandomState = 0,
) -> WhitenedTensor:
    """Coordinates in which the components of a symmetric tensor are orthogonal (monograph 3.4.3).

    For T = sum_j l_j a_j^(x)p and M = sum_j m_j a_j a_j' with m_j > 0 and W whitening M,
    T(W, ..., W) = sum_j (l_j / m_j^(p/2)) v_j^(x)p with orthonormal v_j = sqrt(m_j) W'a_j.

    Without a second moment, M is a combination of slices T(I, I, x, ...). The monograph draws it
    at random and whitens an indefinite M by |eigenvalue|; but W'MW then is a signature D and not
    the identity, and V diag(sign m) V' = D makes the v_j orthogonal only in an indefinite inner
    product. So here the random combination is only the start of a search for a positive one,
    which exists whenever the a_j are independent; `definite` says whether it was found.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor; symmetric, of order 3
        or more. It is only contracted, never formed.
    rank : int, at most the dimension
    second_moment : (d, d) array, SciPy sparse or LinearOperator; symmetric, and taken as it is:
        indefinite, it is whitened by |eigenvalue|
    n_draws : int, random combinations of slices to begin the search from
    random_state : seed of the draws

    Raises
    ------
    RankDeficientError, where the moment supports fewer than `rank` directions.
    InvalidInputError, for a tensor that is not symmetric, with its asymmetry measured.
    """
    data = as_contractible(tensor)
    _check_symmetric_shape(data)
    rank = check_positive_int(rank, "rank")
    if rank > data.shape[0]:
        raise InvalidInputError(
            f"rank={rank} exceeds the {data.shape[0]} independent components that dimension "
            f"{data.shape[0]} has room for: use an overcomplete method, such as "
            "AlternatingLeastSquares on the tensor itself"
        )
    if second_moment is None:
        check_positive_int(n_draws, "n_draws")
        whitening, definite = _whiten_by_slices(data, rank, n_draws, random_state)
    else:
        whitening = whiten(second_moment, rank)
        resolve(tensor=data.reference, second_moment=whitening.projection)
        if int(whitening.projection.shape[0]) != data.shape[0]:
            raise InvalidInputError(
                f"second_moment has dimension {whitening.projection.shape[0]}, "
                f"but the tensor has dimension {data.shape[0]}"
            )
        definite = bool((to_host(whitening.spectrum) > 0).all())
    whitened = data.contract(*((whitening.projection,) * len(data.shape)))
    return WhitenedTensor(exactly_symmetric(whitened), whitening, definite)


def _check_symmetric_shape(data: Contractible) -> None:
    shape = data.shape
    if len(shape) < 3:
        raise InvalidInputError(
            f"tensor has order {len(shape)} (shape {shape}): order 3 or more is needed; "
            "use whiten for a matrix"
        )
    if len(set(shape)) > 1:
        raise InvalidInputError(
            f"tensor of shape {shape} is not symmetric: its modes differ in dimension; "
            "use symmetrize_views, with the second moments of its modes"
        )
    if is_complex(data.reference):
        raise InvalidInputError(
            "tensor is complex, but whitening needs real entries: use SimultaneousDiagonalization"
        )


def exactly_symmetric(array: Array) -> Array:
    """A small tensor without the asymmetry of rounding; larger asymmetry is refused."""
    measured = asymmetry(array)
    limit = machine_epsilon(array) ** 0.5
    if measured > limit:
        raise InvalidInputError(
            f"tensor is not symmetric: in whitened coordinates, swapping two modes changes it by "
            f"{measured:.1e} of its norm (at most {limit:.0e}); give "
            "latensor.symmetrize(tensor) if that is meant, or use symmetrize_views"
        )
    return symmetrize(array)


def _whiten_by_slices(
    data: Contractible, rank: int, n_draws: int, random_state: RandomState
) -> tuple[Whitening, bool]:
    """A whitening from the tensor alone: leading subspace, then a definite combination in it."""
    rng = generator(random_state)
    reference = data.reference
    basis, core = _leading_subspace(data, rank, rng)
    matrix = core.reshape(core.shape[0], -1)
    left, values, _ = np.linalg.svd(matrix, full_matrices=False)
    threshold = 10 * data.shape[0] * machine_epsilon(reference) * values[0]
    usable = int((values > threshold).sum())
    if usable < rank:
        if usable == 0:
            raise RankDeficientError("the tensor is zero: it supports no direction to whiten")
        raise RankDeficientError(
            f"rank={rank} exceeds the {usable} directions that the tensor supports (singular value "
            f"{usable + 1} is {values[usable] / values[0]:.1e} of the largest): "
            f"lower rank to {usable} or give more samples"
        )
    inside = left[:, :rank]
    for _ in range(core.ndim):
        core = np.tensordot(core, inside, axes=(0, 0))
    core = np.asarray(symmetrize(core))
    slices = core if core.ndim == 3 else _merged(core)
    combination, definite = definite_combination(slices, n_draws, rng)
    small = whiten((combination + combination.T) / 2, rank)
    outer = inside if basis is None else to_host(basis) @ inside
    return (
        Whitening(
            like(outer @ small.projection, reference),
            like(outer @ small.lift, reference),
            like(small.spectrum, reference),
        ),
        definite,
    )


def _merged(core: Any) -> Any:
    """The leading combinations (k, k, k) of the slices of a core of order above 3."""
    size = core.shape[0]
    left, values, _ = np.linalg.svd(core.reshape(size * size, -1), full_matrices=False)
    return (left[:, :size] * values[:size]).reshape(size, size, -1)


def _leading_subspace(
    data: Contractible, rank: int, rng: np.random.Generator
) -> tuple[Array | None, Any]:
    """An orthonormal basis (d, q) that holds the leading directions, and the core in it (host)."""
    dimension, order = data.shape[0], len(data.shape)
    width = min(dimension, rank + _OVERSAMPLING)
    if width == dimension:
        return None, np.asarray(to_host(data.contract(*((None,) * order))), dtype=np.float64)
    probes = standard_normal(rng, (dimension, width), data.reference)
    others = [standard_normal(rng, (dimension, width), data.reference) for _ in range(order - 1)]
    basis = orthonormal(data.mttkrp([probes, *others], 0))
    xp, _ = resolve(tensor=data.reference)
    for _ in range(2):
        seen = data.contract(None, *((basis,) * (order - 1)))
        basis = truncated_svd(xp.reshape(seen, (dimension, -1)), width, method="exact").left
    core = data.contract(*((basis,) * order))
    return basis, np.asarray(to_host(core), dtype=np.float64)


def unwhiten(
    whitened: WhitenedTensor | Whitening, components: Any, scale: Scale | float | Array = "equal"
) -> UnwhitenedComponents:
    """Components of a whitened tensor in the original coordinates (monograph 3.4.3).

    A component w v^(x)p with |v| = 1 stands for w (B v)^(x)p with B the lift, and M holds
    m (B v)(B v)' with m = 1 (or -1, or what the pseudo-orthogonality of the v_j gives, where M is
    indefinite). Any a = c B v with l = w / c^p and m / c^2 is consistent with both; `scale` says
    which c.

    Parameters
    ----------
    whitened : what `whiten_tensor` returned, or its `whitening`
    components : CPTensor or Decomposition of the whitened tensor (or a pair of weights and
        factors); the first factor is used
    scale : how the length of the a_j is known:
        "equal": T and M have the same weights, l_j = m_j (single topics, mixtures); order above 2
        "unit_l1": the entries of a_j sum to one in magnitude, and the sum is positive
        "unit_l2": the a_j have unit length
        "unknown": the weights of M are one, the monograph's choice in want of a better
        a number or (rank,) array: the weights of M, in the order of `components`

    Returns
    -------
    UnwhitenedComponents. Where the sign of a_j is free, odd orders have positive weights and even
    orders a positive largest entry.

    Raises
    ------
    NotIdentifiableError, where weights have signs that no real a_j allows.
    """
    whitening = whitened.whitening if isinstance(whitened, WhitenedTensor) else whitened
    weights, vectors, order = read_components(components, whitening.rank)
    lift = np.asarray(to_host(whitening.lift), dtype=np.float64)
    signs = np.sign(np.asarray(to_host(whitening.spectrum), dtype=np.float64))
    raw = lift @ vectors
    if (signs > 0).all():
        second = np.ones(weights.size)
    else:
        inverse = np.linalg.pinv(vectors)
        second = np.einsum("ja,a,ja->j", inverse, signs, inverse)
    factor = _factor(scale, raw, weights, second, order)
    columns, third, second = raw * factor, weights / factor**order, second / factor**2
    if (isinstance(scale, str) and scale in ("unit_l2", "unknown")) or not isinstance(scale, str):
        turn = _free_signs(columns, third, order)
        columns, third = columns * turn, third * turn**order
    reference = whitening.lift
    shared = like(columns, reference)
    return UnwhitenedComponents(
        CPTensor(like(third, reference), (shared,) * order), like(second, reference)
    )


def read_components(components: Any, rank: int) -> tuple[Any, Any, int]:
    """Host weights and unit vectors of components in whitened coordinates, and their order."""
    if not (hasattr(components, "weights") and hasattr(components, "factors")):
        if not isinstance(components, list | tuple) or len(components) != 2:
            raise InvalidInputError(
                "components must be a CPTensor, a Decomposition or a pair (weights, factors), not "
                f"{type(components).__name__}"
            )
        components = CPTensor(components[0], tuple(components[1]))
    vectors = np.asarray(to_host(components.factors[0]), dtype=np.float64)
    weights = np.asarray(to_host(components.weights), dtype=np.float64)
    order = len(components.factors)
    if order < 3:
        raise InvalidInputError(f"components must have order 3 or more, got order {order}")
    if vectors.shape[0] != rank:
        raise InvalidInputError(
            f"components have dimension {vectors.shape[0]}, but {rank} coordinates were whitened: "
            f"decompose the whitened tensor (factors are {describe(components.factors[0])})"
        )
    lengths = np.linalg.norm(vectors, axis=0)
    weights = weights * lengths**order
    return weights, vectors / np.where(lengths > 0, lengths, 1.0), order


def _factor(scale: Any, raw: Any, weights: Any, second: Any, order: int) -> Any:
    """The (rank,) factors c that turn B v into a."""
    if isinstance(scale, str):
        if scale == "equal":
            return equal_factor(weights / second, order)
        if scale == "unit_l1":
            return l1_factor(raw)
        if scale == "unit_l2":
            return 1.0 / np.maximum(np.linalg.norm(raw, axis=0), 1e-300)
        if scale == "unknown":
            return np.sqrt(np.abs(second))
        raise InvalidInputError(
            f"scale={scale!r} must be one of {', '.join(SCALES)}, a number or the weights of the "
            "second moment"
        )
    known = np.asarray(to_host(scale) if hasattr(scale, "shape") else scale, dtype=np.float64)
    if known.shape not in ((), weights.shape):
        raise InvalidInputError(
            f"scale must be a number or have shape {weights.shape}, one weight of the second "
            f"moment per component, got shape {known.shape}"
        )
    ratio = second / known
    if not (ratio > 0).all():
        j = int(np.flatnonzero(~(ratio > 0))[0])
        raise NotIdentifiableError(
            f"scale gives component {j} the weight {np.broadcast_to(known, ratio.shape)[j]:.3g}, "
            f"but in the second moment its weight has the sign of {second[j]:.3g}: check the order "
            "of the components"
        )
    return np.sqrt(ratio)


def equal_factor(ratios: Any, order: int) -> Any:
    """C with c^(p-2) = ratio, for weights that are the same in both moments; p is the order."""
    power = 1.0 / (order - 2)
    bad = (ratios == 0) if order % 2 else (ratios <= 0)
    if bad.any():
        j = int(np.flatnonzero(bad)[0])
        raise NotIdentifiableError(
            f"component {j} has weight {ratios[j]:.3g} in whitened coordinates, which equal "
            "weights of both moments exclude: lower the rank, or use another scale"
        )
    return np.sign(ratios) * np.abs(ratios) ** power if order % 2 else ratios**power


def l1_factor(columns: Any) -> Any:
    """Factors that give columns unit 1-norm and a positive sum."""
    sign = np.where(columns.sum(axis=0) < 0, -1.0, 1.0)
    return sign / np.maximum(np.abs(columns).sum(axis=0), 1e-300)


def _free_signs(columns: Any, weights: Any, order: int) -> Any:
    if order % 2:
        return np.where(weights < 0, -1.0, 1.0)
    largest = columns[np.argmax(np.abs(columns), axis=0), np.arange(columns.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)
