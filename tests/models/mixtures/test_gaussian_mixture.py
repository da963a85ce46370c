"""GaussianMixture: the contract, recovery, starting values, unobserved entries, streams."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.mixture import GaussianMixture as Peer
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.datasets.mixtures import make_spherical_mixture
from latensor.exceptions import ConvergenceWarning, InvalidInputError, NotIdentifiableError
from latensor.models.mixtures.gaussian_starts import read_off_tied
from latensor.moments.third import ThirdMoment
from latensor.refinement.families.covariances import COVARIANCE_TYPES

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def planted(n=1200, seed=0):
    """Three clusters in three dimensions, of different shapes, four standard deviations apart."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    labels = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    scales = np.array([[1.0, 1.0, 1.0], [2.0, 0.3, 1.0], [0.4, 0.4, 0.4]])
    means = np.array([[0.0, 0.0, 0.0], [6.0, 4.0, 0.0], [-4.0, 3.0, 2.0]])
    rows = means[labels] + (rng.standard_normal((n, 3)) * scales[labels]) @ turn
    return rows, labels, means


ROWS, LABELS, MEANS = planted()


@parametrize_with_checks([lt.GaussianMixture(), lt.GaussianMixture(2, covariance_type="tied")])
def test_the_estimator_contract(estimator, check):
    check(estimator)


def hidden(rows, fraction, seed=5):
    mask = np.random.default_rng(seed).random(rows.shape) < fraction
    return np.where(mask, np.nan, rows)


@KINDS
def test_the_optimum_is_that_of_many_starts_of_scikit_learn(kind):
    model = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(ROWS)
    peer = Peer(3, covariance_type=kind, n_init=5, tol=1e-7, max_iter=500, random_state=0).fit(ROWS)
    assert model.converged_
    assert model.score(ROWS) > peer.score(ROWS) - 1e-5
    assert model.lower_bound_ == pytest.approx(model.score(ROWS), abs=1e-9)
    assert model.covariances_.shape == peer.covariances_.shape
    assert model.precisions_cholesky_.shape == peer.precisions_cholesky_.shape


@KINDS
def test_given_parameters_answer_as_scikit_learn_does(kind):
    peer = Peer(3, covariance_type=kind, random_state=0).fit(ROWS)
    model = lt.GaussianMixture.from_sklearn(peer)
    np.testing.assert_allclose(model.score_samples(ROWS), peer.score_samples(ROWS), atol=1e-10)
    np.testing.assert_allclose(model.predict_proba(ROWS), peer.predict_proba(ROWS), atol=1e-10)
    assert model.bic(ROWS) == pytest.approx(peer.bic(ROWS), rel=1e-12)
    assert model.aic(ROWS) == pytest.approx(peer.aic(ROWS), rel=1e-12)
    np.testing.assert_allclose(model.precisions_, peer.precisions_, rtol=1e-8, atol=1e-10)
    back = model.to_sklearn()
    np.testing.assert_allclose(back.score_samples(ROWS), peer.score_samples(ROWS), atol=1e-10)


@KINDS
def test_an_affine_map_of_the_data_is_one_of_the_answer(kind):
    rng = np.random.default_rng(2)
    turn = {
        "full": rng.standard_normal((3, 3)),
        "tied": rng.standard_normal((3, 3)),
        "diag": np.diag([1e-3, 1.0, 1e4]),
        "spherical": 1e-3 * np.linalg.qr(rng.standard_normal((3, 3)))[0],
    }[kind]
    settings = {"covariance_type": kind, "reg_covar": 0.0, "random_state": 0, "tol": 1e-9}
    one = lt.GaussianMixture(3, **settings).fit(ROWS)
    two = lt.GaussianMixture(3, **settings).fit(ROWS @ turn + 50)
    volume = np.log(abs(np.linalg.det(turn)))
    assert two.score(ROWS @ turn + 50) + volume == pytest.approx(one.score(ROWS), abs=1e-6)
    bound = 1e-3 * np.abs(ROWS @ turn).max()
    np.testing.assert_allclose(two.means_, one.means_ @ turn + 50, atol=bound)


