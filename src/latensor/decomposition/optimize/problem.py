"""What a fit asks of a tensor: mttkrps while the factors change, its squared norm, its loss.

`DenseProblem` is a NumPy array of any size (a compressed core or the tensor itself) and the fast
path; `ContractibleProblem` is anything else that can be contracted (sparse, factored, implicit,
or an array of another library on its own device). Both hold factors transposed, (rank, d).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any, Protocol

import numpy as np

from latensor.arrays import Array, is_complex, is_numpy, like, machine_epsilon, to_host
from latensor.decomposition.optimize.solves import hadamard_of_others, solve_gram
from latensor.tensors.contractible import Contractible, Sweep
from latensor.tensors.dense import DenseTensor


class Products(Protocol):
    """The mttkrps of a tensor with factors that are replaced one by one."""

    def mttkrp(self, mode: int) -> Array:
        """The (rank, d_mode) product of the unfolding with the other factors."""

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""


class Problem(Protocol):
    """Entries to be fitted: those of a whole tensor, or observed ones."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""

    @property
    def epsilon(self) -> float:
        """The rounding error of the entries."""

    @property
    def squared_norm(self) -> float:
        """The squared Frobenius norm of the tensor."""

    def products(self, factors: Sequence[Array]) -> Products:
        """Mttkrps that start from `factors`."""

    def gram(self, factor: Array) -> Array:
        """The (rank, rank) Gram matrix of a factor, on the host."""

    def gamma(self, products: Any, grams: Sequence[Array], mode: int) -> Array:
        """The matrix of the normal equations of one factor; one per row over observed entries."""

    def solve(self, gamma: Array, right: Array, ridge: float) -> Array:
        """The least-squares factor from its normal equations."""

    def loss(
        self, factors: Sequence[Array], grams: Sequence[Array], product: Array, mode: int
    ) -> float:
        """The squared residual, from the Grams and the mttkrp of one mode."""

    def explicit_loss(self, factors: Sequence[Array]) -> float | None:
        """The squared residual entry by entry, free of cancellation; None where unaffordable."""

    def native(self, factor: Array) -> Array:
        """A host factor as the problem wants it: of the tensor's library, on its device."""


class CompleteProblem(Problem, Protocol):
    """A whole tensor to be fitted, which can also be compressed."""

    def project(self, bases: Sequence[Array | None]) -> Array:
        """The tensor in coordinates of transposed bases (r, d), on the host in double precision."""


def gram_loss(
    problem: Any, factors: Sequence[Array], grams: Sequence[Array], product: Array, mode: int
) -> float:
    """|T|^2 - 2 <T, M> + |M|^2, entry by entry where that difference loses half its digits."""
    model = grams[0].real.copy() if len(grams) == 1 else np.multiply(grams[0], grams[1])
    for gram in grams[2:]:
        model = model * gram
    total = problem.squared_norm
    loss = total - 2.0 * problem.inner(product, factors[mode]) + float(model.sum().real)
    if loss < problem.epsilon**0.5 * total:
        explicit = problem.explicit_loss(factors)
        loss = max(loss, 0.0) if explicit is None else explicit
    return float(loss)


class _Complete:
    """What problems without missing entries share: normal equations and loss from the Grams."""

    def gamma(self, products: Products, grams: Sequence[Array], mode: int) -> Array:
        """The Hadamard product of the other Grams."""
        return hadamard_of_others(grams, mode)

    def loss(
        self, factors: Sequence[Array], grams: Sequence[Array], product: Array, mode: int
    ) -> float:
        """The squared residual, from the Grams and the mttkrp of one mode."""
        return gram_loss(self, factors, grams, product, mode)


