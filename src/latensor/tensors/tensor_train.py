"""A tensor in tensor-train form: one small core per mode, whatever the order."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from numbers import Number
from pathlib import Path
from typing import Any

import numpy as np

from latensor.arrays import (
    Array,
    Namespace,
    check_finite,
    describe,
    is_complex,
    like,
    machine_epsilon,
    matmul,
    resolve,
    to_host,
)
from latensor.arrays.guests import holds_guests
from latensor.arrays.subspace import thin_svd
from latensor.exceptions import InvalidInputError
from latensor.presentation import Presented
from latensor.tensors.contractible import Sweep
from latensor.tensors.dense import DenseTensor, contract_mode, frobenius
from latensor.tensors.operands import check_factors, check_operands, check_replacement
from latensor.tensors.size import MAX_SIZE, check_size
from latensor.value_files import DECOMPOSITION, storable, write_value


@storable
@holds_guests
@dataclass(frozen=True, eq=False, repr=False)
class TensorTrain(Presented):
    """T[i, j, ..., k] = G_1[i] G_2[j] ... G_N[k], a product of matrices (Oseledets 2011).

    The memory is linear in the order, and sums, products, norms and contractions cost no more
    than the cores; `round` brings the ranks down again after them.

    Parameters
    ----------
    cores : one (r_left, d, r_right) array per mode; neighbours share a rank, the outer ones are 1
    residual : float, the relative error with which the train was fitted; None where not known

    Iterates over the cores, as TensorLy's `TTTensor` does.

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> train = lt.tensor_train(np.ones((3, 4, 5)), ranks=1)
    >>> train.shape, train.ranks
    ((3, 4, 5), (1, 1))
    """

    cores: tuple[Array, ...]
    residual: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.cores, list | tuple) or not self.cores:
            raise InvalidInputError("cores must be a sequence of at least one array of order 3")
        named = {f"cores[{m}]": core for m, core in enumerate(self.cores)}
        for name, core in named.items():
            if core is None:
                raise InvalidInputError(f"{name} is None: an array of order 3 is needed")
        _, arrays = resolve(**named)
        cores = tuple(arrays[name] for name in named)
        left = 1
        for m, core in enumerate(cores):
            if core.ndim != 3 or 0 in core.shape or int(core.shape[0]) != left:
                raise InvalidInputError(
                    f"cores[{m}] must have shape ({left}, dimension, rank), as its left neighbour "
                    f"ends, got {describe(core)}"
                )
            left = int(core.shape[2])
        if left != 1:
            raise InvalidInputError(f"the last core must end with rank 1, not {left}")
        object.__setattr__(self, "cores", cores)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.cores)

    def __len__(self) -> int:
        return len(self.cores)

    def __getitem__(self, index: int) -> Any:
        return self.cores[index]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write it into a file that `lt.load` reads, without pickle.

        Parameters
        ----------
        path : file to write; an interrupted run leaves the old one or none
        """
        return write_value(path, self, DECOMPOSITION)

    def __repr__(self) -> str:
        shape = " x ".join(str(d) for d in self.shape)
        ranks = ", ".join(str(r) for r in self.ranks)
        kind = describe(self.reference).split(", shape")[0]
        error = "" if self.residual is None else f", residual {self.residual:.4g}"
        return f"TensorTrain({shape}, ranks ({ranks}){error}, {kind})"

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimension of every mode."""
        return tuple(int(core.shape[1]) for core in self.cores)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks between neighbours, one less than there are modes."""
        return tuple(int(core.shape[2]) for core in self.cores[:-1])

    @property
    def order(self) -> int:
        """The number of modes."""
        return len(self.cores)

    @property
    def n_entries(self) -> int:
        """How many numbers the cores hold."""
        return sum(prod(core.shape) for core in self.cores)

    @property
    def reference(self) -> Array:
        """The first core: its library, device and dtype are the tensor's."""
        return self.cores[0]

    @property
    def _namespace(self) -> Namespace:
        return resolve(core=self.cores[0])[0]

    def contract(self, *operands: Array | None) -> Array:
        """The multilinear form T(A, B, C); see `Contractible.contract`."""
        xp = self._namespace
        given = check_operands(operands, self.shape, self.reference)
        kept: list[Array] = []
        # Modes that are summed away leave a matrix, which goes into the core before it at once.
        pending: Array = None
        for core, operand in zip(self.cores, given, strict=True):
            part = core if operand is None else contract_mode(xp, core, operand, 1)
            if part.ndim == 3:
                kept.append(
                    part if pending is None else contract_mode(xp, part, _turned(xp, pending), 0)
                )
                pending = None
            elif kept:
                kept[-1] = contract_mode(xp, kept[-1], part, 2)
            else:
                pending = part if pending is None else matmul(xp, pending, part)
        if not kept:
            assert pending is not None
            return check_finite(pending[0, 0], cores=self.cores, operands=given)
        result = _joined(xp, kept)
        return check_finite(result, cores=self.cores, operands=given)

    def mttkrp(self, factors: Sequence[Array], mode: int) -> Array:
        """Unfolding times Khatri-Rao product, core by core; see `Contractible.mttkrp`."""
        xp = self._namespace
        mode, given = check_factors(factors, self.shape, mode, self.reference)
        if self.order == 1:
            rank = int(given[0].shape[1]) if given[0] is not None else 1
            return xp.concat([xp.reshape(self.cores[0], (-1, 1))] * rank, axis=1)
        rank = next(int(f.shape[1]) for f in given if f is not None)
        left, right = _ones(xp, rank, self.reference), _ones(xp, rank, self.reference)
        for core, factor in zip(self.cores[:mode], given[:mode], strict=True):
            left = _advance(xp, left, core, factor)
        for core, factor in zip(self.cores[:mode:-1], given[:mode:-1], strict=True):
            right = _advance(xp, right, xp.permute_dims(core, (2, 1, 0)), factor)
        result = _between(xp, left, self.cores[mode], right)
        return check_finite(result, cores=self.cores, factors=given)

    def norm(self) -> Any:
        """The Frobenius norm, by orthogonalizing the cores: small norms keep their digits."""
        xp = self._namespace
        last = self._orthogonal(xp)[-1]
        return check_finite(frobenius(xp, last), cores=self.cores)

    def sweep(self, factors: Sequence[Array]) -> Sweep:
        """Mttkrps for all modes; what stands left and right of a mode is kept."""
        return _TrainSweep(self, factors)

    def to_dense(self, max_size: int = MAX_SIZE) -> Array:
        """The tensor with all its entries, refused where there are more than `max_size`."""
        check_size(self.shape, self.reference.dtype, max_size, "the dense array")
        return self.contract(*([None] * self.order))

    def entries(self, coordinates: Any) -> Array:
        """The entries at (n, order) integer coordinates, without forming any other."""
        xp = self._namespace
        indices = np.asarray(to_host(coordinates) if hasattr(coordinates, "dtype") else coordinates)
        if indices.ndim != 2 or indices.shape[1] != self.order or indices.dtype.kind not in "iu":
            raise InvalidInputError(
                f"coordinates must be integers of shape (n, {self.order}), got {indices.dtype} of "
                f"shape {indices.shape}"
            )
        for m, d in enumerate(self.shape):
            if indices.size and not (-d <= indices[:, m].min() and indices[:, m].max() < d):
                raise InvalidInputError(f"coordinates leave mode {m}, of dimension {d}")
        indices = np.where(indices < 0, indices + np.array(self.shape), indices)
        rows: Array = None
        for m, core in enumerate(self.cores):
            chosen = xp.take(xp.permute_dims(core, (1, 0, 2)), like(indices[:, m], core), axis=0)
            rows = chosen if rows is None else matmul(xp, rows, chosen)
        return rows[:, 0, 0]

    def inner(self, other: Any) -> Any:
        """The inner product <self, other>: the sum of conj(self) other over all entries.

        `other` is a TensorTrain, a dense array, a SparseTensor or anything that contracts.
        """
        from latensor.tensors.conversion import as_contractible
        from latensor.tensors.sparse import SparseTensor

        xp = self._namespace
        tensor = as_contractible(other, "other")
        if tuple(tensor.shape) != self.shape:
            raise InvalidInputError(
                f"other has shape {tuple(tensor.shape)}, but the tensor train {self.shape}"
            )
        if isinstance(tensor, SparseTensor):
            values = like(tensor.values, self.reference)
            return xp.sum(_conj(xp, self.entries(tensor.coordinates)) * values)
        if not isinstance(tensor, TensorTrain):
            if not isinstance(tensor, DenseTensor):
                tensor = DenseTensor(tensor.contract(*([None] * self.order)))
            rest = xp.reshape(tensor.array, (1, -1))
            for core in self.cores:
                left, d, right = core.shape
                columns = _conj(xp, xp.permute_dims(xp.reshape(core, (left * d, right)), (1, 0)))
                rest = matmul(xp, columns, xp.reshape(rest, (left * d, -1)))
            return rest[0, 0]
        total: Array = None
        for mine, theirs in zip(self.cores, tensor.cores, strict=True):
            mine = _conj(xp, mine)
            if total is not None:
                mine = contract_mode(xp, mine, total, 0)  # (r', d, right)
            left, d, right = mine.shape
            flat = xp.permute_dims(xp.reshape(mine, (left * d, right)), (1, 0))
            product = matmul(xp, flat, xp.reshape(theirs, (left * d, -1)))
            total = product
        return total[0, 0]

    def round(
        self, error: float | None = None, ranks: int | Sequence[int] | None = None
    ) -> TensorTrain:
        """A train of lower ranks, within a relative error or with given ranks.

        Every cut may cost error |T| / sqrt(order - 1) and takes the smallest rank that does, so
        that all of them together keep the promise.

        Parameters
        ----------
        error : float in [0, 1), the largest |T - T~| / |T|
        ranks : int or one int per cut, an upper bound on the ranks
        """
        if error is None and ranks is None:
            raise InvalidInputError("give error, a relative error in [0, 1), or ranks, or both")
        if error is not None and not (isinstance(error, Number) and 0.0 <= error < 1.0):
            raise InvalidInputError(f"error={error!r} must be a number in [0, 1)")
        largest = check_ranks(ranks, self.shape)
        xp = self._namespace
        # From the right, so that the cuts from the left see an orthonormal rest.
        reversed_cores = tuple(xp.permute_dims(core, (2, 1, 0)) for core in self.cores[::-1])
        turned = TensorTrain(reversed_cores)._orthogonal(xp)
        cores = [xp.permute_dims(core, (2, 1, 0)) for core in turned[::-1]]
        norm = float(to_host(frobenius(xp, cores[0])))
        # What rounding adds to a core is never kept, whatever the error asked for.
        least = machine_epsilon(self.reference)
        allowance = (
            0.0 if error is None else max(float(error) / (self.order - 1 or 1) ** 0.5, least)
        )
        lost = 0.0
        for m in range(self.order - 1):
            left, d, _ = cores[m].shape
            basis, values, other = thin_svd(xp.reshape(cores[m], (left * d, -1)))
            sizes = np.asarray(to_host(values), dtype=np.float64)
            scale = norm if norm > 0 else 1.0
            tails = np.append(np.cumsum((sizes[::-1] / scale) ** 2)[::-1], 0.0)
            keep = int(np.argmax(tails <= allowance**2))
            keep = max(1, int(min(keep, largest[m])))
            lost += float(tails[keep])
            cores[m] = xp.reshape(basis[:, :keep], (left, d, keep))
            rest = values[:keep, None] * _conj(xp, xp.permute_dims(other[:, :keep], (1, 0)))
            cores[m + 1] = contract_mode(xp, cores[m + 1], _turned(xp, rest), 0)
        return TensorTrain(tuple(cores), float(lost**0.5))

    def _orthogonal(self, xp: Namespace) -> list[Array]:
        """Cores of the same tensor, all but the last with orthonormal columns as (r d, r)."""
        cores = list(self.cores)
        for m in range(self.order - 1):
            left, d, right = cores[m].shape
            basis, triangle = xp.linalg.qr(xp.reshape(cores[m], (left * d, right)))
            cores[m] = xp.reshape(basis, (left, d, -1))
            cores[m + 1] = contract_mode(xp, cores[m + 1], _turned(xp, triangle), 0)
        return cores

    def __add__(self, other: object) -> TensorTrain:
        if not isinstance(other, TensorTrain):
            return NotImplemented
        self._require_shape(other)
        xp = self._namespace
        if self.order == 1:
            return TensorTrain((self.cores[0] + other.cores[0],))
        cores = []
        for m, (a, b) in enumerate(zip(self.cores, other.cores, strict=True)):
            if m == 0:
                cores.append(xp.concat([a, b], axis=2))
            elif m == self.order - 1:
                cores.append(xp.concat([a, b], axis=0))
            else:
                d = int(a.shape[1])
                above = like(np.zeros((int(a.shape[0]), d, int(b.shape[2]))), a)
                below = like(np.zeros((int(b.shape[0]), d, int(a.shape[2]))), a)
                rows = [xp.concat([a, above], axis=2), xp.concat([below, b], axis=2)]
                cores.append(xp.concat(rows, axis=0))
        return TensorTrain(tuple(cores))

    def __sub__(self, other: object) -> TensorTrain:
        if not isinstance(other, TensorTrain):
            return NotImplemented
        return self + (-1.0) * other

    def __neg__(self) -> TensorTrain:
        return (-1.0) * self

    def __mul__(self, other: object) -> TensorTrain:
        """By a number, or entry by entry by another train, whose ranks multiply."""
        if isinstance(other, TensorTrain):
            self._require_shape(other)
            xp = self._namespace
            cores = []
            for a, b in zip(self.cores, other.cores, strict=True):
                product = a[:, None, :, :, None] * b[None, :, :, None, :]
                shape = (a.shape[0] * b.shape[0], a.shape[1], a.shape[2] * b.shape[2])
                cores.append(xp.reshape(product, shape))
            return TensorTrain(tuple(cores))
        if isinstance(other, Number):
            return TensorTrain((*self.cores[:-1], self.cores[-1] * other))
        return NotImplemented

    __rmul__ = __mul__

    def _require_shape(self, other: TensorTrain) -> None:
        if other.shape != self.shape:
            raise InvalidInputError(f"shapes differ: {self.shape} and {other.shape}")

    def to_tensorly(self) -> Any:
        """The same tensor as `tensorly.tt_tensor.TTTensor` (imports TensorLy)."""
        from tensorly.tt_tensor import TTTensor

        return TTTensor(list(self.cores))


