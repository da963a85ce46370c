"""Views with independent features given the component, as a family for the polish."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.refinement.exponential_family import Design, climb, expect, held

_LOG_TWO_PI = float(np.log(2 * np.pi))
_SMALLEST_WEIGHT = 1e-10
_STEPS = 15


@dataclass(frozen=True)
class ViewState:
    """Parameters of a mixture of views: weights (k,), means and variances per view (k, d_t).

    The means of a categorical view are probabilities; its variances are not used.
    """

    weights: Any
    means: list[Any]
    variances: list[Any]


@dataclass(frozen=True)
class ViewFamily:
    """Gaussian views (independent features) and categorical ones (counts of symbols).

    The features of a sample are, view by view, (y, y^2) with y = (x - center) / scale, or the
    counts themselves, and a final 1.

    Attributes
    ----------
    kinds : "gaussian" or "categorical" per view
    centers, scales : (d_t,) per view
    floors : (d_t,) per view, added to Gaussian variances in standardized coordinates
    smoothing : float, pseudo-counts of a symbol in every component
    """

    kinds: tuple[str, ...]
    centers: tuple[Any, ...]
    scales: tuple[Any, ...]
    floors: tuple[Any, ...]
    smoothing: float

    def features(self, views: list[Any]) -> Any:
        """The features (n, m) of samples given view by view."""
        columns = []
        for kind, center, scale, view in zip(
            self.kinds, self.centers, self.scales, views, strict=True
        ):
            dense = view.toarray() if scipy.sparse.issparse(view) else np.asarray(view)
            if kind == "gaussian":
                standard = (dense - center) / scale
                columns += [standard, standard**2]
            else:
                columns.append(dense.astype(np.float64))
        columns.append(np.ones((columns[0].shape[0], 1)))
        return np.hstack(columns)

    def design(self, views: list[Any], weights: Any, hold: bool) -> Design:
        """The samples as this family sees them; `hold` keeps the features."""
        if hold:
            return held(self.features(views), weights)
        numbers = np.empty(0) if weights is None else np.asarray(weights, dtype=np.float64)
        return Design(
            views[0].shape[0],
            lambda a, b: self.features([view[a:b] for view in views]),
            numbers,
        )

    def natural(self, state: ViewState) -> Any:
        """The coefficients (m, k) of the joint log densities."""
        blocks, constants = [], np.log(state.weights)
        for t, kind in enumerate(self.kinds):
            if kind == "gaussian":
                means = (state.means[t] - self.centers[t]) / self.scales[t]
                variances = state.variances[t] / self.scales[t] ** 2
                precisions = 1 / variances
                blocks += [(means * precisions).T, -precisions.T / 2]
                constants = (
                    constants
                    - (np.log(variances) + means**2 * precisions).sum(axis=1) / 2
                    - np.log(self.scales[t]).sum()
                    - len(self.scales[t]) / 2 * _LOG_TWO_PI
                )
            else:
                blocks.append(np.log(np.maximum(state.means[t], 1e-300)).T)
        return np.vstack([*blocks, constants])

    def maximize(self, sums: Any) -> ViewState:
        """The parameters that the sums (k, m) maximize."""
        counts = np.maximum(sums[:, -1], _SMALLEST_WEIGHT * sums[:, -1].sum())
        means, variances, place = [], [], 0
        for kind, center, scale, floor in zip(
            self.kinds, self.centers, self.scales, self.floors, strict=True
        ):
            width = len(center)
            if kind == "gaussian":
                inner = sums[:, place : place + width] / counts[:, None]
                second = sums[:, place + width : place + 2 * width] / counts[:, None]
                means.append(inner * scale + center)
                variances.append((np.maximum(second - inner**2, 0.0) + floor) * scale**2)
                place += 2 * width
            else:
                totals = np.maximum(sums[:, place : place + width], 0.0) + self.smoothing
                shares = totals / totals.sum(axis=1, keepdims=True)
                means.append(shares)
                variances.append(shares * (1 - shares))
                place += width
        return ViewState(counts / counts.sum(), means, variances)

    def coordinates(self, state: ViewState) -> Any:
        """The natural parameters as one vector."""
        return self.natural(state).ravel()

    def from_coordinates(self, vector: Any, like: ViewState) -> ViewState:
        """The parameters of such a vector, if they are any: probabilities and variances valid."""
        natural = vector.reshape(-1, len(like.weights))
        means, variances, place = [], [], 0
        for t, kind in enumerate(self.kinds):
            width = len(self.centers[t])
            block = natural[place : place + width].T
            if kind == "gaussian":
                known = 1 / (like.variances[t] / self.scales[t] ** 2)
                raw = -2 * natural[place + width : place + 2 * width].T
                precisions = np.clip(raw, known / 20, known * 20)
                means.append(block / precisions * self.scales[t] + self.centers[t])
                variances.append(np.maximum(1 / precisions, self.floors[t]) * self.scales[t] ** 2)
                place += 2 * width
            else:
                shares = np.exp(block - block.max(axis=1, keepdims=True))
                shares = np.maximum(shares / shares.sum(axis=1, keepdims=True), 1e-300)
                means.append(shares)
                variances.append(shares * (1 - shares))
                place += width
        # Weights are hidden in the constants with all else; those of the last step serve.
        return ViewState(like.weights, means, variances)

    def distances(self) -> Any:
        """The columns of the features in which samples are compared."""
        columns, place = [], 0
        for kind, center in zip(self.kinds, self.centers, strict=True):
            columns.append(np.arange(place, place + len(center)))
            place += (2 if kind == "gaussian" else 1) * len(center)
        return np.concatenate(columns)


@dataclass(frozen=True)
class ViewSearch:
    """The best of several starts.

    Attributes
    ----------
    state : ViewState
    log_likelihood : float, per sample
    start : str, "moments" or "k-means++"
    """

    state: ViewState
    log_likelihood: float
    start: str


def search_views(
    design: Design,
    family: ViewFamily,
    starts: list[ViewState],
    centers: list[Any],
    n_threads: int = 1,
) -> ViewSearch:
    """The best state after a few steps, of those given and those around centers (k, columns).

    Parameters
    ----------
    design : features that are held
    family : what a mixture is
    starts : states read off moments, possibly none
    centers : rows in the columns of `family.distances`, one set per restart
    n_threads : int, changes nothing but the time
    """
    rows = design.block(0, design.n_rows)
    weights = design.weights if len(design.weights) else np.ones(design.n_rows)
    columns = family.distances()
    named = [("moments", state) for state in starts]
    for chosen in centers:
        gaps = (chosen**2).sum(axis=1) - 2 * rows[:, columns] @ chosen.T
        owners = np.argmin(gaps, axis=1)
        owned = np.zeros((len(rows), len(chosen)))
        owned[np.arange(len(rows)), owners] = weights
        named.append(("k-means++", family.maximize(owned.T @ rows)))
    best: ViewSearch | None = None
    for name, state in named:
        found = climb(design, family, state, max_iter=_STEPS, accelerate=False, n_threads=n_threads)
        value = expect(design, family.natural(found.state), n_threads)[1]
        if best is None or value > best.log_likelihood:
            best = ViewSearch(found.state, value, name)
    assert best is not None
    return best
