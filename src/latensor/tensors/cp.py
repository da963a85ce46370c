"""A tensor in CP form: a weighted sum of outer products of factor columns (monograph 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, describe, is_complex, like, matmul, resolve, to_host
from latensor.arrays.guests import holds_guests
from latensor.exceptions import InvalidInputError
from latensor.tensors.coordinates import check_coordinates
from latensor.tensors.dense import norm_of_product
from latensor.tensors.factored import FactoredTensor
from latensor.value_files import storable


@storable
@holds_guests
@dataclass(frozen=True, eq=False, repr=False)
class CPTensor(FactoredTensor):
    """T = sum_j w_j a_j (x) b_j (x) c_j.

    Parameters
    ----------
    weights : (rank,) array, or None for ones
    factors : one (dimension, rank) matrix per mode; a symmetric tensor repeats one object

    Unpacks like TensorLy's pair: `weights, factors = cp`. Nothing is copied; the arrays are not
    to be changed afterwards.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> tensor = lt.CPTensor([2.0, 1.0], [np.eye(3)[:, :2], np.eye(4)[:, :2], np.eye(5)[:, :2]])
    >>> tensor.shape, tensor.rank, float(tensor.to_dense()[0, 0, 0])
    ((3, 4, 5), 2, 2.0)
    """

    weights: Array
    factors: tuple[Array, ...]

    def __post_init__(self) -> None:
        factors = self.factors
        if not isinstance(factors, list | tuple) or not factors:
            raise InvalidInputError("factors must be a sequence of at least one matrix")
        named = {f"factors[{m}]": factor for m, factor in enumerate(factors)}
        for name, factor in named.items():
            if factor is None:
                raise InvalidInputError(f"{name} is None: every mode of a CP tensor has a factor")
        xp, arrays = resolve(weights=self.weights, **named)
        matrices = tuple(arrays[name] for name in named)
        for name in named:
            if arrays[name].ndim != 2 or 0 in arrays[name].shape:
                raise InvalidInputError(
                    f"{name} must be a matrix with rows and columns, got {describe(arrays[name])}"
                )
        ranks = [int(matrix.shape[1]) for matrix in matrices]
        if len(set(ranks)) > 1:
            raise InvalidInputError(f"the factors differ in rank (columns): {ranks}")
        weights = arrays["weights"]
        if weights is None:
            weights = xp.ones_like(matrices[0][0, :])
        if weights.ndim != 1 or weights.shape[0] != ranks[0]:
            raise InvalidInputError(
                f"weights must have shape ({ranks[0]},) as the factors have {ranks[0]} columns, "
                f"got {describe(weights)}"
            )
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "factors", matrices)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.weights, self.factors))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return (self.weights, self.factors)[index]

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.shape)
        return f"CPTensor({shape}, rank {self.rank}, {describe(self.weights).split(', shape')[0]})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(factor.shape[0]) for factor in self.factors)

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.weights.shape[0])

    @property
    def reference(self) -> Array:
        """The weights: their library, device and dtype are the tensor's."""
        return self.weights

    @property
    def n_terms(self) -> int:
        """The number of components."""
        return self.rank

    def _weights(self, terms: slice) -> Array:
        return self.weights[terms]

    def _entries(self) -> dict[str, Array]:
        return {"tensor.weights": self.weights, "tensor.factors": self.factors}

    def _source(self, mode: int) -> int:
        return id(self.factors[mode])

    def _load(self, mode: int, operand: Array | None, terms: slice) -> Array:
        xp = self._namespace
        rows = xp.permute_dims(self.factors[mode][:, terms], (1, 0))
        return rows if operand is None else matmul(xp, rows, operand)

    def _spread(self, mode: int, coefficients: Array, terms: slice) -> Array:
        return matmul(self._namespace, self.factors[mode][:, terms], coefficients)

    def at(self, coordinates: object) -> Array:
        """The entries at some coordinates, without forming the tensor.

        Parameters
        ----------
        coordinates : (n, order) whole numbers counted from 0

        Returns
        -------
        (n,) array
        """
        rows, _ = check_coordinates(np.asarray(coordinates), self.shape)
        terms = self.weights
        for factor, index in zip(self.factors, rows.T, strict=True):
            terms = terms * factor[index.astype(np.int64), :]
        return terms.sum(-1)

    @property
    def is_symmetric(self) -> bool:
        """Whether all modes share one factor, as the same object."""
        return all(factor is self.factors[0] for factor in self.factors)

    def _mapped(self, weights: Array, change: Any) -> CPTensor:
        """The same tensor with each distinct factor changed once, so that sharing is kept."""
        changed = {id(factor): change(factor) for factor in self.factors}
        return CPTensor(weights, tuple(changed[id(factor)] for factor in self.factors))

    def norm(self) -> Any:
        """The Frobenius norm, from the inner products of the components, at any scale of these.

        Rounding in these limits it to about 1e-8 of the largest component where they cancel.
        """

        def norm(weights: Array, *factors: Array) -> Array:
            return FactoredTensor.norm(CPTensor(weights, factors))

        return norm_of_product(self._namespace, [self.weights, *self.factors], norm)

    def normalized(self) -> CPTensor:
        """The same tensor with columns of unit length; the weights carry the lengths.

        A zero column stays zero and its weight becomes zero.
        """
        xp = self._namespace
        weights = self.weights
        for factor in self.factors:
            weights = weights * xp.astype(_lengths(xp, factor), weights.dtype)

        def unit(factor: Array) -> Array:
            lengths = _lengths(xp, factor)
            safe = xp.where(lengths > 0, lengths, xp.ones_like(lengths))
            return factor / xp.astype(safe, factor.dtype)[None, :]

        return self._mapped(weights, unit)

    def sorted(self) -> CPTensor:
        """The same tensor with components in decreasing magnitude of weight.

        Ties, to the precision of the dtype, are ordered by the position of the first large entry.
        """
        order = like(_canonical_order(self), self.weights)
        xp = self._namespace
        return self._mapped(
            xp.take(self.weights, order, axis=0), lambda factor: xp.take(factor, order, axis=1)
        )

    def canonical(self) -> CPTensor:
        """The same tensor in the one form that two runs can compare.

        Columns of unit length whose entry of largest magnitude is positive (for complex
        tensors: real and positive), weights that carry length and sign, components in the order
        of `sorted`. Factors that modes share stay shared.
        """
        xp = self._namespace
        unit = self.normalized()
        phases = {id(f): _phases(xp, f) for f in unit.factors}
        weights = unit.weights
        for factor in unit.factors:
            weights = weights * phases[id(factor)]
        return unit._mapped(weights, lambda f: f / phases[id(f)][None, :]).sorted()

    def to_tensorly(self) -> Any:
        """The same tensor as `tensorly.cp_tensor.CPTensor` (imports TensorLy)."""
        from latensor.tensors.interoperability import cp_to_tensorly

        return cp_to_tensorly(self)

    def to_pyttb(self) -> Any:
        """The same tensor as `pyttb.ktensor` (imports pyttb)."""
        from latensor.tensors.interoperability import cp_to_pyttb

        return cp_to_pyttb(self)


