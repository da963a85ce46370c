"""What users of hmmlearn need: starting values, fixed parameters, short and partial sequences."""

import warnings

import numpy as np
import pytest

import latensor as lt
from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.exceptions import ConvergenceWarning, InvalidInputError
from sequence_examples import match

SYMBOLS = make_hmm(3_000, 6, 3, n_sequences=10, stay=0.7, concentration=0.3, random_state=0)
POINTS = make_gaussian_hmm(
    2_000, 2, 3, n_sequences=8, stay=0.7, means=[[0, 0], [5, 0], [0, 6]], random_state=1
)
KINDS = ("spherical", "diag", "full", "tied")


def given_symbols(init_params="", params="ste"):
    model = lt.CategoricalHMM(3, init_params=init_params, params=params, random_state=0)
    model.startprob_, model.transmat_ = SYMBOLS.startprob, SYMBOLS.transmat
    model.emissionprob_ = SYMBOLS.emissionprob
    return model


def given_points(kind, init_params="", params="stmc"):
    model = lt.GaussianHMM(3, kind, init_params=init_params, params=params, random_state=0)
    model.startprob_, model.transmat_ = POINTS.startprob, POINTS.transmat
    model.means_, model.covars_ = POINTS.means, POINTS.covars
    return model


def test_parameters_set_by_hand_answer_without_a_fit():
    model = lt.CategoricalHMM(3)
    model.startprob_, model.transmat_ = SYMBOLS.startprob, SYMBOLS.transmat
    model.emissionprob_ = SYMBOLS.emissionprob
    value = model.score(SYMBOLS.X, SYMBOLS.lengths)
    assert np.isfinite(value)
    assert model.decode(SYMBOLS.X, SYMBOLS.lengths)[0] < value
    assert (model.predict(SYMBOLS.X, SYMBOLS.lengths) == SYMBOLS.states).mean() > 0.7
    assert model.predict_proba(SYMBOLS.X).shape == (3_000, 3)
    assert np.isfinite(model.bic(SYMBOLS.X))
    points = given_points("full")
    assert (points.predict(POINTS.X, POINTS.lengths) == POINTS.states).mean() > 0.95
    assert points.sample(5, random_state=0)[0].shape == (5, 2)


