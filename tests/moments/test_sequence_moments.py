import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.datasets.sequences import make_hmm
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.moments.sequences import DECAYS, LAGS, PairSums, WindowSums
from latensor.moments.unit_sample import Sample
from sequence_examples import MANY, Coded, population_windows, random_chain, units


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
    found = PairSums(Coded(n_symbols)).update(units(symbols, lengths)).finalize()
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
    rows = np.c_[symbols, observables]
    found = WindowSums(Coded(4), features).update(units(rows, lengths))
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
    found = WindowSums(Coded(5), features).update(units(symbols, [n])).finalize()
    past = np.zeros((n, 2 * len(DECAYS)))
    for t in range(1, n):
        for i, decay in enumerate(DECAYS):
            block = slice(2 * i, 2 * i + 2)
            past[t, block] = decay * past[t - 1, block] + features[symbols[t - 1]]
    sums = np.stack([past[1:-1][symbols[1:-1] == x].sum(axis=0) for x in range(5)])
    assert np.abs(found.past - sums).max() < 1e-9 * np.abs(sums).max()


def test_sample_windows_approach_those_of_the_population():
    rng = np.random.default_rng(3)
    fraction, transmat = random_chain(rng, 3)
    emissions = rng.dirichlet(np.ones(5), 3)
    features = rng.standard_normal((5, 2))
    truth = population_windows(transmat, emissions, features)
    data = make_hmm(
        200_000, 5, 3, startprob=fraction, transmat=transmat, emissionprob=emissions, random_state=4
    )
    found = WindowSums(Coded(5), features).update(units(data.X[:, 0], data.lengths)).finalize()
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

    def accumulate(empty):
        whole = empty.update(units(symbols, lengths))
        first = empty.update(units(symbols[:border], lengths[:cut]))
        second = empty.update(units(symbols[border:], lengths[cut:]))
        stream = empty
        for part in parts:
            stream = stream.update(units(part, [len(part)]))
        merged = pickle.loads(pickle.dumps(second)).merge(first)
        return [each.finalize() for each in (whole, merged, stream)]

    code = Coded(n_symbols)
    whole, *others = accumulate(PairSums(code))
    for found in others:
        assert (whole.counts == found.counts).all()
        assert (whole.firsts == found.firsts).all()
        for lag in LAGS:
            assert abs(whole.tables[lag] - found.tables[lag]).max() == 0
    whole, *others = accumulate(WindowSums(code, features))
    for found in others:
        assert np.abs(whole.products - found.products).max() < 1e-9
        assert np.abs(whole.past - found.past).max() < 1e-9


@pytest.mark.parametrize("n_symbols", [4, 300])
@pytest.mark.parametrize("most, margin", [(400, 400), (5000, 600)])
def test_pieces_of_long_sequences_count_every_row_and_pair_once(n_symbols, most, margin):
    rng = np.random.default_rng(7)
    lengths = np.array([9_000, 3, 700, 1, 401])
    rows = np.c_[rng.integers(0, n_symbols, lengths.sum()), rng.standard_normal(lengths.sum())]
    weights = np.array([1.0, 2.0, 1.5, 1.0, 3.0])
    whole = units(rows, lengths, weights)
    cut, owners = whole.rows.cut(most, margin)
    assert cut.sizes.max() <= most
    assert cut.sizes.sum() == lengths.sum()
    pieces_ = Batch((cut,), weights[owners], np.arange(len(owners), dtype=np.uint64))
    code = Coded(n_symbols)
    one, other = (PairSums(code).update(b).finalize() for b in (whole, pieces_))
    assert (one.n_rows, one.n_sequences) == (other.n_rows, other.n_sequences)
    assert np.array_equal(one.firsts, other.firsts)
    for lag in LAGS:
        assert abs(one.tables[lag] - other.tables[lag]).max() == 0
    features = rng.standard_normal((n_symbols, 2))
    one, other = (WindowSums(code, features).update(b).finalize() for b in (whole, pieces_))
    for name in ("counts", "past", "future", "products", "observed", "observed_past"):
        expected = getattr(one, name)
        assert np.abs(getattr(other, name) - expected).max() < 1e-9 * np.abs(expected).max()


def test_ragged_units_are_taken_stacked_and_cut_like_a_list_of_arrays():
    rng = np.random.default_rng(8)
    lengths = rng.integers(1, 9, 20)
    ragged = Ragged.of(rng.standard_normal((lengths.sum(), 2)), lengths)
    listed = np.split(ragged.rows, np.cumsum(lengths)[:-1])
    for chosen in (slice(3, 9), slice(5, 5), np.array([7, 2, 2, 19]), lengths > 4):
        found = ragged[chosen]
        expected = [listed[i] for i in np.arange(20)[chosen]]
        assert found.lengths.tolist() == [len(part) for part in expected]
        assert np.array_equal(found.rows, np.concatenate([np.empty((0, 2)), *expected]))
    again = Ragged.stacked([ragged[:4], ragged[4:]])
    assert np.array_equal(again.rows, ragged.rows)
    batch = units(ragged.rows, lengths)
    blocks = batch.blocks(10)
    assert np.array_equal(np.concatenate([b.rows.rows for b in blocks]), ragged.rows)
    assert all(b.extent >= 10 and b.extent - b.sizes[-1] < 10 for b in blocks[:-1])


def test_a_sample_of_sequences_does_not_depend_on_the_order():
    rng = np.random.default_rng(6)
    symbols, lengths = sequences(rng, 60, 5)
    batch = units(symbols, lengths)
    sample = Sample(300, 1).update(batch)
    first, second = Sample(300, 1), Sample(300, 1)
    for i in rng.permutation(60):
        part = batch.take(np.array([i]))
        first, second = (first.update(part), second) if i % 3 else (first, second.update(part))
    found = second.merge(first)
    assert np.array_equal(found.units.rows.rows, sample.units.rows.rows)
    assert np.array_equal(found.units.keys, sample.units.keys)
    assert 200 < found.units.extent <= 300
    assert len(Sample(1, 1).update(batch).units) == 1


@pytest.mark.parametrize(
    "one, other",
    [
        (PairSums(Coded(3)), PairSums(Coded(4))),
        (WindowSums(Coded(3), np.eye(3)), WindowSums(Coded(3), 2 * np.eye(3))),
    ],
)
def test_what_does_not_fit_is_not_merged(one, other):
    with pytest.raises(InvalidInputError, match=r"different coordinates.*spawn\(\)"):
        one.merge(other)


def test_read_only_input_stays_as_it_is():
    symbols, lengths = np.arange(12) % 3, np.array([5, 7])
    for array in (symbols, lengths):
        array.setflags(write=False)
    PairSums(Coded(3)).update(units(symbols, lengths))
    WindowSums(Coded(3), np.eye(3)).update(units(symbols, lengths))
