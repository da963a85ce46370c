"""Compress a tensor to a small core that holds nearly all it shares with any low-rank fit.

Sequentially truncated HOSVD: T is projected on orthonormal bases U_n of r_n = rank + p directions
per mode, G = T(U_1, ..., U_N). A CP fit of G, expanded by the U_n, fits T with
|T - model|^2 = (|T|^2 - |G|^2) + |G - core model|^2, so that every error found on the core is the
exact error on the tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, like, to_host
from latensor.decomposition.optimize.iteration import SLOW
from latensor.decomposition.optimize.problem import CompleteProblem, multiply_mode, widened
from latensor.tensors.contractible import Contractible

# A mode is compressed only if that removes at least a quarter of it.
WORTHWHILE = 0.75
_SUBSPACE_STEPS = 3
# Directions that a mode must lose to show what noise looks like.
_FEWEST_NOISE = 4
# How far the largest direction of noise may lie above what theory has for the mean of all, and the
# smallest of the signal above that.
GAP = 1.5
# Rounds of higher-order orthogonal iteration that make rough bases good ones.
ROUNDS = 2
# A mode up to this many times the width of a sketch is seen as cheaply without one.
_SHORT = 2.5
# Energy outside a core, relative, below which it holds all of the tensor; and its tolerance then.
LOSSLESS = 1e-12
# Entries of the largest core that is worth a dense array on the host.
LARGEST_CORE = 1 << 24


@dataclass(frozen=True)
class Compression:
    """A core and the bases that expand it.

    Attributes
    ----------
    core : array (r_1, ..., r_N), double precision, on the host
    bases : per mode the transposed basis (r_n, d_n), or None where the mode is not compressed
    base : float, squared norm of what the core leaves out, |T|^2 - |G|^2
    clear : bool, whether the core has `rank` directions in every compressed mode, and what it
        leaves out is known to be noise
    """

    core: Array
    bases: tuple[Array | None, ...]
    base: float
    clear: bool = False

    def expand(self, factors: Sequence[Array]) -> tuple[Array, ...]:
        """Transposed factors of the core as transposed factors of the tensor."""
        return tuple(
            f if u is None else like(f, u) @ u for f, u in zip(factors, self.bases, strict=True)
        )


def oversampling(rank: int) -> int:
    """How many directions beyond the rank a basis keeps, so that compression costs no accuracy."""
    return int(np.clip(rank, 10, 25))


def compressed_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """The shape of the core; modes too short to gain by it keep their dimension."""
    size = rank + oversampling(rank)
    return tuple(size if size <= WORTHWHILE * d else d for d in shape)


def compress_dense(
    tensor: Array, rank: int, rng: np.random.Generator, squared_norm: float
) -> Compression:
    """Compress a NumPy array in two or three passes over it.

    The first basis comes from a sketch: the longest mode is contracted with a Gaussian matrix,
    which leaves (rank + p) times the other dimensions columns to see the mode through, so that no
    power iteration is needed. The other bases come from the exact Grams of the shrunken tensor.
    Where the exact Gram of the first mode costs no more than a sketch it takes its place.
    """
    shape = compressed_shape(tensor.shape, rank)
    order = tensor.ndim
    shrinking = [n for n in range(order) if shape[n] < tensor.shape[n]]
    bases: dict[int, Array] = {}
    current = tensor
    correct = None
    if len(shrinking) > 1:
        # Of equally long modes an inner one: contracting it runs slab by slab, in cache.
        longest = max(range(order), key=lambda n: (tensor.shape[n], 0 < n < order - 1))
        first = max(
            (n for n in shrinking if n != longest),
            key=lambda n: (n in (0, order - 1), tensor.shape[n], -n),
        )
        width = rank + oversampling(rank)
        short = all(tensor.shape[n] <= _SHORT * width for n in shrinking)
        if short and first in (0, order - 1):
            bases[first] = _last_vectors(_spectrum(tensor, first)[1], shape[first])
        else:
            sketch = rng.standard_normal((width, tensor.shape[longest]))
            seen = unfolding(multiply_mode(tensor, sketch, longest), first)
            bases[first] = leading_directions(seen, shape[first], rng)
            if seen.shape[1] < width * shape[first]:
                correct = first
        current = multiply_mode(tensor, bases[first].conj(), first)
        shrinking.remove(first)
    # The mode that shrinks most goes first: it makes everything after it cheaper. Of equals the
    # last mode, whose unfolding needs no copy.
    for mode in sorted(shrinking, key=lambda n: (shape[n] / tensor.shape[n], -n)):
        bases[mode] = leading_directions(unfolding(current, mode), shape[mode], rng)
        current = multiply_mode(current, bases[mode].conj(), mode)
    core = widened(current)
    base = max(squared_norm - float(np.vdot(core, core).real), 0.0)
    if correct is not None and base > 1e-10 * squared_norm:
        # A sketch that sees a mode through few columns misses part of it: one step of
        # higher-order orthogonal iteration corrects that basis.
        current = tensor
        for mode in sorted(bases, key=lambda n: shape[n] / tensor.shape[n]):
            if mode != correct:
                current = multiply_mode(current, bases[mode].conj(), mode)
        bases[correct] = leading_directions(unfolding(current, correct), shape[correct], rng)
        core = widened(multiply_mode(current, bases[correct].conj(), correct))
        base = max(squared_norm - float(np.vdot(core, core).real), 0.0)
    return Compression(np.ascontiguousarray(core), tuple(bases.get(n) for n in range(order)), base)


def compress_to_signal(tensor: Array, rank: int, squared_norm: float) -> Compression | None:
    """Compress an array to exactly `rank` directions per mode where all others are noise.

    For ranks so close to the dimensions that spare directions would leave nothing to gain. The
    spectrum of every mode must show `rank` directions, a gap, and a tail as flat as noise has
    it; None where one does not.
    """
    cut = [n for n, d in enumerate(tensor.shape) if d - rank >= _FEWEST_NOISE]
    if not cut:
        return None
    bases: dict[int, Array] = {}
    current = tensor
    # Inner modes, whose unfoldings are copies, come last.
    for mode in sorted(cut, key=lambda n: (0 < n < tensor.ndim - 1, n)):
        values, vectors = _spectrum(current, mode)
        spare = tensor.shape[mode] - rank
        columns = current.size // current.shape[mode]
        noise, signal = values[:spare], values[spare:]
        edge = max(float(noise.mean()), 0.0) * (1.0 + np.sqrt(spare / columns)) ** 2
        exact = noise.sum() <= LOSSLESS * signal.sum()
        if not exact and (noise[-1] > GAP * edge or signal[0] < GAP * noise[-1]):
            return None
        bases[mode] = _last_vectors(vectors, rank)
        current = multiply_mode(current, bases[mode].conj(), mode)
    core = np.ascontiguousarray(widened(current))
    base = max(squared_norm - float(np.vdot(core, core).real), 0.0)
    return Compression(core, tuple(bases.get(n) for n in range(tensor.ndim)), base, clear=True)


def _spectrum(tensor: Array, mode: int) -> tuple[Array, Array]:
    """Rising eigenvalues and the eigenvectors of the Gram of an unfolding."""
    matrix = unfolding(tensor, mode)
    values, vectors = np.linalg.eigh(widened(matrix @ matrix.conj().T))
    return values, vectors


def _last_vectors(vectors: Array, count: int) -> Array:
    """The eigenvectors of the largest values as rows, in decreasing value."""
    return np.ascontiguousarray(vectors[:, ::-1][:, :count].T)


def compress_contractible(
    tensor: Contractible, problem: CompleteProblem, rank: int, rng: np.random.Generator
) -> Compression:
    """Compress a tensor that is known through contractions: sparse, factored or implicit.

    Bases come from Gaussian contractions of the other modes, or from the exact Gram of an unfolding
    (`unfold_gram`) where that is no larger than what a round sees; rounds of higher-order
    orthogonal iteration, each basis from the tensor contracted with the others, improve them. They
    end at once where the core holds next to nothing: a subspace of random entries is not worth a
    pass. A tensor that offers `projected` is first projected on subspaces that hold most of it.
    """
    shape = compressed_shape(tensor.shape, rank)
    order = len(shape)
    shrinking = [n for n in range(order) if shape[n] < tensor.shape[n]]
    if shrinking and getattr(problem, "projection", None) is not None:
        return _compress_projection(problem, tensor.reference, shape, rng)
    # So many columns per other mode show each mode through a few times the columns it keeps.
    width = int(np.ceil((4 * (rank + oversampling(rank))) ** (1.0 / max(order - 1, 1))))
    sketches = [rng.standard_normal((min(d, width), d)) / np.sqrt(d) for d in tensor.shape]
    bases: list[Array | None] = [None] * order
    for mode in shrinking:
        if hasattr(tensor, "unfold_gram") and tensor.shape[mode] <= prod(shape) // shape[mode]:
            gram = widened(to_host(tensor.unfold_gram(mode)))
            bases[mode] = _top_eigenvectors(gram, shape[mode], rng)
            continue
        seen = problem.project([None if m == mode else s for m, s in enumerate(sketches)])
        bases[mode] = leading_directions(unfolding(seen, mode), shape[mode], rng)
    core: Array | None = None
    for mode in ROUNDS * shrinking:
        if tensor.shape[mode] * prod(shape) // shape[mode] > LARGEST_CORE:
            core = None
            continue
        seen = problem.project([None if m == mode else u for m, u in enumerate(bases)])
        basis = bases[mode] = leading_directions(unfolding(seen, mode), shape[mode], rng)
        core = multiply_mode(seen, basis.conj(), mode)
        if np.vdot(core, core).real <= SLOW * problem.squared_norm:
            break
    core = problem.project(bases) if core is None else core
    base = max(problem.squared_norm - float(np.vdot(core, core).real), 0.0)
    native = [None if u is None else like(u, tensor.reference) for u in bases]
    return Compression(np.ascontiguousarray(core), tuple(native), base)


def wide_shape(shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """Directions per mode among which a core of this rank is chosen by energy."""
    pairs = zip(shape, compressed_shape(shape, rank), strict=True)
    return tuple(min(d, r + oversampling(r)) for d, r in pairs)


def _compress_projection(
    problem: Any, reference: Array, shape: tuple[int, ...], rng: np.random.Generator
) -> Compression:
    """Compress a tensor that was projected on subspaces, in which energy chooses the directions.

    Rounds of higher-order orthogonal iteration in the projection cost no pass over the tensor.
    """
    whole = problem.projection.core
    turns: list[Array | None] = [None] * len(shape)
    for _ in range(ROUNDS):
        for mode, width in enumerate(shape):
            seen = whole
            for other, turn in enumerate(turns):
                if other != mode and turn is not None:
                    seen = multiply_mode(seen, turn.conj(), other)
            turns[mode] = leading_directions(unfolding(seen, mode), width, rng)
    core = whole
    bases: list[Array | None] = []
    for mode, (basis, turn) in enumerate(zip(problem.projection.bases, turns, strict=True)):
        if shape[mode] == len(basis):  # not compressed: in its own coordinates
            core = multiply_mode(core, basis, mode)
            bases.append(None)
        else:
            core = multiply_mode(core, turn.conj(), mode)  # type: ignore[union-attr]
            bases.append(like(turn @ basis.T, reference))
    base = max(problem.squared_norm - float(np.vdot(core, core).real), 0.0)
    return Compression(np.ascontiguousarray(core), tuple(bases), base)


def unfolding(tensor: Array, mode: int) -> Array:
    """The (d_mode, rest) unfolding; a view where the mode is first or last."""
    if mode == 0:
        return tensor.reshape(tensor.shape[0], -1)
    if mode == tensor.ndim - 1:
        return tensor.reshape(-1, tensor.shape[-1]).T
    return np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)


def leading_directions(matrix: Array, count: int, rng: np.random.Generator) -> Array:
    """The `count` leading left singular vectors of a matrix as rows (count, d), by energy."""
    d, columns = matrix.shape
    if columns < d and columns <= max(4 * count, d // 2):
        # Fewer columns than rows: the small Gram gives the same vectors at less cost.
        _, vectors = np.linalg.eigh(widened(matrix.conj().T @ matrix))
        basis = matrix @ vectors[:, ::-1][:, :count].astype(matrix.dtype)
        basis = np.linalg.qr(_padded(widened(basis), count, rng))[0]
        return np.ascontiguousarray(basis.T)
    return _top_eigenvectors(widened(matrix @ matrix.conj().T), count, rng)


def _top_eigenvectors(gram: Array, count: int, rng: np.random.Generator) -> Array:
    d = gram.shape[0]
    if d <= 3 * count or d < 64:
        _, vectors = np.linalg.eigh(gram)
        return np.ascontiguousarray(vectors[:, ::-1][:, :count].T)
    block = np.linalg.qr(gram @ rng.standard_normal((d, min(d, count + 5))))[0]
    for _ in range(_SUBSPACE_STEPS - 1):
        block = np.linalg.qr(gram @ block)[0]
    _, turn = np.linalg.eigh(block.conj().T @ (gram @ block))
    return np.ascontiguousarray((block @ turn[:, ::-1][:, :count]).T)


def _padded(basis: Array, count: int, rng: np.random.Generator) -> Array:
    """Random columns beside a basis that is too narrow or has vanishing columns."""
    norms = np.linalg.norm(basis, axis=0)
    weak = norms <= np.finfo(float).eps * max(float(norms.max(initial=0.0)), 1e-300)
    basis = np.where(weak, 0.0, basis / np.where(weak, 1.0, norms))
    missing = count - basis.shape[1]
    if missing > 0:
        basis = np.hstack([basis, np.zeros((basis.shape[0], missing))])
        weak = np.concatenate([weak, np.ones(missing, dtype=bool)])
    noise = rng.standard_normal((basis.shape[0], int(weak.sum())))
    basis[:, weak] = noise / np.sqrt(basis.shape[0])
    return basis
