"""From arrays to words and distances."""

import math

import numpy as np
import pytest

from latensor.exceptions import InvalidInputError
from latensor.report import hellinger_distances, probable_words, relevant_words

TOPICS = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
FRACTIONS = np.array([0.75, 0.25])


def test_words_by_probability_with_their_lift():
    first, second = probable_words(TOPICS, FRACTIONS, ["a", "b", "c"])
    assert [(w.text, w.probability) for w in first] == [("a", 0.5), ("b", 0.5)]
    assert [w.lift for w in first] == pytest.approx([1.0, 4 / 3])
    assert [(w.text, w.lift) for w in second] == [("a", 1.0), ("c", 4.0)]


def test_relevance_brings_words_forward_that_are_rare_elsewhere():
    first, second = relevant_words(TOPICS, FRACTIONS, ["a", "b", "c"], 1)
    assert (first[0].text, second[0].text) == ("b", "c")


@pytest.mark.parametrize("balance", [0.0, 0.3, 0.6, 1.0])
def test_relevance_is_what_the_formula_says(balance, rng):
    topics, fractions = rng.dirichlet(np.ones(30), 4), rng.dirichlet(np.ones(4))
    corpus = fractions @ topics
    for row, words in zip(
        topics, relevant_words(topics, fractions, n_words=30, balance=balance), strict=True
    ):
        score = balance * np.log(row) + (1 - balance) * np.log(row / corpus)
        assert [int(word.text) for word in words] == list(np.argsort(-score))


def test_a_topic_without_fraction_has_finite_lifts():
    words = relevant_words(TOPICS, [1.0, 0.0], ["a", "b", "c"])[1]
    assert all(math.isfinite(word.lift) for word in words)


def test_distances_by_hand():
    expected = math.sqrt(0.5)
    np.testing.assert_allclose(hellinger_distances(TOPICS), [[0, expected], [expected, 0]])
    np.testing.assert_array_equal(hellinger_distances(np.eye(3)), 1.0 - np.eye(3))
    # The square root of rounding is all that may be left between two equal topics.
    same = hellinger_distances(np.full((2, 7), 1 / 7))
    assert same.max() < 4 * math.sqrt(np.finfo(float).eps)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: probable_words(TOPICS[0], FRACTIONS), r"\(k, V\) matrix, and have shape \(3,\)"),
        (lambda: probable_words(-TOPICS, FRACTIONS), "negative, NaN or infinite"),
        (lambda: probable_words(TOPICS * np.nan, FRACTIONS), "negative, NaN or infinite"),
        (lambda: probable_words(TOPICS * [[1], [0]], FRACTIONS), r"topics\[1\] is zero everywhere"),
        (lambda: probable_words(TOPICS, [1.0]), r"fractions have shape \(1,\), and 2 topics"),
        (lambda: probable_words(TOPICS, [0.0, 0.0]), "not all 0"),
        (lambda: probable_words(TOPICS, FRACTIONS, ["a"]), "vocabulary has 1 words.*3 columns"),
        (lambda: probable_words(TOPICS, FRACTIONS, n_words=0), "n_words=0"),
        (lambda: relevant_words(TOPICS, FRACTIONS, balance=2.0), "balance=2.0"),
        (lambda: hellinger_distances(np.zeros((0, 3))), r"shape \(0, 3\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
