"""Exact recovery from population moments, and what samples of growing size give."""

from dataclasses import replace

import numpy as np
import pytest

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.decomposition import PowerMethod
from latensor.exceptions import InvalidInputError
from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM
from latensor.models.hmm.gaussian_states import gaussian_of
from latensor.models.hmm.model import ROWS_ALONE
from latensor.models.hmm.moment_starts import moment_starts
from latensor.models.hmm.rows_alone import gains_over_joined
from latensor.models.hmm.subspace import find_subspace
from latensor.moments.sequences import Pairs, Windows
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.hmm import CategoricalEmission, HiddenChain
from sequence_examples import (
    MANY,
    log_likelihood_of,
    match,
    population_pairs,
    population_windows,
    raised,
    random_chain,
)


def starts_of(pairs, n_components, windows, *settings):
    """What is read off given pairs, and off windows as a function of the features found in them."""
    features = find_subspace(pairs, n_components - 1).features
    return moment_starts(pairs, windows(features), features, *settings)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("views", ["lag", "window"])
def test_population_moments_of_symbols_give_the_parameters_back(seed, views):
    rng = np.random.default_rng(seed)
    k, d = int(rng.integers(2, 6)), int(rng.integers(6, 12))
    _, transmat = random_chain(rng, k, stay=0.5)
    startprob = rng.dirichlet(np.ones(k))
    emissions = rng.dirichlet(np.ones(d), k)
    (start,) = starts_of(
        population_pairs(startprob, transmat, emissions),
        k,
        lambda features: population_windows(transmat, emissions, features),
        views,
        "auto",
        lambda states, symbols, noise: CategoricalEmission(symbols),
        rng,
    )
    order = match(start.chain.emission.probabilities, emissions)
    found = start.chain.reordered(order)
    assert np.abs(found.emission.probabilities - emissions).max() < 1e-8
    assert np.abs(found.transmat - transmat).max() < 1e-8
    assert np.abs(found.startprob - startprob).max() < 1e-8
    assert start.states.off_diagonal < 1e-12


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "tied"])
def test_population_moments_of_points_give_the_parameters_back(seed, kind):
    rng = np.random.default_rng(seed)
    k, p, d = 4, 2, 12
    fraction, transmat = random_chain(rng, k, stay=0.5)
    cells = rng.dirichlet(np.ones(d), k)
    means = rng.standard_normal((k, p))
    roots = 0.5 * rng.standard_normal((k, p, p))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(p)
    if kind == "tied":
        covariances[:] = covariances[0]
    elif kind == "spherical":
        covariances = rng.uniform(0.2, 1.0, k)[:, None, None] * np.eye(p)
    plain = GaussianFamily.scaled(kind, np.zeros(p), np.ones(p), 0.0)
    second = covariances + np.einsum("ja,jb->jab", means, means)
    if kind in ("spherical", "diag"):
        observed = np.hstack([means, np.einsum("jaa->ja", second)])
    else:
        a, b = np.triu_indices(p)
        observed = np.hstack([means, second[:, a, b]])
    for start in starts_of(
        population_pairs(fraction, transmat, cells),
        k,
        lambda features: population_windows(transmat, cells, features, observed),
        "auto",
        "auto",
        lambda states, symbols, noise: gaussian_of(states, plain, noise),
        rng,
    ):
        order = match(start.chain.emission.means, means)
        found = start.chain.reordered(order)
        expected = {
            "spherical": np.einsum("jaa->j", covariances) / p,
            "diag": np.einsum("jaa->ja", covariances),
            "full": covariances,
            "tied": covariances[0],
        }[kind]
        assert np.abs(found.emission.means - means).max() < 1e-8
        assert np.abs(found.emission.covariances - expected).max() < 1e-8
        assert np.abs(found.transmat - transmat).max() < 1e-8


