"""From the arrays of a fitted model to the words and distances that a page shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError
from latensor.report.arrangement import Floats
from latensor.report.description import TopicWord


def probable_words(
    topics: Any, fractions: Any, vocabulary: Sequence[str] | None = None, n_words: int = 10
) -> list[tuple[TopicWord, ...]]:
    """The most probable words of each topic.

    Parameters
    ----------
    topics : (k, V) array, rows are probabilities
    fractions : (k,) array, fraction of each topic in the corpus, from which lifts are computed
    vocabulary : (V,) words; None shows numbers
    n_words : int, at most so many

    Returns
    -------
    list of k tuples of TopicWord, most probable first, ties in the order of the vocabulary
    """
    return relevant_words(topics, fractions, vocabulary, n_words, balance=1.0)


def relevant_words(
    topics: Any,
    fractions: Any,
    vocabulary: Sequence[str] | None = None,
    n_words: int = 10,
    balance: float = 0.6,
) -> list[tuple[TopicWord, ...]]:
    """The words that are typical for each topic: frequent in it, and rarer elsewhere.

    With p(w|t) a word's probability in a topic and p(w) = sum_t fraction_t p(w|t) its probability
    in the corpus, words are ordered by b log p(w|t) + (1 - b) log(p(w|t) / p(w)), b the `balance`.

    Parameters
    ----------
    topics : (k, V) array, rows are probabilities
    fractions : (k,) array, fraction of each topic in the corpus
    vocabulary : (V,) words; None shows numbers
    n_words : int, at most so many
    balance : float from 0 (only lift) to 1 (only probability)

    Returns
    -------
    list of k tuples of TopicWord, most relevant first, ties in the order of the vocabulary
    """
    probabilities, weights = _checked(topics, fractions)
    wanted = check_positive_int(n_words, "n_words")
    size = probabilities.shape[1]
    if vocabulary is not None and len(vocabulary) != size:
        raise InvalidInputError(
            f"vocabulary has {len(vocabulary)} words, and topics have {size} columns"
        )
    if not 0.0 <= balance <= 1.0:
        raise InvalidInputError(f"balance={balance!r} must be a number from 0 to 1")
    # A word of a topic without any fraction has no place in the corpus, and still a finite lift.
    corpus = np.maximum(weights @ probabilities, 1e-12)
    found = []
    for row in probabilities:
        possible = np.flatnonzero(row > 0)
        logarithm = np.log(row[possible])
        lift = row[possible] / corpus[possible]
        score = balance * logarithm + (1.0 - balance) * np.log(lift)
        order = np.argsort(-score, kind="stable")[:wanted]
        found.append(_named(row, possible[order], lift[order], vocabulary))
    return found


def ranked_words(
    topics: Any, fractions: Any, vocabulary: Sequence[str] | None = None, n_words: int = 10
) -> list[tuple[TopicWord, ...]]:
    """The words of each topic that are among the `n_words` most relevant ones at some balance.

    The balances are 0, 0.1, ..., 1: enough for a page to rank words by any of them.

    Parameters
    ----------
    topics, fractions, vocabulary, n_words : as for `relevant_words`

    Returns
    -------
    list of k tuples of TopicWord, most probable first
    """
    probabilities, weights = _checked(topics, fractions)
    wanted = check_positive_int(n_words, "n_words")
    corpus = np.maximum(weights @ probabilities, 1e-12)
    found = []
    for row in probabilities:
        possible = np.flatnonzero(row > 0)
        logarithm, lift = np.log(row[possible]), np.log(row[possible] / corpus[possible])
        chosen: set[int] = set()
        for tenths in range(11):
            score = tenths / 10 * logarithm + (1 - tenths / 10) * lift
            chosen |= set(np.argsort(-score, kind="stable")[:wanted].tolist())
        order = sorted(chosen, key=lambda j: (-logarithm[j], j))
        found.append(_named(row, possible[order], np.exp(lift[order]), vocabulary))
    return found


def _named(
    row: Any, columns: Any, lifts: Any, vocabulary: Sequence[str] | None
) -> tuple[TopicWord, ...]:
    return tuple(
        TopicWord(
            str(i) if vocabulary is None else str(vocabulary[i]),
            min(float(row[i]), 1.0),
            float(lift),
        )
        for i, lift in zip(columns.tolist(), lifts, strict=True)
    )


def hellinger_distances(topics: Any) -> Floats:
    """How far apart topics are, from 0 (the same) to 1 (no word in common).

    The Hellinger distance of p and q is sqrt(1 - sum_w sqrt(p_w q_w)).

    Parameters
    ----------
    topics : (k, V) array, rows are probabilities

    Returns
    -------
    (k, k) array, symmetric, zeros on the diagonal
    """
    probabilities, _ = _checked(topics, np.ones(np.shape(topics)[:1]))
    root = np.sqrt(probabilities / probabilities.sum(axis=1, keepdims=True))
    overlap = root @ root.T
    distances: Floats = np.sqrt(np.maximum(1.0 - (overlap + overlap.T) / 2.0, 0.0))
    np.fill_diagonal(distances, 0.0)
    return distances


def _checked(topics: Any, fractions: Any) -> tuple[Floats, Floats]:
    probabilities = np.asarray(topics, dtype=np.float64)
    weights = np.asarray(fractions, dtype=np.float64)
    if probabilities.ndim != 2 or 0 in probabilities.shape:
        raise InvalidInputError(
            f"topics must be a (k, V) matrix, and have shape {probabilities.shape}"
        )
    if not np.all(np.isfinite(probabilities)) or np.any(probabilities < 0):
        raise InvalidInputError("topics hold entries that are negative, NaN or infinite")
    if not np.all(probabilities.sum(axis=1) > 0):
        empty = int(np.argmin(probabilities.sum(axis=1)))
        raise InvalidInputError(f"topics[{empty}] is zero everywhere: rows are probabilities")
    if weights.shape != probabilities.shape[:1]:
        raise InvalidInputError(
            f"fractions have shape {weights.shape}, and {len(probabilities)} topics need "
            f"({len(probabilities)},)"
        )
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or not weights.sum() > 0:
        raise InvalidInputError("fractions must be finite, at least 0 and not all 0")
    return probabilities, weights / weights.sum()
