"""The refinement of topics against plain references: passes in place, and passes as folds."""

import numpy as np
import pytest
import scipy.sparse

from latensor.datasets import make_topics
from latensor.engines import LocalEngine
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.models.topics.refinement import refine_topics
from latensor.models.topics.refinement import topics as in_place
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.refinement.folded import refine_by_folds
from latensor.models.topics.refinement.word_by_word import fractions as in_place_fractions
from latensor.models.topics.refinement.word_by_word._kernels import _MANY_WORDS
from latensor.models.topics.refinement.word_counts import left_out_fraction
from latensor.moments.batch import Batch
from latensor.refinement.family import Statistics
from latensor.sources.documents import documents_in_memory
from topic_examples import topic_distance


def perturbed(topics, seed, amount=0.5):
    noise = np.random.default_rng(seed).dirichlet(np.ones(topics.shape[1]), len(topics))
    return (1 - amount) * topics + amount * noise


def sample(seed=0, n=300, words=40, k=4, **options):
    return make_topics(n, words, k, random_state=seed, **options)


def reference_step(document, start, table, alpha, b, left_out):
    """Expected counts of words and topics after one leave-one-out step, in plain NumPy."""
    total = table.sum(axis=0)
    counts, topics = np.zeros_like(table), np.zeros(len(alpha))
    for word in np.flatnonzero(document):
        plain = table[word] / total * (start + alpha)
        plain /= plain.sum()
        fraction = np.maximum(table[word] - left_out * plain, b) / total
        fraction = fraction * np.maximum(start + alpha - plain, alpha)
        fraction *= document[word] / fraction.sum()
        counts[word] += fraction
        topics += fraction
    return counts, topics


def reference_pass(counts, topics, sizes, alpha, b):
    """Expected counts of words after six steps of every document from an even mixture."""
    k = len(topics)
    documents = counts.toarray()
    tokens = sizes.sum() - topics.size * b
    left_out = left_out_fraction(tokens, topics.size)
    table, total = (topics * sizes[:, None]).T, np.zeros(topics.T.shape)
    for document in documents:
        fresh = last = np.full(k, document.sum() / k)
        for step in range(6):
            speed = 0.5 if step > 1 else 0.0
            start = np.maximum(fresh + speed * (fresh - last), 0)
            last = fresh
            words, fresh = reference_step(document, start, table, alpha, b, left_out)
        total += words
    return total.T


