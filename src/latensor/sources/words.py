"""Which words are kept: not too rare, not too frequent, no stop words."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.exceptions import InvalidInputError
from latensor.sources.counts import canonical
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.source import DocumentSource
from latensor.sources.stop_words import ENGLISH

# The least number of documents that a word of a text must stand in, for corpora of so many; and the
# largest fraction of them.
_RARE = ((1000, 5), (200, 3), (50, 2), (0, 1))
_FREQUENT = 0.5


@dataclass(frozen=True)
class WordChoice:
    """Which words of a corpus are worth a column.

    Parameters
    ----------
    min_df, max_df : the least and the largest number of documents that a word may stand in; an
        int counts documents, a float is a fraction of all documents
    max_features : keep only so many words, those that occur most often (of equally frequent ones
        the first in the order of the columns), or None
    stop_words : words to leave out, "english" for a list of English function words, or None
    """

    min_df: float = 1
    max_df: float = 1.0
    max_features: int | None = None
    stop_words: object = None

    def __post_init__(self) -> None:
        for name in ("min_df", "max_df"):
            object.__setattr__(self, name, _as_frequency(getattr(self, name), name))
        if self.max_features is not None:
            check_positive_int(self.max_features, "max_features")
        object.__setattr__(self, "stop_words", _as_stop_words(self.stop_words))

    @classmethod
    def of_text(cls, n_documents: int) -> WordChoice:
        """What suits running text: no grammar, and no slips of the pen that few documents hold."""
        rare = next(least for size, least in _RARE if n_documents >= size)
        return cls(min_df=rare, max_df=_FREQUENT, stop_words="english")

    @property
    def needs_frequencies(self) -> bool:
        """Whether documents have to be counted to choose; stop words are known without."""
        return self._bounds_below or self._bounds_above or self.max_features is not None

    @property
    def _bounds_below(self) -> bool:
        # One document, but not all of them, is what a word has anyway.
        return not (isinstance(self.min_df, int) and self.min_df == 1)

    @property
    def _bounds_above(self) -> bool:
        return not (isinstance(self.max_df, float) and self.max_df == 1.0)

    def keep(self, words: list[str] | None, is_word: Callable[[str], bool] | None = None) -> Any:
        """Which words (V,) are no stop words, all of them where they have no names."""
        stop_words: Any = self.stop_words
        if words is None:
            if stop_words:
                raise InvalidInputError(
                    "stop_words need a vocabulary: the file holds only numbers of words; give "
                    "vocabulary="
                )
            return np.bool_(True)
        kept = (word not in stop_words and (is_word is None or is_word(word)) for word in words)
        return np.fromiter(kept, np.bool_, len(words))

    def within(self, frequencies: Any, totals: Any, n_documents: int, allowed: Any) -> Any:
        """The numbers of the words to keep, rising.

        Parameters
        ----------
        frequencies : (V,), the documents that each word stands in
        totals : (V,), how often each word occurs
        n_documents : int
        allowed : (V,) bool, or a single True
        """
        low = self.min_df if isinstance(self.min_df, int) else self.min_df * n_documents
        high = self.max_df if isinstance(self.max_df, int) else self.max_df * n_documents
        if high < low and self._bounds_above:
            raise InvalidInputError(
                f"max_df={self.max_df} ({high:.6g} documents) is below min_df={self.min_df} "
                f"({low:.6g} documents): no word can stand in both"
            )
        # A given vocabulary may list words that no document has: min_df=1 asks nothing of them.
        frequent = frequencies >= low if self._bounds_below else np.bool_(True)
        kept = np.flatnonzero(frequent & (frequencies <= high) & allowed)
        if not len(kept):
            # What left no word out is no advice.
            advice = [
                *([f"lower min_df={self.min_df}"] if (frequencies < low).any() else []),
                *([f"raise max_df={self.max_df}"] if (frequencies > high).any() else []),
                *([] if np.all(allowed) else ["give fewer stop words or another token_pattern"]),
            ]
            raise InvalidInputError(
                f"no words are left of {len(frequencies):,} in {n_documents:,} documents: "
                + (" or ".join(advice) or "give documents with words")
            )
        if self.max_features is not None and len(kept) > self.max_features:
            order = np.argsort(-totals[kept], kind="stable")
            kept = np.sort(kept[order[: self.max_features]])
        return kept


class SelectedWords(KnownDocuments):
    """Some of the words of another source, in a new order.

    Parameters
    ----------
    source : DocumentSource
    kept : (n_features,), the source's column of every new column
    vocabulary : list of the kept words, or None
    """

    def __init__(self, source: DocumentSource, kept: Any, vocabulary: list[str] | None) -> None:
        self._source = source
        self._labels = np.full(source.n_features, -1, np.int32)
        self._labels[kept] = np.arange(len(kept), dtype=np.int32)
        self._n_features = len(kept)
        self._vocabulary = vocabulary

    @property
    def n_documents(self) -> int | None:
        """The number of documents of the source: those that have lost all words count."""
        return self._source.n_documents

    def __iter__(self) -> Iterator[Any]:
        """The source's batches with fewer columns."""
        for batch in self._source:
            words = self._labels[batch.indices]
            offsets, (words, counts) = drop(words >= 0, batch.indptr, words, batch.data)
            yield canonical(counts, words, offsets, self._n_features)


