"""Whether the top words of a topic occur in the same documents (NPMI, C_v, U_mass)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.passes import over

MEASURES = ("npmi", "c_v", "u_mass")
# What keeps the logarithm of pairs that never meet finite, as gensim has it.
_NEVER = 1e-12


def coherence(top_words: Any, batches: Iterable[Any], measure: str = "npmi") -> Any:
    """How coherent topics are: an average over the pairs of their top words.

    With D(v) and D(v, u) the documents that hold one word and both, of D in all,

        npmi    log(D D(v, u) / (D(v) D(u))) / -log(D(v, u) / D), from -1 (never together) to 1
        c_v     the cosine between a word's NPMI with all top words and the sum of theirs, averaged
                over the words (Roeder, Both, Hinneburg 2015); documents are the windows, where
                gensim slides one of 110 words within longer ones
        u_mass  log((D(v, u) + 1) / D(u)), u the more probable word of the topic

    Parameters
    ----------
    top_words : (k, n) ints, the columns of the words, most probable first
    batches : documents as CSR arrays (n_b, V), gone through once
    measure : "npmi", "c_v" or "u_mass"

    Returns
    -------
    (k,) array, the average over the pairs of words, or over the words
    """
    if measure not in MEASURES:
        raise InvalidInputError(f"measure={measure!r} must be one of {', '.join(MEASURES)}")
    words, place = np.unique(np.asarray(top_words), return_inverse=True)
    place = place.reshape(np.shape(top_words))

    def counted(batch: Any) -> tuple[Any, int]:
        present = batch[:, words]
        present.data = np.ones_like(present.data, dtype=np.float64)
        return (present.T @ present).toarray(), int(batch.shape[0])

    counts = over(batches, counted)
    together = sum((pairs for pairs, _ in counts), np.zeros((len(words), len(words))))
    n_documents = sum(number for _, number in counts)
    single = np.diag(together).copy()
    first, second = np.triu_indices(place.shape[1], 1)
    if not len(first):
        raise InvalidInputError("coherence needs at least two words a topic")
    if measure == "c_v":
        return np.array([_c_v(together[np.ix_(row, row)] / max(n_documents, 1)) for row in place])
    better, worse = place[:, first], place[:, second]
    both = together[better, worse]
    if measure == "u_mass":
        known = np.maximum(single[better], 1.0)
        return np.log((both + 1.0) / known).mean(axis=1)
    return _npmi(both, single[better], single[worse], max(n_documents, 1)).mean(axis=1)


def _c_v(joint: Any) -> float:
    """The measure of one topic, from the fractions (n, n) of documents with two of its words."""
    single = np.diag(joint)
    seen = joint + _NEVER
    expected = np.maximum(np.outer(single, single), _NEVER)
    vectors = np.log(seen / expected) / np.maximum(-np.log(seen), _NEVER)
    total = vectors.sum(axis=0)
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(total)
    return float(np.mean(vectors @ total / np.maximum(lengths, _NEVER)))


def _npmi(both: Any, one: Any, other: Any, total: int) -> Any:
    seen = both > 0
    fraction = np.where(seen, both, 1.0) / total
    independent = np.where(seen, one * other, 1.0) / total**2
    # A pair in every document has no information to normalize by: it could not be more coherent.
    certain = fraction >= 1.0
    information = -np.log(np.where(certain, 0.5, fraction))
    value = np.log(fraction / independent) / information
    return np.where(seen, np.where(certain, 1.0, value), -1.0)
