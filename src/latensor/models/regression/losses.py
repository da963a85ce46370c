"""What fitted values are compared with: squares, or the log-likelihood of classes.

A loss is a sum over rows, as a function of fitted values (m, q) and intercepts (e,).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logsumexp, softmax

from latensor.arrays import Array
from latensor.models.regression.weights import Linearized, LowRank

# Where a class is certain its curvature vanishes; Fisher scoring then makes steps without bound.
_CURVATURE_FLOOR = 1e-4


@dataclass(frozen=True, eq=False)
class SquaredLoss:
    """|y - f|^2 / 2 of centred targets: the intercept is exact without a parameter."""

    targets: Array
    rest: float = 0.0
    n_intercepts = 0

    @property
    def n_outputs(self) -> int:
        return int(self.targets.shape[1])

    def value(self, fitted: Array, intercepts: Array) -> float:
        """The loss at fitted values (m, q)."""
        return 0.5 * (float(((self.targets - fitted) ** 2).sum()) + self.rest)

    def residual(self, fitted: Array, intercepts: Array) -> Array:
        """Minus the derivatives by fitted values (m, q)."""
        return self.targets - fitted

    def normal(self, weights: LowRank, at: Linearized, intercepts: Array) -> tuple[Array, Array]:
        """The expected second derivatives (p + e, p + e) and minus the gradient (p + e,)."""
        return weights.normal(at, self.targets - at.fitted)


@dataclass(frozen=True, eq=False)
class ClassLoss:
    """Minus the log-likelihood of classes: logistic with one output, softmax with one per class.

    Attributes
    ----------
    labels : (m, q), 0 or 1; of two classes one column, of the second
    weights : (m,), of the rows
    has_intercept : bool
    """

    labels: Array
    weights: Array
    has_intercept: bool = True

    @property
    def n_outputs(self) -> int:
        return int(self.labels.shape[1])

    @property
    def n_intercepts(self) -> int:
        return self.n_outputs if self.has_intercept else 0

    def _shifted(self, fitted: Array, intercepts: Array) -> Array:
        return fitted + intercepts if self.has_intercept else fitted

    def probabilities(self, fitted: Array, intercepts: Array) -> Array:
        """(m, q), as `labels`."""
        logits = self._shifted(fitted, intercepts)
        return np.asarray(expit(logits) if logits.shape[1] == 1 else softmax(logits, axis=1))

    def value(self, fitted: Array, intercepts: Array) -> float:
        return self._lost(self._shifted(fitted, intercepts))

    def _lost(self, logits: Array) -> float:
        if logits.shape[1] == 1:
            each = np.logaddexp(0.0, logits[:, 0]) - self.labels[:, 0] * logits[:, 0]
        else:
            each = logsumexp(logits, axis=1) - (self.labels * logits).sum(axis=1)
        return float(self.weights @ each)

    def left_out(self, weights: LowRank, at: Linearized, intercepts: Array, root: Array) -> float:
        """The loss of every row, the weights updated for its removal by one Newton step.

        With A = J_i H^-1 J_i' and the curvature V and gradient r of row i, the fitted values
        without it are f - A (I - V A)^-1 r.

        Parameters
        ----------
        weights, at, intercepts : the optimum
        root : (p + e, r) with H^-1 = root root'
        """
        jacobian = self._with_intercepts(weights.jacobian(at)) @ root
        inner = jacobian @ jacobian.transpose(0, 2, 1)
        chances = self.probabilities(at.fitted, intercepts)
        q = chances.shape[1]
        if q == 1:
            curvature = (chances * (1 - chances))[:, :, None]
        else:
            curvature = chances[:, :, None] * np.eye(q) - chances[:, :, None] * chances[:, None, :]
        gradient = (self.labels - chances)[:, :, None]
        # A row that alone decides its own class has V A near one: it counts as fully missed there.
        left = np.eye(q) * (1 + 1e-6) - curvature @ inner
        moved = inner @ np.linalg.solve(left, gradient)
        return self._lost(self._shifted(at.fitted, intercepts) - moved[:, :, 0])

    def residual(self, fitted: Array, intercepts: Array) -> Array:
        return (self.labels - self.probabilities(fitted, intercepts)) * self.weights[:, None]

    def normal(self, weights: LowRank, at: Linearized, intercepts: Array) -> tuple[Array, Array]:
        chances = self.probabilities(at.fitted, intercepts)
        jacobian = self._with_intercepts(weights.jacobian(at))
        _, q, p = jacobian.shape
        right = jacobian.reshape(-1, p).T @ self.residual(at.fitted, intercepts).ravel()
        if q == 1:
            curvature = np.maximum(chances * (1 - chances), _CURVATURE_FLOOR)
        else:
            curvature = np.maximum(chances, _CURVATURE_FLOOR)
        roots = np.sqrt(curvature * self.weights[:, None])
        scaled = (jacobian * roots[:, :, None]).reshape(-1, p)
        gram = scaled.T @ scaled
        if q > 1:
            mean = np.einsum("nq,nqp->np", chances, jacobian) * np.sqrt(self.weights)[:, None]
            gram -= mean.T @ mean
        return gram, right

    def _with_intercepts(self, jacobian: Array) -> Array:
        if not self.has_intercept:
            return jacobian
        m, q, _ = jacobian.shape
        return np.concatenate([jacobian, np.broadcast_to(np.eye(q), (m, q, q))], axis=2)


Loss = SquaredLoss | ClassLoss
