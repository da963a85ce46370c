"""The gradient of an orthogonal Tucker decomposition with respect to the tensor.

The best subspaces maximize |S|^2 / 2, S = X(conj U_1, ..., conj U_N). With W_n the unfolding of X
in the coordinates of all other subspaces, that asks for (1 - P_n) W_n S_(n)' = 0, P_n = U_n U_n',
which the implicit function theorem differentiates. Inside its subspace each U_n holds the
eigenvectors of S_(n) S_(n)', whose rotations follow from perturbation theory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.decomposition.gradients.curvature import (
    LEAST_CURVATURE,
    NEWTON_STEPS,
    solve_curvature,
)
from latensor.exceptions import NotIdentifiableError

# How far in radians a result may be from the stationary subspaces whose gradient it gets: with
# tol=1e-4 it is within about 0.02 of them on tensors without structure.
_NEAR = 0.1
# Relative to all cotangents, the part that would rotate two equal singular values and is rounding.
_ROUNDING = 1e-8


@dataclass(frozen=True)
class TuckerGradient:
    """Cotangents of core and factors to cotangents of the tensor.

    Parameters
    ----------
    tensor : host array
    factors : one host matrix with orthonormal columns per mode, or None
    status : str, why the fit ended, for messages
    """

    tensor: Any
    factors: tuple[Any, ...]
    status: str = ""

    def __call__(self, cotangents: Sequence[Any]) -> Any:
        """The cotangent of the tensor, for those of the core and of the factors that there are."""
        point = self._point
        core = cotangents[0].astype(point.tensor.dtype) * self._scale
        found = _expand(core, point.factors)
        of_factors = {
            mode: cotangent + point.partial(mode) @ _unfold(core, mode).conj().T
            for mode, cotangent in zip(point.modes, cotangents[1:], strict=True)
        }
        of_factors = {mode: point.through_phases(mode, g) for mode, g in of_factors.items()}
        size = sum(float(np.linalg.norm(g)) for g in of_factors.values())
        rotated = np.zeros_like(point.core)
        for mode, g in of_factors.items():
            rotated += point.through_rotation(mode, g, size)
        found = found + _expand(rotated, point.factors)
        tangent = {
            mode: point.outside(mode, g + point.partial(mode) @ _unfold(rotated, mode).conj().T)
            for mode, g in of_factors.items()
        }
        found = found + point.through_subspaces(tangent, 1e-14 * size)
        return found / self._scale

    @cached_property
    def _scale(self) -> float:
        return float(np.abs(self.tensor).max(initial=0.0)) or 1.0

    @cached_property
    def _point(self) -> _Subspaces:
        """The stationary subspaces next to the result, by Newton's method."""
        wide = np.complex128 if self.tensor.dtype.kind == "c" else np.float64
        factors = tuple(None if f is None else f.astype(wide) for f in self.factors)
        point = _Subspaces(self.tensor.astype(wide) / self._scale, factors)
        moved = 0.0
        for _ in range(NEWTON_STEPS):
            slopes = {
                mode: point.outside(mode, point.partial(mode) @ _unfold(point.core, mode).conj().T)
                for mode in point.modes
            }
            step = point.solve(slopes, 1e-15 * float(np.linalg.norm(point.core)) ** 2)
            size = float(np.sqrt(sum(np.linalg.norm(v) ** 2 for v in step.values())))
            point = point.turned(step)
            moved += size
            if moved > _NEAR:
                break
            if size <= 1e-12:
                return point.aligned(factors)
        raise NotIdentifiableError(
            f"no gradient: the result is no least-squares solution yet ({self.status}); the next "
            f"stationary subspaces are more than {_NEAR} rad away or not reached. Use "
            "method='hooi' with a smaller tol and a larger max_iter"
        )