@KINDS
def test_a_start_at_the_truth_gives_the_oracle(kind):
    peer = Peer(3, covariance_type=kind, means_init=MEANS, tol=1e-8, max_iter=500).fit(ROWS)
    shapes = {"full": (3, 3, 3), "tied": (3, 3), "diag": (3, 3), "spherical": (3,)}
    eye = np.eye(3) if kind in ("full", "tied") else 1.0
    model = lt.GaussianMixture(
        3,
        covariance_type=kind,
        weights_init=[0.5, 0.3, 0.2],
        means_init=MEANS,
        precisions_init=np.broadcast_to(eye, shapes[kind]),
        tol=1e-8,
    ).fit(ROWS)
    assert model.certificate_.method == "given + EM"
    assert model.score(ROWS) == pytest.approx(peer.score(ROWS), abs=1e-6)
    only = lt.GaussianMixture(3, covariance_type=kind, means_init=MEANS, tol=1e-8).fit(ROWS)
    assert only.score(ROWS) == pytest.approx(peer.score(ROWS), abs=1e-6)


@pytest.mark.parametrize("start", ["kmeans", "k-means++", "random_from_data", "random", "moments"])
def test_named_starts(start):
    rows = np.hstack([ROWS, np.random.default_rng(0).standard_normal((len(ROWS), 4))])
    model = lt.GaussianMixture(3, init_params=start, n_init=2, random_state=0, max_iter=500)
    best = lt.GaussianMixture(3, random_state=0).fit(rows)
    model.fit(rows)
    assert model.score(rows) > best.score(rows) - (2.0 if start.startswith("random") else 0.5)


def test_the_third_central_moment_of_tied_covariances():
    """The population moment of five means in any common covariance gives them back."""
    rng = np.random.default_rng(0)
    means, weights = rng.standard_normal((5, 4)), rng.dirichlet(np.full(5, 5.0))
    root = rng.standard_normal((4, 4))
    within = root @ root.T
    mean = weights @ means
    gaps = means - mean
    third = np.einsum("j,ja,jb,jc->abc", weights, gaps, gaps, gaps)
    covariance = within + (gaps.T * weights) @ gaps
    moment = ThirdMoment(100, 100.0, mean, covariance, np.eye(4), third, np.zeros(4))
    found = read_off_tied(moment, 5, rng)
    order = np.argmin(((means[:, None] - found.means[None]) ** 2).sum(axis=2), axis=1)
    np.testing.assert_allclose(found.means[order], means, atol=1e-6)
    np.testing.assert_allclose(found.weights[order], weights, atol=1e-6)
    np.testing.assert_allclose(found.covariances, within, atol=1e-6)


def test_moments_alone_refuse_what_they_do_not_determine():
    with pytest.raises(NotIdentifiableError, match="init_params"):
        lt.GaussianMixture(6, init_params="moments").fit(ROWS)


@KINDS
def test_exact_em_on_unobserved_entries_is_near_that_on_all(kind):
    whole = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(ROWS)
    part = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(hidden(ROWS, 0.2))
    assert whole.score(ROWS) - part.score(ROWS) < 0.03
    assert part.certificate_.n_patterns == 8
    assert part.certificate_.missing == pytest.approx(0.2, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 9])
def test_half_of_the_entries_lead_to_an_optimum_as_likely_as_that_of_the_truth(seed):
    # A single search ended .009 and .013 nat per row below, and was called stable. Seeds are those
    # of ten on which it was worst; seed 2, .008 below then, still ends .005 below.
    rng = np.random.default_rng(seed)
    turns = np.linalg.qr(rng.standard_normal((5, 8, 8)))[0]
    roots = turns * np.geomspace(0.1, 10, 8) ** 0.25
    means = 1.2 * rng.standard_normal((5, 8))
    weights = rng.dirichlet(np.full(5, 4.0))
    labels = rng.choice(5, 3000, p=weights)
    rows = means[labels] + np.einsum("nij,nj->ni", roots[labels], rng.standard_normal((3000, 8)))
    part = np.where(rng.random(rows.shape) < 0.5, np.nan, rows)
    precisions = np.linalg.inv(roots @ roots.transpose(0, 2, 1))
    truth = lt.GaussianMixture(
        5, weights_init=weights, means_init=means, precisions_init=precisions, max_iter=1000
    ).fit(part)
    model = lt.GaussianMixture(5, random_state=seed).fit(part)
    assert model.score(part) > truth.score(part) - 1e-3


