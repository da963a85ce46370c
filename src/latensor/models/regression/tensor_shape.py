"""Rows as tensors inside a scikit-learn pipeline."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latensor.estimation import read_samples
from latensor.estimation.files import SavedEstimator
from latensor.models.regression.tensor_input import flattened, read_shape
from latensor.tensors.sparse import SparseTensor


class TensorShape(SavedEstimator, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turn rows (n, D) into tensors (n, d1, d2, ..), for pipelines that end in a tensor model.

    `make_pipeline(StandardScaler(), TensorShape((8, 8)), CPRegressor(2))`: what stands before it
    sees rows, what follows sees tensors. Sparse rows become a `SparseTensor`.

    Parameters
    ----------
    shape : the dimensions of one sample; one of them may be -1, as in NumPy's `reshape`

    Attributes
    ----------
    shape_ : the dimensions, none of them -1
    n_features_in_ : int, their product

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> rows = np.random.default_rng(0).standard_normal((200, 12))
    >>> model = make_pipeline(lt.TensorShape((4, 3)), lt.CPRegressor(1)).fit(rows, rows[:, 0])
    >>> model.predict(rows).shape
    (200,)
    """

    _fitted_names = frozenset({"shape_"})

    def __init__(self, shape: Any = (-1, 1)) -> None:
        self.shape = shape

    def fit(self, X: object, y: object = None) -> Self:
        """Check the number of features.

        Parameters
        ----------
        X : (n, D) array, frame or sparse matrix
        y : ignored
        """
        rows = read_samples(self, X, reset=True)
        self.shape_ = read_shape(self.shape, rows.shape[1], type(self).__name__)
        return self

    def transform(self, X: object) -> Any:
        """Tensors (n, d1, d2, ..) in the library of `X`, or a SparseTensor."""
        check_is_fitted(self)
        rows = read_samples(self, X, reset=False)
        size = (rows.shape[0], *self.shape_)
        if not scipy.sparse.issparse(rows):
            return rows.reshape(size)
        entries = scipy.sparse.coo_array(rows)
        places = np.unravel_index(entries.col, self.shape_)
        return SparseTensor(np.stack([entries.row, *places], axis=1), entries.data, size)

    def inverse_transform(self, X: object) -> Any:
        """Rows (n, D) of tensors (n, d1, d2, ..)."""
        check_is_fitted(self)
        return flattened(X)[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
