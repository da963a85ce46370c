"""What a source of documents is: batches of word counts, as often as they are needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import scipy.sparse

from latensor.arrays import is_array
from latensor.exceptions import InvalidInputError
from latensor.sources.batches import BatchSource
from latensor.sources.matrix import MatrixSource


@runtime_checkable
class DocumentSource(Protocol):
    """Documents as batches of word counts, the same batches in the same order each time.

    A batch is a `scipy.sparse.csr_array` (n_b, n_features) whose row i is the next document:
    whole counts above zero in float32 (float64 where the caller's matrix is float64 or holds
    counts that float32 rounds), int32 column indices sorted within a row, none given twice.
    A document without words is an empty row, so that row numbers stay document numbers.

    Attributes
    ----------
    n_features : int, the number of different words
    vocabulary : list of the words in the order of the columns, or None where they have no names
    n_documents : int, or None as long as nobody has counted them
    """

    @property
    def n_features(self) -> int:
        """The number of different words."""

    @property
    def vocabulary(self) -> list[str] | None:
        """The words in the order of the columns."""

    @property
    def n_documents(self) -> int | None:
        """The number of documents, None while unknown."""

    def __iter__(self) -> Iterator[Any]:
        """Batches, from the first one on."""


def as_source(documents: object, batch_size: int = 4096, *, name: str = "X") -> DocumentSource:
    """Whatever holds word counts, as a source.

    Parameters
    ----------
    documents : a source, which is returned as it is; a matrix of counts (n_documents, n_features)
        as `MatrixSource` takes it; or batches of such, as `BatchSource` takes them
    batch_size : int, rows of a batch where a matrix is cut into batches
    name : str, what error messages call the documents

    Raises
    ------
    InvalidInputError, for anything else, with what to give instead.
    """
    if isinstance(documents, DocumentSource):
        return documents
    if isinstance(documents, str | bytes | os.PathLike):
        raise InvalidInputError(
            f"{name} is the {type(documents).__name__} {str(documents)[:80]!r}: give a matrix of "
            "counts; for the documents in a file, give read_documents(path)"
        )
    if isinstance(documents, list | tuple):
        return _from_list(documents, batch_size, name)
    if _is_matrix(documents) or not hasattr(documents, "__iter__"):
        return MatrixSource(documents, batch_size, name=name)
    if isinstance(documents, dict | set | frozenset):
        raise InvalidInputError(
            f"{name} is a {type(documents).__name__}: give a matrix of counts or a list of batches"
        )
    return BatchSource(documents, name=name)


def _is_matrix(value: object) -> bool:
    """Whether a value is an array, a sparse matrix or a frame rather than a collection of them."""
    return (
        scipy.sparse.issparse(value)
        or is_array(value)
        or hasattr(value, "__array__")
        or hasattr(value, "to_scipy_sparse")
    )


def _from_list(documents: Any, batch_size: int, name: str) -> DocumentSource:
    if not documents:
        raise InvalidInputError(f"{name} is an empty {type(documents).__name__}: no documents")
    first = documents[0]
    if isinstance(first, str | bytes):
        raise InvalidInputError(
            f"{name} is a {type(documents).__name__} of texts: count their words first, with "
            "CountVectorizer, or write them to a file and give read_documents(path)"
        )
    if _is_matrix(first) and getattr(first, "ndim", len(getattr(first, "shape", ()))) == 2:
        return BatchSource(documents, name=name)
    return MatrixSource(documents, batch_size, name=name)
