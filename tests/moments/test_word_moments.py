"""Word moments against the sums over ordered pairs and triples of tokens, written out."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.arrays.threads import inner_threads
from latensor.exceptions import InvalidInputError
from latensor.moments import documents as document_moments
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_power_sums import WordPowerSums, WordSliceSums
from latensor.moments.word_totals import WordTotalSums
from latensor.moments.word_triples import WordRows, WordTripleSums
from latensor.moments.words import WordPairSums

WORDS, CAP = 5, 6.0


def documents(seed: int, n: int = 12, longest: int = 8, dtype=np.float64):
    rng = np.random.default_rng(seed)
    counts = np.stack(
        [
            np.bincount(rng.integers(WORDS, size=rng.integers(longest + 1)), minlength=WORDS)
            for _ in range(n)
        ]
    )
    return scipy.sparse.csr_array(counts.astype(dtype))


def batch(counts, weights=None, kind=Batch):
    weights = np.ones(counts.shape[0]) if weights is None else np.asarray(weights, dtype=float)
    whole = kind((counts,), weights, np.arange(len(weights), dtype=np.uint64))
    return whole if (weights > 0).all() else whole.take(np.flatnonzero(weights))


def by_tokens(counts, scale, weights=None):
    """E1, E2 and E3 in scaled words: averages over ordered tuples of different tokens."""
    dense = counts.toarray()
    repeats = np.ones(len(dense)) if weights is None else weights
    moments = []
    for order in (1, 2, 3):
        total, weight = np.zeros((WORDS,) * order), 0.0
        for row, repeat in zip(dense, repeats, strict=True):
            tokens = np.repeat(np.arange(WORDS), row.astype(int))
            if len(tokens) < order:
                continue
            fraction = min(len(tokens), CAP) * repeat
            tuples = list(itertools.permutations(tokens, order))
            for words in tuples:
                total[words] += fraction / len(tuples) * np.prod(scale[list(words)])
            weight += fraction
        moments.append(total / weight)
    return moments


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rank", [1, 2, WORDS])
def test_moments_are_averages_over_tuples_of_different_tokens(seed, rank):
    counts = documents(seed)
    rng = np.random.default_rng(seed + 100)
    basis, scale = rng.standard_normal((WORDS, rank)), rng.uniform(0.5, 2.0, WORDS)
    found = WordTripleSums(basis, scale, CAP).update(batch(counts)).finalize()
    first, second, third = by_tokens(counts, scale)
    np.testing.assert_allclose(found.mean, first, atol=1e-13)
    np.testing.assert_allclose(found.product, second @ basis, atol=1e-13)
    expected = np.einsum("abc,ax,by,cz->xyz", third, basis, basis, basis)
    np.testing.assert_allclose(found.triples, expected, atol=1e-12)
    pairs = WordPairSums(basis, scale, CAP).update(batch(counts)).finalize()
    np.testing.assert_allclose(pairs.product, found.product, atol=1e-14)
    powers = WordPowerSums(basis, scale, CAP).update(batch(counts)).finalize()
    np.testing.assert_allclose(powers.powers, np.einsum("xyy->xy", expected), atol=1e-12)
    directions = rng.standard_normal((rank, 2))
    slices = WordSliceSums(basis, scale, CAP, directions=directions)
    found = slices.update(batch(counts[:4])).update(batch(counts[4:])).finalize()
    np.testing.assert_allclose(found.slices, expected @ directions, atol=1e-12)


def test_whole_is_the_weighted_average_of_the_halves():
    counts = documents(1, n=60)
    basis = np.eye(WORDS)
    sums = WordTripleSums(basis, np.ones(WORDS), CAP).update(batch(counts))
    whole, (first, second) = sums.finalize(), sums.halves()
    assert np.abs(first.triples - second.triples).max() > 1e-3
    between = (whole.mean - second.mean) / (first.mean - second.mean)
    np.testing.assert_allclose(between, between[0], rtol=1e-9)
    assert 0 < between[0] < 1
    assert first.effective_size + second.effective_size > 0.9 * whole.effective_size


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), cut=st.integers(0, 20), swap=st.booleans())
def test_any_split_and_order_merges_to_the_whole(seed, cut, swap):
    counts = documents(seed, n=20)
    basis = np.random.default_rng(seed).standard_normal((WORDS, 3))
    new = lambda: WordTripleSums(basis, np.ones(WORDS), CAP)  # noqa: E731
    whole = new().update(batch(counts)).finalize()
    parts = [new().update(batch(counts[:cut])), new().update(batch(counts[cut:]))]
    if swap:
        parts.reverse()
    merged = parts[0].merge(pickle.loads(pickle.dumps(parts[1]))).finalize()
    np.testing.assert_allclose(merged.triples, whole.triples, atol=1e-13)
    np.testing.assert_allclose(merged.product, whole.product, atol=1e-13)
    assert merged.effective_size == pytest.approx(whole.effective_size)


def test_a_weight_repeats_the_document():
    counts, weights = documents(3), np.array([0, 1, 2, 3] * 3)
    basis, ones = np.eye(WORDS), np.ones(WORDS)
    weighted = WordTripleSums(basis, ones, CAP).update(batch(counts, weights))
    repeated = counts[np.repeat(np.arange(12), weights)]
    plain = WordTripleSums(basis, ones, CAP).update(batch(repeated))
    for left, right in zip(
        (weighted.finalize(), *weighted.halves()), (plain.finalize(), *plain.halves()), strict=True
    ):
        np.testing.assert_allclose(left.triples, right.triples, atol=1e-13)
        assert left.effective_size == pytest.approx(right.effective_size)
    totals = WordTotalSums(WORDS).update(batch(counts, weights)).finalize()
    np.testing.assert_allclose(totals.totals, repeated.sum(axis=0))
    np.testing.assert_allclose(totals.document_frequencies, (repeated > 0).sum(axis=0))


def test_every_number_of_threads_gives_the_same_bits():
    rng = np.random.default_rng(0)
    counts = scipy.sparse.csr_array(rng.poisson(0.2, (3000, 40)).astype(np.float32))
    basis, scale = rng.standard_normal((40, 6)), rng.uniform(0.5, 2, 40)
    found = []
    for n in (1, 2, 5):
        with inner_threads(n):
            found.append(WordTripleSums(basis, scale, 10.0).update(batch(counts)).finalize())
    for other in found[1:]:
        assert np.array_equal(found[0].triples, other.triples)
        assert np.array_equal(found[0].product, other.product)


def test_single_precision_is_near_double():
    rng = np.random.default_rng(0)
    counts = scipy.sparse.csr_array(rng.poisson(0.2, (2000, 40)).astype(np.float32))
    basis, scale = np.linalg.qr(rng.standard_normal((40, 6)))[0], np.ones(40)
    narrow, wide = (
        WordTripleSums(basis, scale, 10.0).update(batch(counts.astype(dtype))).finalize()
        for dtype in (np.float32, np.float64)
    )
    size = np.abs(wide.triples).max()
    np.testing.assert_allclose(narrow.triples, wide.triples, atol=1e-4 * size)


def test_totals_count_empty_and_short_documents():
    counts = scipy.sparse.csr_array(np.array([[0, 0], [1, 0], [1, 1], [2, 1]], dtype=np.float32))
    totals = (
        WordTotalSums(2)
        .update(batch(counts[:2]))
        .merge(WordTotalSums(2).update(batch(counts[2:])))
        .finalize()
    )
    assert (totals.n_documents, totals.n_empty, totals.n_short, totals.n_tokens) == (4, 1, 2, 6)
    assert totals.mean_length == 2
    np.testing.assert_array_equal(totals.document_frequencies, [3, 2])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_memory_that_is_used_again_changes_nothing(dtype):
    rng = np.random.default_rng(3)
    scale = rng.uniform(0.5, 2.0, WORDS)
    first, second = rng.standard_normal((2, WORDS, 2)).astype(dtype)
    before = WordPairSums(first, scale, CAP).update(batch(documents(4, dtype=dtype)))
    counts = documents(5, dtype=dtype)
    for parts in ((counts,), (counts[:4], counts[4:]), (counts[:1],)):
        fresh = WordPairSums(second, scale, CAP)
        again = before.turned(second)
        for part in parts:
            fresh, again = fresh.update(batch(part)), again.update(batch(part))
        room = np.full((WORDS, 2), np.nan, dtype)
        for one, other in zip(fresh.halves(), again.halves(), strict=True):
            np.testing.assert_array_equal(one.product, other.product)
        expected, found = fresh.pairs(dtype=dtype), again.pairs(dtype=dtype, out=room)
        np.testing.assert_array_equal(expected.product, found.product)
        assert (found.product is room) == (len(parts) == 1 or dtype == np.float64)
        before = again


def test_what_does_not_fit_together_is_refused():
    basis, ones = np.eye(WORDS), np.ones(WORDS)
    start = WordPairSums(basis, ones, CAP)
    with pytest.raises(InvalidInputError, match="different subspaces"):
        start.merge(WordPairSums(2 * basis, ones, CAP))
    with pytest.raises(InvalidInputError, match="cannot merge"):
        start.merge(WordTripleSums(basis, ones, CAP))
    with pytest.raises(InvalidInputError, match="3 words, but those before had 5"):
        start.update(batch(scipy.sparse.csr_array(np.ones((2, 3)))))
    assert start.update(batch(scipy.sparse.csr_array((0, WORDS)))).finalize().product.max() == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_core_moments_are_the_pairs_along_the_directions(weighted):
    counts = documents(4)
    rng = np.random.default_rng(5)
    directions, scale = rng.standard_normal((WORDS, 3)), rng.uniform(0.5, 2.0, WORDS)
    weights = rng.uniform(0.5, 2.0, counts.shape[0]) if weighted else None
    mean, pairs, _ = by_tokens(counts, scale, weights)
    found = WordCoreSums(directions, scale, CAP).update(batch(counts, weights)).finalize()
    np.testing.assert_allclose(found.first, directions.T @ mean, atol=1e-12)
    np.testing.assert_allclose(found.second, directions.T @ pairs @ directions, atol=1e-12)
    sums = WordPairSums(directions, scale, CAP).update(batch(counts, weights))
    assert found.effective_size == pytest.approx(sums.pairs().effective_size, rel=1e-12)
    merged = sums.core((0,)).merged(sums.core((1,)))
    for other in (sums.core(), merged):
        np.testing.assert_allclose(other.first, found.first, atol=1e-12)
        np.testing.assert_allclose(other.second, found.second, atol=1e-12)
        assert other.effective_size == pytest.approx(found.effective_size, rel=1e-12)


@pytest.mark.parametrize("kind", [WordTripleSums, WordPowerSums, WordSliceSums])
def test_what_is_sent_is_of_the_size_of_the_core(kind):
    rng = np.random.default_rng(1)
    basis, scale = rng.standard_normal((WORDS, 3)), rng.uniform(0.5, 2.0, WORDS)
    more = {"directions": rng.standard_normal((3, 2))} if kind is WordSliceSums else {}
    new = lambda: kind(basis, scale, CAP, **more)  # noqa: E731
    first, second = new().update(batch(documents(1))), new().update(batch(documents(2)))
    whole = new().update(batch(documents(1))).update(batch(documents(2)))
    sent = new().received(pickle.loads(pickle.dumps(second.message())))
    assert set(sent.sums) == {"first", "second", "rows", "products", "weights", "squares"}
    expected, core = vars(whole.finalize()), whole.core()
    for found in (first.merge(sent), sent.merge(first), sent.update(batch(documents(1)))):
        for name, value in vars(found.finalize()).items():
            known = vars(core)[name] if name in ("first", "second") else expected[name]
            np.testing.assert_allclose(value, known, atol=1e-12)
    before = pickle.dumps(second.sums)
    second.merge(second)
    second.finalize()
    assert pickle.dumps(second.sums) == before


@pytest.mark.parametrize("kind", [WordTripleSums, WordPowerSums, WordSliceSums])
def test_few_words_travel_where_the_basis_spans_the_moments(kind):
    """M2 Q is in the span of Q = its eigenvectors: the core and a few words tell all of it."""
    rng = np.random.default_rng(2)
    counts, scale = documents(1, n=40), rng.uniform(0.5, 2.0, WORDS)
    pairs = WordPairSums(np.eye(WORDS), scale, CAP).update(batch(counts)).finalize()
    second = pairs.product - np.outer(pairs.mean, pairs.mean) / 2
    basis = np.linalg.eigh(second)[1][:, -3:]
    more = {"directions": rng.standard_normal((3, 2))} if kind is WordSliceSums else {}
    rows = WordRows(np.array([0, 3]), np.array([2.0, 3.0]))
    whole = kind(basis, scale, CAP, rows=rows, **more).update(batch(counts))
    sent = whole.empty().received(whole.message())
    assert sent.sums["rows"].shape == (2, 2, 5)

    def second_moment(found):
        first = found.along(basis)[0]
        return found.product - np.outer(found.mean, first) / 2

    np.testing.assert_allclose(
        second_moment(sent.finalize()), second_moment(whole.finalize()), atol=1e-12
    )
    for one, other in zip(sent.halves(), whole.halves(), strict=True):
        np.testing.assert_allclose(one.product[rows.index], other.product[rows.index], atol=1e-12)
        np.testing.assert_allclose(one.mean[rows.index], other.mean[rows.index], atol=1e-12)
        for left, right in zip(one.along(basis), other.along(basis), strict=True):
            np.testing.assert_allclose(left, right, atol=1e-12)
        assert one.effective_size == pytest.approx(other.effective_size, rel=1e-12)


def test_drawn_words_stand_for_all():
    rng = np.random.default_rng(0)
    totals = np.ceil(rng.pareto(1.0, 5000))
    noise = np.abs(rng.standard_normal(5000)) * np.sqrt(totals)
    found = [WordRows.drawn(totals, 500, np.random.default_rng(seed)) for seed in range(20)]
    for rows in found:
        assert abs(len(rows.index) - 500) <= 1
        assert (np.diff(rows.index) > 0).all()
        assert (rows.weights >= 1).all()
        assert (rows.weights * noise[rows.index]).sum() == pytest.approx(noise.sum(), rel=0.2)
    estimates = [(rows.weights * noise[rows.index]).sum() for rows in found]
    assert np.mean(estimates) == pytest.approx(noise.sum(), rel=0.03)
    assert WordRows.drawn(totals, 5000, rng) is None
    assert len(WordRows.drawn(np.eye(1, 9)[0], 3, rng).index) == 1


def test_pairs_travel_as_one_sum_of_both_halves():
    rng = np.random.default_rng(1)
    basis = rng.standard_normal((WORDS, 3))
    for single, tolerance in ((False, 1e-13), (True, 1e-6)):
        new = WordPairSums(basis, np.ones(WORDS), CAP, single)
        whole = new.update(batch(documents(1))).update(batch(documents(2)))
        parts = [
            new.received(pickle.loads(pickle.dumps(new.update(batch(documents(n))).message())))
            for n in (1, 2)
        ]
        assert parts[0].sums["both"].dtype == (np.float32 if single else np.float64)
        merged = parts[0].merge(parts[1])
        assert merged.message() is merged.sums
        expected = whole.finalize().product
        for found in (merged, parts[0].update(batch(documents(2)))):
            np.testing.assert_allclose(found.finalize().product, expected, atol=tolerance)
        with pytest.raises(InvalidInputError, match="no halves"):
            merged.halves()


def test_documents_in_memory_are_prepared_once():
    kept = batch(documents(3), kind=DocumentBatch)
    basis = np.eye(WORDS)
    found = WordPairSums(basis, np.ones(WORDS), CAP, single=True).update(kept).finalize()
    assert kept.prepared is kept.prepared
    assert kept.prepared_in_single.halves[0].dtype == np.float32
    plain = WordPairSums(basis, np.ones(WORDS), CAP).update(batch(documents(3))).finalize()
    np.testing.assert_allclose(found.product, plain.product, atol=1e-6)
    assert "prepared" not in pickle.loads(pickle.dumps(kept)).__dict__


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_compiled_product_is_that_of_scipy(rng, monkeypatch, dtype):
    counts = scipy.sparse.random_array((40, 30), density=0.3, format="csr", rng=rng, dtype=dtype)
    arrays, matrix = (counts.indptr, counts.indices, counts.data), rng.random((30, 7)).astype(dtype)
    small = document_moments.sparse_product(arrays, matrix)
    monkeypatch.setattr(document_moments, "_FEW_PRODUCTS", 0)
    compiled = document_moments.sparse_product(arrays, matrix)
    assert small.dtype == compiled.dtype == np.dtype(dtype)
    np.testing.assert_allclose(small, compiled, rtol=100 * np.finfo(dtype).eps)
    np.testing.assert_allclose(compiled, counts.toarray() @ matrix, rtol=100 * np.finfo(dtype).eps)
