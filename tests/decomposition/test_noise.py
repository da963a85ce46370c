"""Every procedure that decomposes: its error is the noise times a number of the problem alone."""

import numpy as np
import pytest

from latensor.decomposition import (
    AlternatingLeastSquares,
    GaussNewton,
    JointDiagonalization,
    PowerMethod,
    SimultaneousDiagonalization,
    SymmetricLeastSquares,
    SymmetricSpectral,
    decompose,
)

from .planted import planted
from .symmetric_planted import component_errors, symmetric

LEVELS = (1e-6, 1e-3)
SEEDS = range(20)


def automatic(tensor, rank, rng):
    return decompose(tensor, rank, random_state=rng)


def proportional(errors):
    """Errors over the noise (seeds, levels): no run is out of line, and no level."""
    assert (errors < 20 * np.median(errors)).all()
    assert (np.abs(errors[:, 1] / errors[:, 0] - 1) < 0.2).all()


@pytest.mark.parametrize("rank", [4, 8])
@pytest.mark.parametrize(
    ("algorithm", "orthogonal"),
    [
        (PowerMethod(), True),
        (JointDiagonalization(), True),
        (SymmetricSpectral(), False),
        (SymmetricLeastSquares(), False),
        (SymmetricLeastSquares(variant="same"), False),
    ],
)
def test_symmetric_tensors(algorithm, orthogonal, rank):
    errors = np.empty((len(SEEDS), len(LEVELS)))
    for seed in SEEDS:
        for level, noise in enumerate(LEVELS):
            tensor, vectors, weights = symmetric(seed, 8, rank, 3, noise, orthogonal)
            found = algorithm(tensor, rank, np.random.default_rng(seed))
            errors[seed, level] = component_errors(found, vectors, weights)[0].max() / noise
    proportional(errors)


@pytest.mark.parametrize(("shape", "rank"), [((8, 8, 8), 4), ((8, 8, 8), 8), ((9, 8, 4), 6)])
@pytest.mark.parametrize(
    "algorithm",
    [SimultaneousDiagonalization(), AlternatingLeastSquares(), GaussNewton(), automatic],
)
def test_tensors_of_any_kind(algorithm, shape, rank):
    errors = np.empty((len(SEEDS), len(LEVELS)))
    for seed in SEEDS:
        for level, noise in enumerate(LEVELS):
            tensor, factors = planted(seed, shape, rank, noise=noise)
            found = algorithm(tensor, rank, np.random.default_rng(seed))
            errors[seed, level] = furthest(found, factors) / noise
    proportional(errors)


def furthest(found, factors):
    """The largest distance of a unit vector from the nearest found one, up to its sign."""
    distances = []
    for mode, true in enumerate(factors):
        unit = true / np.linalg.norm(true, axis=0)
        cosines = np.abs(np.asarray(found.factors[mode]).T @ unit)
        distances.append(np.sqrt(np.maximum(2 - 2 * cosines.max(axis=0), 0)).max())
    return max(distances)
