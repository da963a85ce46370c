"""Sequences that count more than once, and intervals of chains."""

import pickle

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.estimation.hmm.cells import _quantiles
from latensor.estimation.hmm.intervals import SHORTEST_BLOCK, blocks
from latensor.estimation.hmm.sequence_input import weighted_sequences
from latensor.exceptions import InvalidInputError
from latensor.models.categorical_hmm import CategoricalHMM
from latensor.models.gaussian_hmm import GaussianHMM
from latensor.moments.sequences import PairAccumulator, SequenceSample, WindowAccumulator
from latensor.refinement.hmm import CategoricalEmission, GaussianEmission, HiddenChain, Sequences
from latensor.refinement.hmm.baum_welch import climb, step, total_likelihood

SYMBOLS = make_hmm(4000, 6, 3, n_sequences=30, stay=0.7, concentration=0.3, random_state=0)
POINTS = make_gaussian_hmm(
    3000, 2, 3, n_sequences=20, stay=0.7, means=[[0, 0], [5, 0], [0, 6]], random_state=1
)
NAMES = {
    CategoricalHMM: ("startprob_", "transmat_", "emissionprob_"),
    GaussianHMM: ("startprob_", "transmat_", "means_", "covariances_"),
}


def repeated(X, lengths, weights):
    ends = np.cumsum(lengths)
    parts = [
        X[end - size : end]
        for end, size, weight in zip(ends, lengths, weights, strict=True)
        for _ in range(int(weight))
    ]
    return np.concatenate(parts), np.repeat(lengths, weights)


def gap(one, other):
    return max(np.abs(getattr(one, name) - getattr(other, name)).max() for name in NAMES[type(one)])


def some_weights(data, low=1):
    return np.random.default_rng(7).integers(low, 4, len(data.lengths))


@pytest.mark.parametrize("n_symbols", [6, 400])
def test_weighted_moments_are_those_of_repetitions(n_symbols):
    rng = np.random.default_rng(0)
    lengths = rng.integers(3, 40, 25)
    symbols = rng.integers(0, n_symbols, lengths.sum())
    seen = rng.standard_normal((len(symbols), 2))
    weights = rng.integers(0, 3, 25)
    features = rng.standard_normal((n_symbols, 2))
    rows, sizes = repeated(np.c_[symbols, seen], lengths, weights)
    again = rows[:, 0].astype(np.int64)
    found = PairAccumulator(n_symbols).update(symbols, lengths, weights).finalize()
    expected = PairAccumulator(n_symbols).update(again, sizes).finalize()
    assert (found.n_rows, found.n_sequences) == (expected.n_rows, expected.n_sequences)
    for name in ("counts", "firsts"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for lag, table in expected.tables.items():
        assert np.abs(found.tables[lag] - table).max() == 0
    windows = WindowAccumulator(features, n_observables=2)
    found = windows.spawn().update(symbols, lengths, seen, weights).finalize()
    expected = windows.spawn().update(again, sizes, rows[:, 1:]).finalize()
    for name in ("counts", "past", "future", "products", "observed", "observed_past"):
        assert np.abs(getattr(found, name) - getattr(expected, name)).max() < 1e-11, name


def test_a_sample_adds_the_weights_of_equal_pieces():
    lengths, weights = SYMBOLS.lengths, some_weights(SYMBOLS)
    found = SequenceSample(2000).update(SYMBOLS.X, lengths, weights).finalize()
    expected = SequenceSample(2000).update(*repeated(SYMBOLS.X, lengths, weights)).finalize()
    for one, other in zip(found, expected, strict=True):
        assert np.array_equal(one, other)


def chains():
    rng = np.random.default_rng(1)
    transmat, start = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(3))
    yield HiddenChain(start, transmat, CategoricalEmission(rng.dirichlet(np.ones(6), 3)))
    means = POINTS.means + 0.3
    for kind, shape in (("diag", (3, 2)), ("full", (3, 2, 2)), ("tied", (2, 2))):
        covariances = np.ones(shape) if kind == "diag" else np.broadcast_to(np.eye(2), shape)
        yield HiddenChain(start, transmat, GaussianEmission(means, covariances.copy(), kind))


