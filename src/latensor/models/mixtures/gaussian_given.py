"""Starting values that a caller gives, checked."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.models.mixtures.gaussian_starts import GivenParts
from latensor.refinement.families.covariances import DIAG, SPHERICAL, shape_of

# How far weights may be from summing to one: what float32 leaves of them.
_ROUNDING = 1e-5


def read_given(
    n_components: int | str,
    n_features: int,
    covariance_type: str,
    weights: Any,
    means: Any,
    precisions: Any,
) -> GivenParts:
    """Starting values as numbers of the right shapes, or an error that names the bad one."""
    parts = {"weights_init": weights, "means_init": means, "precisions_init": precisions}
    if isinstance(n_components, str):
        for name, part in parts.items():
            if part is not None:
                raise InvalidInputError(
                    f"n_components={n_components!r} takes no starting values: give a number, or "
                    f"leave {name} out"
                )
        return GivenParts()
    count, width = int(n_components), n_features
    if weights is not None:
        weights = _numbers(weights, "weights_init", (count,))
        if (weights < 0).any() or abs(float(weights.sum()) - 1) > _ROUNDING:
            raise InvalidInputError(
                f"weights_init must be at least 0 and sum to 1, got a sum of {weights.sum():.6g} "
                f"and a smallest of {weights.min():.3g}"
            )
    if means is not None:
        means = _numbers(means, "means_init", (count, width))
    if precisions is None:
        return GivenParts(weights, means, None)
    shape = shape_of(covariance_type, count, width)
    precisions = _numbers(precisions, "precisions_init", shape)
    return GivenParts(weights, means, covariances_of(covariance_type, precisions))


def _numbers(value: Any, name: str, shape: tuple[int, ...]) -> Any:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} must hold numbers, got {type(value).__name__}") from error
    if array.shape != shape:
        raise InvalidInputError(f"{name} must have the shape {shape}, got {array.shape}")
    if not np.isfinite(array).all():
        raise InvalidInputError(f"{name} holds NaN or infinite entries: give finite numbers")
    return array


def covariances_of(covariance_type: str, precisions: Any) -> Any:
    """The covariances of precisions of the same shape, which must be positive (definite)."""
    precisions = np.asarray(precisions, dtype=np.float64)
    if covariance_type in (DIAG, SPHERICAL):
        if (precisions <= 0).any():
            raise InvalidInputError(
                f"precisions_init must be positive, got a smallest of {precisions.min():.3g}"
            )
        return 1 / precisions
    if not np.allclose(precisions, np.swapaxes(precisions, -1, -2)):
        raise InvalidInputError("precisions_init must be symmetric, positive-definite matrices")
    smallest = float(np.linalg.eigvalsh(precisions).min())
    if not smallest > 0:
        raise InvalidInputError(
            "precisions_init must be symmetric, positive-definite matrices, got a smallest "
            f"eigenvalue of {smallest:.3g}"
        )
    found = np.linalg.inv(precisions)
    return (found + np.swapaxes(found, -1, -2)) / 2
