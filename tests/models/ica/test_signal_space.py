import numpy as np
import pytest

from latensor.models.ica.signal_space import (
    assumed_space,
    count_sources,
    diagonal,
    isotropic,
    separable,
    signal_space,
    spectrum,
)
from latensor.moments.second import Covariance


def planted(seed, d, k, noise):
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((d, k))
    variances = {
        "isotropic": lambda: np.full(d, 0.4),
        "diagonal": lambda: rng.uniform(0.1, 1.5, d),
    }[noise]()
    return mixing, variances


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("d", "k"), [(8, 3), (12, 5), (5, 1), (7, 3)])
@pytest.mark.parametrize("noise", ["isotropic", "diagonal"])
def test_an_exact_covariance_is_taken_apart_exactly(seed, d, k, noise):
    mixing, variances = planted(seed, d, k, noise)
    covariance = mixing @ mixing.T + np.diag(variances)
    assert separable(d, k)
    spaces = [diagonal(covariance, k, 1e24)]
    if noise == "isotropic":
        spaces.append(isotropic(spectrum(covariance), k, 1e24))
    for space in spaces:
        assert not space.p_value <= 1e-3
        scale = np.abs(covariance).max()
        assert np.abs(space.lift @ space.lift.T - mixing @ mixing.T).max() < 1e-8 * scale
        assert np.abs(space.sensor_noise - variances).max() < 1e-8 * scale
        assert np.abs(space.projection.T @ space.lift - np.eye(k)).max() < 1e-10
        # The scores of least variance: (A'S^-1 A)^-1.
        inner = np.linalg.inv(space.lift.T @ (space.lift / variances[:, None]))
        assert np.abs(space.noise - inner).max() < 1e-7 * np.abs(inner).max()


def sampled(seed, d, k, root, n=5000):
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((d, k))
    data = rng.laplace(size=(n, k)) @ mixing.T + rng.standard_normal((n, d)) @ root
    return Covariance(n, float(n), data.mean(axis=0), np.cov(data.T, bias=True))


@pytest.mark.parametrize(
    ("root", "kind"),
    [
        (0.5 * np.eye(9), "isotropic"),
        (np.diag(np.linspace(0.2, 1.0, 9)), "diagonal"),
        (np.random.default_rng(0).standard_normal((9, 9)) / 6, "unknown"),
    ],
)
def test_the_simplest_noise_that_is_not_refuted_is_taken(root, kind):
    found = []
    for seed in range(20):
        known = sampled(seed, 9, 3, root)
        found.append(signal_space(known, spectrum(known.covariance), 3).kind)
    # A true model is refuted once in a thousand times, a wrong one may pass for a simpler.
    assert found.count(kind) >= 19


def test_p_values_are_uniform():
    values = []
    for seed in range(100):
        known = sampled(seed, 8, 3, np.diag(np.linspace(0.3, 1.0, 8)), 2000)
        values.append(diagonal(known.covariance, 3, known.weight).p_value)
    # Kolmogorov and Smirnov at one in a thousand.
    ranks = np.arange(1, 101) / 100
    assert np.abs(np.sort(values) - ranks).max() < 1.95 / 10


def test_scores_within_a_basis_are_unbiased():
    mixing, variances = planted(0, 10, 3, "diagonal")
    covariance = mixing @ mixing.T + np.diag(variances)
    space = diagonal(covariance, 3, 1e24)
    basis = spectrum(covariance).vectors[:, :6]
    inside = space.within(basis)
    assert np.abs(inside.projection - basis @ (basis.T @ inside.projection)).max() < 1e-12
    assert np.abs(inside.projection.T @ space.lift - np.eye(3)).max() < 1e-10
    # Fewer coordinates cannot make them more exact.
    assert (np.diag(inside.noise) >= np.diag(space.noise) - 1e-12).all()
    assert space.within(np.eye(10)) is space


def test_sources_are_counted_and_refuted_models_are_not_assumed():
    known = sampled(3, 9, 3, 0.5 * np.eye(9))
    assert count_sources(known, spectrum(known.covariance)) == 3
    odd = sampled(3, 9, 3, np.random.default_rng(0).standard_normal((9, 9)) / 6)
    seen = spectrum(odd.covariance)
    for count, kind in ((3, "none"), (8, "isotropic"), (9, "none")):
        space = signal_space(odd, seen, count)
        assert space.kind == "unknown"
        assert assumed_space(odd, seen, space).kind == kind
    assert signal_space(odd, seen, 3).p_value < 1e-3
