"""Alternating least-squares sweeps over the modes, plain and extrapolated (monograph 3.7).

The engine behind `AlternatingLeastSquares` and behind the core stages of `algorithm="auto"`; it
works on any `Problem`, with factors held transposed, (rank, d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from latensor.arrays import Array, is_numpy, like, to_host
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.solves import hadamard_of_others

# Relative loss below which the cheap formula for it loses its digits to rounding: at least this,
# and so many times the machine epsilon.
_CANCELLATION = 1e-9
_LOST_DIGITS = 1e3

Update = Callable[[Array, Array, Array], Array]


@dataclass(frozen=True)
class Point:
    """Factors, their Grams and the squared residual; `previous` and `momentum` extrapolate."""

    factors: tuple[Array, ...]
    grams: tuple[Array, ...]
    loss: float
    previous: tuple[Array, ...] | None = None
    momentum: float = 0.5


@dataclass(frozen=True)
class Sweeps:
    """How a sweep updates the factors of a problem.

    Parameters
    ----------
    problem : what is fitted
    modes : the modes to update, in order; all where None
    ridge : float, penalty on the squared norm of every factor
    update : solves for one factor from (Gamma, mttkrp, present factor) in place of least squares,
        for constrained factors
    """

    problem: Problem
    modes: tuple[int, ...] | None = None
    ridge: float = 0.0
    update: Update | None = None

    def start(self, factors: Sequence[Array]) -> Point:
        """The point of given factors; its loss costs one mttkrp."""
        grams = tuple(self.problem.gram(factor) for factor in factors)
        last = self._modes[-1]
        product = self.problem.products(factors).mttkrp(last)
        return Point(tuple(factors), grams, self.loss(factors, grams, product, last))

    @property
    def _modes(self) -> tuple[int, ...]:
        return tuple(range(len(self.problem.shape))) if self.modes is None else self.modes

    def sweep(self, point: Point) -> Point:
        """One update of every free mode; never raises the loss but by rounding."""
        problem = self.problem
        factors, grams = list(point.factors), list(point.grams)
        products = problem.products(factors)
        for mode in self._modes:
            product = products.mttkrp(mode)
            gamma = hadamard_of_others(grams, mode)
            if self.update is None:
                factors[mode] = problem.solve(gamma, product, self.ridge)
            else:
                factors[mode] = self.update(gamma, product, factors[mode])
            grams[mode] = problem.gram(factors[mode])
            products.replace(mode, factors[mode])
        loss = self.loss(factors, grams, product, mode)
        return replace(point, factors=tuple(factors), grams=tuple(grams), loss=loss)

    def extrapolated(self, point: Point) -> Point:
        """A sweep that starts ahead of `point`, in the direction of the last change.

        Kept where it ends lower than `point`; otherwise a plain sweep from `point` is made and
        the momentum halved.
        """
        if point.previous is not None:
            step = point.momentum
            pairs = zip(point.factors, point.previous, strict=True)
            ahead = tuple(f if f is p else f + step * (f - p) for f, p in pairs)
            if self.update is not None:
                ahead = tuple(f.clip(0) for f in ahead)
            grams = tuple(self.problem.gram(f) for f in ahead)
            reached = self.sweep(Point(ahead, grams, point.loss))
            if reached.loss < point.loss:
                return replace(reached, previous=point.factors, momentum=min(step * 1.15, 0.98))
            point = replace(point, momentum=0.5 * step)
        reached = self.sweep(point)
        return replace(reached, previous=point.factors)

    def loss(
        self, factors: Sequence[Array], grams: Sequence[Array], product: Array, mode: int
    ) -> float:
        """The loss of given factors, from their Grams and the mttkrp of one mode."""
        problem = self.problem
        model = grams[0].real.copy() if len(grams) == 1 else np.multiply(grams[0], grams[1])
        for gram in grams[2:]:
            model = model * gram
        total = problem.squared_norm
        loss = total - 2.0 * problem.inner(product, factors[mode]) + float(model.sum().real)
        if loss < max(_CANCELLATION, _LOST_DIGITS * problem.epsilon) * total:
            explicit = problem.explicit_loss(factors)
            loss = max(loss, 0.0) if explicit is None else explicit
        if self.ridge:
            loss += self.ridge * sum(float(gram.diagonal().real.sum()) for gram in grams)
        return loss


def balanced(factors: Sequence[Array]) -> tuple[Array, ...]:
    """The same components with equal norms in all modes, which conditions every solve alike."""
    norms = np.array([row_norms(factor) for factor in factors])
    alive = (norms > 0).all(axis=0)
    safe = np.where(alive, norms, 1.0)
    target = np.exp(np.log(safe).mean(axis=0))
    scale = np.where(alive, target / safe, 0.0)[:, :, None]
    return tuple(
        f * (s if is_numpy(f) else like(s, f)) for f, s in zip(factors, scale, strict=True)
    )


def row_norms(factor: Array) -> Array:
    """The norm of every row, on the host."""
    if is_numpy(factor):
        return np.sqrt(np.einsum("ij,ij->i", factor, factor.conj()).real)
    return np.sqrt(np.asarray(to_host((abs(factor) ** 2).sum(1)), dtype=np.float64))
