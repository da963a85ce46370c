import doctest
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.mixture import GaussianMixture
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.arrays import library_name
from latensor.datasets.sources_mixed import make_pearson
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.mixtures import pearson
from latensor.models.mixtures.pearson import PearsonMixture

FITTED = ("weights_", "means_", "covariances_")
# Frequencies of 29 classes; W. F. R. Weldon's crabs, from Pearson (1894).
CRABS = np.array(
    [
        1,
        3,
        5,
        2,
        7,
        10,
        13,
        19,
        20,
        25,
        40,
        31,
        60,
        62,
        54,
        74,
        84,
        86,
        96,
        85,
        75,
        47,
        43,
        24,
        19,
        9,
        5,
        0,
        1,
    ]
)


def expected_failures(estimator):
    line = "indexes X as a matrix, although the model asks for numbers on a line"
    wide = "gives X of several columns, the model lies on a line"
    return {
        "check_dont_overwrite_parameters": line,
        "check_n_features_in_after_fitting": line,
        "check_dtype_object": line,
        "check_f_contiguous_array_estimator": line,
        "check_methods_sample_order_invariance": line,
        "check_methods_subset_invariance": line,
        "check_fit2d_1sample": line,
        "check_fit2d_1feature": line,
        "check_dict_unchanged": line,
        "check_n_features_in": line,
        "check_fit2d_predict1d": line,
        "check_estimator_sparse_array": line,
        "check_sample_weights_shape": wide,
        "check_sample_weights_not_overwritten": wide,
        "check_sample_weight_equivalence_on_dense_data": wide,
        "check_estimators_nan_inf": wide,
    }


@parametrize_with_checks([PearsonMixture()], expected_failed_checks=expected_failures)
def test_the_estimator_contract(estimator, check):
    check(estimator)


def oracle(made):
    """EM started at the truth, to convergence."""
    return GaussianMixture(
        2,
        covariance_type="spherical",
        tol=1e-8,
        max_iter=2000,
        weights_init=made.weights,
        means_init=made.means,
        precisions_init=1 / made.variances,
    ).fit(made.samples)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("separation", "n"), [(1.2, 3000), (2.0, 1000), (4.0, 500)])
def test_it_reaches_the_likelihood_of_em_from_the_truth(separation, n, seed):
    made = make_pearson(n, separation=separation, random_state=seed)
    fresh, _ = made.draw(5000, random_state=1000 + seed)
    model = PearsonMixture(random_state=0).fit(made.samples)
    best = oracle(made)
    assert best.score(fresh) - model.score(fresh) < 1e-3
    assert best.score(made.samples) - model.score(made.samples) < 1e-3


@pytest.mark.parametrize("refine", [0, "auto"])
def test_the_error_falls_like_the_root_of_n(refine):
    errors = []
    for n in (2_000, 128_000):
        found = []
        for seed in range(8):
            made = make_pearson(n, separation=3, weight=0.4, ratio=0.7, random_state=seed)
            model = PearsonMixture(refine=refine, random_state=0).fit(made.samples)
            order = np.argsort(model.means_[:, 0])
            found.append(np.abs(model.means_[order] - made.means).max())
        errors.append(np.sqrt(np.mean(np.square(found))))
    # 64 times the samples: an eighth of the error, with room for chance.
    assert errors[1] < errors[0] / 4


def test_the_crabs_of_pearson():
    classes = np.arange(1, 30)
    assert CRABS.sum() == 1000
    moments = PearsonMixture(refine=0).fit(classes, sample_weight=CRABS)
    # Pearson's own figures, from hand-computed moments: 13.3 and 19.3, 0.415 and 0.585.
    assert moments.certificate_.n_roots == 2
    assert np.abs(moments.means_.ravel() - [19.3, 13.4]).max() < 0.1
    assert np.abs(moments.weights_ - [0.58, 0.42]).max() < 0.02
    refined = PearsonMixture().fit(classes, sample_weight=CRABS)
    # A published fit to the same table, in units of 0.004, has this log-likelihood.
    total = 1000 * (refined.lower_bound_ - np.log(0.004))
    assert total == pytest.approx(2567.577, abs=0.01)


