"""What hidden Markov models promise their users: hmmlearn's interface, streams, errors."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm, stationary_distribution
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM

SYMBOLS = make_hmm(6_000, 6, 3, n_sequences=10, stay=0.7, concentration=0.3, random_state=0)
POINTS = make_gaussian_hmm(
    4_000, 2, 3, n_sequences=8, stay=0.7, means=[[0, 0], [5, 0], [0, 6]], random_state=1
)
NAMES = {
    CategoricalHMM: ("startprob_", "transmat_", "emissionprob_"),
    GaussianHMM: ("startprob_", "transmat_", "means_", "covariances_"),
}
CASES = [
    (CategoricalHMM, SYMBOLS, {"n_features": 6}),
    *((GaussianHMM, POINTS, {"covariance_type": kind}) for kind in ("spherical", "diag")),
    *((GaussianHMM, POINTS, {"covariance_type": kind}) for kind in ("full", "tied")),
]
IDS = ["categorical", "spherical", "diag", "full", "tied"]


def agree(one, other, bound=0.0):
    for name in NAMES[type(one)]:
        assert np.abs(getattr(one, name) - getattr(other, name)).max() <= bound, name


LENGTHS = "the second argument is `lengths`, as in hmmlearn: sequences have lengths, not targets"
ROWS = "the weights of a chain belong to its sequences, not to its rows"
ORDER = "a state depends on the rows before and after it"
EXPECTED = {
    "check_fit_score_takes_y": LENGTHS,
    "check_n_features_in_after_fitting": LENGTHS,
    "check_all_zero_sample_weights_error": ROWS,
    "check_methods_subset_invariance": ORDER,
    "check_methods_sample_order_invariance": ORDER,
    "check_sample_weights_pandas_series": ROWS,
    "check_sample_weights_not_an_array": ROWS,
    "check_sample_weights_not_overwritten": ROWS,
    "check_sample_weights_shape": ROWS,
    "check_sample_weight_equivalence_on_dense_data": ROWS,
    "check_sample_weight_equivalence": ROWS,
}
COLUMN = "the check needs several columns: symbols are one"
EXPECTED_OF_SYMBOLS = EXPECTED | dict.fromkeys(
    (
        "check_dont_overwrite_parameters",
        "check_n_features_in_after_fitting",
        "check_dtype_object",
        "check_estimators_empty_data_messages",
        "check_estimators_nan_inf",
        "check_estimator_sparse_array",
        "check_f_contiguous_array_estimator",
        "check_fit2d_1sample",
        "check_fit2d_1feature",
        "check_dict_unchanged",
        "check_n_features_in",
        "check_fit2d_predict1d",
    ),
    COLUMN,
)


@parametrize_with_checks(
    [GaussianHMM(), GaussianHMM(2, "full", random_state=0), CategoricalHMM()],
    expected_failed_checks=lambda estimator: (
        EXPECTED_OF_SYMBOLS if isinstance(estimator, CategoricalHMM) else EXPECTED
    ),
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("model, data, settings", CASES, ids=IDS)
def test_answers_are_those_of_hmmlearn(model, data, settings):
    pytest.importorskip("hmmlearn")
    ours = model(3, random_state=0, **settings).fit(data.X, data.lengths)
    peer = ours.to_hmmlearn()
    X, lengths = data.X[:1500], [600, 500, 400]
    assert ours.score(X, lengths) == pytest.approx(peer.score(X, lengths), rel=1e-9)
    value, posteriors = ours.score_samples(X, lengths)
    expected, theirs = peer.score_samples(X, lengths)
    assert value == pytest.approx(expected, rel=1e-9)
    assert np.abs(posteriors - theirs).max() < 1e-8
    for algorithm in ("viterbi", "map"):
        value, states = ours.decode(X, lengths, algorithm)
        expected, theirs = peer.decode(X, lengths, algorithm)
        assert value == pytest.approx(expected, rel=1e-9)
        assert (states == theirs).all()
    assert (ours.predict(X, lengths) == peer.predict(X, lengths)).all()
    assert np.abs(ours.predict_proba(X) - peer.predict_proba(X)).max() < 1e-8
    assert ours.aic(X, lengths) == pytest.approx(peer.aic(X, lengths), rel=1e-9)
    assert ours.bic(X, lengths) == pytest.approx(peer.bic(X, lengths), rel=1e-9)
    fraction = ours.get_stationary_distribution()
    assert np.abs(fraction - peer.get_stationary_distribution()).max() < 1e-8
    if model is GaussianHMM:
        assert np.abs(ours.covars_ - peer.covars_).max() < 1e-12
    back = model.from_hmmlearn(peer)
    agree(ours, back)
    assert back.score(X, lengths) == ours.score(X, lengths)


@pytest.mark.parametrize("model, data, settings", CASES, ids=IDS)
def test_fits_are_valid_ordered_repeatable_and_picklable(model, data, settings):
    ours = model(3, random_state=0, **settings).fit(data.X, data.lengths)
    for name in ("startprob_", "transmat_"):
        assert np.abs(getattr(ours, name).sum(axis=-1) - 1).max() < 1e-12
    fraction = ours.get_stationary_distribution()
    assert (np.diff(fraction) <= 1e-9).all()
    assert np.abs(fraction @ ours.transmat_ - fraction).max() < 1e-10
    agree(ours, clone(ours).fit(data.X, data.lengths))
    agree(ours, clone(ours).set_params(n_jobs=3).fit(data.X, data.lengths))
    agree(ours, pickle.loads(pickle.dumps(ours)))
    assert ours.converged_
    assert ours.n_iter_ == len(ours.history_) > 0
    assert ours.certificate_.verdict in ("stable", "uncertain")
    assert "states" in str(ours.certificate_)
    assert ours.certificate_.to_dict()["n_rows"] == len(data.X)


@pytest.mark.parametrize("model, data, settings", CASES[:3], ids=IDS[:3])
@pytest.mark.parametrize("refine", [0, "auto"])
def test_streams_merge_exactly_whatever_the_split(model, data, settings, refine):
    make = lambda: model(3, refine=refine, random_state=0, **settings)  # noqa: E731
    ends = np.cumsum(data.lengths)
    first, second, third = ((0, 4), (4, 6), (6, len(ends)))

    def part(bounds):
        a, b = bounds
        begin = 0 if a == 0 else ends[a - 1]
        return data.X[begin : ends[b - 1]], data.lengths[a:b]

    stream = make().partial_fit(*part(first))
    stream.spawn()  # fixes the coordinates
    for bounds in (second, third):
        stream.partial_fit(*part(bounds))
    one = make().partial_fit(*part(first))
    two = one.spawn().partial_fit(*part(third))
    three = one.spawn().partial_fit(*part(second))
    merged = one.merge(two).merge(pickle.loads(pickle.dumps(three)))
    agree(stream, merged, 1e-6)
    assert stream.certificate_.n_rows == len(data.X)
    whole = model(3, random_state=0, **settings).fit(data.X, data.lengths)
    loss = (whole.score(data.X, data.lengths) - stream.score(data.X, data.lengths)) / len(data.X)
    assert loss < (0.2 if refine == 0 else 1e-3)


def test_a_stream_goes_on_after_fit():
    X, lengths = SYMBOLS.X, SYMBOLS.lengths
    cut = int(lengths[:5].sum())
    model = CategoricalHMM(3, n_features=6, random_state=0).fit(X[:cut], lengths[:5])
    model.partial_fit(X[cut:], lengths[5:])
    assert model.certificate_.n_rows == len(X)
    # All rows refine it (B4): the stream is as good as a fit to all of them.
    whole = CategoricalHMM(3, n_features=6, random_state=0).fit(X, lengths)
    assert model.n_iter_ > 0
    assert whole.score(X, lengths) - model.score(X, lengths) < 0.1
    model.fit(X, lengths)
    agree(model, whole)


@pytest.mark.parametrize("refine", [0, 1, 7])
def test_refine_is_the_number_of_passes(refine):
    model = CategoricalHMM(3, refine=refine, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    assert model.n_iter_ == refine
    assert (model.converged_ is None) == (refine == 0)


def test_every_way_of_giving_symbols_is_the_same():
    base = CategoricalHMM(3, refine=2, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    column = SYMBOLS.X[:, 0]
    for X in (
        column,
        column.tolist(),
        SYMBOLS.X.astype(np.float32),
        column.astype(np.uint8),
        pd.DataFrame({"symbol": column}),
        pytest.importorskip("torch").asarray(SYMBOLS.X),
    ):
        agree(base, CategoricalHMM(3, refine=2, random_state=0).fit(X, SYMBOLS.lengths.tolist()))


def test_float32_points_and_torch_are_read():
    base = GaussianHMM(3, refine=2, random_state=0).fit(POINTS.X, POINTS.lengths)
    for X in (POINTS.X.astype(np.float32), pytest.importorskip("torch").asarray(POINTS.X)):
        agree(base, GaussianHMM(3, refine=2, random_state=0).fit(X, POINTS.lengths), 1e-3)


def test_read_only_input_stays_as_it_is():
    for model, data in ((CategoricalHMM(2), SYMBOLS), (GaussianHMM(2), POINTS)):
        X, lengths = data.X[:300].copy(), np.array([100, 200])
        before = X.copy()
        X.setflags(write=False)
        model.set_params(random_state=0, refine=2).fit(X, lengths).predict(X)
        assert np.array_equal(X, before)


def test_one_state_and_samples():
    model = CategoricalHMM(1, refine=0).fit(SYMBOLS.X)
    frequency = np.bincount(SYMBOLS.X[1:-1, 0], minlength=6) / (len(SYMBOLS.X) - 2)
    assert np.abs(model.emissionprob_[0] - frequency).max() < 1e-5
    model = CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    X, states = model.sample(30_000, random_state=1)
    assert X.shape == (30_000, 1)
    counts = np.zeros((3, 3))
    np.add.at(counts, (states[:-1], states[1:]), 1)
    assert np.abs(counts / counts.sum(axis=1)[:, None] - model.transmat_).max() < 0.03
    assert (model.sample(5, random_state=1)[0] == model.sample(5, random_state=1)[0]).all()
    assert model.sample(4, random_state=2, currstate=2)[1][0] == 2
    for wrong in (0, 2.5, "4", None, True):
        with pytest.raises(InvalidInputError, match="n_samples="):
            model.sample(wrong)
    points = GaussianHMM(3, "tied", random_state=0).fit(POINTS.X, POINTS.lengths)
    X, states = points.sample(20_000, random_state=3)
    assert np.abs(X[states == 0].mean(axis=0) - points.means_[0]).max() < 0.1


def test_one_sequence_leaves_every_start_possible():
    model = CategoricalHMM(3, random_state=0).fit(SYMBOLS.X[:600])
    assert (model.startprob_ > 0.01 * model.get_stationary_distribution()).all()


def test_more_states_than_symbols_are_left_to_random_starts():
    model = CategoricalHMM(4, random_state=0).fit(SYMBOLS.X % 2, SYMBOLS.lengths)
    assert model.certificate_.start.startswith("random")
    assert "only random starts" in str(model.certificate_)
    assert np.isfinite(model.score(SYMBOLS.X % 2))


@pytest.mark.parametrize(
    "X",
    [
        np.full((60, 2), 7.0),
        np.c_[np.arange(60.0), np.full(60, 4.0)],
        np.repeat([[0.0, 1.0], [2.0, 3.0]], 30, axis=0),
    ],
    ids=["constant", "constant column", "duplicates"],
)
@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "tied"])
def test_degenerate_points_give_finite_models(X, kind):
    model = GaussianHMM(2, kind, random_state=0).fit(X)
    assert np.isfinite(model.score(X))
    assert np.isfinite(model.covars_).all()


@pytest.mark.parametrize("k", [1, 2])
def test_a_symbol_that_was_not_seen_is_not_impossible(k):
    model = CategoricalHMM(k, n_features=9, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    # The three of them share one row in every state.
    rows = len(SYMBOLS.X) * model.get_stationary_distribution()
    expected = 1 / (3 * (rows + 1))
    assert np.abs(model.emissionprob_[:, 6:] / expected[:, None] - 1).max() < 0.1
    assert -15 < model.score([6, 0, 1]) < -5
    # With parameters set by hand zeros are zeros.
    model.emissionprob_ = np.eye(9)[:k]
    assert model.score([6, 0, 1]) == -np.inf


RNG = np.random.default_rng(5)
NOISE = RNG.integers(0, 4, 500)
GOOD = RNG.standard_normal((60, 2))


def test_sequences_that_a_model_calls_impossible_are_named_and_never_nan():
    """Disjoint symbols: state 0 gives 0 and 1, state 1 gives 2 and 3, and neither is left."""
    model = CategoricalHMM(2)
    model.startprob_, model.transmat_ = np.array([0.5, 0.5]), np.eye(2)
    model.emissionprob_ = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.5, 0.5]])
    symbols, lengths = np.array([[0], [1], [0], [1], [2], [3]]), [2, 4]
    assert model.score(symbols[:2]) == pytest.approx(np.log(0.5**3))
    assert model.score(symbols, lengths) == -np.inf
    with pytest.warns(UserWarning, match="1 of 2 sequences, the first of them number 1, have"):
        probabilities = model.predict_proba(symbols, lengths)
    # Cut before symbol 2, of which nothing else is known than that the next is 3.
    assert (probabilities == np.eye(2)[[0, 0, 0, 0, 1, 1]]).all()
    with pytest.warns(UserWarning, match="probability zero"):
        assert model.predict(symbols, lengths).shape == (6,)


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda: CategoricalHMM(2).fit(NOISE, [100, 200]), InvalidInputError, "sum to 300.*500"),
        (lambda: CategoricalHMM(2).fit(NOISE, [250.5, 249.5]), InvalidInputError, "integers"),
        (lambda: CategoricalHMM(2).fit(NOISE, [600, -100]), InvalidInputError, "at least 1"),
        (lambda: CategoricalHMM(2).fit(NOISE, []), InvalidInputError, "lengths must be a list"),
        (lambda: CategoricalHMM(2).fit(NOISE, [[500]]), InvalidInputError, "lengths must be"),
        (
            lambda: CategoricalHMM(2, n_features=3).fit(NOISE),
            InvalidInputError,
            r"symbol 3, outside of 0\.\.2.*n_features",
        ),
        (lambda: CategoricalHMM(2).fit(NOISE - 1), InvalidInputError, "symbol -1, outside"),
        (lambda: CategoricalHMM(2).fit(NOISE + 0.5), InvalidInputError, r"500 fractional.*\.5"),
        (
            lambda: CategoricalHMM(2).fit(np.where(NOISE == 1, np.inf, NOISE)),
            InvalidInputError,
            "infinite entries of 500",
        ),
        (lambda: CategoricalHMM(2).fit(list("abcd")), InvalidInputError, "number the symbols"),
        (lambda: CategoricalHMM(2).fit(GOOD), InvalidInputError, r"one column.*\(60, 2\)"),
        (lambda: CategoricalHMM(2).fit([]), InvalidInputError, "0 sample"),
        (
            lambda: CategoricalHMM(2).fit(NOISE).predict([0, 9, 1]),
            InvalidInputError,
            "symbol 9, outside",
        ),
        (
            lambda: CategoricalHMM(9).fit([0, 1, 2, 1, 0]),
            InvalidInputError,
            "n_samples=5 should be at least n_components=9",
        ),
        (lambda: CategoricalHMM(0).fit(NOISE), InvalidInputError, "n_components=0"),
        (lambda: CategoricalHMM(2, views="far").fit(NOISE), InvalidInputError, "views='far'"),
        (lambda: CategoricalHMM(2, refine=-1).fit(NOISE), InvalidInputError, "refine=-1"),
        (lambda: CategoricalHMM(2, n_jobs=0).fit(NOISE), InvalidInputError, "n_jobs=0"),
        (lambda: CategoricalHMM(2, algorithm="x").fit(NOISE), InvalidInputError, "algorithm='x'"),
        (
            lambda: CategoricalHMM(3, refine=0).fit(NOISE),
            NotIdentifiableError,
            "cannot tell 3 states apart.*condition number.*Lower n_components",
        ),
        (
            lambda: CategoricalHMM(6, refine=0).fit(SYMBOLS.X % 3),
            NotIdentifiableError,
            "cannot tell 6 states apart",
        ),
        (lambda: CategoricalHMM(2).fit(NOISE).decode(NOISE, None, "x"), InvalidInputError, "'x'"),
        (lambda: CategoricalHMM(2).fit(NOISE).sample(0), InvalidInputError, "n_samples=0"),
        (
            lambda: CategoricalHMM(2).fit(NOISE).sample(1, currstate=2),
            InvalidInputError,
            "currstate=2",
        ),
        (lambda: CategoricalHMM(2).merge(CategoricalHMM(2)), InvalidInputError, "self must be"),
        (
            lambda: CategoricalHMM(2).fit(NOISE).merge(GaussianHMM(2).fit(GOOD)),
            InvalidInputError,
            "other must be a CategoricalHMM",
        ),
        (
            lambda: CategoricalHMM(2).fit(NOISE).merge(CategoricalHMM(2).fit(NOISE % 2)),
            InvalidInputError,
            "other has seen 2 features, but self 4",
        ),
        (
            lambda: CategoricalHMM(2).fit(NOISE).merge(CategoricalHMM(2).fit(NOISE[:400])),
            InvalidInputError,
            r"different coordinates.*spawn\(\)",
        ),
        (lambda: CategoricalHMM(2).spawn(), InvalidInputError, "must have seen"),
        (lambda: CategoricalHMM.from_hmmlearn(3), InvalidInputError, "hmmlearn.hmm.Categorical"),
        (lambda: GaussianHMM(2, "round").fit(GOOD), InvalidInputError, "covariance_type='round'"),
        (lambda: GaussianHMM(2, min_covar=-1).fit(GOOD), InvalidInputError, "min_covar=-1"),
        (
            lambda: GaussianHMM(2).fit(np.where(GOOD > 1, np.inf, GOOD)),
            InvalidInputError,
            "infinite entries.*NaN for what is missing",
        ),
        (lambda: GaussianHMM(2).fit(GOOD[0]), InvalidInputError, "Expected 2D"),
        (lambda: GaussianHMM(2).fit(GOOD).score(GOOD[:, :1]), InvalidInputError, "2 features"),
        (lambda: GaussianHMM(2).fit(GOOD, [30, 31]), InvalidInputError, "sum to 61"),
        (
            lambda: GaussianHMM(2).fit(GOOD).merge(GaussianHMM(2).fit(GOOD[::-1] * 2)),
            InvalidInputError,
            r"different coordinates.*spawn\(\)",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_samplers_hold_what_they_promise():
    data = make_hmm(50_000, 5, 3, n_sequences=7, stay=0.5, random_state=3)
    assert data.X.shape == (50_000, 1)
    assert data.lengths.sum() == 50_000
    assert len(data.lengths) == 7
    inside = np.ones(50_000, dtype=bool)
    inside[np.cumsum(data.lengths) - 1] = False
    rows = np.flatnonzero(inside)
    counts = np.zeros((3, 3))
    np.add.at(counts, (data.states[rows], data.states[rows + 1]), 1)
    assert np.abs(counts / counts.sum(axis=1)[:, None] - data.transmat).max() < 0.02
    for state in range(3):
        fractions = np.bincount(data.X[data.states == state, 0], minlength=5)
        assert np.abs(fractions / fractions.sum() - data.emissionprob[state]).max() < 0.02
    again = make_hmm(50_000, 5, 3, n_sequences=7, stay=0.5, random_state=3)
    assert (again.X == data.X).all()
    for kind in ("spherical", "diag", "full"):
        points = make_gaussian_hmm(30_000, 2, 2, covariance=kind, random_state=4)
        for state in range(2):
            chosen = points.X[points.states == state]
            assert np.abs(chosen.mean(axis=0) - points.means[state]).max() < 0.06
            assert np.abs(np.cov(chosen.T) - points.covars[state]).max() < 0.1
    assert np.abs(stationary_distribution(np.eye(3)) - 1 / 3).max() < 1e-12


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: make_hmm(0, 3, 2), "n_samples"),
        (lambda: make_hmm(5, 3, 2, n_sequences=6), "n_sequences=6 exceeds"),
        (lambda: make_hmm(5, 3, 2, stay=1.0), "stay=1.0"),
        (lambda: make_hmm(5, 3, 2, concentration=0), "concentration=0"),
        (lambda: make_hmm(5, 3, 2, transmat=np.eye(3)), r"transmat has shape \(3, 3\)"),
        (lambda: make_hmm(5, 3, 2, transmat=2 * np.eye(2)), "sum to one"),
        (lambda: make_hmm(5, 3, 2, startprob=[1.5, -0.5]), "startprob must hold"),
        (lambda: make_gaussian_hmm(5, 3, 2, means=np.ones((2, 2))), "means has shape"),
        (lambda: make_gaussian_hmm(5, 3, 2, covars=np.ones((2, 2))), "covars has shape"),
        (lambda: make_gaussian_hmm(5, 3, 2, covariance="tied"), "covariance='tied'"),
    ],
)
def test_samplers_refuse_what_makes_no_sense(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def autoregression(rng):
    rows = rng.standard_normal((1500, 2))
    for t in range(1, len(rows)):
        rows[t] += 0.9 * rows[t - 1]
    return rows


DEPENDENT = {
    "random walk": lambda rng: np.cumsum(rng.standard_normal((1500, 2)), axis=0),
    "autoregression": autoregression,
    "every row four times": lambda rng: np.repeat(rng.standard_normal((400, 2)), 4, axis=0),
    "symbols four times": lambda rng: np.repeat(rng.integers(6, size=600), 4)[:, None],
}


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_states_of_sequences_without_states_are_never_called_stable(name, k):
    rows = DEPENDENT[name](np.random.default_rng(1))
    model = CategoricalHMM if rows.dtype.kind == "i" else GaussianHMM
    certificate = model(k, random_state=0).fit(rows).certificate_
    assert certificate.dependence > 0.3
    assert certificate.verdict != "stable"


@pytest.mark.parametrize("seed", range(2))
def test_rows_of_a_right_model_are_independent_given_the_states(seed):
    points = make_gaussian_hmm(3000, 2, 3, separation=4.0, random_state=seed)
    holes = points.X.copy()
    holes[np.random.default_rng(seed).random(holes.shape) < 0.1] = np.nan
    symbols = make_hmm(5000, 6, 2, n_sequences=9, random_state=seed)
    for model, rows, lengths in (
        (GaussianHMM(3, random_state=0), points.X, points.lengths),
        (GaussianHMM(3, "full", random_state=0), holes, points.lengths),
        (CategoricalHMM(2, random_state=0), symbols.X, symbols.lengths),
    ):
        assert model.fit(rows, lengths).certificate_.dependence < 0.02


@pytest.mark.parametrize("n_components", [1, 2])
def test_symbols_that_do_not_occur_show_no_dependence(n_components):
    made = make_hmm(5000, 3, n_components, stay=0.8, concentration=0.3, random_state=0)
    model = CategoricalHMM(n_components, n_features=6, random_state=0).fit(2 * made.X)
    assert model.certificate_.dependence < 0.02


@pytest.mark.parametrize("lengths", [[3], [1, 2], [1, 1, 1]])
def test_many_kinds_of_symbols_that_tell_nothing_of_each_other_are_fitted(lengths):
    # Tables of so many symbols are decomposed by a method that takes none that is zero.
    model = CategoricalHMM(2, n_features=900, random_state=0).fit([0, 899, 450], lengths)
    assert np.isfinite(model.score([0, 899, 450], lengths))
    assert model.certificate_.verdict != "stable"


def test_starts_under_which_rows_are_impossible_leave_no_warning(recwarn):
    model = GaussianHMM(3, "spherical", min_covar=0.0, init_params="m", params="tm", random_state=0)
    model.startprob_, model.covariances_ = np.eye(3)[0], np.full(3, 1e-8)
    model.transmat_ = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    rows = np.random.default_rng(0).normal(size=(8, 5))
    rows[0] = 1e9
    model.fit(rows)
    assert not [w for w in recwarn if issubclass(w.category, RuntimeWarning)]


def test_a_state_that_never_shows_a_feature_is_not_stable():
    rng = np.random.default_rng(0)
    states = (np.arange(2000) // 5) % 2
    rows = 4.0 * states[:, None] + rng.standard_normal((2000, 3))
    assert GaussianHMM(2, random_state=0).fit(rows).certificate_.n_observed == np.inf
    rows[states == 0, 0] = np.nan
    found = GaussianHMM(2, random_state=0).fit(rows).certificate_
    assert found.n_observed < 5
    assert found.verdict == "unstable"
