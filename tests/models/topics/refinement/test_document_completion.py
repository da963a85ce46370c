import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.datasets import make_topics
from latensor.models.topics.refinement import completion, topic_mixtures
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.refinement.held_out import halves


def sample(seed=0, n=200, words=60, k=5, **options):
    return make_topics(n, words, k, random_state=seed, **options)


def step(document, topics, alpha, expected):
    fresh = np.zeros(len(alpha))
    for word in np.flatnonzero(document):
        plain = topics[:, word] * (expected + alpha)
        plain /= plain.sum()
        fraction = topics[:, word] * np.maximum(expected + alpha - plain, alpha)
        fresh += fraction * document[word] / fraction.sum()
    return fresh


@pytest.mark.parametrize("k", [1, 2, 5, 33])
def test_mixtures_are_fixed_points(k):
    planted = sample(1, 40, k=k)
    alpha = np.linspace(0.1, 0.5, k)
    mixtures = topic_mixtures(planted.counts, planted.topics, alpha, max_iter=2000, tol=1e-13)
    np.testing.assert_allclose(mixtures.sum(axis=1), 1.0, rtol=1e-12)
    for document, mixture in zip(planted.counts.toarray(), mixtures, strict=True):
        expected = mixture * (document.sum() + alpha.sum()) - alpha
        fresh = step(document, planted.topics, alpha, np.maximum(expected, 0))
        np.testing.assert_allclose(fresh, expected, atol=1e-8 * document.sum())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_mixture_depends_on_no_other_document(dtype):
    planted = sample(2, 3000, 200, 7)
    topics = planted.topics.astype(dtype)
    whole = topic_mixtures(planted.counts, topics, 0.1, n_threads=2)
    assert whole.dtype == dtype
    chosen = np.random.default_rng(0).permutation(3000)[:100]
    np.testing.assert_array_equal(
        topic_mixtures(planted.counts[chosen], topics, 0.1), whole[chosen]
    )
    one = topic_mixtures(planted.counts, topics, 0.1, n_threads=1)
    np.testing.assert_array_equal(one, whole)
    scores = completion(planted.counts, topics, 0.1, seed=3, n_threads=2)
    some = completion(planted.counts[chosen], topics, 0.1, seed=3, n_threads=1)
    np.testing.assert_array_equal(some.log_likelihood, scores.log_likelihood[chosen])
    np.testing.assert_array_equal(some.n_tokens, scores.n_tokens[chosen])


def test_documents_without_evidence_have_the_prior():
    topics = np.array([[0.5, 0.5, 0.0], [0.9, 0.1, 0.0]])
    alpha = np.array([0.1, 0.4])
    counts = scipy.sparse.csr_array(np.array([[0, 0, 0], [0, 0, 7], [1, 0, 0]], float))
    mixtures = topic_mixtures(counts, topics, alpha)
    np.testing.assert_allclose(mixtures[0], [0.2, 0.8])
    np.testing.assert_allclose(mixtures[1], [0.2, 0.8])
    assert mixtures[2, 1] > 0.8


def test_mixtures_of_long_documents_are_the_truth():
    planted = sample(3, 20, 300, 4, length=20_000)
    found = topic_mixtures(planted.counts, planted.topics, planted.alpha)
    assert np.abs(found - planted.mixtures).max() < 0.02


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**62), st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_halves_are_halves(seed, tokens):
    documents = Documents.of(scipy.sparse.csr_array(np.array([tokens, tokens], float)), np.float64)
    first, second = halves(documents, seed)
    np.testing.assert_array_equal(first.lengths, np.full(2, sum(tokens) // 2))
    np.testing.assert_array_equal(first.lengths + second.lengths, documents.lengths)
    total = np.zeros(len(tokens))
    for part in (first, second):
        rows = scipy.sparse.csr_array((part.counts, part.words, part.starts), (2, len(tokens)))
        total += rows.toarray()[0]
    np.testing.assert_array_equal(total, tokens)


def test_halves_are_random():
    tokens = np.array([[1.0, 2, 3, 10, 4]])
    drawn = np.zeros(5)
    n = 4000
    for seed in range(n):
        documents = Documents.of(scipy.sparse.csr_array(tokens), np.float64)
        first, _ = halves(documents, seed)
        drawn[first.words] += first.counts
    # Each count is hypergeometric with variance below a quarter of its tokens.
    assert (np.abs(drawn / n - tokens[0] / 2) < 5 * np.sqrt(tokens[0] / 4 / n)).all()


def test_single_tokens_are_scored_by_the_mean_of_the_prior():
    topics = np.array([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]])
    alpha = np.array([0.3, 0.1])
    found = completion(scipy.sparse.csr_array(np.eye(4, 3)), topics, alpha)
    np.testing.assert_allclose(found.log_likelihood[:3], np.log([0.55, 0.2, 0.25]), rtol=1e-12)
    np.testing.assert_array_equal(found.n_tokens, [1, 1, 1, 0])
    assert found.log_likelihood[3] == 0
    expected = (0.55 * 0.2 * 0.25) ** (-1 / 3)
    assert found.perplexity == pytest.approx(expected, rel=1e-12)


def test_impossible_words_keep_the_score_finite():
    topics = np.array([[1.0, 0.0]])
    found = completion(scipy.sparse.csr_array(np.array([[2.0, 2.0]])), topics, 1.0)
    assert np.isfinite(found.log_likelihood).all()
    assert np.isnan(completion(scipy.sparse.csr_array((0, 2)), topics, 1.0).perplexity)


@pytest.mark.parametrize("seed", range(3))
def test_the_true_topics_predict_best(seed):
    planted = sample(seed, 400, 100, 5)
    noise = np.random.default_rng(seed).dirichlet(np.ones(100), 5)
    values = [
        completion(
            planted.counts, (1 - fraction) * planted.topics + fraction * noise, 0.2
        ).perplexity
        for fraction in (0.0, 0.1, 0.3)
    ]
    assert values == sorted(values)


def test_a_million_tokens():
    counts = scipy.sparse.csr_array(np.array([[600_000.0, 300_000, 100_000]]))
    topics = np.array([[0.6, 0.3, 0.1], [0.1, 0.1, 0.8]], np.float32)
    assert topic_mixtures(counts, topics, 0.1)[0, 0] > 0.99
    entropy = -np.sum(topics[0] * np.log(topics[0]))
    assert completion(counts, topics, 0.1).perplexity == pytest.approx(np.exp(entropy), rel=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_halves_of_words_that_occur_very_often(dtype):
    counts = np.array([[2.0**23, 3, 2.0**22], [1, 2.0**24 - 1, 0], [2.0**20, 0, 0]])
    if dtype == np.float64:
        counts *= 2.0**26
    documents = Documents.of(scipy.sparse.csr_array(counts), dtype)
    known, scored = halves(documents, 5)
    assert known.counts.min() > 0
    assert scored.counts.min() > 0
    tokens = counts.sum(axis=1)
    np.testing.assert_allclose(known.lengths, tokens // 2, rtol=1e-6)
    np.testing.assert_allclose(scored.lengths, tokens - tokens // 2, rtol=1e-6)