def reference_in_place(counts, topics, alpha, b, passes):
    """Passes word by word, or by pairs of words, over documents in the order of their keys."""
    k, n_words = topics.shape
    order = np.argsort(Documents.of(counts, np.float64).keys(0), kind="stable")
    documents = counts.toarray()[order]
    tokens = documents.sum() / k
    left_out = left_out_fraction(documents.sum(), topics.size)
    start = (topics.T * tokens + b) / (tokens + b * n_words)
    mixtures = np.repeat(documents.sum(axis=1, keepdims=True) / k, k, axis=1)
    fractions = np.zeros((*documents.shape, k))
    for _ in range(in_place_fractions._FIRST_STEPS):
        for d, document in enumerate(documents):
            rest = np.maximum(mixtures[d] - 2 * fractions[d], 0) + alpha
            fractions[d] = start * rest
            fractions[d] /= fractions[d].sum(axis=1, keepdims=True)
            fractions[d][document == 0] = 0
            mixtures[d] = document @ fractions[d]
    table = np.einsum("dv,dvj->vj", documents, fractions) + b
    for number in range(passes):
        speed = in_place._SPEED if number else 1.0
        for d, document in enumerate(documents):
            sums = table.sum(axis=0)
            words = np.flatnonzero(document)
            paired = len(words) - len(words) % 2 if len(words) >= _MANY_WORDS else 0
            steps = [*words[:paired].reshape(-1, 2), *words[paired:, None]]
            for step in steps:
                counted = document[step][:, None]
                old = fractions[d, step]
                new = np.maximum(table[step] - left_out * counted * old, b) / sums
                new = new * (np.maximum(mixtures[d] - 2 * old, 0) + alpha)
                new = np.maximum(old + speed * (new / new.sum(axis=1, keepdims=True) - old), 0)
                table[step] += counted * (new - old)
                mixtures[d] += (counted * (new - old)).sum(axis=0)
                fractions[d, step] = new
    found = np.maximum(table.T - b, 0)
    return found * documents.sum(axis=0) / np.maximum(found.sum(axis=0), 1e-300)


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 2e-4)])
@pytest.mark.parametrize("k", [1, 3, 17])
@pytest.mark.parametrize("passes", [1, 2, 5])
@pytest.mark.parametrize("many_words", [False, True])
def test_passes_are_those_of_the_reference(many_words, k, passes, dtype, tolerance):
    planted = sample(1, 60, 30, 3, length=20, concentration=5.0 if many_words else 0.05)
    words = np.diff(planted.counts.indptr)
    assert len(np.unique(words[words >= _MANY_WORDS] % 2)) == (2 if many_words else 0)
    start = np.random.default_rng(2).dirichlet(np.ones(30), k).astype(dtype)
    alpha = np.linspace(0.05, 0.3, k)
    found = refine_topics(
        planted.counts, start, document_prior=alpha, word_prior=0.1, passes=passes
    )
    counts = reference_in_place(planted.counts, start.astype(float), alpha, 0.1, passes)
    scale = planted.counts.sum(axis=1).max()
    assert found.topics.dtype == found.counts.dtype == dtype
    np.testing.assert_allclose(found.counts, counts, atol=tolerance * scale, rtol=tolerance)
    smoothed = found.counts + 0.1
    smoothed /= smoothed.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.topics, smoothed, rtol=10 * np.finfo(dtype).eps, atol=1e-7)
    assert found.n_passes == passes
    assert found.history.shape == (passes,)
    assert (found.history > 1).all()


@pytest.mark.parametrize("passes", [2, "auto"])
@pytest.mark.parametrize("groups", [False, True])
def test_every_token_is_on_some_topic(passes, groups, monkeypatch):
    if groups:
        monkeypatch.setattr(in_place_fractions, "_SMALLEST", 0)
        monkeypatch.setattr(in_place_fractions, "_LARGE", 0)
    planted = sample(3)
    found = refine_topics(planted.counts, perturbed(planted.topics, 0), passes=passes)
    np.testing.assert_allclose(found.counts.sum(axis=0), planted.counts.sum(axis=0), rtol=1e-10)
    np.testing.assert_allclose(found.topics.sum(axis=1), 1.0, rtol=1e-10)
    assert found.topics.min() > 0


