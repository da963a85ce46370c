import numpy as np
import pytest


@pytest.mark.parametrize("k, d", [(1, 1), (2, 4), (3, 7), (5, 20)])
def test_rounds_on_pairs_are_those_of_numpy(k, d):
    from latensor.models.hmm import _kernels

    rng = np.random.default_rng(k)
    emissions = rng.dirichlet(np.ones(d), k)
    fractions = rng.dirichlet(np.ones(d * d)).reshape(d, d)
    joint = rng.dirichlet(np.ones(k * k)).reshape(k, k)
    expected = joint.copy()
    for _ in range(20):
        ratio = fractions / (emissions.T @ expected @ emissions)
        expected = expected * (emissions @ ratio @ emissions.T)
        expected /= expected.sum()
    _kernels.maximize_joint(joint, fractions, emissions, 20)
    assert np.abs(joint - expected).max() < 1e-13


@pytest.mark.parametrize("k, m, n", [(1, 1, 1.0), (3, 2, 1.0), (4, 9, 50.0)])
def test_rounds_on_first_symbols_are_those_of_numpy(k, m, n):
    from latensor.models.hmm import _kernels

    rng = np.random.default_rng(m)
    emissions = 0.5 * rng.dirichlet(np.ones(m), k)
    firsts, occupancy = rng.dirichlet(np.ones(m)), rng.dirichlet(np.ones(k))
    start = np.full(k, 1 / k)
    expected = start.copy()
    for _ in range(15):
        ratio = firsts / (expected @ emissions)
        expected = expected * (emissions @ ratio) * n + occupancy
        expected /= expected.sum()
    _kernels.maximize_start(start, firsts, emissions, occupancy, n, 15)
    assert np.abs(start - expected).max() < 1e-13
