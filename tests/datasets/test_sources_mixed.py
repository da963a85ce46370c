import numpy as np
import pytest

from latensor.datasets.sources_mixed import make_ica, make_pearson
from latensor.exceptions import InvalidInputError

KINDS = ("laplace", "uniform", "exponential", "binary", "student", "gaussian")


@pytest.mark.parametrize("kind", KINDS)
def test_sources_have_mean_zero_and_variance_one(kind):
    drawn = make_ica(200_000, 2, 2, sources=kind, random_state=0).sources
    assert np.abs(drawn.mean(axis=0)).max() < 0.015
    assert np.abs(drawn.var(axis=0) - 1).max() < 0.06
    # A Gaussian has kurtosis 3; all others are told from it.
    kurtosis = (drawn**4).mean(axis=0) - 3
    assert (np.abs(kurtosis) < 0.1).all() == (kind == "gaussian")


@pytest.mark.parametrize("noise_kind", ["isotropic", "diagonal", "full"])
def test_the_samples_are_what_the_truth_says(noise_kind):
    made = make_ica(100_000, 6, 3, noise=0.5, noise_kind=noise_kind, random_state=1)
    left = made.samples - made.mean - made.sources @ made.mixing.T
    assert np.abs(np.cov(left.T) - made.noise_covariance).max() < 0.02
    assert np.trace(made.noise_covariance) / 6 == pytest.approx(0.25)
    assert (made.mixing**2).sum() / 6 == pytest.approx(1.0)
    again = make_ica(100_000, 6, 3, noise=0.5, noise_kind=noise_kind, random_state=1)
    assert np.array_equal(made.samples, again.samples)


def test_without_noise_there_is_none():
    made = make_ica(50, 4, 4, sources=KINDS, random_state=2)
    assert np.array_equal(made.samples, made.mean + made.sources @ made.mixing.T)
    assert not made.noise_covariance.any()


def test_two_gaussians_on_a_line():
    made = make_pearson(100_000, separation=3, weight=0.25, ratio=2, random_state=0)
    assert made.samples.shape == (100_000, 1)
    assert np.allclose(made.weights, [0.25, 0.75])
    assert np.sqrt(made.variances) == pytest.approx([4 / 3, 2 / 3])
    assert made.means[1, 0] - made.means[0, 0] == pytest.approx(3)
    first = made.samples[made.labels == 0]
    assert first.mean() == pytest.approx(made.means[0, 0], abs=0.04)
    assert first.var() == pytest.approx(made.variances[0], rel=0.05)
    more, labels = made.draw(10, random_state=0)
    assert more.shape == (10, 1)
    assert labels.shape == (10,)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda: make_ica(10, 2, 3), "n_components=3.*n_features=2"),
        (lambda: make_ica(10, 2, 2, sources="cauchy"), "sources='cauchy'.*'laplace'"),
        (lambda: make_ica(10, 2, 2, sources=()), r"sources=\(\)"),
        (lambda: make_ica(10, 2, 2, noise=-1), "noise=-1"),
        (lambda: make_ica(10, 2, 2, noise=1, noise_kind="pink"), "noise_kind='pink'"),
        (lambda: make_ica(0, 2, 2), "n_samples"),
        (lambda: make_pearson(10, weight=1.5), "weight=1.5"),
        (lambda: make_pearson(10, ratio=-1), "ratio=-1"),
        (lambda: make_pearson(10, separation=-1), "separation=-1"),
    ],
)
def test_bad_input_is_told(act, text):
    with pytest.raises(InvalidInputError, match=text):
        act()
