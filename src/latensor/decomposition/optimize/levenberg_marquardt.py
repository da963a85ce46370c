"""Levenberg-Marquardt steps for CP: the end game where alternating least squares crawls.

One step solves (J'J + damping) x = -gradient for all factors at once. J'J is never formed: with
Gamma_n the Hadamard product of the other Grams and Gamma_nm that of all but two, its product with
x is x_n Gamma_n + sum_m!=n (Gamma_nm o A_m x_m') A_n in transposed factors; conjugate gradients
with the blocks Gamma_n + damping as preconditioner solve the system. Factors are padded with
zeros into one (order, rank, d) array, so that each product is a handful of batched calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.optimize.alternating import Sweeps, balanced
from latensor.decomposition.optimize.problem import Problem, Products

_ATTEMPTS = 6
_INNER_TOLERANCE = 1e-2
_MOST_DAMPING = 1e12


@dataclass(frozen=True)
class NewtonPoint:
    """Balanced factors, their Grams and loss; damping and its growth for the next step."""

    factors: tuple[Array, ...]
    grams: tuple[Array, ...]
    loss: float
    products: Products
    damping: float = -1.0
    growth: float = 2.0


@dataclass(frozen=True)
class NewtonSteps:
    """Levenberg-Marquardt on a problem with real factors.

    Parameters
    ----------
    problem : what is fitted
    max_inner : int, conjugate-gradient steps per linear system
    """

    problem: Problem
    max_inner: int = 60

    def start(self, factors: Sequence[Array]) -> NewtonPoint:
        """The point of given factors, which move to the host."""
        return self._evaluate([np.asarray(to_host(f), dtype=np.float64) for f in factors])

    def _evaluate(self, factors: Sequence[Array]) -> NewtonPoint:
        even = balanced(factors)
        grams = tuple(self.problem.gram(factor) for factor in even)
        products = self.problem.products(even)
        loss = Sweeps(self.problem).loss(even, grams, products.mttkrp(0), 0)
        return NewtonPoint(even, grams, loss, products)

    def step(self, point: NewtonPoint) -> NewtonPoint:
        """One accepted step, or the same factors where no damping lowers the loss."""
        system = _System(point)
        damping, growth = point.damping, point.growth
        if damping < 0:
            damping = 1e-3 * system.scale
        for _ in range(_ATTEMPTS):
            move = system.solve(damping, self.max_inner)
            moved = system.factors + move
            trial = self._evaluate([moved[n, :, : f.shape[1]] for n, f in enumerate(point.factors)])
            # What the quadratic model of the loss promises for this move.
            predicted = damping * float(np.vdot(move, move)) - float(np.vdot(move, system.gradient))
            actual = point.loss - trial.loss
            if actual > 0:
                ratio = min(actual / max(predicted, 1e-300), 2.0)
                damping *= max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
                return replace(trial, damping=max(damping, 1e-15 * system.scale))
            damping *= growth
            growth *= 2.0
        # Bounded, so that further steps from a point that has converged stay finite.
        damping, growth = min(damping, _MOST_DAMPING * system.scale), min(growth, _MOST_DAMPING)
        return replace(point, damping=damping, growth=growth)


class _System:
    """The normal equations of all factors at one point."""

    def __init__(self, point: NewtonPoint) -> None:
        order = len(point.factors)
        width = max(factor.shape[1] for factor in point.factors)
        grams = np.array(point.grams)
        self.factors = _stack(point.factors, width)
        self.gamma = np.array([_product_of_others(grams, n) for n in range(order)])
        self.pairs = np.zeros((order, order, *grams.shape[1:]))
        for n in range(order):
            for m in range(n):
                self.pairs[n, m] = self.pairs[m, n] = _product_of_others(grams, n, m)
        mttkrps = _stack([point.products.mttkrp(n) for n in range(order)], width)
        self.gradient = self.gamma @ self.factors - mttkrps
        self.scale = float(np.mean(self.gamma.diagonal(axis1=1, axis2=2)))

    def multiply(self, x: Array, damping: float) -> Array:
        crossed = self.factors @ x.swapaxes(1, 2)
        mixed = np.einsum("nmij,mij->nij", self.pairs, crossed)
        product = self.gamma @ x
        product += mixed @ self.factors
        product += damping * x
        return product

    def solve(self, damping: float, max_inner: int) -> Array:
        """(J'J + damping) x = -gradient by preconditioned conjugate gradients."""
        inverse = np.linalg.inv(self.gamma + damping * np.eye(self.gamma.shape[1]))
        x = np.zeros_like(self.gradient)
        residual = -self.gradient
        direction = inverse @ residual
        energy = float(np.vdot(residual, direction))
        enough = _INNER_TOLERANCE**2 * float(np.vdot(residual, residual))
        for _ in range(max_inner):
            if energy <= 0.0:
                break
            product = self.multiply(direction, damping)
            length = energy / float(np.vdot(direction, product))
            x += length * direction
            residual -= length * product
            if np.vdot(residual, residual) <= enough:
                break
            conditioned = inverse @ residual
            fresh = float(np.vdot(residual, conditioned))
            direction *= fresh / energy
            direction += conditioned
            energy = fresh
        return x


def _stack(factors: Sequence[Array], width: int) -> Array:
    result = np.zeros((len(factors), factors[0].shape[0], width))
    for mode, factor in enumerate(factors):
        result[mode, :, : factor.shape[1]] = to_host(factor)
    return result


def _product_of_others(grams: Array, *modes: int) -> Array:
    kept = [gram for n, gram in enumerate(grams) if n not in modes]
    return np.prod(kept, axis=0) if kept else np.ones_like(grams[0])
