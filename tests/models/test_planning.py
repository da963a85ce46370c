"""Sample sizes: errors fall as they should, and the n that is told is enough."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor import datasets


@pytest.fixture(scope="module")
def model():
    drawn = datasets.make_spherical_mixture(2000, 4, 2, random_state=0)
    rows = drawn.samples if hasattr(drawn, "samples") else drawn[0]
    return lt.SphericalGaussianMixture(2, random_state=0).fit(np.asarray(rows))


@pytest.fixture(scope="module")
def planned(model):
    return lt.plan(model, (200, 800, 3200), 0.02, random_state=0)


def test_errors_fall_like_the_root_of_n(planned):
    assert list(planned.n_samples) == [200, 800, 3200]
    for name in ("means_", "weights_"):
        assert planned.errors[name].shape == (3, 3)
        assert -0.9 < planned.rates[name] < -0.2
    assert (np.diff(planned.moment_rate) < 0).all()


def test_the_size_that_is_told_is_enough(model, planned):
    needed = planned.required["means_"]
    again = lt.plan(model, (max(needed // 4, 50), needed), n_repeats=4, random_state=1)
    assert np.median(again.errors["means_"][-1]) == pytest.approx(0.02, rel=0.6)
    assert again.required == {}
    assert "means_" in str(planned)


def test_it_can_be_drawn(planned):
    pytest.importorskip("matplotlib")
    from latensor.plots import sample_sizes

    axis = sample_sizes(planned).axes[0]
    assert axis.get_xscale() == axis.get_yscale() == "log"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_samples": (100,)}, "two or more"), ({"n_samples": (0, 5)}, "n_samples=0"),
     ({"target": 0.0}, "target=0"), ({"n_repeats": 0}, "n_repeats=0")],
)  # fmt: skip
def test_bad_input_is_refused(model, options, message):
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.plan(model, **options)


def test_models_that_cannot_tell_are_refused():
    with pytest.raises(lt.InvalidInputError, match="cannot draw samples"):
        lt.plan(lt.PCA(2))
    with pytest.raises(ValueError, match="fit it first"):
        lt.plan(lt.SphericalGaussianMixture(2))


def fitted(name):
    """A fitted model of every kind that can be planned."""
    if name == "SingleTopic":
        return lt.SingleTopic(3).fit(datasets.make_single_topic(800, 30, 3, random_state=0).counts)
    if name == "LatentDirichletAllocation":
        drawn = datasets.make_topics(800, 30, 3, random_state=0)
        return lt.LatentDirichletAllocation(3, random_state=0).fit(drawn.counts)
    if name in ("CategoricalHMM", "a weak chain"):
        concentration = 0.1 if name == "CategoricalHMM" else 0.3
        drawn = datasets.make_hmm(4000, 6, 2, stay=0.8, concentration=concentration, random_state=0)
        return lt.CategoricalHMM(2, refine=0, random_state=0).fit(drawn.X)
    if name == "GaussianHMM":
        drawn = datasets.make_gaussian_hmm(2000, 3, 2, random_state=0)
        return lt.GaussianHMM(2, random_state=0).fit(drawn.X)
    if name == "MultiViewMixture":
        rng = np.random.default_rng(0)
        labels = rng.integers(2, size=1500)
        means = 2 * rng.standard_normal((3, 2, 4))
        views = [m[labels] + rng.standard_normal((1500, 4)) for m in means]
        return lt.MultiViewMixture(2, random_state=0).fit(views)
    rng = np.random.default_rng(0)
    rows = 6 * np.eye(3)[rng.integers(3, size=1500)] + rng.standard_normal((1500, 3))
    rows = rows @ np.diag([1.0, 2.0, 4.0])  # as many features as components: order must not matter
    return lt.GaussianMixture(3, covariance_type="tied", random_state=0).fit(rows)


@pytest.mark.parametrize(
    ("name", "n_repeats", "parameters"),
    [
        ("SingleTopic", 3, ("components_",)),
        ("CategoricalHMM", 16, ("emissionprob_", "transmat_")),
        ("GaussianHMM", 16, ("means_", "transmat_", "covariances_")),
        ("MultiViewMixture", 16, ("means_", "weights_", "variances_")),
        ("GaussianMixture", 16, ("means_", "weights_", "covariances_")),
    ],
)
def test_errors_of_every_kind_of_model_fall(name, n_repeats, parameters):
    # Weights and transitions of two states are two free numbers: sixteen draws tell the trend of
    # their errors, eight did not; topics have many.
    planned = lt.plan(fitted(name), (400, 3200), 0.05, n_repeats=n_repeats, random_state=0)
    for parameter in parameters:
        means = np.sqrt((planned.errors[parameter] ** 2).mean(axis=1))
        assert means[1] < 0.6 * means[0], parameter  # 1 / sqrt(8) = 0.35 in the limit
        assert planned.required[parameter] >= 1
    assert "covars_" not in planned.errors


@pytest.mark.slow
def test_topics_with_mixtures_are_planned():
    # Word-by-word refinement keeps a bias of about .007 here: less than the root of 8 is gained.
    planned = lt.plan(fitted("LatentDirichletAllocation"), (400, 3200), n_repeats=8, random_state=0)
    for name in ("components_", "alpha_"):
        few, many = planned.errors[name].mean(axis=1)
        assert many < 0.8 * few


def test_a_size_that_is_too_small_to_fit_is_named():
    with pytest.raises(lt.NotIdentifiableError, match=r"400 samples .* too few .* leave that size"):
        lt.plan(fitted("a weak chain"), (400, 3200), n_repeats=8)


def test_models_without_a_number_of_samples_are_refused():
    drawn = datasets.make_tree(300, 8, random_state=0)
    tree = lt.LatentTree().fit(drawn.X)
    with pytest.raises(lt.InvalidInputError, match="no components to compare"):
        lt.plan(tree)
    with pytest.raises(lt.InvalidInputError, match="no number to plan"):
        lt.plan(lt.MixedMembershipBlockModel(2))
