"""Noisy-or networks: exact moments, samples, the likelihood, files, bad input."""

import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.datasets.networks import make_noisy_or
from latensor.exceptions import ConvergenceWarning, InvalidInputError, NotIdentifiableError
from latensor.models.networks import noisy_or_family
from latensor.models.networks.noisy_or_family import NoisyOrFamily
from latensor.models.networks.noisy_or_read_off import NoisyOrState
from latensor.moments.batch import Batch
from latensor.moments.binary import TripleCounts
from latensor.moments.sums import plus, times
from latensor.refinement.em import em
from latensor.refinement.family import Statistics
from noisy_or_population import all_rows, matched, random_network, read_population

PLANTED = make_noisy_or(3000, 20, 3, prior=0.1, random_state=0)
FITTED = lt.NoisyOrNetwork(3, random_state=0).fit(PLANTED.samples)


def relative_error(planted, model):
    order = matched(planted.components, model.components_)
    gaps = np.abs(planted.components - model.components_[order])
    return gaps.sum() / planted.components.sum()


def batch(rows, weights=None):
    weights = np.ones(rows.shape[0]) if weights is None else weights
    return Batch((rows,), weights, np.arange(rows.shape[0], dtype=np.uint64))


@parametrize_with_checks(
    [lt.NoisyOrNetwork(binarize=0.0), lt.NoisyOrNetwork(3, binarize=0.5, refine=2)],
    expected_failed_checks=lambda estimator: dict.fromkeys(
        ("check_estimator_sparse_array", "check_estimator_sparse_matrix"),
        "predict_proba has a column for every cause, the check expects one for every class",
    ),
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(8, 20))]
)
def test_exact_moments_give_the_parameters_back(seed):
    state = random_network(seed, 30, 5, (0.02, 0.05, 0.1, 0.2)[seed % 4])
    found = read_population(state)
    order = matched(state.components, found.state.components)
    assert np.abs(found.state.components[order] - state.components).max() < 1e-8
    assert np.abs(found.state.prior[order] - state.prior).max() < 1e-8
    assert np.abs(found.state.leak - state.leak).max() < 1e-8
    assert found.off_diagonal < 1e-12
    assert found.gap > 100


@pytest.mark.parametrize("seed", range(10))
def test_causes_that_share_all_features_are_told_apart(seed):
    # Third moments with zeros in place of repeated indices had led the read-off elsewhere.
    rng = np.random.default_rng(seed)
    components, leak = rng.uniform(0.3, 0.9, (2, 8)), rng.uniform(0.02, 0.1, 8)
    found = read_population(NoisyOrState(np.array([0.15, 0.1]), components, leak)).state
    order = matched(components, found.components)
    assert np.abs(found.components[order] - components).max() < 1e-7


@pytest.mark.parametrize(
    "seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 20))]
)
def test_em_stays_at_exact_parameters_and_returns_to_them(seed):
    rng = np.random.default_rng(seed)
    state = NoisyOrState(
        np.array([0.15, 0.1]), rng.uniform(0.3, 0.9, (2, 8)), rng.uniform(0.02, 0.1, 8)
    )
    rows, chances = all_rows(state)
    model = lt.NoisyOrNetwork(2, random_state=0, tol=1e-13, max_iter=2000)
    model.fit(rows, sample_weight=chances * 1e14)
    order = matched(state.components, model.components_)
    assert np.abs(model.components_[order] - state.components).max() < 1e-6
    assert np.abs(model.prior_[order] - state.prior).max() < 1e-6
    assert np.abs(model.leak_ - state.leak).max() < 1e-6


def test_the_likelihood_is_that_of_the_definition():
    state = random_network(3, 6, 3, 0.2)
    rows, chances = all_rows(state)
    family = NoisyOrFamily()
    proba, logs = family.answers(state, family.prepare(batch(rows)))
    assert np.abs(np.exp(logs) - chances).max() < 1e-14
    assert np.abs(chances @ proba - state.prior).max() < 1e-12
    # The sums of all rows reproduce the parameters: the state is a fixed point of EM.
    sums = family.expect(state, family.prepare(batch(rows, chances)))
    again = family.maximize(sums, state)
    assert np.abs(family.pack(again) - family.pack(state)).max() < 1e-7
    vector = family.pack(state)
    assert np.abs(family.pack(family.unpack(vector, state)) - vector).max() < 1e-7