@pytest.mark.parametrize("chain", list(chains()), ids=["symbols", "diag", "full", "tied"])
@pytest.mark.parametrize("size", [16_384, 64])
def test_a_weighted_pass_is_one_over_repetitions(chain, size):
    data = SYMBOLS if isinstance(chain.emission, CategoricalEmission) else POINTS
    X = data.X[:, 0] if data is SYMBOLS else data.X
    weights = some_weights(data)
    again, sizes = repeated(X, data.lengths, weights)
    weighted = Sequences.of(data.lengths, size, weights)
    assert weighted.weight == len(again)
    found, value = step(chain, X, weighted, 1)
    expected, likelihood = step(chain, again, Sequences.of(sizes), 1)
    assert value == pytest.approx(likelihood, rel=1e-12)
    for one, other in zip(found.packed(), expected.packed(), strict=True):
        assert np.abs(one - other).max() < 1e-10
    assert total_likelihood(chain, X, weighted, 2) == pytest.approx(likelihood, rel=1e-12)
    settings = {"max_iter": 9, "tol": 0.0, "accelerate": True}
    threads = [climb(chain, X, weighted, n_threads=n, **settings).history for n in (1, 3)]
    assert threads[0] == threads[1]
    plain = climb(chain, again, Sequences.of(sizes), n_threads=1, **settings).history
    assert np.abs(np.array(plain) - threads[0]).max() < 1e-9


@pytest.mark.parametrize("refine", [0, 5, "auto"])
@pytest.mark.parametrize(
    "model", [CategoricalHMM(3), GaussianHMM(3, "full"), GaussianHMM(3), GaussianHMM("auto")]
)
def test_a_weight_is_a_repetition(model, refine):
    data = SYMBOLS if isinstance(model, CategoricalHMM) else POINTS
    model = clone(model).set_params(random_state=0, refine=refine)
    weights = some_weights(data)
    again = repeated(data.X, data.lengths, weights)
    found = clone(model).fit(data.X, data.lengths, weights)
    assert gap(found, clone(model).fit(*again)) == 0
    assert found.certificate_.n_rows == len(again[0])
    assert gap(clone(model).fit([(data.X, data.lengths, weights)]), found) == 0
    first = clone(model).partial_fit(data.X, data.lengths, weights)
    assert gap(first, clone(model).partial_fit(*again)) == 0
    worker = pickle.loads(pickle.dumps(first)).spawn()
    merged = first.merge(worker.partial_fit(data.X, data.lengths, weights))
    twice = clone(model).partial_fit(data.X, data.lengths, weights)
    assert gap(merged, twice.partial_fit(*again)) < 1e-8


def test_one_number_is_the_weight_of_every_sequence():
    model = CategoricalHMM(3, refine=0, random_state=0)
    half = clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, np.full(len(SYMBOLS.lengths), 0.5))
    assert gap(half, clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, 0.5)) == 0
    ones = clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, 1)
    assert gap(ones, clone(model).fit(SYMBOLS.X, SYMBOLS.lengths)) == 0


@pytest.mark.parametrize("points", [False, True])
def test_equal_sequences_are_kept_once_and_stand_by_weight(points):
    rows = np.array([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 1, 2])
    rows = np.c_[rows, rows] / 2 if points else rows
    lengths = np.array([3, 3, 3, 6])
    found = weighted_sequences(rows, lengths, None)
    assert (found[0] == np.concatenate([rows[6:], rows[:3]])).all()
    assert found[1].tolist() == [3, 6, 3]
    assert found[2].tolist() == [1, 1, 2]
    found = weighted_sequences(rows, lengths, [0, 2.5, 0, 1])
    assert (found[0] == np.concatenate([rows[9:], rows[:3]])).all()
    assert found[1].tolist() == [6, 3]
    assert found[2].tolist() == [1, 2.5]
    assert weighted_sequences(rows[:9], lengths[:3], [0, 1, 1])[2] is None


