import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.datasets.sequences import make_hmm
from latensor.exceptions import InvalidInputError
from latensor.moments.sequences import (
    DECAYS,
    LAGS,
    PairAccumulator,
    SequenceSample,
    WindowAccumulator,
)
from sequence_examples import MANY, population_windows, random_chain


def sequences(rng, n_sequences, n_symbols, longest=40):
    lengths = rng.integers(3, longest, n_sequences)
    return rng.integers(0, n_symbols, lengths.sum()), lengths


def pieces(symbols, lengths):
    return np.split(symbols, np.cumsum(lengths)[:-1])


def plain_pairs(symbols, lengths, n_symbols, lag):
    table = np.zeros((n_symbols, n_symbols))
    for piece in pieces(symbols, lengths):
        for before, after in zip(piece[:-lag], piece[lag:], strict=True):
            table[before, after] += 1
    return table


def plain_windows(symbols, lengths, features, observables):
    """The sums of `Windows` by their definition, row by row."""
    d, r = features.shape
    q = r * len(DECAYS)
    sums = [np.zeros(s) for s in ((d,), (d, q), (d, q), (d, q, q))]
    g = observables.shape[1]
    further = [np.zeros(s) for s in ((g,), (g, q), (g, q))]
    row = 0
    for piece in pieces(symbols, lengths):
        for t in range(len(piece)):
            if 0 < t < len(piece) - 1:
                past = np.concatenate(
                    [sum(g**s * features[x] for s, x in enumerate(piece[:t][::-1])) for g in DECAYS]
                )
                future = np.concatenate(
                    [sum(g**s * features[x] for s, x in enumerate(piece[t + 1 :])) for g in DECAYS]
                )
                x = piece[t]
                for total, value in zip(
                    sums, (1, past, future, np.outer(past, future)), strict=True
                ):
                    total[x] += value
                seen = observables[row]
                for total, value in zip(
                    further, (seen, np.outer(seen, past), np.outer(seen, future)), strict=True
                ):
                    total += value
            row += 1
    return [*sums, *further]


@pytest.mark.parametrize("n_symbols", [3, 300])
def test_pairs_are_counted_within_sequences(n_symbols):
    symbols, lengths = sequences(np.random.default_rng(0), 12, n_symbols)
    found = PairAccumulator(n_symbols).update(symbols, lengths).finalize()
    for lag in LAGS:
        table = found.tables[lag]
        assert scipy.sparse.issparse(table) == (n_symbols > 256)
        dense = table.toarray() if scipy.sparse.issparse(table) else table
        assert (dense == plain_pairs(symbols, lengths, n_symbols, lag)).all()
    assert (found.counts == np.bincount(symbols, minlength=n_symbols)).all()
    assert found.firsts.sum() == found.n_sequences == 12
    assert found.n_rows == len(symbols)


def test_windows_follow_their_definition():
    rng = np.random.default_rng(1)
    symbols, lengths = sequences(rng, 8, 4)
    features, observables = rng.standard_normal((4, 2)), rng.standard_normal((len(symbols), 3))
    found = WindowAccumulator(features, n_observables=3).update(symbols, lengths, observables)
    expected = plain_windows(symbols, lengths, features, observables)
    for name, value in zip(
        (
            "counts",
            "past",
            "future",
            "products",
            "observed",
            "observed_past",
            "observed_future",
        ),
        expected,
        strict=True,
    ):
        assert np.abs(getattr(found.finalize(), name) - value).max() < 1e-10, name


def test_windows_of_one_long_sequence_do_not_see_where_ranges_end():
    rng = np.random.default_rng(2)
    n = 40_000
    symbols, features = rng.integers(0, 5, n), rng.standard_normal((5, 2))
    found = WindowAccumulator(features).update(symbols, [n]).finalize()
    past = np.zeros((n, 2 * len(DECAYS)))
    for t in range(1, n):
        for i, decay in enumerate(DECAYS):
            block = slice(2 * i, 2 * i + 2)
            past[t, block] = decay * past[t - 1, block] + features[symbols[t - 1]]
    sums = np.stack([past[1:-1][symbols[1:-1] == x].sum(axis=0) for x in range(5)])
    assert np.abs(found.past - sums).max() < 1e-9 * np.abs(sums).max()


