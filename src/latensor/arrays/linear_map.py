"""A matrix known through its products: dense, SciPy sparse or a SciPy LinearOperator.

The factorizations ask a matrix only for M B and M' B, so that sparse data is never made dense and
an operator never needs its entries.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator

from latensor.arrays.checks import refuse_nonfinite, require_matrix
from latensor.arrays.library import COMPUTABLE, Array, is_complex, resolve
from latensor.exceptions import InvalidInputError


class LinearMap(Protocol):
    """A (n, m) matrix M known through its products with blocks of vectors."""

    @property
    def shape(self) -> tuple[int, int]:
        """The pair (n, m)."""

    @property
    def reference(self) -> Array:
        """An array with the library, device and dtype of the products."""

    def matmul(self, block: Array) -> Array:
        """M B for a block B of shape (m, width)."""

    def adjoint_matmul(self, block: Array) -> Array:
        """M' B for a block B of shape (n, width), M' being the conjugate transpose."""

    def adjoint(self) -> LinearMap:
        """M' as a map."""

    def to_dense(self) -> Array:
        """M as a dense array."""

    def gram(self) -> Array | None:
        """M' M as a dense (m, m) array, or None where it can only be had by products."""


def conjugate_transpose(matrix: Array) -> Array:
    """M' for a dense matrix of any library; a view where the matrix is real."""
    transposed = matrix.T
    return transposed.conj() if is_complex(transposed) else transposed


class DenseMap:
    """A dense matrix of any array library."""

    def __init__(self, matrix: Array) -> None:
        self.reference = matrix
        self.shape: tuple[int, int] = tuple(matrix.shape)

    def matmul(self, block: Array) -> Array:
        """M B."""
        return self.reference @ block

    def adjoint_matmul(self, block: Array) -> Array:
        """M' B."""
        return conjugate_transpose(self.reference) @ block

    def adjoint(self) -> DenseMap:
        """M' as a map."""
        return DenseMap(conjugate_transpose(self.reference))

    def to_dense(self) -> Array:
        """M itself."""
        return self.reference

    def gram(self) -> Array:
        """M' M."""
        return conjugate_transpose(self.reference) @ self.reference


class CenteredMap:
    """A dense matrix X minus 1 m', without a copy: for means that are small beside the spread.

    Where they are not, digits cancel in the products, and the difference should be formed.
    """

    def __init__(self, matrix: Array, mean: Array, turned: bool = False) -> None:
        self.reference = matrix
        self._mean = mean
        self._turned = turned
        rows, columns = matrix.shape
        self.shape: tuple[int, int] = (columns, rows) if turned else (rows, columns)

    def matmul(self, block: Array) -> Array:
        """M B."""
        return self._backward(block) if self._turned else self._forward(block)

    def adjoint_matmul(self, block: Array) -> Array:
        """M' B."""
        return self._forward(block) if self._turned else self._backward(block)

    def _forward(self, block: Array) -> Array:
        return self.reference @ block - self._mean @ block

    def _backward(self, block: Array) -> Array:
        return self.reference.T @ block - self._mean[:, None] * block.sum(0)

    def adjoint(self) -> CenteredMap:
        """M' as a map."""
        return CenteredMap(self.reference, self._mean, not self._turned)

    def to_dense(self) -> Array:
        """M as a new array."""
        centered = self.reference - self._mean
        return centered.T if self._turned else centered

    def gram(self) -> Array:
        """M' M."""
        if self._turned:
            dense = self.to_dense()
            return dense.T @ dense
        scatter = self.reference.T @ self.reference
        scatter -= self.reference.shape[0] * self._mean[:, None] * self._mean
        return scatter


