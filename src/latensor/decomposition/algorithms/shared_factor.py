"""CP of a symmetric tensor with one factor that all modes share, for any rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, is_numpy, to_host
from latensor.decomposition.algorithms.symmetric import (
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.auto.automatic import Automatic
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.solves import pseudo_inverse
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import as_cp, as_problem, check_limits, refuse_rank
from latensor.tensors.cp import CPTensor

_ATTEMPTS = 8
_INNER_TOLERANCE = 1e-2
_TRIAL_TOL = 1e-6
_TRIAL_STEPS = 100
# Relative loss that no local minimum reaches, and relative distance of equal minima.
_EXACT = 1e-18
_AGREEMENT = 1e-4


@dataclass(frozen=True)
class SharedFactor:
    """Fit sum_j w_j a_j^(x)p to a symmetric tensor of order p >= 3, of any rank, signs included.

    Another algorithm fits the tensor with free factors; its components, made equal in all modes,
    start Levenberg-Marquardt steps on the one factor that is left. What `lt.decompose` runs for
    `symmetric=True`.

    Parameters
    ----------
    start : algorithm that gives the first fit; `algorithm="auto"` where None
    n_restarts : int, for ranks above the dimension, where free fits often stick: random starts of
        the one factor, the best of which goes on; they end early when two of them agree
    max_inner : int, conjugate-gradient steps per Levenberg-Marquardt step
    tol : float, stop when the squared residual falls by less than this share, twice in a row
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, Levenberg-Marquardt steps
    """

    start: Any = None
    n_restarts: int = 20
    max_inner: int = 100
    tol: float = 1e-9
    target: float | None = None
    max_iter: int = 100

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
        *,
        init: object = None,
    ) -> Decomposition:
        """Decompose a symmetric tensor; see `latensor.decompose` for the arguments."""
        rank = refuse_rank(rank)
        data = symmetric_tensor(tensor, "symmetric=True")
        order = len(data.shape)
        problem = as_problem(data)
        if init is None:
            free = (self.start or Automatic())(data, rank, rng).tensor
        else:
            free = as_cp(init, data.shape, rank)
        steps = SharedSteps(problem, self.max_inner)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)

        def assemble(point: SharedPoint) -> CPTensor:
            lengths = np.linalg.norm(point.rows, axis=1)
            units = point.rows / np.where(lengths > 0, lengths, 1.0)[:, None]
            return symmetric_cp(data.reference, point.signs * lengths**order, units.T, order)

        floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
        rule = StoppingRule(self.tol, self.max_iter, 2, floor)
        begin = steps.start(shared_directions(free.factors))
        if init is None and rank > data.shape[0]:
            begin = self._best_start(steps, begin, rng, floor)
        point, status = iterate(steps.step, begin, rule, monitor, assemble)
        model = assemble(point)
        history = np.array(monitor.history)
        residual = relative_residual(data, model)
        return Decomposition(model, residual, len(history), status, history)

    def _best_start(
        self, steps: SharedSteps, point: SharedPoint, rng: np.random.Generator, floor: float
    ) -> SharedPoint:
        rule = StoppingRule(_TRIAL_TOL, _TRIAL_STEPS, 2, floor)
        best = iterate(steps.step, point, rule)[0]
        for _ in range(self.n_restarts):
            if best.loss <= max(floor, _EXACT * steps.problem.squared_norm):
                break
            start = rng.standard_normal(best.rows.shape)
            start /= np.linalg.norm(start, axis=1, keepdims=True)
            other = iterate(steps.step, steps.start(start), rule)[0]
            agree = abs(other.loss - best.loss) <= _AGREEMENT * best.loss
            best = min(best, other, key=lambda p: p.loss)
            if agree:
                break
        return best


def shared_directions(factors: Sequence[Array]) -> Array:
    """(rank, d) unit rows: for each component the direction that its vectors of all modes share.

    The leading singular vector of the vectors side by side, whatever their signs.
    """
    rows = np.stack([np.asarray(to_host(f), dtype=np.float64).T for f in factors], axis=1)
    lengths = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = rows / np.where(lengths > 0, lengths, 1.0)
    _, _, right = np.linalg.svd(rows, full_matrices=False)
    return np.ascontiguousarray(right[:, 0, :])


@dataclass(frozen=True)
class SharedPoint:
    """Rows x_j (rank, d), the signs of their components, the loss and the next damping."""

    rows: Array
    signs: Array
    loss: float
    images: Array
    damping: float = -1.0
    growth: float = 2.0


@dataclass(frozen=True)
class SharedSteps:
    """Levenberg-Marquardt steps on the one factor of sum_j s_j x_j^(x)p.

    With g = x_i'x_j, J'J x = p (s_i s_j g^(p-1)) x + p (p-1) (s_i s_j g^(p-2) o (X x')) X in rows;
    the gradient is p times the same first matrix times X minus s_j T(I, x_j, ..., x_j).
    """

    problem: Problem
    max_inner: int = 100

    def start(self, directions: Array) -> SharedPoint:
        """Unit rows scaled to the best weights for them."""
        order = len(self.problem.shape)
        gram = (directions @ directions.T) ** order
        images = self._images(directions)
        weights = pseudo_inverse(gram) @ np.einsum("ij,ij->i", images, directions)
        rows = directions * (np.abs(weights) ** (1.0 / order))[:, None]
        return self._evaluate(rows, np.where(weights < 0, -1.0, 1.0))

    def _images(self, rows: Array) -> Array:
        image = self.problem.products([rows] * len(self.problem.shape)).mttkrp(0)
        return image if is_numpy(image) else np.asarray(to_host(image), dtype=np.float64)

    def _evaluate(self, rows: Array, signs: Array) -> SharedPoint:
        order = len(self.problem.shape)
        images = self._images(rows)
        total = self.problem.squared_norm
        model = (rows @ rows.T) ** order * np.outer(signs, signs)
        inner = float(signs @ np.einsum("ij,ij->i", images, rows))
        loss = total - 2.0 * inner + float(model.sum())
        if loss < 1e-9 * total:
            factors = [
                self.problem.native(f) for f in (rows * signs[:, None], *[rows] * (order - 1))
            ]
            explicit = self.problem.explicit_loss(factors)
            loss = max(loss, 0.0) if explicit is None else explicit
        return SharedPoint(rows, signs, loss, images)

    def step(self, point: SharedPoint) -> SharedPoint:
        """One accepted step, or the same rows where no damping lowers the loss."""
        order = len(self.problem.shape)
        rows, signs = point.rows, point.signs
        gram = rows @ rows.T
        pairs = np.outer(signs, signs)
        outer = pairs * gram ** (order - 1)
        inner = (order - 1) * pairs * gram ** (order - 2)
        gradient = outer @ rows - signs[:, None] * point.images
        scale = float(np.mean(np.abs(outer.diagonal())))
        damping = 1e-3 * scale if point.damping < 0 else point.damping
        growth = point.growth
        if not gradient.any():
            return point
        for _ in range(_ATTEMPTS):
            move = self._solve(rows, outer, inner, gradient, damping)
            trial = self._evaluate(rows + move, signs)
            predicted = damping * float(np.vdot(move, move)) - float(np.vdot(move, gradient))
            actual = point.loss - trial.loss
            if actual > 0:
                ratio = min(actual / max(order * predicted, 1e-300), 2.0)
                damping *= max(1.0 / 3.0, 1.0 - (2.0 * ratio - 1.0) ** 3)
                return replace(trial, damping=max(damping, 1e-15 * scale))
            damping *= growth
            growth *= 2.0
        return replace(point, damping=damping, growth=growth)

    def _solve(
        self, rows: Array, outer: Array, inner: Array, gradient: Array, damping: float
    ) -> Array:
        """Conjugate gradients on (J'J / p + damping) x = -gradient / p."""
        block = np.linalg.inv(outer + damping * np.eye(len(outer)))
        x = np.zeros_like(gradient)
        residual = -gradient
        direction = block @ residual
        energy = float(np.vdot(residual, direction))
        enough = _INNER_TOLERANCE**2 * float(np.vdot(residual, residual))
        for _ in range(self.max_inner):
            if energy <= 0.0:
                break
            product = outer @ direction + (inner * (rows @ direction.T)) @ rows
            product += damping * direction
            curvature = float(np.vdot(direction, product))
            if curvature <= 0.0:
                break
            x += (energy / curvature) * direction
            residual -= (energy / curvature) * product
            if np.vdot(residual, residual) <= enough:
                break
            conditioned = block @ residual
            fresh = float(np.vdot(residual, conditioned))
            direction = conditioned + (fresh / energy) * direction
            energy = fresh
        return x
