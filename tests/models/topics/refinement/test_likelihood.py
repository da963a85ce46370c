"""The likelihood that fractions are integrated out of, and how far topics follow it."""

import itertools

import numpy as np
import pytest
import scipy.sparse
from scipy.special import gammaln

import latensor as lt
from latensor.models.topics.model import follow_the_model
from latensor.models.topics.refinement import likelihood
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.refinement.likelihood import (
    MarginalLikelihood,
    likeliest,
    likeliest_toward,
)

TOPICS = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
ALPHA = np.array([0.4, 0.9])


def exact(counts, topics, alpha):
    """Log-likelihood of one document: the sum over all topics of all its tokens."""
    tokens = np.repeat(np.arange(len(counts)), counts)
    total = 0.0
    for chosen in itertools.product(range(len(alpha)), repeat=len(tokens)):
        on = alpha + np.bincount(np.array(chosen, int), minlength=len(alpha))
        value = gammaln(on).sum() - gammaln(on.sum()) - gammaln(alpha).sum() + gammaln(alpha.sum())
        total += np.exp(value) * np.prod(topics[list(chosen), tokens])
    return np.log(total)


def test_a_token_is_exact_and_more_are_in_the_mean(monkeypatch):
    monkeypatch.setattr(likelihood, "_MOST_DRAWS", 20_000)
    for counts in ([0, 1, 0], [2, 0, 3], [1, 1, 4]):
        rows = scipy.sparse.csr_array(np.array([counts], float))
        found = MarginalLikelihood(rows, np.ones(1), 0, 1)(TOPICS, ALPHA)
        rtol = 1e-6 if sum(counts) == 1 else 2e-3
        np.testing.assert_allclose(found, [exact(counts, TOPICS, ALPHA)], rtol=rtol)


def test_order_threads_and_repetitions_change_nothing():
    rows = lt.datasets.make_topics(300, 3, 2, length=20, random_state=0).counts.tocsr()
    value = MarginalLikelihood(rows, np.ones(300), 1, 1)(TOPICS, ALPHA).sum()
    order = np.random.default_rng(0).permutation(300)
    for given, n_threads in ((rows[order], 1), (rows, 3)):
        found = MarginalLikelihood(given, np.ones(300), 1, n_threads)(TOPICS, ALPHA).sum()
        assert found == pytest.approx(value, rel=1e-12)
    twice = scipy.sparse.vstack([rows, rows], format="csr")
    found = MarginalLikelihood(twice, np.ones(600), 1, 1)(TOPICS, ALPHA).sum()
    assert found == pytest.approx(2 * value, rel=1e-12)


def test_documents_of_any_length_are_judged_by_a_few_tokens():
    # Gene counts have millions of tokens; a token after the other, they took minutes.
    few = scipy.sparse.csr_array(np.array([[90.0, 60.0, 150.0]]))
    many = scipy.sparse.csr_array(np.array([[9e8, 6e8, 1.5e9]]))
    found = [MarginalLikelihood(rows, np.ones(1), 0, 1)(TOPICS, ALPHA) for rows in (few, many)]
    np.testing.assert_allclose(found[1], found[0], rtol=0.05)
    words = np.array([[70_000.0] * 2000])
    documents = Documents.of(scipy.sparse.csr_array(words), np.float64)
    drawn = documents.drawn(np.array([300]), 0)
    assert drawn.sum() == 300
    assert drawn.max() <= 2


def test_noise_moves_nothing_and_a_clear_gain_does():
    noise = np.random.default_rng(0).standard_normal(1000)

    def first(values):
        return lambda step, part: values(step)[: int(part * 1000)]

    assert likeliest(first(lambda step: step * (noise - noise.mean() + 0.01))) == 0.0
    assert likeliest(first(lambda step: step * (noise + 1.0))) == 1.0
    best = likeliest(first(lambda step: np.full(1000, -((step - 0.4) ** 2))))
    assert best == pytest.approx(0.4, abs=1e-6)


def test_a_part_that_says_no_spares_the_rest():
    asked = []

    def values(step, part):
        asked.append(part)
        return np.full(int(part * 1000), -step)

    assert likeliest(values) == 0.0
    assert set(asked) == {1 / 16}


def test_topics_that_fit_come_back_and_others_move_towards_the_moments():
    sample = lt.datasets.make_topics(2000, 40, 3, length=15, alpha=0.5, random_state=0)
    judge = MarginalLikelihood(sample.counts.tocsr(), np.ones(2000), 0, 1)
    mixed = (np.full((3, 3), 0.1) + 0.7 * np.eye(3)) @ sample.topics
    for start, end in ((sample.topics, mixed), (mixed, sample.topics)):
        inside = end @ np.linalg.pinv(start)
        found = likeliest_toward(
            end, inside, start, sample.alpha, judge, lambda _: sample.alpha, 1e-9
        )
        assert np.abs(found - sample.topics).sum(axis=1).max() < 0.1


def test_fewer_topics_than_there_are_do_not_follow_the_model(monkeypatch):
    seen = []
    original = follow_the_model
    target = "latensor.models.topics.dirichlet_model.follow_the_model"
    monkeypatch.setattr(target, lambda evidence: seen.append(original(evidence)) or seen[-1])
    for planted in (5, 12):
        counts = lt.datasets.make_topics(3000, 200, planted, length=60, random_state=0).counts
        lt.LatentDirichletAllocation(5, refine=2, random_state=0).fit(counts)
    assert seen == [True, False]
