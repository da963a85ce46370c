"""Documents of running text: tokenized once, counted, with a vocabulary of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, Protocol

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.sources.batching import Batching
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.source import DocumentSource
from latensor.sources.temporary_copy import TemporaryCopy
from latensor.sources.tokens import ANY_WORD, Numbering, Tokenizer
from latensor.sources.words import SelectedWords, WordChoice, drop, word_frequencies


class Texts(NamedTuple):
    """Consecutive documents of a file, and the bytes read up to here."""

    texts: list[str]
    bytes_read: int


class TextPlace(Protocol):
    """Where texts stand: what it is called, and who is told how far a pass has come."""

    @property
    def name(self) -> str:
        """What error messages call it."""

    def report(self, bytes_read: int, documents: int) -> None:
        """Tell how far a pass has come."""


class TextReader(Protocol):
    """Something that holds texts: gives them in order, and afresh on each pass."""

    @property
    def file(self) -> TextPlace:
        """What is read."""

    def __iter__(self) -> Iterator[Texts]:
        """All documents."""


class TextSource:
    """The words of the texts in a file, counted.

    Without a vocabulary, a first pass numbers the words as it meets them and keeps the counts in
    a temporary file; the words are then chosen and sorted, and passes renumber what was kept, so
    that the text is tokenized once. Where no temporary file can be written, each pass tokenizes.

    Parameters
    ----------
    reader : TextReader
    tokenizer : Tokenizer
    vocabulary : list of the words to count, or None for those that the texts hold
    choice : WordChoice
    batch_size : int, documents of a batch
    """

    def __init__(
        self,
        reader: TextReader,
        tokenizer: Tokenizer,
        vocabulary: list[str] | None,
        choice: WordChoice,
        batch_size: int,
    ) -> None:
        self._reader = reader
        self._settings = (reader, tokenizer, batch_size)
        self._counted: DocumentSource
        self._vocabulary: list[str]
        if vocabulary is None:
            self._count_own_words(tokenizer, choice)
        else:
            self._count_given_words(vocabulary, choice)

    def _count_own_words(self, tokenizer: Tokenizer, choice: WordChoice) -> None:
        numbering = Numbering()
        first_pass = TemporaryCopy(_CountedTexts(*self._settings, numbering))
        remembered = True
        try:
            frequencies, totals, n_documents = word_frequencies(first_pass)
        except OSError:
            remembered = False
            numbering = Numbering()
            found = _CountedTexts(*self._settings, numbering)
            frequencies, totals, n_documents = word_frequencies(found)
        words = list(numbering)
        if not words:
            raise InvalidInputError(
                f"{self._reader.file.name} holds no words: token_pattern matches nothing in its "
                f"{n_documents:,} documents; token_pattern={ANY_WORD!r} takes all between blanks"
            )
        by_name = np.array(sorted(range(len(words)), key=words.__getitem__))
        words = [words[i] for i in by_name.tolist()]
        allowed = choice.keep(words, tokenizer.is_word)
        kept = choice.within(frequencies[by_name], totals[by_name], n_documents, allowed)
        vocabulary = [words[i] for i in kept.tolist()]
        if remembered:
            self._vocabulary = vocabulary
            self._counted = SelectedWords(first_pass, by_name[kept], vocabulary)
        else:
            self._count_only(vocabulary, n_documents)

    def _count_given_words(self, vocabulary: list[str], choice: WordChoice) -> None:
        allowed = choice.keep(vocabulary)
        kept = np.flatnonzero(allowed)
        n_documents = None
        if choice.needs_frequencies:
            everything = _CountedTexts(*self._settings, self._fixed(vocabulary), vocabulary)
            frequencies, totals, n_documents = word_frequencies(everything)
            kept = choice.within(frequencies, totals, n_documents, allowed)
        if not len(kept):
            raise InvalidInputError("stop_words leave no word of the vocabulary")
        self._count_only([vocabulary[i] for i in kept.tolist()], n_documents)

    def _count_only(self, words: list[str], n_documents: int | None) -> None:
        self._vocabulary = words
        self._counted = _CountedTexts(*self._settings, self._fixed(words), words, n_documents)

    def _fixed(self, vocabulary: list[str]) -> Numbering:
        """Numbers for the words that the tokenizer can give at all."""
        is_word = self._settings[1].is_word
        return Numbering((word, i) for i, word in enumerate(vocabulary) if is_word(word))

    @property
    def n_features(self) -> int:
        """The number of words."""
        return self._counted.n_features

    @property
    def n_documents(self) -> int | None:
        """The number of texts; with a given vocabulary known after the first full pass."""
        return self._counted.n_documents

    @property
    def vocabulary(self) -> list[str]:
        """The words, sorted unless they were given."""
        return self._vocabulary

    def __iter__(self) -> Iterator[Any]:
        """Batches of `batch_size` documents."""
        return iter(self._counted)

    @property
    def names(self) -> list[str] | None:
        """What the documents are called: the files of a folder; None where they have no names."""
        return getattr(self._reader, "names", None)

    def excerpts(self, document_numbers: Iterable[int]) -> dict[int, str]:
        """The texts of some documents, found in one pass over the file.

        Parameters
        ----------
        document_numbers : ints, counted from 0 as the rows of the batches
        """
        numbers = list(document_numbers)
        for number in numbers:
            if not isinstance(number, int | np.integer) or number < 0:
                raise InvalidInputError(
                    f"document_numbers holds {number!r}: documents count from 0, in whole numbers"
                )
        wanted = sorted({int(number) for number in numbers})
        found: dict[int, str] = {}
        if not wanted:
            return found
        first = 0
        for chunk in self._reader:
            end = first + len(chunk.texts)
            while len(found) < len(wanted) and wanted[len(found)] < end:
                number = wanted[len(found)]
                found[number] = chunk.texts[number - first]
            if len(found) == len(wanted):
                return found
            first = end
        raise InvalidInputError(
            f"there is no document {wanted[len(found)]}: {self._reader.file.name} holds {first:,}"
        )


class _CountedTexts(KnownDocuments):
    """Texts as counts of the words that a numbering knows; tokenized on each pass."""

    def __init__(
        self,
        reader: TextReader,
        tokenizer: Tokenizer,
        batch_size: int,
        numbering: Numbering,
        vocabulary: list[str] | None = None,
        n_documents: int | None = None,
    ) -> None:
        self._reader = reader
        self._tokenizer = tokenizer
        self._batch_size = batch_size
        self._numbering = numbering
        self._vocabulary = vocabulary
        self._n_documents = n_documents

    @property
    def n_features(self) -> int:
        return len(self._numbering) if self._vocabulary is None else len(self._vocabulary)

    def __iter__(self) -> Iterator[Any]:
        batching = Batching(self._batch_size)
        documents = 0
        for chunk in self._reader:
            lengths, words = self._count(chunk.texts)
            documents += len(chunk.texts)
            ones = np.ones(len(words), np.float32)
            # A numbering that grows has its width only after these words.
            yield from batching.add(lengths, words, ones, self.n_features)
            self._reader.file.report(chunk.bytes_read, documents)
        yield from batching.rest(self.n_features)
        if not documents:
            raise InvalidInputError(f"{self._reader.file.name} holds no documents")
        self._n_documents = documents

    def _count(self, texts: list[str]) -> tuple[Any, Any]:
        """The words per text, and the numbers of the words, one text after the other."""
        split = self._tokenizer.words(texts)
        ends = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(words) for words in split], out=ends[1:])
        numbers = self._numbering(chain.from_iterable(split), int(ends[-1]))
        if len(numbers) and numbers.min() < 0:
            ends, (numbers,) = drop(numbers >= 0, ends, numbers)
        return np.diff(ends), numbers