def test_sums_have_the_gradient_of_the_likelihood():
    state = random_network(5, 10, 3, 0.1)
    family, rng = NoisyOrFamily(), np.random.default_rng(0)
    rows = family.prepare(batch((rng.random((200, 10)) < 0.3).astype(float)))
    sums = family.expect(state, rows)
    for _ in range(10):
        shift = 1e-5 * rng.standard_normal(43)
        ends = [family.unpack(family.pack(state) + sign * shift, state) for sign in (1, -1)]
        slopes = [family.complete(sums, end) for end in ends]
        values = [family.expect(end, rows)["log_likelihood"] for end in ends]
        assert slopes[0] - slopes[1] == pytest.approx(values[0] - values[1], rel=1e-4)
    # A step of EM raises the likelihood.
    after = family.maximize(sums, state)
    assert family.expect(after, rows)["log_likelihood"] > sums["log_likelihood"]


def test_a_sample_stands_for_all_rows():
    # Effects near 0 had made a sample promise what all rows do not keep.
    planted = make_noisy_or(6000, 40, 4, prior=0.08, random_state=0)
    family = NoisyOrFamily()
    start = NoisyOrState(planted.prior, np.clip(planted.components, 1e-3, 0.9), planted.leak)
    folds = {}
    for name, rows in (("all", planted.samples), ("sample", planted.samples[:1500])):
        units = family.prepare(batch(rows))
        folds[name] = lambda begun, units=units: begun.update(units)
    state = em(folds["sample"], family, start, max_iter=100, prepared=True).state
    before, here = (fold(Statistics(family, state, True)) for fold in folds.values())
    offset = plus(before.seen(), times(here.seen(), -4.0))
    steps = {"max_iter": 100, "tol": 1e-6, "prepared": True, "offset": offset, "factor": 4.0}
    promised = em(folds["sample"], family, state, **steps)
    kept = folds["all"](Statistics(family, promised.state, True)).value - before.value
    assert kept > 0.01
    assert promised.gain == pytest.approx(kept, rel=0.2)


@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_all_states_that_count(seed, monkeypatch):
    # EM went through states with few active causes: of 20 causes of prior .05 it left out .0159.
    planted = make_noisy_or(200, 30, 7 + seed % 3, prior=0.15, random_state=seed)
    state = NoisyOrState(planted.prior, planted.components, planted.leak)
    family = NoisyOrFamily()
    prepared = family.prepare(batch(np.vstack([planted.samples, np.zeros(30), np.ones(30)])))
    *searched, left_out = family.posteriors(state, prepared)
    assert left_out == 0
    monkeypatch.setattr(noisy_or_family, "_FEW_CAUSES", len(state.prior))
    *every, _ = family.posteriors(state, prepared)
    for found, expected in zip(searched, every, strict=True):
        assert np.abs(found - expected).max() < 1e-6 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize("seed", range(3))
def test_dense_rows_of_overlapping_causes_lose_little(seed, monkeypatch):
    # What causes can explain together bounds a set; the search of a row had no end (40 causes).
    planted = make_noisy_or(60, 20, 12, prior=0.15, density=0.8, random_state=seed)
    state = NoisyOrState(planted.prior, planted.components, planted.leak)
    family = NoisyOrFamily()
    prepared = family.prepare(batch(planted.samples))
    proba, logs, *_, left_out = family.posteriors(state, prepared)
    assert left_out > 0
    monkeypatch.setattr(noisy_or_family, "_FEW_CAUSES", len(state.prior))
    every, expected, *_ = family.posteriors(state, prepared)
    assert (logs <= expected + 1e-9).all()
    assert np.mean(expected - logs) < 0.01
    assert np.abs(proba - every).max() < 0.05


def test_rows_with_too_many_states_are_told():
    # Weak causes of dense rows: hardly a state can be ruled out.
    rng = np.random.default_rng(0)
    rows = (rng.random((50, 40)) < 0.5).astype(float)
    state = NoisyOrState(np.full(16, 0.3), rng.uniform(0.05, 0.2, (16, 40)), np.full(40, 0.2))
    family = NoisyOrFamily()
    sums = family.expect(state, family.prepare(batch(rows)))
    assert sums["left_out"] == 50
    assert np.isfinite(sums["log_likelihood"])
    told = replace(FITTED.certificate_, left_out=0.2)
    assert "20 % of the rows may come from more states of the causes than" in str(told)
    assert told.verdict != FITTED.certificate_.verdict == "stable"


def test_triples_are_counted():
    rng = np.random.default_rng(0)
    rows = (rng.random((40, 7)) < 0.5).astype(float)
    weights = rng.uniform(0.5, 2, 40)
    chosen = np.array([0, 2, 3, 5, 6])
    for given in (rows, scipy.sparse.csr_array(rows)):
        found = TripleCounts(chosen).update(batch(given, weights)).sums["triples"]
        places = [(a, b, c) for c in range(5) for b in range(c) for a in range(b)]
        for (a, b, c), value in zip(places, found, strict=True):
            together = rows[:, chosen[a]] * rows[:, chosen[b]] * rows[:, chosen[c]]
            assert value == pytest.approx(weights @ together)


