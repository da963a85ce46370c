import numpy as np
import pytest
from scipy.signal import lfilter

from latensor.diagnostics.serial_dependence import serial_dependence


def slow(rng, n, correlations):
    """Gaussian series whose autocorrelations are powers of these numbers."""
    noise = rng.standard_normal((n, len(correlations)))
    return np.column_stack(
        [lfilter([1.0], [1.0, -r], column) for r, column in zip(correlations, noise.T, strict=True)]
    )


@pytest.mark.parametrize("kind", ["normal", "laplace", "t3", "sorted by nothing"])
def test_independent_samples_count_in_full(kind):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        drawn = {
            "normal": lambda rng=rng: rng.standard_normal((3000, 5)),
            "laplace": lambda rng=rng: rng.laplace(size=(3000, 5)),
            "t3": lambda rng=rng: rng.standard_t(3, (3000, 5)),
            "sorted by nothing": lambda rng=rng: rng.permutation(slow(rng, 3000, [0.9] * 5)),
        }[kind]()
        assert (serial_dependence(drawn) == 1).all()


def test_it_is_that_of_the_theory():
    series = [slow(np.random.default_rng(s), 5000, [0.9, 0.8, 0.0]) for s in range(10)]
    found = np.mean([serial_dependence(one) for one in series], axis=0)
    # 1 + 2 sum (r s)^l = (1 + r s) / (1 - r s).
    for i, j, product in ((0, 0, 0.81), (0, 1, 0.72), (1, 1, 0.64)):
        assert found[i, j] == pytest.approx((1 + product) / (1 - product), rel=0.15)
    # What is slow costs nothing beside what is not.
    assert found[0, 2] == found[1, 2] == found[2, 2] == 1


def test_it_is_the_variance_of_means_of_products():
    means = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        one, other = slow(rng, 1000, [0.9, 0.8]).T
        means.append((one * other).mean() / (one.std() * other.std()))
    assert 1000 * np.var(means) == pytest.approx(1.72 / 0.28, rel=0.25)


def test_rows_given_twice_are_a_weight():
    rng = np.random.default_rng(0)
    series = rng.laplace(size=(2000, 3))
    assert (serial_dependence(np.repeat(series, rng.integers(1, 4, 2000), axis=0)) == 1).all()
    moving = slow(rng, 2000, [0.9, 0.9])
    repeated = np.repeat(moving, 2, axis=0)
    assert np.abs(serial_dependence(repeated) - serial_dependence(moving)).max() < 1e-12


@pytest.mark.parametrize("shape", [(0, 2), (1, 2), (16, 3), (30, 1)])
def test_few_rows_are_taken_for_independent(shape):
    series = np.random.default_rng(0).standard_normal(shape)
    series.setflags(write=False)
    assert np.array_equal(serial_dependence(series), np.ones((shape[1], shape[1])))
    assert (serial_dependence(np.ones((100, 2))) == 1).all()
