"""Alternating least squares for PARAFAC2, many starts at once.

With A, B, C given, the best projection of slice i is the polar factor of M_i = X_i C D_i B',
D_i = diag(a_i); with the projections given, A, B, C are the CP factors of the small tensor Y of
slices P_i' X_i. A sweep does both once. In terms of the Gram matrix N_i = X_i' X_i of a slice

    M_i' M_i = B D_i C' N_i C D_i B',   Y_i = (M_i' M_i)^-1/2 B D_i C' N_i,

so that the rows of the slices cost nothing. Squares halve the digits: fits that leave less than
their resolution are finished on the triangular factors of the slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.decomposition.optimize.nonnegative import nonnegative_rows
from latensor.decomposition.optimize.sweeps import MOMENTUM, faster

# How far ahead a sweep starts in the direction of the last change: grown while that pays. Largest
# fits of noise 50 % and rank 8 take 200 sweeps with this, 3,000 without.
# Plain sweeps at the beginning: a start with momentum ends in other optima more often.
_PLAIN_SWEEPS = 10
# Gram matrices resolve squared residuals down to this fraction of the energy.
RESOLUTION = 1e-8
_EPSILON = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Factors:
    """The factors of several fits.

    Attributes
    ----------
    loadings, middle, columns : A (starts, n_slices, rank), B (starts, rank, rank) and
        C (starts, columns, rank)
    """

    loadings: Any
    middle: Any
    columns: Any

    def __iter__(self) -> Any:
        return iter((self.loadings, self.middle, self.columns))

    def take(self, chosen: Any) -> Factors:
        """The fits with the given indices."""
        return Factors(*(part[chosen] for part in self))


@dataclass(frozen=True)
class Fits:
    """Where several fits stand, each with its own momentum.

    Attributes
    ----------
    factors, previous : Factors, now and one step before
    losses : (starts,) squared residuals
    momentum : (starts,) how far ahead the next sweep starts
    age : int, steps so far
    """

    factors: Factors
    previous: Factors
    losses: Any
    momentum: Any
    age: int = 0

    @property
    def loss(self) -> float:
        """The least squared residual."""
        return float(self.losses.min())

    def take(self, chosen: Any) -> Fits:
        """The fits with the given indices."""
        return replace(
            self,
            factors=self.factors.take(chosen),
            previous=self.previous.take(chosen),
            losses=self.losses[chosen],
            momentum=self.momentum[chosen],
        )

    @classmethod
    def begin(cls, factors: Factors) -> Fits:
        """Fits that have not made a step."""
        starts = factors.loadings.shape[0]
        return cls(factors, factors, np.full(starts, np.inf), np.full(starts, MOMENTUM))


@dataclass(frozen=True)
class Slices:
    """The slices as a sweep needs them.

    Attributes
    ----------
    rows : (n_slices, p, columns) triangular factors of the slices, or the slices, with zero rows
        below the shorter ones
    grams : (n_slices, columns, columns) their Gram matrices; None where p < columns
    energy : float, the sum of squares
    nonnegative : which of the modes 0 and 2 hold no negative numbers
    exact : bool, work on `rows` and not on Gram matrices
    """

    rows: Any
    grams: Any
    energy: float
    nonnegative: tuple[int, ...] = ()
    exact: bool = False

    @classmethod
    def of(cls, slices: Sequence[Any], nonnegative: tuple[int, ...] = ()) -> Slices:
        """Compress every slice to its triangular factor, which loses nothing."""
        columns = slices[0].shape[1]
        short = [x if x.shape[0] <= columns else np.linalg.qr(x, mode="r") for x in slices]
        rows = stack_rows(short)
        energy = float(sum(np.vdot(x, x) for x in slices))
        return cls(rows, gram_matrices(rows), energy, nonnegative)

    def step(self, fits: Fits) -> Fits:
        """One sweep of every fit, from ahead of where it stands; a loss never rises."""
        ahead = fits.factors
        if fits.age >= _PLAIN_SWEEPS:
            momentum = fits.momentum[:, None, None]
            ahead = Factors(
                *(
                    new + momentum * (new - old)
                    for new, old in zip(ahead, fits.previous, strict=True)
                )
            )
            ahead = self._feasible(ahead)
        reached, losses = self.sweep(ahead)
        better = losses < fits.losses
        keep = better[:, None, None]
        factors = Factors(
            *(np.where(keep, new, old) for new, old in zip(reached, fits.factors, strict=True))
        )
        # A step that did not pay is undone; the next one of this fit is plain, since `previous` is
        # then where it stands.
        momentum = np.where(better, faster(fits.momentum), 0.5 * fits.momentum)
        losses = np.where(better, losses, fits.losses)
        return Fits(factors, fits.factors, losses, momentum, fits.age + 1)

    def _feasible(self, factors: Factors) -> Factors:
        loadings, middle, columns = factors
        if 0 in self.nonnegative:
            loadings = np.maximum(loadings, 0.0)
        if 2 in self.nonnegative:
            columns = np.maximum(columns, 0.0)
        return Factors(loadings, middle, columns)

    def sweep(self, factors: Factors) -> tuple[Factors, Any]:
        """Projections, then A, B and C in turn; the factors and the (starts,) losses they have."""
        loadings, middle, columns = factors
        projected, bases = self._project(factors)
        seen = projected @ columns[:, None]
        column_gram = _gram(columns)
        loadings = self._solve(
            _gram(middle) * column_gram, (middle[:, None] * seen).sum(axis=2), loadings, 0
        )
        right = (seen * loadings[:, :, None, :]).sum(axis=1)
        middle = _solved(_gram(loadings) * column_gram, right)
        loadings, middle = _unit(loadings, middle)
        spread = middle[:, None] * loadings[:, :, None, :]
        starts, n_slices, rank, dimension = projected.shape
        right = np.swapaxes(projected.reshape(starts, n_slices * rank, dimension), 1, 2) @ (
            spread.reshape(starts, n_slices * rank, rank)
        )
        gamma = _gram(loadings) * _gram(middle)
        columns = self._solve(gamma, right, columns, 2)
        if bases is None:
            losses = self.energy - 2.0 * (right * columns).sum(axis=(1, 2))
            losses = losses + (gamma * _gram(columns)).sum(axis=(1, 2))
            losses = np.maximum(losses, RESOLUTION * self.energy)
        else:
            model = bases @ (spread @ np.swapaxes(columns, 1, 2)[:, None])
            losses = ((self.rows - model) ** 2).sum(axis=(1, 2, 3))
        loadings, columns = _unit(loadings, columns)
        return Factors(loadings, middle, columns), losses

    def _project(self, factors: Factors) -> tuple[Any, Any]:
        """Y (starts, n_slices, rank, columns), and the projections where they were computed."""
        loadings, middle, columns = factors
        turned = middle[:, None] * loadings[:, :, None, :]
        if self.exact:
            bases = polar(self.rows @ columns[:, None] @ np.swapaxes(turned, 2, 3))
            return np.swapaxes(bases, 2, 3) @ self.rows, bases
        if self.grams is None:
            image = np.swapaxes(self.rows, 1, 2) @ (self.rows @ columns[:, None])
        else:
            image = self.grams @ columns[:, None]
        inner = np.swapaxes(columns, 1, 2)[:, None] @ image
        root = inverse_root(turned @ inner @ np.swapaxes(turned, 2, 3))
        return (root @ turned) @ np.swapaxes(image, 2, 3), None

    def _solve(self, gamma: Any, right: Any, start: Any, mode: int) -> Any:
        if mode not in self.nonnegative:
            return _solved(gamma, right)
        return np.stack(
            [nonnegative_rows(g, r.T, s.T).T for g, r, s in zip(gamma, right, start, strict=True)]
        )


def stack_rows(slices: Sequence[Any]) -> Any:
    """Matrices of unequal heights in one array, zero rows below the shorter ones."""
    height = max(x.shape[0] for x in slices)
    rows = np.zeros((len(slices), height, slices[0].shape[1]))
    for i, x in enumerate(slices):
        rows[i, : x.shape[0]] = x
    return rows


def gram_matrices(rows: Any) -> Any:
    """X_i' X_i of every slice; None where the slices themselves are smaller."""
    return np.swapaxes(rows, 1, 2) @ rows if rows.shape[1] >= rows.shape[2] else None