class DenseProblem(_Complete):
    """A NumPy array as a problem: two matrix products with the array per sweep.

    The modes are split in two groups. Contracting the trailing modes gives a partial result from
    which the mttkrps of the first group follow; contracting the leading ones, those of the second.

    Parameters
    ----------
    tensor : array of any order, float32, float64 or complex, C-contiguous
    squared_norm : float, where it is already known
    """

    def __init__(self, tensor: Array, squared_norm: float | None = None) -> None:
        self.tensor = tensor
        self.shape: tuple[int, ...] = tensor.shape
        self.epsilon = float(np.finfo(tensor.dtype).eps)
        self._complex = tensor.dtype.kind == "c"
        if squared_norm is not None:
            self.squared_norm = squared_norm
        self.split, self.prefix = _cheapest_split(self.shape)
        self._by_suffix = tensor.reshape(prod(self.shape[: self.split]), -1)
        self._by_prefix = tensor.reshape(prod(self.shape[: self.prefix]), -1)

    @cached_property
    def squared_norm(self) -> float:
        """The squared Frobenius norm of the tensor."""
        return squared_norm(self.tensor)

    def products(self, factors: Sequence[Array]) -> Products:
        """Mttkrps that start from `factors`."""
        return _DenseProducts(self, factors)

    def gram(self, factor: Array) -> Array:
        """The (rank, rank) Gram matrix of a factor."""
        return factor @ factor.conj().T

    def solve(self, gamma: Array, right: Array, ridge: float) -> Array:
        """The least-squares factor from its normal equations."""
        return solve_gram(gamma, right, ridge)

    def inner(self, left: Array, right: Array) -> float:
        """The real part of the inner product of two arrays of factor shape."""
        return float(np.vdot(left, right).real)

    def explicit_loss(self, factors: Sequence[Array]) -> float | None:
        """The squared residual entry by entry, free of cancellation."""
        return squared_norm(self.residual(factors))

    def residual(self, factors: Sequence[Array]) -> Array:
        """The tensor minus the model, in double precision."""
        left = row_khatri_rao(factors[: self.split])
        if self.split == len(factors):
            return self.tensor - left.sum(axis=0)
        right = row_khatri_rao(factors[self.split :])
        model = left.T @ right
        return np.subtract(self._by_suffix, model, out=model).reshape(self.shape)

    def native(self, factor: Array) -> Array:
        """The factor as it is."""
        return factor

    def project(self, bases: Sequence[Array | None]) -> Array:
        """The tensor in coordinates of transposed bases (r, d), in double precision."""
        core = self.tensor
        for mode in sorted(range(core.ndim), key=lambda n: -self.shape[n]):
            basis = bases[mode]
            if basis is not None:
                core = multiply_mode(core, basis.conj(), mode)
        return np.ascontiguousarray(widened(core))

    def contract_suffix(self, factors: Sequence[Array]) -> Array:
        """The tensor contracted with the factors after the split: (rank, first modes...)."""
        rows = self._lowered(row_khatri_rao(factors[self.split :]))
        return (rows @ self._by_suffix.T).reshape(-1, *self.shape[: self.split])

    def contract_prefix(self, factors: Sequence[Array]) -> Array:
        """The tensor contracted with the leading factors: (rank, remaining modes...)."""
        rows = self._lowered(row_khatri_rao(factors[: self.prefix]))
        return (rows @ self._by_prefix).reshape(-1, *self.shape[self.prefix :])

    def _lowered(self, rows: Array) -> Array:
        # Products over the whole array run in its own precision; everything small in double.
        return rows.conj().astype(self.tensor.dtype, copy=False)


class _DenseProducts:
    def __init__(self, problem: DenseProblem, factors: Sequence[Array]) -> None:
        self._problem = problem
        self._factors = list(factors)
        self._first: Array | None = None
        self._second: Array | None = None

    def mttkrp(self, mode: int) -> Array:
        problem, factors = self._problem, self._factors
        if mode < problem.split:
            if self._first is None:
                if problem.split == len(factors):
                    rank = factors[0].shape[0]
                    self._first = np.broadcast_to(problem.tensor, (rank, *problem.shape))
                else:
                    self._first = problem.contract_suffix(factors)
            rest, offset = self._first, 0
        else:
            if self._second is None:
                self._second = problem.contract_prefix(factors)
            rest, offset = self._second, problem.prefix
        product = contract_rows(rest, factors[offset : offset + rest.ndim - 1], mode - offset)
        wide = np.complex128 if product.dtype.kind == "c" else np.float64
        return product.astype(wide, copy=False)

    def replace(self, mode: int, factor: Array) -> None:
        self._factors[mode] = factor
        if mode >= self._problem.split:
            self._first = None
        if mode < self._problem.prefix:
            self._second = None


