"""The likelihood of a network with one hidden layer, and its gradient as sums over rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logsumexp

from latensor.arrays import Array
from latensor.models.networks.activations import ACTIVATIONS
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.value_files import storable


@storable
@dataclass(frozen=True, eq=False)
class NetworkState:
    """y = output f(hidden z + bias) + constant.

    Attributes
    ----------
    hidden : (k, r)
    bias : (k,)
    output : (q, k)
    constant : (q,)
    """

    hidden: Any
    bias: Any
    output: Any
    constant: Any

    def permuted(self, order: Any) -> NetworkState:
        """With the hidden units in another order."""
        return NetworkState(
            self.hidden[order], self.bias[order], self.output[:, order], self.constant
        )

    def flipped(self, signs: Any) -> NetworkState:
        """With the signs of the inputs of hidden units changed."""
        return NetworkState(
            self.hidden * signs[:, None], self.bias * signs, self.output, self.constant
        )


@storable
@dataclass(frozen=True, eq=False)
class NetworkFamily(Family[NetworkState]):
    """Squared errors of standardized targets, or the log loss of classes, of whitened rows.

    Statistics are the log-likelihood and its gradient. `maximize` is a step along the gradient:
    what resampled statistics move the optimum by follows from it and its derivative, as for EM.

    Attributes
    ----------
    centre, whitener : (d,), (d, r), z = (x - centre) @ whitener
    target : (2, q), means and standard deviations of the targets
    activation : str
    loss : "squared" or "log"
    alpha : float, strength of the ridge |hidden|^2 + |output|^2
    """

    centre: Any
    whitener: Any
    target: Any
    activation: str
    loss: str
    alpha: float

    def prepare(self, batch: Batch) -> Batch:
        rows = (np.asarray(batch.parts[0], dtype=np.float64) - self.centre) @ self.whitener
        targets = (np.asarray(batch.parts[1], dtype=np.float64) - self.target[0]) / self.target[1]
        return Batch((rows, targets), batch.weights, batch.keys)

    def outputs(self, state: NetworkState, rows: Array) -> Array:
        """(n, q) of whitened rows."""
        active = ACTIVATIONS[self.activation].value(rows @ state.hidden.T + state.bias)
        return np.asarray(active @ state.output.T + state.constant)

    def expect(self, state: NetworkState, prepared: Batch) -> dict[str, Any]:
        rows, targets = prepared.parts
        kind = ACTIVATIONS[self.activation]
        inputs = rows @ state.hidden.T + state.bias
        active = kind.value(inputs)
        found = active @ state.output.T + state.constant
        weights = prepared.weights[:, None]
        if self.loss == "squared":
            errors = found - targets
            lost = 0.5 * float((weights * errors**2).sum())
        else:
            errors, lost = log_loss(found, targets, prepared.weights)
        errors = errors * weights
        back = (errors @ state.output) * kind.derivative(inputs, active)
        gradient = (back.T @ rows, back.sum(axis=0), errors.T @ active, errors.sum(axis=0))
        return {
            "log_likelihood": -lost,
            "weight": prepared.weight,
            "gradient": -np.concatenate([part.ravel() for part in gradient]),
        }

    def log_prior(self, state: NetworkState) -> float:
        return -0.5 * self.alpha * float((state.hidden**2).sum() + (state.output**2).sum())

    def prior_gradient(self, state: NetworkState) -> Array:
        """(p,) that of `log_prior`."""
        zero = [np.zeros_like(state.bias), np.zeros_like(state.constant)]
        parts = (state.hidden, zero[0], state.output, zero[1])
        return np.asarray(-self.alpha * np.concatenate([part.ravel() for part in parts]))

    def maximize(self, sums: dict[str, Any], state: NetworkState) -> NetworkState:
        gradient = sums["gradient"] + self.prior_gradient(state)
        return self.unpack(self.pack(state) + gradient / sums["weight"], state)

    def pack(self, state: NetworkState) -> Array:
        parts = (state.hidden, state.bias, state.output, state.constant)
        return np.concatenate([part.ravel() for part in parts])

    def unpack(self, vector: Array, like: NetworkState) -> NetworkState:
        k, r = like.hidden.shape
        q = len(like.constant)
        edges = np.cumsum([k * r, k, q * k])
        hidden, bias, output, constant = np.split(vector, edges)
        return NetworkState(hidden.reshape(k, r), bias, output.reshape(q, k), constant)


def log_loss(logits: Array, indicators: Array, weights: Array) -> tuple[Array, float]:
    """Derivatives (n, q) of the log loss, and its weighted sum; one logit for two classes."""
    if logits.shape[1] == 1:
        lost = np.logaddexp(0.0, logits[:, 0]) - indicators[:, 0] * logits[:, 0]
        return expit(logits) - indicators, float(weights @ lost)
    total = logsumexp(logits, axis=1, keepdims=True)
    lost = total[:, 0] - (indicators * logits).sum(axis=1)
    return np.exp(logits - total) - indicators, float(weights @ lost)
