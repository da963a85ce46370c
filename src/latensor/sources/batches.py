"""Documents in batches that the caller makes: a list of matrices, or an object that yields them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from latensor.exceptions import InvalidInputError
from latensor.sources.known_documents import KnownDocuments
from latensor.sources.matrix import MatrixSource
from latensor.sources.vocabulary import check_vocabulary


class BatchSource(KnownDocuments):
    """Matrices of word counts, one after the other, from anything that can be iterated again.

    Every batch may be whatever `MatrixSource` accepts; all need the same columns. Every pass checks
    what it is given, and that it is given as many documents as the first.

    Parameters
    ----------
    batches : list or tuple of matrices, or an object whose `__iter__` starts anew each time
    vocabulary : words in the order of the columns, or None
    name : str, what error messages call the batches

    Raises
    ------
    InvalidInputError, for an iterator that can be read only once.
    """

    def __init__(self, batches: Any, vocabulary: object = None, *, name: str = "batches") -> None:
        self._name = name
        _refuse_single_use(batches, name)
        self._batches: Any = batches
        first = next(self._matrices(), None)
        if first is None:
            raise InvalidInputError(f"{name} is empty: give at least one batch of documents")
        self._n_features = first[1].n_features
        self._n_documents: int | None = None
        self._vocabulary = (
            None if vocabulary is None else check_vocabulary(vocabulary, self._n_features)
        )

    def __iter__(self) -> Iterator[Any]:
        """The caller's batches, checked; those without a row are left out."""
        seen = 0
        for name, matrix in self._matrices():
            if matrix.n_features != self._n_features:
                raise InvalidInputError(
                    f"{name} has {matrix.n_features} columns, but the first batch has "
                    f"{self._n_features}: count the same words in every batch"
                )
            seen += matrix.n_documents
            # One batch in, one batch out: the caller has chosen the size.
            yield matrix.rows(0, matrix.n_documents)
        if self._n_documents is None:
            self._n_documents = seen
        elif seen != self._n_documents:
            raise InvalidInputError(
                f"{self._name} gave {self._n_documents} documents on the first pass and {seen} "
                "now: it must give the same batches each time"
            )

    def _matrices(self) -> Iterator[tuple[str, MatrixSource]]:
        """The batches that have a row, checked one by one, with what errors call them."""
        for number, given in enumerate(self._batches):
            if tuple(getattr(given, "shape", (1,)))[:1] != (0,):
                name = f"batch {number} of {self._name}"
                yield name, MatrixSource(given, name=name)


def _refuse_single_use(batches: Any, name: str) -> None:
    try:
        once, again = iter(batches), iter(batches)
    except TypeError:
        raise InvalidInputError(
            f"{name} is a {type(batches).__name__}: give a list of matrices, or an object whose "
            "__iter__ yields them"
        ) from None
    if once is again:
        raise InvalidInputError(
            f"{name} is a {type(batches).__name__}, which can be read only once, but fit goes over "
            "the documents several times: give a list of batches, or an object whose __iter__ "
            "starts anew; or call partial_fit with every batch"
        )
