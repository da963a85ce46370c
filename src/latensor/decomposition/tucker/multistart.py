"""Orthogonal iteration (HOOI) from several starts at once, for small tensors.

Where the singular values of the unfoldings have no gap at the ranks asked for, HOOI converges
slowly and has several local optima, of which truncation finds any. In small tensors a sweep costs
next to nothing: several starts are compared, and followed closely, with momentum. Where the first
start converges within a few sweeps there is a gap, and no other one is tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from latensor.decomposition.optimize.sweeps import MOMENTUM, faster

# The largest tensors that are searched: entries, and the longest mode. Random starts, and up to how
# many entries they are tried.
_LARGEST, _LONGEST = 1 << 15, 64
_RANDOM_STARTS, _LARGEST_RANDOM = 6, 1 << 13
# Sweeps in which a start must converge to be taken alone.
_QUICK = 5
# Sweeps before the worse half of the random starts is left.
_TRIALS = (10, 20)
_TOL, _MAX_SWEEPS = 1e-10, 300
# Sweeps that do not start ahead of the last subspaces, which on random tensors saves two thirds:
# the trials decide about the optimum, and momentum may lead from one to another.
_PLAIN_SWEEPS = 20


def is_searchable(shape: Sequence[int]) -> bool:
    """Whether a tensor is small enough for several starts."""
    return prod(shape) <= _LARGEST and max(shape) <= _LONGEST


def best_subspaces(array: Any, start: Sequence[Any], energy: float) -> list[Any]:
    """The best subspaces found from a given start, the HOSVD and random starts.

    Parameters
    ----------
    array : host array in double precision
    start : per mode a basis (d, r) with orthonormal columns, or None where a mode is not cut
    energy : float, the squared norm of the tensor

    Returns
    -------
    Bases as in `start`; those of `start` with a few sweeps more where these converge at once.
    """
    modes = [m for m, basis in enumerate(start) if basis is not None]
    ranks = {m: int(start[m].shape[1]) for m in modes}
    search = _Search(array, modes, energy)
    alone, losses, converged = search.follow(_stacked([start], modes), _QUICK)
    if converged or losses[0] <= np.sqrt(np.finfo(np.float64).eps) * energy:
        return _picked(alone, 0, len(start))
    rng = np.random.default_rng(0)  # the same starts in every call
    points = [{m: _leading(array, m, ranks[m]) for m in modes}]
    count = _RANDOM_STARTS if array.size <= _LARGEST_RANDOM else 0
    points += [{m: _random(rng, array, m, ranks[m]) for m in modes} for _ in range(count)]
    fresh = _stacked(points, modes)
    bases = {m: np.concatenate([alone[m], fresh[m]]) for m in modes}
    for sweeps in _TRIALS:
        bases, losses, _ = search.follow(bases, sweeps)
        # Truncation and the HOSVD, where others start, stay to the end.
        others = 2 + np.argsort(losses[2:], kind="stable")
        kept = [0, 1, *others[: max(len(others) // 3, 1)]]
        bases = {m: stack[kept] for m, stack in bases.items()}
    bases, losses, _ = search.follow(bases, _MAX_SWEEPS)
    return _picked(bases, int(np.argmin(losses)), len(start))


class _Search:
    def __init__(self, array: Any, modes: Sequence[int], energy: float) -> None:
        self.array, self.modes, self.energy = array, modes, energy

    def follow(self, bases: dict[int, Any], sweeps: int) -> tuple[dict[int, Any], Any, bool]:
        """Sweeps of all starts until none of them gains: bases, losses, and whether it came to
        that.
        """
        previous, losses = bases, np.full(len(next(iter(bases.values()))), np.inf)
        momentum, slow = np.full(len(losses), MOMENTUM), np.zeros(len(losses), int)
        for count in range(sweeps):
            plain = count < _PLAIN_SWEEPS
            reached, found = self._sweep(bases if plain else self._ahead(bases, previous, momentum))
            better = found < losses
            # A sweep from ahead that loses is undone, and the next one of that start is plain, as
            # `previous` is then where it stands: two small gains in a row tell that none is left.
            slow = np.where(losses - found <= _TOL * found, slow + 1, 0)
            momentum = np.where(better, faster(momentum), 0.5 * momentum)
            keep = better[:, None, None]
            previous, bases = bases, {m: np.where(keep, reached[m], bases[m]) for m in bases}
            losses = np.where(better, found, losses)
            if (slow >= (1 if plain else 2)).all():
                return bases, losses, True
        return bases, losses, False

    def _ahead(self, bases: dict[int, Any], previous: dict[int, Any], momentum: Any) -> Any:
        result = {}
        for mode, new in bases.items():
            old = previous[mode]
            left, _, right = np.linalg.svd(np.swapaxes(old.conj(), 1, 2) @ new)
            change = new - old @ (left @ right)
            result[mode] = np.linalg.qr(new + momentum[:, None, None] * change)[0]
        return result

    def _sweep(self, bases: dict[int, Any]) -> tuple[dict[int, Any], Any]:
        """One sweep of every start, and the losses it ends with."""
        bases = dict(bases)
        held: Any = None
        for mode in self.modes:
            part = self.array[None]
            others = [m for m in self.modes if m != mode]
            for other in sorted(others, key=lambda m: bases[m].shape[2] / bases[m].shape[1]):
                part = _contract(part, bases[other], other + 1)
            rows = np.moveaxis(part, mode + 1, 1)
            rows = rows.reshape(rows.shape[0], rows.shape[1], -1)
            values, vectors = np.linalg.eigh(rows @ np.swapaxes(rows.conj(), 1, 2))
            rank = bases[mode].shape[2]
            bases[mode] = vectors[:, :, : -rank - 1 : -1]
            held = values[:, -rank:].sum(axis=1)
        return bases, np.maximum(self.energy - held, 0.0)


def _contract(part: Any, basis: Any, axis: int) -> Any:
    """A stack (starts or 1, ...) with one axis summed against the conjugate of (starts, d, r)."""
    shape = part.shape
    left, right = prod(shape[1:axis]), prod(shape[axis + 1 :])
    cube = part.reshape(shape[0], left, shape[axis], right)
    product = np.swapaxes(basis.conj(), 1, 2)[:, None] @ cube
    return product.reshape(len(basis), *shape[1:axis], basis.shape[2], *shape[axis + 1 :])


def _leading(array: Any, mode: int, rank: int) -> Any:
    rows = np.moveaxis(array, mode, 0).reshape(array.shape[mode], -1)
    return np.linalg.eigh(rows @ rows.conj().T)[1][:, : -rank - 1 : -1]


def _random(rng: np.random.Generator, array: Any, mode: int, rank: int) -> Any:
    block = rng.standard_normal((array.shape[mode], rank))
    if array.dtype.kind == "c":
        block = block + 1j * rng.standard_normal(block.shape)
    return np.linalg.qr(block)[0]


def _stacked(points: Sequence[Any], modes: Sequence[int]) -> dict[int, Any]:
    return {m: np.stack([point[m] for point in points]) for m in modes}


def _picked(bases: dict[int, Any], index: int, order: int) -> list[Any]:
    return [bases[m][index] if m in bases else None for m in range(order)]