class _TrainSweep:
    """Mttkrps that share the products of the cores left and right of a mode."""

    def __init__(self, train: TensorTrain, factors: Sequence[Array]) -> None:
        self._train = train
        self._xp = train._namespace
        self._factors: list[Any] = check_factors(factors, train.shape, None, train.reference)[1]
        order, rank = train.order, int(self._factors[0].shape[1])
        one = _ones(self._xp, rank, train.reference)
        self._left: list[Array | None] = [one, *([None] * (order - 1))]
        self._right: list[Array | None] = [*([None] * (order - 1)), one]

    def mttkrp(self, mode: int) -> Array:
        """The mttkrp of `mode` with the current factors of the other modes."""
        from latensor.arrays import check_mode

        cores, xp = self._train.cores, self._xp
        mode = check_mode(mode, len(cores))
        for m in range(mode):
            if self._left[m + 1] is None:
                self._left[m + 1] = _advance(xp, self._left[m], cores[m], self._factors[m])
        for m in range(len(cores) - 1, mode, -1):
            if self._right[m - 1] is None:
                turned = xp.permute_dims(cores[m], (2, 1, 0))
                self._right[m - 1] = _advance(xp, self._right[m], turned, self._factors[m])
        result = _between(xp, self._left[mode], cores[mode], self._right[mode])
        return check_finite(result, cores=cores, factors=self._factors)

    def replace(self, mode: int, factor: Array) -> None:
        """Use `factor` for `mode` from now on."""
        mode, factor = check_replacement(mode, factor, self._factors)
        self._factors[mode] = factor
        for m in range(mode + 1, len(self._left)):
            self._left[m] = None
        for m in range(mode):
            self._right[m] = None