def test_sample_windows_approach_those_of_the_population():
    rng = np.random.default_rng(3)
    share, transmat = random_chain(rng, 3)
    emissions = rng.dirichlet(np.ones(5), 3)
    features = rng.standard_normal((5, 2))
    truth = population_windows(transmat, emissions, features)
    data = make_hmm(
        200_000, 5, 3, startprob=share, transmat=transmat, emissionprob=emissions, random_state=4
    )
    found = WindowAccumulator(features).update(data.X[:, 0], data.lengths).finalize()
    scale = np.abs(truth.products).max() / MANY
    difference = np.abs(found.products / found.weight - truth.products / MANY).max()
    assert difference < 30 / np.sqrt(200_000) * scale


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6), st.sampled_from([4, 300]))
def test_any_split_and_order_gives_the_same_moments(seed, cut, n_symbols):
    rng = np.random.default_rng(seed)
    symbols, lengths = sequences(rng, 7, n_symbols)
    features = rng.standard_normal((n_symbols, 2))
    parts = pieces(symbols, lengths)
    border = int(lengths[:cut].sum())

    def accumulate(make):
        whole = make().update(symbols, lengths)
        first = make().update(symbols[:border], lengths[:cut])
        second = first.spawn().update(symbols[border:], lengths[cut:])
        stream = make()
        for part in parts:
            stream.update(part, [len(part)])
        merged = pickle.loads(pickle.dumps(second)).merge(first)
        return [each.finalize() for each in (whole, merged, stream)]

    for found in accumulate(lambda: PairAccumulator(n_symbols))[1:]:
        whole = accumulate(lambda: PairAccumulator(n_symbols))[0]
        assert (whole.counts == found.counts).all()
        assert (whole.firsts == found.firsts).all()
        for lag in LAGS:
            assert abs(whole.tables[lag] - found.tables[lag]).max() == 0
    whole, *others = accumulate(lambda: WindowAccumulator(features))
    for found in others:
        assert np.abs(whole.products - found.products).max() < 1e-9
        assert np.abs(whole.past - found.past).max() < 1e-9


@pytest.mark.parametrize("n_threads", [2, 5])
def test_threads_change_no_bit(n_threads):
    rng = np.random.default_rng(5)
    symbols, features = rng.integers(0, 6, 150_000), rng.standard_normal((6, 3))
    lengths, seen = [100_000, 50_000], rng.standard_normal((150_000, 2))
    one = WindowAccumulator(features, n_observables=2).update(symbols, lengths, seen).finalize()
    many = WindowAccumulator(features, n_observables=2, n_threads=n_threads)
    found = many.update(symbols, lengths, seen).finalize()
    for name in ("past", "future", "products", "observed_past", "observed_future"):
        assert (getattr(one, name) == getattr(found, name)).all()


def test_a_sample_of_sequences_does_not_depend_on_the_order():
    rng = np.random.default_rng(6)
    symbols, lengths = sequences(rng, 60, 5)
    parts = pieces(symbols, lengths)
    sample = SequenceSample(300).update(symbols, lengths)
    first, second = SequenceSample(300), SequenceSample(300)
    for i in rng.permutation(60):
        (first if i % 3 else second).update(parts[i], [len(parts[i])])
    rows, sizes, weights = second.merge(first).finalize()
    expected, expected_sizes, _ = sample.finalize()
    assert weights is None
    assert (rows == expected).all()
    assert (sizes == expected_sizes).all()
    assert 200 < len(rows) <= 300


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PairAccumulator(3).merge(PairAccumulator(4)), "4 symbols"),
        (
            lambda: WindowAccumulator(np.eye(3)).merge(WindowAccumulator(2 * np.eye(3))),
            r"different features.*spawn\(\)",
        ),
        (lambda: SequenceSample(5).merge(SequenceSample(6)), "a sample of 6 rows"),
    ],
)
def test_what_does_not_fit_is_not_merged(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_read_only_input_stays_as_it_is():
    symbols, lengths = np.arange(12) % 3, np.array([5, 7])
    for array in (symbols, lengths):
        array.setflags(write=False)
    PairAccumulator(3).update(symbols, lengths)
    WindowAccumulator(np.eye(3)).update(symbols, lengths)
