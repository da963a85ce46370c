"""Planted corpora in memory, with the topics and mixtures that made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import generator
from latensor.arrays.randomness import RandomState
from latensor.datasets.drawing import (
    Length,
    check_length,
    check_positive,
    check_proportions,
    check_shape,
    cumulated,
    draw_counts,
    draw_lengths,
    draw_topics,
)
from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class TopicSample:
    """A planted corpus and its truth.

    Attributes
    ----------
    counts : csr_array (n, V), float64, how often each document holds each word
    topics : (k, V) array, rows are the probabilities of words in a topic
    alpha : (k,) array, Dirichlet parameters of the mixtures; for `make_single_topic` the
        probabilities of the topics
    mixtures : (n, k) array, rows are the fractions of topics in a document
    """

    counts: Any
    topics: Any
    alpha: Any
    mixtures: Any


def make_topics(
    n_documents: int,
    n_features: int,
    n_components: int,
    *,
    alpha: Any = None,
    alpha0: float = 1.0,
    length: float = 100.0,
    lengths: Length = "poisson",
    word_exponent: float = 0.8,
    concentration: float = 0.05,
    random_state: RandomState = None,
) -> TopicSample:
    """A corpus drawn from latent Dirichlet allocation, to test and compare what learns it.

    Each document draws a mixture of topics from a Dirichlet distribution with parameters
    `alpha`, then each of its words from a topic of that mixture (monograph 4.1).

    Parameters
    ----------
    n_documents, n_features, n_components : int, documents n, words V and topics k
    alpha : number or (k,) array, Dirichlet parameters; by default `alpha0` / k for every topic
    alpha0 : float, the sum of the Dirichlet parameters where `alpha` is None
    length : float, mean number of words of a document
    lengths : "poisson", "lognormal" (a few long documents, many short ones) or "constant"
    word_exponent : float, exponent of Zipf's law for the frequencies of words: about 1 for running
        text, less without its function words, 0 for words that are all alike
    concentration : float, small for topics with few words of their own, large for topics that
        all resemble the common background
    random_state : int, Generator or None

    Returns
    -------
    TopicSample
    """
    n_documents, n_features, n_components = check_shape(n_documents, n_features, n_components)
    proportions = check_proportions(alpha, alpha0, n_components)
    mean, lengths = check_length(length, lengths)
    rng = generator(random_state)
    topics = draw_topics(
        rng,
        n_components,
        n_features,
        check_exponent(word_exponent),
        check_positive(concentration, "concentration"),
    )
    mixtures = rng.dirichlet(proportions, n_documents)
    topic_counts = rng.multinomial(draw_lengths(rng, n_documents, mean, lengths), mixtures)
    counts = draw_counts(rng, cumulated(topics), topic_counts, np.float64)
    return TopicSample(counts, topics, proportions, mixtures)


def make_single_topic(
    n_documents: int,
    n_features: int,
    n_components: int,
    *,
    weights: Any = None,
    length: float = 100.0,
    lengths: Length = "poisson",
    word_exponent: float = 0.8,
    concentration: float = 0.05,
    random_state: RandomState = None,
) -> TopicSample:
    """A corpus in which every document is about one topic (monograph 4.1).

    Parameters
    ----------
    weights : (k,) array, probabilities of the topics up to scale; equal by default
    n_documents, n_features, n_components, length, lengths : as for `make_topics`
    word_exponent, concentration, random_state : as for `make_topics`

    Returns
    -------
    TopicSample, whose `mixtures` hold a single one in each row and `alpha` the weights
    """
    n_documents, n_features, n_components = check_shape(n_documents, n_features, n_components)
    mean, lengths = check_length(length, lengths)
    fractions = np.full(n_components, 1.0 / n_components)
    if weights is not None:
        fractions = np.array(weights, dtype=np.float64)
        valid = fractions.shape == (n_components,) and np.isfinite(fractions).all()
        if not valid or (fractions < 0).any() or fractions.sum() <= 0:
            raise InvalidInputError(
                f"weights={weights!r} must hold n_components={n_components} numbers of at least "
                "0 with a positive sum"
            )
        fractions /= fractions.sum()
    rng = generator(random_state)
    topics = draw_topics(
        rng,
        n_components,
        n_features,
        check_exponent(word_exponent),
        check_positive(concentration, "concentration"),
    )
    chosen = rng.choice(n_components, size=n_documents, p=fractions)
    mixtures = np.zeros((n_documents, n_components))
    mixtures[np.arange(n_documents), chosen] = 1.0
    sizes = draw_lengths(rng, n_documents, mean, lengths)
    topic_counts = mixtures.astype(np.int64) * sizes[:, None]
    counts = draw_counts(rng, cumulated(topics), topic_counts, np.float64)
    return TopicSample(counts, topics, fractions, mixtures)


def check_exponent(word_exponent: object) -> float:
    """The exponent of Zipf's law, zero for words that are all alike."""
    if not isinstance(word_exponent, bool) and word_exponent == 0:
        return 0.0
    return check_positive(word_exponent, "word_exponent")
