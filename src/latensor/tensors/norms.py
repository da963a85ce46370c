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
    library_name,
    like,
    machine_epsilon,
    resolve,
    standard_normal,
    to_host,
)
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.gradients import detached
from latensor.arrays.guests import with_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.dense import DenseTensor
from latensor.tensors.factored import FactoredTensor

# Unfoldings with a shorter side above this are left out of the upper bound: the eigenvalues of
# their Gram matrix would cost more than all else together.
_LARGEST_GRAM = 1024
# Factored tensors with at most this many entries are formed, to bound them as dense ones are.
_SMALL = 1 << 20


@with_guests
def frobenius_norm(tensor: Any) -> Any:
    """The root of the sum of squared magnitudes of all entries.

    Parameters
    ----------
    tensor : dense array or latensor tensor

    Returns
    -------
    scalar of the tensor's library, through which gradients flow

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> round(float(lt.frobenius_norm(np.full((2, 2), 3.0))), 6)
    6.0
    """
    return as_contractible(tensor).norm()


@dataclass(frozen=True)
class SpectralNorm:
    """What is known of a tensor's spectral norm: it lies between `lower` and `upper`.

    Attributes
    ----------
    lower : float, the largest |T(u, v, w)| found, attained at `vectors`; `float()` gives it
    upper : float, the smallest norm of an unfolding of the tensor, plus what rounding may hide
    vectors : unit vectors, one per mode

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> found = lt.spectral_norm(np.ones((2, 2, 2)), random_state=0)
    >>> bool(found.lower <= 8**0.5 + 1e-12 <= found.upper + 1e-9)
    True
    """

    lower: float
    upper: float
    vectors: tuple[Array, ...]

    def __float__(self) -> float:
        return self.lower

    def __str__(self) -> str:
        return f"spectral norm in [{self.lower:.6g}, {self.upper:.6g}]"


