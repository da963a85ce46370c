import numpy as np
import pytest
import scipy.sparse
from scipy.special import logsumexp

from latensor.datasets import make_single_topic
from latensor.exceptions import InvalidInputError
from latensor.models.topics.refinement import corpus, polish_mixture, topic_posteriors
from topic_examples import topic_distance


def sample(seed=0, n=300, words=50, k=4, **options):
    return make_single_topic(n, words, k, random_state=seed, **options)


def perturbed(topics, seed, amount=0.6):
    noise = np.random.default_rng(seed).dirichlet(np.ones(topics.shape[1]), len(topics))
    return (1 - amount) * topics + amount * noise


def bayes(counts, topics, weights):
    logs = counts @ np.log(topics).T + np.log(weights)
    norm = logsumexp(logs, axis=1)
    return np.exp(logs - norm[:, None]), norm


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-3)])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_posteriors_and_passes_are_those_of_the_reference(k, dtype, tolerance):
    planted = sample(1, 80, 30, 3, length=15)
    topics = np.random.default_rng(2).dirichlet(np.ones(30), k).astype(dtype)
    weights = np.linspace(1, 2, k) / np.linspace(1, 2, k).sum()
    counts = planted.counts.toarray()
    found = topic_posteriors(planted.counts, topics, weights)
    expected, _ = bayes(counts, topics.astype(float), weights)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=tolerance)
    polished = polish_mixture([planted.counts], topics, weights, word_prior=0.2, passes=3)
    reference = topics.astype(float)
    for number in range(3):
        share, norm = bayes(counts, reference, weights)
        objective = (norm.sum() + 0.2 * np.log(reference).sum()) / counts.sum()
        assert polished.history[number] == pytest.approx(objective, rel=tolerance)
        weights = share.mean(axis=0)
        words = share.T @ counts
        reference = (words + 0.2) / (words + 0.2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(polished.topics, reference, atol=tolerance)
    np.testing.assert_allclose(polished.weights, weights, atol=tolerance)
    np.testing.assert_allclose(polished.counts, words, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("seed", range(4))
def test_no_pass_lowers_the_likelihood_and_the_truth_is_near(seed):
    planted = sample(seed, 2000, 100, 5, length=40)
    start = perturbed(planted.topics, seed)
    found = polish_mixture([planted.counts], start, np.ones(5))
    # EM with a Dirichlet prior on the topics: monotone up to the rounding of sums.
    assert np.diff(found.history).min() > -1e-12
    best = polish_mixture([planted.counts], planted.topics, planted.alpha)
    errors = [topic_distance(result.topics, planted.topics)[0].mean() for result in (found, best)]
    assert errors[0] < 1.05 * errors[1] + 1e-3
    assert "gained no more" in found.status


def test_a_weight_counts_documents_as_often():
    planted = sample(5, 200)
    times = np.random.default_rng(1).integers(0, 4, 200)
    repeated = planted.counts[np.repeat(np.arange(200), times)]
    start = perturbed(planted.topics, 2)
    one = polish_mixture([planted.counts], start, np.ones(4), passes=4, document_weights=times)
    other = polish_mixture([repeated], start, np.ones(4), passes=4)
    np.testing.assert_allclose(one.topics, other.topics, rtol=1e-9)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9)


@pytest.mark.parametrize("streamed", [False, True])
def test_threads_and_streams_change_nothing(streamed, monkeypatch):
    planted = sample(6, 4000, 60, 5, length=60)
    start = perturbed(planted.topics, 3).astype(np.float32)
    batches = [planted.counts[:3000], planted.counts[3000:]]
    memory = polish_mixture(batches, start, np.ones(5), passes=4)
    if streamed:
        monkeypatch.setattr(corpus, "_MOST_BYTES_IN_MEMORY", 0)
    found = [
        polish_mixture(batches, start, np.ones(5), passes=4, n_threads=threads)
        for threads in (1, 2)
    ]
    np.testing.assert_array_equal(found[0].topics, found[1].topics)
    np.testing.assert_allclose(found[0].topics, memory.topics, rtol=1e-5)
    posteriors = topic_posteriors(planted.counts, start, np.ones(5), n_threads=2)
    np.testing.assert_array_equal(
        topic_posteriors(planted.counts[7:9], start, np.ones(5)), posteriors[7:9]
    )


def test_odd_documents():
    rows = np.array([[0, 0, 0], [500_000, 500_000, 0], [0, 0, 1]], float)
    topics = np.array([[0.5, 0.5, 0.0], [0.4, 0.4, 0.2]])
    found = topic_posteriors(scipy.sparse.csr_array(rows), topics, [1, 3])
    np.testing.assert_allclose(found, [[0.25, 0.75], [1, 0], [0, 1]], atol=1e-12)
    polished = polish_mixture([scipy.sparse.csr_array(rows)], topics, [1, 3], passes=3)
    assert np.isfinite(polished.topics).all()
    np.testing.assert_allclose(polished.weights.sum(), 1)


def test_a_callback_can_stop():
    planted = sample(7)
    found = polish_mixture(
        [planted.counts],
        perturbed(planted.topics, 1),
        np.ones(4),
        callback=lambda progress: progress.n_passes == 2,
    )
    assert found.n_passes == 2
    assert "callback" in found.status


@pytest.mark.parametrize(
    "weights, options, message",
    [
        ([1.0], {}, "one share for each of the 2 topics"),
        ([0.0, 0.0], {}, "not all zero"),
        ([1.0, -1.0], {}, "none negative"),
        ([1.0, np.nan], {}, "finite"),
        ([1.0, 1.0], {"passes": 0}, "passes=0"),
        ([1.0, 1.0], {"word_prior": 0.0}, "word_prior"),
    ],
)
def test_bad_input_is_refused(weights, options, message):
    counts = scipy.sparse.csr_array(np.ones((4, 3)))
    with pytest.raises(InvalidInputError, match=message):
        polish_mixture([counts], np.full((2, 3), 1 / 3), weights, **options)