@KINDS
def test_a_fit_without_missing_entries_is_that_of_the_path_for_them(kind):
    """One more row without any observed entry says nothing, but takes the other path."""
    one = lt.GaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-9).fit(ROWS)
    more = np.vstack([ROWS, np.full((1, 3), np.nan)])
    two = lt.GaussianMixture(3, covariance_type=kind, random_state=0, tol=1e-9).fit(more)
    assert two.score(ROWS) == pytest.approx(one.score(ROWS), abs=1e-6)
    np.testing.assert_allclose(two.means_, one.means_, atol=1e-2)


def test_imputed_entries_are_conditional_means():
    model = lt.GaussianMixture(1, reg_covar=0.0).fit(ROWS)
    rows = ROWS[:5].copy()
    rows[:, 1] = np.nan
    cov, mean, seen = model.covariances_[0], model.means_[0], [0, 2]
    slope = np.linalg.solve(cov[np.ix_(seen, seen)], cov[seen, 1])
    filled = model.impute(rows)
    np.testing.assert_allclose(filled[:, 1], mean[1] + (rows[:, seen] - mean[seen]) @ slope)
    np.testing.assert_array_equal(filled[:, seen], rows[:, seen])
    np.testing.assert_array_equal(model.impute(ROWS[:5]), ROWS[:5])


@KINDS
def test_answers_for_unobserved_entries_do_not_need_them_in_the_fit(kind):
    model = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(ROWS)
    rows = hidden(ROWS[:50], 0.5)
    rows[0] = np.nan
    chances = model.predict_proba(rows)
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    np.testing.assert_allclose(chances[0], model.weights_, rtol=1e-10)
    assert model.score_samples(rows)[0] == pytest.approx(0.0, abs=1e-12)


@KINDS
def test_weights_are_repetitions(kind):
    weights = np.random.default_rng(0).integers(0, 3, len(ROWS))
    settings = {"covariance_type": kind, "random_state": 0, "tol": 1e-9}
    one = lt.GaussianMixture(3, **settings).fit(ROWS, sample_weight=weights)
    two = lt.GaussianMixture(3, **settings).fit(np.repeat(ROWS, weights, axis=0))
    np.testing.assert_allclose(one.means_, two.means_, atol=1e-4)
    assert one.lower_bound_ == pytest.approx(two.lower_bound_, abs=1e-7)


@KINDS
def test_batches_streams_and_threads(kind):
    settings = {"covariance_type": kind, "random_state": 0}
    whole = lt.GaussianMixture(3, **settings, n_jobs=1).fit(ROWS)
    for other in (
        lt.GaussianMixture(3, **settings, n_jobs=3).fit(ROWS),
        lt.GaussianMixture(3, **settings).fit([ROWS[:500], ROWS[500:]]),
        pickle.loads(pickle.dumps(whole)),
    ):
        np.testing.assert_array_equal(other.means_, whole.means_)
        np.testing.assert_array_equal(other.covariances_, whole.covariances_)
    stream = lt.GaussianMixture(3, **settings).partial_fit(ROWS[:700]).partial_fit(ROWS[700:])
    assert stream.score(ROWS) == pytest.approx(whole.score(ROWS), abs=1e-5)
    one = lt.GaussianMixture(3, **settings).partial_fit(ROWS[:700])
    one.merge(lt.GaussianMixture(3, **settings).partial_fit(ROWS[700:]))
    assert one.score(ROWS) == pytest.approx(whole.score(ROWS), abs=1e-5)


@KINDS
@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_more_rows_than_the_sample_are_fitted_as_well(kind, fraction, monkeypatch):
    """Corrected EM over a source: the optimum of all rows, not of the sample."""
    rows = hidden(planted(6000, 1)[0], fraction)
    whole = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(rows)
    monkeypatch.setattr(lt.GaussianMixture, "_row_limit", 2000)
    monkeypatch.setattr("latensor.models.mixtures.gaussian_model.GaussianModel.search_size", 2000)
    few = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(
        [rows[:2500], rows[2500:]]
    )
    assert few.lower_bound_ > whole.lower_bound_ - 5e-5


