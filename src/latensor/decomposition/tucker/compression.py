"""A small dense core for any tensor, on which a Tucker decomposition is found at little cost.

Since the bases are orthonormal, what the core leaves out and what a decomposition of the core
leaves out add up: the error of the whole is known without looking at the tensor again.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, like, machine_epsilon, standard_normal
from latensor.arrays.checks import refuse_nonfinite
from latensor.decomposition.subspace.compression import LARGEST_CORE, ROUNDS
from latensor.decomposition.subspace.mode_directions import (
    leading_directions,
    leading_eigenpairs,
    widened_basis,
)
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    conjugated,
    orthogonal_sweep,
    sketch,
    squared_norm,
)
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.tucker import TuckerTensor

# The longest mode whose Gram matrix is formed: its eigenvectors take a second.
_LONGEST_GRAM = 1500
# A sketch that sees a mode through few columns misses part of it: it is corrected by so many
# sweeps at most, while each lowers what is left out to less than this fraction.
_MAX_CORRECTIONS = 3
_WORTH_ANOTHER = 0.97
_FIRST_WIDTH = 16


def oversampled(rank: int) -> int:
    """How many directions a basis keeps, so that the best `rank` of them are among these."""
    return rank + int(np.clip(rank // 2, 10, 25))


def orthonormal_form(
    xp: Namespace, tensor: Contractible, ranks: Mapping[int, int]
) -> Subspaces | None:
    """A CP or Tucker tensor as a dense core with orthonormal bases, exactly.

    With A_n = Q_n R_n the core is the same tensor made of the R_n. Bases narrower than the
    `ranks` asked for are widened. None for tensors of another kind, and where the core would be
    too large to be formed.
    """
    if not isinstance(tensor, CPTensor | TuckerTensor):
        return None
    widths = [
        d if f is None else min(d, max(int(f.shape[1]), ranks.get(m, 1)))
        for m, (d, f) in enumerate(zip(tensor.shape, tensor.factors, strict=True))
    ]
    if prod(widths) > LARGEST_CORE:
        return None
    bases: list[Array | None] = []
    inner: list[Array | None] = []
    for mode, factor in enumerate(tensor.factors):
        if factor is None or widths[mode] == factor.shape[0]:
            bases.append(None)
            inner.append(factor)
            continue
        refuse_nonfinite(factor, f"tensor.factors[{mode}]")
        basis, triangle = xp.linalg.qr(factor)
        bases.append(widened_basis(xp, basis, widths[mode]))
        missing = like(np.zeros((widths[mode] - basis.shape[1], factor.shape[1])), factor)
        inner.append(xp.concat([triangle, missing], axis=0))
    core: Array
    if isinstance(tensor, CPTensor):
        core = CPTensor(tensor.weights, tuple(inner)).to_dense()
    else:
        core = TuckerTensor(tensor.core, tuple(inner)).to_dense()
    return Subspaces(core, tuple(bases), 0.0)


def compress(
    xp: Namespace,
    tensor: Contractible,
    widths: Mapping[int, int],
    energy: float,
    rng: np.random.Generator,
    sweeps: int = ROUNDS,
) -> Subspaces:
    """A tensor of any kind projected on given numbers of directions, nearly the best ones.

    Dense arrays are sketched. All others are seen through their Grams, where they have an
    `unfold_gram` and the mode is not too long, or through Gaussian contractions, and the bases
    then improved by orthogonal iteration.

    Parameters
    ----------
    widths : mode -> directions to keep
    energy : float, the squared norm of the tensor
    rng : draws the Gaussian matrices
    sweeps : int, of orthogonal iteration over a tensor that is not dense
    """
    if isinstance(tensor, DenseTensor):
        found = sketch(xp, tensor.array, widths, energy, rng)
        modes = [m for m, basis in enumerate(found.bases) if basis is not None]
        for _ in range(_MAX_CORRECTIONS if len(modes) > 1 else 0):
            before = found.loss
            if before <= machine_epsilon(tensor.array) * energy:
                break
            found = orthogonal_sweep(xp, tensor, modes, energy, found)
            if found.loss > _WORTH_ANOTHER * before:
                break
        return found
    cut = {m: w for m, w in widths.items() if w < tensor.shape[m]}
    bases: list[Array | None] = [None] * len(tensor.shape)
    for mode, width in cut.items():
        bases[mode] = _first_basis(xp, tensor, mode, width, rng)
    core = tensor.contract(*(None if b is None else conjugated(b) for b in bases))
    found = Subspaces(core, tuple(bases), max(energy - squared_norm(xp, core), 0.0))
    for _ in range(sweeps if len(cut) > 1 else 0):
        found = orthogonal_sweep(xp, tensor, tuple(cut), energy, found)
    return found


def has_grams(tensor: Contractible) -> bool:
    """Whether the Grams of all unfoldings of a tensor that is not dense can be had."""
    return all(_has_gram(tensor, mode) for mode in range(len(tensor.shape)))


def _has_gram(tensor: Contractible, mode: int) -> bool:
    return hasattr(tensor, "unfold_gram") and tensor.shape[mode] <= _LONGEST_GRAM


def _first_basis(
    xp: Namespace, tensor: Any, mode: int, width: int, rng: np.random.Generator
) -> Array:
    shape = tensor.shape
    if _has_gram(tensor, mode):
        _, vectors = leading_eigenpairs(xp, tensor.unfold_gram(mode), width)
        return like(vectors, tensor.reference)
    # Twice as many columns as directions, spread over the other modes.
    side = int(np.ceil((2.0 * width) ** (1.0 / max(len(shape) - 1, 1)))) + 1
    probes = [
        None if m == mode else standard_normal(rng, (d, min(d, side)), tensor.reference)
        for m, d in enumerate(shape)
    ]
    return leading_directions(xp, tensor.contract(*probes), mode, rank=width).basis


def compress_to_budget(
    xp: Namespace,
    tensor: Contractible,
    rule: Truncation,
    energy: float,
    rng: np.random.Generator,
) -> Subspaces:
    """A core that leaves out at most half of what a rule with unknown ranks allows.

    The widths of the modes whose rank the rule leaves open are doubled until that holds.
    """
    allowed = 0.5 * min([*rule.fractions.values(), *([rule.total] if rule.total > 0 else [])])
    width = _FIRST_WIDTH
    while True:
        widths = {
            m: min(tensor.shape[m], oversampled(rule.ranks[m]) if m in rule.ranks else width)
            for m in rule.modes
        }
        shape = tuple(widths.get(m, d) for m, d in enumerate(tensor.shape))
        if prod(shape) > LARGEST_CORE:
            raise InvalidInputError(
                f"a decomposition this close needs a core of shape {shape} or more, which does "
                "not fit in memory: allow a larger error, or give ranks as integers"
            )
        found = compress(xp, tensor, widths, energy, rng)
        # Modes with a fixed rank may lose more than the rule allows the others: no reason to go on.
        whole = all(widths[m] == tensor.shape[m] for m in rule.modes if m not in rule.ranks)
        if found.loss <= allowed * energy or whole:
            return found
        width *= 2
