"""Which topics every word of every document is on, renewed in place by threads that never meet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays.threads import run_tasks
from latensor.models.topics.refinement.documents import (
    Documents,
    padded,
    padded_width,
)

# Groups of documents and words: so many threads can work at once. Each group visits every document
# once a pass, which short documents feel: they are grouped only where passes take long.
_GROUPS = 4
_WORDS_A_VISIT = 16
_SMALLEST = 80_000
_LARGE = 2_000_000
# Rows are padded to whole vectors only: at k = 20 and 50 passes take a tenth less time than with
# whole lines of the cache, and the fractions a fourth and an eighth less memory.
_LANES = 8
# A document's mixture starts even: the second step sees what the first has found.
_FIRST_STEPS = 2


class WordFractions:
    """Fractions g (nnz, w) of words on topics, and their sums N (V, w) by word and c (n, w).

    Documents fall into q groups of consecutive ones, words into q ranges. Round s of a pass gives
    the words of range (p + s) mod q in the documents of group p to one task for each p: no two
    tasks of a round share a word or a document, and the result is that of the rounds, not of the
    threads. Only the column sums of N are common: each task goes on from those that the round
    began with.

    Parameters
    ----------
    documents : Documents, the words of each ascending
    document_prior : (k,) a
    word_prior : float, b
    left_out : float, the part of its own fraction that a word's count is judged without
    n_threads : int
    """

    def __init__(
        self,
        documents: Documents,
        document_prior: Any,
        word_prior: float,
        left_out: float,
        n_threads: int,
    ) -> None:
        self._documents, self._n_threads = documents, n_threads
        dtype = documents.counts.dtype
        self.n_topics = len(document_prior)
        self.width = table_width(self.n_topics)
        self._alpha = padded(document_prior, dtype, self.width)
        self._word_prior, self._left_out = dtype.type(word_prior), dtype.type(left_out)
        self.mixtures = np.zeros((len(documents), self.width), dtype)
        self._fractions = np.zeros((documents.n_nonzeros, self.width), dtype)
        self.table = np.zeros((documents.n_features, self.width), dtype)
        self.table[:, : self.n_topics] = self._word_prior
        self._limits = _word_limits(documents)
        self._edges = _group_edges(documents, self._limits)

    def begin(self, topics: Any) -> None:
        """Put documents on topics (V, w), and count their words."""
        from latensor.models.topics.refinement.word_by_word._kernels import first_fractions

        documents = self._documents
        self.mixtures[:, : self.n_topics] = documents.lengths[:, None] / self.n_topics

        def begin(first: int, last: int) -> None:
            first_fractions(
                documents.starts,
                documents.words,
                documents.counts,
                topics,
                self._alpha,
                _FIRST_STEPS,
                first,
                last,
                self.mixtures,
                self._fractions,
            )

        documents.each_part(begin, self._n_threads)
        # A column for every word of every document, with one entry: no loop to compile.
        entries = (documents.amounts, documents.words, np.arange(documents.n_nonzeros + 1))
        counted = scipy.sparse.csc_array(entries, shape=(len(self.table), documents.n_nonzeros))
        self.table += counted @ self._fractions

    def renew(self, speed: float) -> float:
        """Decide anew on the words of all documents; their log-likelihood, each from all others.

        Parameters
        ----------
        speed : float, how much of the way to the new fractions is gone; beyond 1 goes ahead of them
        """
        from latensor.models.topics.refinement.word_by_word._kernels import renew_fractions

        documents = self._documents
        sums = self.sums()
        dtype = self.table.dtype
        likelihood = 0.0
        for tasks in self._rounds():
            changes = np.zeros((len(tasks), self.width))
            known = sums.astype(dtype)

            def renew(
                group: int, first: int, last: int, task: int, changes: Any = changes, s: Any = known
            ) -> float:
                return float(
                    renew_fractions(
                        self._edges,
                        group,
                        documents.words,
                        documents.counts,
                        documents.weights,
                        self._alpha,
                        self._word_prior,
                        self._left_out,
                        dtype.type(speed),
                        s,
                        first,
                        last,
                        self.table,
                        self.mixtures,
                        self._fractions,
                        changes[task],
                    )
                )

            numbered = [(*task, number) for number, task in enumerate(tasks)]
            likelihood += sum(run_tasks(renew, numbered, self._n_threads))
            sums = sums + changes.sum(axis=0)
        return likelihood

    def balance(self) -> None:
        """Scale N to the tokens that there are: steps that were cut at zero have added some."""
        documents, k = self._documents, self.n_topics
        totals = np.bincount(documents.words, documents.amounts, minlength=documents.n_features)
        table = np.maximum(self.table[:, :k] - self._word_prior, 0)
        found = table.sum(axis=1, dtype=np.float64)
        table *= np.divide(totals, found, out=np.zeros(len(found)), where=found > 0)[:, None]
        self.table[:, :k] = table + self._word_prior

    def sums(self) -> Any:
        """(w,) float64, column sums of N + b; one beyond the topics."""
        sums: Any = self.table.sum(axis=0, dtype=np.float64)
        sums[self.n_topics :] = 1.0
        return sums

    def probabilities(self) -> Any:
        """(V, w) the topics, zero beyond them."""
        return np.maximum(self.table, 0) * (1.0 / self.sums()).astype(self.table.dtype)

    def _rounds(self) -> list[list[tuple[int, int, int]]]:
        """For every round the tasks: a range of words, and documents first..last-1."""
        n_groups = len(self._limits) - 1
        parts = self._documents.parts(n_groups)
        return [
            [((p + s) % n_groups, first, last) for p, (first, last) in enumerate(parts)]
            for s in range(n_groups)
        ]


def table_width(n_topics: int) -> int:
    """The number of columns of the fractions and counts for so many topics."""
    return padded_width(n_topics, _LANES)


def _group_edges(documents: Documents, limits: Any) -> Any:
    """(n, q + 1), where the words limits[q]..limits[q+1]-1 of every document begin."""
    n, n_words = len(documents), np.int64(documents.n_features + 1)
    documents_of = np.repeat(np.arange(n) * n_words, np.diff(documents.starts))
    wanted = (np.arange(n) * n_words)[:, None] + limits
    return np.searchsorted(documents_of + documents.words, wanted)


def _word_limits(documents: Documents) -> Any:
    """(q + 1,) where the ranges of words begin, each with about as many entries."""
    n_entries = documents.n_nonzeros
    wanted = n_entries // (max(len(documents), 1) * _WORDS_A_VISIT)
    least = 1 if n_entries < _LARGE else 2
    n_groups = int(np.clip(wanted, least, _GROUPS)) if n_entries >= _SMALLEST else 1
    totals = np.cumsum(np.bincount(documents.words, minlength=documents.n_features))
    inner = np.searchsorted(totals, n_entries * np.arange(1, n_groups) / n_groups)
    limits = np.concatenate([[0], inner, [documents.n_features]])
    return np.maximum.accumulate(limits).astype(np.int64)


def distinct(documents: Documents, seed: int) -> Documents:
    """Equal documents put together, in an order by their words.

    Passes in place depend on the order of the documents: by this one neither the order they came
    in nor whether one was given twice or with a weight of two makes a difference.
    """
    # Two keys of 64 bits: no two different documents will ever have both in common.
    key, other = documents.keys(seed), documents.keys(seed + 1)
    order = np.argsort(key, kind="stable")
    key, other = key[order], other[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (key[1:] != key[:-1]) | (other[1:] != other[:-1])
    first = order[fresh]
    place = np.empty_like(order)
    place[order] = np.cumsum(fresh) - 1
    weights = np.bincount(place, documents.weights, minlength=len(first))
    return replace(documents.take(first), weights=weights.astype(documents.weights.dtype))


def ascending(documents: Documents) -> Documents:
    """The documents with the words of each in ascending order."""
    rows = np.repeat(np.arange(len(documents)), np.diff(documents.starts))
    steps = np.diff(documents.words) < 0
    if not (steps & (np.diff(rows) == 0)).any():
        return documents
    order = np.lexsort((documents.words, rows))
    return replace(documents, words=documents.words[order], counts=documents.counts[order])
