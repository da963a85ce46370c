"""Bounds on spectral norms of noise and of moments, beside what is drawn."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition import PowerMethod
from latensor.diagnostics import cross_moment_rate, gaussian_norm_bound


@pytest.mark.parametrize("shape", [(8, 8), (6, 7, 8), (4, 4, 4, 4)])
def test_noise_stays_below_the_bound(shape):
    norms = [
        lt.tensor_pca(rng.standard_normal(shape), symmetric=False).strength
        if len(shape) > 2
        else np.linalg.norm(rng.standard_normal(shape), 2)
        for rng in map(np.random.default_rng, range(20))
    ]
    assert max(norms) < gaussian_norm_bound(shape)
    assert max(norms) > 0.5 * gaussian_norm_bound(shape)


def test_the_rate_of_cross_moments():
    assert cross_moment_rate(100, 10**6) == pytest.approx(0.01 + 0.001)
    assert cross_moment_rate(4, 1) == 2.0 + 8.0
    with pytest.raises(lt.InvalidInputError, match="n_samples=0"):
        cross_moment_rate(3, 0)
    with pytest.raises(lt.InvalidInputError, match="failure=0"):
        gaussian_norm_bound((3, 3), 0)


@pytest.mark.parametrize("rank", [5, 10, 20])
def test_the_settings_of_the_power_method_keep_the_promise_of_the_theorem(rank):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        vectors = np.linalg.qr(rng.standard_normal((rank, rank)))[0]
        weights = rng.uniform(1.0, 2.0, rank)
        noise = lt.symmetrize(rng.standard_normal((rank,) * 3))
        noise *= 0.05 / np.sqrt(rank) / lt.tensor_pca(noise).strength
        tensor = lt.CPTensor(weights, (vectors,) * 3).to_dense() + noise
        accuracy = 0.05 / np.sqrt(rank)
        settings = PowerMethod.for_accuracy(rank, accuracy, spread=2.0)
        found = settings(tensor, rank, rng)
        cosines = vectors.T @ np.asarray(found.factors[0])
        distances = np.sqrt(np.maximum(2 - 2 * np.abs(cosines).max(axis=1), 0))
        assert (distances <= 8 * accuracy / weights).all()
    assert settings.n_restarts == int(np.ceil(10 * rank * np.log2(rank / 0.01)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [((0, 0.1), "rank=0"), ((3, 0.0), "accuracy=0"), ((3, 1.5), "accuracy=1.5")],
)
def test_bad_accuracy_is_refused(arguments, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        PowerMethod.for_accuracy(*arguments)
