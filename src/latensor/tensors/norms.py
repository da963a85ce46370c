"""Norms of tensors (monograph 3.2): Frobenius exactly, spectral between two bounds."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import (
    Array,
    Namespace,
    RandomState,
    check_positive_int,
    generator,
    is_complex,
    like,
    machine_epsilon,
    resolve,
    standard_normal,
    to_host,
)
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.dense import DenseTensor

# Unfoldings with a shorter side above this are left out of the upper bound: the eigenvalues of
# their Gram matrix would cost more than all else together.
_LARGEST_GRAM = 1024


def frobenius_norm(tensor: Any) -> Any:
    """The root of the sum of squared magnitudes of all entries.

    Parameters
    ----------
    tensor : dense array or latensor tensor

    Returns
    -------
    scalar of the tensor's library, through which gradients flow
    """
    return as_contractible(tensor).norm()


@dataclass(frozen=True)
class SpectralNorm:
    """What is known of a tensor's spectral norm: it lies between `lower` and `upper`.

    Attributes
    ----------
    lower : float, the largest |T(u, v, w)| found, attained at `vectors`; `float()` gives it
    upper : float, the smallest norm of an unfolding of the tensor
    vectors : unit vectors, one per mode
    """

    lower: float
    upper: float
    vectors: tuple[Array, ...]

    def __float__(self) -> float:
        return self.lower

    def __str__(self) -> str:
        return f"spectral norm in [{self.lower:.6g}, {self.upper:.6g}]"


def spectral_norm(
    tensor: Any,
    *,
    n_restarts: int = 20,
    max_iter: int = 200,
    tol: float | None = None,
    random_state: RandomState = 0,
) -> SpectralNorm:
    """Bounds on sup |T(u, v, w)| over unit vectors, which is hard to compute exactly.

    From below by power iteration from many starts at once: the leading vectors of the unfoldings
    and random ones. From above by the norms of unfoldings, each of which is at least as large
    (for sparse and implicit tensors, by the Frobenius norm where no unfolding can be formed).
    For orders 1 and 2 both are the exact norm, up to rounding.

    Parameters
    ----------
    tensor : dense array or latensor tensor
    n_restarts : int, random starts
    max_iter : int, sweeps over the modes at most
    tol : float, stops when no start gains more than this, relatively; None derives it from dtype
    random_state : int, generator or None
    """
    contractible = as_contractible(tensor)
    n_restarts = check_positive_int(n_restarts, "n_restarts")
    max_iter = check_positive_int(max_iter, "max_iter")
    reference = contractible.reference
    xp, _ = resolve(tensor=reference)
    scale = float(contractible.norm())
    grams = _unfolding_norms(contractible)
    if scale == 0.0:
        vectors = tuple(_first_unit_vector(xp, d, reference) for d in contractible.shape)
        return SpectralNorm(0.0, 0.0, vectors)
    upper = min([scale, *(norm for norm, _ in grams)])
    rng = generator(random_state)
    epsilon = machine_epsilon(reference)
    factors = _starts(contractible, grams, n_restarts, rng)
    values, factors = _power_iteration(
        xp, contractible, factors, max_iter, 8 * epsilon if tol is None else tol
    )
    best = int(np.argmax(to_host(values)))
    lower = float(values[best])
    # Rounding can lift the attained value a few units above a bound that it meets.
    return SpectralNorm(lower, max(upper, lower), tuple(f[:, best] for f in factors))


def _first_unit_vector(xp: Namespace, dimension: int, reference: Array) -> Array:
    return xp.eye(dimension, 1, dtype=reference.dtype)[:, 0]


def _unfolding_norms(tensor: Contractible) -> list[tuple[float, dict[int, Any]]]:
    """Norm of each unfolding that is cheap enough, with its leading vector for single modes."""
    found: list[tuple[float, dict[int, Any]]] = []
    for rows in _bipartitions(len(tensor.shape)):
        gram = _gram(tensor, rows)
        if gram is None:
            continue
        values, vectors = np.linalg.eigh(gram)
        norm = math.sqrt(max(float(values[-1]), 0.0))
        found.append((norm, {rows[0]: vectors[:, -1]} if len(rows) == 1 else {}))
    return found


def _bipartitions(order: int) -> list[tuple[int, ...]]:
    """One side of each split of the modes in two, single modes first."""
    if order == 1:
        return [(0,)]
    sides = [s for n in range(1, order // 2 + 1) for s in itertools.combinations(range(order), n)]
    return [s for s in sides if 2 * len(s) < order or 0 in s]


def _gram(tensor: Contractible, rows: tuple[int, ...]) -> Any:
    """The smaller Gram matrix of an unfolding on the host in float64, or None if too large."""
    side = math.prod(tensor.shape[m] for m in rows)
    if not isinstance(tensor, DenseTensor):
        small = len(rows) == 1 and side <= _LARGEST_GRAM and hasattr(tensor, "unfold_gram")
        return np.asarray(tensor.unfold_gram(rows[0])) if small else None  # type: ignore[attr-defined]
    if side > _LARGEST_GRAM:
        return None
    xp, array = tensor.namespace, tensor.array
    axes = (*rows, *(m for m in range(array.ndim) if m not in rows))
    matrix = xp.reshape(xp.permute_dims(array, axes), (side, -1))
    turned = xp.permute_dims(matrix, (1, 0))
    product = xp.matmul(matrix, xp.conj(turned) if is_complex(turned) else turned)
    host = to_host(product)
    return host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)


def _starts(
    tensor: Contractible,
    grams: list[tuple[float, dict[int, Any]]],
    n_restarts: int,
    rng: np.random.Generator,
) -> list[Array]:
    """Columns to start from: random ones, and the leading vectors of the unfoldings."""
    xp, _ = resolve(tensor=tensor.reference)
    leading = {mode: vector for _, vectors in grams for mode, vector in vectors.items()}
    factors = []
    for mode, dimension in enumerate(tensor.shape):
        columns = standard_normal(rng, (dimension, n_restarts), tensor.reference)
        if mode in leading:
            columns = xp.concat([like(leading[mode][:, None], tensor.reference), columns], axis=1)
        else:
            extra = standard_normal(rng, (dimension, 1), tensor.reference)
            columns = xp.concat([extra, columns], axis=1)
        factors.append(columns / xp.linalg.vector_norm(columns, axis=0)[None, :])
    return factors


def _power_iteration(
    xp: Namespace, tensor: Contractible, factors: list[Array], max_iter: int, tol: float
) -> tuple[Array, list[Array]]:
    """Rank-one alternating maximization, all starts in one contraction per mode."""
    run = tensor.sweep(factors)
    previous = 0.0
    values = xp.linalg.vector_norm(factors[0], axis=0)
    for _ in range(max_iter):
        for mode in range(len(tensor.shape)):
            image = run.mttkrp(mode)
            values = xp.linalg.vector_norm(image, axis=0)
            safe = xp.where(values > 0, values, xp.ones_like(values))
            # A start orthogonal to the tensor keeps its vector rather than becoming zero.
            moved = image / safe[None, :]
            factors[mode] = xp.where((values > 0)[None, :], moved, factors[mode])
            run.replace(mode, factors[mode])
        total = float(xp.sum(values))
        if total - previous <= tol * total:
            break
        previous = total
    return values, factors