def test_a_fit_starts_where_it_is_told_and_keeps_the_order_of_the_states():
    model = given_symbols().fit(SYMBOLS.X, SYMBOLS.lengths)
    assert model.certificate_.start == "given"
    assert (match(model.emissionprob_, SYMBOLS.emissionprob) == np.arange(3)).all()
    free = lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    assert model.score(SYMBOLS.X, SYMBOLS.lengths) > free.score(SYMBOLS.X, SYMBOLS.lengths) - 1
    first = given_symbols().fit(SYMBOLS.X, SYMBOLS.lengths).history_[0] * len(SYMBOLS.X)
    assert first == pytest.approx(given_symbols().score(SYMBOLS.X, SYMBOLS.lengths), rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_points_start_where_they_are_told(kind):
    model = given_points(kind).fit(POINTS.X, POINTS.lengths)
    assert (match(model.means_, POINTS.means) == np.arange(3)).all()
    assert np.abs(model.means_ - POINTS.means).max() < 0.3


@pytest.mark.parametrize("letters", ["", "s", "t", "e", "st", "te"])
def test_what_params_does_not_name_stays(letters):
    model = given_symbols(params=letters).fit(SYMBOLS.X, SYMBOLS.lengths)
    before = given_symbols()
    for letter, name in (("s", "startprob_"), ("t", "transmat_"), ("e", "emissionprob_")):
        changed = np.abs(getattr(model, name) - getattr(before, name)).max()
        assert (changed > 1e-6) == (letter in letters), name


@pytest.mark.parametrize("letters", ["m", "c", "mc"])
@pytest.mark.parametrize("kind", KINDS)
def test_means_or_covariances_alone_are_estimated(kind, letters):
    model = given_points(kind, params=letters).fit(POINTS.X, POINTS.lengths)
    before = given_points(kind)
    for letter, name in (("m", "means_"), ("c", "covariances_")):
        changed = np.abs(getattr(model, name) - getattr(before, name)).max()
        assert (changed > 1e-6) == (letter in letters), name


def test_left_right_transitions_stay_left_right():
    rng = np.random.default_rng(0)
    left_right = np.array([[0.8, 0.2, 0, 0], [0, 0.8, 0.2, 0], [0, 0, 0.8, 0.2], [0, 0, 0, 1.0]])
    means = np.array([[0.0], [4.0], [-4.0], [8.0]])
    data = make_gaussian_hmm(
        2_000, 1, 4, n_sequences=80, startprob=np.eye(4)[0], transmat=left_right, means=means,
        random_state=rng,
    )  # fmt: skip
    for seed in range(3):
        model = lt.GaussianHMM(4, init_params="mc", random_state=seed)
        model.startprob_, model.transmat_ = np.eye(4)[0], left_right
        model.fit(data.X, data.lengths)
        assert np.array_equal(model.startprob_, np.eye(4)[0])
        assert ((model.transmat_ > 0) <= (left_right > 0)).all()
        # What was found in the data has taken the labels of the given chain.
        assert np.abs(model.means_ - means).max() < 0.5


def test_what_was_not_set_is_found_as_in_hmmlearn():
    model = lt.CategoricalHMM(3, init_params="", random_state=0)
    alone = lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    assert np.array_equal(model.fit(SYMBOLS.X, SYMBOLS.lengths).transmat_, alone.transmat_)


def test_the_monitor_tells_what_hmmlearn_calls_so():
    model = lt.GaussianHMM(2, random_state=0).fit(POINTS.X, POINTS.lengths)
    monitor = model.monitor_
    assert monitor.converged
    assert monitor.iter == model.n_iter_
    assert (monitor.n_iter, monitor.tol) == (model.max_iter, model.tol)
    assert monitor.history[-1] == pytest.approx(model.score(POINTS.X, POINTS.lengths), rel=1e-3)
    assert not hasattr(lt.GaussianHMM(2), "monitor_")


def test_more_parameters_than_numbers_are_said():
    rows = np.random.default_rng(0).normal(size=(5, 3))
    found = lt.GaussianHMM(3, "full", random_state=0).fit(rows).certificate_
    assert (found.n_parameters, found.n_entries) == (2 + 6 + 9 + 18, 15)
    assert "35 free parameters" in str(found)
    assert found.verdict == "unstable"


@pytest.mark.parametrize(
    "change, message",
    [
        ({"init_params": "x"}, "init_params='x'"),
        ({"params": 3}, "params=3"),
        ({"n_components": "auto", "init_params": "se"}, "'auto' takes no starting values"),
        ({"n_components": 4, "init_params": "se"}, "transmat_ has shape"),
    ],
)
def test_starting_values_that_make_no_sense_are_refused(change, message):
    model = lt.CategoricalHMM(3).set_params(**change)
    model.transmat_ = SYMBOLS.transmat
    with pytest.raises(InvalidInputError, match=message):
        model.fit(SYMBOLS.X, SYMBOLS.lengths)


def test_starting_values_of_other_shapes_are_refused():
    model = given_points("diag")
    model.covariances_ = np.ones((3, 2, 2))
    with pytest.raises(InvalidInputError, match=r"covariances_ has shape \(3, 2, 2\).*\(3, 2\)"):
        model.fit(POINTS.X)
    model = given_points("diag")
    model.means_ = np.ones((3, 5))
    with pytest.raises(InvalidInputError, match="means_ is of 5 features, X of 2"):
        model.fit(POINTS.X)


@pytest.mark.parametrize("lengths", [[1] * 500, [2] * 250, [1, 2, 497]])
def test_short_sequences_are_sequences(lengths):
    symbols = lt.CategoricalHMM(2, random_state=0).fit(SYMBOLS.X[:500], lengths)
    points = lt.GaussianHMM(2, random_state=0).fit(POINTS.X[:500], lengths)
    for model, X in ((symbols, SYMBOLS.X), (points, POINTS.X)):
        assert np.isfinite(model.score(X[:500], lengths))
        assert np.abs(model.transmat_.sum(axis=1) - 1).max() < 1e-12
    two = lt.CategoricalHMM(2, random_state=0).fit([0, 1])
    assert np.isfinite(two.score([0, 1]))


def test_rows_may_name_their_sequence():
    names = np.repeat([f"s{i}" for i in range(len(POINTS.lengths))], POINTS.lengths)
    model = lt.GaussianHMM(3, random_state=0, refine=3)
    means = model.fit(POINTS.X, POINTS.lengths).means_
    assert np.array_equal(means, model.fit(POINTS.X, lengths=names).means_)
    assert np.array_equal(means, model.fit(POINTS.X, lengths=POINTS.lengths).means_)
    assert model.score(POINTS.X, names) == model.score(POINTS.X, POINTS.lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_missing_entries_cost_little(kind):
    rng = np.random.default_rng(2)
    holes = POINTS.X.copy()
    holes[rng.random(holes.shape) < 0.2] = np.nan
    holes[rng.random(len(holes)) < 0.05] = np.nan
    model = lt.GaussianHMM(3, kind, random_state=0).fit(holes, POINTS.lengths)
    whole = lt.GaussianHMM(3, kind, random_state=0).fit(POINTS.X, POINTS.lengths)
    order = match(model.means_, POINTS.means)
    assert np.abs(model.means_[order] - POINTS.means).max() < 0.3
    loss = whole.score(POINTS.X, POINTS.lengths) - model.score(POINTS.X, POINTS.lengths)
    assert loss / len(holes) < 0.01
    states = model.predict(holes, POINTS.lengths)
    assert (order[POINTS.states] == states).mean() > 0.9
    # A source with holes is fitted as an array is.
    cut = int(POINTS.lengths[:3].sum())
    batches = [(holes[:cut], POINTS.lengths[:3]), (holes[cut:], POINTS.lengths[3:])]
    assert np.array_equal(model.means_, lt.GaussianHMM(3, kind, random_state=0).fit(batches).means_)


def test_a_fit_without_holes_is_that_of_the_path_with_holes():
    holes = np.vstack([POINTS.X, np.full((1, 2), np.nan)])
    lengths = [*POINTS.lengths, 1]
    one = given_points("full").fit(POINTS.X, POINTS.lengths)
    other = given_points("full").fit(holes, lengths)
    assert np.abs(one.means_ - other.means_).max() < 1e-3
    assert one.score(POINTS.X) == pytest.approx(one.score(holes, [len(POINTS.X), 1]), abs=1e-6)


def test_missing_symbols_cost_little():
    rng = np.random.default_rng(3)
    holes = SYMBOLS.X.astype(float)
    holes[rng.random(len(holes)) < 0.2] = np.nan
    model = lt.CategoricalHMM(3, random_state=0).fit(holes, SYMBOLS.lengths)
    whole = lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    loss = whole.score(SYMBOLS.X, SYMBOLS.lengths) - model.score(SYMBOLS.X, SYMBOLS.lengths)
    assert loss / len(holes) < 0.01
    with pytest.raises(InvalidInputError, match=r"rows with missing entries.*refine"):
        lt.CategoricalHMM(3, refine=0, random_state=0).fit(holes, SYMBOLS.lengths)


def test_a_column_that_was_never_observed_is_refused():
    X = np.c_[POINTS.X, np.full(len(POINTS.X), np.nan)]
    with pytest.raises(InvalidInputError, match="column 2 of X was never observed"):
        lt.GaussianHMM(2).fit(X)


def test_a_fit_that_is_stopped_early_says_so(capsys):
    model = lt.CategoricalHMM(3, max_iter=2, verbose=1, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model.fit(SYMBOLS.X, SYMBOLS.lengths)
    assert not model.converged_
    assert "pass 1 (pairs)" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)


def test_looking_at_a_stream_changes_nothing():
    def part(a, b):
        edges = np.concatenate([[0], np.cumsum(POINTS.lengths)])
        return POINTS.X[edges[a] : edges[b]], POINTS.lengths[a:b]

    looked, plain = (lt.GaussianHMM(3, random_state=0).partial_fit(*part(0, 4)) for _ in range(2))
    other = [lt.GaussianHMM(3, random_state=0).partial_fit(*part(4, 8)) for _ in range(2)]
    assert looked.means_.shape == other[0].means_.shape == (3, 2)
    found, expected = looked.merge(other[0]), plain.merge(other[1])
    assert np.array_equal(found.means_, expected.means_)
    whole = lt.GaussianHMM(3, random_state=0).fit(POINTS.X, POINTS.lengths)
    assert np.abs(found.means_ - whole.means_).max() < 1e-6
    worker = plain.spawn()
    assert not hasattr(worker, "means_")


def test_what_is_not_determined_is_no_attribute():
    noise = np.random.default_rng(5).integers(0, 4, 500)
    stream = lt.CategoricalHMM(3, refine=0, random_state=0).partial_fit(noise)
    assert not hasattr(stream, "transmat_")
    with pytest.raises(AttributeError, match="cannot tell 3 states apart"):
        _ = stream.transmat_


def test_sources_get_the_checks_of_arrays():
    for X in (np.array([[0], [1], [2]]), [np.array([[0], [1], [2]])]):
        with pytest.raises(InvalidInputError, match="n_samples=3 should be at least"):
            lt.CategoricalHMM(4).fit(X)
    with pytest.raises(InvalidInputError, match="2 features"):
        lt.GaussianHMM(2).fit([POINTS.X, POINTS.X[:, :1]])


def test_one_long_sequence_is_cut_with_margins_and_a_source_is_its_array():
    data = make_gaussian_hmm(140_000, 1, 2, stay=0.8, means=[[0.0], [3.0]], random_state=3)
    model = lt.GaussianHMM(2, random_state=0, refine=3).fit(data.X)
    assert model.certificate_.n_sequences == 1
    assert model.certificate_.n_rows == 140_000
    assert np.abs(np.sort(model.means_[:, 0]) - [0, 3]).max() < 0.05
    again = lt.GaussianHMM(2, random_state=0, refine=3, n_jobs=3).fit([data.X])
    assert np.array_equal(model.means_, again.means_)
    assert model.history_[-1] > model.history_[0]


@pytest.mark.parametrize("kind", ["diag", "full"])
def test_intervals_of_a_fit_are_as_wide_as_its_errors(kind):
    transmat = [[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]]
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])
    inside, widths, errors = [], [], []
    for seed in range(6):
        data = make_gaussian_hmm(
            3_000, 2, 3, n_sequences=60, transmat=transmat, means=means, random_state=seed
        )
        model = lt.GaussianHMM(3, kind, random_state=0).fit(data.X, data.lengths)
        found = model.intervals(data.X, data.lengths, n_groups=30, n_resamples=100)["means"]
        order = match(means, model.means_)
        truth = means[order]
        inside.append(((found.low <= truth) & (truth <= found.high)).mean())
        widths.append(found.high - found.low)
        errors.append(model.means_ - truth)
    spread = np.sqrt(np.mean(np.square(errors), axis=0))
    assert np.mean(inside) > 0.8
    ratio = np.median(np.mean(widths, axis=0) / (2 * 1.96 * spread))
    assert 0.6 < ratio < 1.7