@pytest.mark.parametrize("seed", range(5))
def test_sequences_of_three_that_are_not_stationary_give_the_parameters_back(seed):
    rng = np.random.default_rng(seed)
    k, d = 3, 7
    transmat = 0.4 * np.eye(k) + 0.6 * rng.dirichlet(np.ones(k), k)
    startprob, emissions = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(d), k)
    fraction = startprob @ transmat
    last = fraction @ transmat
    pooled = startprob + fraction
    tables = {1: MANY * emissions.T @ (pooled[:, None] * transmat) @ emissions}
    pairs = Pairs(
        3 * MANY,
        MANY,
        MANY * (startprob + fraction + last) @ emissions,
        MANY * startprob @ emissions,
        tables,
    )

    def windows(features):
        seen = emissions @ features
        past = (transmat.T * startprob / fraction[:, None]) @ seen
        future = transmat @ seen
        joint = MANY * fraction[:, None] * emissions
        empty = np.zeros((0, features.shape[1]))
        return Windows(
            joint.sum(axis=0),
            joint.T @ past,
            joint.T @ future,
            np.einsum("jc,ja,jb->cab", joint, past, future),
            np.zeros(0),
            empty,
            empty,
        )

    (start,) = starts_of(
        pairs,
        k,
        windows,
        "lag",
        "auto",
        lambda states, symbols, noise: CategoricalEmission(symbols),
        rng,
    )
    found = start.chain.reordered(match(start.chain.emission.probabilities, emissions))
    assert np.abs(found.emission.probabilities - emissions).max() < 1e-8
    assert np.abs(found.transmat - transmat).max() < 1e-8
    assert np.abs(found.startprob - startprob).max() < 1e-8


TRANSMAT = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
EMISSIONS = np.array(
    [
        [0.50, 0.30, 0.10, 0.05, 0.03, 0.02],
        [0.05, 0.05, 0.45, 0.35, 0.05, 0.05],
        [0.02, 0.03, 0.05, 0.10, 0.40, 0.40],
    ]
)


@pytest.mark.parametrize("views", ["lag", "window"])
def test_the_error_of_the_moments_falls_like_the_root_of_n(views):
    sizes = (8_000, 32_000, 128_000)
    errors = []
    for n in sizes:
        found = []
        for seed in range(6):
            data = make_hmm(n, 6, 3, transmat=TRANSMAT, emissionprob=EMISSIONS, random_state=seed)
            model = CategoricalHMM(3, refine=0, views=views, random_state=0).fit(data.X)
            order = match(model.emissionprob_, EMISSIONS)
            found.append(np.abs(model.emissionprob_[order] - EMISSIONS).sum(axis=1).mean())
        errors.append(np.median(found))
    slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert -0.7 < slope < -0.35
    assert errors[-1] < 0.03


def gap_to_oracle(seed, **settings):
    """Held-out log-likelihood per row of an EM run from the truth, less that of a fit."""
    data = make_hmm(20_000, 8, 4, stay=0.6, concentration=0.4, random_state=seed, **settings)
    half = len(data.lengths) // 2
    cut = int(data.lengths[:half].sum())
    train, test = data.X[:cut], data.X[cut:]
    truth = HiddenChain(data.startprob, data.transmat, CategoricalEmission(data.emissionprob))
    oracle = raised(truth, train[:, 0], data.lengths[:half], max_iter=200, tol=1e-8).state
    best = log_likelihood_of(oracle, test[:, 0], data.lengths[half:])
    model = CategoricalHMM(4, n_features=8, random_state=0).fit(train, data.lengths[:half])
    return (best - model.score(test, data.lengths[half:])) / len(test)


