"""Documents in partitions: counts checked where they are, texts counted by whoever holds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import scipy.sparse

from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.batches import as_weights
from latensor.moments.sums import Folded, Tree
from latensor.sources.counts import canonical
from latensor.sources.matrix import MatrixSource
from latensor.sources.records import Records
from latensor.sources.shards import Parts
from latensor.sources.tokens import ANY_WORD, Tokenizer
from latensor.sources.words import WordChoice


def is_text(batch: Any) -> bool:
    """Whether a batch of documents holds words rather than their numbers."""
    return isinstance(batch, list)


def split_document_weights(given: Any) -> tuple[Any, Any]:
    """Documents, and their weights or None."""
    return given if isinstance(given, tuple) else (given, None)


@dataclass(frozen=True)
class WordReader:
    """Batches of texts, or of counts by word, as lists of words and how often each occurs."""

    tokenizer: Tokenizer = field(default_factory=Tokenizer, compare=False)

    def __call__(self, given: Any) -> Parts | None:
        documents, weights = split_document_weights(given)
        if not len(documents):
            return None
        found = np.empty(len(documents), dtype=object)
        found[:] = self.counted(documents)
        known = as_weights(weights, len(documents), "sample_weight")
        return (found,), np.ones(len(documents)) if known is None else known

    def counted(self, documents: Any) -> list[Mapping[str, float]]:
        """The words of every document."""
        if isinstance(documents, Records):
            for document in documents:
                if not isinstance(document, Mapping):
                    raise InvalidInputError(
                        f"a document is a {type(document).__name__}, not counts by word as those "
                        "before it"
                    )
            return list(documents)
        if not is_text(documents):
            raise InvalidInputError(
                f"a partition holds a {type(documents).__name__} where others hold text"
            )
        is_word = self.tokenizer.is_word
        return [
            {word: n for word, n in Counter(words).items() if is_word(word)}
            for words in self.tokenizer.words(documents)
        ]


@dataclass(frozen=True, eq=False)
class VocabularySums(Folded):
    """In how many documents every word stands, and how often: a distributed count.

    Attributes
    ----------
    frequencies, totals : by word
    n_documents : int
    """

    frequencies: dict[str, int] = field(default_factory=dict)
    totals: dict[str, float] = field(default_factory=dict)
    n_documents: int = 0

    def empty(self) -> VocabularySums:
        return VocabularySums()

    def update(self, batch: Batch) -> VocabularySums:
        frequencies: Counter[str] = Counter()
        totals: Counter[str] = Counter()
        for document in batch.rows:
            frequencies.update(document.keys())
            totals.update(document)
        return self.merge(VocabularySums(frequencies, totals, len(batch)))  # type: ignore[arg-type]

    def merge(self, other: VocabularySums) -> VocabularySums:
        frequencies, totals = dict(self.frequencies), dict(self.totals)
        for word, count in other.frequencies.items():
            frequencies[word] = frequencies.get(word, 0) + count
            totals[word] = totals.get(word, 0) + other.totals[word]
        return VocabularySums(frequencies, totals, self.n_documents + other.n_documents)

    def message(self) -> Tree:
        words = list(self.frequencies)
        numbers = np.array([self.frequencies[word] for word in words], np.int64)
        return words, numbers, np.array([self.totals[w] for w in words], float), self.n_documents

    def received(self, message: Tree) -> VocabularySums:
        words, frequencies, totals, n_documents = message
        return VocabularySums(
            dict(zip(words, frequencies.tolist(), strict=True)),
            dict(zip(words, totals.tolist(), strict=True)),
            n_documents,
        )

    def chosen(self, choice: WordChoice) -> list[str]:
        """The words to keep, sorted."""
        words = sorted(self.frequencies)
        if not words:
            raise InvalidInputError(
                f"X holds no words: token_pattern matches nothing in its {self.n_documents:,} "
                f"documents; token_pattern={ANY_WORD!r} takes all between blanks"
            )
        frequencies = np.array([self.frequencies[word] for word in words], np.int64)
        totals = np.array([self.totals[word] for word in words], float)
        kept = choice.within(frequencies, totals, self.n_documents, choice.keep(words))
        return [words[i] for i in kept.tolist()]


@dataclass(frozen=True)
class TextReader:
    """Batches of texts, or of counts by word, as counts of the words of a vocabulary."""

    words: WordReader
    vocabulary: Sequence[str]
    numbers: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, words: WordReader, vocabulary: Sequence[str]) -> TextReader:
        """A reader that knows the number of every word."""
        numbers = {word: i for i, word in enumerate(vocabulary)}
        return cls(words, tuple(vocabulary), numbers)

    def __call__(self, given: Any) -> Parts | None:
        found = self.words(given)
        if found is None:
            return None
        (documents,), weights = found
        get = self.numbers.get
        pairs = [[(get(w, -1), n) for w, n in document.items()] for document in documents]
        pairs = [[pair for pair in each if pair[0] >= 0] for each in pairs]
        offsets = np.zeros(len(pairs) + 1, np.int64)
        np.cumsum([len(each) for each in pairs], out=offsets[1:])
        entries = list(chain.from_iterable(pairs))
        numbers = np.array([pair[0] for pair in entries], np.int32)
        counts = np.array([pair[1] for pair in entries], np.float64)
        if isinstance(split_document_weights(given)[0], Records):
            matrix = scipy.sparse.csr_array(
                (counts, numbers, offsets), shape=(len(pairs), len(self.vocabulary))
            )
            return (_checked(matrix),), weights
        batch = canonical(counts.astype(np.float32), numbers, offsets, len(self.vocabulary))
        return (batch,), weights


@dataclass(frozen=True)
class CountReader:
    """Batches of counts (n, V), or pairs with weights, as parts in canonical form.

    Attributes
    ----------
    n_features : int, V
    owner : str, the estimator that error messages name
    """

    n_features: int
    owner: str

    def __call__(self, given: Any) -> Parts | None:
        documents, weights = split_document_weights(given)
        if is_text(documents):
            raise InvalidInputError("a partition holds text where others hold counts")
        if not documents.shape[0]:
            return None
        if documents.shape[1] != self.n_features:
            raise InvalidInputError(
                f"X has {documents.shape[1]} features, but {self.owner} is expecting "
                f"{self.n_features} features as input: count the same words in every partition"
            )
        known = as_weights(weights, documents.shape[0], "sample_weight")
        return (_checked(documents),), np.ones(documents.shape[0]) if known is None else known


def _checked(documents: Any) -> Any:
    [batch] = MatrixSource(documents, documents.shape[0], name="X")
    return batch
