"""Moment tensors that are never formed: samples in, contractions out (monograph 6.1).

The empirical moment T = sum_i w_i x_i (x) x_i (x) x_i is contracted in O(n d) per vector, straight
from dense or sparse samples, in memory or in batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import (
    Array,
    check_positive_int,
    describe,
    is_array,
    is_complex,
    library_name,
    like,
    matmul,
    resolve,
)
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.tensors.dense import frobenius, is_extreme
from latensor.tensors.factored import FactoredTensor
from latensor.tensors.moment_subspace import Projection, projected

# A moment tensor with at most this many entries may be formed, where that is the cheaper way to
# its norm.
_SMALL = 1 << 22
# Multiplications up to which the norm is exact, from the inner products of all samples: about
# five seconds of one core.
_EXACT_NORM = 1 << 36
# Directions per mode whose part in an estimated norm is exact.
_NORM_WIDTH = 64


@dataclass(frozen=True, eq=False)
class Contraction:
    """A contraction T(A, B, C) as a value: what one pass over samples is asked for."""

    operands: tuple[Array | None, ...]

    def __call__(self, moment: MomentTensor) -> Array:
        """The contraction of a moment tensor."""
        return moment.contract(*self.operands)


@dataclass(frozen=True, eq=False)
class Product:
    """An mttkrp as a value: what one pass over samples is asked for."""

    factors: tuple[Array, ...]
    mode: int

    def __call__(self, moment: MomentTensor) -> Array:
        """The mttkrp of a moment tensor."""
        return moment.mttkrp(self.factors, self.mode)


@dataclass(frozen=True, eq=False)
class CrossProducts:
    """Cross moments of one mode with others, M_ab = sum_i w_i x_i^(a) x_i^(b)', times matrices.

    Attributes
    ----------
    mode : int, a
    others : modes b
    columns : (d_b, r_b) matrices; the results (d_a, r_b) stand beside each other
    """

    mode: int
    others: tuple[int, ...]
    columns: tuple[Array, ...]

    def __call__(self, moment: MomentTensor) -> Array:
        """The products of a moment tensor's samples."""
        return moment.cross_products(self.mode, self.others, self.columns)


class MomentTensor(FactoredTensor):
    """The weighted moment of samples, of one view or of several.

    T = sum_i w_i x_i^(1) (x) ... (x) x_i^(p), where all views x^(m) are one and the same (a raw
    moment of order p) or differ (a cross moment).

    Parameters
    ----------
    samples : (n, d) array of NumPy, PyTorch or JAX, SciPy sparse matrix or data frame, one sample a
        row; or a tuple of such, one view per mode, with equal numbers of rows (dense and sparse
        views of NumPy may be mixed). Or batches of either: a list of them, an object whose
        `__iter__` starts anew each time, or `lt.sources.shards(files)`. Every contraction is then
        one pass over the batches, in memory that depends on neither n nor d^3
    weights : (n,) array, default 1/n each; of batches, pairs (batch, weights) in their place
    order : int, the number of modes; for several views it is their number
    n_jobs : int, threads that go over batches; None for all. Changes nothing but the time

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> samples = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> skewness = lt.MomentTensor(samples)
    >>> skewness.contract(np.array([1.0, 1.0]), np.array([1.0, 1.0]), None)
    array([0.5, 4. ])
    >>> lt.MomentTensor([samples[:1], samples[1:]])
    MomentTensor(2 x 2 x 2, of batches)
    """

    def __new__(cls, samples: Any = None, *_: Any, **__: Any) -> MomentTensor:
        """A tensor of samples in memory, or of batches."""
        if cls is MomentTensor and in_batches(samples):
            from latensor.engines.batched_moment import BatchedMoment

            return object.__new__(BatchedMoment)
        return object.__new__(cls)

    def __init__(
        self,
        samples: Any,
        weights: Any = None,
        order: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        del n_jobs  # for batches
        self._estimate: float | None = None
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

    def cross_products(self, mode: int, others: Sequence[int], columns: Sequence[Array]) -> Array:
        """The (d, r) products of cross moments of a mode with others; see `CrossProducts`."""
        xp = self._namespace
        total: Array | None = None
        width = sum(int(c.shape[1]) for c in columns)
        for terms in self._blocks(max(width, 1)):
            pairs = zip(others, columns, strict=True)
            loads = xp.concat([self._load(o, c, terms) for o, c in pairs], axis=1)
            part = self._spread(mode, self._weights(terms)[:, None] * loads, terms)
            total = part if total is None else total + part
        return total

    @classmethod
    def of_checked(cls, views: tuple[Any, ...], weights: Array) -> MomentTensor:
        """A moment tensor of views and weights that were checked before."""
        found = object.__new__(MomentTensor)
        found._views, found._all_weights, found._estimate = views, weights, None
        return found

    def answers(self, *asked: Contraction | Product | CrossProducts) -> list[Array]:
        """Several contractions at once; over batches they share one pass."""
        return [one(self) for one in asked]

    def projected(self, widths: Sequence[int]) -> Projection:
        """The tensor on subspaces of every mode that hold most of it, and what they leave out.

        Where `decompose` begins: four passes over the samples, O(n d width + n width^p) operations.
        """
        return projected(self, widths)

    @property
    def is_long(self) -> bool:
        """Whether the samples are too many for an exact norm, which is then estimated."""
        entries = float(np.prod([float(d) for d in self.shape]))
        formed = entries <= _SMALL and entries <= self.n_terms * sum(self.shape)
        if self.order == 1 or formed or is_complex(self.reference):
            return False
        return self.n_terms**2 * sum(self.shape) > _EXACT_NORM

    @property
    def views_of_modes(self) -> tuple[int, ...]:
        """For every mode the first mode that has the same samples."""
        sources = [self._source(m) for m in range(self.order)]
        return tuple(sources.index(s) for s in sources)

    def norm(self) -> Any:
        """The Frobenius norm, by the cheapest of three ways.

        Forming the tensor costs n d^p operations, the inner products of all samples n^2 d p. Where
        both are out of reach (above 7e10 of the latter), it is estimated: see `projected`.
        """
        if self.is_long:
            if self._estimate is None:
                widths = [min(d, _NORM_WIDTH) for d in self.shape]
                self._estimate = float(np.sqrt(self.projected(widths).squared_norm))
            return like(np.asarray(self._estimate), self.reference)
        entries = float(np.prod([float(d) for d in self.shape]))
        if entries > _SMALL:
            return super().norm()
        if entries > self.n_terms * sum(self.shape):
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                norm = super().norm()
            if not is_extreme(norm):
                return norm
        return frobenius(self._namespace, self.to_dense())


def in_batches(samples: Any) -> bool:
    """Whether samples are batches to go over rather than arrays in memory."""
    if isinstance(samples, list):
        first = samples[0] if samples else None
        while isinstance(first, list | tuple) and first:  # (views, weights) of views
            first = first[0]
        return getattr(first, "ndim", 0) == 2
    if (
        isinstance(samples, tuple | str | bytes | dict | set | frozenset)
        or scipy.sparse.issparse(samples)
        or is_array(samples)
        or any(hasattr(samples, name) for name in ("__array__", "__dataframe__", "shape"))
    ):
        return False
    return hasattr(samples, "__iter__") or hasattr(samples, "heads")


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