class ContractibleProblem(_Complete):
    """Anything that can be contracted as a problem; work of size d stays where the tensor is.

    Parameters
    ----------
    tensor : what is fitted
    widths : directions per mode that a fit may need of a tensor that offers `projected`; None
        where nothing is known of the fit
    """

    def __init__(self, tensor: Contractible, widths: Sequence[int] | None = None) -> None:
        self.tensor = tensor
        self.widths = widths
        self.shape: tuple[int, ...] = tuple(tensor.shape)
        self.epsilon = machine_epsilon(tensor.reference)
        self._on_host = is_numpy(tensor.reference)

    @cached_property
    def squared_norm(self) -> float:
        """The squared Frobenius norm of the tensor.

        Where that is an estimate, what a fit can reach is exact in it.
        """
        if self.projection is not None and getattr(self.tensor, "is_long", False):
            return float(self.projection.squared_norm)
        return float(self.tensor.norm()) ** 2

    @cached_property
    def projection(self) -> Any:
        """The tensor on its leading subspaces (`MomentTensor.projected`), or None."""
        complex_one = is_complex(self.tensor.reference)
        if self.widths is None or complex_one or not hasattr(self.tensor, "projected"):
            return None
        return self.tensor.projected(self.widths)

    def products(self, factors: Sequence[Array]) -> Products:
        """Mttkrps that start from `factors`."""
        reference = self.tensor.reference
        native = [like(f, reference) if is_numpy(f) else f for f in factors]
        return _TransposedSweep(self.tensor.sweep([f.T for f in native]), self._on_host)

    def gram(self, factor: Array) -> Array:
        """The (rank, rank) Gram matrix of a factor, on the host."""
        if is_numpy(factor):
            return factor @ factor.conj().T
        adjoint = factor.T.conj() if is_complex(factor) else factor.T
        return widened(to_host(factor @ adjoint))

    def solve(self, gamma: Array, right: Array, ridge: float) -> Array:
        """The least-squares factor from its normal equations.

        On another device only the (rank, rank) operator is computed on the host.
        """
        if is_numpy(right):
            return solve_gram(gamma, right, ridge)
        operator = solve_gram(gamma, np.eye(gamma.shape[0], dtype=gamma.dtype), ridge)
        return like(operator, right) @ right

    def inner(self, left: Array, right: Array) -> float:
        """The real part of the inner product of two arrays of factor shape."""
        if is_numpy(right):
            return float(np.vdot(widened(to_host(left)), right).real)
        product = left.conj() * right if is_complex(left) else left * right
        return float(np.sum(widened(to_host(product.sum(1))).real))

    def explicit_loss(self, factors: Sequence[Array]) -> float | None:
        """Entry by entry for dense arrays, on their device; None for all other tensors."""
        if not isinstance(self.tensor, DenseTensor):
            return None
        array = self.tensor.array
        split = _cheapest_split(self.shape)[0]
        factors = [like(f, array) if is_numpy(f) else f for f in factors]
        left = row_khatri_rao(factors[:split])
        if split == len(factors):
            residual = array - left.sum(0)
        else:
            residual = array.reshape(left.shape[1], -1) - left.T @ row_khatri_rao(factors[split:])
        if is_complex(residual):
            residual = abs(residual)
        return float((residual * residual).sum())

    def native(self, factor: Array) -> Array:
        """A host factor as an array of the tensor's library, on its device."""
        return factor if self._on_host else like(factor, self.tensor.reference)

    def project(self, bases: Sequence[Array | None]) -> Array:
        """The tensor in coordinates of transposed bases (r, d), on the host."""
        reference = self.tensor.reference
        operands = [None if u is None else like(u.conj().T, reference) for u in bases]
        return np.ascontiguousarray(widened(to_host(self.tensor.contract(*operands))))


