"""Documents of one topic each."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.models.topics.single_topic import SingleTopicModel
from topic_examples import population, topic_distance

K = 5


def expected_failures(estimator):
    reason = (
        "the check fits fractional numbers, but moments need counts: a weight of 2 equals "
        "repetition, which other tests show on counts"
    )
    kinds = ("dense", "sparse")
    failures = {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in kinds}
    if isinstance(estimator, lt.SingleTopic):
        taken = "the check takes whatever has predict_proba and sparse input for a classifier"
        failures |= {f"check_estimator_sparse_{kind}": taken for kind in ("array", "matrix")}
    return failures


# One topic, because most checks fit a few rows of noise that do not support two.
@parametrize_with_checks(
    [
        lt.SingleTopic(1, random_state=0),
        lt.SingleTopic(1, random_state=0, refine=0),
        lt.LatentDirichletAllocation(1, random_state=0),
        lt.LatentDirichletAllocation(1, random_state=0, refine=0),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def sample():
    return lt.datasets.make_single_topic(2000, 200, K, length=40, random_state=2)


@pytest.fixture(scope="module")
def model(sample):
    return lt.SingleTopic(K, random_state=0).fit(sample.counts)


@pytest.mark.parametrize("seed", range(20))
def test_population_moments_give_topics_and_weights_back(seed):
    rng = np.random.default_rng(seed)
    k, n_words = 2 + seed % 3, 8
    topics, weights = rng.dirichlet(np.full(n_words, 0.5), k), rng.dirichlet(np.full(k, 3.0))
    fractions = np.zeros((k, k, k))
    np.einsum("iii->i", fractions)[:] = weights
    counts, probabilities = population(topics, fractions)
    found = lt.SingleTopic(k, refine=0, random_state=seed)
    found.fit(counts, sample_weight=1e10 * probabilities)
    distances, order = topic_distance(found.components_, topics)
    assert distances.max() < 1e-8
    np.testing.assert_allclose(found.weights_[order], weights, rtol=1e-7)


def test_documents_are_assigned_to_their_topics(sample, model):
    distances, order = topic_distance(model.components_, sample.topics)
    assert distances.mean() < 0.1
    truth = sample.mixtures.argmax(axis=1)
    assert adjusted_rand_score(truth, model.predict(sample.counts)) > 0.98
    proba = model.predict_proba(sample.counts)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-5)
    assert np.array_equal(proba, model.transform(sample.counts))
    np.testing.assert_allclose(model.weights_.sum(), 1, rtol=1e-6)
    assert (np.diff(model.weights_) <= 0).all()
    fractions = np.bincount(truth, minlength=K) / len(truth)
    np.testing.assert_allclose(model.weights_[order], fractions, atol=0.02)


def test_the_error_falls_with_the_number_of_documents():
    errors = []
    for n in (500, 8000):
        sample = lt.datasets.make_single_topic(n, 200, K, length=20, random_state=4)
        found = lt.SingleTopic(K, refine=0, random_state=0).fit(sample.counts)
        errors.append(topic_distance(found.components_, sample.topics)[0].mean())
    assert 2.7 < errors[0] / errors[1] < 6.0


def test_refinement_reaches_em_from_the_truth(sample, model):
    oracle = clone(model).set_params(init=sample.topics, refine=20).fit(sample.counts)
    best = topic_distance(oracle.components_, sample.topics)[0].mean()
    assert topic_distance(model.components_, sample.topics)[0].mean() < 1.15 * best
    assert model.perplexity(sample.counts) < 1.01 * oracle.perplexity(sample.counts)


def test_streams_and_threads(sample, model):
    again = clone(model).set_params(n_jobs=2).fit(sample.counts)
    assert np.array_equal(again.components_, model.components_)
    stream = lt.SingleTopic(K, random_state=0)
    for i in range(0, 2000, 500):
        stream.partial_fit(sample.counts[i : i + 500])
    np.testing.assert_allclose(stream.components_, model.components_, atol=1e-6)
    assert stream.certificate_.verdict == "stable"


def test_a_long_stream_is_nearly_a_fit(sample, model, monkeypatch):
    monkeypatch.setattr(SingleTopicModel, "pilot_size", 500)
    monkeypatch.setattr(SingleTopicModel, "stream_size", 400)
    first = lt.SingleTopic(K, random_state=0).partial_fit(sample.counts[:500])
    second = first.spawn()
    for i in range(500, 2000, 300):
        (first if i < 1100 else second).partial_fit(sample.counts[i : i + 300])
    first.merge(second)
    assert "stream" in first.status_
    errors = [topic_distance(m.components_, sample.topics)[0].mean() for m in (first, model)]
    assert errors[0] < 1.1 * errors[1]
    np.testing.assert_allclose(np.sort(first.weights_), np.sort(model.weights_), atol=0.01)


def test_samples_and_files(model, tmp_path):
    counts, topics = model.sample(200, length=60, random_state=0)
    assert (model.predict(counts) == topics).mean() > 0.95
    loaded = lt.SingleTopic.load(model.save(tmp_path / "model.npz"))
    assert np.array_equal(loaded.predict_proba(counts), model.predict_proba(counts))