class SparseMap:
    """A SciPy sparse matrix or array; blocks and products are NumPy arrays."""

    def __init__(self, matrix: Any, adjoint: Any = None) -> None:
        self._matrix = matrix
        # The transpose of a CSR matrix is a CSC view of the same numbers: kept, not copied.
        self._adjoint = matrix.conj().T if adjoint is None else adjoint
        self.reference = np.empty(0, dtype=matrix.dtype)
        self.shape: tuple[int, int] = matrix.shape

    def matmul(self, block: Array) -> Array:
        """M B."""
        return np.asarray(self._matrix @ block)

    def adjoint_matmul(self, block: Array) -> Array:
        """M' B."""
        return np.asarray(self._adjoint @ block)

    def adjoint(self) -> SparseMap:
        """M' as a map."""
        return SparseMap(self._adjoint, self._matrix)

    def to_dense(self) -> Array:
        """M as a NumPy array."""
        return self._matrix.toarray()

    def gram(self) -> Array:
        """M' M, by a sparse product."""
        return (self._adjoint @ self._matrix).toarray()


class OperatorMap:
    """A SciPy LinearOperator; blocks and products are NumPy arrays."""

    def __init__(self, operator: LinearOperator, name: str, dtype: Any) -> None:
        self._operator = operator
        self._name = name
        self.reference = np.empty(0, dtype=dtype)
        self.shape: tuple[int, int] = tuple(operator.shape)

    def matmul(self, block: Array) -> Array:
        """M B."""
        return self._checked(np.asarray(self._operator.matmat(block)))

    def adjoint_matmul(self, block: Array) -> Array:
        """M' B."""
        try:
            product = self._operator.rmatmat(block)
        except (NotImplementedError, TypeError) as error:
            raise InvalidInputError(
                f"{self._name} is a LinearOperator without rmatvec: "
                "give it one, the product with the conjugate transpose is needed"
            ) from error
        return self._checked(np.asarray(product))

    def _checked(self, product: Array) -> Array:
        if not np.isfinite(product.sum()):
            refuse_nonfinite(product, f"a product with {self._name}")
        return product.astype(self.reference.dtype, copy=False)

    def adjoint(self) -> OperatorMap:
        """M' as a map."""
        return OperatorMap(self._operator.adjoint(), self._name, self.reference.dtype)

    def to_dense(self) -> Array:
        """M as a NumPy array, by products with the identity of its shorter side."""
        rows, columns = self.shape
        if columns <= rows:
            return self.matmul(np.eye(columns, dtype=self.reference.dtype))
        return self.adjoint_matmul(np.eye(rows, dtype=self.reference.dtype)).conj().T

    def gram(self) -> None:
        """None: the operator's entries are not known."""
        return


def as_linear_map(matrix: object, name: str) -> LinearMap:
    """What the caller brought as a map, with integers made floating and bad numbers refused.

    Parameters
    ----------
    matrix : (n, m) array of any library, nested lists, SciPy sparse or LinearOperator
    name : str, what error messages call the argument
    """
    if isinstance(matrix, CenteredMap):
        return matrix
    if isinstance(matrix, LinearOperator):
        _require_shape(matrix.shape, name)
        return OperatorMap(matrix, name, _floating_dtype(matrix.dtype, name))
    if scipy.sparse.issparse(matrix):
        return SparseMap(as_sparse(matrix, name))
    _, arrays = resolve(**{name: matrix})
    require_matrix(arrays[name], name)
    refuse_nonfinite(arrays[name], name)
    return DenseMap(arrays[name])


def as_sparse(matrix: Any, name: str) -> Any:
    """A SciPy sparse matrix in floating CSR or CSC form, its numbers checked."""
    if matrix.ndim != 2:
        raise InvalidInputError(
            f"{name} must be a matrix (2 axes), got a sparse array of shape {matrix.shape}"
        )
    _require_shape(matrix.shape, name)
    dtype = _floating_dtype(matrix.dtype, name)
    if matrix.format not in ("csr", "csc"):
        matrix = matrix.tocsr()
    refuse_nonfinite(matrix.data, f"{name} (its stored values)")
    return matrix.astype(dtype, copy=False)


def _require_shape(shape: tuple[int, ...], name: str) -> None:
    if 0 in shape:
        raise InvalidInputError(f"{name} is empty: shape {tuple(shape)}")


def _floating_dtype(dtype: Any, name: str) -> Any:
    found = np.dtype(dtype)
    if found.kind in "biu":
        return np.dtype(np.float64)
    if found.name not in COMPUTABLE:
        raise InvalidInputError(
            f"{name} has dtype {found.name}: "
            "convert it to float32, float64, complex64 or complex128"
        )
    return found