def test_single_precision_stays_single():
    model = lt.GaussianMixture(3, random_state=0).fit(ROWS.astype(np.float32))
    whole = lt.GaussianMixture(3, random_state=0).fit(ROWS)
    assert model.means_.dtype == model.covariances_.dtype == np.float32
    np.testing.assert_allclose(model.means_, whole.means_, atol=1e-4)
    assert model.predict_proba(ROWS.astype(np.float32)).dtype == np.float32


def test_one_component_is_the_covariance():
    model = lt.GaussianMixture(reg_covar=0.0).fit(ROWS)
    np.testing.assert_allclose(model.means_[0], ROWS.mean(axis=0), atol=1e-10)
    np.testing.assert_allclose(model.covariances_[0], np.cov(ROWS.T, bias=True), rtol=1e-8)


def test_a_warm_start_goes_on():
    model = lt.GaussianMixture(3, random_state=0, warm_start=True, max_iter=1, init_params="random")
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.fit(ROWS)
    first = model.lower_bound_
    for _ in range(5):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(ROWS)
    assert model.lower_bound_ > first
    assert model.certificate_.method == "given + EM"


def test_no_pass_keeps_the_starting_values():
    shapes = np.stack([np.eye(3), 2 * np.eye(3), np.eye(3)])
    model = lt.GaussianMixture(
        3, weights_init=[0.5, 0.3, 0.2], means_init=MEANS, precisions_init=shapes, max_iter=0
    )
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.fit(ROWS)
    np.testing.assert_allclose(model.means_, MEANS, atol=1e-10)
    np.testing.assert_allclose(model.precisions_, shapes, atol=1e-9)


@pytest.mark.parametrize("max_iter", [0, 500])
def test_components_keep_the_order_of_their_starting_means(max_iter):
    order = [2, 0, 1]
    model = lt.GaussianMixture(3, means_init=MEANS[order], max_iter=max_iter, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(ROWS)
    nearest = np.square(model.means_[:, None] - MEANS[order]).sum(axis=2).argmin(axis=1)
    assert nearest.tolist() == [0, 1, 2]
    assert np.all(np.diff(lt.GaussianMixture(3, random_state=0).fit(ROWS).weights_) <= 0)
    if max_iter:
        found = model.intervals(ROWS, n_resamples=20, n_groups=10)["means"]
        assert ((found.low <= model.means_) & (model.means_ <= found.high)).all()
        streamed = lt.GaussianMixture(3, means_init=MEANS[order], random_state=0)
        streamed.partial_fit(ROWS[::2]).partial_fit(ROWS[1::2])
        np.testing.assert_allclose(streamed.means_, model.means_, atol=0.2)


def test_samples_and_sampling():
    model = lt.GaussianMixture(3, random_state=0).fit(ROWS)
    rows, labels = model.sample(4000, random_state=1)
    again = model.sample(4000, random_state=1)[0]
    np.testing.assert_array_equal(rows, again)
    assert (np.diff(labels) >= 0).all()
    for j in range(3):
        drawn, planted = rows[labels == j], model.covariances_[j]
        # Five standard errors of each entry, as Wishart has them.
        squares = np.outer(np.diag(planted), np.diag(planted)) + planted**2
        off = np.abs(np.cov(drawn.T) - planted)
        assert (off < 5 * np.sqrt(squares / len(drawn))).all()


def test_collapse_and_small_samples_are_told():
    model = lt.GaussianMixture(5, random_state=0).fit(ROWS[:60])
    words = str(model.certificate_)
    assert "Sample size" in words
    assert model.certificate_.verdict != "stable"


def test_verbose_prints_passes(capsys):
    lt.GaussianMixture(2, verbose=1, random_state=0).fit(ROWS)
    assert "pass 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"n_components": 0}, "n_components"),
        ({"covariance_type": "round"}, "covariance_type"),
        ({"n_init": 0}, "n_init"),
        ({"init_params": "best"}, "init_params"),
        ({"weights_init": [0.5, 0.4]}, "sum to 1"),
        ({"weights_init": [1.0]}, "shape"),
        ({"means_init": np.zeros((2, 2))}, "means_init"),
        ({"means_init": np.full((2, 3), np.nan)}, "finite"),
        ({"precisions_init": np.zeros((2, 3, 3))}, "positive-definite"),
        ({"precisions_init": -np.ones((2, 3)), "covariance_type": "diag"}, "positive"),
        ({"n_components": 2000}, "n_samples"),
    ],
)
def test_bad_settings_are_named(settings, words):
    with pytest.raises(InvalidInputError, match=words):
        lt.GaussianMixture(**{"n_components": 2, **settings}).fit(ROWS)


