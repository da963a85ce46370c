"""Levenberg-Marquardt for symmetric tensors: the finish of an algebraic solution.

A real symmetric core T is fitted by sum_j s_j x_j^(x)p with signs s_j = 1 or -1. With g = x_i'x_j,
the blocks of J'J are p s_i s_j (g^(p-1) I + (p-1) g^(p-2) x_j x_i'), so that the normal equations
need no entry of T; the gradient needs one contraction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from latensor.decomposition.optimize.iteration import CONVERGED_PROMISE
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt, SharedRows
from latensor.decomposition.optimize.problem import DenseProblem

_ATTEMPTS = 8


@dataclass(frozen=True)
class SymmetricPoint:
    """Vectors x_j as columns (k, rank), their signs, and the squared residual."""

    vectors: Any
    signs: Any
    loss: float
    damping: float = 1e-4


@dataclass(frozen=True)
class SymmetricCore:
    """A small dense real symmetric tensor (k, ..., k) to be fitted."""

    array: Any

    @property
    def order(self) -> int:
        """The number of modes."""
        return int(self.array.ndim)

    def images(self, vectors: Any) -> Any:
        """T(I, x_j, ..., x_j) as columns (k, rank)."""
        image = self.array.reshape(-1, vectors.shape[0]) @ vectors
        for _ in range(self.order - 2):
            image = image.reshape(-1, *vectors.shape)
            image = np.einsum("aij,ij->aj", image, vectors)
        return image

    def point(self, directions: Any) -> SymmetricPoint:
        """Directions (k, rank) scaled to the best weights for them."""
        directions = directions / np.maximum(np.linalg.norm(directions, axis=0), 1e-300)
        weights = self.weights(directions)
        vectors = directions * np.abs(weights) ** (1.0 / self.order)
        signs = np.where(weights < 0, -1.0, 1.0)
        return SymmetricPoint(vectors, signs, self.loss(vectors, signs))

    def weights(self, directions: Any) -> Any:
        """The least-squares weights of sum_j w_j x_j^(x)p for given directions."""
        gram = (directions.T @ directions) ** self.order
        right = np.einsum("ij,ij->j", directions, self.images(directions))
        return np.linalg.lstsq(gram, right, rcond=1e-13)[0]

    def loss(self, vectors: Any, signs: Any) -> float:
        """The squared residual, entry by entry."""
        left = model = vectors.T * signs[:, None]
        for _ in range(self.order - 2):
            left = (left[:, :, None] * vectors.T[:, None, :]).reshape(model.shape[0], -1)
        rest = self.array.reshape(-1, vectors.shape[0]) - left.T @ vectors.T
        return float(np.vdot(rest, rest))

    def normal_equations(self, point: SymmetricPoint) -> tuple[Any, Any]:
        """J'J and the gradient J'r, both over the order, for x_1, x_2, ... one after the other."""
        vectors, order = point.vectors, self.order
        size, rank = vectors.shape
        gram = vectors.T @ vectors
        pairs = np.outer(point.signs, point.signs)
        outer = pairs * gram ** (order - 1)
        inner = (order - 1) * pairs * gram ** (order - 2)
        normal = np.einsum("ij,ab->iajb", outer, np.eye(size))
        normal += np.einsum("ij,aj,bi->iajb", inner, vectors, vectors)
        gradient = vectors @ outer - self.images(vectors) * point.signs
        return normal.reshape(rank * size, rank * size), gradient.T.reshape(-1)

    def converged(self, point: SymmetricPoint, tol: float, base: float, floor: float) -> bool:
        """Whether nothing is left to gain at a point, by the quadratic model without damping."""
        model = SharedRows(DenseProblem(self.array), point.signs)
        steps = LevenbergMarquardt(model, CONVERGED_PROMISE * tol, base, floor)
        return steps.converged(steps.start(np.ascontiguousarray(point.vectors.T)))

    def step(self, point: SymmetricPoint) -> SymmetricPoint:
        """One accepted Levenberg-Marquardt step, or the same vectors where none lowers the loss."""
        vectors, signs = point.vectors, point.signs
        size, rank = vectors.shape
        normal, gradient = self.normal_equations(point)
        diagonal = np.maximum(normal.diagonal(), 1e-300)
        damping = point.damping
        for _ in range(_ATTEMPTS):
            damped = normal + np.diag(damping * diagonal)
            try:
                move = scipy.linalg.solve(damped, -gradient, assume_a="pos", check_finite=False)
            except np.linalg.LinAlgError:
                damping = max(10.0 * damping, 1e-10)
                continue
            moved = vectors + move.reshape(rank, size).T
            loss = self.loss(moved, signs)
            if loss < point.loss:
                return SymmetricPoint(moved, signs, loss, max(0.1 * damping, 1e-14))
            damping *= 10.0
        return replace(point, damping=damping)
