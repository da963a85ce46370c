"""Documents as topic models receive them: counts in arrays and frames, or sources of batches."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from latensor.arrays import is_array, is_numpy, to_host
from latensor.arrays.masked import unmasked
from latensor.engines import LocalEngine, engine_of
from latensor.estimation.sample_source import check_unmatched
from latensor.estimation.samples import read_weights
from latensor.exceptions import InvalidInputError, InvalidTypeError
from latensor.moments.batch import Kind
from latensor.sources import DocumentSource, MatrixSource, as_source
from latensor.sources.documents import document_shards, documents_in_memory
from latensor.sources.matrix import column_names
from latensor.sources.partitioned_documents import (
    CountReader,
    TextReader,
    VocabularySums,
    WordReader,
    is_text,
    split_document_weights,
)
from latensor.sources.partitions import Partitioned
from latensor.sources.shards import Source
from latensor.sources.text import TextSource
from latensor.sources.texts import (
    as_text_source,
    is_folder,
    is_texts,
    refuse_unreadable_texts,
)

# Rows of a batch where a matrix is cut.
BATCH_ROWS = 65536
# Sums of so many documents are still exact; and products with what one of them adds are numbers in
# single precision.
_LARGEST_WEIGHT = 1e15


def document_source(
    estimator: Any, documents: object, sample_weight: object, *, reset: bool
) -> Source:
    """Documents of any kind as a source.

    Where the estimator starts anew (`reset`), sets `n_features_in_`, the names of the words
    (`vocabulary_`) and, for frames, scikit-learn's `feature_names_in_`; otherwise compares.
    """
    if isinstance(documents, Partitioned):
        check_unmatched(sample_weight)
        return _partitioned_source(estimator, documents, reset=reset)
    if is_texts(documents) or is_folder(documents):
        documents = read_texts(estimator, documents, reset=reset)
    refuse_unreadable_texts(documents)
    if is_count_matrix(documents):
        counts, weights = read_counts(estimator, documents, sample_weight, reset=reset)
        _check_weights(weights)
        if reset:
            names = getattr(estimator, "feature_names_in_", None)
            estimator.vocabulary_ = None if names is None else [str(name) for name in names]
            estimator._dtype = counts.dtype
        return documents_in_memory(counts, weights)
    source = as_source(documents, BATCH_ROWS, name="X")
    if not reset and source.n_features != estimator.n_features_in_:
        raise InvalidInputError(
            f"X has {source.n_features} words, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_}: count the same words"
        )
    weights = None
    if sample_weight is not None:
        weights = np.asarray(sample_weight, dtype=np.float64)
        if weights.ndim != 1 or not np.isfinite(weights).all() or (weights < 0).any():
            raise InvalidInputError(
                "sample_weight must hold one finite number of at least 0 per document"
            )
        if not weights.any():
            raise InvalidInputError(
                "sample_weight is zero for every sample: give one positive weight"
            )
        _check_weights(weights)
    found, dtype = document_shards(source, weights, estimator.callback)
    if reset:
        _begin(estimator, source.n_features, source.vocabulary, dtype)
    return found


def read_texts(estimator: Any, texts: Any, *, reset: bool) -> TextSource:
    """Strings, or files in a folder, as counts: of their words for a new estimator, else of its."""
    known = None if reset else getattr(estimator, "vocabulary_", None)
    if known is None and not reset:
        raise InvalidInputError(
            f"X holds text, but {type(estimator).__name__} has seen counts of words without names: "
            "give counts"
        )
    return as_text_source(texts, known)


def _partitioned_source(estimator: Any, given: Partitioned, *, reset: bool) -> Source:
    """Partitions of counts, or of texts whose words are counted by whoever holds them."""
    engine, layout = engine_of(given), given.layout
    heads = (split_document_weights(head)[0] for head in given.heads(Kind.DOCUMENTS))
    first = next((head for head in heads if (len(head) if is_text(head) else head.shape[0])), None)
    if first is None:
        raise InvalidInputError("X holds no documents: give at least one")
    name = type(estimator).__name__
    if not is_text(first):
        names = list(layout.vocabulary) if layout.vocabulary else column_names(first)
        if reset:
            [batch] = MatrixSource(first, first.shape[0], name="X")
            _begin(estimator, batch.shape[1], names, batch.dtype)
        return given.source(Kind.DOCUMENTS, CountReader(estimator.n_features_in_, name), engine)
    words = WordReader(layout.tokenizer)
    vocabulary = layout.vocabulary if reset else estimator.vocabulary_
    if vocabulary is None and not reset:
        raise InvalidInputError(
            f"X holds text, but {name} has seen counts of words without names: give counts"
        )
    if vocabulary is None:
        texts = Source(Kind.DOCUMENTS, given.shards(Kind.DOCUMENTS), words, engine=engine)
        counted = (engine or LocalEngine(estimator.n_jobs)).fold(
            texts, VocabularySums(), keep=False
        )
        vocabulary = counted.chosen(layout.choice)
    if reset:
        _begin(estimator, len(vocabulary), list(vocabulary), np.dtype(np.float32))
    return given.source(Kind.DOCUMENTS, TextReader.of(words, vocabulary), engine)


def _begin(estimator: Any, n_features: int, words: list[str] | None, dtype: Any) -> None:
    """What an estimator knows of documents before it has seen all."""
    estimator.n_features_in_ = n_features
    estimator.__dict__.pop("feature_names_in_", None)
    estimator.vocabulary_ = None if words is None else list(words)
    estimator._dtype = dtype


def _check_weights(weights: Any) -> None:
    if weights is None or not len(weights):
        return
    largest = float(np.max(weights))
    if largest > _LARGEST_WEIGHT or 0 < largest < 1 / _LARGEST_WEIGHT:
        raise InvalidInputError(
            f"sample_weight is {largest:.3g} at its largest: a document can count between "
            f"{1 / _LARGEST_WEIGHT:g} and {_LARGEST_WEIGHT:g} times; give the weights in "
            "another unit"
        )


def read_counts(
    estimator: Any, documents: object, sample_weight: object = None, *, reset: bool
) -> tuple[Any, Any]:
    """Counts (n, V) as a canonical CSR array in float32 or float64, and weights or None."""
    if documents is None:
        raise InvalidInputError("X is None: give a matrix of counts, texts or a list of batches")
    documents = unmasked(documents, "X")
    if is_array(documents) and not is_numpy(documents):
        documents = to_host(documents)
    try:
        matrix = validate_data(
            estimator,
            documents,
            reset=reset,
            accept_sparse="csr",
            dtype="numeric",
            ensure_all_finite=False,
        )
    except ValueError as error:
        raise InvalidInputError(str(error)) from error
    except TypeError as error:
        raise InvalidTypeError(f"X holds values that are no numbers: {error}") from error
    if np.asarray(matrix.data if scipy.sparse.issparse(matrix) else matrix).dtype.kind == "c":
        raise InvalidInputError("Complex data not supported: X must hold counts")
    batches = list(MatrixSource(matrix, max(1, matrix.shape[0]), name="X"))
    return batches[0], read_weights(sample_weight, batches[0])


def is_count_matrix(documents: object) -> bool:
    """Whether documents are one matrix rather than a source of several."""
    if isinstance(documents, DocumentSource):
        return False
    if scipy.sparse.issparse(documents) or is_array(documents) or hasattr(documents, "__array__"):
        return True
    if isinstance(documents, list | tuple) and documents:
        first = documents[0]
        return not (scipy.sparse.issparse(first) or getattr(first, "ndim", 1) == 2)
    return not hasattr(documents, "__iter__") and not isinstance(documents, os.PathLike)
