"""Tucker decompositions with orthonormal factors: truncation, orthogonal iteration, sketching.

With orthonormal U_n and the core G = T(conj U_1, ..., conj U_N) the error is what the core does
not hold, |T - G(U_1', ..., U_N')|^2 = |T|^2 - |G|^2: a decomposition is a choice of subspaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from latensor.arrays import (
    Array,
    Namespace,
    is_complex,
    is_numpy,
    machine_epsilon,
    resolve,
    standard_normal,
    to_host,
)
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.factorization import truncated_svd
from latensor.arrays.subspace import phases
from latensor.decomposition.optimize.problem import squared_norm as host_squared_norm
from latensor.decomposition.scale import rescaled as rescaled_tensor
from latensor.decomposition.subspace.compression import WORTHWHILE
from latensor.decomposition.subspace.mode_directions import (
    BLOCK_ENTRIES,
    RESOLVED,
    improved_directions,
    leading_directions,
    leading_eigenpairs,
    like_array,
    mode_gram,
    widened_basis,
)
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor, contract_mode, contract_modes, frobenius

# Entries up to which a tensor that is not dense is written out to measure a small error.
_WRITTEN_OUT = 1 << 22


@dataclass(frozen=True)
class Truncation:
    """How far each mode is to be cut.

    Attributes
    ----------
    modes : the modes that get a factor, in rising order
    ranks : mode -> number of directions to keep
    fractions : mode -> fraction of the squared norm that cutting this mode may cost
    total : fraction of the squared norm that the remaining modes together may cost
    """

    modes: tuple[int, ...]
    ranks: Mapping[int, int] = field(default_factory=dict)
    fractions: Mapping[int, float] = field(default_factory=dict)
    total: float = 0.0

    @property
    def fixed(self) -> bool:
        """Whether all ranks are known beforehand."""
        return all(mode in self.ranks for mode in self.modes)

    def without(self, modes: Sequence[int]) -> Truncation:
        """The same for all modes but some."""
        return Truncation(
            tuple(m for m in self.modes if m not in modes),
            {m: rank for m, rank in self.ranks.items() if m not in modes},
            {m: fraction for m, fraction in self.fractions.items() if m not in modes},
            self.total,
        )


@dataclass(frozen=True)
class Subspaces:
    """A core and the orthonormal factors that expand it; None where a mode is kept whole."""

    core: Array
    bases: tuple[Array | None, ...]
    loss: float

    @property
    def ranks(self) -> tuple[int, ...]:
        """The dimensions of the core."""
        return tuple(int(d) for d in self.core.shape)


def squared_norm(xp: Namespace, array: Array) -> float:
    """The squared Frobenius norm of a dense array, in double precision where NumPy has it."""
    return host_squared_norm(array) if is_numpy(array) else float(frobenius(xp, array)) ** 2


def rescaled(xp: Namespace, tensor: Contractible) -> tuple[Contractible, float, float]:
    """The tensor in a range where squares keep their digits, its squared norm, and its scale."""
    if not isinstance(tensor, DenseTensor):
        tensor, scale = rescaled_tensor(tensor)
        return tensor, float(tensor.norm()) ** 2, scale
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        energy = squared_norm(xp, tensor.array)
    if not np.isfinite(energy):
        refuse_nonfinite(tensor.array, "tensor")
    # Squares are summed in the precision of the array: its exponents bound what they may be.
    limit = float(xp.finfo(tensor.array.dtype).max) ** 0.25
    if 1.0 / limit < energy**0.5 < limit:
        return tensor, energy, 1.0
    largest = float(xp.max(xp.abs(tensor.array)))
    if largest == 0.0:
        return tensor, 0.0, 1.0
    # A power of two, so that scaling changes no digit.
    scale = 2.0 ** int(np.frexp(largest)[1])
    small = DenseTensor(tensor.array / scale)
    return small, squared_norm(xp, small.array), scale


def truncate(
    xp: Namespace, array: Array, rule: Truncation, energy: float, sequential: bool = True
) -> Subspaces:
    """Higher-order SVD: every mode cut to its leading directions.

    Sequentially truncated, each mode is seen in what the modes before it have left, which is
    smaller and loses less; the error is then exactly the sum of what the cuts discard. Otherwise
    all modes are seen in the whole tensor, and that sum bounds the error. What a cut leaves of a
    shared budget goes to the cuts after it, and what all of them leave, to cutting the core.

    Parameters
    ----------
    xp, array : the tensor and its namespace
    rule : Truncation
    energy : float, the squared norm of the tensor
    sequential : bool
    """
    shape = tuple(int(d) for d in array.shape)
    # The mode that shrinks most goes first and makes all others cheaper; of equals the last one,
    # whose unfolding needs no copy. Unknown ranks shrink long modes most.
    queue = sorted(rule.modes, key=lambda m: (rule.ranks.get(m, 1) / shape[m], -m))
    sharing = sum(m not in rule.ranks and m not in rule.fractions for m in queue)
    remaining = rule.total * energy
    bases: list[Array | None] = [None] * len(shape)
    current = array
    for mode in queue:
        seen = current if sequential else array
        rank, budget = rule.ranks.get(mode), None
        if sequential and rank == shape[mode]:
            continue  # nothing to cut: a rotation of the core will do
        if rank is None and mode in rule.fractions:
            budget = rule.fractions[mode] * energy
        elif rank is None:
            budget = max(remaining, 0.0) / sharing
            sharing -= 1
        found = leading_directions(xp, seen, mode, rank=rank, budget=budget)
        if rank is None and mode not in rule.fractions:
            remaining -= found.discarded
        bases[mode] = found.basis
        current = contract_mode(xp, current, conjugated(found.basis), mode)
    cut = Subspaces(current, tuple(bases), max(energy - squared_norm(xp, current), 0.0))
    if rule.total <= RESOLVED * machine_epsilon(array):
        return cut
    return _smallest(xp, cut, rule.modes, rule.total * energy)


def _smallest(xp: Namespace, found: Subspaces, modes: Sequence[int], budget: float) -> Subspaces:
    """The decomposition with the fewest numbers that a shared budget allows.

    Cuts of equal cost are rarely the best ones. In an all-orthogonal core, however, every leading
    block is a decomposition whose error is what the rest of the core holds, and cumulative sums
    give the errors of all blocks at once.
    """
    core, bases = all_orthogonal(xp, found, modes)
    squares = np.abs(np.asarray(to_host(core))).astype(np.float64) ** 2
    total = float(squares.sum())
    sizes = np.ones((1,) * core.ndim)
    numbers = np.zeros((1,) * core.ndim)
    for mode, basis in enumerate(bases):
        squares = np.cumsum(squares, axis=mode)
        counts = np.arange(1.0, core.shape[mode] + 1)
        if basis is None:  # not to be cut
            squares = np.take(squares, [-1], axis=mode)
            counts = counts[-1:]
        counts = counts.reshape([-1 if m == mode else 1 for m in range(core.ndim)])
        sizes = sizes * counts
        numbers = numbers + (0.0 if basis is None else counts * int(basis.shape[0]))
    # A little is kept back for rounding: the promise is about the entries, not about these sums.
    allowed = total + found.loss - squares <= budget * (1.0 - 1e-9)
    allowed.flat[-1] = True
    best = np.unravel_index(np.argmin(np.where(allowed, sizes + numbers, np.inf)), sizes.shape)
    ranks = {m: int(best[m]) + 1 for m in modes}
    block = core[tuple(slice(ranks.get(m, d)) for m, d in enumerate(core.shape))]
    kept = tuple(None if b is None else b[:, : ranks[m]] for m, b in enumerate(bases))
    loss = max(found.loss + total - squared_norm(xp, block), 0.0)
    return Subspaces(block, kept, loss)


def truncate_matrix(array: Array, rule: Truncation, energy: float) -> Subspaces:
    """Both modes of a matrix cut at once, by its truncated SVD M ~ U diag(s) V'.

    The factors are U and conj V.
    """
    xp = resolve(array=array)[0]
    rows, columns = (rule.ranks[mode] for mode in (0, 1))
    count = min(max(rows, columns), *array.shape)
    left, _, right = truncated_svd(array, count)
    first = widened_basis(xp, left[:, :rows], rows)
    second = widened_basis(xp, conjugated(right[:, :columns]), columns)
    core = contract_modes(xp, array, (conjugated(first), conjugated(second)))
    return Subspaces(core, (first, second), max(energy - squared_norm(xp, core), 0.0))


def sketch(
    xp: Namespace, array: Array, widths: Mapping[int, int], energy: float, rng: np.random.Generator
) -> Subspaces:
    """Sequential truncation that reads the whole tensor only twice.

    The longest mode is contracted with a Gaussian matrix; through what remains the first basis
    is found, and the tensor projected on it. All other bases come from the shrunken tensor.

    Parameters
    ----------
    widths : mode -> directions to keep; modes that would hardly shrink are left whole
    rng : draws the Gaussian matrix
    """
    shape = tuple(int(d) for d in array.shape)
    cut = {m: w for m, w in widths.items() if w <= WORTHWHILE * shape[m]}
    if len(cut) < 2:
        return truncate(xp, array, Truncation(tuple(cut), cut), energy)
    # Of equally long modes an inner one: contracting it runs slab by slab, in cache.
    longest = max(cut, key=lambda m: (shape[m], 0 < m < len(shape) - 1))
    first = max((m for m in cut if m != longest), key=lambda m: (shape[m] / cut[m], m))
    probe = standard_normal(rng, (shape[longest], cut[longest]), array)
    seen = contract_mode(xp, array, probe, longest)
    basis = leading_directions(xp, seen, first, rank=cut[first]).basis
    current = contract_mode(xp, array, conjugated(basis), first)
    rest = {m: w for m, w in cut.items() if m != first}
    found = truncate(xp, current, Truncation(tuple(rest), rest), energy)
    bases = list(found.bases)
    bases[first] = basis
    return Subspaces(found.core, tuple(bases), found.loss)


Update = Callable[[int, Array], None]


def sweep_modes(
    tensor: Contractible, modes: Sequence[int], factors: list[Array | None], update: Update
) -> None:
    """Contract a tensor with all factors but one, for every mode in turn.

    `update(mode, seen)` is called with the tensor that has all other modes contracted, and may
    replace `factors[mode]`; the modes after it see the new one. Dense arrays go through a tree
    of partial contractions, so that a sweep reads the array twice whatever its order.
    """
    if isinstance(tensor, DenseTensor):
        _visit(tensor.namespace, tensor.array, tuple(modes), factors, update)
        return
    for mode in modes:
        others = [None if f is None or m == mode else conjugated(f) for m, f in enumerate(factors)]
        update(mode, tensor.contract(*others))


def _visit(
    xp: Namespace,
    partial: Array,
    modes: tuple[int, ...],
    factors: list[Array | None],
    update: Update,
) -> None:
    if len(modes) == 1:
        update(modes[0], partial)
        return
    half = (len(modes) + 1) // 2
    for mine, others in ((modes[:half], modes[half:]), (modes[half:], modes[:half])):
        operands = [
            conjugated(f) if m in others and f is not None else None for m, f in enumerate(factors)
        ]
        _visit(xp, contract_modes(xp, partial, operands), mine, factors, update)


def orthogonal_sweep(
    xp: Namespace, tensor: Contractible, modes: Sequence[int], energy: float, start: Subspaces
) -> Subspaces:
    """One sweep of higher-order orthogonal iteration (HOOI); it never raises the error.

    Every basis in turn becomes the best one for the present others: the leading directions of
    the tensor projected on them.
    """
    bases = list(start.bases)
    core: Array = None

    def update(mode: int, seen: Array) -> None:
        nonlocal core
        bases[mode] = improved_directions(xp, seen, mode, bases[mode])
        if mode == modes[-1]:
            core = contract_mode(xp, seen, conjugated(bases[mode]), mode)

    sweep_modes(tensor, modes, bases, update)
    return Subspaces(core, tuple(bases), max(energy - squared_norm(xp, core), 0.0))


def explicit_loss(
    xp: Namespace, array: Array, core: Array, factors: Sequence[Array | None]
) -> float:
    """The squared error of a Tucker form, entry by entry, free of cancellation."""
    operands = [None if f is None else f.T for f in factors]
    first, operands[0] = operands[0], None
    inner = contract_modes(xp, core, operands)
    step = max(1, BLOCK_ENTRIES * int(array.shape[0]) // prod(array.shape))
    total = 0.0
    for start in range(0, int(array.shape[0]), step):
        rows = slice(start, start + step)
        part = inner[rows] if first is None else contract_mode(xp, inner, first[:, rows], 0)
        total += squared_norm(xp, array[rows] - part)
    return total


def exact_loss(
    xp: Namespace,
    tensor: Contractible,
    core: Array,
    factors: Sequence[Array | None],
    loss: float,
    energy: float,
) -> float:
    """`loss`, or the same entry by entry where a difference of energies has lost half its digits.

    Tensors that are not dense are written out for that if they are small enough.
    """
    if loss >= machine_epsilon(tensor.reference) ** 0.5 * energy:
        return loss
    if isinstance(tensor, DenseTensor):
        return explicit_loss(xp, tensor.array, core, factors)
    if prod(tensor.shape) > _WRITTEN_OUT:
        return loss
    return explicit_loss(xp, tensor.contract(*([None] * len(tensor.shape))), core, factors)


def expanded(outer: Subspaces, inner: Subspaces, skip: Sequence[int] = ()) -> Subspaces:
    """Subspaces of the core of `outer` as subspaces of its tensor; modes in `skip` have none."""
    bases = tuple(
        theirs if ours is None or m in skip else ours if theirs is None else ours @ theirs
        for m, (ours, theirs) in enumerate(zip(outer.bases, inner.bases, strict=True))
    )
    return Subspaces(inner.core, bases, outer.loss + inner.loss)


def all_orthogonal(
    xp: Namespace, found: Subspaces, modes: Sequence[int], rotate: bool = True
) -> tuple[Array, tuple[Array | None, ...]]:
    """Core and factors in the form that makes them unique.

    The slices of the core along every factored mode are orthogonal to each other and stand by
    decreasing norm; the largest entry of every column of a factor is real and positive.

    Parameters
    ----------
    rotate : bool, False where the directions stay as they are, and only their signs are fixed
    """
    core, factors = found.core, list(found.bases)
    turns: list[Array | None] = [None] * len(factors)
    for mode in modes:
        if not rotate and factors[mode] is not None:
            continue
        _, vectors = leading_eigenpairs(xp, mode_gram(xp, core, mode))
        turn = like_array(vectors, core)
        turns[mode] = conjugated(turn)
        factors[mode] = turn if factors[mode] is None else factors[mode] @ turn
    core = contract_modes(xp, core, turns)
    for mode in modes:
        turn = phases(factors[mode])
        factors[mode] = factors[mode] * turn
        shape = [1] * len(factors)
        shape[mode] = int(turn.shape[0])
        core = core * xp.reshape(conjugated(turn), tuple(shape))
    return core, tuple(factors)


def conjugated(array: Array) -> Array:
    """The complex conjugate of an array of any library; the array itself where it is real."""
    return array.conj() if is_complex(array) else array