@pytest.mark.parametrize("shape", [(2,), (2, 1), (2, 1, 1), (2, 1, 1, 1)])
def test_spherical_variances_are_taken_in_any_shape(shape):
    model = lt.GaussianHMM(2, "spherical", random_state=0)
    model.startprob_, model.transmat_ = np.array([0.6, 0.4]), np.array([[0.4, 0.6], [0.9, 0.1]])
    model.means_, model.covars_ = np.array([[3.0], [5.0]]), np.reshape([4.0, 3.0], shape)
    np.testing.assert_array_equal(model.covariances_, [4.0, 3.0])
    assert model.sample(10)[0].shape == (10, 1)


def test_no_pass_keeps_the_starting_values(capsys):
    model = given_symbols().set_params(max_iter=0, verbose=True)
    with pytest.warns(ConvergenceWarning, match="0 passes"):
        model.fit(SYMBOLS.X, SYMBOLS.lengths)
    order = match(SYMBOLS.emissionprob, model.emissionprob_)
    np.testing.assert_allclose(model.emissionprob_, SYMBOLS.emissionprob[order], atol=1e-12)


def test_parameters_set_in_vain_are_said_once():
    rows = np.random.default_rng(0).standard_normal((100, 2))
    model = lt.GaussianHMM(2, random_state=0)
    model.startprob_ = np.array([0.5, 0.5])
    with pytest.warns(UserWarning, match="startprob_ was set before fit and will be overwritten"):
        model.fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(rows)
