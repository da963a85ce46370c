"""Where a fit begins: algebraic solutions of pencils, leading directions, random factors.

All starts live on a small dense core held on the host and come as transposed factors (rank, d).
None of them is an answer: a pencil loses digits where its eigenvalues cluster. Each is worth a
few sweeps of alternating least squares, and then the best is kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.arrays.subspace import real_columns
from latensor.decomposition.optimize.problem import (
    DenseProblem,
    contract_rows,
    row_khatri_rao,
)
from latensor.decomposition.optimize.solves import pseudo_inverse

_POWER_STEPS = 3
# Order up to which all 3^order ways to merge modes are looked through.
_MERGED_ORDER = 10
# Entries per parameter that a core must have for noise to be measured.
_ENTRIES = 2


Groups = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def pencil_groups(shape: Sequence[int], rank: int) -> Groups | None:
    """Which modes play the parts of a, b and c in a pencil: few merged, the longest for a and b.

    None where no two groups of modes have dimension `rank` and leave a third of at least two.
    """
    order = len(shape)
    if order < 3:
        return None
    longest = sorted(range(order), key=lambda n: (-shape[n], n))
    if shape[longest[1]] >= rank and prod(shape[m] for m in longest[2:]) > 1:
        return (longest[0],), (longest[1],), tuple(sorted(longest[2:]))
    best: tuple[Any, Groups] | None = None
    for parts in itertools.product(range(3), repeat=order) if order <= _MERGED_ORDER else ():
        first, second, third = (tuple(m for m in range(order) if parts[m] == g) for g in range(3))
        if not (first and second and third) or first > second:
            continue
        sizes = [prod(shape[m] for m in group) for group in (first, second, third)]
        room = min(sizes[0], sizes[1])
        if room < rank or (sizes[2] < 2 and rank > 1):
            continue
        merged = len(first) + len(second)
        key = (merged, -room if merged == 2 else room, first, second)
        if best is None or key < best[0]:
            best = key, (first, second, third)
    return None if best is None else best[1]


def pencil_start(core: Array, rank: int) -> tuple[Array, ...] | None:
    """An algebraic start from a matrix pencil, Jennrich's idea (monograph 3.6).

    With slices S_i = A diag(c_i) B' of a rank-k tensor, the eigenvectors V of the pencil
    (S_0', S_1') of its two dominant slices are the columns of A^-T; V' applied to the first mode
    then leaves the rank-one tensors of all other modes, from which their vectors follow, and A by
    least squares. Modes are merged where single ones are shorter than the rank.

    Parameters
    ----------
    core : array of order 3 or more
    rank : int

    Returns
    -------
    transposed factors, or None where there is no room for a pencil or it is singular
    """
    groups = pencil_groups(core.shape, rank)
    if groups is None:
        return None
    order = [mode for group in groups for mode in group]
    sizes = [prod(core.shape[m] for m in group) for group in groups]
    merged = np.ascontiguousarray(core.transpose(order)).reshape(sizes)
    left = _leading_rows(merged.reshape(sizes[0], -1), rank)
    right = _leading_rows(np.moveaxis(merged, 1, 0).reshape(sizes[1], -1), rank)
    inside = np.tensordot(left.conj(), merged, axes=(1, 0))
    slices = np.matmul(right.conj(), inside).reshape(rank * rank, -1)
    if slices.shape[1] < 2:
        return None
    dominant = np.linalg.eigh(slices.conj().T @ slices)[1][:, ::-1][:, :2]
    pair = (slices @ dominant).reshape(rank, rank, 2)
    try:
        vectors = np.linalg.eig(np.linalg.solve(pair[:, :, 1].T, pair[:, :, 0].T))[1]
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(vectors).all():
        return None
    if core.dtype.kind != "c":
        vectors = real_columns(vectors)
    components = (vectors.T @ inside.reshape(rank, -1)).reshape(
        rank, *(core.shape[m] for m in order[len(groups[0]) :])
    )
    factors: list[Array] = [None] * core.ndim
    rows = rank_one_rows(components)
    for mode, row in zip(order[len(groups[0]) :], rows, strict=True):
        factors[mode] = row
    others = row_khatri_rao(rows)
    gram = others.conj() @ others.T
    first = pseudo_inverse(gram) @ (others.conj() @ merged.reshape(sizes[0], -1).T)
    split = split_rows(first, [core.shape[m] for m in groups[0]])
    for mode, row in zip(groups[0], split, strict=True):
        factors[mode] = row
    return tuple(factors)


def _leading_rows(matrix: Array, count: int) -> Array:
    """The `count` leading left singular vectors of a matrix, as rows."""
    if matrix.shape[0] == count:
        return np.eye(count, dtype=matrix.dtype)
    _, vectors = np.linalg.eigh(matrix @ matrix.conj().T)
    return np.ascontiguousarray(vectors[:, ::-1][:, :count].T)


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


def split_rows(rows: Array, shape: Sequence[int]) -> list[Array]:
    """Vectors (rank, product of `shape`) of merged modes as unit ones (rank, d) of every mode.

    The length and sign of a merged vector go to its first part.
    """
    if len(shape) == 1:
        return [np.ascontiguousarray(rows)]
    parts = rank_one_rows(rows.reshape(-1, *shape))
    length = np.sum(row_khatri_rao(parts).conj() * rows, axis=1, keepdims=True)
    return [parts[0] * length, *parts[1:]]


def _unit(rows: Array) -> Array:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def leading_rank_one(
    tensor: Array, rng: np.random.Generator, starts: int = 6, steps: int = 8
) -> tuple[tuple[Array, ...], float]:
    """Unit vectors of a large rank-one term of a tensor, one (d,) per mode, and its energy.

    Power steps from the leading directions of the unfoldings, which show a term that is weak beside
    noise, and from random vectors, all at once.
    """
    rows = [_unit(row) for row in random_start(tensor.shape, starts, rng, tensor.dtype)]
    for mode, row in enumerate(rows):
        row[0] = _leading_rows(np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1), 1)
    products = DenseProblem(tensor, squared_norm=0.0).products(rows)
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


def leading_start(
    core: Array, rank: int, rng: np.random.Generator, sorted_modes: Sequence[int] = ()
) -> tuple[Array, ...]:
    """Leading left singular vectors of every unfolding; random beyond their number.

    Those of `sorted_modes`, whose directions come by energy, are taken as they come.
    """
    factors = []
    for mode in range(core.ndim):
        d = core.shape[mode]
        if mode in sorted_modes and rank <= d:
            factors.append(np.eye(rank, d, dtype=core.dtype))
            continue
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
