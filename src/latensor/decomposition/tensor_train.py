"""`tensor_train`: a tensor of many modes as a chain of small cores, to a guaranteed error.

TT-SVD (Oseledets 2011): the tensor, folded into a matrix with the first mode as rows, is cut to
its leading directions; what they hold goes on to the next mode. The cuts are orthogonal
projections of what the ones before have left, so that the squared errors add up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from latensor.arrays import (
    Array,
    Namespace,
    RandomState,
    generator,
    like,
    machine_epsilon,
    standard_normal,
    to_host,
)
from latensor.arrays.guests import with_guests
from latensor.arrays.linear_map import conjugate_transpose
from latensor.arrays.subspace import orthonormal
from latensor.decomposition.scale import rescaled as rescaled_tensor
from latensor.decomposition.setup import as_tensor
from latensor.decomposition.subspace.mode_directions import (
    RESOLVED,
    Directions,
    leading_directions,
)
from latensor.decomposition.tucker.compression import orthonormal_form
from latensor.decomposition.tucker.orthogonal import rescaled, squared_norm
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor, contract_mode, frobenius
from latensor.tensors.tensor_train import TensorTrain, check_ranks
from latensor.tensors.tucker import TuckerTensor

# A range finder pays off where the shorter side is this many times the directions it keeps, ten
# more than asked for, and longer than a side whose Gram matrix costs next to nothing.
_LONG, _MORE, _SMALL = 8, 10, 512
# It is improved by subspace iteration while that lowers what it misses by this fraction.
_POWER_STEPS, _WORTH_ANOTHER = 6, 1e-3
# The first width tried where the error decides about the rank.
_FIRST_WIDTH = 22


@with_guests
def tensor_train(
    tensor: object,
    ranks: int | Sequence[int] | None = None,
    error: float | None = None,
    *,
    random_state: RandomState = 0,
) -> TensorTrain:
    """A tensor of any order as a train of cores T[i, j, ..., k] = G_1[i] G_2[j] ... G_N[k].

    Parameters
    ----------
    tensor : array of any library, sparse tensor (made dense, within `lt.SparseTensor.to_dense`'s
        limit), CPTensor or TuckerTensor (never formed), or TensorTrain (rounded)
    ranks : int for all cuts between neighbouring modes, or one int per cut (TensorLy's list with
        a one at both ends is understood); ranks that a cut cannot have are lowered
    error : float in (0, 1), the largest relative error |T - T~| / |T|, in place of `ranks`: each
        of the N - 1 cuts may cost error |T| / sqrt(N - 1), what it leaves goes to the next, and the
        result keeps the promise. With `ranks` too these are upper bounds, and win
    random_state : int, Generator or None, for the random directions through which a large
        unfolding is seen where few directions of it are kept

    Returns
    -------
    TensorTrain with `residual`. All cores but the last have orthonormal columns.

    Examples
    --------
    >>> import numpy as np, latensor as lt
    >>> grid = np.linspace(0, 1, 12)
    >>> wave = np.sin(np.add.outer(np.add.outer(np.add.outer(grid, grid), grid), grid))
    >>> lt.tensor_train(wave, error=1e-8).ranks
    (2, 2, 2)
    """
    if ranks is None and error is None:
        raise InvalidInputError(
            "give ranks, an int or one per cut, or error, a relative error in (0, 1)"
        )
    if error is not None and not (
        isinstance(error, float | np.floating) and 0.0 < float(error) < 1.0
    ):
        raise InvalidInputError(f"error={error!r} must be a number in (0, 1)")
    data = as_tensor(tensor)
    shape = tuple(int(d) for d in data.shape)
    largest = check_ranks(ranks, shape)
    if isinstance(data, CPTensor | TensorTrain):
        near_one, scale = rescaled_tensor(data)
        if isinstance(near_one, CPTensor):
            near_one = _train_of_components(near_one)
        assert isinstance(near_one, TensorTrain)
        train = near_one.round(error, None if ranks is None else [int(r) for r in largest])
        if scale == 1.0:
            return train
        return TensorTrain((*train.cores[:-1], train.cores[-1] * scale), train.residual)
    if isinstance(data, TuckerTensor):
        return _train_of_tucker(data, ranks, error, random_state)
    if not isinstance(data, DenseTensor):
        if not hasattr(data, "to_dense"):
            raise InvalidInputError(
                f"tensor is a {type(data).__name__}, whose entries cannot be formed: give a dense "
                "array, or its CP or Tucker decomposition"
            )
        data = DenseTensor(data.to_dense())
    xp = data.namespace
    source, energy, scale = rescaled(xp, data)
    assert isinstance(source, DenseTensor)
    if energy == 0.0:
        zeros = tuple(like(np.zeros((1, d, 1)), data.array) for d in shape)
        return TensorTrain(zeros, 0.0)
    budget = None if error is None else float(error) ** 2 * energy
    cores, loss = _cut(xp, source.array, largest, budget, energy, generator(random_state))
    cores[-1] = cores[-1] * scale
    train = TensorTrain(tuple(cores))
    if loss < machine_epsilon(data.array) ** 0.5 * energy:
        # A difference of energies has lost half of its digits: entry by entry.
        missed = source.array - train.to_dense() / scale
        loss = float(to_host(frobenius(xp, missed))) ** 2
    return TensorTrain(train.cores, float(np.sqrt(loss / energy)))


def _cut(
    xp: Namespace,
    array: Array,
    largest: Sequence[float],
    budget: float | None,
    energy: float,
    rng: np.random.Generator,
) -> tuple[list[Array], float]:
    """The cores, and the energy that they miss."""
    shape = tuple(int(d) for d in array.shape)
    cores: list[Array] = []
    # What the cuts discard is summed, not found as a difference of energies, which rounds.
    rank, rest, spent = 1, array, 0.0
    for m in range(len(shape) - 1):
        rest = xp.reshape(rest, (rank * shape[m], -1))
        bound = int(min(largest[m], *rest.shape))
        allowed = None if budget is None else max(budget - spent, 0.0) / (len(shape) - 1 - m)
        found = _leading(xp, rest, bound, allowed, rng)
        basis, spent = found.basis[:, :bound], spent + found.discarded
        cores.append(xp.reshape(basis, (rank, shape[m], -1)))
        rank = int(basis.shape[1])
        rest = conjugate_transpose(basis) @ rest
    cores.append(xp.reshape(rest, (rank, shape[-1], 1)))
    return cores, max(energy - squared_norm(xp, rest), 0.0)


def _leading(
    xp: Namespace, matrix: Array, bound: int, allowed: float | None, rng: np.random.Generator
) -> Directions:
    """Directions that hold most of a matrix: `bound`, or as few as lose no more than `allowed`."""
    short = min(int(d) for d in matrix.shape)
    if allowed is None:
        if short <= max(_LONG * (bound + _MORE), _SMALL):
            return leading_directions(xp, matrix, 0, rank=bound)
        range_basis = _range(xp, matrix, bound + _MORE, rng)
        inner = leading_directions(xp, conjugate_transpose(range_basis) @ matrix, 0, rank=bound)
        return Directions(range_basis @ inner.basis, inner.discarded)
    energy = squared_norm(xp, matrix)
    width = _FIRST_WIDTH
    while (
        short > max(_LONG * width, _SMALL) and allowed > RESOLVED * machine_epsilon(matrix) * energy
    ):
        range_basis = _range(xp, matrix, width, rng)
        seen = conjugate_transpose(range_basis) @ matrix
        missed = max(energy - squared_norm(xp, seen), 0.0)
        if missed <= 0.5 * allowed:
            found = leading_directions(xp, seen, 0, budget=allowed - missed)
            return Directions(range_basis @ found.basis, missed + found.discarded)
        width *= 2
    return leading_directions(xp, matrix, 0, budget=allowed)


def _range(xp: Namespace, matrix: Array, width: int, rng: np.random.Generator) -> Array:
    """(rows, width) orthonormal columns near the leading left singular vectors of a matrix."""
    basis = orthonormal(matrix @ standard_normal(rng, (int(matrix.shape[1]), width), matrix))
    energy, before = squared_norm(xp, matrix), 0.0
    for _ in range(_POWER_STEPS):
        seen = conjugate_transpose(matrix) @ basis
        held = squared_norm(xp, seen)
        if held - before <= _WORTH_ANOTHER * (energy - held):
            break
        basis, before = orthonormal(matrix @ seen), held
    return basis


def _train_of_components(tensor: CPTensor) -> TensorTrain:
    """A CP tensor as a train of ranks `rank`, exactly: diagonal cores."""
    rank, last = tensor.rank, len(tensor.shape) - 1
    xp = DenseTensor(tensor.weights).namespace
    cores = []
    for m, factor in enumerate(tensor.factors):
        if m == 0:
            core = (factor * tensor.weights[None, :])[None, :, :]
            core = xp.sum(core, axis=2)[:, :, None] if last == 0 else core
        elif m == last:
            core = xp.permute_dims(factor, (1, 0))[:, :, None]
        else:
            eye = like(np.eye(rank), factor)
            core = xp.permute_dims(factor, (1, 0))[:, :, None] * eye[:, None, :]
        cores.append(core)
    return TensorTrain(tuple(cores))


def _train_of_tucker(
    tensor: TuckerTensor,
    ranks: int | Sequence[int] | None,
    error: float | None,
    random_state: RandomState,
) -> TensorTrain:
    """The train of the core, with the factors multiplied into its cores.

    Orthonormal factors change no norm, so that errors of the core are errors of the tensor.
    """
    xp = DenseTensor(tensor.core).namespace
    exact = orthonormal_form(xp, tensor, {})
    if exact is None:
        raise InvalidInputError(
            f"tensor is a TuckerTensor whose core of shape {tensor.ranks} is too large to be cut"
        )
    inner = tensor_train(exact.core, ranks, error, random_state=random_state)
    cores = tuple(
        core if basis is None else contract_mode(xp, core, xp.permute_dims(basis, (1, 0)), 1)
        for core, basis in zip(inner.cores, exact.bases, strict=True)
    )
    return TensorTrain(cores, inner.residual)
