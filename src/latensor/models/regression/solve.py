"""Weights of low rank that minimize a loss with a ridge: damped Newton steps on all blocks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from scipy.linalg import lapack

from latensor.arrays import Array
from latensor.models.regression.objective import Objective, Point
from latensor.models.regression.weights import LowRank
from latensor.refinement.em import Loop
from latensor.value_files import storable

W = TypeVar("W", bound=LowRank)

_DAMPING, _DAMPING_CHANGE, _MAX_TRIALS = 1e-3, 8.0, 12
# Damping is never below this: parameters that change no weight have no curvature, and a step along
# them is the rounding of the gradient, eps, divided by the damping. Below, the order in which rows
# are summed moved the loss by 2e-8 of itself.
_LEAST_DAMPING = float(np.finfo(float).eps) ** 0.5


@storable
@dataclass(frozen=True)
class Ridge:
    """lambda |W|^2, or lambda times the squares of all parameters ("factors").

    The second acts like a nuclear norm: it removes components that the data do not need.
    """

    strength: float
    penalty: str = "weights"

    def shared(self, weights: W) -> W:
        """The same weights, norms shared among the blocks as the penalty asks."""
        return weights.balanced() if self.penalty == "weights" else weights.smallest()

    def value(self, weights: LowRank) -> float:
        """Half of the penalty."""
        if self.penalty == "weights":
            return 0.5 * self.strength * weights.squared_norm()
        return 0.5 * self.strength * float((weights.pack() ** 2).sum())

    def gradient(self, weights: LowRank) -> Array:
        """Its gradient (p,)."""
        if self.penalty == "weights":
            return self.strength * weights.norm_gradient()
        return self.strength * weights.pack()

    def stiffen(self, gram: Array, weights: LowRank) -> None:
        """Adds its Gauss-Newton matrix to the first p rows and columns of another."""
        p = weights.n_parameters
        if self.penalty == "weights":
            gram[:p, :p] += self.strength * weights.metric()
        else:
            gram.flat[: p * len(gram) : len(gram) + 1] += self.strength


@storable
@dataclass(frozen=True, eq=False)
class Fitted(Generic[W]):
    """Where an optimization has ended.

    Attributes
    ----------
    weights : the parametrization at its optimum
    intercepts : (e,)
    point : Point, the loss and its derivatives there, without the penalty
    ridge : Ridge, whose kind decides how norms are shared among the blocks
    n_iter : int, Gauss-Newton steps
    converged : bool
    """

    weights: W
    intercepts: Array
    point: Point
    ridge: Ridge
    n_iter: int = 1  # where the start was the optimum, a step was computed and not taken
    converged: bool = False

    @property
    def loss(self) -> float:
        """Without the penalty."""
        return self.point.loss

    @property
    def normal(self) -> tuple[Array, Array]:
        """The expected curvature (p + e, p + e) of the loss and minus its gradient (p + e,)."""
        return self.point.normal

    @property
    def value(self) -> float:
        """The loss with the penalty."""
        return self.loss + self.ridge.value(self.weights)

    @property
    def penalized(self) -> tuple[Array, Array]:
        """The expected curvature and minus the gradient, with those of the penalty."""
        gram, right = (part.copy() for part in self.normal)
        self.ridge.stiffen(gram, self.weights)
        right[: self.weights.n_parameters] -= self.ridge.gradient(self.weights)
        return gram, right


def evaluated(
    objective: Objective, weights: W, ridge: Ridge, intercepts: Array | None = None
) -> Fitted[W]:
    """Weights as they are, norms shared as the penalty asks."""
    weights = ridge.shared(weights)
    b = np.zeros(objective.n_intercepts) if intercepts is None else intercepts
    return Fitted(weights, b, objective.at(weights, b), ridge)


@storable
@dataclass(frozen=True, eq=False)
class Descent(Generic[W]):
    """Where the steps of `minimize` have arrived.

    Attributes
    ----------
    fitted : Fitted
    damping : float, of the next step
    n_iter : int, steps taken
    converged : bool
    """

    fitted: Fitted[W]
    damping: float = _DAMPING
    n_iter: int = 0
    converged: bool = False


def minimize(
    objective: Objective,
    start: Fitted[W],
    *,
    max_iter: int = 100,
    tol: float = 1e-6,
    loop: Loop | None = None,
) -> Fitted[W]:
    """Levenberg-Marquardt on all blocks at once.

    Parameters
    ----------
    objective : Objective
    start : Fitted, with the ridge
    max_iter : int
    tol : float, relative decrease of the penalized loss below which it has converged
    loop : where the last step is kept, and taken up again
    """
    loop = loop or Loop()
    now: Descent[W] = loop.state or Descent(start)
    while not now.converged and now.n_iter < max_iter:
        now = _stepped(objective, now, tol)
        loop.commit(now)
    return replace(now.fitted, n_iter=max(now.n_iter, 1), converged=now.converged)


def _stepped(objective: Objective, before: Descent[W], tol: float) -> Descent[W]:
    """One step that does not raise the penalized loss, or the news that there is none to take."""
    now, damping, n_iter = before.fitted, before.damping, before.n_iter
    ridge, p, value = now.ridge, now.weights.n_parameters, now.value
    gram, right = now.penalized
    mean = float(np.trace(gram)) / len(gram) or 1.0
    theta = now.weights.pack()
    factor = None
    if ridge.penalty == "factors":
        # Newton's matrix where it has a minimum: Gauss and Newton's needs many steps where a
        # component vanishes. Of |W|^2 it hardly has one: some parameters change no weight.
        bent = gram.copy()
        bent[:p, :p] -= now.weights.bending(now.point.pull())
        shift = damping
        while shift <= _DAMPING and (factor := factored(bent, shift * mean)) is None:
            shift *= _DAMPING_CHANGE
        gram, damping = (gram, damping) if factor is None else (bent, shift)
    step = _solved(gram, right, damping * mean, factor)
    # What the quadratic model promises of a step that damping hardly shortens.
    promised = 0.5 * float(right @ step + damping * mean * (step @ step))
    small = tol * value + float(np.finfo(float).eps) * objective.null
    if damping <= _DAMPING and promised <= small:
        return replace(before, converged=True)
    for _ in range(_MAX_TRIALS):
        weights = now.weights.unpack(theta + step[:p])
        weights = ridge.shared(weights)
        b = now.intercepts + step[p:]
        there = Fitted(weights, b, objective.at(weights, b), ridge)
        trial = there.value
        if trial <= value:
            damping = max(damping / _DAMPING_CHANGE, _LEAST_DAMPING)
            return Descent(there, damping, n_iter + 1, value - trial <= small)
        damping *= _DAMPING_CHANGE
        step = _solved(gram, right, damping * mean)
    # No step decreases what rounding leaves of the loss.
    return replace(before, n_iter=n_iter + 1, converged=True)


def factored(gram: Array, shift: float) -> Array | None:
    """The lower Cholesky factor of gram + shift I, upper entries arbitrary; None without one."""
    shifted = gram.copy()
    shifted.flat[:: len(gram) + 1] += shift
    factor, info = lapack.dpotrf(shifted.T, lower=1, clean=0, overwrite_a=1)
    return None if info else factor


def _solved(gram: Array, right: Array, shift: float, factor: Array | None = None) -> Array:
    factor = factored(gram, shift) if factor is None else factor
    if factor is None:
        return np.linalg.lstsq(gram + shift * np.eye(len(gram)), right, rcond=None)[0]
    return np.asarray(lapack.dpotrs(factor, right, lower=1)[0])


def traced(factor: Array, gram: Array) -> float:
    """The trace of H^-1 G, of the Cholesky factor of H."""
    inverse = lapack.dpotri(factor, lower=1)[0]
    return float(2 * np.vdot(np.tril(inverse), gram) - np.diagonal(inverse) @ np.diagonal(gram))


def ridge_profile(gram: Array, right: Array, strengths: Array) -> tuple[Array, Array]:
    """What ridges of many strengths s fit: right' (G + s)^-1 (G + 2 s) (G + s)^-1 right, and
    the trace of G (G + s)^-1.

    G becomes tridiagonal once, by a quarter of the time of its eigenvectors (p = 200); then every
    strength takes a number of operations linear in p. Where rounding has made G + s indefinite,
    eigenvalues are clipped: some parameters change no weight.

    Parameters
    ----------
    gram : (p, p), positive semidefinite up to rounding; the lower triangle is read
    right : (p,)
    strengths : (k,)
    """
    p = len(gram)
    if p < 2:
        return _clipped_profile(gram, right, strengths)
    reflectors, diagonal, beside, tau, _ = lapack.dsytrd(gram, lower=1, lwork=64 * p)
    turned = right.copy()
    turned[1:] = lapack.dormqr("L", "T", reflectors[1:, :-1], tau, right[1:, None], 64 * p)[0][:, 0]
    pivots, ratios = np.empty((len(strengths), p)), np.empty((len(strengths), p - 1))
    fitted = np.empty(len(strengths))
    for k, strength in enumerate(strengths):
        pivots[k], ratios[k], found, info = lapack.dptsv(diagonal + strength, beside, turned)
        if info:
            return _clipped_profile(gram, right, strengths)
        fitted[k] = turned @ found + strength * (found @ found)
    # The trace of the inverse is the derivative of the logarithm of the determinant.
    change = np.ones((p, len(strengths)))
    squares = np.ascontiguousarray(ratios.T) ** 2
    for i in range(p - 1):
        change[i + 1] += squares[i] * change[i]
    return fitted, p - strengths * (change.T / pivots).sum(axis=1)


def _clipped_profile(gram: Array, right: Array, strengths: Array) -> tuple[Array, Array]:
    values, vectors = np.linalg.eigh(gram)
    values = np.maximum(values, 0.0)[:, None]
    squares = ((vectors.T @ right) ** 2)[:, None]
    least = float(np.finfo(float).eps) * float(values.max(initial=0.0)) or 1.0
    shifted = np.maximum(values + strengths, least)
    fitted = (squares * (values + 2 * strengths) / shifted**2).sum(axis=0)
    return fitted, (values / shifted).sum(axis=0)
