"""One pass of the polish after another: over documents in memory, or over a stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from latensor.refinement.corpus import Corpus
from latensor.refinement.document_mixtures import even_mixtures
from latensor.refinement.documents import Documents, Workers, padded_width
from latensor.refinement.word_counts import WordCounts

# Told the number of a pass; True to stop.
Tell = Callable[[int], bool]

# Steps ahead of 0.9 of the last one reach in 20 passes what plain ones reach in 60 (bbc 876, 20
# newsgroups 2760); 0.5 is slower and 0.95 no faster. They start at the third pass, the first two
# go too far as it is.
_MOMENTUM = 0.9
_PASSES_BEFORE_MOMENTUM = 2
# A document's mixture starts even: four steps in the first pass save two whole passes, after that
# one step a pass keeps up with the topics.
_FIRST_STEPS = 4
# Passes with all documents after the decision, where more do no harm: on validation documents
# of AP 2437, 2434 and 2429 after 5, 15 and 30, of BBC and Reuters no change.
_PASSES_WITH_ALL = 30
# Without a mixture kept from the last pass, so many steps find it anew.
_STEPS_FROM_NOTHING = 6
# Blocks of a stream whose counts are kept apart, and the memory they may take.
_MOST_BLOCKS = 12
_MOST_BLOCK_BYTES = 2**28


class TopicPasses(Protocol):
    """Passes over documents that improve counts of words on topics."""

    most_passes: int
    # Passes end when the last `patience` have lowered the perplexity of held-out documents by less
    # than `worthwhile` each, or when one of them has moved nothing.
    patience: int
    worthwhile: float
    is_still: bool
    # Whether `finish` makes passes with all documents, from where the others have ended.
    goes_on: bool

    @property
    def latest(self) -> Any:
        """(V, w) expected counts of words on topics."""

    def probabilities(self) -> Any:
        """(V, w) the topics, zero beyond them."""

    def keep(self) -> Any:
        """What `restore` needs to come back to the topics as they are."""

    def restore(self, kept: Any) -> None:
        """Go back to topics that were kept."""

    def advance(self) -> None:
        """Make one pass over the documents that are trained on."""

    def finish(self, n_passes: int, *, settled: bool, tell: Tell) -> tuple[Any, int]:
        """Give the held-out documents back.

        Without passes the counts become those that the starting topics expect. Where the passes
        have `settled`, some more with all documents let those that come back have their say.

        Returns (n, k) expected topic counts of the documents where they are known, else None, and
        the number of passes made here.
        """


class _CountedPasses:
    """Passes whose state are counts of words."""

    most_passes = 150
    is_still = False
    goes_on = True
    counts: WordCounts

    @property
    def latest(self) -> Any:
        """(V, w) expected counts of words on topics."""
        return self.counts.latest

    def probabilities(self) -> Any:
        """(V, w) the topics, zero beyond them."""
        return self.counts.probabilities()

    def keep(self) -> Any:
        """A copy of the counts."""
        return self.counts.latest.copy()

    def restore(self, kept: Any) -> None:
        """Go back to counts that were kept."""
        self.counts.restore(kept)


class InMemoryPasses(_CountedPasses):
    """Passes that update the topics once, with momentum; mixtures are kept between passes."""

    patience = 8  # momentum pauses for several passes on its way (AP, BBC)
    worthwhile = 6e-5

    def __init__(
        self,
        corpus: Corpus,
        topics: Any,
        document_prior: Any,
        word_prior: float,
        workers: Workers,
    ) -> None:
        assert corpus.documents is not None
        # Held-out documents stand at the end, out of the reach of the passes.
        self._order = np.argsort(corpus.is_held_out, kind="stable")
        self._documents = corpus.documents
        if corpus.is_held_out.any():
            self._documents = corpus.documents.take(self._order)
        self._n_training = int((~corpus.is_held_out).sum())
        self.counts = WordCounts(
            topics, corpus.n_tokens, document_prior, word_prior, corpus.n_nonzeros, workers
        )
        self._mixtures = even_mixtures(self._documents, len(topics), self.counts.width)
        self._before = self._mixtures.copy()
        self._n_passes = 0

    def advance(self) -> None:
        """Make one pass over the documents that are trained on."""
        self._pass(_FIRST_STEPS if self._n_passes == 0 else 1, self._n_passes)
        self._n_passes += 1

    def _pass(self, steps: int, number: int) -> None:
        ahead = number >= _PASSES_BEFORE_MOMENTUM
        self.counts.expect(
            self._documents,
            self._mixtures,
            self._before,
            steps=steps,
            momentum=_MOMENTUM if ahead else 0.0,
            stop=self._n_training,
        )
        ahead = number + 1 >= _PASSES_BEFORE_MOMENTUM
        self.counts.absorb(momentum=_MOMENTUM if ahead else 0.0)

    def finish(self, n_passes: int, *, settled: bool, tell: Tell) -> tuple[Any, int]:
        """Give the held-out documents back; (n, k) expected topic counts, and passes made here."""
        n, k = len(self._documents), self.counts.n_topics
        made = 0
        if self._n_training < n:
            self.counts.expect(
                self._documents,
                self._mixtures,
                self._before,
                steps=_STEPS_FROM_NOTHING,
                momentum=0.0,
                start=self._n_training,
            )
            self._pass(1, 0)
            self._n_training = n
            while made < _PASSES_WITH_ALL and n_passes and settled:
                made += 1
                self._pass(1, made)
                if tell(n_passes + made):
                    break
        elif n_passes == 0:
            self._pass(_STEPS_FROM_NOTHING, 0)
        out = np.empty((n, k), self.counts.dtype)
        out[self._order] = self._mixtures[:, :k]
        return out, made


class StreamedPasses(_CountedPasses):
    """Passes that update the topics after every block of documents, and keep none of them.

    Incremental EM: the counts that a block of the stream had put in at the last pass make room for
    its new ones. No step sizes, and no document counts more for being the last: streams are often
    sorted.
    """

    goes_on = False
    patience = 2  # without momentum nothing pauses, and passes that find mixtures anew are dear
    worthwhile = 1e-3

    def __init__(
        self,
        corpus: Corpus,
        topics: Any,
        document_prior: Any,
        word_prior: float,
        workers: Workers,
    ) -> None:
        self._corpus = corpus
        k, n_words = topics.shape
        table_bytes = n_words * padded_width(k) * topics.dtype.itemsize
        most = min(_MOST_BLOCKS, corpus.n_batches, _MOST_BLOCK_BYTES // table_bytes)
        self._n_blocks = max(most, 1)
        # Threads add into tables of their own, which are put together once a block.
        per_block = corpus.n_nonzeros // self._n_blocks
        self.counts = WordCounts(
            topics, corpus.n_tokens, document_prior, word_prior, per_block, workers
        )
        latest = self.counts.latest
        self._blocks = np.repeat(
            latest[None] / latest.dtype.type(self._n_blocks), self._n_blocks, 0
        )

    def advance(self) -> None:
        """Make one pass over the documents that are trained on."""
        block = 0
        for number, documents in enumerate(self._corpus.training()):
            now = number * self._n_blocks // self._corpus.n_batches
            if now != block:
                self.counts.absorb(momentum=0.0, block=self._blocks[block])
                block = now
            self._expect(documents)
        self.counts.absorb(momentum=0.0, block=self._blocks[block])

    def finish(self, n_passes: int, *, settled: bool, tell: Tell) -> tuple[Any, int]:
        """Give the held-out documents back; no document's mixture is kept, no pass is made."""
        self._expect(self._corpus.held_out)
        if n_passes == 0:
            for documents in self._corpus.training():
                self._expect(documents)
            self.counts.absorb(momentum=0.0)
        else:
            self.counts.absorb(momentum=0.0, block=np.zeros_like(self.counts.latest))
        return None, 0

    def _expect(self, documents: Documents) -> None:
        mixtures = even_mixtures(documents, self.counts.n_topics, self.counts.width)
        self.counts.expect(
            documents, mixtures, mixtures.copy(), steps=_STEPS_FROM_NOTHING, momentum=0.0
        )
