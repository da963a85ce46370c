"""What the data say about a decomposition: core consistency, residual, components that cancel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import Array, is_complex, like, resolve, to_host
from latensor.arrays.gradients import detached
from latensor.diagnostics.components import Components, as_cp, components_of
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible, DirectSweep, Sweep
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor

# Entries of the largest core that is formed.
_LARGEST_CORE = 1 << 24


def core_consistency(decomposition: object, tensor: object) -> float | None:
    """How far the data agree that components do not interact, in per cent (Bro and Kiers).

    The core G = T(A+', B+', C+') is the best one with the factors found, A+ being the
    pseudo-inverse of A; an exact CP tensor has a diagonal of ones. The result is
    100 (1 - |G - diagonal|^2 / rank): near 100 for a valid model, low or negative where the rank
    is too high or the data are not of CP form. The weights are shared equally by the modes.

    Parameters
    ----------
    decomposition : CPTensor, Decomposition or pair (weights, factors)
    tensor : the data, dense, sparse, factored or implicit

    Returns
    -------
    float, at most 100; None where it is not defined: dependent columns in a factor (a rank above
    a dimension, for instance) or a zero component
    """
    cp = as_cp(decomposition, "decomposition")
    return consistency_of(components_of(cp, "decomposition"), matching_data(tensor, cp))


def matching_data(tensor: object, model: CPTensor) -> Contractible:
    """The data as a tensor that can be contracted, of the same shape as the model."""
    data: Contractible = detached(as_contractible(tensor))
    if tuple(data.shape) != model.shape:
        raise InvalidInputError(
            f"tensor has shape {tuple(data.shape)}, but the decomposition has {model.shape}"
        )
    return data


def consistency_of(components: Components, data: Contractible) -> float | None:
    """The core consistency of components on the host; see `core_consistency`."""
    rank, order = components.rank, components.order
    inverses = _scaled_inverses(components)
    if inverses is None:
        return None
    first = inverses[0] * (components.magnitudes / components.weights)[:, None]
    operands = [like(inverse.T, data.reference) for inverse in (first, *inverses[1:])]
    core = to_host(data.contract(*operands))
    diagonal = np.arange(rank)
    core = core.astype(np.complex128 if core.dtype.kind == "c" else np.float64)
    core[(diagonal,) * order] -= 1.0
    return float(100.0 * (1.0 - np.sum(np.abs(core) ** 2) / rank))


def consistency_under_noise(components: Components, noise: float) -> float | None:
    """A core consistency that noise alone rarely goes below, where the rank is right.

    White noise of standard deviation s adds a Gaussian tensor of covariance s^2 K_1 (x) ... to the
    core, K_m = A_m+ A_m+': its squared norm is s^2 prod tr K_m on average, with the variance
    2 s^4 prod |K_m|^2. This is three standard deviations above.
    """
    inverses = _scaled_inverses(components)
    if inverses is None:
        return None
    grams = [inverse @ inverse.conj().T for inverse in inverses]
    mean = math.prod(float(np.trace(gram).real) for gram in grams)
    deviation = math.sqrt(2.0 * math.prod(float(np.sum(np.abs(gram) ** 2)) for gram in grams))
    return 100.0 * (1.0 - noise**2 * (mean + 3.0 * deviation) / components.rank)


def _scaled_inverses(components: Components) -> list[Any] | None:
    """The pseudo-inverse (rank, d) of every factor, which has its part of the weights."""
    rank, order = components.rank, components.order
    if (components.magnitudes == 0).any() or rank**order > _LARGEST_CORE:
        return None
    known: dict[int, Any] = {}
    fraction = components.magnitudes ** (1.0 / order)
    for factor in components.factors:
        if id(factor) not in known:
            inverse = _left_inverse(factor)
            if inverse is None:
                return None
            known[id(factor)] = inverse / fraction[:, None]
    return [known[id(factor)] for factor in components.factors]


def _left_inverse(factor: Any) -> Any:
    """The pseudo-inverse of a factor with independent columns, or None."""
    left, values, right = np.linalg.svd(factor, full_matrices=False)
    if factor.shape[0] < factor.shape[1] or values[-1] <= max(factor.shape) * 1e-15 * values[0]:
        return None
    return (right.conj().T / values) @ left.conj().T


def residual_of(model: CPTensor, data: Contractible) -> tuple[float, float]:
    """Frobenius norms of what the model leaves over and of the data."""
    scale = float(data.norm())
    return float(residual_tensor(model, data).norm()), scale


def residual_tensor(model: CPTensor, data: Contractible) -> Contractible:
    """The data minus the model; dense data give a dense array, others keep their form."""
    moved = CPTensor(
        like(to_host(model.weights), data.reference),
        tuple(like(to_host(f), data.reference) for f in model.factors),
    )
    if isinstance(data, DenseTensor):
        return DenseTensor(data.array - moved.to_dense())
    return _Difference(data, moved)


class _Difference:
    """A tensor minus a CP tensor, contracted one by one; nothing of its size is formed."""

    def __init__(self, data: Contractible, model: CPTensor) -> None:
        self._data = data
        self._model = model

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self._data.shape)

    @property
    def reference(self) -> Array:
        return self._data.reference

    def contract(self, *operands: Array | None) -> Array:
        return self._data.contract(*operands) - self._model.contract(*operands)

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        return self._data.mttkrp(factors, mode) - self._model.mttkrp(factors, mode)

    def norm(self) -> Any:
        """From inner products: differences below 1e-8 of the data are lost to rounding."""
        model = self._model
        xp, _ = resolve(reference=model.weights)
        weights = xp.conj(model.weights) if is_complex(model.weights) else model.weights
        first = model.factors[0]
        first = xp.conj(first) if is_complex(first) else first
        inner = float(xp.real(xp.sum(weights * xp.sum(first * self._mixed(), axis=0))))
        square = float(self._data.norm()) ** 2 - 2.0 * inner + float(model.norm()) ** 2
        return math.sqrt(max(square, 0.0))

    def _mixed(self) -> Array:
        return self._data.mttkrp(self._model.factors, 0)

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        return DirectSweep(self, factors)


def degeneracy(components: Components) -> tuple[float, tuple[int, int] | None, float]:
    """How far components cancel each other.

    Returns
    -------
    congruence : float, the most negative cosine between two components, -1 where they are
        opposite; 0 if none is negative
    pair : the two components, or None
    inflation : float, sum of squared weights over the squared norm of the tensor: 1 for
        orthogonal components, large where they cancel
    """
    cosines = components.congruences.real
    pair = None
    lowest = 0.0
    if components.rank > 1:
        i, j = np.triu_indices(components.rank, 1)
        worst = int(np.argmin(cosines[i, j]))
        if cosines[i[worst], j[worst]] < 0:
            lowest, pair = float(cosines[i[worst], j[worst]]), (int(i[worst]), int(j[worst]))
    energy = float(np.sum(components.magnitudes**2))
    if energy == 0.0:
        return lowest, pair, 1.0
    return lowest, pair, energy / max(components.norm**2, np.finfo(float).eps * energy)


def smallest_gap(components: Components) -> tuple[float, tuple[int, int]] | None:
    """The smallest difference of neighbouring weights over the largest weight, and where."""
    if components.rank < 2:
        return None
    order = np.argsort(-components.magnitudes, kind="stable")
    sizes = components.magnitudes[order]
    differences = sizes[:-1] - sizes[1:]
    place = int(np.argmin(differences))
    scale = float(sizes[0]) or 1.0
    return float(differences[place]) / scale, (int(order[place]), int(order[place + 1]))
