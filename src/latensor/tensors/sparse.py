"""Sparse tensors of any order: coordinates and values, contracted by fibre trees."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Number
from typing import Any

import numpy as np

from latensor.arrays import Array, check_mode, resolve
from latensor.arrays.checks import refuse_nonfinite
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Sweep
from latensor.tensors.coordinates import (
    check_coordinates,
    check_shape,
    host_array,
    sort_rows,
    sum_duplicates,
)
from latensor.tensors.fibres import Nonzeros
from latensor.tensors.operands import check_factors
from latensor.tensors.size import MAX_SIZE, check_size
from latensor.tensors.sparse_contraction import (
    StackSweep,
    contract,
    contract_sparse,
    inner_dense,
    inner_sparse,
    unfold_gram,
)
from latensor.value_files import storable


@storable(fields=("coordinates", "values", "shape"))
class SparseTensor:
    """A tensor known by its nonzero entries, with contractions that visit only those.

    Parameters
    ----------
    coordinates : (nonzeros, order) whole numbers counted from 0, one row per entry
    values : (nonzeros,) numbers; integers become float64, float32, float64, complex64 and
        complex128 stay
    shape : one dimension per mode; None takes the smallest that holds all coordinates

    Entries given more than once are summed, and entries that are or add up to zero are left
    out; what remains is kept in lexicographic order, so that the order in which entries came
    changes nothing, not even a rounding error. A tensor never changes. Its first contraction
    along a mode sorts the nonzeros for that mode and keeps the result (about 16 bytes per
    nonzero and mode).

    Sums are made in float64 (complex128), and given back in the wider of the dtypes of tensor
    and operands. `numba.set_num_threads` sets how many threads contract a tensor of 100,000
    nonzeros or more, where that saves time; the results do not depend on it.

    Examples
    --------
    >>> import latensor as lt
    >>> tensor = lt.SparseTensor([[0, 0, 1], [2, 3, 0]], [1.5, -1.0], (3, 4, 2))
    >>> tensor.nnz, float(tensor.to_dense()[2, 3, 0])
    (2, -1.0)
    """

    # A NumPy scalar or array on the left of `*` leaves the product to this class.
    __array_ufunc__ = None

    def __init__(self, coordinates: object, values: object, shape: object | None = None) -> None:
        rows, dimensions = check_coordinates(coordinates, shape)
        given = host_array(values, "values")
        if given.ndim != 1 or len(given) != len(rows):
            raise InvalidInputError(
                f"values must be a vector with one number per row of coordinates ({len(rows)}), "
                f"got shape {given.shape}"
            )
        entries = _native(resolve(values=given)[1]["values"])
        refuse_nonfinite(entries, "values")
        rows, entries = sort_rows(rows, entries, range(len(dimensions)), dimensions)
        rows, entries = sum_duplicates(rows, entries)
        self._nonzeros = Nonzeros(rows, entries, dimensions)

    @classmethod
    def _trusted(cls, rows: Any, values: Any, shape: tuple[int, ...]) -> SparseTensor:
        """A tensor from sorted, distinct, nonzero entries in arrays that nobody else changes."""
        tensor = cls.__new__(cls)
        tensor._nonzeros = Nonzeros(rows, values, shape)
        return tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return SparseTensor._trusted, (self.coordinates, self.values, self.shape)

    @classmethod
    def from_dense(cls, array: object) -> SparseTensor:
        """The nonzero entries of a dense NumPy array or of nested lists."""
        dense = resolve(array=host_array(array, "array"))[1]["array"]
        if dense.ndim == 0 or 0 in dense.shape:
            raise InvalidInputError(f"array has shape {dense.shape}: it holds no tensor entries")
        refuse_nonfinite(dense, "array")
        shape = check_shape(dense.shape)
        rows, _ = check_coordinates(np.argwhere(dense), shape)
        return cls._trusted(rows, _native(dense[dense != 0]), shape)

    @classmethod
    def from_scipy(cls, matrix: Any) -> SparseTensor:
        """A SciPy sparse matrix or array of any format, of any order that SciPy has."""
        if not (hasattr(matrix, "tocoo") and hasattr(matrix, "format")):
            raise InvalidInputError(
                f"expected a SciPy sparse matrix or array, got {type(matrix).__name__}"
            )
        entries = matrix.tocoo()
        return cls(np.stack(entries.coords, axis=1), entries.data, entries.shape)

    @classmethod
    def from_coo(cls, array: Any) -> SparseTensor:
        """A `COO` (or `GCXS`, `DOK`) array of the PyData package `sparse`."""
        entries = array
        for method in ("tocoo", "to_coo"):
            if not hasattr(entries, "coords") and hasattr(entries, method):
                entries = getattr(entries, method)()
        if not all(hasattr(entries, name) for name in ("coords", "data", "shape", "fill_value")):
            raise InvalidInputError(f"expected a sparse.COO array, got {type(array).__name__}")
        if entries.fill_value != 0:
            raise InvalidInputError(
                f"the array has fill_value={entries.fill_value}: a sparse tensor is zero "
                "outside its entries, subtract the fill value first"
            )
        return cls(np.asarray(entries.coords).T, entries.data, entries.shape)

    @classmethod
    def from_pyttb(cls, tensor: Any) -> SparseTensor:
        """A `pyttb.sptensor`."""
        if not all(hasattr(tensor, name) for name in ("subs", "vals", "shape")):
            raise InvalidInputError(f"expected a pyttb.sptensor, got {type(tensor).__name__}")
        rows = np.asarray(tensor.subs)
        if rows.size == 0:
            rows = np.zeros((0, len(tensor.shape)), np.int64)
        return cls(rows, np.asarray(tensor.vals).reshape(-1), tensor.shape)

    def to_scipy(self) -> Any:
        """The same entries as `scipy.sparse.coo_array`, for tensors of order 2."""
        from scipy.sparse import coo_array

        if self.order != 2:
            raise InvalidInputError(
                f"the tensor has order {self.order}: only order 2 is a SciPy sparse matrix"
            )
        return coo_array((self.values.copy(), tuple(self.coordinates.T.copy())), shape=self.shape)

    def to_coo(self) -> Any:
        """The same entries as `sparse.COO` (imports the PyData package `sparse`)."""
        import sparse

        return sparse.COO(
            self.coordinates.T.astype(np.int64),
            self.values.copy(),
            shape=self.shape,
            has_duplicates=False,
            sorted=True,
        )

    def to_pyttb(self) -> Any:
        """The same entries as `pyttb.sptensor` (imports pyttb)."""
        import pyttb

        if self.nnz == 0:
            return pyttb.sptensor(shape=self.shape)
        return pyttb.sptensor(
            self.coordinates.astype(np.int64), self.values[:, None].copy(), self.shape
        )

    def to_dense(self, max_size: int = MAX_SIZE) -> Array:
        """All entries as a dense array, refused where there are more than `max_size` of them."""
        check_size(self.shape, self.dtype, max_size, "the dense array")
        dense = np.zeros(self.shape, self.dtype)
        dense[tuple(self.coordinates.T)] = self.values
        return dense

    def __array__(self, *_: object, **__: object) -> Any:
        raise InvalidInputError("a SparseTensor is not made dense silently: call its to_dense()")

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.shape)
        return f"SparseTensor({shape}, {self.nnz} nonzeros, {self.dtype})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return self._nonzeros.shape

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.shape)

    @property
    def nnz(self) -> int:
        """The number of entries that are not zero."""
        return len(self._nonzeros)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self._nonzeros.dtype

    @property
    def coordinates(self) -> Array:
        """(nonzeros, order) read-only indices in lexicographic order, int32 where that fits."""
        return self._nonzeros.rows

    @property
    def values(self) -> Array:
        """(nonzeros,) read-only values, in the order of `coordinates`."""
        return self._nonzeros.values

    @property
    def reference(self) -> Array:
        """The values: their library and dtype are the tensor's."""
        return self._nonzeros.values

    def __mul__(self, scalar: Any) -> SparseTensor:
        if not isinstance(scalar, Number | np.generic):
            return NotImplemented
        with np.errstate(over="ignore", under="ignore"):
            return self._with_values(self.values * scalar, f"the product with {scalar!r}")

    __rmul__ = __mul__

    def __neg__(self) -> SparseTensor:
        return self._trusted(self.coordinates, -self.values, self.shape)

    def astype(self, dtype: Any) -> SparseTensor:
        """The same tensor in float32, float64, complex64 or complex128."""
        try:
            target = np.dtype(dtype)
        except TypeError:
            raise InvalidInputError(f"dtype={dtype!r} is not a dtype") from None
        if target not in (np.float32, np.float64, np.complex64, np.complex128):
            raise InvalidInputError(
                f"dtype={target} must be float32, float64, complex64 or complex128"
            )
        if self.dtype.kind == "c" and target.kind != "c":
            raise InvalidInputError(
                f"the tensor is {self.dtype}: as {target} it would lose its imaginary part"
            )
        with np.errstate(over="ignore", under="ignore"):
            return self._with_values(self.values.astype(target), f"the tensor as {target}")

    def _with_values(self, values: Any, what: str) -> SparseTensor:
        """The same places with other values, those that became zero left out."""
        refuse_nonfinite(values, what)
        rows, values = self.coordinates, resolve(values=values)[1]["values"]
        if not values.all():
            rows, values = rows[values != 0], values[values != 0]
        return self._trusted(rows, values, self.shape)

    def permute(self, modes: Sequence[int]) -> SparseTensor:
        """The tensor with its modes in another order: mode i of the result is modes[i] here."""
        if not isinstance(modes, Sequence):
            raise InvalidInputError(f"modes={modes!r} must be a sequence of all modes")
        order = [check_mode(mode, self.order, "modes") for mode in modes]
        if sorted(order) != list(range(self.order)):
            raise InvalidInputError(
                f"modes={tuple(modes)!r} must name each of the {self.order} modes once"
            )
        shape = tuple(self.shape[mode] for mode in order)
        rows = np.ascontiguousarray(self.coordinates[:, order])
        rows, values = sort_rows(rows, self.values, range(self.order), shape)
        return self._trusted(rows, values, shape)

    def norm(self) -> Any:
        """The Frobenius norm."""
        if self.nnz == 0:
            return self.dtype.type(0).real
        largest = np.max(np.abs(self.values)).astype(np.float64)
        scaled = np.abs(self.values / largest).astype(np.float64)
        return self.dtype.type(largest * np.sqrt(np.dot(scaled, scaled))).real

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product; see `Contractible.mttkrp`."""
        mode, given = check_factors(factors, self.shape, mode, self.values)
        return StackSweep(self._nonzeros, given).mttkrp(mode)

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """Mttkrps that keep one stack of the factors; each mode has a tree of its own."""
        _, given = check_factors(factors, self.shape, None, self.values)
        return StackSweep(self._nonzeros, given)

    def contract(self, *operands: Array | None, max_size: int = MAX_SIZE) -> Array:
        """The multilinear form T(A, B, C) as a dense array; see `Contractible.contract`.

        The result is refused, with its size, where it would have more than `max_size` entries:
        `contract_sparse` then keeps it sparse in the modes without operand.
        """
        return contract(self._nonzeros, operands, max_size)

    def contract_sparse(self, *operands: Array | None, max_size: int = MAX_SIZE) -> SparseTensor:
        """The multilinear form T(A, I, I), sparse in the modes that have None for operand.

        At least one mode must be kept. The modes with a matrix are dense: `max_size` bounds
        the number of entries computed, the kept places times the columns of the matrices.
        """
        return SparseTensor(*contract_sparse(self._nonzeros, operands, max_size))

    def inner(self, other: Any) -> Any:
        """The sum over all entries of conj(self) * other.

        Parameters
        ----------
        other : SparseTensor, dense array, or CP or Tucker tensor (`weights` or `core`, and
            `factors`), of the same shape
        """
        factored = hasattr(other, "factors")
        if not isinstance(other, SparseTensor) and not factored:
            other = resolve(other=host_array(other, "other"))[1]["other"]
        if tuple(other.shape) != self.shape:
            raise InvalidInputError(
                f"other has shape {tuple(other.shape)}, but the tensor has shape {self.shape}"
            )
        if isinstance(other, SparseTensor):
            return inner_sparse(self._nonzeros, other._nonzeros)
        if factored:
            return self._inner_factored(other)
        return inner_dense(self._nonzeros, other)

    def _inner_factored(self, other: Any) -> Any:
        """The inner product with a CP or Tucker tensor, by contraction with its factors."""
        if hasattr(other, "core"):
            adjoints = (None if f is None else np.conj(f) for f in other.factors)
            return np.sum(other.core * np.conj(self.contract(*adjoints)))
        image = self.mttkrp(list(other.factors), 0)
        return np.sum(other.weights * np.sum(other.factors[0] * np.conj(image), axis=0))

    def unfold_gram(self, mode: int, max_size: int = MAX_SIZE) -> Array:
        """X X^H (d, d) of the mode-`mode` unfolding X, whose eigenvectors the HOSVD takes."""
        return unfold_gram(self._nonzeros, check_mode(mode, self.order), max_size)


def _native(values: Any) -> Any:
    """A copy, as the caller may change theirs, in the byte order that kernels know."""
    return values.astype(values.dtype.newbyteorder("="))