@with_guests
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
    and random ones. From above by the norms of unfoldings, each of which is at least as large.
    Factored tensors of up to a million entries are formed for this; larger ones, and sparse ones
    without a short mode, are bounded by their Frobenius norm. For dense vectors and matrices both
    bounds are the exact norm, up to rounding. The vectors carry no gradients.

    Parameters
    ----------
    tensor : dense array or latensor tensor
    n_restarts : int, random starts
    max_iter : int, sweeps over the modes at most
    tol : float, stops when no start gains more than this, relatively; None derives it from dtype
    random_state : int, generator or None

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> round(float(lt.spectral_norm(np.diag([3.0, 1.0]), random_state=0).lower), 6)
    3.0
    """
    contractible: Any = detached(as_contractible(tensor))
    n_restarts = check_positive_int(n_restarts, "n_restarts")
    max_iter = check_positive_int(max_iter, "max_iter")
    if tol is not None and not (isinstance(tol, int | float) and 0 <= tol < 1):
        raise InvalidInputError(f"tol={tol!r} must be a number from 0 up to, not including, 1")
    formed = hasattr(contractible, "to_dense") and not hasattr(contractible, "unfold_gram")
    if formed and math.prod(contractible.shape) <= _SMALL:
        contractible = DenseTensor(contractible.to_dense())
    contractible, unit = _scaled(contractible)
    reference = contractible.reference
    xp, _ = resolve(tensor=reference)
    scale = float(contractible.norm())  # a Contractible may give a plain number
    epsilon = machine_epsilon(reference)
    if scale == 0.0 and isinstance(contractible, DenseTensor):
        vectors = tuple(like(np.eye(d, 1)[:, 0], reference) for d in contractible.shape)
        return SpectralNorm(0.0, 0.0, vectors)
    bounds = _unfolding_norms(contractible)
    largest = scale * (1 + math.prod(contractible.shape) ** 0.5 * epsilon)
    if isinstance(contractible, FactoredTensor):
        # The norm of a sum of terms that cancel is only as good as the rounding of the terms.
        terms = contractible.sum_of_term_norms()
        largest += math.sqrt(8 * contractible.n_terms * epsilon) * terms
    upper = min([largest, *(norm for norm, _ in bounds)])
    factors = _starts(contractible, bounds, n_restarts, generator(random_state))
    values, factors = _power_iteration(
        xp, contractible, factors, max_iter, 8 * epsilon if tol is None else tol
    )
    best = int(np.argmax(to_host(values)))
    lower = float(to_host(values)[best])
    # mttkrp conjugates its factors, the multilinear form does not.
    vectors = tuple(xp.conj(f[:, best]) if is_complex(f) else f[:, best] for f in factors)
    return SpectralNorm(lower * unit, max(upper, lower) * unit, vectors)


def _scaled(tensor: Contractible) -> tuple[Contractible, float]:
    """A dense tensor divided by a power of two where its squares would leave the range."""
    if not isinstance(tensor, DenseTensor):
        return tensor, 1.0
    largest = float(to_host(tensor.namespace.max(tensor.namespace.abs(tensor.array))))
    refuse_nonfinite(tensor.array, "tensor")
    limits = np.finfo(np.float32 if machine_epsilon(tensor.array) > 1e-10 else np.float64)
    if largest == 0 or limits.tiny**0.25 < largest < limits.max**0.25:
        return tensor, 1.0
    unit = 2.0 ** math.floor(math.log2(largest))
    return DenseTensor(tensor.array / unit), unit


def _unfolding_norms(tensor: Contractible) -> list[tuple[float, dict[int, Any]]]:
    """Bound on the norm of each unfolding that is cheap, with leading vectors of single modes."""
    found: list[tuple[float, dict[int, Any]]] = []
    for rows in _bipartitions(len(tensor.shape)):
        gram, modes, rounding = _gram(tensor, rows)
        if gram is None:
            continue
        values, vectors = np.linalg.eigh(gram)
        square = max(float(values[-1]), 0.0) + rounding * float(np.trace(gram).real)
        found.append((math.sqrt(square), {modes[0]: vectors[:, -1]} if len(modes) == 1 else {}))
    return found


def _bipartitions(order: int) -> list[tuple[int, ...]]:
    """One side of each split of the modes in two, single modes first."""
    if order == 1:
        return [(0,)]
    sides = [s for n in range(1, order // 2 + 1) for s in itertools.combinations(range(order), n)]
    return [s for s in sides if 2 * len(s) < order or 0 in s]


def _gram(tensor: Contractible, rows: tuple[int, ...]) -> tuple[Any, tuple[int, ...], float]:
    """The smaller Gram matrix of an unfolding on the host, or None if that is too large.

    Returns
    -------
    gram : Hermitian matrix in double precision
    modes : those that its rows stand for
    rounding : relative to its trace, a bound on the error of its largest eigenvalue
    """
    others = tuple(m for m in range(len(tensor.shape)) if m not in rows)
    sizes = {modes: math.prod(tensor.shape[m] for m in modes) for modes in (rows, others)}
    if not isinstance(tensor, DenseTensor):
        small = len(rows) == 1 and sizes[rows] <= _LARGEST_GRAM and hasattr(tensor, "unfold_gram")
        gram = np.asarray(tensor.unfold_gram(rows[0])) if small else None  # type: ignore[attr-defined]
        count = tensor.nnz if small else 0  # type: ignore[attr-defined]
        return gram, rows, 0.0 if gram is None else (count + len(gram)) * np.finfo(gram.dtype).eps
    modes = min((rows, others), key=lambda side: sizes[side]) if others else rows
    if sizes[modes] > _LARGEST_GRAM:
        return None, modes, 0.0
    xp, array = tensor.namespace, tensor.array
    # Products of single precision are summed in double, where JAX has it switched on.
    if library_name(array) != "jax" or xp.asarray(0.0).dtype == xp.float64:
        array = xp.astype(array, xp.complex128 if is_complex(array) else xp.float64)
    axes = (*modes, *(m for m in range(array.ndim) if m not in modes))
    matrix = xp.reshape(xp.permute_dims(array, axes), (sizes[modes], -1))
    turned = xp.permute_dims(matrix, (1, 0))
    product = xp.matmul(matrix, xp.conj(turned) if is_complex(turned) else turned)
    rounding = 4 * (matrix.shape[1] + sizes[modes]) * machine_epsilon(product)
    host = to_host(product)
    wide = host.astype(np.complex128 if host.dtype.kind == "c" else np.float64)
    return wide, modes, rounding


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
        total = float(to_host(xp.sum(values)))
        if total - previous <= tol * total:
            break
        previous = total
    return values, factors
