"""How likely documents are under topics, without the bias of the steps that refine them.

The steps of the refinement take the fractions of a document for known. Of short documents they are
not, and topics end up to thirty times as far from planted ones as the moments had them. Here
fractions are integrated out, and say how far topics go back towards those of the moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.models.topics.refinement.documents import Documents
from latensor.models.topics.refinement.word_by_word.fractions import ascending, distinct

# Draws for a document: all documents share these drawn tokens, for a gain grows with the documents
# and the noise of draws with their root. Of 120,000 tokens 8 draws leave 1.4 times the error of 64
# (12 planted samples), of larger samples .930 of that of the moments, 16 draws .925 (32 samples).
_FEWEST_DRAWS, _MOST_DRAWS = 8, 128
_DRAWN_TOKENS = 8e6
# Tokens that a document is judged by: with 300 all of 32 fits to planted documents of 100 to 3,000
# tokens end as with all of them, with 100 one does not; without a limit the time is that of tokens.
_MOST_TOKENS = 300
# How many standard errors topics must be likelier by: where documents are long there is no bias,
# and noise must not decide. A part of the documents is asked first; it must be a standard error
# away from what all would need.
_ERRORS = 2.0
_FIRST_PART = 1 / 16
_FIRST_TOKENS = 20_000


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
        tokens = max(float(self._documents.lengths.sum()), 1.0)
        self.first_part = max(_FIRST_PART, _FIRST_TOKENS / tokens)
        self._draws = int(np.clip(_DRAWN_TOKENS / tokens, _FEWEST_DRAWS, _MOST_DRAWS))

    def __call__(self, topics: Array, alpha: Array, part: float = 1.0) -> Array:
        """The log-likelihood (m,) of different documents, all or a part, times their weights."""
        from latensor.models.topics.refinement._kernels import left_to_right

        documents, table = self._documents, np.ascontiguousarray(topics.T, dtype=np.float64)
        # Their order is that of random numbers: the first ones are as good as any.
        count = max(int(part * len(documents)), min(2, len(documents)))
        found = np.empty(count)

        def score(first: int, last: int) -> None:
            left_to_right(
                documents.starts,
                documents.words,
                documents.counts,
                self._keys,
                table,
                alpha,
                self._draws,
                first,
                min(last, count),
                found,
            )

        documents.each_part(score, self._n_threads)
        return np.asarray(found * documents.weights[:count])


def likeliest(values: Callable[[float, float], Array], first: float = _FIRST_PART) -> float:
    """Where on the line from 0 to 1 a sum of values is largest, if it is clearly larger than at 0.

    The best of 1/2, 1 and the top of the parabola through these and 0.

    Parameters
    ----------
    values : of a point and a part of the terms, the terms (m,) of the sum
    first : float, the part that is asked first, if it is less than half
    """
    step = 0.0
    for part in (first, 1.0) if first < 0.5 else (1.0,):
        start = values(0.0, part)
        gains = {step: values(step, part) - start for step in (0.5, 1.0)}
        half, whole = (float(gain.sum()) for gain in gains.values())
        if whole < 2 * half:
            top = (4 * half - whole) / (4 * (2 * half - whole))
            if 0 < top < 1:
                gains[top] = values(top, part) - start
        step = max(gains, key=lambda step: float(gains[step].sum()))
        gain = gains[step]
        # With the same gains all terms would be so many standard errors above 0.
        needed = _ERRORS * np.sqrt(part) - (part < 1)
        if gain.sum() <= needed * np.sqrt(len(gain)) * gain.std():
            return 0.0
    return step


def likeliest_toward(
    others: Array,
    inside: Array,
    topics: Array,
    alpha: Array,
    likelihood: Callable[[Array, Array, float], Array],
    weighed: Callable[[Array], Array],
    least: float,
    first: float = _FIRST_PART,
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
    likelihood : of a part of the documents (m,) under topics and alpha
    weighed : alpha of the topics A topics, from the inverse of A
    least : float, no word is less probable
    first : float, the part of the documents that is asked first
    """
    unit = np.eye(len(topics))
    turn = inside / inside.sum(axis=1, keepdims=True) - unit

    def turned(step: float) -> tuple[Array, Array]:
        if step == 0:
            return topics, alpha
        mixed = unit + step * turn
        return _cut(mixed @ topics, least), weighed(np.linalg.pinv(mixed))

    found, alpha = turned(likeliest(lambda step, part: likelihood(*turned(step), part), first))
    rest = _cut(others, least) - found
    step = likeliest(lambda step, part: likelihood(found + step * rest, alpha, part), first)
    return found + step * rest if step else found


def _cut(topics: Array, least: float) -> Array:
    """Topics without negative probabilities: none is below `least`."""
    topics = np.maximum(topics, least)
    return np.asarray(topics / topics.sum(axis=1, keepdims=True))