@dataclass(frozen=True)
class _Subspaces:
    """A tensor and orthonormal factors U_n, with what follows from them."""

    tensor: Any
    factors: tuple[Any, ...]

    @cached_property
    def modes(self) -> tuple[int, ...]:
        """The modes that have a factor."""
        return tuple(m for m, f in enumerate(self.factors) if f is not None)

    @cached_property
    def core(self) -> Any:
        """S, the tensor in the coordinates of all subspaces."""
        return _project(self.tensor, self.factors)

    @cached_property
    def _partials(self) -> dict[int, Any]:
        return {
            mode: _unfold(_project(self.tensor, _without(self.factors, mode)), mode)
            for mode in self.modes
        }

    def partial(self, mode: int) -> Any:
        """W_n, the unfolding of the tensor in the coordinates of the other subspaces."""
        return self._partials[mode]

    @cached_property
    def energies(self) -> dict[int, Any]:
        """S_(n) S_(n)' for every mode."""
        return {m: (s := _unfold(self.core, m)) @ s.conj().T for m in self.modes}

    def outside(self, mode: int, matrix: Any) -> Any:
        """The part of the columns that is orthogonal to the subspace of a mode."""
        basis = self.factors[mode]
        return matrix - basis @ (basis.conj().T @ matrix)

    def curvature(self, moves: dict[int, Any]) -> dict[int, Any]:
        """Minus the Hessian of |S|^2 / 2 on the Grassmann manifolds."""
        result = {}
        for mode in self.modes:
            partial, core = self.partial(mode), _unfold(self.core, mode)
            total = partial @ (partial.conj().T @ moves[mode])
            for other in self.modes:
                if other != mode:
                    turned = list(_without(self.factors, mode))
                    turned[other] = moves[other]
                    changed = _unfold(_project(self.tensor, turned), mode)
                    total = total + changed @ core.conj().T
                    total = total + partial @ (self.factors[mode].conj().T @ changed).conj().T
            result[mode] = moves[mode] @ self.energies[mode] - self.outside(mode, total)
        return result

    def solve(self, right: dict[int, Any], rounding: float) -> dict[int, Any]:
        """The tangent directions that `curvature` maps to `right`."""
        inverses = {}
        for mode, energy in self.energies.items():
            floor = 1e-8 * float(np.trace(energy).real)
            inverses[mode] = np.linalg.inv(energy + floor * np.eye(len(energy)))

        def apply(vector: Any) -> Any:
            return self._flat(self.curvature(self._matrices(vector)))

        def precondition(vector: Any) -> Any:
            parts = self._matrices(vector)
            return self._flat({m: parts[m] @ inverses[m] for m in self.modes})

        return self._matrices(solve_curvature(apply, precondition, self._flat(right), rounding))

    def _flat(self, matrices: dict[int, Any]) -> Any:
        joined = np.concatenate([np.ascontiguousarray(matrices[m]).ravel() for m in self.modes])
        return joined.view(np.float64) if joined.dtype.kind == "c" else joined

    def _matrices(self, vector: Any) -> dict[int, Any]:
        joined = vector.view(np.complex128) if self.tensor.dtype.kind == "c" else vector
        sizes = [self.factors[m].size for m in self.modes]
        parts = np.split(joined, np.cumsum(sizes)[:-1])
        return {
            m: part.reshape(self.factors[m].shape)
            for m, part in zip(self.modes, parts, strict=True)
        }

    def turned(self, step: dict[int, Any]) -> _Subspaces:
        """The subspaces after a tangent step."""
        factors = list(self.factors)
        for mode, move in step.items():
            factors[mode] = np.linalg.qr(self.factors[mode] + move)[0]
        return _Subspaces(self.tensor, tuple(factors))

    def aligned(self, result: Sequence[Any]) -> _Subspaces:
        """The bases whose core is all-orthogonal, in the order and with the phases of a result."""
        factors = list(self.factors)
        for mode in self.modes:
            basis = self.factors[mode] @ np.linalg.eigh(self.energies[mode])[1][:, ::-1]
            inner = (basis.conj() * result[mode]).sum(axis=0)
            size = np.abs(inner)
            factors[mode] = basis * np.where(size == 0, 1.0, inner / np.where(size == 0, 1.0, size))
        return _Subspaces(self.tensor, tuple(factors))

    def through_phases(self, mode: int, cotangent: Any) -> Any:
        """Cotangents of columns of any phase, from those whose largest entry is positive."""
        if cotangent.dtype.kind != "c":
            return cotangent
        basis = self.factors[mode]
        first = np.argmax(np.abs(basis) >= np.abs(basis).max(axis=0) * (1 - 1e-6), axis=0)
        columns = np.arange(basis.shape[1])
        turning = -(cotangent.conj() * basis).sum(axis=0).imag
        result = cotangent.copy()
        result[first, columns] -= 1j * turning / np.abs(basis[first, columns])
        return result

    def through_rotation(self, mode: int, cotangent: Any, size: float) -> Any:
        """The cotangent of the core, through the eigenvectors inside the subspace of a mode."""
        values = np.diag(self.energies[mode]).real
        inner = self.factors[mode].conj().T @ cotangent
        wanted = inner - inner.conj().T
        gaps = values[None, :] - values[:, None]
        np.fill_diagonal(wanted, 0.0)
        close = np.abs(gaps) <= np.sqrt(LEAST_CURVATURE) * values.max()
        if (close & (np.abs(wanted) > _ROUNDING * size)).any():
            raise NotIdentifiableError(
                f"no gradient: mode {mode} of the core has equal singular values, whose vectors "
                "are arbitrary within their span. Differentiate what does not depend on them, "
                "such as the fitted tensor, or change the ranks"
            )
        ratios = np.where(close, 0.0, wanted / np.where(close, 1.0, gaps))
        return _fold(ratios @ _unfold(self.core, mode), mode, self.core.shape)

    def through_subspaces(self, cotangents: dict[int, Any], rounding: float) -> Any:
        """The cotangent of the tensor, through the stationary subspaces."""
        found = self.solve(cotangents, rounding)
        total: Any = np.zeros_like(self.tensor)
        for mode, y in found.items():
            shape = list(self.core.shape)
            shape[mode] = y.shape[0]
            outer = _fold(y @ _unfold(self.core, mode), mode, tuple(shape))
            total = total + _expand(outer, _without(self.factors, mode))
            inner = _fold(y.conj().T @ self.partial(mode), mode, self.core.shape)
            total = total + _expand(inner, self.factors)
        return total


def _without(factors: Sequence[Any], mode: int) -> tuple[Any, ...]:
    return tuple(None if m == mode else f for m, f in enumerate(factors))


def _unfold(tensor: Any, mode: int) -> Any:
    return np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)


def _fold(matrix: Any, mode: int, shape: tuple[int, ...]) -> Any:
    rest = [d for m, d in enumerate(shape) if m != mode]
    return np.moveaxis(matrix.reshape(shape[mode], *rest), 0, mode)


def _multiply(tensor: Any, matrices: Sequence[Any]) -> Any:
    for mode, matrix in enumerate(matrices):
        if matrix is not None:
            tensor = np.moveaxis(np.tensordot(matrix, tensor, axes=(1, mode)), 0, mode)
    return tensor


def _project(tensor: Any, factors: Sequence[Any]) -> Any:
    return _multiply(tensor, [None if f is None else f.conj().T for f in factors])


def _expand(core: Any, factors: Sequence[Any]) -> Any:
    return _multiply(core, factors)
