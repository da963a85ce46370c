"""A spike in noise: found where it can be, and pure noise called noise."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition.tensor_pca import ground_state_energy


def unit(rng, dimension):
    vector = rng.standard_normal(dimension)
    return vector / np.linalg.norm(vector)


def spiked(dimension, order, ratio, seed):
    """A spike of `ratio` times d^(p/4) and standard normal noise."""
    rng = np.random.default_rng(seed)
    v = unit(rng, dimension)
    spike = ratio * dimension ** (order / 4) * lt.outer(*[v] * order)
    return v, spike + rng.standard_normal((dimension,) * order)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dimension", "order"), [(40, 3), (60, 3), (14, 4), (8, 5)])
def test_the_spike_is_found_at_the_limit(dimension, order, seed):
    v, tensor = spiked(dimension, order, 1.25, seed)
    found = lt.tensor_pca(tensor)
    assert abs(found.vector @ v) > 0.9
    assert found.detected
    assert found.noise == pytest.approx(1.0, rel=0.1)
    assert found.computational_limit == pytest.approx(dimension ** (order / 4))
    assert found.statistical_limit == pytest.approx(dimension**0.5)
    assert found.strength == pytest.approx(1.25 * dimension ** (order / 4), rel=0.3)


@pytest.mark.parametrize(("dimension", "symmetric"), [(3, True), (6, True), (20, True), (5, False)])
def test_pure_noise_is_called_noise(dimension, symmetric):
    draws = 60
    alarms = sum(
        lt.tensor_pca(
            np.random.default_rng(seed).standard_normal((dimension,) * 3), symmetric=symmetric
        ).detected
        for seed in range(draws)
    )
    # One percent is allowed; three of sixty happen by chance in 2 of 100 such tests.
    assert alarms <= 2


def test_noise_that_is_symmetric_itself_is_calibrated_too():
    alarms = sum(
        lt.tensor_pca(lt.symmetrize(np.random.default_rng(s).standard_normal((12,) * 3))).detected
        for s in range(40)
    )
    assert alarms <= 2


def test_vectors_of_their_own():
    rng = np.random.default_rng(0)
    a, b, c = unit(rng, 20), unit(rng, 25), unit(rng, 30)
    found = lt.tensor_pca(
        40 * lt.outer(a, b, c) + rng.standard_normal((20, 25, 30)), symmetric=False
    )
    for vector, truth in zip(found.vectors, (a, b, c), strict=True):
        assert abs(vector @ truth) > 0.9
    assert found.detected
    with pytest.raises(lt.InvalidInputError, match="read `vectors`"):
        _ = found.vector


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("order", [3, 4])
def test_without_noise_it_is_exact(order, sign):
    v = unit(np.random.default_rng(1), 9)
    found = lt.tensor_pca(sign * 3.0 * lt.outer(*[v] * order))
    assert found.strength == pytest.approx(3.0, rel=1e-12)
    assert found.noise == 0.0
    assert found.detected
    assert "detected" in repr(found)
    rebuilt = lt.outer(*[found.vector] * order)
    np.testing.assert_allclose(abs(rebuilt), abs(lt.outer(*[v] * order)), atol=1e-10)


def test_the_limit_of_noise_is_that_of_the_p_spin_model():
    # Auffinger, Ben Arous and Cerny (2013): 1.6569 for three spins; sqrt(2) for two.
    assert ground_state_energy(3) == pytest.approx(1.6570, abs=1e-3)
    assert ground_state_energy(2) == pytest.approx(np.sqrt(2.0), abs=1e-6)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scale(scale):
    _, tensor = spiked(10, 3, 1.5, 0)
    one, other = lt.tensor_pca(tensor), lt.tensor_pca(tensor * scale)
    np.testing.assert_allclose(other.vector, one.vector, atol=1e-8)
    assert other.strength / scale == pytest.approx(one.strength)
    assert other.signal_to_noise == pytest.approx(one.signal_to_noise)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])
def test_arrays_of_all_libraries_in_single_precision(name):
    library = pytest.importorskip(name)
    v, tensor = spiked(12, 3, 2.0, 0)
    given = library.asarray(tensor.astype(np.float32))
    found = lt.tensor_pca(given)
    assert type(found.vector) is type(given)
    assert found.vector.dtype == given.dtype
    assert abs(np.asarray(found.vector) @ v) > 0.9


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.ones((4, 4)), "order 2"),
        (np.ones((4, 4, 5)), "symmetric=False"),
        (np.ones((4, 4, 4), complex), "complex"),
        (np.zeros((4, 4, 4)), "zero"),
        (np.full((4, 4, 4), np.nan), "64 NaN"),
    ],
)
def test_bad_input_is_refused(tensor, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.tensor_pca(tensor)