@pytest.mark.parametrize("n_sequences", [2, 400])
def test_a_fit_equals_em_from_the_truth(n_sequences):
    gaps = [gap_to_oracle(seed, n_sequences=n_sequences) for seed in range(4)]
    assert max(gaps) < 0.002


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "tied"])
def test_points_are_recovered_for_every_covariance(kind):
    means = np.array([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    matrices = np.array([[[1.0, 0.3], [0.3, 0.6]]] * 3)
    if kind in ("spherical", "diag"):
        matrices = np.array([[[1.0, 0], [0, 1.0]], [[0.5, 0], [0, 0.5]], [[1.5, 0], [0, 1.5]]])
    data = make_gaussian_hmm(
        12_000, 2, 3, transmat=TRANSMAT, means=means, covars=matrices, random_state=1
    )
    # Far from the origin, in odd units: nothing may depend on them.
    shift, scale = np.array([1e4, -2e3]), (7.0 if kind == "spherical" else np.array([0.01, 300.0]))
    model = GaussianHMM(3, kind, random_state=0, min_covar=0.0).fit(data.X * scale + shift)
    order = match((model.means_ - shift) / scale, means)
    assert np.abs((model.means_[order] - shift) / scale - means).max() < 0.08
    found = model.covars_[order] / np.outer(scale * np.ones(2), scale * np.ones(2))
    assert np.abs(found - matrices).max() < 0.12
    assert np.abs(model.transmat_[np.ix_(order, order)] - TRANSMAT).max() < 0.04
    assert (model.predict(data.X * scale + shift) == np.argsort(order)[data.states]).mean() > 0.97


@pytest.mark.parametrize("kind", ["spherical", "diag", "full", "tied"])
def test_scale_is_a_unit_or_refused(kind):
    data = make_gaussian_hmm(600, 2, 2, separation=6, n_sequences=6, random_state=0)
    plain = GaussianHMM(2, kind, min_covar=0, random_state=0).fit(data.X, data.lengths)
    for exponent in (-300, -160, -140, -50, -3, 50, 140, 160, 300):
        unit = 10.0**exponent
        for batches in ((data.X * unit, data.lengths), ([(data.X * unit, data.lengths)],)):
            try:
                found = GaussianHMM(2, kind, random_state=0).fit(*batches)
            except InvalidInputError as error:
                assert "flow" in str(error)  # noqa: PT017
                assert abs(exponent) > 150
                continue
            assert np.allclose(found.means_ / unit, plain.means_, rtol=1e-4, atol=1e-4), exponent
            assert np.allclose(found.transmat_, plain.transmat_, atol=1e-4), exponent


def test_more_states_than_dimensions():
    means = 4.0 * np.arange(5)[:, None]
    data = make_gaussian_hmm(15_000, 1, 5, stay=0.5, means=means, random_state=2)
    model = GaussianHMM(5, random_state=0).fit(data.X)
    assert np.abs(np.sort(model.means_[:, 0]) - means[:, 0]).max() < 0.15


def test_the_number_of_states_is_found_and_says_why():
    data = make_hmm(50_000, 6, 3, transmat=TRANSMAT, emissionprob=EMISSIONS, random_state=0)
    assert CategoricalHMM("auto", refine=0, random_state=0).fit(data.X).n_components_ == 3
    noise = np.random.default_rng(0).integers(0, 6, 20_000)
    assert CategoricalHMM("auto", refine=0).fit(noise).n_components_ == 1
    points = make_gaussian_hmm(
        6000, 2, 3, transmat=TRANSMAT, means=[[0, 0], [8, 0], [0, 8]], random_state=0
    )
    model = GaussianHMM("auto", refine=5, random_state=0).fit(points.X, [100] * 60)
    selection = model.selection_
    assert model.n_components_ == selection.n_components == 3
    assert selection.table[2].is_reproduced
    assert selection.tests["chain over mixture, standard errors"] > 10
    assert "found again in the other half of the sequences" in str(selection)


def test_rows_without_order_are_one_state_and_a_mixture():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 2)) + 6 * rng.integers(3, size=3000)[:, None]
    selection = GaussianHMM("auto", refine=20, random_state=0).fit(rows).selection_
    assert selection.n_components == 1
    assert "a mixture of 3 predicts as well" in selection.reason
    assert selection.choices["medium"] == 3


@pytest.mark.parametrize("lengths", [None, [7] * 4, [1, 2, 3, 4]])
def test_few_rows_are_one_state(lengths):
    rows = np.random.default_rng(1).standard_normal((sum(lengths or [10]), 1))
    model = GaussianHMM("auto", random_state=0).fit(rows, lengths)
    assert model.n_components_ == model.selection_.n_components == 1


def test_likelihoods_of_sequences_add_up():
    data = make_hmm(5000, 6, 3, transmat=TRANSMAT, emissionprob=EMISSIONS, random_state=0)
    lengths = [3, 1, 2000, 996, 2000]
    chain = CategoricalHMM(3).fit(data.X)._on(data.X, lengths)
    each = chain.sequence_log_likelihoods()
    assert np.isclose(each.sum(), chain.log_likelihood(), rtol=1e-12)


def test_many_symbols_take_the_sparse_way_to_the_same_subspace():
    rng = np.random.default_rng(3)
    emissions = rng.dirichlet(np.full(600, 0.05), 3)
    data = make_hmm(60_000, 600, 3, transmat=TRANSMAT, emissionprob=emissions, random_state=4)
    model = CategoricalHMM(3, n_features=600, random_state=0).fit(data.X)
    order = match(model.emissionprob_, emissions)
    assert np.abs(model.emissionprob_[order] - emissions).sum(axis=1).max() < 0.3
    assert model.certificate_.strength > 1