class _TransposedSweep:
    def __init__(self, sweep: Sweep, on_host: bool) -> None:
        self._sweep = sweep
        self._on_host = on_host

    def mttkrp(self, mode: int) -> Array:
        product = self._sweep.mttkrp(mode).T
        return np.ascontiguousarray(widened(product)) if self._on_host else product

    def replace(self, mode: int, factor: Array) -> None:
        self._sweep.replace(mode, factor.T)


def squared_norm(array: Array) -> float:
    """The squared Frobenius norm of a NumPy array, summed in double precision."""
    flat = array.reshape(-1)
    if array.dtype in (np.float64, np.complex128):
        return float(np.vdot(flat, flat).real)
    block = 1 << 16
    wide = (widened(flat[start : start + block]) for start in range(0, flat.size, block))
    return float(sum(np.vdot(part, part).real for part in wide))


def multiply_mode(tensor: Array, rows: Array, mode: int) -> Array:
    """The tensor with `mode` multiplied by a (r, d_mode) matrix; a matrix product, no unfolding."""
    shape = tensor.shape
    rows = rows.astype(tensor.dtype, copy=False)
    new = (*shape[:mode], rows.shape[0], *shape[mode + 1 :])
    if mode == 0:
        return (rows @ tensor.reshape(shape[0], -1)).reshape(new)
    if mode == len(shape) - 1:
        return (tensor.reshape(-1, shape[mode]) @ rows.T).reshape(new)
    left, right = prod(shape[:mode]), prod(shape[mode + 1 :])
    if right < 16:
        # Matrix products this narrow are slower than putting the mode last.
        turned = tensor.reshape(left, shape[mode], right).swapaxes(1, 2).reshape(-1, shape[mode])
        product = (turned @ rows.T).reshape(left, right, rows.shape[0])
        return np.ascontiguousarray(product.swapaxes(1, 2)).reshape(new)
    return np.matmul(rows, tensor.reshape(left, shape[mode], right)).reshape(new)


def row_khatri_rao(factors: Sequence[Array]) -> Array:
    """The (rank, product of d) Khatri-Rao product of transposed factors."""
    result = factors[0]
    for factor in factors[1:]:
        result = (result[:, :, None] * factor[:, None, :]).reshape(result.shape[0], -1)
    return result


def contract_rows(partial: Array, factors: Sequence[Array], mode: int) -> Array:
    """The (rank, d_mode) rows of a (rank, modes...) array contracted with the other factors."""
    rank = partial.shape[0]
    shape = partial.shape[1:]
    for other in range(len(shape) - 1, mode, -1):
        row = factors[other].conj().astype(partial.dtype, copy=False)
        partial = np.matmul(partial.reshape(rank, -1, shape[other]), row[:, :, None])
    for other in range(mode):
        row = factors[other].conj().astype(partial.dtype, copy=False)
        partial = np.matmul(row[:, None, :], partial.reshape(rank, shape[other], -1))
    return partial.reshape(rank, shape[mode])


def _cheapest_split(shape: tuple[int, ...]) -> tuple[int, int]:
    """Where to split the modes so that partial results and Khatri-Rao products are smallest."""
    order = len(shape)
    if order == 1:
        return 1, 1
    best: tuple[float, int, int] = (np.inf, 1, 1)
    for split in range(1, order):
        # Entries of a Khatri-Rao product cost more than those that a matrix product writes.
        suffix = 2.0 * prod(shape[split:]) * (order - split > 1) + prod(shape[:split])
        for prefix in range(1, split + 1):
            leading = 2.0 * prod(shape[:prefix]) * (prefix > 1) + prod(shape[prefix:])
            best = min(best, (suffix + leading, split, prefix))
    return best[1], best[2]


def widened(array: Array) -> Any:
    """A host array in double precision, real or complex."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64, copy=False)
