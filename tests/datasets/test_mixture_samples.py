import numpy as np
import pytest

from latensor.datasets.mixtures import (
    make_diagonal_mixture,
    make_multi_view,
    make_spherical_mixture,
)
from latensor.exceptions import InvalidInputError


def closest(means):
    gaps = np.sqrt(((means[:, None] - means[None]) ** 2).sum(axis=2))
    return gaps[np.triu_indices(len(means), 1)].min()


@pytest.mark.parametrize("make", [make_spherical_mixture, make_diagonal_mixture])
def test_samples_have_the_moments_of_their_truth(make):
    planted = make(50_000, 4, 3, separation=5, random_state=0)
    assert closest(planted.means) == pytest.approx(5)
    assert planted.weights.sum() == pytest.approx(1)
    for j in range(3):
        rows = planted.samples[planted.labels == j]
        assert len(rows) / 50_000 == pytest.approx(planted.weights[j], abs=0.02)
        assert np.abs(rows.mean(axis=0) - planted.means[j]).max() < 0.06
        assert np.abs(rows.var(axis=0) - planted.variances[j]).max() < 0.15
    again = make(50_000, 4, 3, separation=5, random_state=0)
    assert (again.samples == planted.samples).all()
    assert planted.draw(7, 1)[0].shape == (7, 4)


def test_affine_rank_and_common_variance():
    planted = make_spherical_mixture(10, 8, 6, affine_rank=2, variance="common", random_state=1)
    values = np.linalg.svd(planted.means - planted.means.mean(axis=0), compute_uv=False)
    assert (values > 1e-9).sum() == 2
    assert (planted.variances == 1).all()


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_views_have_the_conditional_means_of_their_truth(kind):
    planted = make_multi_view(30_000, (3, 4, 5), 3, kind=kind, random_state=2)
    for view, means in zip(planted.views, planted.means, strict=True):
        for j in range(3):
            found = view[planted.labels == j].mean(axis=0)
            assert np.abs(found - means[j]).max() < 0.08
    first, second = (view[planted.labels == 0] for view in planted.views[:2])
    cross = (first - first.mean(axis=0)).T @ (second - second.mean(axis=0)) / len(first)
    assert np.abs(cross).max() < 0.08


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make_spherical_mixture(0, 2, 2), "n_samples"),
        (lambda: make_spherical_mixture(5, 2, 2, separation=0), "separation=0"),
        (lambda: make_spherical_mixture(5, 2, 2, variance="x"), "variance='x'"),
        (lambda: make_spherical_mixture(5, 2, 2, affine_rank=3), "affine_rank=3"),
        (lambda: make_multi_view(5, (2, 2), 2), "three views"),
        (lambda: make_multi_view(5, (2, 2, 2), 2, kind="x"), "kind='x'"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
