"""Sequences that count more than once, and intervals of chains."""

import itertools
import pickle

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.exceptions import InvalidInputError
from latensor.models.hmm.base import SHORTEST_BLOCK
from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM
from latensor.models.hmm.sequence_input import merged_equal
from latensor.moments.sequences import PairSums, WindowSums
from latensor.refinement.hmm import CategoricalEmission, GaussianEmission, HiddenChain
from sequence_examples import Coded, one_step, raised, units

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
    kept = weights > 0
    given = np.c_[symbols, seen][np.repeat(kept, lengths)], lengths[kept], weights[kept]
    code = Coded(n_symbols)
    found = PairSums(code).update(units(*given)).finalize()
    expected = PairSums(code).update(units(again, sizes)).finalize()
    assert (found.n_rows, found.n_sequences) == (expected.n_rows, expected.n_sequences)
    for name in ("counts", "firsts"):
        assert np.array_equal(getattr(found, name), getattr(expected, name))
    for lag, table in expected.tables.items():
        assert np.abs(found.tables[lag] - table).max() == 0
    found = WindowSums(code, features).update(units(*given)).finalize()
    expected = WindowSums(code, features).update(units(rows, sizes)).finalize()
    for name in ("counts", "past", "future", "products", "observed", "observed_past"):
        assert np.abs(getattr(found, name) - getattr(expected, name)).max() < 1e-11, name


def chains():
    rng = np.random.default_rng(1)
    transmat, start = rng.dirichlet(np.ones(3), 3), rng.dirichlet(np.ones(3))
    yield HiddenChain(start, transmat, CategoricalEmission(rng.dirichlet(np.ones(6), 3)))
    means = POINTS.means + 0.3
    for kind, shape in (("diag", (3, 2)), ("full", (3, 2, 2)), ("tied", (2, 2))):
        covariances = np.ones(shape) if kind == "diag" else np.broadcast_to(np.eye(2), shape)
        yield HiddenChain(start, transmat, GaussianEmission.of(means, covariances.copy(), kind))


@pytest.mark.parametrize("chain", list(chains()), ids=["symbols", "diag", "full", "tied"])
@pytest.mark.parametrize("size", [16_384, 64])
def test_a_weighted_pass_is_one_over_repetitions(chain, size):
    data = SYMBOLS if isinstance(chain.emission, CategoricalEmission) else POINTS
    X = data.X[:, 0] if data is SYMBOLS else data.X
    weights = some_weights(data)
    again, sizes = repeated(X, data.lengths, weights)
    found, value = one_step(chain, X, data.lengths, weights, size)
    expected, likelihood = one_step(chain, again, sizes)
    assert value == pytest.approx(likelihood, rel=1e-12)
    assert np.abs(found.transmat - expected.transmat).max() < 1e-10
    assert np.abs(found.emission.packed() - expected.emission.packed()).max() < 1e-10
    settings = {"max_iter": 9, "tol": 0.0}
    weighted = raised(chain, X, data.lengths, weights, **settings).history
    plain = raised(chain, again, sizes, **settings).history
    assert np.abs(np.array(plain) - weighted).max() < 1e-9


@pytest.mark.parametrize(
    "model, refine",
    [
        *itertools.product((CategoricalHMM(3), GaussianHMM(3, "full")), (0, 5, "auto")),
        (GaussianHMM(3), 0),
        (GaussianHMM("auto"), 0),
    ],
)
def test_a_weight_is_a_repetition(model, refine):
    data = SYMBOLS if isinstance(model, CategoricalHMM) else POINTS
    model = clone(model).set_params(random_state=0, refine=refine)
    weights = some_weights(data)
    again = repeated(data.X, data.lengths, weights)
    found = clone(model).fit(data.X, data.lengths, weights)
    # Sums of other blocks are rounded in another way, and EM ends within its tolerance.
    bound = 1e-8 if refine != "auto" else 1e-5
    assert gap(found, clone(model).fit(*again)) < bound
    assert found.certificate_.n_rows == len(again[0])
    assert gap(clone(model).fit([(data.X, data.lengths, weights)]), found) == 0
    first = clone(model).partial_fit(data.X, data.lengths, weights)
    assert gap(first, clone(model).partial_fit(*again)) < bound
    worker = pickle.loads(pickle.dumps(first)).spawn()
    merged = first.merge(worker.partial_fit(data.X, data.lengths, weights))
    twice = clone(model).partial_fit(data.X, data.lengths, weights)
    twice.spawn()  # fixes the coordinates by the first half, as for the other
    assert gap(merged, twice.partial_fit(*again)) < bound