@pytest.mark.parametrize("seed", range(3))
def test_planted_causes_are_found_and_errors_fall_with_samples(seed):
    errors = []
    for count in (4000, 64_000):
        planted = make_noisy_or(count, 40, 5, prior=0.1, random_state=seed)
        model = lt.NoisyOrNetwork(5, random_state=0).fit(planted.samples)
        errors.append(relative_error(planted, model))
        assert model.certificate_.verdict == "stable", str(model.certificate_)
    assert errors[0] < 0.15
    # Sixteen times as many samples: a quarter of the error, with room for chance.
    assert errors[1] < 0.45 * errors[0]


def test_more_features_than_triples_are_counted_for():
    planted = make_noisy_or(4000, 200, 4, prior=0.08, random_state=1)
    model = lt.NoisyOrNetwork(4, refine=0, random_state=0).fit(planted.samples)
    assert relative_error(planted, model) < 0.25
    assert relative_error(planted, lt.NoisyOrNetwork(4, random_state=0).fit(planted.samples)) < 0.15


@pytest.mark.parametrize("count", [1, 4, 7])
def test_the_number_of_causes_is_counted(count):
    planted = make_noisy_or(10_000, 40, count, prior=0.08, random_state=count)
    model = lt.NoisyOrNetwork("auto", refine=0, random_state=0).fit(planted.samples)
    assert model.n_components_ == count == model.selection_.n_components
    assert "above" in model.selection_.reason or "exceed" in model.selection_.reason


def test_sparse_rows_frames_and_float32_are_the_same():
    rows = PLANTED.samples
    sparse = lt.NoisyOrNetwork(3, random_state=0).fit(scipy.sparse.csr_array(rows))
    assert np.array_equal(sparse.components_, FITTED.components_)
    frame = pd.DataFrame(rows.astype(int), columns=[f"s{i}" for i in range(20)])
    named = lt.NoisyOrNetwork(3, random_state=0).fit(frame)
    assert np.array_equal(named.components_, FITTED.components_)
    short = lt.NoisyOrNetwork(3, random_state=0).fit(rows.astype(np.float32))
    assert short.components_.dtype == np.float32
    assert np.abs(short.components_ - FITTED.components_).max() < 1e-6
    probabilities = FITTED.predict_proba(rows)
    assert np.array_equal(probabilities, sparse.predict_proba(scipy.sparse.csr_array(rows)))
    assert np.array_equal(FITTED.transform(rows), probabilities)
    assert list(FITTED.get_feature_names_out()) == [f"noisyornetwork{j}" for j in range(3)]


def test_causes_of_samples_are_told():
    order = matched(PLANTED.components, FITTED.components_)
    hits = ((FITTED.predict_proba(PLANTED.samples) > 0.5)[:, order] == PLANTED.causes).mean()
    assert hits > 0.95
    drawn, causes = FITTED.sample(20_000, random_state=1)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    assert np.abs(causes.mean(0) - FITTED.prior_).max() < 0.01
    assert np.abs(drawn.mean(0) - PLANTED.samples.mean(0)).max() < 0.03
    each = FITTED.score_samples(PLANTED.samples)
    assert FITTED.score(PLANTED.samples) == pytest.approx(each.mean())
    assert FITTED.bic(PLANTED.samples) > FITTED.aic(PLANTED.samples)


def test_streams_workers_and_merges():
    rows = PLANTED.samples
    stream = lt.NoisyOrNetwork(3, random_state=0)
    for part in np.array_split(rows, 4):
        stream.partial_fit(part)
    assert np.array_equal(stream.components_, FITTED.components_)
    first = lt.NoisyOrNetwork(3, random_state=0).partial_fit(rows[:2000])
    worker = first.spawn().partial_fit(rows[2000:])
    first.merge(worker)
    assert np.abs(first.components_ - FITTED.components_).max() < 1e-6


def test_intervals_hold_the_truth():
    found = FITTED.intervals(PLANTED.samples, n_resamples=100)
    order = matched(PLANTED.components, FITTED.components_)
    low, high = found["components"].low[order], found["components"].high[order]
    acts = PLANTED.components > 0
    inside = (low <= PLANTED.components) & (PLANTED.components <= high)
    assert inside[acts].mean() > 0.85


