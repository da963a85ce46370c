"""Alternating least-squares sweeps over the modes, plain and extrapolated (monograph 3.7).

One sweep serves every fit: on a dense core, on a tensor of any kind, over observed entries only;
with free, penalized, nonnegative and fixed factors, mode by mode. What differs is the problem,
which knows its normal equations, and the row update that solves them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, is_numpy, like, to_host
from latensor.decomposition.optimize.nonnegative import nonnegative_rows
from latensor.decomposition.optimize.problem import Problem

# Sweeps that bring a rough start, or what is left of a fit, near the next optimum.
FEW_SWEEPS = 5
# Sweeps start ahead of where they are by a fraction of the last change, half of it at first. One
# that gains goes on a little further ahead next time, up to nearly the whole change.
MOMENTUM = 0.5
_FASTER, _FURTHEST = 1.15, 0.98


def faster(momentum: Any) -> Any:
    """The momentum, one or many, after a sweep from ahead that gained."""
    further = np.minimum(_FASTER * momentum, _FURTHEST)
    # A plain number leaves single precision as it is, one of NumPy widens it.
    return further if np.ndim(momentum) else float(further)


@dataclass(frozen=True)
class Point:
    """Factors, their Grams and the loss; `previous` and `momentum` extrapolate."""

    factors: tuple[Array, ...]
    grams: tuple[Array, ...]
    loss: float
    previous: tuple[Array, ...] | None = None
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class Sweeps:
    """How a sweep updates the factors of a problem.

    Parameters
    ----------
    problem : what is fitted
    modes : the modes to update, in order; all where None
    ridge : float, penalty on the squared norm of every factor
    nonnegative : modes whose factors have no negative entry
    lift : float, fraction of its mean that is added to the diagonal of every system: a ridge that
        follows the scale of the problem, for annealing
    """

    problem: Problem
    modes: tuple[int, ...] | None = None
    ridge: float = 0.0
    nonnegative: tuple[int, ...] = ()
    lift: float = 0.0

    @property
    def _modes(self) -> tuple[int, ...]:
        return tuple(range(len(self.problem.shape))) if self.modes is None else self.modes

    def start(self, factors: Sequence[Array]) -> Point:
        """The point of given factors; its loss costs one mttkrp."""
        grams = tuple(self.problem.gram(factor) for factor in factors)
        mode = self._modes[-1]
        product = self.problem.products(factors).mttkrp(mode)
        loss = self.problem.loss(factors, grams, product, mode)
        return Point(tuple(factors), grams, loss + self._penalty(grams))

    def at(self, factors: Sequence[Array], loss: float) -> Point:
        """The point of given factors whose loss is known."""
        return Point(tuple(factors), tuple(self.problem.gram(f) for f in factors), loss)

    def sweep(self, point: Point) -> Point:
        """One update of every free mode; never raises the loss but by rounding."""
        problem = self.problem
        factors, grams = list(point.factors), list(point.grams)
        products = problem.products(factors)
        for mode in self._modes:
            gamma = problem.gamma(products, grams, mode)
            right = products.mttkrp(mode)
            ridge = self.ridge
            if self.lift:
                ridge += (
                    self.lift
                    * float(np.trace(gamma, axis1=-2, axis2=-1).real.mean())
                    / len(gamma[0])
                )
            if mode in self.nonnegative:
                factors[mode] = nonnegative_rows(gamma, right, factors[mode], ridge)
            else:
                factors[mode] = problem.solve(gamma, right, ridge)
            grams[mode] = problem.gram(factors[mode])
            products.replace(mode, factors[mode])
        loss = problem.loss(factors, grams, right, mode) + self._penalty(grams)
        return Point(tuple(factors), tuple(grams), loss, point.previous, point.momentum)

    def extrapolated(self, point: Point) -> Point:
        """A sweep that starts ahead of `point`, in the direction of the last change.

        Kept where it ends lower than `point`; otherwise a plain sweep from `point` is made and
        the momentum halved.
        """
        step = point.momentum
        if point.previous is not None:
            ahead = []
            for mode, (f, p) in enumerate(zip(point.factors, point.previous, strict=True)):
                further = f if f is p else f + step * (f - p)
                ahead.append(further.clip(0) if mode in self.nonnegative else further)
            grams = tuple(self.problem.gram(f) for f in ahead)
            reached = self.sweep(Point(tuple(ahead), grams, point.loss))
            if reached.loss < point.loss:
                return Point(
                    reached.factors, reached.grams, reached.loss, point.factors, faster(step)
                )
            step = 0.5 * step
        plain = self.sweep(point)
        return Point(plain.factors, plain.grams, plain.loss, point.factors, step)

    def _penalty(self, grams: Sequence[Array]) -> float:
        if not self.ridge:
            return 0.0
        return self.ridge * sum(float(gram.diagonal().real.sum()) for gram in grams)


def balanced(factors: Sequence[Array], fixed: Sequence[int] = ()) -> tuple[Array, ...]:
    """The same components with equal norms in all modes, which conditions every solve alike.

    Those of `fixed` modes stay as they are.
    """
    if fixed:
        moved = iter(balanced([f for mode, f in enumerate(factors) if mode not in fixed]))
        return tuple(f if mode in fixed else next(moved) for mode, f in enumerate(factors))
    norms = np.array([row_norms(factor) for factor in factors])
    alive = (norms > 0).all(axis=0)
    safe = np.where(alive, norms, 1.0)
    target = np.exp(np.log(safe).mean(axis=0))
    scale = np.where(alive, target / safe, 0.0)[:, :, None]
    return tuple(
        f * (s if is_numpy(f) else like(s, f)) for f, s in zip(factors, scale, strict=True)
    )


def congruences(factors: Iterable[Array]) -> Array:
    """(rank, rank) cosines of all pairs of components, multiplied over the modes; no signs."""
    units = [f / np.maximum(row_norms(f), np.finfo(float).tiny)[:, None] for f in factors]
    product = np.prod([np.abs(unit @ unit.conj().T) for unit in units], axis=0)
    np.fill_diagonal(product, 0.0)
    return np.asarray(product)


def row_norms(factor: Array) -> Array:
    """The norm of every row, on the host."""
    if is_numpy(factor):
        return np.sqrt(np.einsum("ij,ij->i", factor, factor.conj()).real)
    return np.sqrt(np.asarray(to_host((abs(factor) ** 2).sum(1)), dtype=np.float64))
