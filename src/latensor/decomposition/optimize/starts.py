"""Where a fit begins: algebraic solutions of pencils, leading directions, random factors.

All starts live on a small dense core held on the host and come as transposed factors (rank, d).
None of them is an answer: a pencil loses digits where its eigenvalues cluster. Each is worth a
few sweeps of alternating least squares, and then the best is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.problem import DenseProblem, contract_rows

_POWER_STEPS = 3
# Entries per parameter that a core must have for noise to be measured.
_ENTRIES = 2


def pencil_modes(shape: Sequence[int], rank: int) -> tuple[int, int] | None:
    """The two longest modes, if both are at least as long as the rank; a pencil needs them."""
    if len(shape) < 3:
        return None
    first, second = sorted(range(len(shape)), key=lambda n: (-shape[n], n))[:2]
    return (first, second) if shape[second] >= rank else None


class Pencils:
    """Algebraic starts from matrix pencils, Jennrich's idea (monograph 3.1 and Leurgans et al.).

    With slices S_i = A diag(c_i) B' of a rank-k tensor, the eigenvectors V of the pencil
    (S_0', S_1') are the columns of A^-T; V' applied to the first mode then leaves the rank-one
    matrices b_r c_r', from which b and c follow. Two dominant slices make the first pencil,
    random orthonormal combinations of slices all others.

    Parameters
    ----------
    core : array of order 3 or more; its two longest modes must be sorted by energy
    rank : int, at most the dimensions of these two modes
    """

    def __init__(self, core: Array, rank: int) -> None:
        modes = pencil_modes(core.shape, rank)
        assert modes is not None
        self._modes = modes
        rest = [n for n in range(core.ndim) if n not in modes]
        self._order = (*modes, *rest)
        self._turned = np.ascontiguousarray(core.transpose(self._order))
        self._rank = rank
        square = self._turned[:rank, :rank].reshape(rank * rank, -1)
        self._slices = square
        _, vectors = np.linalg.eigh(square.conj().T @ square)
        self._dominant: Array | None = vectors[:, ::-1][:, :2]

    @property
    def first_mode(self) -> int:
        """The mode whose factor the pencil leaves to the first least-squares update."""
        return self._modes[0]

    def start(self, rng: np.random.Generator) -> tuple[Array, ...] | None:
        """Factors from the next pencil; None where it is singular."""
        rank = self._rank
        count = self._slices.shape[1]
        if count < 2:
            return None
        pair, self._dominant = self._dominant, None
        if pair is None:
            pair = np.linalg.qr(rng.standard_normal((count, 2)))[0]
        slices = (self._slices @ pair).reshape(rank, rank, 2)
        try:
            quotient = np.linalg.solve(slices[:, :, 1].T, slices[:, :, 0].T)
            _, vectors = np.linalg.eig(quotient)
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(vectors).all():
            return None
        if vectors.dtype.kind == "c" and self._turned.dtype.kind != "c":
            vectors = _real_columns(vectors)
        left = self._turned[:rank]
        components = (vectors.T @ left.reshape(rank, -1)).reshape(rank, *left.shape[1:])
        rows = rank_one_rows(components)
        factors: list[Array] = [None] * len(self._order)
        factors[self._order[0]] = np.zeros((rank, self._turned.shape[0]), dtype=rows[0].dtype)
        for mode, row in zip(self._order[1:], rows, strict=True):
            factors[mode] = row
        return tuple(factors)


def _real_columns(vectors: Array) -> Array:
    """Real and imaginary parts in place of complex conjugate pairs of eigenvectors."""
    result = vectors.real.copy()
    pairs = np.flatnonzero(np.abs(vectors.imag).max(axis=0) > 0)
    result[:, pairs[1::2]] = vectors.imag[:, pairs[::2]]
    return result


def rank_one_rows(components: Array, steps: int = _POWER_STEPS) -> list[Array]:
    """Unit vectors (rank, d_n) of the leading rank-one term of each of `rank` small tensors.

    A few power steps from the fibres through the largest entry of each tensor.
    """
    rank, *shape = components.shape
    flat = components.reshape(rank, -1)
    index = np.unravel_index(np.argmax(np.abs(flat), axis=1), shape)
    every = np.arange(rank)
    rows: list[Array] = []
    for mode in range(len(shape)):
        fibre = (every, *(slice(None) if m == mode else i for m, i in enumerate(index)))
        rows.append(_unit(np.ascontiguousarray(components[fibre])))
    for _ in range(steps):
        for mode in range(len(shape)):
            rows[mode] = _unit(contract_rows(components, rows, mode))
    return rows


def _unit(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def leading_rank_one(
    tensor: Array, rng: np.random.Generator, starts: int = 6, steps: int = 8
) -> tuple[tuple[Array, ...], float]:
    """Unit vectors of a large rank-one term of a tensor, one (d,) per mode, and its energy.

    Power steps from the fibres through the largest entry and from random vectors, all at once.
    """
    problem = DenseProblem(tensor, squared_norm=0.0)
    index = np.unravel_index(int(np.argmax(np.abs(tensor))), tensor.shape)
    rows = [_unit(row) for row in random_start(tensor.shape, starts, rng, tensor.dtype)]
    for mode, row in enumerate(rows):
        fibre = tuple(slice(None) if m == mode else i for m, i in enumerate(index))
        row[0] = tensor[fibre]
    products = problem.products(rows)
    energies = np.zeros(starts)
    for _ in range(steps):
        for mode in range(tensor.ndim):
            row = products.mttkrp(mode)
            lengths = np.linalg.norm(row, axis=1)
            rows[mode] = row / np.where(lengths > 0, lengths, 1.0)[:, None]
            products.replace(mode, rows[mode])
        energies = lengths**2
    best = int(np.argmax(energies))
    return tuple(row[best] for row in rows), float(energies[best])


def leading_start(core: Array, rank: int, rng: np.random.Generator) -> tuple[Array, ...]:
    """Leading left singular vectors of every unfolding; random beyond their number."""
    factors = []
    for mode in range(core.ndim):
        d = core.shape[mode]
        matrix = np.moveaxis(core, mode, 0).reshape(d, -1)
        _, vectors = np.linalg.eigh(matrix @ matrix.conj().T)
        rows = vectors[:, ::-1][:, :rank].T
        if rank > d:
            rows = np.vstack([rows, random_start((d,), rank - d, rng, core.dtype)[0]])
        factors.append(np.ascontiguousarray(rows))
    return tuple(factors)


def random_start(
    shape: Sequence[int], rank: int, rng: np.random.Generator, dtype: Any = float
) -> tuple[Array, ...]:
    """Gaussian factors with columns of about unit length."""
    factors = [rng.standard_normal((rank, d)) / np.sqrt(d) for d in shape]
    if np.dtype(dtype).kind == "c":
        return tuple(f + 1j * rng.standard_normal(f.shape) / np.sqrt(f.shape[1]) for f in factors)
    return tuple(factors)


def leading_part(
    core: Array, keep: Sequence[int], unsorted: Sequence[int]
) -> tuple[Array, tuple[Array | None, ...]]:
    """The part of a core in the `keep` leading directions of every mode.

    Modes whose directions are sorted by energy are cut; `unsorted` ones are rotated first.
    Returns the part and for rotated modes the transposed basis (keep, r), None for the others.
    """
    part = core[tuple(slice(None if n in unsorted else size) for n, size in enumerate(keep))]
    bases: list[Array | None] = [None] * core.ndim
    for mode in unsorted:
        if keep[mode] < part.shape[mode]:
            matrix = np.moveaxis(part, mode, 0).reshape(part.shape[mode], -1)
            _, vectors = np.linalg.eigh(matrix @ matrix.conj().T)
            basis = vectors[:, ::-1][:, : keep[mode]].T
            part = np.moveaxis(np.tensordot(basis.conj(), part, axes=(1, mode)), 0, mode)
            bases[mode] = np.ascontiguousarray(basis)
    return np.ascontiguousarray(part), tuple(bases)


def parameters(shape: Sequence[int], rank: int) -> int:
    """The number of free parameters of a CP tensor."""
    return rank * (sum(shape) - len(shape) + 1)


def overdetermined(shape: Sequence[int], rank: int) -> bool:
    """Whether a core has so many entries per parameter that its residual measures noise."""
    return prod(shape) >= _ENTRIES * parameters(shape, rank)


def noise_spread(shape: Sequence[int], core_shape: Sequence[int]) -> float:
    """How much more noise energy per entry a core chosen by energy holds than a random one.

    The largest (1 + sqrt(d_n r_n / #core))^2 over the modes: the edge of the spectrum of noise.
    """
    size = prod(core_shape)
    pairs = zip(shape, core_shape, strict=True)
    return float(max((1.0 + np.sqrt(d * r / size)) ** 2 for d, r in pairs))
