"""From what the caller brought to a problem with starting factors, and back to a result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, check_mode, is_array, is_complex, is_numpy, like, to_host
from latensor.arrays.checks import refuse_nonfinite
from latensor.arrays.gradients import detached
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.optimize.problem import (
    CompleteProblem,
    ContractibleProblem,
    DenseProblem,
    Problem,
    widened,
)
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.subspace.compression import wide_shape
from latensor.exceptions import InvalidInputError, warn_caller
from latensor.tensors.contractible import Contractible
from latensor.tensors.conversion import as_contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor
from latensor.tensors.interoperability import from_pyttb

# Entries up to which a pass over all of them costs next to nothing: residuals of results are
# computed one by one, and starts compared.
CHEAP_ENTRIES = 1 << 17
# Entries up to which all of a decomposition runs on one BLAS thread; above, only the core stages.
ONE_THREAD = 1 << 21
# Entries of the largest factors, all together: 16 GiB of float64, of which a fit holds several.
_LARGEST_FACTORS = 1 << 31


def warn_of_zero(size: float) -> None:
    """Say that there is no signal, where the size of the data or of an exact fit is zero."""
    if size == 0.0:
        warn_caller(
            "there is no signal: all entries are zero, so are all weights, and the vectors mean "
            "nothing",
            UserWarning,
        )


def as_tensor(tensor: object, name: str = "tensor") -> Contractible:
    """What the caller brought, as something that can be contracted; arrays of any library too.

    Iterations are not followed: their steps have another gradient than their result.
    """
    data: Contractible = detached(as_contractible(tensor, name))
    if not data.shape or 0 in data.shape:
        raise InvalidInputError(
            f"{name} must have at least one mode and no empty one, got shape {data.shape}"
        )
    return data


def as_problem(tensor: Contractible, rank: int | None = None) -> CompleteProblem:
    """A tensor as a problem; NumPy arrays take the fast path. NaN and infinity are refused.

    The scale of the tensor is taken as it is: `decompose` has seen to that. `rank` says what is
    to be fitted, where that is known.
    """
    if isinstance(tensor, DenseTensor) and is_numpy(tensor.array):
        total = tensor.squared_norm
        if not np.isfinite(total):
            refuse_nonfinite(tensor.array, "tensor")
        return DenseProblem(np.ascontiguousarray(tensor.array), total)
    return ContractibleProblem(tensor, None if rank is None else wide_shape(tensor.shape, rank))


def refuse_rank(rank: object) -> int:
    """`rank` as an integer of at least one."""
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise InvalidInputError(f"rank={rank!r} must be an integer of at least 1")
    return int(rank)


def check_rank(rank: object, shape: Sequence[int]) -> int:
    """`rank` as an integer of at least one, and at most what any tensor of this shape needs.

    Every tensor is a sum of as many outer products as the product of all dimensions but the
    largest: one for each fibre of the longest mode.
    """
    number = refuse_rank(rank)
    bound = prod(shape) // max(shape)
    if number > bound:
        raise InvalidInputError(
            f"rank={number} is above {bound}, the product of all dimensions of shape "
            f"{tuple(shape)} but the largest, with which every such tensor is met exactly: "
            "lower rank"
        )
    entries = number * sum(shape)
    if entries > _LARGEST_FACTORS:
        raise InvalidInputError(
            f"rank={number}: factors of a tensor of shape {tuple(shape)} would have {entries:,} "
            f"entries, above {_LARGEST_FACTORS:,}: number only the indices that occur, or lower "
            "rank"
        )
    return number


def nonnegative_modes(nonnegative: object, order: int) -> tuple[int, ...]:
    """The modes whose factors may not be negative: all for True, none for False, or those given."""
    if isinstance(nonnegative, bool | np.bool_):
        return tuple(range(order)) if nonnegative else ()
    if not isinstance(nonnegative, Sequence | set | frozenset) or isinstance(nonnegative, str):
        raise InvalidInputError(
            f"nonnegative={nonnegative!r} must be True, False or a sequence of modes such as (0, 2)"
        )
    return tuple(sorted({check_mode(mode, order, "nonnegative") for mode in nonnegative}))


def check_ridge(ridge: object) -> None:
    """Refuse a penalty that is no number of at least zero."""
    if isinstance(ridge, bool) or not isinstance(ridge, int | float | np.number):
        raise InvalidInputError(f"ridge={ridge!r} must be a number of at least 0")
    if not 0 <= float(ridge) < np.inf:
        raise InvalidInputError(f"ridge={ridge!r} must be a number of at least 0")


def check_limits(tol: float, target: float | None, max_iter: int | None) -> None:
    """Refuse stopping rules that cannot be met."""
    if isinstance(tol, bool) or not tol >= 0:
        raise InvalidInputError(f"tol={tol!r} must be a number of at least 0")
    if target is not None and not target >= 0:
        raise InvalidInputError(f"target={target!r} must be a relative residual of at least 0")
    if max_iter is not None and (
        isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer) or max_iter < 1
    ):
        raise InvalidInputError(f"max_iter={max_iter!r} must be an integer of at least 1")


def as_cp(init: object, shape: tuple[int, ...], rank: int, name: str = "init") -> CPTensor:
    """A CPTensor from one, from a Decomposition, a TensorLy or pyttb object or a pair that fits."""
    origin = type(init).__module__.split(".")[0]
    given: Any = init
    if origin == "pyttb":
        given = from_pyttb(init)
    if hasattr(given, "weights") and hasattr(given, "factors"):
        weights, factors = given.weights, given.factors
    elif isinstance(given, list | tuple) and len(given) == 2 and isinstance(given[1], list | tuple):
        weights, factors = given
    else:
        raise InvalidInputError(
            f"{name} must be a CPTensor, a Decomposition, a CP tensor of TensorLy or pyttb, or a "
            f"pair (weights, factors), not {type(init).__name__}"
        )
    cp = CPTensor(weights, tuple(factors))
    if cp.shape != shape or cp.rank != rank:
        raise InvalidInputError(
            f"{name} has shape {cp.shape} and rank {cp.rank}, "
            f"but the tensor has shape {shape} and rank={rank} was asked for"
        )
    return cp


def with_free_modes(
    init: object,
    shape: tuple[int, ...],
    rank: int,
    fixed_modes: Sequence[int],
    rng: np.random.Generator,
) -> CPTensor:
    """A start whose fixed modes fit the tensor: factors of other modes that do not are drawn anew.

    So a model is applied to new samples: their mode is free, the others are fixed.
    """
    given: Any = from_pyttb(init) if type(init).__module__.split(".")[0] == "pyttb" else init
    if not fixed_modes or not hasattr(given, "factors"):
        return as_cp(given, shape, rank)
    fixed = {check_mode(mode, len(shape), "fixed_modes") for mode in fixed_modes}
    factors = list(given.factors)
    for mode, factor in enumerate(factors[: len(shape)]):
        if mode not in fixed and factor.shape[0] != shape[mode]:
            factors[mode] = like(rng.standard_normal((shape[mode], rank)), factor)
    return as_cp((given.weights, factors), shape, rank)


def of_same_kind(cp: CPTensor, reference: Array, name: str = "init") -> CPTensor:
    """A start that is complex where the tensor is; a complex one for a real tensor is refused."""
    if not is_complex(reference):
        if any(is_complex(factor) for factor in (cp.weights, *cp.factors)):
            raise InvalidInputError(
                f"{name} is complex, but the tensor is real: give its real part"
            )
        return cp
    return CPTensor(cp.weights * (1.0 + 0j), tuple(f * (1.0 + 0j) for f in cp.factors))


def starting_factors(
    init: object, shape: tuple[int, ...], rank: int, last: int, name: str = "init"
) -> tuple[Array, ...]:
    """Transposed host factors of a CP tensor that the caller gave, weights multiplied in.

    Parameters
    ----------
    init : CPTensor, Decomposition, or a (weights, factors) pair; weights of any sign, or None
    shape, rank : what it must have
    last : int, the mode that takes the weights
    """
    cp = as_cp(init, shape, rank, name)
    rows = [np.array(widened(to_host(factor)).T, order="C") for factor in cp.factors]
    for mode, row in enumerate(rows):
        refuse_nonfinite(row, f"{name}.factors[{mode}]")
    scale = widened(to_host(cp.weights))
    refuse_nonfinite(scale, f"{name}.weights")
    rows[last] = rows[last] * scale[:, None]
    return tuple(rows)


def without_negative_entries(
    rows: Sequence[Array], modes: Sequence[int], fixed: Sequence[int]
) -> tuple[Array, ...]:
    """Factors that the caller gave, cut off at zero in these modes; fixed ones are refused."""
    for mode in modes:
        if mode in fixed and (rows[mode] < 0).any():
            raise InvalidInputError(
                f"init.factors[{mode}] has negative entries, but mode {mode} is fixed and "
                "nonnegative"
            )
    return tuple(np.maximum(f, 0.0) if mode in modes else f for mode, f in enumerate(rows))


def truth_values(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of zeros and ones on the host, in the shape of the tensor."""
    host = np.asarray(to_host(mask) if is_array(mask) else mask)
    if host.shape != shape:
        raise InvalidInputError(f"mask has shape {host.shape}, but the tensor {shape}")
    if host.dtype.kind not in "biuf" or not np.isin(host, (0, 1)).all():
        raise InvalidInputError("mask must hold truth values, True where an entry was observed")
    return host