def polar(matrices: Any) -> Any:
    """The matrices with orthonormal columns nearest to given ones, (..., p, rank)."""
    left, _, right = np.linalg.svd(matrices, full_matrices=False)
    return left @ right


def inverse_root(grams: Any) -> Any:
    """(M' M)^-1/2 of a stack of Gram matrices; directions lost in rounding count as those at its
    level, so that nothing overflows.
    """
    values, vectors = np.linalg.eigh(grams)
    floor = np.maximum(_EPSILON * values[..., -1:], np.finfo(np.float64).tiny)
    values = np.maximum(values, floor)
    return (vectors / np.sqrt(values)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


def _gram(factor: Any) -> Any:
    return np.swapaxes(factor, -1, -2) @ factor


def _solved(gamma: Any, right: Any) -> Any:
    """X with X Gamma = `right`; a ridge of one rounding error keeps a singular Gamma solvable."""
    rank = gamma.shape[-1]
    trace = np.trace(gamma, axis1=-2, axis2=-1)
    ridge = np.where(trace > 0, _EPSILON * trace, 1.0)
    system = gamma + ridge[..., None, None] * np.eye(rank)
    return np.swapaxes(np.linalg.solve(system, np.swapaxes(right, -1, -2)), -1, -2)


def _unit(loadings: Any, factor: Any) -> tuple[Any, Any]:
    """The factor with unit columns, and the loadings, which take their lengths."""
    lengths = np.linalg.norm(factor, axis=1)
    safe = np.where(lengths > 0, lengths, 1.0)
    return loadings * lengths[:, None, :], factor / safe[:, None, :]