def test_bif_files_hold_the_network(tmp_path):
    names = [f"symptom {i}" for i in range(20)]
    path = FITTED.to_bif(tmp_path / "net.bif", feature_names=names, cause_names=list("ABC"))
    text = path.read_text()
    assert text.count("variable ") == 23
    assert "variable symptom_0 {" in text
    assert f"table {1 - FITTED.prior_[0]:.9g}, {FITTED.prior_[0]:.9g};" in text
    for i in range(20):
        block = text.split(f"probability ( symptom_{i} ")[1].split("}")[0]
        parents = np.flatnonzero(FITTED.components_[:, i] > 0.01)
        for active in itertools.product((0, 1), repeat=len(parents)) if len(parents) else ():
            words = ", ".join(("no", "yes")[a] for a in active)
            off = float(block.split(f"({words}) ")[1].split(",")[0])
            left = (1 - FITTED.components_[parents, i]) ** np.array(active)
            assert off == pytest.approx((1 - FITTED.leak_[i]) * left.prod(), rel=1e-6)
    for settings, message in (
        ({"feature_names": ["a"]}, "1 names for 20"),
        ({"threshold": 2.0}, "threshold=2.0"),
        ({"cause_names": ["a", "a", "b"]}, "equal as words"),
        ({"cause_names": ["feature0", "a", "b"]}, "names a cause and a feature"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            FITTED.to_bif(tmp_path / "other.bif", **settings)
    many = NoisyOrState(np.full(15, 0.1), np.full((15, 2), 0.5), np.full(2, 0.1))
    from latensor.models.networks.bif import write_bif

    with pytest.raises(InvalidInputError, match=r"2\^15 rows"):
        write_bif(tmp_path / "other.bif", many, None, None, 0.01)


def test_what_the_certificate_says():
    dense = (np.random.default_rng(0).random((3000, 12)) < 0.5).astype(float)
    dense[:, 3], dense[:, 4] = 0, 1
    model = lt.NoisyOrNetwork(2, random_state=0).fit(dense)
    text = str(model.certificate_)
    assert "% of the entries are on; above 30 %" in text
    assert "columns 3, 4 do not vary" in text
    assert model.certificate_.verdict != "stable"
    assert model.components_[:, 3:5].max() < 1e-6
    frequent = make_noisy_or(5000, 20, 2, prior=0.4, random_state=0)
    model = lt.NoisyOrNetwork(2, random_state=0).fit(frequent.samples)
    assert "Above 20 %" in str(model.certificate_)


def test_bad_input_is_refused_with_a_cure():
    rows = PLANTED.samples
    with pytest.raises(InvalidInputError, match=r"zeros and ones.*first is 2.*binarize"):
        lt.NoisyOrNetwork(2).fit(2 * rows)
    with pytest.raises(InvalidInputError, match="zeros and ones"):
        lt.NoisyOrNetwork(2).fit([rows[:50], 0.5 * rows[50:]])
    with pytest.raises(InvalidInputError, match="zeros and ones"):
        FITTED.predict_proba(3 * rows)
    with pytest.raises(InvalidInputError, match="binarize=-1"):
        lt.NoisyOrNetwork(2, binarize=-1.0).fit(scipy.sparse.csr_array(rows))
    with pytest.raises(InvalidInputError, match="exceeds the n_samples=5"):
        lt.NoisyOrNetwork(6).fit(rows[:5])
    with pytest.raises(NotIdentifiableError, match=r"weakest cause.*spectrum is 1, 0"):
        lt.NoisyOrNetwork(9, refine=0, random_state=0).fit(rows)
    with pytest.raises(NotIdentifiableError, match="features that vary"):
        lt.NoisyOrNetwork(3, refine=0).fit(rows[:, :2])
    # By likelihood it can still be fitted, and the certificate says what it rests on.
    few = lt.NoisyOrNetwork(2, random_state=0, max_iter=2000).fit(rows[:, :2])
    assert "too few features vary for moments" in str(few.certificate_)
    many = lt.NoisyOrNetwork(9, n_init=0, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning):
        many.fit(rows)
    assert "(spectrum 1, 0." in str(many.certificate_)


@pytest.mark.parametrize("d, frequency", [(8, 0.1), (30, 0.03), (60, 0.1)])
def test_independent_features_have_no_causes(d, frequency):
    for seed in range(2):
        samples = np.random.default_rng(seed).random((2000, d)) < frequency
        model = lt.NoisyOrNetwork("auto", random_state=0)
        model.fit(samples.astype(float))
        assert model.n_components_ == 1
        assert model.selection_.reason == "no pair of features interacts above noise"
        assert model.certificate_.verdict != "stable"


@pytest.mark.parametrize("prior", [0.0, 0.6, np.full(3, 0.1), "0.1", None])
def test_a_prior_that_is_no_fraction_is_refused(prior):
    with pytest.raises(InvalidInputError, match=r"prior=.* must be a number above 0, at most 0.5"):
        make_noisy_or(10, 8, 3, prior=prior)
