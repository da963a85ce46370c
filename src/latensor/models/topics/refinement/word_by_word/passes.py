"""Passes that renew the topics of one word, or two, after the other, where all fractions fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from latensor.models.topics.refinement.corpus import Corpus
from latensor.models.topics.refinement.documents import Workers, padded
from latensor.models.topics.refinement.word_by_word.fractions import (
    WordFractions,
    ascending,
    distinct,
    table_width,
)
from latensor.models.topics.refinement.word_counts import left_out_fraction

# Told the number of a pass; True to stop.
Tell = Callable[[int], bool]

_MOST_BYTES = 2**30
# Steps beyond the new fractions, from the second pass on: 1.4 times the way needs half the passes
# of the plain way, with 1.8 short documents swing to and fro.
_SPEED = 1.4
# A document's mixture starts even: the second step sees what the first has found.
_FIRST_STEPS = 2
_STEPS_FROM_NOTHING = 4
# Passes with all documents end when one moves less than a small part of the tokens, when the last
# five have not calmed them by a twentieth (words of titles may swing for ever), or after so many.
# More topics need longer: validation documents of AP (50) gain 0.6 % after the eighth pass with all
# and nothing after the thirtieth, those of BBC and Reuters (20) nothing after the sixth.
_STILL_TIMES_TOPICS = 0.25
_MOST_STILL = 0.0125
_CALMED = 0.95
_WINDOW = 5
_PASSES_WITH_ALL = 60


def fractions_fit(n_nonzeros: int, n_topics: int, dtype: Any) -> bool:
    """Whether the fractions of all words of all documents may be kept."""
    return n_nonzeros * table_width(n_topics) * int(dtype.itemsize) <= _MOST_BYTES


class WordByWordPasses:
    """Passes that let every decision on a word count before the next is made.

    Collapsed variational Bayes of order zero from a start by moments, with steps that go ahead.

    Parameters
    ----------
    corpus : in memory
    topics : (k, V) to start from
    document_prior, word_prior : (k,) and float
    workers : Workers
    """

    # Held-out documents only say whether long passes do harm: that shows within these.
    most_passes = 5

    def __init__(
        self,
        corpus: Corpus,
        topics: Any,
        document_prior: Any,
        word_prior: float,
        workers: Workers,
    ) -> None:
        documents, place = distinct(ascending(corpus.documents), 0)
        held_out = np.zeros(len(documents), bool)
        held_out[place] = corpus.is_held_out
        # Documents that are held out or have no weight stand at the end, out of the passes' reach.
        late = np.where(documents.weights > 0, held_out, 2)
        order = np.argsort(late, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self._place = rank[place]
        documents = documents.take(order)
        self._n_training, self._n_counted = (int((late <= m).sum()) for m in (0, 1))
        self._n_documents, self._n_tokens = len(documents), max(corpus.n_tokens, 1.0)
        k = len(topics)
        self._fractions = WordFractions(
            documents,
            document_prior,
            word_prior,
            left_out_fraction(corpus.n_tokens, int(topics.size)),
            workers,
            self._n_counted,
        )
        self._word_prior, self._topics = word_prior, topics
        self._start: Any = self._smoothed()
        self._kept: Any = None
        self._moved: list[float] = []
        self._still = min(_STILL_TIMES_TOPICS / k, _MOST_STILL)
        self.is_still = False

    def _smoothed(self) -> Any:
        """The topics at the start, as if each had an equal part of the tokens, with the prior."""
        k, n_words = self._topics.shape
        tokens, prior = self._n_tokens / k, self._word_prior
        start = padded(self._topics.T, self._topics.dtype, self._fractions.width)
        start[:, :k] = (start[:, :k] * tokens + prior) / (tokens + prior * n_words)
        return start

    @property
    def latest(self) -> Any:
        """(V, w) expected counts of words on topics."""
        counts = self._fractions.table.copy()
        k = self._fractions.n_topics
        counts[:, :k] = np.maximum(counts[:, :k] - counts.dtype.type(self._word_prior), 0)
        return counts

    def probabilities(self) -> Any:
        """(V, w) the topics, zero beyond them."""
        return self._fractions.probabilities() if self._start is None else self._start

    def keep(self) -> Any:
        """What `restore` needs to come back to the topics as they are; what was kept is lost."""
        if self._start is not None:
            return None
        state = (self._fractions.table, self._fractions.mixtures)
        if self._kept is None:
            self._kept = tuple(np.empty_like(array) for array in state)
        for kept, array in zip(self._kept, state, strict=True):
            kept[...] = array
        return self._kept

    def restore(self, kept: Any) -> None:
        """Go back to what `keep` has shown; passes cannot go on from there."""
        if kept is None:
            self._start = self._smoothed()
        else:
            self._fractions.table[...], self._fractions.mixtures[...] = kept

    def advance(self) -> None:
        """Make one pass over the documents that are trained on."""
        if self._start is not None:
            self._fractions.begin(self._start, _FIRST_STEPS, 0, self._n_training)
            self._start = None
        speed = _SPEED if self._moved else 1.0
        self._moved.append(self._fractions.renew(speed, self._n_training))
        self.is_still = self._moved[-1] <= self._still * self._n_tokens

    def finish(self, n_passes: int, *, converged: bool, tell: Tell) -> tuple[Any, int]:
        """Give the held-out documents back; (n, k) expected topic counts, and passes made here."""
        fractions, n = self._fractions, self._n_documents
        topics, begun = self.probabilities(), self._n_training
        if n_passes == 0:
            fractions.forget()
            begun = 0
        fractions.begin(topics, _STEPS_FROM_NOTHING, begun, n)
        made = 0
        if n_passes and converged and self._n_training < self._n_counted:
            self._n_training, self.is_still = self._n_counted, False
            while made < _PASSES_WITH_ALL:
                self.advance()
                made += 1
                calmed = self._moved[-1] < _CALMED * self._moved[-1 - min(made - 1, _WINDOW)]
                over = self.is_still or (made > _WINDOW and not calmed)
                if tell(n_passes + made) or (made > 1 and over):
                    break
        fractions.balance()
        k = fractions.n_topics
        return np.ascontiguousarray(fractions.mixtures[self._place, :k]), made
