"""Find the directions of weak components that the noise hides from a plain compression.

A direction of mode n shows in the compressed unfolding only if its energy exceeds the edge of the
noise, variance (sqrt(d_n) + sqrt(columns))^2. A compression with many spare directions has many
columns, so that a weak component may vanish in the noise and a core fit has nothing to find it by.
Fewer directions in the other modes lower the edge: rounds of higher-order orthogonal iteration with
bases as narrow as the rank bring the component out, and the core that remains is small and nearly
free of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from latensor.arrays import Array, like, to_host
from latensor.decomposition.optimize.problem import CompleteProblem, DenseProblem, multiply_mode
from latensor.decomposition.optimize.starts import overdetermined
from latensor.decomposition.subspace.compression import (
    GAP,
    Compression,
    leading_directions,
    unfolding,
)

# Energies over the edge of the noise: up to GAP a direction is noise in a compression with spare
# directions, and above it one of the signal in one without; from here on it is certainly found.
_CLEAR = 2.0
# Fraction of the directions that may be unclear: more of them mean that the rank is too high.
_FEW = 0.25


class Directions(Enum):
    """What a compression shows of the components.

    CLEAR: `rank` directions per mode stand out of the noise, and nothing else.
    HIDDEN: the same, but a few of them do not stand out.
    FEWER: many of them do not: the rank is higher than that of the signal.
    MIXED: anything else, such as more structure than `rank` components, or a rank so low that
        `rank` directions per mode leave no residual to judge.
    """

    CLEAR = "clear"
    HIDDEN = "hidden"
    FEWER = "fewer"
    MIXED = "mixed"


def visible(
    compression: Compression, shape: Sequence[int], rank: int, variance: float
) -> Directions:
    """Whether a tensor is `rank` components and noise, and whether a compression shows them all.

    Parameters
    ----------
    compression : of a tensor of this `shape`, by energy
    rank : int
    variance : float, squared noise per entry
    """
    pairs = zip(compression.core.shape, compression.bases, strict=True)
    narrow = [r if u is None else rank for r, u in pairs]
    if not overdetermined(narrow, rank):
        return Directions.MIXED
    heights = _heights(compression, shape, variance)
    if not heights or any(height[rank] > GAP for height in heights):
        return Directions.MIXED
    unclear = max(int(np.sum(height[:rank] < _CLEAR)) for height in heights)
    if unclear == 0:
        return Directions.CLEAR
    if unclear <= max(_FEW * rank, 1) and len(heights) > 1:
        return Directions.HIDDEN
    noise = min(int(np.sum(height[:rank] < GAP)) for height in heights)
    return Directions.FEWER if noise > _FEW * rank else Directions.MIXED


def narrowed(compression: Compression, rank: int) -> Compression:
    """A compression by energy cut to its `rank` leading directions per compressed mode."""
    kept = tuple(slice(None if u is None else rank) for u in compression.bases)
    core = np.ascontiguousarray(compression.core[kept])
    bases = tuple(None if u is None else u[:rank] for u in compression.bases)
    lost = float(np.vdot(compression.core, compression.core).real - np.vdot(core, core).real)
    return Compression(core, bases, compression.base + max(lost, 0.0))


def refine_subspace(
    problem: CompleteProblem, compression: Compression, rank: int, rng: np.random.Generator
) -> Compression:
    """A compression to `rank` directions per mode, those of the signal rather than of the noise.

    Each of three passes over the tensor holds the basis of one mode and improves the others on the
    tensor contracted with it. Modes that were not compressed stay so.
    """
    bases = [None if u is None else np.asarray(to_host(u)) for u in compression.bases]
    modes = [n for n, u in enumerate(bases) if u is not None]
    for held in (modes[-1], modes[0], modes[-1]):
        view = _contracted(problem, bases, held)
        for mode in modes:
            if mode != held:
                seen = view.project(_others(bases, view, problem, held, mode))
                bases[mode] = leading_directions(unfolding(seen, mode), rank, rng)
    core = view.project(_others(bases, view, problem, held, None))
    base = max(problem.squared_norm - float(np.vdot(core, core).real), 0.0)
    native = [None if u is None else like(u, compression.bases[n]) for n, u in enumerate(bases)]
    return Compression(core, tuple(native), base)


def _heights(compression: Compression, shape: Sequence[int], variance: float) -> list[Array]:
    """The energies of the directions of each compressed mode, relative to the edge of the noise."""
    heights = []
    for mode, basis in enumerate(compression.bases):
        if basis is not None:
            matrix = unfolding(compression.core, mode)
            edge = variance * (np.sqrt(shape[mode]) + np.sqrt(matrix.shape[1])) ** 2
            heights.append(np.linalg.eigvalsh(matrix @ matrix.conj().T)[::-1] / edge)
    return heights


def _contracted(
    problem: CompleteProblem, bases: Sequence[Array | None], held: int
) -> CompleteProblem:
    """The tensor in the coordinates of one basis where that is a dense array; itself elsewhere."""
    basis = bases[held]
    if not isinstance(problem, DenseProblem) or basis is None:
        return problem
    return DenseProblem(multiply_mode(problem.tensor, basis.conj(), held), squared_norm=0.0)


def _others(
    bases: Sequence[Array | None],
    view: CompleteProblem,
    problem: CompleteProblem,
    held: int,
    mode: int | None,
) -> list[Array | None]:
    """What is left to project a view on: every basis but that of `mode`, and the held one once."""
    done = (mode,) if view is problem else (mode, held)
    return [None if n in done else basis for n, basis in enumerate(bases)]
