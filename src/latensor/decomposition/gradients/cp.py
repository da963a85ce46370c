"""The gradient of a CP decomposition with respect to the tensor.

At a least-squares solution the gradient of the loss f = |W o (X - T(z))|^2 / 2 + ridge |z|^2 / 2
vanishes, -J'(W o (X - T)) + ridge z = 0 with J = dT/dz, so that dz = H^-1 J' (W o dX) with the
Hessian H of f. Cotangents g of z therefore give W o J H^-1 g for X. Scaling one vector of a
component up and another down changes nothing; along these directions H is completed by the
identity, which weights and unit vectors do not notice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.gradients.curvature import (
    LEAST_CURVATURE,
    NEWTON_STEPS,
    solve_curvature,
)
from latensor.exceptions import NotIdentifiableError

# How far, relative to its factors, a result may be from the stationary point whose gradient it
# gets. With tol=1e-7 results are within about 1e-3 of it.
_NEAR = 1e-2


@dataclass(frozen=True)
class CPGradient:
    """Cotangents of weights and unit factors to cotangents of the tensor.

    Parameters
    ----------
    tensor : host array
    weights, factors : the result, on the host, one factor per distinct block
    observed : array of zeros and ones, or None
    ridge : float, weight of the penalty on the squared norm of every factor
    nonnegative : modes whose factors are nonnegative
    fixed : dict from mode to the factor that stays as it is
    symmetric : bool, whether all modes share the one factor
    status : str, why the fit ended, for messages
    """

    tensor: Any
    weights: Any
    factors: tuple[Any, ...]
    observed: Any = None
    ridge: float = 0.0
    nonnegative: tuple[int, ...] = ()
    fixed: dict[int, Any] = field(default_factory=dict)
    symmetric: bool = False
    status: str = ""

    def __call__(self, cotangents: Sequence[Any]) -> Any:
        """The cotangent of the tensor, for those of the weights and of the factors."""
        point = self._point
        right = point.flat(
            self._output_cotangents(point, cotangents[0] * self._scale, cotangents[1:])
        )
        size = float(np.linalg.norm(right))
        if size == 0.0:
            return np.zeros_like(self.tensor)
        move = point.blocks(point.solve(right, 0.0))
        return point.change(move) / self._scale

    @cached_property
    def _scale(self) -> float:
        """The largest entry, by which all is divided, so that no product leaves the range."""
        entries = self.tensor if self.observed is None else self.tensor[self.observed > 0]
        return float(np.abs(entries).max(initial=0.0)) or 1.0

    @cached_property
    def _point(self) -> _Point:
        """The stationary point next to the result, by Newton's method."""
        if (self.weights == 0).any():
            raise NotIdentifiableError(
                "no gradient: a component has weight zero, so that its vectors are arbitrary. "
                "Lower the rank"
            )
        start = self._start()
        start.refuse_dependence()
        point = start
        size = point.size()
        for _ in range(NEWTON_STEPS):
            downhill = -point.flat(point.slopes())
            rounding = 1e-15 * size
            try:
                step = point.solve(downhill, rounding)
            except NotIdentifiableError:
                if self.status == "CONVERGED":
                    raise
                break
            point = point.moved(step)
            distance = float(np.linalg.norm(point.flat(point.free) - point.flat(start.free)))
            if distance > _NEAR * size:
                break
            if float(np.linalg.norm(step)) <= 1e-12 * size:
                point.refuse_kinks()
                return point
        raise NotIdentifiableError(
            f"no gradient: the result is no least-squares solution yet ({self.status}); the next "
            f"stationary point is more than {100 * _NEAR:.0f} % away or not reached. Lower tol, "
            "raise max_iter, or leave out target and callback"
        )

    def _start(self) -> _Point:
        """The result with its weights spread evenly over the free factors."""
        wide = np.complex128 if self.tensor.dtype.kind == "c" else np.float64
        tensor = self.tensor.astype(wide) / self._scale
        if self.observed is not None:
            tensor = np.where(self.observed > 0, tensor, 0.0)
        order = tensor.ndim
        modes = [m for m in range(order) if m not in self.fixed]
        weights = np.asarray(self.weights, dtype=wide) / self._scale
        magnitudes = np.abs(weights) ** (1.0 / len(modes))
        free = [np.asarray(f, dtype=wide) * magnitudes for f in self.factors]
        phases = weights / np.abs(weights)
        if not self.symmetric:
            free[0] = free[0] * phases
            phases = np.ones_like(phases)
        # With X = c X' and factors c^(1/p) times those of X', the penalty keeps its fraction.
        ridge = self.ridge * self._scale ** (2.0 / len(modes) - 2.0)
        fixed = {m: np.asarray(f, dtype=wide) for m, f in self.fixed.items()}
        places = (tuple(range(order)),) if self.symmetric else tuple((m,) for m in modes)
        bounded = tuple(places[b][0] in self.nonnegative for b in range(len(places)))
        return _Point(tensor, self.observed, ridge, places, fixed, phases, bounded, tuple(free))

    def _output_cotangents(
        self, point: _Point, of_weights: Any, of_factors: Sequence[Any]
    ) -> list[Any]:
        """Cotangents of the free factors a, where w = prod s and u = a / s, s = |a| phase.

        The phase is what u keeps at its entry of largest magnitude: that of the result, which is
        positive there but for the one factor of an odd order, whose weights are positive instead.
        Where modes are fixed the vectors keep their phases.
        """
        columns = np.arange(len(point.phases))
        leading, scales = [], []
        for a, unit in zip(point.free, self.factors, strict=True):
            magnitudes = np.abs(unit)
            first = np.argmax(magnitudes >= magnitudes.max(axis=0) * (1 - 1e-6), axis=0)
            turned = a[first, columns] / unit[first, columns]
            leading.append(first)
            lengths = np.linalg.norm(a, axis=0)
            scales.append(lengths if self.fixed else lengths * turned / np.abs(turned))
        powers = [s ** len(m) for s, m in zip(scales, point.places, strict=True)]
        weights = prod(powers, start=point.phases)
        result = []
        for modes, a, first, scale, unit_cotangent in zip(
            point.places, point.free, leading, scales, of_factors, strict=True
        ):
            inner = ((a / scale).conj() * unit_cotangent).sum(axis=0)
            gamma = len(modes) * np.conj(weights) * of_weights - inner
            cotangent = unit_cotangent / np.conj(scale) + gamma.real * a / np.abs(scale) ** 2
            if np.iscomplexobj(a) and not self.fixed:
                cotangent[first, columns] += 1j * gamma.imag / np.conj(a[first, columns])
            result.append(cotangent)
        return result