def check_ranks(ranks: object, shape: tuple[int, ...]) -> list[float]:
    """The largest rank of every cut; TensorLy's list with a one at both ends is understood."""
    cuts = len(shape) - 1
    if ranks is None:
        return [np.inf] * cuts
    if isinstance(ranks, int | np.integer) and not isinstance(ranks, bool):
        given: list[Any] = [ranks] * cuts
    elif isinstance(ranks, list | tuple | np.ndarray):
        given = list(ranks)
        if len(given) == cuts + 2 and given[0] == given[-1] == 1:
            given = given[1:-1]
    else:
        raise InvalidInputError(f"ranks={ranks!r} must be an integer, or one per cut")
    if len(given) != cuts:
        raise InvalidInputError(
            f"ranks={ranks!r} has {len(given)} entries for a tensor of order {len(shape)}: give "
            f"{cuts}, one per cut between neighbouring modes, or a single number for all"
        )
    for i, rank in enumerate(given):
        if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
            raise InvalidInputError(f"ranks[{i}]={rank!r} must be an integer of at least 1")
    return [float(rank) for rank in given]


def _turned(xp: Namespace, matrix: Array) -> Array:
    return xp.permute_dims(matrix, (1, 0))


def _conj(xp: Namespace, array: Array) -> Array:
    return xp.conj(array) if is_complex(array) else array


