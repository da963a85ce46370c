"""Moment tensors that are never formed: samples in, contractions out (monograph 6.1).

The empirical moment T = sum_i w_i x_i (x) x_i (x) x_i is contracted in O(n d) per vector, straight
from dense or sparse samples.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, check_positive_int, describe, library_name, matmul, resolve
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.tensors.factored import FactoredTensor

# A moment tensor with at most this many entries may be formed, where that is the cheaper way to
# its norm.
_SMALL = 1 << 22


class MomentTensor(FactoredTensor):
    """The weighted moment of samples, of one view or of several.

    T = sum_i w_i x_i^(1) (x) ... (x) x_i^(p), where all views x^(m) are one and the same (a raw
    moment of order p) or differ (a cross moment).

    Parameters
    ----------
    samples : (n, d) array of NumPy, PyTorch or JAX, SciPy sparse matrix or data frame, one sample a
        row; or a tuple of such, one view per mode, with equal numbers of rows (dense and sparse
        views of NumPy may be mixed)
    weights : (n,) array, default 1/n each
    order : int, the number of modes; for several views it is their number

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> samples = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> skewness = lt.MomentTensor(samples)
    >>> skewness.contract(np.array([1.0, 1.0]), np.array([1.0, 1.0]), None)
    array([0.5, 4. ])
    """

    def __init__(self, samples: Any, weights: Any = None, order: int | None = None) -> None:
        if isinstance(samples, tuple):
            if not samples:
                raise InvalidInputError("samples is an empty tuple: give one view per mode")
            if order is not None and order != len(samples):
                raise InvalidInputError(
                    f"order={order} but {len(samples)} views were given: leave order out"
                )
            names = [f"samples[{m}]" for m in range(len(samples))]
            for name, view in zip(names, samples, strict=True):
                if view is None:
                    raise InvalidInputError(f"{name} is None: every mode needs a view")
            distinct = {id(view): (name, view) for name, view in zip(names, samples, strict=True)}
            arrays = _resolve_views(dict(distinct.values()), weights)
            self._views = tuple(arrays[distinct[id(view)][0]] for view in samples)
            rows = {name: int(v.shape[0]) for name, v in zip(names, self._views, strict=True)}
            if len(set(rows.values())) > 1:
                listing = ", ".join(f"{name}: {n}" for name, n in rows.items())
                raise InvalidInputError(f"the views differ in their number of samples: {listing}")
        else:
            order = 3 if order is None else check_positive_int(order, "order")
            arrays = _resolve_views({"samples": samples}, weights)
            self._views = (arrays["samples"],) * order
        n = int(self._views[0].shape[0])
        self._all_weights: Array = arrays["weights"]
        if self._all_weights.ndim != 1 or int(self._all_weights.shape[0]) != n:
            raise InvalidInputError(
                f"weights must have shape ({n},), one per sample, got {describe(self._all_weights)}"
            )

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.shape)
        kind = "sparse" if any(scipy.sparse.issparse(v) for v in self._views) else "dense"
        return f"MomentTensor({shape}, of {self.n_terms} {kind} samples)"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(view.shape[1]) for view in self._views)

    @property
    def reference(self) -> Array:
        """The weights: their library, device and dtype are the tensor's."""
        return self._all_weights

    @property
    def views(self) -> tuple[Any, ...]:
        """The (n, d) samples of every mode; one object where modes share them."""
        return self._views

    @property
    def weights(self) -> Array:
        """The (n,) weights of the samples."""
        return self._all_weights

    @property
    def n_terms(self) -> int:
        """The number of samples."""
        return int(self._views[0].shape[0])

    def _weights(self, terms: slice) -> Array:
        return self._all_weights[terms]

    def _source(self, mode: int) -> int:
        return id(self._views[mode])

    def _load(self, mode: int, operand: Array | None, terms: slice) -> Array:
        rows = self._rows(mode, terms)
        if operand is None:
            return rows.toarray() if scipy.sparse.issparse(rows) else rows
        return self._product(rows, operand)

    def _spread(self, mode: int, coefficients: Array, terms: slice) -> Array:
        return self._product(self._rows(mode, terms).T, coefficients)

    def _product(self, left: Any, right: Array) -> Array:
        if scipy.sparse.issparse(left):
            return left @ right
        return matmul(self._namespace, left, right)

    def _rows(self, mode: int, terms: slice) -> Any:
        view = self._views[mode]
        return view if terms == slice(0, self.n_terms) else view[terms]

    def norm(self) -> Any:
        """The Frobenius norm, by the cheaper of two ways.

        Forming the tensor costs n d^p operations, the inner products of all samples n^2 d p.
        """
        entries = float(np.prod([float(d) for d in self.shape]))
        if entries <= _SMALL and entries <= self.n_terms * sum(self.shape):
            xp = self._namespace
            return xp.linalg.vector_norm(xp.reshape(self.to_dense(), (-1,)))
        return super().norm()


def _refuse_nonfinite_entries(rows: Any, name: str) -> None:
    if np.isfinite(rows.data).all():
        return
    entries = rows.tocoo()
    bad = np.flatnonzero(~np.isfinite(entries.data))
    first = (int(entries.row[bad[0]]), int(entries.col[bad[0]]))
    raise InvalidInputError(
        f"{name} holds {len(bad)} NaN or infinite entries of {rows.nnz} stored, "
        f"the first at {first}: remove them"
    )


def _resolve_views(views: dict[str, Any], weights: Any) -> dict[str, Any]:
    """Views and weights in one library and dtype; sparse views stay sparse, as CSR."""
    sparse = {name: view for name, view in views.items() if scipy.sparse.issparse(view)}
    dense = {name: view for name, view in views.items() if name not in sparse}
    stored = {}
    for name, view in sparse.items():
        if view.ndim != 2:
            raise InvalidInputError(f"{name} must be a matrix, not a sparse {view.ndim}-d array")
        stored[name] = rows = view.tocsr()
        _refuse_nonfinite_entries(rows, name)
    # The stored entries of a sparse view stand for it where libraries and dtypes are compared.
    entries = {name: rows.data for name, rows in stored.items()}
    xp, arrays = resolve(**dense, **entries, weights=weights)
    for name, rows in stored.items():
        if library_name(arrays[name]) != "numpy":  # pragma: no cover - resolve refuses the mixture
            raise InvalidInputError(f"{name} is sparse and needs NumPy arrays beside it")
        arrays[name] = rows.astype(arrays[name].dtype, copy=False)
    for name, view in views.items():
        if len(arrays[name].shape) != 2 or 0 in arrays[name].shape:
            raise InvalidInputError(
                f"{name} must be a matrix of samples (rows) by features (columns), both at least "
                f"1, got shape {tuple(getattr(view, 'shape', arrays[name].shape))}"
            )
        if name in dense:
            refuse_nonfinite(arrays[name], name)
    if weights is None:
        first = next(iter(views))
        n = arrays[first].shape[0]
        entry = arrays[first].data if first in stored else arrays[first]
        if first in stored:
            arrays["weights"] = np.full(n, 1.0 / n, dtype=entry.dtype)
        else:
            arrays["weights"] = xp.ones_like(entry[:, 0]) / n
    else:
        refuse_nonfinite(arrays["weights"], "weights")
    return arrays
