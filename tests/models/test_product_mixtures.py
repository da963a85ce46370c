import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.datasets.mixtures import make_diagonal_mixture
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.diagonal import DiagonalGaussianMixture
from latensor.models.mixtures.feature_views import best_partition
from latensor.models.mixtures.product import ProductMixture
from latensor.models.mixtures.product_read_off import read_off, read_partition, scales
from mixture_population import largest_error, matched, population_moment, random_mixture


# The checks fit two components to noise of a few features; without a likelihood that has no
# answer but an error, so that the product mixture is checked with one.
@parametrize_with_checks(
    [DiagonalGaussianMixture(), DiagonalGaussianMixture("auto", refine=2), ProductMixture(1)]
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


def agree(one, other, bound):
    for name in ("weights_", "means_", "covariances_"):
        first, second = getattr(one, name), getattr(other, name)
        assert np.abs(first - second).max() <= bound * np.abs(second).max(), name


@pytest.mark.parametrize("k, d", [(1, 4), (2, 5), (3, 9), (5, 15)])
@pytest.mark.parametrize("views", [False, True])
def test_population_moments_give_the_parameters_back(k, d, views):
    for seed in range(20):
        truth = random_mixture(seed, k, d, "diagonal")
        moment, rng = population_moment(*truth), np.random.default_rng(0)
        if views:
            scale = scales(moment.covariance)
            partition = best_partition(moment.covariance / np.outer(scale, scale), k - 1, rng)
            assert sorted(np.unique(partition)) == [0, 1, 2]
            found = read_partition(moment, partition, k, rng)
        else:
            found = read_off(moment, k, rng)
        assert largest_error(found.state, *truth) < 1e-8
        assert found.coherence >= 1 - 1e-9


@pytest.mark.parametrize("weight", [1e3, 1e6])
@pytest.mark.parametrize("k, d", [(2, 5), (4, 8), (5, 15)])
def test_exact_moments_of_few_samples_are_read_off_exactly(k, d, weight):
    for seed in range(5):
        truth = random_mixture(seed, k, d, "diagonal")
        moment = population_moment(*truth, weight=weight)
        found = read_off(moment, k, np.random.default_rng(0))
        assert largest_error(found.state, *truth) < 1e-8


def test_impossible_means_are_not_trusted():
    # Points on a curve: given any component, the features depend on each other.
    rng = np.random.default_rng(0)
    curve = np.sin(2 * np.pi * rng.uniform(0, 1, (4000, 1)) @ rng.uniform(0.5, 2.5, (1, 14)))
    data = np.clip(curve + 0.05 * rng.standard_normal((4000, 14)), -1, 1)
    model = ProductMixture(5, random_state=0).fit(data)
    assert np.abs(model.means_).max() > 1.05
    assert model.certificate_.outside > 0.03
    assert model.certificate_.verdict == "unstable"
    assert "range of its feature" in " ".join(str(model.certificate_).split())


def test_a_product_mixture_predicts_scores_and_samples():
    planted = make_diagonal_mixture(3000, 12, 3, separation=6, random_state=1)
    model = ProductMixture(3, random_state=0).fit(planted.samples)
    chances = model.predict_proba(planted.samples)
    assert np.abs(chances.sum(axis=1) - 1).max() < 1e-12
    assert (chances.argmax(axis=1) == model.predict(planted.samples)).all()
    each = model.score_samples(planted.samples)
    assert each.shape == (3000,)
    assert model.score(planted.samples) == pytest.approx(each.mean())
    assert model.score(planted.samples) > model.score(planted.samples + 3)
    drawn, labels = model.sample(4000, random_state=3)
    assert drawn.shape == (4000, 12)
    assert adjusted_rand_score(labels, model.predict(drawn)) > 0.9
    assert not hasattr(model, "lower_bound_")


@pytest.mark.parametrize("method", ["moments", "views"])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_falls_like_the_root_of_the_sample_size(method, seed):
    errors = []
    for n_samples in (4_000, 64_000):
        planted = make_diagonal_mixture(n_samples, 15, 3, separation=6, random_state=seed)
        model = ProductMixture(3, method=method, random_state=0).fit(planted.samples)
        order = matched(model.means_, planted.means)
        errors.append(np.sqrt(((model.means_[order] - planted.means) ** 2).mean()))
    assert 0.1 < errors[1] / errors[0] < 0.6


@pytest.mark.parametrize("method", ["moments", "views"])
@pytest.mark.parametrize("k, d, n, sep", [(5, 15, 3000, 4), (6, 8, 4000, 5), (4, 2, 3000, 6)])
def test_the_fit_reaches_what_em_from_the_truth_reaches(method, k, d, n, sep):
    for seed in range(3):
        planted = make_diagonal_mixture(n, d, k, separation=sep, random_state=seed)
        held_out = planted.draw(5000, 99)[0]
        peer = GaussianMixture(
            k,
            covariance_type="diag",
            tol=1e-7,
            max_iter=500,
            weights_init=planted.weights,
            means_init=planted.means,
            precisions_init=1 / planted.variances,
        ).fit(planted.samples)
        model = DiagonalGaussianMixture(k, method=method, random_state=seed)
        gap = peer.score(held_out) - model.fit(planted.samples).score(held_out)
        assert gap < 0.01


def test_features_of_any_distribution():
    rng = np.random.default_rng(0)
    rates = rng.uniform(0.05, 0.95, (3, 24))
    labels = rng.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    bits = (rng.random((20_000, 24)) < rates[labels]).astype(float)
    model = ProductMixture(3, random_state=0).fit(bits)
    order = matched(model.means_, rates)
    assert np.abs(model.means_[order] - rates).max() < 0.05
    assert np.abs(model.weights_ - [0.5, 0.3, 0.2]).max() < 0.03
    expected = (rates * (1 - rates)).ravel()
    assert np.corrcoef(model.covariances_[order].ravel(), expected)[0, 1] > 0.9
    assert adjusted_rand_score(labels, model.predict(bits)) > 0.8
    assert ProductMixture("auto", random_state=0).fit(bits).n_components_ == 3
    found = model.intervals(bits, n_resamples=50)
    assert ((found["means"].low <= rates[np.argsort(order)]).mean()) > 0.9


@pytest.mark.parametrize("model", [ProductMixture(3), DiagonalGaussianMixture(3, refine=0)])
def test_intervals_hold_the_truth(model):
    inside = []
    for seed in range(4):
        planted = make_diagonal_mixture(3000, 12, 3, separation=6, random_state=seed)
        found = model.set_params(random_state=0).fit(planted.samples)
        ends = found.intervals(planted.samples, level=0.9, n_resamples=40, n_groups=40)
        order = matched(planted.means, found.means_)
        for name, truth in (
            ("weights", planted.weights),
            ("means", planted.means),
            ("covariances", planted.variances),
        ):
            low, high, value = ends[name].low, ends[name].high, truth[order]
            inside.append(((low <= value) & (value <= high)).mean())
    assert 0.75 < np.mean(inside) < 0.99


def test_likelihood_agrees_with_scikit_learn_in_both_directions():
    data = make_diagonal_mixture(500, 8, 3, random_state=1).samples * 10.0 ** np.arange(-3, 5)
    model = DiagonalGaussianMixture(3, reg_covar=0.0, random_state=0).fit(data)
    peer = model.to_sklearn()
    assert np.abs(model.score_samples(data) - peer.score_samples(data)).max() < 1e-7
    assert (model.predict(data) == peer.predict(data)).all()
    assert model.bic(data) == pytest.approx(peer.bic(data), rel=1e-10)
    agree(DiagonalGaussianMixture.from_sklearn(peer), model, 1e-15)
    drawn, labels = model.sample(5000)
    deviation = np.sqrt(model.covariances_[0])
    assert (np.abs(drawn[labels == 0].mean(axis=0) - model.means_[0]) < 0.2 * deviation).all()


@pytest.mark.parametrize("cls", [DiagonalGaussianMixture, ProductMixture])
@pytest.mark.parametrize("method", ["moments", "views"])
def test_streams_merges_and_weights(cls, method):
    rng = np.random.default_rng(3)
    data = make_diagonal_mixture(3000, 12, 3, separation=6, random_state=2).samples
    model = cls(3, method=method, random_state=0)
    whole = clone(model).fit(data)
    first = clone(model).partial_fit(data[:1000])
    merged = first.merge(first.spawn().partial_fit(data[1000:]))
    agree(merged, whole, 1e-5)
    other = clone(model).partial_fit(data[:1000]).merge(clone(model).partial_fit(data[1000:]))
    agree(other, whole, 1e-5)
    weights = rng.integers(0, 3, 3000)
    weighted = clone(model).fit(data, sample_weight=weights)
    agree(weighted, clone(model).fit(np.repeat(data, weights, axis=0)), 1e-6)


def test_coherent_means_are_told():
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 2, 4000)
    data = rng.standard_normal((4000, 30))
    data[:, :3] += 6 * labels[:, None]
    model = DiagonalGaussianMixture(2, method="views", random_state=0).fit(data)
    assert any("coherent" in note for note in model.certificate_.notes)
    assert adjusted_rand_score(labels, model.predict(data)) > 0.99


GOOD = make_diagonal_mixture(80, 6, 2, random_state=5).samples


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: ProductMixture(5).fit(GOOD), NotIdentifiableError, "n_components=5.*2 x n_comp"),
        (
            lambda: DiagonalGaussianMixture(4, method="views", refine=0).fit(GOOD),
            NotIdentifiableError,
            "3 x for method='views'",
        ),
        (
            lambda: ProductMixture(2).fit(np.random.default_rng(0).standard_normal((500, 9))),
            NotIdentifiableError,
            "affinely dependent",
        ),
        (lambda: ProductMixture(2, method="x").fit(GOOD), InvalidInputError, "method='x'"),
        (lambda: DiagonalGaussianMixture(90).fit(GOOD), InvalidInputError, "n_samples=80"),
        (
            lambda: ProductMixture(2, method="views").partial_fit(np.ones((3, 200))),
            InvalidInputError,
            "at most 128",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
