"""A Gaussian mixture is called stable only where the rows speak for each of its components."""

import numpy as np
import pytest

import latensor as lt
from latensor.models.mixtures.gaussian_certificate import smallest_divergence, smallest_gain

KINDS = ("full", "tied", "diag", "spherical")


def test_equal_covariances_are_apart_by_the_mahalanobis_distance(rng):
    root = rng.normal(size=(3, 3))
    covariance = root @ root.T
    means = rng.normal(size=(2, 3))
    gap = means[0] - means[1]
    expected = np.sqrt(gap @ np.linalg.solve(covariance, gap))
    found = smallest_divergence(means, np.stack([covariance, covariance]))
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    assert smallest_divergence(means[:1], covariance[None]) == np.inf


@pytest.mark.parametrize("apart", [0.5, 2.0, 5.0])
def test_the_loss_of_joining_two_is_that_of_the_likelihood(apart):
    # The entropies of the pair and of the Gaussian that replaces it, by quadrature on a line.
    weights, deviations = np.array([0.3, 0.7]), np.array([1.0, 2.0])
    means = np.array([0.0, apart])
    grid = np.linspace(-25, 30, 20001)
    each = np.exp(-(((grid[:, None] - means) / deviations) ** 2) / 2) / deviations
    density = (each / np.sqrt(2 * np.pi)) @ weights
    mean = weights @ means
    variance = weights @ (deviations**2 + means**2) - mean**2
    pair = -np.trapezoid(density * np.log(density), grid)
    expected = (np.log(2 * np.pi * variance) + 1) / 2 - pair
    found = smallest_gain(weights, means[:, None], (deviations**2)[:, None, None], "full")
    # 4096 draws of entropies of at most ln 2.
    np.testing.assert_allclose(found, expected, atol=4 * np.log(2) / 2 / np.sqrt(4096))


@pytest.mark.parametrize("kind", KINDS)
def test_components_that_noise_suggests_are_not_stable(kind):
    for seed in range(2):
        samples = np.random.default_rng(seed).normal(size=(400, 6))
        model = lt.GaussianMixture(2, covariance_type=kind, random_state=0).fit(samples)
        found = model.certificate_
        assert found.verdict != "stable"
        assert next(s for s in found.statements if s.topic == "Evidence").level != "good"


@pytest.mark.parametrize("kind", KINDS)
def test_planted_components_are_stable_and_one_more_is_not(kind):
    planted = lt.datasets.make_spherical_mixture(1000, 4, 3, separation=5, random_state=0)
    fitted = [
        lt.GaussianMixture(k, covariance_type=kind, random_state=0).fit(planted.samples)
        for k in (3, 4)
    ]
    assert [model.certificate_.verdict == "stable" for model in fitted] == [True, False]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
@pytest.mark.parametrize("n, copies", [(150, 4), (10, 4), (300, 2)])
def test_rows_that_are_all_repeated_count_once(kind, n, copies):
    rows = np.random.default_rng(1).standard_normal((n, 3))
    once = lt.GaussianMixture(2, covariance_type=kind, random_state=0).fit(rows)
    again = np.repeat(rows, copies, axis=0)
    found = lt.GaussianMixture(2, covariance_type=kind, random_state=0).fit(again)
    weighted = lt.GaussianMixture(2, covariance_type=kind, random_state=0)
    weighted.fit(rows, sample_weight=np.full(n, float(copies)))
    for model in (once, found, weighted):
        assert model.certificate_.verdict != "stable"
        assert model.certificate_.asked == pytest.approx(once.certificate_.asked)


@pytest.mark.parametrize("seed", range(2))
def test_another_cut_of_a_cube_that_was_met_is_told(seed):
    rows = np.random.default_rng(seed).random((600, 3))
    certificate = (
        lt.GaussianMixture(2, covariance_type="diag", random_state=0).fit(rows).certificate_
    )
    assert certificate.ahead < 2
    assert certificate.moved > 0.1
    assert certificate.verdict != "stable"
    assert "another optimum" in str(certificate)


def test_an_optimum_beside_another_one(rng):
    from latensor.moments.batch import Batch
    from latensor.refinement.families.gaussian import GaussianFamily
    from latensor.refinement.families.gaussian_densities import MixtureState
    from latensor.refinement.mixture_search import compared

    rows = np.r_[rng.standard_normal((500, 2)) - 4, rng.standard_normal((500, 2)) + 4]
    family = GaussianFamily.scaled("spherical", np.zeros(2), np.ones(2), 0.0)
    points = family.prepare(Batch((rows,), np.ones(1000), np.arange(1000, dtype=np.uint64)))
    right = MixtureState(np.ones(2) / 2, np.array([[-4.0, -4], [4, 4]]), np.ones(2))
    swapped = MixtureState(right.weights, right.means[::-1], right.covariances)
    wrong = MixtureState(right.weights, right.means * [1, -1], 9 * right.covariances)
    assert compared(family, points, right, swapped) == (0.0, 0.0)
    ahead, moved = compared(family, points, right, wrong)
    assert ahead > 10
    assert 0.4 < moved < 0.6
    assert compared(family, points, wrong, right)[0] == pytest.approx(-ahead)