def check_fixed_modes(fixed_modes: Sequence[int], order: int, init: object) -> tuple[int, ...]:
    """Fixed modes as sorted indices; they need a start and must leave a mode to fit."""
    fixed = tuple(sorted({check_mode(mode, order, "fixed_modes") for mode in fixed_modes}))
    if fixed and init is None:
        raise InvalidInputError(
            f"fixed_modes={fixed} needs init: a CP tensor that holds the factors to keep"
        )
    if len(fixed) == order:
        raise InvalidInputError(f"fixed_modes={fixed} fixes every mode: leave one to fit")
    return fixed


def stated_residual(problem: Problem, model: CPTensor, residual: float) -> float:
    """The relative residual of the numbers returned: entry by entry where that costs little.

    Inner products lose digits where components cancel and where a fit is nearly exact; in single
    precision, so does rounding the factors of a fit in double precision.
    """
    small = prod(problem.shape) <= CHEAP_ENTRIES
    if not (small or problem.epsilon > 1e-10) or problem.squared_norm == 0.0:
        return residual
    rows = [widened(to_host(factor)).T for factor in model.factors]
    rows[0] = rows[0] * widened(to_host(model.weights))[:, None]
    if small and isinstance(problem, ContractibleProblem):
        problem = DenseProblem(problem.project([None] * len(problem.shape)))
    explicit = problem.explicit_loss(rows)
    return residual if explicit is None else float(np.sqrt(explicit / problem.squared_norm))


