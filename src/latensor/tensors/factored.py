"""Tensors that are sums of weighted outer products: what CP and moment tensors share.

T = sum_i w_i a_i (x) b_i (x) c_i, over components (CP) or samples (moments). Both are contracted
by first projecting every mode ("load": one row per term), then multiplying the rows, then adding
up the terms, optionally back in a kept mode ("spread"). Nothing of the size of T is formed unless
the caller keeps all its modes. Long sums run in blocks of terms whose size depends on shapes
alone, so that memory is bounded and the result does not depend on the machine.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from latensor.arrays import Array, Namespace, check_finite, is_complex, matmul, resolve, to_host
from latensor.tensors.contractible import DirectSweep, Sweep
from latensor.tensors.operands import check_factors, check_operands
from latensor.tensors.size import BLOCK_ENTRIES, MAX_SIZE, check_size


class FactoredTensor(ABC):
    """A sum of weighted outer products, known through its projections."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""

    @property
    @abstractmethod
    def reference(self) -> Array:
        """An array with the library, device and dtype of the tensor's entries."""

    @property
    @abstractmethod
    def n_terms(self) -> int:
        """How many outer products are summed."""

    @abstractmethod
    def _weights(self, terms: slice) -> Array:
        """(block,) weights of a block of terms."""

    @abstractmethod
    def _load(self, mode: int, operand: Array | None, terms: slice) -> Array:
        """Vectors of one mode times an operand: (block,) or (block, k); None gives (block, d)."""

    @abstractmethod
    def _spread(self, mode: int, coefficients: Array, terms: slice) -> Array:
        """Sum over a block of terms of vector (x) coefficients: (d, columns)."""

    @abstractmethod
    def _source(self, mode: int) -> int:
        """A number that modes with the same vectors share."""

    def _entries(self) -> dict[str, Array]:
        """The arrays the tensor is made of, to be searched for NaN, unless checked before."""
        return {}

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def _namespace(self) -> Namespace:
        return resolve(reference=self.reference)[0]

    def _blocks(self, entries_per_term: int) -> Iterator[slice]:
        step = max(1, BLOCK_ENTRIES // max(1, entries_per_term))
        for start in range(0, self.n_terms, step):
            yield slice(start, min(start + step, self.n_terms))

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C); see `Contractible.contract`."""
        xp = self._namespace
        given = check_operands(operands, self.shape, self.reference)
        summed = [m for m, o in enumerate(given) if o is not None and o.ndim == 1]
        open_modes = [m for m in range(self.order) if m not in summed]
        widths = {m: d if (o := given[m]) is None else int(o.shape[-1]) for m, d in self._modes()}
        # The terms are added up by one product along the last mode, which therefore never enters
        # the product of rows: a kept mode if there is one, of those the widest.
        last = max(open_modes, key=lambda m: (given[m] is None, widths[m]), default=None)
        row_modes = [m for m in open_modes if m != last]
        total: Array | None = None
        for terms in self._blocks(max(math.prod(widths[m] for m in row_modes), *self.shape)):
            loads = self._loads(given, terms, keep_last=last)
            rows = self._weights(terms)[:, None]
            for mode in summed:
                rows = rows * loads[mode][:, None]
            for mode in row_modes:
                rows = xp.reshape(rows[:, :, None] * loads[mode][:, None, :], (rows.shape[0], -1))
            if last is None:
                part = xp.sum(rows, axis=0)
            elif given[last] is None:
                part = self._spread(last, rows, terms)
            else:
                part = matmul(xp, xp.permute_dims(loads[last], (1, 0)), rows)
            total = part if total is None else total + part
        if last is None:
            result = xp.reshape(total, ())
        else:
            current = [last, *row_modes]
            result = xp.reshape(total, tuple(widths[m] for m in current))
            result = xp.permute_dims(result, tuple(current.index(m) for m in open_modes))
        return check_finite(result, **self._entries(), operands=given)

    def _modes(self) -> Iterator[tuple[int, int]]:
        return enumerate(self.shape)

    def _loads(
        self, given: Sequence[Array | None], terms: slice, keep_last: int | None
    ) -> dict[int, Array]:
        """Projections of a block of terms, each computed once where modes and operands repeat."""
        known: dict[tuple[int, int], Array] = {}
        loads: dict[int, Array] = {}
        for mode, operand in enumerate(given):
            if mode == keep_last and operand is None:
                continue
            key = (self._source(mode), id(operand))
            if key not in known:
                known[key] = self._load(mode, operand, terms)
            loads[mode] = known[key]
        return loads

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product; see `Contractible.mttkrp`."""
        xp = self._namespace
        mode, given = check_factors(factors, self.shape, mode, self.reference)
        rank = next(int(f.shape[1]) for f in given if f is not None)
        conjugates = {id(f): xp.conj(f) if is_complex(f) else f for f in given if f is not None}
        operands = [None if f is None else conjugates[id(f)] for f in given]
        operands[mode] = None
        total: Array | None = None
        for terms in self._blocks(max(rank, 1)):
            weights = self._weights(terms)[:, None]
            rows = xp.broadcast_to(weights, (weights.shape[0], rank))
            for load in self._loads(operands, terms, keep_last=mode).values():
                rows = rows * load
            part = self._spread(mode, rows, terms)
            total = part if total is None else total + part
        return check_finite(total, **self._entries(), factors=given)

    def norm(self) -> Any:
        """The Frobenius norm, from the inner products of the terms.

        Rounding in these limits it to about 1e-8 of the largest term where the terms cancel.
        """
        xp = self._namespace
        largest = max(self.shape)
        total: Any = None
        for terms in self._blocks(max(self.n_terms, largest)):
            rows = self._gram_rows(xp, terms)
            total = rows if total is None else total + rows
        square = check_finite(xp.real(total) if is_complex(total) else total, **self._entries())
        return xp.sqrt(xp.where(square < 0, xp.zeros_like(square), square))

    def _gram_rows(self, xp: Namespace, terms: slice) -> Any:
        """Part of the squared norm that a block of terms has with all terms."""
        factors = [xp.permute_dims(self._load(m, None, terms), (1, 0)) for m in range(self.order)]
        weights = self._weights(terms)
        image = self.mttkrp(factors, 0)
        conjugated = xp.conj(factors[0]) if is_complex(factors[0]) else factors[0]
        weights = xp.conj(weights) if is_complex(weights) else weights
        return xp.sum(weights * xp.sum(conjugated * image, axis=0))

    def sum_of_term_norms(self) -> float:
        """The norms of all terms added up, to which the rounding of any sum of them is relative."""
        xp = self._namespace
        total = 0.0
        for terms in self._blocks(max(self.shape)):
            lengths = xp.abs(self._weights(terms))
            for load in self._loads([None] * self.order, terms, keep_last=None).values():
                lengths = lengths * xp.linalg.vector_norm(load, axis=1)
            total += float(to_host(xp.sum(lengths)))
        return total

    def to_dense(self, max_size: int = MAX_SIZE) -> Array:
        """The tensor with all its entries, refused where there are more than `max_size`."""
        check_size(self.shape, self.reference.dtype, max_size, "the dense array")
        return self.contract(*([None] * self.order))

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """Mttkrps for all modes; the terms share nothing between modes."""
        return DirectSweep(self, factors)