def _lengths(xp: Any, factor: Array) -> Array:
    """(rank,) lengths of the columns, scaled so that squares neither over- nor underflow."""
    largest = xp.max(xp.abs(factor), axis=0)
    safe = xp.where(largest > 0, largest, xp.ones_like(largest))
    scaled = factor / xp.astype(safe, factor.dtype)[None, :]
    return largest * xp.linalg.vector_norm(scaled, axis=0)


def _phases(xp: Any, factor: Array) -> Array:
    """(rank,) sign or phase of each column's entry of largest magnitude; one for zero columns.

    Entries within a few roundings of the largest count as equal, and the first of them decides.
    """
    magnitudes = xp.abs(factor)
    largest = xp.max(magnitudes, axis=0)
    near = magnitudes >= largest[None, :] * (1 - 1e-6 if _is_double(factor) else 1 - 1e-3)
    first = xp.argmax(xp.astype(near, xp.uint8), axis=0)
    columns = xp.arange(factor.shape[1], device=getattr(first, "device", None))
    leading = factor[first, columns]
    scale = xp.where(largest > 0, largest, xp.ones_like(largest))
    if is_complex(factor):
        magnitude = xp.abs(leading)
        safe = xp.where(magnitude > 0, magnitude, xp.ones_like(magnitude))
        phases = leading / xp.astype(safe, factor.dtype)
        return xp.where(magnitude > 0, phases, xp.ones_like(phases))
    return xp.where(leading / scale < 0, -xp.ones_like(leading), xp.ones_like(leading))


def _is_double(factor: Array) -> bool:
    return "64" in str(factor.dtype).replace("complex64", "") or "complex128" in str(factor.dtype)


def _canonical_order(tensor: CPTensor) -> Any:
    import numpy as np

    weights = np.abs(to_host(tensor.weights)).astype(np.float64)
    precision = 1e-10 if _is_double(tensor.weights) else 1e-4
    scale = weights.max(initial=0.0)
    first = np.abs(to_host(tensor.factors[0]))
    large = np.argmax(first >= 0.5 * first.max(axis=0, keepdims=True), axis=0)
    order = np.argsort(-weights, kind="stable")
    # Runs of weights that are equal to rounding are put in the order of their first large entry.
    start = 0
    for stop in range(1, len(order) + 1):
        last = stop == len(order)
        if last or weights[order[stop - 1]] - weights[order[stop]] > precision * scale:
            run = order[start:stop]
            order[start:stop] = run[np.lexsort((run, large[run]))]
            start = stop
    return order