def test_another_algorithm_finds_the_same_states():
    data = make_hmm(60_000, 6, 3, transmat=TRANSMAT, emissionprob=EMISSIONS, random_state=0)
    ours = CategoricalHMM(3, refine=0, random_state=0).fit(data.X)
    power = CategoricalHMM(3, refine=0, algorithm=PowerMethod(), random_state=0).fit(data.X)
    assert np.abs(ours.emissionprob_ - power.emissionprob_).max() < 0.02


def drifting(rng, length, apart, memory):
    """Two states `apart`, one after the other; noise remembers that of the row before."""
    states = (np.arange(length) >= rng.integers(length // 4, 3 * length // 4)).astype(int)
    rows = rng.standard_normal((length, 2))
    for t in range(1, length):
        rows[t] += memory * rows[t - 1]
    return rows + apart * states[:, None]


@pytest.mark.parametrize(
    "apart, memory, expected",
    [
        (8.0, 0.35, "stable"),
        # Halves find states into which drift is cut, within the two or without any.
        (8.0, 0.7, "uncertain"),
        (0.0, 0.7, "uncertain"),
    ],
)
def test_states_of_dependent_rows_are_stable_where_rows_alone_show_them(apart, memory, expected):
    rng = np.random.default_rng(0)
    parts = [drifting(rng, 30, apart, memory) for _ in range(60)]
    model = GaussianHMM("auto", random_state=0).fit(np.concatenate(parts), [30] * 60)
    certificate = model.certificate_
    assert certificate.dependence > 0.2
    assert certificate.in_halves == model.n_components_ > 1
    assert certificate.rows_alone == model.selection_.tests[ROWS_ALONE]
    assert certificate.verdict == expected
    if expected == "stable":
        assert model.n_components_ == 2
        assert "without their order" in str(certificate)
        assert replace(certificate, in_halves=0).verdict == "uncertain"
        assert replace(certificate, rows_alone=1.0).verdict == "uncertain"


def test_parts_of_one_sequence_say_nothing_of_other_sequences():
    rows = drifting(np.random.default_rng(1), 1500, 8.0, 0.35)
    model = GaussianHMM("auto", random_state=0).fit(rows)
    assert ROWS_ALONE not in model.selection_.tests
    assert np.isnan(model.certificate_.rows_alone)
    assert model.certificate_.verdict != "stable"


def test_parts_of_one_cloud_can_be_joined_without_a_loss():
    rng = np.random.default_rng(0)
    rows, sizes = rng.standard_normal((4000, 2)), np.full(40, 100)
    left = rows[:, 0] < 0
    owned = np.column_stack([left, ~left]).astype(float)

    def gains(rows, owned, others):
        means = np.array([rows[m > 0].mean(axis=0) for m in owned.T])
        covariances = np.array([np.cov(rows[m > 0].T) for m in owned.T])
        return gains_over_joined(means, covariances, (rows, owned), others, sizes)

    assert gains(rows, owned, rows).sum() < 0
    # Far apart they cannot be; a third one that can is what counts, and holes are passed over.
    apart = np.where(left[:, None], rows - 9, rows)
    found = gains(apart, owned, apart)
    assert found.shape == (40,)
    assert (found > 0).all()
    cut = np.column_stack([left, ~left & (rows[:, 1] < 0), ~left & (rows[:, 1] >= 0)])
    assert gains(apart, cut.astype(float), apart).sum() < 0
    holes = apart.copy()
    holes[:100] = np.nan
    assert gains(apart, owned, holes)[0] == 0
    # Diagonal parts of one cloud of correlated columns.
    turned = rows @ [[1.0, 0.9], [0.0, 0.4]]
    means = np.array([turned[m > 0].mean(axis=0) for m in owned.T])
    covariances = np.array([np.diag(turned[m > 0].var(axis=0)) for m in owned.T])
    assert gains_over_joined(means, covariances, (turned, owned), turned, sizes).sum() < 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", [610, 617])
def test_states_that_moments_do_not_determine_are_searched_until_two_starts_agree(seed):
    # One round of starts ended .007 nat per row below.
    drawn = make_gaussian_hmm(
        40_000, 5, 10, separation=3.0, stay=0.5, n_sequences=2, random_state=seed
    )
    rows = drawn.X[:20_000]
    truth = GaussianHMM(10, init_params="")
    truth.startprob_, truth.transmat_ = drawn.startprob, drawn.transmat
    truth.means_, truth.covariances_ = drawn.means, np.einsum("jaa->ja", drawn.covars)
    reached = truth.fit(rows).score(rows)
    model = GaussianHMM(10, random_state=0).fit(rows)
    assert model.score(rows) > reached - 0.001 * len(rows)