def _ones(xp: Namespace, rank: int, reference: Array) -> Array:
    return like(np.ones((rank, 1)), reference)


def _joined(xp: Namespace, cores: Sequence[Array]) -> Array:
    """The product of cores (1, k, r), (r, k', r'), ..., (r, k, 1) as one array, from the left."""
    shape = tuple(int(core.shape[1]) for core in cores)
    total = xp.reshape(cores[0], (-1, cores[0].shape[2]))
    for core in cores[1:]:
        total = matmul(xp, total, xp.reshape(core, (core.shape[0], -1)))
        total = xp.reshape(total, (-1, core.shape[2]))
    return xp.reshape(total, shape)


def _advance(xp: Namespace, rows: Array, core: Array, factor: Array) -> Array:
    """(rank, r') rows that have passed a core (r, d, r') contracted with a (d, rank) factor."""
    left, d, right = core.shape
    flat = xp.reshape(xp.permute_dims(core, (1, 0, 2)), (d, left * right))
    seen = matmul(xp, _conj(xp, _turned(xp, factor)), flat)
    return matmul(xp, rows[:, None, :], xp.reshape(seen, (-1, left, right)))[:, 0, :]


def _between(xp: Namespace, left: Array, core: Array, right: Array) -> Array:
    """The (d, rank) mttkrp of a core between the rows of its left and right side."""
    r, d, s = core.shape
    seen = xp.reshape(matmul(xp, left, xp.reshape(core, (r, d * s))), (-1, d, s))
    return _turned(xp, matmul(xp, seen, right[:, :, None])[:, :, 0])
