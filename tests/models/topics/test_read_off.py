"""Topics from exact and from sampled word moments."""

import numpy as np
import pytest

from latensor.datasets import make_topics
from latensor.engines import LocalEngine
from latensor.exceptions import NotIdentifiableError
from latensor.models.topics.power_steps import power_sums, topics_from_powers
from latensor.models.topics.read_off import (
    concentration_from_fractions,
    dual_basis,
    topics_from_moments,
)
from latensor.models.topics.subspace import find_subspace
from latensor.moments.batch import Batch
from latensor.moments.word_totals import WordTotalSums
from latensor.moments.word_triples import WordTripleSums
from latensor.sources.documents import documents_in_memory
from topic_examples import fraction_moment, population, topic_distance


def planted(seed, n_words=9):
    rng = np.random.default_rng(seed)
    k = 3 + seed % 3
    topics = rng.dirichlet(np.full(n_words, 0.5), k)
    alpha = rng.uniform(0.1, 2.0, k) * rng.choice([0.2, 1.0, 4.0])
    return topics, alpha, rng


def exact_sums(topics, fractions, scale):
    counts, weights = population(topics, fractions)
    batch = Batch((counts,), weights, np.arange(len(weights), dtype=np.uint64))
    return WordTripleSums(np.eye(topics.shape[1]), scale, 10.0).update(batch)


class Passes:
    """Folds over documents in memory, and what they count."""

    def __init__(self, counts):
        self.source, self.engine = documents_in_memory(counts), LocalEngine(1)
        self.totals = self(WordTotalSums(counts.shape[1])).finalize()

    def __call__(self, start):
        return self.engine.fold(self.source, start)

    def triples(self, k, rng):
        subspace = find_subspace(self, self.totals, k, rng)
        return self(WordTripleSums(subspace.basis, subspace.scale, subspace.cap))


@pytest.mark.parametrize("seed", range(20))
def test_population_moments_give_topics_and_concentration_back(seed):
    topics, alpha, rng = planted(seed)
    sums = exact_sums(topics, fraction_moment(alpha, 3), rng.uniform(0.5, 2.0, topics.shape[1]))
    found = topics_from_moments(sums.finalize(), sums.basis, sums.scale, len(alpha), rng)
    distances, order = topic_distance(found.topics, topics)
    assert distances.max() < 1e-8
    assert found.concentration == pytest.approx(alpha.sum(), rel=1e-8)
    a = found.concentration
    np.testing.assert_allclose(found.weights[order] * a * (a + 1), alpha, rtol=1e-7)
    assert found.off_diagonal < 1e-15


def test_two_topics_leave_the_concentration_open_but_not_the_topics_at_it():
    # Two fractions that sum to one have three moments; two topics on a line and alpha are four.
    rng = np.random.default_rng(0)
    topics, alpha = rng.dirichlet(np.full(6, 0.5), 2), np.array([2.0, 0.7])
    sums = exact_sums(topics, fraction_moment(alpha, 3), np.ones(6))
    moments = sums.finalize()
    for a in (0.5, alpha.sum(), 10.0):
        found = topics_from_moments(moments, sums.basis, sums.scale, 2, rng, concentration=a)
        assert found.off_diagonal < 1e-15
        exact = topic_distance(found.topics, topics)[0].max() < 1e-8
        assert exact == (a == alpha.sum())


@pytest.mark.parametrize("seed", range(5))
def test_one_topic_a_document_is_concentration_zero(seed):
    topics, alpha, rng = planted(seed)
    weights = alpha / alpha.sum()
    fractions = np.zeros((len(alpha),) * 3)
    np.einsum("iii->i", fractions)[:] = weights
    sums = exact_sums(topics, fractions, np.ones(topics.shape[1]))
    found = topics_from_moments(
        sums.finalize(), sums.basis, sums.scale, len(alpha), rng, concentration=0.0
    )
    distances, order = topic_distance(found.topics, topics)
    assert distances.max() < 1e-8
    np.testing.assert_allclose(found.weights[order], weights, rtol=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_dirichlet_parameters_from_the_moments_of_the_fractions(seed):
    _, alpha, _ = planted(seed)
    first, second = fraction_moment(alpha, 1), fraction_moment(alpha, 2)
    np.testing.assert_allclose(concentration_from_fractions(first, second), alpha, rtol=1e-9)


def test_dual_basis_tells_topics_apart_also_within_a_subspace():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.ones(12), 4)
    np.testing.assert_allclose(topics @ dual_basis(topics), np.eye(4), atol=1e-12)
    basis = np.linalg.qr(np.column_stack([topics.T, rng.standard_normal((12, 2))]))[0]
    np.testing.assert_allclose(topics @ basis @ dual_basis(topics, basis), np.eye(4), atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alpha0", [0.3, 5.0])
def test_errors_fall_like_the_root_of_the_number_of_documents(alpha0, seed):
    errors = []
    for n in (2000, 32000):
        sample = make_topics(n, 300, 6, alpha0=alpha0, random_state=seed)
        errors.append(topic_distance(fitted(sample.counts, 6).topics, sample.topics)[0].mean())
    # A fourth for sixteen times as many, within a quarter.
    assert 3.0 < errors[0] / errors[1] < 5.0


def fitted(counts, k, seed=0):
    rng = np.random.default_rng(seed)
    sums = Passes(counts).triples(k, rng)
    return topics_from_moments(sums.finalize(), sums.basis, sums.scale, k, rng)


def test_power_steps_find_what_the_whole_core_does():
    sample = make_topics(5000, 400, 8, random_state=0)
    whole = topics_from_moments_at_one(sample.counts, 8)
    rng = np.random.default_rng(0)
    passes = Passes(sample.counts)
    sums = power_sums(passes, find_subspace(passes, passes.totals, 8, rng), 1.0, rng)
    found = topics_from_powers(sums.finalize(), sums.basis, sums.scale, 1.0)
    distances, _ = topic_distance(found.topics, whole.topics)
    assert distances.max() < 0.02
    np.testing.assert_allclose(found.eigenvalues, whole.eigenvalues, rtol=0.02)


def topics_from_moments_at_one(counts, k):
    rng = np.random.default_rng(0)
    sums = Passes(counts).triples(k, rng)
    moments = sums.finalize()
    return topics_from_moments(moments, sums.basis, sums.scale, k, rng, concentration=1.0)


def test_more_topics_than_the_words_support_are_refused_with_the_largest_number():
    topics, alpha, rng = planted(1)
    sums = exact_sums(topics, fraction_moment(alpha, 3), np.ones(topics.shape[1]))
    with pytest.raises(NotIdentifiableError, match=f"exceeds the {len(alpha)} directions"):
        topics_from_moments(sums.finalize(), sums.basis, sums.scale, len(alpha) + 1, rng)


def test_the_spectrum_falls_and_the_noise_jumps_after_the_last_topic():
    sample = make_topics(4000, 300, 6, random_state=1)
    rng = np.random.default_rng(0)
    passes = Passes(sample.counts)
    subspace = find_subspace(passes, passes.totals, 12, rng)
    assert subspace.noise[6] > 2 * subspace.noise[5]
    assert subspace.spectrum[6] < 0.5 * subspace.spectrum[5]


def test_negative_noise_does_not_take_the_place_of_topics():
    # Titles of four words: most of the second moment is noise, as often negative as positive.
    sample = make_topics(3000, 200, 5, length=4, random_state=0)
    rng = np.random.default_rng(0)
    passes = Passes(sample.counts)
    subspace = find_subspace(passes, passes.totals, 25, rng)
    assert (subspace.spectrum[:25] > 0).all()
