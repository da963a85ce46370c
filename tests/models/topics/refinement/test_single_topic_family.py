import numpy as np
import pytest
import scipy.sparse
from scipy.special import logsumexp

from latensor.datasets import make_single_topic
from latensor.engines import LocalEngine
from latensor.models.topics.families import SingleTopicFamily, TopicState
from latensor.models.topics.refinement import topic_posteriors
from latensor.moments.batch import Batch
from latensor.refinement.em import em
from latensor.refinement.family import Statistics
from latensor.sources.documents import documents_in_memory
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


def refined(counts, topics, weights, weight=None, n_threads=1, word_prior=0.05, **options):
    source = documents_in_memory(counts, None if weight is None else weight.astype(float))
    weights = np.asarray(weights, float)
    state = TopicState(topics, weights / weights.sum(), np.ones(len(topics)))
    engine = LocalEngine(n_threads)
    fold = lambda start: engine.fold(source, start)  # noqa: E731
    return em(fold, SingleTopicFamily(word_prior), state, **{"max_iter": 200, **options})


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-3)])
@pytest.mark.parametrize("k", [1, 3, 20])
def test_posteriors_and_steps_are_those_of_the_reference(k, dtype, tolerance):
    planted = sample(1, 80, 30, 3, length=15)
    topics = np.random.default_rng(2).dirichlet(np.ones(30), k).astype(dtype)
    weights = np.linspace(1, 2, k) / np.linspace(1, 2, k).sum()
    counts = planted.counts.toarray()
    found = topic_posteriors(planted.counts, topics, weights)
    expected, _ = bayes(counts, topics.astype(float), weights)
    assert found.dtype == dtype
    np.testing.assert_allclose(found, expected, atol=tolerance)
    em_fit = refined(
        planted.counts, topics, weights, word_prior=0.2, max_iter=3, tol=-1, accelerate=False
    )
    reference = topics.astype(float)
    for number in range(3):
        fraction, norm = bayes(counts, reference, weights)
        assert em_fit.history[number] == pytest.approx(norm.sum() / counts.sum(), rel=tolerance)
        weights = fraction.mean(axis=0)
        words = fraction.T @ counts
        reference = (words + 0.2) / (words + 0.2).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(em_fit.state.topics, reference, atol=tolerance)
    np.testing.assert_allclose(em_fit.state.weights, weights, atol=tolerance)


@pytest.mark.parametrize("seed", range(4))
def test_the_truth_is_near(seed):
    planted = sample(seed, 2000, 100, 5, length=40)
    found = refined(planted.counts, perturbed(planted.topics, seed), np.ones(5), tol=1e-6)
    best = refined(planted.counts, planted.topics, planted.alpha, tol=1e-6)
    errors = [topic_distance(r.state.topics, planted.topics)[0].mean() for r in (found, best)]
    assert errors[0] < 1.05 * errors[1] + 1e-3
    assert found.converged


def test_a_weight_counts_documents_as_often():
    planted = sample(5, 200)
    times = np.random.default_rng(1).integers(0, 4, 200)
    repeated = planted.counts[np.repeat(np.arange(200), times)]
    start = perturbed(planted.topics, 2)
    one = refined(planted.counts, start, np.ones(4), times, max_iter=4).state
    other = refined(repeated, start, np.ones(4), max_iter=4).state
    np.testing.assert_allclose(one.topics, other.topics, rtol=1e-9)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-9)


def test_threads_change_nothing():
    planted = sample(6, 40_000, 60, 5, length=10)
    start = perturbed(planted.topics, 3)
    found = [
        refined(planted.counts, start, np.ones(5), n_threads=n, max_iter=4).state for n in (1, 2)
    ]
    np.testing.assert_array_equal(found[0].topics, found[1].topics)
    posteriors = topic_posteriors(planted.counts, start, np.ones(5))
    np.testing.assert_array_equal(
        topic_posteriors(planted.counts[7:9], start, np.ones(5)), posteriors[7:9]
    )


def test_statistics_are_left_alone_by_merges_and_packing_is_undone():
    planted = sample(2, 50)
    family = SingleTopicFamily(0.05)
    state = TopicState(planted.topics, np.full(4, 0.25), np.ones(4))
    batch = Batch((planted.counts,), np.ones(50), np.arange(50, dtype=np.uint64))
    one = Statistics(family, state).update(batch)
    before = one.seen()["words"].copy()
    both = one.merge(one)
    np.testing.assert_array_equal(one.seen()["words"], before)
    np.testing.assert_allclose(both.seen()["words"], 2 * before)
    again = family.unpack(family.pack(state), state)
    np.testing.assert_allclose(again.topics, state.topics, rtol=1e-12)
    logs = family.log_density(state, batch)
    fractions = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    expected = topic_posteriors(planted.counts, planted.topics, np.ones(4))
    np.testing.assert_allclose(fractions, expected, atol=1e-10)


def test_odd_documents():
    rows = np.array([[0, 0, 0], [500_000, 500_000, 0], [0, 0, 1]], float)
    topics = np.array([[0.5, 0.5, 0.0], [0.4, 0.4, 0.2]])
    found = topic_posteriors(scipy.sparse.csr_array(rows), topics, [1, 3])
    np.testing.assert_allclose(found, [[0.25, 0.75], [1, 0], [0, 1]], atol=1e-12)
    state = refined(scipy.sparse.csr_array(rows), topics, [1, 3], max_iter=3).state
    assert np.isfinite(state.topics).all()
    np.testing.assert_allclose(state.weights.sum(), 1)
