"""Whitening and symmetrization of tensors whose modes differ, and back (monograph 3.4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import (
    Array,
    check_positive_int,
    describe,
    is_complex,
    like,
    resolve,
    to_host,
)
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors.algebra import asymmetry, symmetrize
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor
from latensor.whitening.matrix import Whitening, whiten

_SCALES = ("equal", "unit_l1", "unit_l2", "unknown")


@dataclass(frozen=True)
class SymmetrizedTensor:
    """A tensor of several views in the whitened coordinates of the first.

    Attributes
    ----------
    tensor : (rank, ..., rank) array T(W_a, W_b R_ab', W_c R_ac'), averaged over its modes
    whitenings : one Whitening per mode
    rotations : R_ab, R_ac, ... (rank, rank), from the coordinates of each further mode to those of
        the first
    asymmetry : float, relative change by swapping two modes before averaging: noise, or moments
        that do not belong together
    """

    tensor: Array
    whitenings: tuple[Whitening, ...]
    rotations: tuple[Array, ...]
    asymmetry: float


def symmetrize_views(
    tensor: object,
    rank: int,
    second_moments: Sequence[object],
    cross_moments: Sequence[object],
) -> SymmetrizedTensor:
    """Turn an asymmetric tensor into a symmetric orthogonal one by its second moments (3.4.4).

    For T = sum_j l_j a_j (x) b_j (x) c_j with M_a = sum_j m_aj a_j a_j' and
    M_ab = sum_j m_abj a_j b_j', whitening matrices W and R_ab = W_a' M_ab W_b (so that R_ab takes
    the whitened b_j to the whitened a_j, as in canonical correlation),
    T(W_a, W_b R_ab', W_c R_ac') = sum_j mu_j v_j^(x)3 with orthonormal v_j = sqrt(m_aj) W_a'a_j.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor of order 3 or more; only
        contracted, never formed
    rank : int, at most every dimension
    second_moments : per mode a (d, d) array, SciPy sparse or LinearOperator; symmetric positive
    cross_moments : M_ab, M_ac, ...: of the first mode (rows) with every other (columns)
    """
    data = as_contractible(tensor)
    order = len(data.shape)
    rank = check_positive_int(rank, "rank")
    if order < 3 or is_complex(data.reference):
        raise InvalidInputError(
            f"tensor must be real and of order 3 or more, got shape {data.shape}"
            + (" of complex entries" if is_complex(data.reference) else "")
        )
    if len(second_moments) != order or len(cross_moments) != order - 1:
        raise InvalidInputError(
            f"a tensor of order {order} needs {order} second_moments, one per mode, and "
            f"{order - 1} cross_moments, of the first mode with the others; "
            f"got {len(second_moments)} and {len(cross_moments)}"
        )
    if rank > min(data.shape):
        raise InvalidInputError(
            f"rank={rank} exceeds the shortest dimension {min(data.shape)}: every mode needs "
            "independent components; use SimultaneousDiagonalization, which leaves one mode free"
        )
    whitenings = tuple(
        _whitened(moment, rank, mode, data.shape[mode], data.reference)
        for mode, moment in enumerate(second_moments)
    )
    first = whitenings[0].projection
    rotations, operands = [], [first]
    for mode in range(1, order):
        cross: Any = cross_moments[mode - 1]
        _check_cross(cross, (data.shape[0], data.shape[mode]), mode)
        projection = whitenings[mode].projection
        rotation = first.T @ (cross @ projection)
        rotations.append(rotation)
        operands.append(projection @ rotation.T)
    symmetric = data.contract(*operands)
    return SymmetrizedTensor(
        symmetrize(symmetric), whitenings, tuple(rotations), asymmetry(symmetric)
    )


def _whitened(moment: object, rank: int, mode: int, dimension: int, reference: Array) -> Whitening:
    try:
        whitening = whiten(moment, rank)
    except ValueError as error:
        raise type(error)(str(error).replace("second_moment", f"second_moments[{mode}]")) from error
    resolve(tensor=reference, **{f"second_moments[{mode}]": whitening.projection})
    if int(whitening.projection.shape[0]) != dimension:
        raise InvalidInputError(
            f"second_moments[{mode}] has dimension {whitening.projection.shape[0]}, "
            f"but mode {mode} of the tensor has dimension {dimension}"
        )
    if not (to_host(whitening.spectrum) > 0).all():
        raise InvalidInputError(
            f"second_moments[{mode}] has a negative eigenvalue "
            f"({float(to_host(whitening.spectrum).min()):.2e}) among the {rank} largest in "
            "magnitude: symmetrization needs positive second moments"
        )
    return whitening


def _check_cross(cross: Any, shape: tuple[int, int], mode: int) -> None:
    found = tuple(getattr(cross, "shape", ()))
    if found != shape:
        raise InvalidInputError(
            f"cross_moments[{mode - 1}] must be a matrix of shape {shape}, modes 0 and {mode} of "
            f"the tensor, got shape {found}"
        )


def unsymmetrize(
    symmetrized: SymmetrizedTensor, components: Any, scale: Any = "unknown"
) -> CPTensor:
    """Components of a symmetrized tensor in the coordinates of every mode (monograph 3.4.4).

    A component mu v^(x)p stands for t u (x) x_b (x) x_c with u = B_a v, x_b = B_b R_ab' v (B the
    lifts) and t = mu / (|R_ab' v|^2 |R_ac' v|^2); `scale` says how to share t between them.

    Parameters
    ----------
    symmetrized : what `symmetrize_views` returned
    components : CPTensor or Decomposition of its tensor (or a pair of weights and factors)
    scale : how the lengths are known:
        "equal": all moments have the same weights l_j (multi-view mixtures)
        "unit_l1": every factor sums to one in magnitude, with a positive sum
        "unit_l2": unit length
        "unknown": the weights of the second and cross moments are taken as one
        a sequence (m_a, m_ab, m_ac, ...): the weights of M_a and of the cross moments, each a
        number or a (rank,) array in the order of `components`
    """
    whitenings = symmetrized.whitenings
    weights, vectors, order = _read_components(components, whitenings[0].rank)
    if order != len(whitenings):
        raise InvalidInputError(
            f"components have order {order}, but the tensor has order {len(whitenings)}"
        )
    lifts = [np.asarray(to_host(w.lift), dtype=np.float64) for w in whitenings]
    columns = [lifts[0] @ vectors]
    remaining = weights
    for lift, rotation in zip(lifts[1:], symmetrized.rotations, strict=True):
        turned = np.asarray(to_host(rotation), dtype=np.float64).T @ vectors
        columns.append(lift @ turned)
        remaining = remaining / np.maximum((turned * turned).sum(axis=0), 1e-300)
    factors = _factors(scale, columns, remaining, order)
    third = remaining / np.prod(factors, axis=0)
    reference = whitenings[0].lift
    return CPTensor(
        like(third, reference),
        tuple(like(c * f, reference) for c, f in zip(columns, factors, strict=True)),
    )


def _factors(scale: Any, columns: list[Any], weights: Any, order: int) -> list[Any]:
    """Per mode the (rank,) factors that give its columns the length that `scale` asks for."""
    ones = np.ones(weights.size)
    if isinstance(scale, str):
        if scale == "equal":
            # With l_j everywhere, each factor is its column over sqrt(l_j), and t = l^(1 - p/2).
            return [_equal_factor(weights, order)] * order
        if scale == "unit_l1":
            return [_l1_factor(column) for column in columns]
        if scale == "unit_l2":
            return [1.0 / np.maximum(np.linalg.norm(column, axis=0), 1e-300) for column in columns]
        if scale == "unknown":
            return [ones] * order
        raise InvalidInputError(
            f"scale={scale!r} must be one of {', '.join(_SCALES)} or a sequence of known weights"
        )
    if not isinstance(scale, list | tuple) or len(scale) != order:
        raise InvalidInputError(
            f"scale must be one of {', '.join(_SCALES)} or a sequence of {order} weights: "
            "of the second moment of the first mode and of the cross moments"
        )
    known = [ones * np.asarray(to_host(k) if hasattr(k, "shape") else k) for k in scale]
    if not (known[0] > 0).all() or any((k == 0).any() for k in known):
        raise InvalidInputError(
            "scale must hold positive weights for the second moment and nonzero ones for the cross "
            "moments"
        )
    root = np.sqrt(known[0])
    return [1.0 / root] + [root / k for k in known[1:]]


def _read_components(components: Any, rank: int) -> tuple[Any, Any, int]:
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


def _equal_factor(ratios: Any, order: int) -> Any:
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


def _l1_factor(columns: Any) -> Any:
    """Factors that give columns unit 1-norm and a positive sum."""
    sign = np.where(columns.sum(axis=0) < 0, -1.0, 1.0)
    return sign / np.maximum(np.abs(columns).sum(axis=0), 1e-300)
