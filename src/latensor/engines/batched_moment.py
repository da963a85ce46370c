"""Moment tensors of batches: every contraction is a fold (monograph 6.1.1)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse

from latensor.arrays import Array, check_positive_int
from latensor.engines.engine import engine_of
from latensor.engines.local import LocalEngine
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind
from latensor.moments.contracted import ContractedSums, TermNorms
from latensor.sources.partitions import Partitioned
from latensor.sources.passes import first_filled
from latensor.sources.shards import Parts, Source
from latensor.sources.views import ViewReader, is_empty, split_weights
from latensor.tensors.moment import Contraction, CrossProducts, MomentTensor, Product
from latensor.tensors.operands import check_factors, check_operands

# Numbers in a block of rows, 4 MiB of float64: a fold holds some twenty of them per thread.
_BLOCK_ENTRIES = 1 << 19
# Entries of a tensor that is formed for its norm.
_SMALL = 1 << 18


@dataclass(frozen=True)
class _RowReader:
    """Batches of rows, or pairs of rows and weights, as one view."""

    views: ViewReader

    def __call__(self, given: Any) -> Parts | None:
        rows, weights = given if isinstance(given, list | tuple) else (given, None)
        return self.views(([rows], weights))


def _read_once(samples: Any) -> bool:
    """Whether samples are an iterator, or an object that hands out the same one each time."""
    first, again = iter(samples), iter(samples)
    return first is again


class BatchedMoment(MomentTensor):
    """The moment tensor of samples in batches that can be gone over again."""

    def __init__(
        self,
        samples: Any,
        weights: Any = None,
        order: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        if weights is not None:
            raise InvalidInputError(
                "weights cannot be matched to batches: give pairs (batch, weights) in place of "
                "batches"
            )
        if not isinstance(samples, Partitioned) and _read_once(samples):
            raise InvalidInputError(
                f"samples is a {type(samples).__name__}, which can be read only once, but every "
                "contraction of a moment tensor goes over all samples: give a list of batches or "
                "an object whose __iter__ starts anew; to follow a stream from a fit that exists, "
                "use lt.decomposition.StochasticLeastSquares"
            )
        kind, heads = Kind.VIEWS, samples
        if isinstance(samples, Partitioned):
            kind = Kind.ROWS if samples.layout.views is None else Kind.VIEWS
            heads = samples.heads(kind)
        first = first_filled(heads, _is_filled)
        views, sample_weight = split(first)
        if len(views) > 1 and order not in (None, len(views)):
            raise InvalidInputError(
                f"order={order} but batches have {len(views)} views: leave order out"
            )
        modes = (0,) * (3 if order is None else check_positive_int(order, "order"))
        self._modes_read = modes if len(views) == 1 else tuple(range(len(views)))
        for number, view in enumerate(views):
            if getattr(view, "ndim", 0) != 2:
                raise InvalidInputError(
                    f"view {number} of the first batch must be a matrix of samples (rows) by "
                    f"features (columns), got {type(view).__name__} of shape "
                    f"{tuple(getattr(view, 'shape', ()))}"
                )
        sizes = tuple(int(view.shape[1]) for view in views)
        sparse = tuple(bool(scipy.sparse.issparse(view)) for view in views)
        reader = ViewReader(sizes, ("gaussian",) * len(sizes), sparse, "MomentTensor")
        read = reader if is_views(first) else _RowReader(reader)
        found = read(first)
        assert found is not None  # it holds a sample
        single = all(part.dtype == np.float32 for part in found[0])
        self._all_weights = np.zeros(0, dtype=np.float32 if single else np.float64)
        self._views, self._estimate = (), None
        self._sizes, self._weighted = sizes, sample_weight is not None
        self._largest = tuple(_largest(part) for part in found[0])
        self._scales = (1.0,) * len(sizes)
        self._engine: Any = LocalEngine(n_jobs)
        self._known: tuple[int, float] | None = None
        block = int(np.clip(_BLOCK_ENTRIES // sum(sizes), 32, Kind.VIEWS.block))
        if isinstance(samples, Partitioned):
            engine = engine_of(samples)
            source = replace(samples.source(kind, read, engine), block_size=block)
            self._engine = self._engine if engine is None else engine
        else:
            # A list holds all its batches at once; whatever makes them anew may use one buffer.
            copies = not isinstance(samples, list)
            source = Source(kind, (samples,), read, copies=copies, block_size=block)
        self._batches = source

    def __repr__(self) -> str:
        return f"MomentTensor({' x '.join(map(str, self.shape))}, of batches)"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(self._sizes[m] for m in self._modes_read)

    @property
    def views(self) -> tuple[Any, ...]:
        """None of the samples is held: empty."""
        return ()

    @property
    def n_terms(self) -> int:
        """The number of samples, known after the first pass."""
        return self._count()[0]

    def sum_of_term_norms(self) -> float:
        """The norms of all terms added up, to which the rounding of any sum of them is relative."""
        return float(self._fold(TermNorms())[0])

    def _source(self, mode: int) -> int:
        return self._modes_read[mode]

    def divided(self, scales: Sequence[float]) -> MomentTensor:
        """The tensor of views divided by numbers, one for every view."""
        found = copy.copy(self)
        found._scales, found._estimate = tuple(scales), None
        return found

    @property
    def largest_entries(self) -> tuple[float, ...]:
        """The largest magnitude in the first batch of every view."""
        return self._largest

    @property
    def modes_read(self) -> tuple[int, ...]:
        """The view that each mode reads."""
        return self._modes_read

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C), in one pass; see `Contractible.contract`."""
        given = check_operands(operands, self.shape, self.reference)
        return self.answers(Contraction(tuple(given)))[0]

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product, in one pass; see `Contractible.mttkrp`."""
        mode, given = check_factors(factors, self.shape, mode, self.reference)
        return self.answers(Product(tuple(given), mode))[0]

    def cross_products(self, mode: int, others: Sequence[int], columns: Sequence[Array]) -> Array:
        """Products of cross moments, in one pass; see `MomentTensor.cross_products`."""
        return self.answers(CrossProducts(mode, tuple(others), tuple(columns)))[0]

    def answers(self, *asked: Any) -> list[Array]:
        """Several contractions in one pass over the batches."""
        dtype = self.reference.dtype
        return [np.asarray(value).astype(dtype, copy=False) for value in self._fold(*asked)]

    @property
    def is_long(self) -> bool:
        """Whether the tensor is too large to be formed: its norm is then estimated."""
        return self.order > 1 and float(np.prod([float(d) for d in self.shape])) > _SMALL

    def _fold(self, *asked: Any) -> list[Any]:
        start = ContractedSums(asked, self._modes_read, self._scales, self.reference.dtype.str)
        weight, count, found = self._engine.fold(self._batches, start).finalize()
        if self._known is None:
            self._known = count, weight
        elif self._known != (count, weight):
            raise InvalidInputError(
                f"samples gave {self._known[0]} samples on the first pass and {count} now: they "
                "must be the same each time"
            )
        return found if self._weighted else [value / weight for value in found]

    def _count(self) -> tuple[int, float]:
        if self._known is None:
            self._fold()
        assert self._known is not None
        return self._known

    def norm(self) -> Any:
        """The Frobenius norm; estimated where the tensor is too large to be formed."""
        if self.is_long:
            return super().norm()
        return self.reference.dtype.type(np.linalg.norm(self.to_dense()))


def is_views(batch: Any) -> bool:
    """Whether a batch holds views rather than rows, or a pair of rows and weights."""
    if not isinstance(batch, list | tuple):
        return False
    weighted_rows = len(batch) == 2 and getattr(batch[1], "ndim", 1) == 1
    return isinstance(batch[0], list | tuple) or not weighted_rows


def split(batch: Any) -> tuple[list[Any], Any]:
    """The views of a batch, one for rows, and its weights."""
    if is_views(batch):
        views, weights = split_weights(batch)
        return list(views), weights
    rows, weights = batch if isinstance(batch, list | tuple) else (batch, None)
    return [rows], weights


def _is_filled(batch: Any) -> bool:
    return not is_empty(split(batch)[0])


def _largest(part: Any) -> float:
    values = part.data if scipy.sparse.issparse(part) else part
    return float(np.abs(values).max(initial=0.0))