def finish(
    reference: Array,
    factors: Sequence[Array],
    residual: float,
    status: Status,
    monitor: Monitor,
    fixed: Sequence[int] = (),
) -> Decomposition:
    """The result in the caller's library and dtype, in canonical form.

    Factors of `fixed` modes come out exactly as they went in, and the components then keep the
    order of the start.
    """
    tensor = assemble(reference, factors, fixed)
    history = np.array(monitor.history)
    return Decomposition(tensor, residual, len(history), status, history)


def assemble(reference: Array, factors: Sequence[Array], fixed: Sequence[int] = ()) -> CPTensor:
    """Transposed factors as a CP tensor in the caller's library and dtype."""
    if not fixed:
        if not all(is_numpy(factor) for factor in factors):
            return CPTensor(None, tuple(f.T for f in factors)).canonical()
        weights, rows = _canonical(factors)
        columns = tuple(like(np.ascontiguousarray(row.T), reference) for row in rows)
        return CPTensor(like(weights, reference), columns)
    columns = tuple(np.ascontiguousarray(to_host(f).T) for f in factors)
    weights = np.ones(columns[0].shape[1], dtype=columns[0].dtype)
    result: list[Any] = []
    for mode, factor in enumerate(columns):
        if mode not in fixed:
            unit = CPTensor(weights, (factor,)).normalized()
            weights, factor = unit.weights, unit.factors[0]
        result.append(like(factor, reference))
    return CPTensor(like(weights, reference), tuple(result))


def _canonical(factors: Sequence[Array]) -> tuple[Array, list[Array]]:
    """Weights and unit rows in the form that `CPTensor.canonical` describes, on the host.

    Done here once more because the small fits spend a quarter of their time there otherwise.
    """
    rank = factors[0].shape[0]
    weights = np.ones(rank, dtype=factors[0].dtype)
    rows: list[Array] = []
    for factor in factors:
        lengths = np.linalg.norm(factor, axis=1)
        magnitudes = np.abs(factor)
        largest = magnitudes.max(axis=1)
        first = np.argmax(magnitudes >= largest[:, None] * (1 - 1e-6), axis=1)
        leading = factor[np.arange(rank), first]
        dead = lengths == 0
        scale = np.where(
            dead,
            1.0,
            lengths * np.where(leading == 0, 1.0, leading) / np.where(dead, 1.0, np.abs(leading)),
        )
        weights = weights * np.where(dead, 0.0, scale)
        rows.append(factor / scale[:, None])
    order = component_order(np.abs(weights), rows[0])
    return weights[order], [row[order] for row in rows]


def component_order(magnitudes: Array, rows: Array) -> Array:
    """Components in decreasing order of weight; equal ones by where the first large entry is."""
    first = np.abs(rows)
    large = np.argmax(first >= 0.5 * first.max(axis=1, keepdims=True), axis=1)
    order = np.argsort(-magnitudes, kind="stable")
    sizes = magnitudes[order]
    gaps = sizes[:-1] - sizes[1:] > 1e-10 * sizes[:1]
    run = np.concatenate([[0], np.cumsum(gaps)])
    return order[np.lexsort((order, large[order], run))]


def assembler(reference: Array, fixed: Sequence[int] = ()) -> Callable[[Any], CPTensor]:
    """A function that puts the CP tensor of a point together, for callbacks."""
    return lambda point: assemble(reference, point.factors, fixed)
