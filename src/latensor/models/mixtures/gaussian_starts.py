"""Starting values of Gaussian mixtures: given ones, simple ones, moments, and missing entries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.moments.batch import Batch
from latensor.moments.third import ThirdMoment
from latensor.refinement.families.covariances import FULL, as_matrices
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.families.gaussian_densities import MixtureState
from latensor.refinement.mixture_moves import passes
from latensor.refinement.mixture_starts import (
    Coordinates,
    by_labels,
    from_responsibilities,
    kmeans,
    merge_down,
    overfit,
)

# Passes of EM for the one Gaussian by which unobserved entries are imputed.
_PASSES_TO_IMPUTE = 15
# Passes of Lloyd's algorithm.
_LLOYD = 100


@dataclass(frozen=True, eq=False)
class GivenParts:
    """Starting values in the units of the features, None where none are given.

    Attributes
    ----------
    weights : (k,)
    means : (k, d)
    covariances : in the shape of the covariance type
    """

    weights: Any = None
    means: Any = None
    covariances: Any = None

    def __bool__(self) -> bool:
        return any(part is not None for part in (self.weights, self.means, self.covariances))

    @property
    def is_whole(self) -> bool:
        """Whether no part is left to be found."""
        return all(part is not None for part in (self.weights, self.means, self.covariances))

    def applied(self, family: GaussianFamily, state: MixtureState | None) -> MixtureState:
        """A state of the family in which the given parts replace others."""
        outer = MixtureState(None, None, None) if state is None else family.outside(state)
        weights = outer.weights if self.weights is None else self.weights
        means = outer.means if self.means is None else self.means
        covariances = outer.covariances if self.covariances is None else self.covariances
        weights = np.maximum(weights, 1e-10)
        return family.inside(MixtureState(weights / weights.sum(), means, covariances))


def simple_start(
    family: GaussianFamily,
    sample: Batch,
    kind: str,
    count: int,
    given: GivenParts,
    rng: np.random.Generator,
) -> tuple[str, MixtureState]:
    """The name and the state of scikit-learn's starts, given parts put in their place.

    Parameters
    ----------
    kind : "kmeans", "k-means++", "random_from_data" or "random"; "auto" and "moments" stand for
        "kmeans" where parts are given
    """
    rows = sample.rows
    if np.isnan(rows).any():
        rows = imputed(family, sample, rng, draw=False)
    complete = Batch((rows,), sample.weights, sample.keys)
    points = family.prepare(complete)
    coordinates = Coordinates.of(family, complete, points)
    spread, weights = coordinates.standardized, sample.weights
    if given.means is not None:
        scale = coordinates.scale
        centers = (given.means - family.centre) / scale
        state = by_labels(family, points, _nearest(spread, centers), count)
        name = "given"
    elif kind == "random":
        fractions = rng.random((len(rows), count))
        fractions *= (weights / fractions.sum(axis=1))[:, None]
        state, name = from_responsibilities(family, points, fractions), "random"
    elif kind == "random_from_data":
        chosen = rng.choice(len(rows), count, replace=False, p=weights / weights.sum())
        state = by_labels(family, points, _nearest(spread, spread[chosen]), count)
        name = "random from data"
    else:
        n_passes = 0 if kind == "k-means++" else _LLOYD
        labels = kmeans(spread, weights, count, rng, n_passes)
        state = by_labels(family, points, labels, count)
        name = "k-means++" if kind == "k-means++" else "k-means"
    return name, given.applied(family, state) if given else state


def _nearest(rows: Array, centers: Array) -> Array:
    distances = np.einsum("ij,ij->i", centers, centers) - 2 * rows @ centers.T
    nearest: Array = np.argmin(distances, axis=1)
    return nearest


def imputed(
    family: GaussianFamily, sample: Batch, rng: np.random.Generator, *, draw: bool
) -> Array:
    """Rows (n, d) with unobserved entries filled by the regression of one Gaussian.

    Parameters
    ----------
    draw : bool, whether residuals are drawn, so that no plane holds the filled entries
    """
    one = _as_full(family)
    start = MixtureState(np.ones(1), np.zeros((1, family.width)), np.eye(family.width)[None])
    state = passes(one, one.prepare(sample), start, _PASSES_TO_IMPUTE)[0]
    return _filled(one, state, sample.rows, rng, draw)


def _as_full(family: GaussianFamily) -> GaussianFamily:
    floor = family.floor
    if np.ndim(floor) < 2:
        floor = np.diag(np.broadcast_to(floor, family.width))
    return replace(family, covariance_type=FULL, floor=floor, products=False)


def _filled(
    one: GaussianFamily, state: MixtureState, rows: Array, rng: np.random.Generator, draw: bool
) -> Array:
    filled: Array = one.impute(state, rows)
    if draw:
        # A drawn row less its own regression on the same entries is a residual.
        other = one.sample(state, len(filled), rng)[0]
        hidden = np.where(np.isnan(rows), np.nan, other)
        filled = filled + np.where(np.isnan(rows), other - one.impute(state, hidden), 0.0)
    return filled


def drawn_rows(
    family: GaussianFamily, state: MixtureState, sample: Batch, rng: np.random.Generator
) -> Array:
    """Rows (n, d) with unobserved entries drawn from a mixture, given those observed."""
    logs = family.log_density(state, family.prepare(sample))
    fractions = np.cumsum(np.exp(logs - logs.max(axis=1, keepdims=True)), axis=1)
    drawn = rng.random(len(fractions)) * fractions[:, -1]
    labels = np.minimum((fractions <= drawn[:, None]).sum(axis=1), len(state.weights) - 1)
    one, count = _as_full(family), len(state.weights)
    matrices = as_matrices(family.covariance_type, state.covariances, count, family.width)
    rows = np.array(sample.rows, dtype=np.float64)
    for j in range(count):
        chosen = labels == j
        single = MixtureState(np.ones(1), state.means[j : j + 1], matrices[j : j + 1])
        rows[chosen] = _filled(one, single, rows[chosen], rng, True)
    return rows


def imputed_starts(
    family: GaussianFamily, sample: Batch, count: int, rng: np.random.Generator
) -> dict[str, MixtureState]:
    """Starts of a sample with unobserved entries: over-fitted and merged on imputed rows."""
    starts: dict[str, MixtureState] = {}
    for number in (1, 2):
        rows = imputed(family, sample, rng, draw=True)
        complete = Batch((rows,), sample.weights, sample.keys)
        points = family.prepare(complete)
        coordinates = Coordinates.of(family, complete, points)
        chosen = coordinates.whitened if family.covariance_type == FULL else None
        chosen = coordinates.standardized if chosen is None else chosen
        many = overfit(family, points, chosen, count, rng)
        for power, kept in ((0.0, ""), (0.5, ", small ones kept")):
            starts[f"many clusters merged (imputed {number}{kept})"] = merge_down(
                family, many, count, power
            )
    return starts


def read_off_tied(moment: ThirdMoment, count: int, rng: np.random.Generator) -> MixtureState | None:
    """Means, weights and the common covariance from the third central moment, for k >= 5.

    E (x - m)^(x3) = sum_j w_j delta_j^(x3) with delta_j = mu_j - m, whatever the covariance of
    the components is: a cubic of rank k in k - 1 dimensions, unique from k = 5 on. From its terms
    a_j = w_j^(1/3) delta_j the null vector b of [a_1 ... a_k] is b_j ~ w_j^(2/3).

    Returns
    -------
    MixtureState in the features; None where the decomposition gives no mixture
    """
    from latensor.decomposition.decompose import decompose

    rank = count - 1
    values, vectors = np.linalg.eigh(moment.covariance)
    if len(values) < rank or values[0] <= len(values) * np.finfo(float).eps * values[-1]:
        return None
    whitening = vectors / np.sqrt(values)
    third = moment.along(whitening)[0]
    left = np.linalg.svd(third.reshape(len(third), -1), full_matrices=False)[0][:, :rank]
    core = np.einsum("abc,ai,bj,cl->ijl", third, left, left, left, optimize=True)
    found = decompose(core, count, symmetric=True, random_state=int(rng.integers(2**31)))
    factor = np.asarray(found.tensor.factors[0]) * np.cbrt(np.asarray(found.tensor.weights))
    null = np.linalg.svd(factor)[2][-1]
    null = null if null.sum() > 0 else -null
    if not (null > 0).all():
        return None
    weights = null**1.5 / (null**1.5).sum()
    gaps = (left @ (factor / np.cbrt(weights))).T
    within = np.eye(len(values)) - (gaps.T * weights) @ gaps
    inner, axes = np.linalg.eigh(within)
    within = (axes * np.maximum(inner, 1e-3)) @ axes.T
    back = vectors * np.sqrt(values)
    return MixtureState(weights, moment.mean + gaps @ back.T, back @ within @ back.T)