def test_the_example_of_the_docstring():
    results = doctest.testmod(pearson, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.attempted >= 5
    assert results.failed == 0


@pytest.mark.parametrize("refine", [0, "auto"])
def test_streams_splits_and_merges_agree_with_fit(refine):
    made = make_pearson(3000, separation=3, random_state=1)
    whole = PearsonMixture(refine=refine, random_state=0).fit(made.samples)
    parts = np.split(made.samples, [1, 700, 2000])
    streamed = PearsonMixture(refine=refine, random_state=0)
    for part in parts:
        streamed.partial_fit(part)
    left, right = (PearsonMixture(refine=refine, random_state=0) for _ in range(2))
    left.partial_fit(parts[0]).partial_fit(parts[1])
    right.partial_fit(parts[2]).partial_fit(parts[3])
    before = pickle.dumps(right)
    merged = left.merge(right)
    assert pickle.dumps(right) == before
    assert merged.spawn().partial_fit(parts[1])._has_started()
    bound = 1e-7 if refine == 0 else 1e-4
    for other in (streamed, merged, pickle.loads(pickle.dumps(merged))):
        for name in FITTED:
            assert np.abs(getattr(other, name) - getattr(whole, name)).max() < bound, name


@pytest.mark.parametrize("refine", [0, "auto", 5])
def test_a_weight_is_a_repetition(refine):
    made = make_pearson(1500, separation=3, random_state=2)
    counts = np.random.default_rng(0).integers(0, 3, 1500)
    weighted = PearsonMixture(refine=refine).fit(made.samples, sample_weight=counts)
    repeated = PearsonMixture(refine=refine).fit(np.repeat(made.samples, counts, axis=0))
    for name in FITTED:
        assert np.abs(getattr(weighted, name) - getattr(repeated, name)).max() < 1e-6, name


def test_answers_are_those_of_scikit_learn():
    made = make_pearson(2000, separation=3, random_state=3)
    model = PearsonMixture(random_state=0).fit(made.samples)
    peer = model.to_sklearn()
    assert np.array_equal(model.predict(made.samples), peer.predict(made.samples))
    close = np.abs(model.predict_proba(made.samples) - peer.predict_proba(made.samples))
    assert close.max() < 1e-9
    assert model.score(made.samples) == pytest.approx(peer.score(made.samples), rel=1e-10)
    assert model.bic(made.samples) == pytest.approx(peer.bic(made.samples), rel=1e-10)
    back = PearsonMixture.from_sklearn(peer)
    assert np.array_equal(back.means_, model.means_)
    drawn, labels = model.sample(4000)
    assert drawn.shape == (4000, 1)
    assert np.bincount(labels) / 4000 == pytest.approx(model.weights_, abs=0.04)
    fraction = model.predict(made.samples) == np.argsort(np.argsort(-made.weights))[made.labels]
    assert fraction.mean() > 0.85


def test_a_line_may_come_in_many_shapes():
    made = make_pearson(800, separation=4, random_state=4)
    line = made.samples[:, 0]
    column = PearsonMixture(random_state=0).fit(made.samples)
    for shape in (line, list(line), tuple(line), pd.Series(line), pd.DataFrame({"x": line})):
        model = PearsonMixture(random_state=0).fit(shape)
        assert np.array_equal(model.means_, column.means_)
        assert np.array_equal(model.predict(shape), column.predict(made.samples))
    torch = pytest.importorskip("torch")
    model = PearsonMixture(random_state=0).fit(torch.asarray(line))
    assert library_name(model.predict_proba(torch.asarray(line))) == "torch"
    single = PearsonMixture(random_state=0).fit(line.astype(np.float32))
    assert single.means_.dtype == np.float32
    assert np.abs(single.means_ - column.means_).max() < 1e-3


def test_units_do_not_matter():
    made = make_pearson(2000, separation=2.5, random_state=5)
    plain = PearsonMixture(reg_covar=0).fit(made.samples)
    for factor, shift in ((1e4, 0.0), (1e-5, 3.0), (1.0, 1e4), (1e120, 0.0), (1e-120, 0.0)):
        moved = PearsonMixture(reg_covar=0).fit(factor * made.samples + shift)
        assert np.abs((moved.means_ - shift) / factor - plain.means_).max() < 1e-3
        assert np.abs(moved.weights_ - plain.weights_).max() < 1e-3


def test_equal_means_and_equal_variances():
    rng = np.random.default_rng(0)
    wide = np.where(rng.random(60_000) < 0.3, 3.0, 1.0) * rng.standard_normal(60_000)
    model = PearsonMixture(random_state=0).fit(wide)
    assert np.abs(np.sqrt(model.covariances_) - [1, 3]).max() < 0.1
    assert model.certificate_.verdict == "unstable"
    symmetric = rng.choice([-2.0, 2.0], 60_000) + rng.standard_normal(60_000)
    model = PearsonMixture(random_state=0).fit(symmetric)
    assert np.abs(np.sort(model.means_[:, 0]) - [-2, 2]).max() < 0.05
    assert np.abs(model.covariances_ - 1).max() < 0.06


def test_intervals_hold_the_truth():
    held, total = 0, 0
    for seed in range(8):
        made = make_pearson(4000, separation=4, weight=0.35, random_state=seed)
        model = PearsonMixture(random_state=0).fit(made.samples)
        found = model.intervals(made.samples, n_resamples=60)["means"]
        true = made.means[[1, 0]]
        held += int(((found.low <= true) & (true <= found.high)).sum())
        total += 2
    assert held / total >= 0.8


def test_the_same_seed_gives_the_same_bits_at_any_number_of_threads():
    made = make_pearson(40_000, separation=2, random_state=0)
    one = PearsonMixture(random_state=0, n_jobs=1).fit(made.samples)
    other = PearsonMixture(random_state=0, n_jobs=3).fit(made.samples)
    for name in FITTED:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name


def test_the_certificate_says_what_is_known():
    made = make_pearson(20_000, separation=4, random_state=0)
    found = PearsonMixture(random_state=0).fit(made.samples).certificate_
    assert found.n_roots >= 1
    assert found.verdict == "stable"
    assert found.separation > 2.5
    three = np.random.default_rng(0).choice([-9.0, 0.0, 9.0], 20_000)
    three += np.random.default_rng(1).standard_normal(20_000)
    odd = PearsonMixture(random_state=0).fit(three).certificate_
    assert odd.verdict != "stable"


def test_one_gaussian_is_not_trusted_to_be_two():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        found = PearsonMixture(random_state=0).fit(rng.standard_normal(5000)).certificate_
        assert found.gaussian_p_value > 1e-3
        assert found.verdict != "stable"
        assert "nothing in these samples asks for two" in " ".join(str(found).split())
    assert PearsonMixture(random_state=0).fit([0.0, 1.0, 5.0, 6.0]).certificate_.verdict != "stable"


def test_duplicates_and_few_samples_are_fitted():
    few = PearsonMixture(random_state=0).fit([0.0, 1.0, 5.0, 6.0])
    assert np.isfinite(few.score([0.0, 5.5]))
    twice = PearsonMixture(random_state=0).fit(np.repeat([0.0, 1.0, 5.0], 30))
    assert np.isfinite(twice.means_).all()


def test_the_input_is_left_alone():
    data = make_pearson(300, random_state=0).samples
    data.setflags(write=False)
    PearsonMixture(random_state=0).fit(data).predict(data)


LINE = make_pearson(60, separation=5, random_state=0).samples


@pytest.mark.parametrize(
    ("model", "data", "error", "text"),
    [
        (PearsonMixture(3), LINE, InvalidInputError, "n_components=3.*must be 2"),
        (PearsonMixture(refine=-1), LINE, InvalidInputError, "refine=-1"),
        (PearsonMixture(), np.hstack([LINE, LINE]), InvalidInputError, "2 features.*one column"),
        (PearsonMixture(), np.ones(5), NotIdentifiableError, "all 5 samples are equal"),
        (PearsonMixture(), np.full(5, 0.1), NotIdentifiableError, "all 5 samples are equal"),
        (PearsonMixture(), LINE[:1], InvalidInputError, "minimum of 2"),
        (PearsonMixture(), [1.0, np.nan, 2.0], InvalidInputError, "NaN|not finite|nan"),
        (PearsonMixture(), scipy.sparse.csr_array(LINE), InvalidInputError, "needs dense data"),
        (PearsonMixture(), 1e200 * LINE, InvalidInputError, "overflows"),
        (
            PearsonMixture(refine=0),
            make_pearson(1000, separation=2, random_state=9).samples,
            NotIdentifiableError,
            "no admissible root.*refine",
        ),
    ],
)
def test_bad_input_is_told(model, data, error, text):
    with pytest.raises(error, match=text):
        model.fit(data)


def test_a_bad_new_sample_is_told():
    model = PearsonMixture(random_state=0).fit(LINE)
    with pytest.raises(InvalidInputError, match="2 features"):
        model.predict(np.hstack([LINE, LINE]))
