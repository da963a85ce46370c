"""Planted corpora: their laws, their truth, the same ones for a seed, and what is refused."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.datasets import PlantedDocuments, TopicSample, make_single_topic, make_topics
from latensor.exceptions import InvalidInputError
from latensor.sources import DocumentSource

MAKERS = {"topics": make_topics, "single": make_single_topic}


def lengths_of(counts):
    return np.asarray(counts.sum(1)).ravel()


def is_canonical(counts):
    fresh = type(counts)((counts.data, counts.indices, counts.indptr), shape=counts.shape)
    return fresh.has_canonical_format and bool((counts.data > 0).all())


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("lengths", ["poisson", "lognormal", "constant"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 3, 5), (40, 60, 4)])
def test_a_sample_has_the_shapes_and_the_sums_it_promises(maker, lengths, shape):
    n, v, k = shape
    sample = MAKERS[maker](n, v, k, lengths=lengths, length=20, random_state=3)
    assert isinstance(sample, TopicSample)
    assert sample.counts.shape == (n, v)
    assert sample.counts.dtype == np.float64
    assert sample.counts.indices.dtype == np.int32
    assert is_canonical(sample.counts)
    assert np.array_equal(sample.counts.data, np.rint(sample.counts.data))
    assert sample.topics.shape == (k, v)
    assert sample.mixtures.shape == (n, k)
    assert sample.alpha.shape == (k,)
    for rows in (sample.topics, sample.mixtures):
        assert (rows >= 0).all()
        np.testing.assert_allclose(rows.sum(1), 1, rtol=1e-12)
    if lengths == "constant":
        assert (lengths_of(sample.counts) == 20).all()


@pytest.mark.parametrize("maker", MAKERS)
def test_a_seed_fixes_every_number(maker):
    first, second = (MAKERS[maker](30, 50, 3, random_state=5) for _ in range(2))
    other = MAKERS[maker](30, 50, 3, random_state=6)
    assert (first.counts != second.counts).nnz == 0
    assert np.array_equal(first.topics, second.topics)
    assert np.array_equal(first.mixtures, second.mixtures)
    assert not np.array_equal(first.topics, other.topics)


@pytest.mark.parametrize("lengths", ["poisson", "lognormal"])
@pytest.mark.parametrize("seed", range(3))
def test_lengths_have_the_mean_asked_for(lengths, seed):
    n, mean = 20_000, 50.0
    found = lengths_of(
        make_topics(n, 20, 2, length=mean, lengths=lengths, random_state=seed).counts
    )
    spread = found.std() / np.sqrt(n)
    assert abs(found.mean() - mean) < 5 * spread
    # A Poisson number has its mean for variance; log-normal lengths spread far more.
    ratio = found.var() / mean
    assert ratio > 10 if lengths == "lognormal" else abs(ratio - 1) < 0.1


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("seed", range(3))
def test_words_follow_their_topics(maker, seed):
    """Word frequencies given mixtures: within five standard errors of mixtures @ topics."""
    sample = MAKERS[maker](4000, 12, 3, length=50, concentration=1.0, random_state=seed)
    sizes = lengths_of(sample.counts)
    for topic in range(3):
        weights = sample.mixtures[:, topic]
        expected = (weights * sizes) @ sample.mixtures @ sample.topics
        found = sample.counts.T @ weights
        deviation = np.sqrt((weights**2 * sizes) @ sample.mixtures @ sample.topics)
        assert (np.abs(found - expected) <= 5 * deviation + 1e-9).all()


@pytest.mark.parametrize("seed", range(3))
def test_mixtures_have_the_moments_of_their_dirichlet_distribution(seed):
    alpha = np.array([0.2, 0.5, 1.3])
    mixtures = make_topics(40_000, 5, 3, alpha=alpha, length=1, random_state=seed).mixtures
    fraction, total = alpha / alpha.sum(), alpha.sum()
    np.testing.assert_allclose(mixtures.mean(0), fraction, atol=5 * 0.5 / np.sqrt(40_000))
    variance = fraction * (1 - fraction) / (total + 1)
    np.testing.assert_allclose(mixtures.var(0), variance, rtol=0.05)


def test_alpha_is_shared_evenly_a_number_or_given():
    assert np.allclose(make_topics(3, 4, 2, alpha0=3.0).alpha, [1.5, 1.5])
    assert np.allclose(make_topics(3, 4, 2, alpha=0.3).alpha, [0.3, 0.3])
    given_alpha = np.array([0.3, 0.7])
    given_alpha.flags.writeable = False
    assert np.array_equal(make_topics(3, 4, 2, alpha=given_alpha).alpha, given_alpha)


def test_single_topics_occur_as_often_as_their_weights_say():
    sample = make_single_topic(20_000, 5, 3, weights=[1, 2, 5], length=2, random_state=0)
    assert set(np.unique(sample.mixtures)) == {0.0, 1.0}
    np.testing.assert_allclose(sample.alpha, [0.125, 0.25, 0.625])
    np.testing.assert_allclose(
        sample.mixtures.mean(0), sample.alpha, atol=5 * 0.5 / np.sqrt(20_000)
    )
    unused = make_single_topic(50, 5, 2, weights=[0, 1], random_state=0)
    assert (unused.mixtures[:, 0] == 0).all()


def test_the_exponent_shapes_the_background_and_the_concentration_the_topics():
    flat = make_topics(2, 500, 40, word_exponent=0, concentration=50.0, random_state=0).topics
    assert flat.max() < 3 / 500
    zipf = make_topics(2, 500, 400, word_exponent=1.0, random_state=0).topics.mean(0)
    harmonic = (1 / np.arange(1, 501)).sum()
    np.testing.assert_allclose(zipf[:3] * harmonic, [1, 1 / 2, 1 / 3], rtol=0.1)
    entropies = []
    for concentration in (0.001, 0.1, 10.0):
        topics = make_topics(2, 500, 20, concentration=concentration, random_state=0).topics
        entropies.append(-(topics * np.log(topics + 1e-300)).sum(1).mean())
    assert entropies[0] < entropies[1] < entropies[2]


def test_topics_too_sparse_for_floating_point_are_single_words():
    topics = make_topics(2, 10, 30, concentration=1e-6, random_state=0).topics
    assert np.isfinite(topics).all()
    np.testing.assert_allclose(topics.sum(1), 1)
    assert (topics.max(1) > 0.99).all()


@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 40),
    v=st.integers(1, 30),
    k=st.integers(1, 6),
    batch=st.integers(1, 50),
    seed=st.integers(0, 2**63),
)
def test_a_planted_source_gives_the_same_batches_every_time(n, v, k, batch, seed):
    source = PlantedDocuments(n, v, k, length=5, batch_size=batch, random_state=seed)
    first, second = list(source), list(source)
    assert len(first) == len(source) == -(-n // batch)
    assert sum(part.shape[0] for part in first) == n == source.n_documents
    for number, (one, two) in enumerate(zip(first, second, strict=True)):
        assert one.dtype == np.float32
        assert one.indices.dtype == np.int32
        assert is_canonical(one)
        assert one.shape == two.shape == (one.shape[0], source.n_features)
        assert (one != two).nnz == 0
        assert (one != source.batch(number)).nnz == 0


def test_batches_differ_from_each_other_and_from_seed_to_seed():
    first, second = PlantedDocuments(20, 30, 2, batch_size=10, random_state=1)
    assert (first != second).nnz > 0
    topics = np.full((2, 30), 1 / 30)
    one, two = (
        next(iter(PlantedDocuments(20, 30, 2, topics=topics, random_state=seed))) for seed in (1, 2)
    )
    assert (one != two).nnz > 0


def test_a_planted_source_is_a_source_of_documents():
    source = PlantedDocuments(20, 30, 2, random_state=1)
    assert isinstance(source, DocumentSource)
    assert source.vocabulary is None


@pytest.mark.parametrize("seed", range(3))
def test_a_planted_source_draws_from_the_topics_it_is_given(seed):
    topics = np.array([[0.5, 0.5, 0.0, 0.0], [0.0, 0.0, 0.2, 0.8]])
    topics.flags.writeable = False
    source = PlantedDocuments(
        9000, 4, 2, topics=topics, alpha=[1.0, 3.0], length=10, random_state=seed
    )
    total = sum(np.asarray(batch.sum(0)).ravel() for batch in source)
    # Words of a document share its mixture: the error is that of documents, not of words.
    np.testing.assert_allclose(
        total / total.sum(), [0.125, 0.125, 0.15, 0.6], atol=5 * 0.5 / np.sqrt(9000)
    )
    assert np.array_equal(source.topics, topics)


def test_words_of_probability_zero_never_occur():
    topics = np.zeros((1, 50))
    topics[0, [7, 30]] = [1e-3, 1 - 1e-3]
    source = PlantedDocuments(2000, 50, 1, topics=topics, length=20, random_state=0)
    seen = np.unique(np.concatenate([batch.indices for batch in source]))
    assert set(seen) == {7, 30}


BAD = [
    ({"n_documents": 0}, "n_documents=0"),
    ({"n_features": -1}, "n_features=-1"),
    ({"n_components": 1.5}, "n_components=1.5"),
    ({"length": 0}, "length=0"),
    ({"length": "long"}, "length='long'"),
    ({"lengths": "uniform"}, "lengths='uniform' must be one of"),
    ({"word_exponent": -1}, "word_exponent=-1"),
    ({"concentration": np.nan}, "concentration=nan"),
    ({"random_state": "one"}, "random_state='one'"),
]
BAD_ALPHA = [
    ({"alpha0": 0}, "alpha0=0"),
    ({"alpha": -1.0}, "alpha=-1.0 must hold positive"),
    ({"alpha": [0.1, 0.1]}, r"alpha has shape \(2,\)"),
    ({"alpha": "flat"}, "alpha='flat'"),
]


@pytest.mark.parametrize("make", [make_topics, make_single_topic, PlantedDocuments])
@pytest.mark.parametrize(("arguments", "message"), BAD)
def test_bad_arguments_are_named(make, arguments, message):
    valid = {"n_documents": 5, "n_features": 6, "n_components": 3}
    with pytest.raises(InvalidInputError, match=message):
        make(**(valid | arguments))


@pytest.mark.parametrize("make", [make_topics, PlantedDocuments])
@pytest.mark.parametrize(("arguments", "message"), BAD_ALPHA)
def test_bad_proportions_are_named(make, arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        make(5, 6, 3, **arguments)


@pytest.mark.parametrize("weights", [[1, 2], [1, -1, 1], [0, 0, 0], [1, np.nan, 1]])
def test_bad_weights_are_named(weights):
    with pytest.raises(InvalidInputError, match="weights="):
        make_single_topic(5, 6, 3, weights=weights)


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (np.ones((2, 6)), "expected"),
        (np.ones(6), r"shape \(6,\)"),
        (-np.ones((3, 6)), "at least 0"),
        (np.zeros((3, 6)), "positive sum"),
        ([["a"]], "matrix of probabilities"),
    ],
)
def test_bad_topics_are_named(topics, message):
    with pytest.raises(InvalidInputError, match=message):
        PlantedDocuments(5, 6, 3, topics=topics)


@pytest.mark.parametrize("number", [-1, 2])
def test_a_batch_that_does_not_exist_is_refused(number):
    with pytest.raises(InvalidInputError, match="there are 2"):
        PlantedDocuments(10, 6, 3, batch_size=5).batch(number)


def test_importing_the_datasets_loads_neither_scikit_learn_nor_numba():
    code = "import sys, latensor.datasets; sys.exit(bool({'sklearn', 'numba'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