def test_one_number_is_the_weight_of_every_sequence():
    model = CategoricalHMM(3, refine=0, random_state=0)
    half = clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, np.full(len(SYMBOLS.lengths), 0.5))
    assert gap(half, clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, 0.5)) == 0
    ones = clone(model).fit(SYMBOLS.X, SYMBOLS.lengths, 1)
    assert gap(ones, clone(model).fit(SYMBOLS.X, SYMBOLS.lengths)) == 0


@pytest.mark.parametrize("points", [False, True])
def test_equal_sequences_are_kept_once(points):
    rows = np.array([0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1, 2, 0, 1, 2])
    rows = np.c_[rows, rows] / 2 if points else rows
    found = merged_equal(units(rows, [3, 3, 3, 6], [1, 2.5, 1, 1]))
    assert np.array_equal(found.rows.rows, rows[3:])
    assert found.rows.lengths.tolist() == [3, 3, 6]
    assert found.weights.tolist() == [3.5, 1, 1]


def test_sequences_of_weight_zero_are_not_there():
    weights = some_weights(SYMBOLS, low=0)
    weights[0] = 0
    kept = weights > 0
    X = SYMBOLS.X[np.repeat(kept, SYMBOLS.lengths)]
    found = CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths, weights)
    expected = CategoricalHMM(3, random_state=0).fit(X, SYMBOLS.lengths[kept], weights[kept])
    assert gap(found, expected) < 1e-9


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
    model = CategoricalHMM(2, refine=1, random_state=0).fit(SYMBOLS.X[:1200])
    source = model._source(SYMBOLS.X[:1200], [1000, 130, 70], None, reset=False)
    found = model._divided(source, 10).in_memory.rows
    assert found.sizes.sum() == 1200
    assert len(found) == 12
    assert found.sizes[-3:].tolist() == [65, 65, 70]
    assert np.ptp(found.sizes[:-3]) <= 1
    with pytest.raises(InvalidInputError, match="lower n_groups to 4"):
        model.intervals(SYMBOLS.X[: 4 * SHORTEST_BLOCK], n_groups=5)


TRANSMAT = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.2, 0.7]])
EMISSIONS = np.array(
    [
        [0.50, 0.30, 0.10, 0.05, 0.03, 0.02],
        [0.05, 0.05, 0.45, 0.35, 0.05, 0.05],
        [0.02, 0.03, 0.05, 0.10, 0.40, 0.40],
    ]
)


@pytest.mark.parametrize("n_sequences, refine, runs", [(100, 0, 8), (1, 0, 20), (1, 5, 5)])
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
    for seed in range(3):
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


def test_intervals_of_transitions_from_moments_alone_know_their_bias():
    inside = []
    lengths = [100] * 60
    for seed in range(4):
        data = make_gaussian_hmm(
            6000, 2, 3, transmat=TRANSMAT, means=[[0, 0], [3, 0], [0, 3]], random_state=seed
        )
        model = GaussianHMM(3, random_state=0, refine=0).fit(data.X, lengths)
        found = model.intervals(data.X, lengths, n_resamples=60)["transmat"]
        gaps = ((data.means[:, None] - model.means_[None]) ** 2).sum(axis=2)
        order = np.ix_(*[linear_sum_assignment(gaps)[1]] * 2)
        inside.append((found.low[order] <= data.transmat) & (data.transmat <= found.high[order]))
    assert np.mean(inside) > 0.85
