import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.arrays import library_name
from latensor.datasets.mixtures import make_spherical_mixture
from latensor.decomposition import PowerMethod
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.feature_views import rotation
from latensor.models.mixtures.spherical import SphericalGaussianMixture
from latensor.models.mixtures.spherical_read_off import read_off, read_rotation
from mixture_population import largest_error, matched, population_moment, random_mixture

NAMES = ("weights_", "means_", "covariances_")


@parametrize_with_checks(
    [
        SphericalGaussianMixture(),
        SphericalGaussianMixture(3, variance="common"),
        SphericalGaussianMixture("auto", refine=2),
    ]
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


def agree(one, other, bound):
    for name in NAMES:
        first, second = getattr(one, name), getattr(other, name)
        assert np.abs(first - second).max() <= bound * np.abs(second).max(), name


def oracle(planted):
    peer = GaussianMixture(
        len(planted.weights),
        covariance_type="spherical",
        tol=1e-7,
        max_iter=500,
        weights_init=planted.weights,
        means_init=planted.means,
        precisions_init=1 / planted.variances,
    )
    return peer.fit(planted.samples)


@pytest.mark.parametrize("kind", ["common", "differing"])
@pytest.mark.parametrize("k, d", [(1, 3), (2, 2), (3, 7), (6, 6), (5, 12)])
@pytest.mark.parametrize("algorithm", ["auto", PowerMethod()])
def test_population_moments_give_the_parameters_back(kind, k, d, algorithm):
    for seed in range(20 if algorithm == "auto" else 2):
        truth = random_mixture(seed, k, d, kind)
        moment = population_moment(*truth)
        found = read_off(moment, k, kind == "common", np.random.default_rng(0), algorithm)
        assert largest_error(found.state, *truth) < 1e-8
        assert found.off_diagonal < 1e-12


@pytest.mark.parametrize("seed", range(20))
def test_one_more_component_than_dimensions_is_identified_by_a_common_variance(seed):
    truth = random_mixture(seed, 4, 3, "common")
    found = read_off(population_moment(*truth), 4, True, np.random.default_rng(0))
    assert largest_error(found.state, *truth) < 1e-8


@pytest.mark.parametrize("kind", ["common", "differing"])
@pytest.mark.parametrize("k, d", [(1, 3), (3, 9), (4, 14)])
def test_population_moments_give_the_parameters_back_by_rotated_views(kind, k, d):
    for seed in range(20):
        truth = random_mixture(seed, k, d, kind)
        rng = np.random.default_rng(seed)
        moment = population_moment(*truth)
        found = read_rotation(moment, rotation(d, rng), k, kind == "common", rng)
        assert largest_error(found.state, *truth) < 1e-8


@pytest.mark.parametrize("method", ["moments", "views"])
@pytest.mark.parametrize("seed", range(3))
def test_the_error_falls_like_the_root_of_the_sample_size(method, seed):
    errors = []
    for n_samples in (4_000, 64_000):
        planted = make_spherical_mixture(n_samples, 15, 4, separation=6, random_state=seed)
        model = SphericalGaussianMixture(4, method=method, refine=0, random_state=0)
        model.fit(planted.samples)
        order = matched(model.means_, planted.means)
        errors.append(np.sqrt(((model.means_[order] - planted.means) ** 2).mean()))
    assert 0.1 < errors[1] / errors[0] < 0.6


@pytest.mark.parametrize("variance", ["common", "differing"])
@pytest.mark.parametrize(
    "k, d, n, sep, rank",
    [(10, 20, 5000, 4, None), (8, 12, 3000, 5, 3), (10, 4, 4000, 5, None), (6, 1, 3000, 6, None)],
)
def test_the_fit_reaches_what_em_from_the_truth_reaches(variance, k, d, n, sep, rank):
    for seed in range(3):
        planted = make_spherical_mixture(
            n, d, k, separation=sep, variance=variance, affine_rank=rank, random_state=seed
        )
        held_out = planted.draw(5000, 99)[0]
        model = SphericalGaussianMixture(k, variance=variance, random_state=seed)
        gap = oracle(planted).score(held_out) - model.fit(planted.samples).score(held_out)
        assert gap < 0.01
        assert model.certificate_.spread < 1.25


@pytest.mark.parametrize("seed", range(3))
def test_overlapping_components_beyond_the_dimensions_are_no_worse_than_one_start(seed):
    samples = make_spherical_mixture(1000, 2, 8, separation=2, random_state=seed).samples
    peer = GaussianMixture(8, covariance_type="spherical", random_state=seed).fit(samples)
    model = SphericalGaussianMixture(8, random_state=seed).fit(samples)
    assert model.converged_
    assert model.score(samples) > peer.score(samples) - 1e-4


def test_likelihood_prediction_and_criteria_agree_with_scikit_learn():
    planted = make_spherical_mixture(600, 5, 3, random_state=0)
    model = SphericalGaussianMixture(3, random_state=0).fit(planted.samples)
    peer = model.to_sklearn()
    assert (
        np.abs(model.score_samples(planted.samples) - peer.score_samples(planted.samples)).max()
        < 1e-9
    )
    assert (model.predict(planted.samples) == peer.predict(planted.samples)).all()
    gap = model.predict_proba(planted.samples) - peer.predict_proba(planted.samples)
    assert np.abs(gap).max() < 1e-9
    assert model.bic(planted.samples) == pytest.approx(peer.bic(planted.samples), rel=1e-12)
    assert model.aic(planted.samples) == pytest.approx(peer.aic(planted.samples), rel=1e-12)
    back = SphericalGaussianMixture.from_sklearn(peer, random_state=3)
    agree(back, model, 1e-15)
    assert back.score(planted.samples) == pytest.approx(model.score(planted.samples), rel=1e-12)
    common = SphericalGaussianMixture(3, variance="common", random_state=0).fit(planted.samples)
    assert common._n_parameters() == model._n_parameters() - 2
    assert np.ptp(common.covariances_) == 0
    drawn, labels = model.sample(20_000)
    assert np.abs(np.bincount(labels) / 20_000 - model.weights_).max() < 0.02
    assert np.abs(drawn[labels == 0].mean(axis=0) - model.means_[0]).max() < 0.1


@pytest.mark.parametrize("refine", [0, "auto"])
@pytest.mark.parametrize("d", [6, 40])
def test_streams_splits_and_merges_agree(refine, d):
    planted = make_spherical_mixture(4000, d, 3, separation=6, random_state=1)
    data = planted.samples
    model = SphericalGaussianMixture(3, refine=refine, random_state=0)
    whole = clone(model).partial_fit(data)
    first = clone(model).partial_fit(data[:1500])
    worker = first.spawn().partial_fit(data[1500:3000]).partial_fit(data[3000:])
    assert worker.means_.shape == (3, d)
    merged = first.merge(worker)
    # Up to 32 features nothing depends on the split; beyond, the first rows choose directions.
    agree(merged, whole, 1e-9 if d <= 32 else (2e-2 if refine == 0 else 1e-3))
    agree(pickle.loads(pickle.dumps(merged)), merged, 1e-15)
    agree(whole, clone(model).fit(data), 1e-6 if d <= 32 or refine else 2e-2)
    # A fit goes on as a stream: what it gives is refined by all that was seen.
    after = clone(model).fit(data[:3000]).partial_fit(data[3000:])
    agree(after, whole, 1e-6 if refine else 2e-2)


@pytest.mark.parametrize("refine", [0, 3, "auto"])
@pytest.mark.parametrize("method", ["moments", "views"])
def test_weights_are_repetitions(refine, method):
    rng = np.random.default_rng(2)
    data = make_spherical_mixture(900, 12, 3, separation=12, random_state=2).samples
    weights = rng.integers(0, 3, 900)
    model = SphericalGaussianMixture(3, refine=refine, method=method, random_state=0)
    weighted = clone(model).fit(data, sample_weight=weights)
    agree(weighted, clone(model).fit(np.repeat(data, weights, axis=0)), 1e-7)


@pytest.mark.parametrize("n_jobs", [2, -1])
def test_threads_and_seeds_change_no_bit(n_jobs):
    data = make_spherical_mixture(40_000, 5, 8, random_state=3).samples
    one = SphericalGaussianMixture(8, random_state=0, n_jobs=1).fit(data)
    many = SphericalGaussianMixture(8, random_state=0, n_jobs=n_jobs).fit(data)
    for name in NAMES:
        assert (getattr(one, name) == getattr(many, name)).all()


@pytest.mark.parametrize("seed", range(2))
def test_the_number_of_components_is_found(seed):
    planted = make_spherical_mixture(5000, 15, 5, separation=6, random_state=seed)
    model = SphericalGaussianMixture("auto", random_state=0).fit(planted.samples)
    assert model.n_components_ == 5


def test_intervals_hold_the_truth():
    inside = []
    for seed in range(8):
        planted = make_spherical_mixture(3000, 8, 3, separation=5, random_state=seed)
        model = SphericalGaussianMixture(3, random_state=0).fit(planted.samples)
        found = model.intervals(planted.samples, level=0.9, n_resamples=100)
        order = matched(planted.means, model.means_)
        for name, truth in (
            ("weights", planted.weights),
            ("means", planted.means),
            ("covariances", planted.variances),
        ):
            interval = found[name]
            assert (interval.low <= interval.high).all()
            inside.append(((interval.low <= truth[order]) & (truth[order] <= interval.high)).mean())
    assert 0.85 < np.mean(inside) <= 1


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_other_libraries_and_frames_come_in(kind):
    module = pytest.importorskip("torch" if kind == "torch" else "jax.numpy")
    data = make_spherical_mixture(500, 4, 2, separation=6, random_state=4).samples
    expected = SphericalGaussianMixture(2, random_state=0).fit(data.astype(np.float32))
    foreign = module.asarray(data.astype(np.float32))
    model = SphericalGaussianMixture(2, random_state=0).fit(foreign)
    assert model.means_.dtype == np.float32
    agree(model, expected, 1e-6)
    assert library_name(model.predict_proba(foreign)) == kind
    assert library_name(model.score_samples(foreign)) == kind
    frame = pd.DataFrame(data, columns=list("abcd"))
    named = SphericalGaussianMixture(2, random_state=0).fit(frame)
    assert list(named.feature_names_in_) == list("abcd")


def test_the_certificate_says_what_is_wrong_in_plain_words():
    planted = make_spherical_mixture(3000, 10, 4, separation=6, random_state=5)
    good = SphericalGaussianMixture(4, random_state=0).fit(planted.samples).certificate_
    assert good.verdict == "stable"
    assert "[ok]" in str(good)
    assert good.method == "moments + EM"
    crowded = SphericalGaussianMixture(6, random_state=0).fit(planted.samples).certificate_
    assert crowded.verdict != "stable"
    assert crowded.gap < 1
    many = make_spherical_mixture(2000, 2, 6, separation=6, random_state=5).samples
    beyond = SphericalGaussianMixture(6, random_state=0).fit(many).certificate_
    assert np.isnan(beyond.off_diagonal)
    assert beyond.method == "many clusters merged (standardized) + EM"
    column = np.c_[planted.samples, np.full(3000, 7.0)]
    told = SphericalGaussianMixture(4, random_state=0).fit(column).certificate_
    assert told.constant_features == (10,)
    assert any("column 10" in statement.text for statement in told.statements)
    stretched = planted.samples * np.r_[5.0, np.ones(9)]
    assert SphericalGaussianMixture(4, random_state=0).fit(stretched).certificate_.spread > 1.25


def test_read_only_and_degenerate_data():
    data = make_spherical_mixture(200, 3, 2, random_state=6).samples
    data.flags.writeable = False
    SphericalGaussianMixture(2, random_state=0).fit(data)
    atoms = np.r_[np.ones((5, 4)), np.zeros((3, 4))]
    for reg_covar in (0.0, 1e-6):
        model = SphericalGaussianMixture(2, reg_covar=reg_covar, random_state=0).fit(atoms)
        assert np.abs(model.weights_ - [5 / 8, 3 / 8]).max() < 1e-6
        assert (model.predict(atoms) == [0] * 5 + [1] * 3).all()
        assert np.isfinite(model.covariances_).all()
    constant = SphericalGaussianMixture(1).fit(np.full((4, 2), 3.0))
    assert (constant.means_ == 3).all()


GOOD = make_spherical_mixture(60, 4, 2, random_state=7).samples
LINE = make_spherical_mixture(5000, 8, 4, affine_rank=1, random_state=8).samples


def fit(*arguments, data=GOOD, **parameters):
    return SphericalGaussianMixture(*arguments, random_state=0, **parameters).fit(data)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: fit(6, refine=0), NotIdentifiableError, "n_components=6 means in 4.*infinite"),
        (lambda: fit(5, refine=0), NotIdentifiableError, "at most 4 are"),
        (
            lambda: fit(4, data=LINE, refine=0),
            NotIdentifiableError,
            "affinely dependent.*condition number.*lower n_components",
        ),
        (lambda: fit(61), InvalidInputError, "n_components=61 exceeds the n_samples=60"),
        (lambda: fit(3, data=np.ones((9, 2))), InvalidInputError, "1 distinct samples of 9"),
        (lambda: fit(2, data=GOOD[:1]), InvalidInputError, "minimum of 2"),
        (lambda: fit(0), InvalidInputError, "n_components=0"),
        (lambda: fit("many"), InvalidInputError, "'auto'"),
        (lambda: fit(variance="other"), InvalidInputError, "variance='other'"),
        (lambda: fit(method="other"), InvalidInputError, "method='other'"),
        (lambda: fit(algorithm="other"), InvalidInputError, "algorithm='other'.*decomposition"),
        (lambda: fit(refine=-1), InvalidInputError, "refine=-1"),
        (lambda: fit(n_jobs=0), InvalidInputError, "n_jobs=0"),
        (lambda: fit(method="views", refine=0), NotIdentifiableError, "3 x n_components"),
        (
            lambda: SphericalGaussianMixture(2, method="views").partial_fit(np.ones((5, 200))),
            InvalidInputError,
            "streams at most 128 features",
        ),
        (lambda: fit(data=GOOD * np.nan), InvalidInputError, "240 NaN"),
        (lambda: fit().intervals(GOOD, level=2), InvalidInputError, "level=2"),
        (lambda: fit().intervals(GOOD, n_groups=50), InvalidInputError, "at least 100 samples"),
        (lambda: fit().predict(GOOD[:, :2]), InvalidInputError, "expecting 4 features"),
        (lambda: fit().sample(0), InvalidInputError, "n_samples"),
        (
            lambda: SphericalGaussianMixture.from_sklearn(GaussianMixture(2).fit(GOOD)),
            InvalidInputError,
            "covariance_type='spherical'",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_one_component_more_than_features_is_read_off_with_a_common_variance(d, seed):
    rng = np.random.default_rng(seed)
    simplex = np.linalg.svd(np.eye(d + 1) - 1 / (d + 1))[0][:, :d] * 5
    data = simplex[rng.integers(0, d + 1, 20_000)] + rng.standard_normal((20_000, d))
    model = SphericalGaussianMixture(d + 1, variance="common", refine=0, random_state=0)
    found = model.fit(data)
    assert np.abs(found.means_[matched(found.means_, simplex)] - simplex).max() < 0.15
    assert np.abs(found.covariances_ - 1).max() < 0.1
    assert found.certificate_.gap > 1
    two = simplex[rng.integers(0, d, 20_000)] + rng.standard_normal((20_000, d))
    try:
        verdict = model.fit(two).certificate_.verdict
    except NotIdentifiableError:
        verdict = "refused"
    assert verdict != "stable"
