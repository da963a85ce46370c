"""Canonical directions: whiten two views, then the SVD of what they share (monograph 2.5)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latensor.arrays import (
    Array,
    RandomState,
    is_complex,
    like,
    machine_epsilon,
    require_matrix,
    resolve,
    to_host,
)
from latensor.arrays.factorization import truncated_svd
from latensor.arrays.subspace import phases
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.value_files import storable


@storable
class CanonicalDirections(NamedTuple):
    """Pairs of directions u (d1, rank) and v (d2, rank) in order of decreasing correlation.

    Scores x'u have variance one, scores of different pairs are uncorrelated (exactly so where
    there is no ridge), and `correlations` (rank,) are those of x'u_j with y'v_j. The spectra are
    the variances of the whitened principal directions of each view, and `next_correlation` is
    that of the pair after the last (zero where there is none).
    """

    x_directions: Array
    y_directions: Array
    correlations: Array
    x_spectrum: Array
    y_spectrum: Array
    next_correlation: float


class _View(NamedTuple):
    """The principal directions of one view that vary, and their variances."""

    directions: Any
    variances: Any


def canonical_directions(
    x_covariance: Array,
    y_covariance: Array,
    cross_covariance: Array,
    rank: int,
    *,
    ridge: float = 0.0,
) -> CanonicalDirections:
    """Directions in which two views are most correlated, from their covariances (monograph 2.5).

    With whitening matrices W_x and W_y of the two covariances and the SVD P diag(s) Q' of
    W_x' C_xy W_y, the directions are W_x P and W_y Q.

    Parameters
    ----------
    x_covariance : (d1, d1) array, symmetric positive semi-definite
    y_covariance : (d2, d2) array, symmetric positive semi-definite
    cross_covariance : (d1, d2) array
    rank : int, at most the smaller numerical rank of the two covariances
    ridge : float, this multiple of the mean variance of a view is added to its variances before
        whitening; without it, whitening is restricted to the numerical rank

    Raises
    ------
    RankDeficientError, with the largest usable rank.
    """
    _, arrays = resolve(
        x_covariance=x_covariance, y_covariance=y_covariance, cross_covariance=cross_covariance
    )
    for name, array in arrays.items():
        require_matrix(array, name)
    sizes = (arrays["x_covariance"].shape[0], arrays["y_covariance"].shape[0])
    shapes = [tuple(array.shape) for array in arrays.values()]
    if shapes != [(sizes[0],) * 2, (sizes[1],) * 2, sizes]:
        raise InvalidInputError(
            "x_covariance, y_covariance and cross_covariance must be (d1, d1), (d2, d2) and "
            f"(d1, d2), got {shapes[0]}, {shapes[1]} and {shapes[2]}"
        )
    reference = arrays["cross_covariance"]
    # The small eigenvalues decide here, so that single precision is not enough to whiten in.
    host = {
        name: np.asarray(to_host(array), dtype=_double(array)) for name, array in arrays.items()
    }
    x = _view_of_covariance(host["x_covariance"], "x", machine_epsilon(reference))
    y = _view_of_covariance(host["y_covariance"], "y", machine_epsilon(reference))
    cross = x.directions.conj().T @ host["cross_covariance"] @ y.directions
    found = _pair(x, y, cross, sizes, rank, ridge)
    return _like(found, reference)


def _like(found: CanonicalDirections, reference: Array) -> CanonicalDirections:
    real = reference.real if is_complex(reference) else reference
    return found._replace(
        x_directions=like(found.x_directions, reference),
        y_directions=like(found.y_directions, reference),
        correlations=like(found.correlations, real),
        x_spectrum=like(found.x_spectrum, real),
        y_spectrum=like(found.y_spectrum, real),
    )


def _double(array: Array) -> Any:
    return np.complex128 if is_complex(array) else np.float64


def _view_of_covariance(covariance: Any, name: str, epsilon: float) -> _View:
    variances, directions = np.linalg.eigh((covariance + covariance.conj().T) / 2)
    variances, directions = variances[::-1], directions[:, ::-1]
    # Ten times the usual threshold: a sum over samples has more rounding than one product.
    keep = variances > 10 * covariance.shape[0] * epsilon * max(variances[0], 0.0)
    return _View(directions[:, keep], _require_variance(variances[keep], name))


def _require_variance(variances: Any, name: str) -> Any:
    if not variances.shape[0]:
        raise RankDeficientError(f"{name} is constant: no direction of it varies")
    if variances[-1] < np.finfo(np.float64).tiny:
        raise InvalidInputError(
            f"the second moment of {name} underflows: give the samples in a larger unit"
        )
    return variances


def canonical_directions_of_samples(
    x_rows: object,
    y_rows: object,
    rank: int,
    *,
    ridge: float = 0.0,
    n_directions: int | None = None,
    weight: float | None = None,
    random_state: RandomState = 0,
) -> CanonicalDirections:
    """Directions in which two centred data sets are most correlated, without d x d matrices.

    Whitens by the SVD of the samples themselves, which keeps the digits that their covariance
    would lose, and allows fewer samples than features.

    Parameters
    ----------
    x_rows : (n, d1) array or LinearOperator, centred
    y_rows : (n, d2) array or LinearOperator, centred
    rank : int
    ridge : float, this multiple of the mean variance of a view is added to its variances
    n_directions : int or None, the leading principal directions of each view that are whitened;
        None takes all that vary
    weight : float or None, the number of samples that the rows stand for; None counts the rows
    random_state : seed of the SVD of a large view
    """
    lefts, views = [], []
    for name, rows in (("x", x_rows), ("y", y_rows)):
        shape = rows.shape  # type: ignore[attr-defined]
        asked = min(*shape, n_directions or min(shape))
        left, values, right = truncated_svd(rows, asked, random_state=random_state)
        host = np.asarray(to_host(values), dtype=np.float64)
        kept = int((host > max(shape) * machine_epsilon(values) * host[0]).sum())
        variances = _require_variance(host[:kept] ** 2 / (weight or shape[0]), name)
        lefts.append(left[:, :kept])
        directions = to_host(right[:, :kept])
        views.append(_View(directions, variances))
    overlap = np.asarray(to_host(lefts[0].T @ lefts[1]), dtype=np.float64)
    x, y = views
    cross = x.variances[:, None] ** 0.5 * overlap * y.variances**0.5
    sizes = (x.directions.shape[0], y.directions.shape[0])
    found = _pair(x, y, cross, sizes, rank, ridge)
    return _like(found, lefts[0])


def _pair(
    x: _View, y: _View, cross: Any, sizes: tuple[int, int], rank: int, ridge: float
) -> CanonicalDirections:
    """Pair the whitened views; `cross` is their cross-covariance in principal coordinates."""
    usable = min(cross.shape)
    if rank > usable:
        raise RankDeficientError(
            f"rank={rank} exceeds the {usable} pairs of directions that exist: x varies in "
            f"{cross.shape[0]} and y in {cross.shape[1]} directions; ask for at most {usable}"
        )
    penalties = [
        ridge * float(view.variances.sum()) / size for view, size in zip((x, y), sizes, strict=True)
    ]
    x_scale, y_scale = ((v.variances + p) ** -0.5 for v, p in zip((x, y), penalties, strict=True))
    asked = min(rank + 1, usable)
    left, values, right = truncated_svd(x_scale[:, None] * cross * y_scale, asked)
    # With a ridge the whitened scores have a variance below one; scaled back, the directions obey
    # the same normalization with and without it.
    x_spread, y_spread = (
        np.sqrt(((view.variances * scale**2)[:, None] * abs(vectors) ** 2).sum(axis=0))
        for view, scale, vectors in ((x, x_scale, left), (y, y_scale, right))
    )
    correlations = np.clip(values / (x_spread * y_spread), 0.0, 1.0)
    following = float(correlations[rank]) if asked > rank else 0.0
    order = np.argsort(-correlations[:rank], kind="stable")
    x_directions = x.directions @ (x_scale[:, None] * left / x_spread)[:, order]
    y_directions = y.directions @ (y_scale[:, None] * right / y_spread)[:, order]
    signs = phases(x_directions)
    return CanonicalDirections(
        x_directions * signs,
        y_directions * signs,
        correlations[order],
        x.variances,
        y.variances,
        following,
    )