@pytest.mark.parametrize("passes", [3, "auto"])
def test_a_weight_counts_documents_as_often(passes):
    planted = sample(4, 400)
    weights = np.random.default_rng(5).integers(0, 3, 400)
    repeated = planted.counts[np.repeat(np.arange(400), weights)]
    start = perturbed(planted.topics, 1)
    one = refine_topics(planted.counts, start, document_weights=weights, passes=passes)
    shuffled = repeated[np.random.default_rng(6).permutation(repeated.shape[0])]
    for counts in (repeated, shuffled):
        other = refine_topics(counts, start, passes=passes)
        np.testing.assert_allclose(one.history, other.history, rtol=1e-9)
        np.testing.assert_allclose(one.topics, other.topics, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("passes", [3, "auto"])
def test_any_number_of_threads_gives_the_same_bits(passes):
    planted = sample(6, 4000, 60, 5, length=60)
    start = perturbed(planted.topics, 2).astype(np.float32)
    found = [refine_topics(planted.counts, start, passes=passes, n_threads=n) for n in (1, 2, 3)]
    for other in found[1:]:
        np.testing.assert_array_equal(other.topics, found[0].topics)
        np.testing.assert_array_equal(other.history, found[0].history)


@pytest.mark.parametrize("k", [1, 3, 17])
def test_a_pass_as_a_fold_is_that_of_the_reference(k):
    planted = sample(1, 60, 30, 3, length=20)
    topics = np.random.default_rng(2).dirichlet(np.ones(30), k)
    sizes = np.linspace(200, 500, k) + 30 * 0.1
    batch = Batch((planted.counts,), np.ones(60), np.arange(60, dtype=np.uint64))
    statistics = Statistics(MixedTopicsFamily(0.1, 0.2), TopicState(topics, sizes, sizes))
    found = statistics.update(batch).seen()
    expected = reference_pass(planted.counts, topics, sizes, np.full(k, 0.2), 0.1)
    np.testing.assert_allclose(found["words"][:, :k].T, expected, atol=2e-4, rtol=2e-4)
    assert found["weight"] == planted.counts.sum()


@pytest.mark.parametrize("passes", [2, "auto"])
def test_folds_have_the_same_bits_at_any_number_of_threads(passes):
    planted = sample(6, 40_000, 60, 5, length=20)
    source = documents_in_memory(planted.counts)
    family = MixedTopicsFamily(0.05, 0.1)
    start = perturbed(planted.topics, 2)
    found = []
    for n in (1, 2):
        engine = LocalEngine(n)
        state = TopicState(start, np.ones(5), np.full(5, planted.counts.sum() / 5))
        fold = lambda accumulator, engine=engine: engine.fold(source, accumulator)  # noqa: E731
        found.append(refine_by_folds(fold, family, state, passes))
    one, other = found
    np.testing.assert_array_equal(one.sums["words"], other.sums["words"])
    np.testing.assert_array_equal(one.history, other.history)
    assert len(one.history) == one.n_passes


def test_the_order_of_words_and_documents_changes_nothing_in_place():
    planted = sample(7)
    counts, start = planted.counts.tocsr(), perturbed(planted.topics, 3)
    turned = counts.copy()
    for first, last in zip(counts.indptr[:-1], counts.indptr[1:], strict=True):
        turned.indices[first:last] = counts.indices[first:last][::-1]
        turned.data[first:last] = counts.data[first:last][::-1]
    turned.has_sorted_indices = False
    order = np.random.default_rng(1).permutation(counts.shape[0])
    one, other, shuffled = (
        refine_topics(given, start, passes=4) for given in (counts, turned, counts[order])
    )
    np.testing.assert_array_equal(one.topics, other.topics)
    np.testing.assert_array_equal(one.topics, shuffled.topics)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by_folds", [False, True])
def test_from_near_the_truth_it_ends_where_the_truth_ends(seed, by_folds):
    planted = sample(seed, 3000, 200, 8, length=80)

    def refined(start):
        if not by_folds:
            return refine_topics(planted.counts, start, passes=30).topics
        source = documents_in_memory(planted.counts)
        state = TopicState(start, np.ones(8), np.full(8, planted.counts.sum() / 8))
        fold = lambda accumulator: LocalEngine(1).fold(source, accumulator)  # noqa: E731
        family = MixedTopicsFamily(0.05, 0.1)
        return family.maximize(refine_by_folds(fold, family, state, 30).sums, state).topics

    best, found = refined(planted.topics), refined(perturbed(planted.topics, seed))
    error_best = topic_distance(best, planted.topics)[0].mean()
    error = topic_distance(found, planted.topics)[0].mean()
    assert error < 1.15 * error_best + 0.01
    assert error < 0.3 * topic_distance(perturbed(planted.topics, seed), planted.topics)[0].mean()


def test_passes_end_where_words_gain_no_more():
    planted = sample(8, 2000, 100, 5)
    seen = []
    found = refine_topics(planted.counts, perturbed(planted.topics, 4), callback=seen.append)
    assert seen == list(range(1, found.n_passes + 1))
    assert 4 <= found.n_passes < 60
    assert found.history[-1] < 0.98 * found.history[0]
    assert abs(found.history[-1] / found.history[-4] - 1) < 0.01
    assert f"after pass {found.n_passes}" in found.status


@pytest.mark.parametrize("by_folds", [False, True])
def test_history_is_the_perplexity_of_words_from_all_others(by_folds):
    """One topic: the frequency of words without the one that is left out."""
    planted = sample(15, 50)
    counts = planted.counts.toarray()
    totals, start = counts.sum(axis=0), counts.sum(axis=0) / counts.sum()
    b, alpha, left_out = 0.05, 0.1, left_out_fraction(counts.sum(), 40)
    if by_folds:
        state = TopicState(start[None], np.ones(1), np.array([counts.sum() + 40 * b]))
        batch = Batch((planted.counts,), np.ones(50), np.arange(50, dtype=np.uint64))
        sums = Statistics(MixedTopicsFamily(b, alpha), state).update(batch).seen()
        value = np.exp(-sums["log_likelihood"] / sums["weight"])
        table = start * (counts.sum() + 40 * b)
        chances = np.broadcast_to((table - left_out) / table.sum(), counts.shape)
    else:
        found = refine_topics(
            planted.counts, start[None], document_prior=alpha, word_prior=b, passes=1
        )
        value = found.history[0]
        chances = (totals + b - left_out * counts) / (totals + b).sum()
    expected = np.exp(-(counts * np.log(np.where(counts > 0, chances, 1.0))).sum() / counts.sum())
    assert value == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("passes", [20, "auto"])
def test_a_callback_can_stop(passes):
    planted = sample(10)
    start = perturbed(planted.topics, 5)
    found = refine_topics(planted.counts, start, passes=passes, callback=lambda number: number == 2)
    assert "callback" in found.status
    assert found.n_passes == 2


def test_one_topic_is_the_smoothed_frequency_of_words():
    planted = sample(11)
    found = refine_topics(planted.counts, np.full((1, 40), 1 / 40), word_prior=0.5)
    frequency = planted.counts.sum(axis=0) + 0.5
    np.testing.assert_allclose(found.topics[0], frequency / frequency.sum(), rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_odd_documents(dtype):
    rows = np.zeros((5, 6))
    rows[1] = [1_000_000, 3, 0, 0, 0, 0]
    rows[2, 2] = 1
    rows[3] = [0, 0, 2, 2, 0, 0]
    start = np.random.default_rng(1).dirichlet(np.ones(6), 2).astype(dtype)
    found = refine_topics(scipy.sparse.csr_array(rows), start, passes=5)
    assert np.isfinite(found.topics).all()
    np.testing.assert_allclose(found.counts.sum(axis=0), rows.sum(axis=0), rtol=1e-5)
    # Words 4 and 5 are in no document: what is left to them is the prior alone.
    floor = 0.05 / (found.counts.sum(axis=1, dtype=float) + 6 * 0.05)
    np.testing.assert_allclose(found.topics[:, 4], floor, rtol=1e-5)
    np.testing.assert_array_equal(found.topics[:, 4], found.topics[:, 5])


@pytest.mark.parametrize("passes", ["auto", 2])
def test_no_documents_at_all(passes):
    start = np.full((2, 3), 1 / 3)
    found = refine_topics(scipy.sparse.csr_array((0, 3)), start, passes=passes)
    np.testing.assert_allclose(found.topics, start)


def test_input_is_left_untouched():
    planted = sample(12)
    counts, start = planted.counts.astype(np.float64), perturbed(planted.topics, 6)
    for array in (counts.data, counts.indices, counts.indptr, start):
        array.flags.writeable = False
    refine_topics(counts, start)


TOPICS = np.full((2, 3), 1 / 3)
COUNTS = scipy.sparse.csr_array(np.ones((4, 3)))
