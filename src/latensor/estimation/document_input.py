"""Documents as topic models receive them: counts in arrays and frames, or sources of batches."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.utils.validation import validate_data

from latensor.arrays import is_array, is_numpy, to_host
from latensor.arrays.masked import unmasked
from latensor.estimation.samples import read_weights
from latensor.exceptions import InvalidInputError
from latensor.sources import DocumentSource, MatrixSource, as_source
from latensor.sources.documents import document_shards, documents_in_memory
from latensor.sources.shards import Source

# Rows of a batch where a matrix is cut.
_ROWS = 65536
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
    if is_count_matrix(documents):
        counts, weights = read_counts(estimator, documents, sample_weight, reset=reset)
        _check_weights(weights)
        if reset:
            names = getattr(estimator, "feature_names_in_", None)
            estimator.vocabulary_ = None if names is None else [str(name) for name in names]
            estimator._dtype = counts.dtype
        return documents_in_memory(counts, weights)
    source = as_source(documents, _ROWS, name="X")
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
        estimator.n_features_in_ = source.n_features
        estimator.__dict__.pop("feature_names_in_", None)
        words = source.vocabulary
        estimator.vocabulary_ = None if words is None else list(words)
        estimator._dtype = dtype
    return found


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
