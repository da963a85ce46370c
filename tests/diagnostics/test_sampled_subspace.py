"""The angle by which sampling turns a subspace is the one that samples show."""

import numpy as np
import pytest

import latensor as lt
from latensor.diagnostics.sampled_subspace import subspace_angle


@pytest.mark.parametrize("following", [0.25, 0.6])
def test_the_angle_is_that_of_samples(following):
    deviations = np.sqrt([4.0, 1.0, following, following, following])
    n, angles = 2000, []
    for seed in range(40):
        samples = np.random.default_rng(seed).normal(size=(n, 5)) * deviations
        directions = lt.PCA(2).fit(samples).components_
        outside = directions[1, 2:]
        angles.append(np.arcsin(min(np.linalg.norm(outside), 1.0)))
    expected = subspace_angle(np.array([4.0, 1.0]), following, 3 * following, n, 5)
    # The root of a mean of 40 squares of three numbers each.
    np.testing.assert_allclose(np.sqrt(np.mean(np.square(angles))), expected, rtol=0.25)


def test_directions_of_noise_are_not_called_stable():
    for seed in range(5):
        samples = np.random.default_rng(seed).normal(size=(3000, 6))
        assert lt.PCA(2).fit(samples).certificate_.verdict == "unstable"
    samples = samples * [3.0, 2.0, 1.0, 1.0, 1.0, 1.0]
    assert lt.PCA(2).fit(samples).certificate_.verdict == "stable"


@pytest.mark.parametrize("noise", [None, "gaussian"])
def test_sources_beyond_the_number_asked_for_are_told(noise):
    sources = np.random.default_rng(0).laplace(size=(20_000, 5))
    found = lt.ICA(3, noise=noise, random_state=0).fit(sources).certificate_
    assert found.verdict == "unstable"
    assert next(s for s in found.statements if s.topic == "Signal space").level == "bad"


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_angles_have_no_unit(scale):
    kept, following = np.array([2.0, 1.0]) * scale, 0.5 * scale
    expected = np.sqrt(2 * 0.5 / 100) / 0.5
    np.testing.assert_allclose(subspace_angle(kept, following, scale, 100, 9), expected)
    assert subspace_angle(kept, kept[-1], scale, 100, 9) == np.pi / 2
    assert subspace_angle(kept, 0.0, 0.0, 100, 9) == 0.0
    assert subspace_angle(kept, 0.0, 0.0, len(kept) + 1, 9) == np.pi / 2
    assert subspace_angle(0 * kept, 0.0, 0.0, 100, 9) == np.pi / 2
