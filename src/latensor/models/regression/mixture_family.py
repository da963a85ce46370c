"""Mixtures of regressions as a family for EM: several lines, planes or curves through one cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit, gammaln

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.family import Family
from latensor.refinement.responsibilities import normalize_rows
from latensor.value_files import storable

# The largest linear predictor whose exponential is used: counts beyond 1e13 are no data.
_LARGEST = 30.0
# Ridge on the coefficients of a logistic or Poisson component, in standardized units: separable
# components have no finite optimum.
_RIDGE = 1e-6
LINKS = ("identity", "logit", "log")


@storable
@dataclass(frozen=True)
class RegressionMixtureState:
    """Components in standardized features z = (1, scaled x).

    Attributes
    ----------
    weights : (k,)
    coefficients : (k, p), the intercept first
    variances : (k,), of the noise; 1 where the link has none
    """

    weights: Any
    coefficients: Any
    variances: Any


@storable
@dataclass(frozen=True, eq=False)
class RegressionMixtureFamily(Family[RegressionMixtureState]):
    """y given x is Gaussian, Bernoulli or Poisson around one of k linear predictors.

    The maximization is weighted least squares; for "logit" and "log" one step of Newton's method
    on the complete likelihood, which is what the sums hold then.

    Attributes
    ----------
    center : (d,), of the features
    whitener : (d, p - 1), z = (x - center) @ whitener
    link : "identity", "logit" or "log"
    floor : float, the least variance of the noise, of the scaled target
    target : (2,), y is scaled to (y - target[0]) / target[1] for "identity"
    """

    center: Any
    whitener: Any
    link: str
    floor: float
    target: Any
    first_stretch: ClassVar[float] = 4.0

    def prepare(self, batch: Batch) -> Batch:
        rows = np.asarray(batch.parts[0], dtype=np.float64)
        y = np.asarray(batch.parts[1], dtype=np.float64).reshape(len(rows))
        if self.link == "identity":
            y = (y - self.target[0]) / self.target[1]
        z = np.column_stack([np.ones(len(rows)), (rows - self.center) @ self.whitener])
        return Batch((z, y), batch.weights, batch.keys)

    def log_density(self, state: RegressionMixtureState, prepared: Batch) -> Array:
        z, y = prepared.parts
        eta = z @ state.coefficients.T
        logs: Array
        if self.link == "identity":
            logs = -0.5 * ((y[:, None] - eta) ** 2 / state.variances)
            logs -= 0.5 * np.log(2 * np.pi * state.variances * self.target[1] ** 2)
        elif self.link == "logit":
            logs = y[:, None] * eta - np.logaddexp(0, eta)
        else:
            eta = np.minimum(eta, _LARGEST)
            logs = y[:, None] * eta - np.exp(eta) - gammaln(y + 1)[:, None]
        return np.asarray(logs + np.log(state.weights))

    def means(self, eta: Array) -> Array:
        """The mean of y at linear predictors, in the units of the caller."""
        if self.link == "identity":
            return np.asarray(self.target[0] + self.target[1] * eta)
        return np.asarray(expit(eta) if self.link == "logit" else np.exp(np.minimum(eta, _LARGEST)))

    def expect(self, state: RegressionMixtureState, prepared: Batch) -> dict[str, Any]:
        z, y = prepared.parts
        fractions = np.ascontiguousarray(self.log_density(state, prepared))
        total = float(prepared.weights @ normalize_rows(fractions, prepared.weights))
        k, p = state.coefficients.shape
        sums: dict[str, Any] = {
            "counts": fractions.sum(axis=0),
            "log_likelihood": total,
            "weight": prepared.weight,
        }
        if self.link == "identity":
            sums["cross"] = fractions.T @ (z * y[:, None])
            sums["squares"] = fractions.T @ y**2
            curvature = fractions
        else:
            means = self.means(z @ state.coefficients.T)
            slopes = means * (1 - means) if self.link == "logit" else means
            # Newton's step solves H b = H b0 + gradient.
            sums["cross"] = (fractions * (y[:, None] - means)).T @ z
            curvature = fractions * slopes
        grams = np.empty((k, p, p))
        for j in range(k):
            grams[j] = (z * curvature[:, j, None]).T @ z
        if self.link != "identity":
            sums["cross"] = sums["cross"] + np.einsum("jpq,jq->jp", grams, state.coefficients)
        return {**sums, "grams": grams}

    def maximize(
        self, sums: dict[str, Any], state: RegressionMixtureState
    ) -> RegressionMixtureState:
        counts = np.maximum(sums["counts"], 0.0)
        total = max(float(counts.sum()), 1e-300)
        k, p = state.coefficients.shape
        coefficients, variances = state.coefficients.copy(), np.asarray(state.variances).copy()
        ridge = _RIDGE if self.link != "identity" else 1e-10
        for j in range(k):
            if counts[j] < 1e-6:
                continue
            gram = sums["grams"][j] + ridge * max(counts[j], 1.0) * np.eye(p)
            try:
                found = np.linalg.solve(gram, sums["cross"][j])
            except np.linalg.LinAlgError:
                continue
            if not np.isfinite(found).all():
                continue
            if self.link == "identity":
                left = (
                    sums["squares"][j]
                    - 2 * found @ sums["cross"][j]
                    + found @ sums["grams"][j] @ found
                )
                variances[j] = max(left / counts[j], self.floor)
            else:
                # Far from the optimum a whole step of Newton's method can overshoot.
                step = found - coefficients[j]
                found = coefficients[j] + step * min(1.0, 4.0 / max(np.abs(step).max(), 1e-300))
            coefficients[j] = found
        weights = np.maximum(counts / total, 1e-10)
        return RegressionMixtureState(weights / weights.sum(), coefficients, variances)

    def complete(self, sums: dict[str, Any], state: RegressionMixtureState) -> float:
        b = state.coefficients
        quadratic = np.einsum("jp,jpq,jq->j", b, sums["grams"], b)
        quadratic -= 2 * np.einsum("jp,jp->j", b, sums["cross"])
        # Of the other links the second-order expansion at the state of the sums, up to a constant.
        each = -0.5 * quadratic
        if self.link == "identity":
            logs = np.log(2 * np.pi * state.variances * self.target[1] ** 2)
            each = (each - 0.5 * sums["squares"]) / state.variances - 0.5 * sums["counts"] * logs
        return float((each + sums["counts"] * np.log(state.weights)).sum())

    def pack(self, state: RegressionMixtureState) -> Array:
        return np.concatenate(
            [np.log(state.weights), state.coefficients.ravel(), 0.5 * np.log(state.variances)]
        )

    def unpack(self, vector: Array, like: RegressionMixtureState) -> RegressionMixtureState:
        k, p = like.coefficients.shape
        weights = np.exp(vector[:k] - vector[:k].max())
        variances = np.maximum(np.exp(2 * vector[k + k * p :]), self.floor)
        return RegressionMixtureState(
            weights / weights.sum(), vector[k : k + k * p].reshape(k, p), variances
        )