def test_sequences_of_weight_zero_are_not_there():
    weights = some_weights(SYMBOLS, low=0)
    weights[0] = 0
    kept = weights > 0
    X = SYMBOLS.X[np.repeat(kept, SYMBOLS.lengths)]
    found = CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths, weights)
    expected = CategoricalHMM(3, random_state=0).fit(X, SYMBOLS.lengths[kept], weights[kept])
    assert gap(found, expected) == 0


def test_weighted_quantiles_are_those_of_repeated_numbers():
    rng = np.random.default_rng(2)
    values, weights = rng.standard_normal(40), rng.integers(0, 4, 40)
    levels = np.linspace(0, 1, 23)
    found = _quantiles(values, levels, weights.astype(float))
    assert np.abs(found - np.quantile(np.repeat(values, weights), levels)).max() < 1e-12


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.ones(4000), r"one number per row \(4000\): give one per sequence \(30\)"),
        (np.ones(29), r"one number per sample \(30\)"),
        (-np.ones(30), "must not be negative"),
        (np.zeros(30), "zero for every sequence"),
        (np.full(30, np.nan), "NaN"),
    ],
)
def test_bad_weights_are_told(weights, message):
    for method in ("fit", "partial_fit"):
        with pytest.raises(InvalidInputError, match=message):
            getattr(CategoricalHMM(2), method)(SYMBOLS.X, SYMBOLS.lengths, weights)


def test_blocks_are_equal_parts_of_long_sequences():
    assert np.array_equal(blocks(np.array([9, 5, 7]), 3), [9, 5, 7])
    found = blocks(np.array([1000, 130, 70]), 10)
    assert found.sum() == 1200
    assert len(found) == 10
    assert found[-2:].tolist() == [130, 70]
    assert np.ptp(found[:-2]) <= 1
    with pytest.raises(InvalidInputError, match="lower n_groups to 4"):
        blocks(np.array([4 * SHORTEST_BLOCK]), 5)


TRANSMAT = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
EMISSIONS = np.array(
    [
        [0.50, 0.30, 0.10, 0.05, 0.03, 0.02],
        [0.05, 0.05, 0.45, 0.35, 0.05, 0.05],
        [0.02, 0.03, 0.05, 0.10, 0.40, 0.40],
    ]
)


@pytest.mark.parametrize("n_sequences, refine, runs", [(1, 0, 20), (100, 0, 8), (1, 5, 5)])
def test_intervals_of_symbols_hold_the_truth(n_sequences, refine, runs):
    inside = []
    for seed in range(runs):
        data = make_hmm(
            6000, 6, 3, n_sequences=n_sequences, transmat=TRANSMAT, emissionprob=EMISSIONS,
            random_state=seed,
        )  # fmt: skip
        model = CategoricalHMM(3, refine=refine, random_state=0).fit(data.X, data.lengths)
        found = model.intervals(data.X, data.lengths, level=0.9, n_resamples=30, n_groups=30)
        order = linear_sum_assignment(
            np.abs(model.emissionprob_[:, None] - data.emissionprob[None]).sum(axis=2)
        )[1]
        truth = {
            "transmat": data.transmat[np.ix_(order, order)],
            "emissionprob": data.emissionprob[order],
        }
        assert ("startprob" in found) == (n_sequences > 1)
        for name, value in truth.items():
            each = found[name]
            inside.append(((each.low <= value) & (value <= each.high)).mean())
    assert 0.75 < np.mean(inside) < 0.99


def test_intervals_of_points_hold_the_truth():
    inside = []
    for seed in range(5):
        data = make_gaussian_hmm(
            4000, 2, 3, transmat=TRANSMAT, means=[[0, 0], [4, 0], [0, 4]], random_state=seed
        )
        model = GaussianHMM(3, random_state=0, refine=20).fit(data.X)
        found = model.intervals(data.X, level=0.9, n_resamples=30, n_groups=40)
        order = linear_sum_assignment(
            ((model.means_[:, None] - data.means[None]) ** 2).sum(axis=2)
        )[1]
        for name, value in (
            ("means", data.means[order]),
            ("transmat", data.transmat[np.ix_(order, order)]),
        ):
            inside.append(((found[name].low <= value) & (value <= found[name].high)).mean())
    # Moments are noisier than the likelihood around whose answer they are laid.
    assert 0.8 < np.mean(inside) <= 1
