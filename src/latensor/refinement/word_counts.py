"""Expected counts of words on topics: the state that the polish of topics improves."""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.refinement.documents import Documents, Workers, most_tables, padded, padded_width

_WORD_RUN = 4096


def left_out_share(n_tokens: float, topics: Any) -> float:
    """The part of its own share that a word's count is judged without, min(1, 2/3 V k / tokens).

    Where a count holds hardly a token, all of it, as in collapsed variational Bayes; where it
    holds many, little. Validation documents of AP (0.5 tokens a count) lose 5 % without, those of
    BBC (3 tokens) gain 1 %, and those of Reuters (0.6 tokens) are best at 0.7 to 1.
    """
    return min(1.0, int(topics.size) / max(1.5 * n_tokens, 1.0))


class WordCounts:
    """Counts N (V, k) of words that are expected on each topic, and the step that renews them.

    Parameters
    ----------
    topics : (k, V) starting topics; they stand for `n_tokens` tokens, the same for each topic
    n_tokens : float
    document_prior : (k,) prior a of the mixtures
    word_prior : float, prior b of the topics
    n_nonzeros : int, about what one pass reads, from which the number of parts follows
    workers : Workers
    """

    def __init__(
        self,
        topics: Any,
        n_tokens: float,
        document_prior: Any,
        word_prior: float,
        n_nonzeros: int,
        workers: Workers,
    ) -> None:
        self.n_topics = len(topics)
        self.dtype = topics.dtype
        self.width = padded_width(self.n_topics)
        self.document_prior = document_prior
        self.left_out = left_out_share(n_tokens, topics)
        self.word_prior = self.dtype.type(word_prior)
        self._alpha = padded(document_prior, self.dtype)
        self._workers = workers
        self.latest = padded(topics.T * self.dtype.type(n_tokens / self.n_topics), self.dtype)
        self.n_parts = most_tables(n_nonzeros, self.latest)
        self._parts = np.zeros((self.n_parts, *self.latest.shape), self.dtype)
        self._table = np.zeros_like(self.latest)
        self.absorb(momentum=0.0, block=np.zeros_like(self.latest))

    def expect(
        self,
        documents: Documents,
        mixtures: Any,
        before: Any,
        *,
        steps: int,
        momentum: float,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        """Add what documents start..stop-1 are expected to hold; `absorb` makes it count.

        Parameters
        ----------
        mixtures, before : (n, w) expected topic counts of the documents after the last pass and
            after the one before; both move on by one
        """
        from latensor.refinement._kernels import expected_counts

        def expect(part: int, first: int, last: int) -> None:
            expected_counts(
                documents.starts,
                documents.words,
                documents.counts,
                documents.weights,
                self._table,
                self._inverse,
                self._alpha,
                self.word_prior,
                self.dtype.type(self.left_out),
                self.dtype.type(momentum),
                steps,
                mixtures,
                before,
                first,
                last,
                self._parts[part],
            )

        runs = documents.parts(self.n_parts, start, stop)
        self._workers.run(expect, [(part, *run) for part, run in enumerate(runs)])

    def absorb(self, *, momentum: float, block: Any = None) -> None:
        """N <- N - block + what was expected since, which becomes the block (V, w).

        Without a block all of N is replaced. With momentum m the next step sees
        N + m (N - previous N) in place of N.
        """
        from latensor.refinement._kernels import merge_counts

        n_words = len(self.latest)
        runs = [(v, min(v + _WORD_RUN, n_words)) for v in range(0, n_words, _WORD_RUN)]
        sums = np.zeros((len(runs), 2, self.width))
        replaced = self.latest if block is None else block

        def merge(run: int, first: int, last: int) -> None:
            merge_counts(
                self._parts,
                replaced,
                self.latest,
                self._table,
                self.dtype.type(momentum),
                self.word_prior,
                self.n_topics,
                first,
                last,
                sums[run],
            )

        self._workers.run(merge, [(number, *run) for number, run in enumerate(runs)])
        latest, ahead = sums.sum(axis=0)[:, : self.n_topics]
        self._scale = padded(1.0 / latest, self.dtype)
        self._inverse = padded(1.0 / ahead, self.dtype)

    def restore(self, counts: Any) -> None:
        """Go back to counts (V, w) that `latest` has shown before."""
        self.latest[...] = counts
        self.absorb(momentum=0.0, block=np.zeros_like(self.latest))

    def probabilities(self) -> Any:
        """(V, w) the topics p_j(v) = (N_vj + b) / sum_v (N_vj + b), zero beyond the topics."""
        table = self.latest + self.word_prior
        table *= self._scale
        return table