@dataclass(frozen=True)
class _Point:
    """Factors of a least-squares problem, with its gradient and curvature there.

    `free` holds one (d, rank) matrix per block, `places` the modes that each block stands for.
    """

    tensor: Any
    observed: Any
    ridge: float
    places: tuple[tuple[int, ...], ...]
    fixed: dict[int, Any]
    phases: Any
    bounded: tuple[bool, ...]
    free: tuple[Any, ...]

    @cached_property
    def factors(self) -> list[Any]:
        """One (d, rank) matrix per mode."""
        return self._spread(self.free)

    def _spread(self, blocks: Sequence[Any]) -> list[Any]:
        found: dict[int, Any] = dict(self.fixed)
        for modes, block in zip(self.places, blocks, strict=True):
            found |= dict.fromkeys(modes, block)
        found[0] = found[0] * self.phases
        return [found[mode] for mode in range(self.tensor.ndim)]

    def _gathered(self, by_mode: dict[int, Any]) -> list[Any]:
        """Cotangents of the blocks from those of the modes."""
        if 0 in by_mode:
            by_mode[0] = by_mode[0] * self.phases.conj()
        return [sum(by_mode[mode] for mode in modes) for modes in self.places]

    @cached_property
    def residual(self) -> Any:
        """What the model leaves over of the observed entries."""
        return self._seen(self.tensor - _composed(self.factors))

    def _seen(self, tensor: Any) -> Any:
        return tensor if self.observed is None else tensor * self.observed

    @property
    def _moving(self) -> list[int]:
        return [mode for modes in self.places for mode in modes]

    def slopes(self) -> list[Any]:
        """The gradient of the loss."""
        down = {m: -_mttkrp(self.residual, self.factors, m) for m in self._moving}
        return [
            g + self.ridge * len(modes) * block
            for g, modes, block in zip(self._gathered(down), self.places, self.free, strict=True)
        ]

    def change(self, moves: Sequence[Any]) -> Any:
        """J times a change of the free factors: the change of the observed entries of the model."""
        ahead = self._moves(moves)
        total = sum(_composed([*self.factors[:m], v, *self.factors[m + 1 :]]) for m, v in ahead)
        return self._seen(total)

    def _moves(self, blocks: Sequence[Any]) -> list[tuple[int, Any]]:
        return [
            (mode, block * self.phases if mode == 0 else block)
            for modes, block in zip(self.places, blocks, strict=True)
            for mode in modes
        ]

    def curvature(self, moves: Sequence[Any]) -> list[Any]:
        """The Hessian of the loss times a change of the free factors."""
        ahead = self._moves(moves)
        changed = self.change(moves)
        found = {}
        for mode in self._moving:
            total = _mttkrp(changed, self.factors, mode)
            for other, move in ahead:
                if other != mode:
                    turned = [*self.factors[:other], move, *self.factors[other + 1 :]]
                    total = total - _mttkrp(self.residual, turned, mode)
            found[mode] = total
        return [
            h + self.ridge * len(modes) * move
            for h, modes, move in zip(self._gathered(found), self.places, moves, strict=True)
        ]

    @cached_property
    def active(self) -> Any:
        """Zeros of the real vector of parameters where a bound holds them, else ones."""
        if not any(self.bounded):
            return np.ones_like(self.flat(self.free))
        rows = [
            np.where(bound & (block <= 0.0) & (slope >= 0.0), 0.0, 1.0)
            for bound, block, slope in zip(self.bounded, self.free, self.slopes(), strict=True)
        ]
        return self.flat(rows)

    def refuse_dependence(self) -> None:
        """Refuse components that are parallel in all modes but one: any sum of them fits."""
        for gram in self._grams:
            scale = np.sqrt(gram.diagonal().real)
            values = np.linalg.eigvalsh(gram / np.outer(scale, scale))
            if values[0] <= LEAST_CURVATURE * values[-1]:
                raise NotIdentifiableError(
                    "no gradient: components are parallel in all modes but one, so that many "
                    "others fit as well. Lower the rank or add a ridge"
                )

    def refuse_kinks(self) -> None:
        """Refuse bounds that are about to let go: there the solution has no derivative."""
        for bound, block, slope in zip(self.bounded, self.free, self.slopes(), strict=True):
            if bound and ((block <= 0.0) & (np.abs(slope) <= 1e-8 * self.size())).any():
                raise NotIdentifiableError(
                    "no gradient: an entry of a nonnegative factor is zero without being held "
                    "there by its bound, so that the solution has a kink. Leave out nonnegative"
                )

    def flat(self, blocks: Sequence[Any]) -> Any:
        """Blocks as one real vector."""
        joined = np.concatenate([np.ascontiguousarray(block).ravel() for block in blocks])
        return joined.view(np.float64) if joined.dtype.kind == "c" else joined

    def blocks(self, flat: Any) -> list[Any]:
        """The reverse of `flat`."""
        joined = flat.view(np.complex128) if self.tensor.dtype.kind == "c" else flat
        cuts = np.cumsum([block.size for block in self.free])[:-1]
        parts = np.split(joined, cuts)
        return [part.reshape(block.shape) for part, block in zip(parts, self.free, strict=True)]

    def size(self) -> float:
        """The norm of the free factors."""
        return float(np.linalg.norm(self.flat(self.free)))

    def moved(self, step: Any) -> _Point:
        """The point after a step; bounds are kept."""
        free = [block + move for block, move in zip(self.free, self.blocks(step), strict=True)]
        free = [np.maximum(f, 0.0) if b else f for f, b in zip(free, self.bounded, strict=True)]
        return replace(self, free=tuple(free))

    def solve(self, right: Any, rounding: float) -> Any:
        """H^-1 times a vector, orthogonal to the directions in which the model does not change."""
        active, gauge = self.active, self._gauge
        level = float(np.mean([np.trace(g).real / len(g) for g in self._grams]))

        def apply(vector: Any) -> Any:
            image = self.flat(self.curvature(self.blocks(active * vector)))
            return active * image + level * (gauge @ (gauge.T @ vector)) + level * inactive * vector

        inactive = 1.0 - active
        inverses = [
            np.linalg.inv(gram + 1e-8 * np.trace(gram) * np.eye(len(gram))) for gram in self._grams
        ]

        def precondition(vector: Any) -> Any:
            parts = self.blocks(active * vector)
            image = self.flat([part @ inv for part, inv in zip(parts, inverses, strict=True)])
            return active * image + inactive * vector / level

        right = active * right
        right = right - gauge @ (gauge.T @ right)
        return solve_curvature(apply, precondition, right, rounding)

    @cached_property
    def _grams(self) -> list[Any]:
        """For each block the (rank, rank) matrix of its normal equations if alone."""
        grams = [f.conj().T @ f for f in self.factors]
        fraction = 1.0 if self.observed is None else float(self.observed.mean())
        rank = len(self.phases)
        found = []
        for modes in self.places:
            others = prod(
                (g for m, g in enumerate(grams) if m != modes[0]), start=np.ones((rank, rank))
            )
            total = fraction * len(modes) * others + self.ridge * np.eye(rank)
            found.append(total.conj())
        return found

    @cached_property
    def _gauge(self) -> Any:
        """Orthonormal directions that change no component: one vector longer, another shorter."""
        units: tuple[complex, ...] = () if self.ridge > 0.0 else (1.0,)
        units += (1j,) if self.tensor.dtype.kind == "c" else ()
        if len(self.places) == 1 or not units:
            return np.zeros((len(self.flat(self.free)), 0))
        columns = []
        for r in range(len(self.phases)):
            for b in range(len(self.places) - 1):
                for unit in units:
                    moves = [np.zeros_like(block) for block in self.free]
                    moves[b][:, r] = unit * self.free[b][:, r]
                    moves[-1][:, r] = -unit * self.free[-1][:, r]
                    columns.append(self.flat(moves))
        # Directions of different components are orthogonal; those of one are few.
        return np.linalg.qr(np.stack(columns, axis=1))[0]


def _composed(factors: Sequence[Array]) -> Any:
    """The sum of outer products of the columns."""
    shape = tuple(f.shape[0] for f in factors)
    if len(factors) == 1:
        return factors[0].sum(axis=1)
    half = len(factors) // 2
    left, right = _khatri_rao(factors[:half]), _khatri_rao(factors[half:])
    return (left @ right.T).reshape(shape)


def _khatri_rao(factors: Sequence[Array]) -> Any:
    result: Any = factors[0]
    for factor in factors[1:]:
        result = (result[:, None, :] * factor[None, :, :]).reshape(-1, factor.shape[1])
    return result


def _mttkrp(tensor: Any, factors: Sequence[Array], mode: int) -> Any:
    """The unfolding times the conjugate Khatri-Rao product of the other factors."""
    others = [f for m, f in enumerate(factors) if m != mode]
    unfolded = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
    if not others:
        return np.repeat(unfolded, factors[mode].shape[1], axis=1)
    return unfolded @ _khatri_rao(others).conj()
