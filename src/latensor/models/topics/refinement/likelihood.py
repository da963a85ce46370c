"""How likely documents are under topics, without the bias of the steps that refine them.

The steps of the refinement take the fractions of a document for known. Of short documents they are
not, and topics end up to thirty times as far from planted ones as the moments had them. Here
fractions are integrated out, and say how far topics go back towards those of the moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy

from latensor.arrays import Array
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.refinement.word_by_word.fractions import ascending, distinct

# Draws for a document: the noise is a fifth above that of 128; with 8 it is twice as large.
_DRAWS = 16
# Tokens that a document is judged by: with 300 all of 32 fits to planted documents of 100 to 3,000
# tokens end as with all of them, with 100 one does not; without a limit the time is that of tokens.
_MOST_TOKENS = 300
# Likelihoods that are taken along a line, besides those of its ends, and how many standard errors
# topics must be likelier by: where documents are long there is no bias, and noise must not decide.
_TRIALS = 4
_ERRORS = 2.0


class MarginalLikelihood:
    """log p(documents | topics, alpha), by the left-to-right method (Wallach et al. 2009).

    Unbiased for the likelihood of every document, and with the same random numbers for all topics
    that are compared.

    Parameters
    ----------
    rows, weights : (n, V) sparse counts, and how many times each document counts
    seed, n_threads : int; the result does not depend on the latter, nor on the order of documents
    """

    def __init__(self, rows: Any, weights: Any, seed: int, n_threads: int) -> None:
        documents = ascending(Documents.of(rows, np.float32, weights))
        sizes = np.minimum(documents.lengths, _MOST_TOKENS).astype(np.int64)
        documents = documents.with_counts(documents.drawn(sizes, seed))
        self._documents = distinct(documents, seed)
        self._keys, self._n_threads = self._documents.keys(seed), n_threads

    def __call__(self, topics: Array, alpha: Array) -> Array:
        """The log-likelihood (m,) of every different document, times its weight."""
        from latensor.models.topics.refinement._kernels import left_to_right

        documents, table = self._documents, np.ascontiguousarray(topics.T, dtype=np.float64)
        found = np.empty(len(documents))

        def score(first: int, last: int) -> None:
            left_to_right(
                documents.starts,
                documents.words,
                documents.counts,
                self._keys,
                table,
                alpha,
                _DRAWS,
                first,
                last,
                found,
            )

        documents.each_part(score, self._n_threads)
        return np.asarray(found * documents.weights)


def likeliest(values: Callable[[float], Array]) -> float:
    """Where on the line from 0 to 1 a sum of values is largest, if it is clearly larger than at 0.

    Parameters
    ----------
    values : of a point, the terms (m,) of the sum
    """
    start = values(0.0)

    def loss(step: float) -> float:
        return -float((values(step) - start).sum())

    inner = scipy.optimize.minimize_scalar(
        loss, bounds=(0, 1), method="bounded", options={"maxiter": _TRIALS}
    )
    step = float(inner.x) if inner.fun < loss(1.0) else 1.0
    gains = values(step) - start
    error = gains.std() * np.sqrt(len(gains))
    return step if gains.sum() > _ERRORS * error else 0.0


def likeliest_toward(
    others: Array,
    inside: Array,
    topics: Array,
    alpha: Array,
    likelihood: Callable[[Array, Array], Array],
    weighed: Callable[[Array], Array],
    least: float,
) -> Array:
    """The likeliest topics on the way from refined topics to those of the moments.

    The latter are A topics + rest. Refinement mixes topics with each other where documents are
    short, and moments have noise in every word: so the way goes first to A topics, and then along
    what is left. `topics` themselves come back where no step is likelier.

    Parameters
    ----------
    others : (k, V), rows sum to one
    inside : (k, k) A
    topics, alpha : (k, V) and (k,), where the way begins
    likelihood : of documents (m,) under topics and alpha
    weighed : alpha of the topics A topics, from the inverse of A
    least : float, no word is less probable
    """
    unit = np.eye(len(topics))
    turn = inside / inside.sum(axis=1, keepdims=True) - unit

    def turned(step: float) -> tuple[Array, Array]:
        if step == 0:
            return topics, alpha
        mixed = unit + step * turn
        return _cut(mixed @ topics, least), weighed(np.linalg.pinv(mixed))

    found, alpha = turned(likeliest(lambda step: likelihood(*turned(step))))
    rest = _cut(others, least) - found
    step = likeliest(lambda step: likelihood(found + step * rest, alpha))
    return found + step * rest if step else found


def _cut(topics: Array, least: float) -> Array:
    """Topics without negative probabilities: none is below `least`."""
    topics = np.maximum(topics, least)
    return np.asarray(topics / topics.sum(axis=1, keepdims=True))