def drop(kept: Any, offsets: Any, *columns: Any) -> tuple[Any, list[Any]]:
    """Rows without the entries that are not `kept`: their new offsets and columns."""
    running = np.zeros(len(kept) + 1, np.int64)
    np.cumsum(kept, out=running[1:])
    return running[offsets], [column[kept] for column in columns]


def word_frequencies(source: DocumentSource) -> tuple[Any, Any, int]:
    """The documents of each word (V,), its occurrences (V,), and the number of documents."""
    frequencies = np.zeros(0, np.int64)
    totals = np.zeros(0)
    n_documents = 0
    for batch in source:
        width = max(batch.shape[1], len(frequencies))
        frequencies = np.bincount(batch.indices, minlength=width) + _grown(frequencies, width)
        totals = np.bincount(batch.indices, batch.data, width) + _grown(totals, width)
        n_documents += batch.shape[0]
    return frequencies, totals, n_documents


def _grown(array: Any, length: int) -> Any:
    return np.concatenate([array, np.zeros(length - len(array), array.dtype)])


def select(source: DocumentSource, choice: WordChoice) -> DocumentSource:
    """A source with only the chosen words; the same source where all are chosen."""
    vocabulary = source.vocabulary
    allowed = choice.keep(vocabulary)
    if choice.needs_frequencies:
        kept = choice.within(*word_frequencies(source), allowed)
    elif np.all(allowed):
        return source
    else:
        kept = np.flatnonzero(allowed)
        if not len(kept):
            raise InvalidInputError("stop_words leave no word of the vocabulary")
    names = None if vocabulary is None else [vocabulary[i] for i in kept.tolist()]
    return SelectedWords(source, kept, names)


def _as_frequency(value: Any, name: str) -> float:
    if isinstance(value, numbers.Real) and not isinstance(value, bool | np.bool_):
        number = int(value) if isinstance(value, numbers.Integral) else float(value)
        if number >= 1 if isinstance(number, int) else 0 <= number <= 1:
            return number
    raise InvalidInputError(
        f"{name}={value!r} must be a number of documents (an int of at least 1) or a fraction of "
        "them (a float from 0.0 to 1.0)"
    )


def _as_stop_words(stop_words: object) -> frozenset[str]:
    if stop_words is None:
        return frozenset()
    if isinstance(stop_words, str):
        if stop_words != "english":
            raise InvalidInputError(
                f"stop_words={stop_words!r} is not known: give 'english' or a list of words"
            )
        return ENGLISH
    try:
        listed = list(stop_words)  # type: ignore[call-overload]
    except TypeError:
        listed = [stop_words]
    for word in listed:
        if not isinstance(word, str):
            raise InvalidInputError(f"stop_words holds {word!r}: give 'english' or a list of words")
    return frozenset(listed)
