"""Views with independent features given the component, as a family of linear log densities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import LOG_TWO_PI
from latensor.refinement.linear_family import LinearFamily
from latensor.value_files import storable

_SMALLEST_WEIGHT = 1e-10
# Pseudo-counts of a symbol in every component: none that was not seen is impossible.
_PSEUDO_COUNT = 1e-3


@storable
@dataclass(frozen=True)
class ViewState:
    """Parameters of a mixture of views: weights (k,), means and variances per view (k, d_t).

    The means of a categorical view are probabilities p, its variances p (1 - p).
    """

    weights: Any
    means: list[Any]
    variances: list[Any]

    def permuted(self, order: Array) -> ViewState:
        """The components in another order."""
        return ViewState(
            self.weights[order],
            [each[order] for each in self.means],
            [each[order] for each in self.variances],
        )


@storable
@dataclass(frozen=True)
class ViewDensities:
    """Gaussian views (independent features) and categorical ones (counts of symbols).

    The features of a sample are, view by view, (y, y^2) with y = (x - centre) / scale, or the
    counts themselves, and a final 1.

    Attributes
    ----------
    kinds : "gaussian" or "categorical" per view
    centres, scales : (d_t,) per view
    floors : (d_t,) per view, added to Gaussian variances in standardized coordinates
    """

    kinds: tuple[str, ...]
    centres: tuple[Any, ...]
    scales: tuple[Any, ...]
    floors: tuple[Any, ...]

    @property
    def width(self) -> int:
        """The number of features, the last 1 included."""
        return 1 + sum(
            (2 if kind == "gaussian" else 1) * len(centre)
            for kind, centre in zip(self.kinds, self.centres, strict=True)
        )

    def features(self, views: Any) -> Array:
        """The features (n, m) of samples given view by view."""
        result, place = np.empty((views[0].shape[0], self.width)), 0
        for kind, centre, scale, view in zip(
            self.kinds, self.centres, self.scales, views, strict=True
        ):
            dense = view.toarray() if scipy.sparse.issparse(view) else np.asarray(view)
            width = len(centre)
            standard = result[:, place : place + width]
            if kind == "gaussian":
                np.subtract(dense, centre, out=standard)
                standard /= scale
                np.multiply(standard, standard, out=result[:, place + width : place + 2 * width])
                place += width
            else:
                standard[:] = dense
            place += width
        result[:, -1] = 1.0
        return result

    def natural(self, state: ViewState) -> Array:
        """The coefficients (m, k) of the joint log densities."""
        blocks, constants = [], np.log(state.weights)
        for t, kind in enumerate(self.kinds):
            if kind == "gaussian":
                means = (state.means[t] - self.centres[t]) / self.scales[t]
                variances = state.variances[t] / self.scales[t] ** 2
                precisions = 1 / variances
                blocks += [(means * precisions).T, -precisions.T / 2]
                constants = (
                    constants
                    - (np.log(variances) + means**2 * precisions).sum(axis=1) / 2
                    - np.log(self.scales[t]).sum()
                    - len(self.scales[t]) / 2 * LOG_TWO_PI
                )
            else:
                blocks.append(np.log(np.maximum(state.means[t], 1e-300)).T)
        return np.vstack([*blocks, constants])

    def maximize(self, sums: Array) -> ViewState:
        """The parameters that the sums (k, m) maximize."""
        counts = np.maximum(sums[:, -1], _SMALLEST_WEIGHT * sums[:, -1].sum())
        means, variances, place = [], [], 0
        for kind, centre, scale, floor in zip(
            self.kinds, self.centres, self.scales, self.floors, strict=True
        ):
            width = len(centre)
            if kind == "gaussian":
                inner = sums[:, place : place + width] / counts[:, None]
                second = sums[:, place + width : place + 2 * width] / counts[:, None]
                means.append(inner * scale + centre)
                variances.append((np.maximum(second - inner**2, 0.0) + floor) * scale**2)
                place += 2 * width
            else:
                totals = np.maximum(sums[:, place : place + width], 0.0) + _PSEUDO_COUNT
                probabilities = totals / totals.sum(axis=1, keepdims=True)
                means.append(probabilities)
                variances.append(probabilities * (1 - probabilities))
                place += width
        return ViewState(counts / counts.sum(), means, variances)

    def coordinates(self, state: ViewState) -> Array:
        """Logarithms of weights and variances, standardized means, 2 sqrt(p) of probabilities p.

        The root gives every probability the same sampling spread, also those near zero.
        """
        blocks = [np.log(state.weights)]
        for t, kind in enumerate(self.kinds):
            if kind == "gaussian":
                blocks.append(((state.means[t] - self.centres[t]) / self.scales[t]).ravel())
                blocks.append(np.log(state.variances[t] / self.scales[t] ** 2).ravel())
            else:
                blocks.append(2 * np.sqrt(state.means[t]).ravel())
        return np.concatenate(blocks)

    def from_coordinates(self, vector: Array, like: ViewState) -> ViewState:
        """The parameters of such a vector; variances stay within a factor of e^3 of `like`."""
        count = len(like.weights)
        logs, place = vector[:count], count
        weights = np.maximum(np.exp(logs - logs.max()), _SMALLEST_WEIGHT)
        means, variances = [], []
        for t, kind in enumerate(self.kinds):
            shape = like.means[t].shape
            size = shape[0] * shape[1]
            block = vector[place : place + size].reshape(shape)
            place += size
            if kind == "gaussian":
                means.append(block * self.scales[t] + self.centres[t])
                known = np.log(like.variances[t] / self.scales[t] ** 2)
                wanted = vector[place : place + size].reshape(shape)
                found = np.exp(np.clip(wanted, known - 3, known + 3))
                variances.append(np.maximum(found, self.floors[t]) * self.scales[t] ** 2)
                place += size
            else:
                squares = np.maximum(block, 0.0) ** 2
                probabilities = squares / squares.sum(axis=1, keepdims=True)
                means.append(probabilities)
                variances.append(probabilities * (1 - probabilities))
        return ViewState(weights / weights.sum(), means, variances)

    def distances(self) -> Array:
        """The columns of the features in which samples are compared."""
        columns, place = [], 0
        for kind, centre in zip(self.kinds, self.centres, strict=True):
            columns.append(np.arange(place, place + len(centre)))
            place += (2 if kind == "gaussian" else 1) * len(centre)
        return np.concatenate(columns)

    def starting(self, features: Array, weights: Array, centres: Array) -> ViewState:
        """A state in which the nearest of centres (k, columns of `distances`) owns each sample."""
        columns = self.distances()
        gaps = (centres**2).sum(axis=1) - 2 * features[:, columns] @ centres.T
        owned = np.zeros((len(features), len(centres)))
        owned[np.arange(len(features)), np.argmin(gaps, axis=1)] = weights
        return self.maximize(owned.T @ features)


@storable
@dataclass(frozen=True, eq=False)
class ViewFamily(LinearFamily[ViewState]):
    """The likelihood of views: all parts of a batch make up the features."""

    densities: ViewDensities

    def prepare(self, batch: Batch) -> Batch:
        return Batch((self.densities.features(batch.parts),), batch.weights, batch.keys)