def test_bad_entries_are_named():
    rows = ROWS.copy()
    rows[3, 1] = np.inf
    with pytest.raises(InvalidInputError, match="infinit"):
        lt.GaussianMixture(2).fit(rows)
    rows[:, 1] = np.nan
    with pytest.raises(InvalidInputError, match="column 1"):
        lt.GaussianMixture(2).fit(rows)
    with pytest.raises(InvalidInputError, match="distinct"):
        lt.GaussianMixture(3).fit(np.repeat(ROWS[:2], 20, axis=0))


def test_intervals_have_the_shapes_of_the_parameters():
    model = clone(lt.GaussianMixture(3, random_state=0)).fit(ROWS)
    found = model.intervals(ROWS)
    for name in ("weights", "means", "covariances"):
        value = getattr(model, f"{name}_")
        assert found[name].low.shape == value.shape
        assert ((found[name].low <= value) & (value <= found[name].high)).mean() > 0.9


def test_a_saved_model_answers_and_goes_on(tmp_path):
    model = lt.GaussianMixture(3, random_state=0).fit(hidden(ROWS, 0.1))
    model.save(tmp_path / "model.npz", resumable=True)
    loaded = lt.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.predict_proba(ROWS), model.predict_proba(ROWS))
    assert str(loaded.certificate_) == str(model.certificate_)
    more = hidden(planted(300, 7)[0], 0.1)
    np.testing.assert_allclose(
        loaded.partial_fit(more).means_, model.partial_fit(more).means_, atol=1e-10
    )


def test_warm_starts_of_single_passes_converge_together():
    samples = make_spherical_mixture(400, 3, 3, separation=4, random_state=0).samples
    model = lt.GaussianMixture(3, max_iter=1, warm_start=True, tol=1e-4, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(samples)
    assert not model.converged_
    assert len(model.lower_bounds_) == model.n_iter_ == 1
    for _ in range(60):
        if model.converged_:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(samples)
    assert model.converged_


@pytest.mark.parametrize(
    "model",
    [lt.GaussianMixture(2), lt.SphericalGaussianMixture(2), lt.DiagonalGaussianMixture(2)],
    ids=lambda m: type(m).__name__,
)
def test_a_weight_beside_which_others_vanish_is_named(model):
    samples = np.random.default_rng(0).standard_normal((50, 3))
    weights = np.ones(50)
    weights[7] = 1e100
    with pytest.raises(InvalidInputError, match=r"sample_weight\[7\] is 1e\+100, beside which"):
        model.fit(samples, sample_weight=weights)


@pytest.mark.parametrize(
    "model",
    [lt.GaussianMixture(3), lt.SphericalGaussianMixture(3), lt.DiagonalGaussianMixture(3)],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("scale", [1e-10, 1e10])
def test_units_do_not_matter(model, scale):
    samples = make_spherical_mixture(600, 4, 3, separation=6, random_state=0).samples
    model.set_params(random_state=0)
    known, found = model.fit(samples).means_, model.fit(samples * scale).means_
    np.testing.assert_allclose(found / scale, known, atol=1e-2)


def test_models_of_other_settings_or_names_are_not_merged():
    rows = np.random.default_rng(0).standard_normal((60, 2))
    one = lt.GaussianMixture(2, random_state=0).partial_fit(rows)
    other = lt.GaussianMixture(2, covariance_type="diag", random_state=0).partial_fit(rows)
    with pytest.raises(InvalidInputError, match="covariance_type='diag'"):
        one.merge(other)
    frames = [pd.DataFrame(rows, columns=names) for names in (["a", "b"], ["a", "c"])]
    first, second = (lt.GaussianMixture(2, random_state=0).partial_fit(frame) for frame in frames)
    with pytest.raises(InvalidInputError, match="feature 1 of other is 'c'"):
        first.merge(second)
    assert (
        first.merge(lt.GaussianMixture(2, random_state=1).partial_fit(frames[0])).n_components_ == 2
    )
