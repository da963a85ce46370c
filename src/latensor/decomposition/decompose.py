"""`decompose`: the CP decomposition of any tensor, by the algorithm of the caller's choice."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any

from latensor.arrays import RandomState, generator, one_blas_thread, to_host
from latensor.decomposition.algorithms.shared_factor import SharedFactor
from latensor.decomposition.auto import Automatic
from latensor.decomposition.constraints import Constraint
from latensor.decomposition.constraints.fit import ConstrainedFit, refuse_beside_constraints
from latensor.decomposition.gradients import with_cp_gradient
from latensor.decomposition.optimize.iteration import Callback
from latensor.decomposition.progress import watched
from latensor.decomposition.rank_choice import select_rank_for
from latensor.decomposition.result import Decomposition, origin_of
from latensor.decomposition.setup import UnscaledTensorError, as_cp, as_tensor, refuse_rank
from latensor.decomposition.sparse_part import with_sparse_part
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor

# Entries up to which all of a decomposition runs on one BLAS thread; above, only the core stages.
_ONE_THREAD = 1 << 21


@with_cp_gradient
@with_sparse_part
def decompose(
    tensor: object,
    rank: int | str,
    *,
    algorithm: Any = "auto",
    symmetric: bool | None = None,
    nonnegative: bool = False,
    constraints: Mapping[int, Constraint] | None = None,
    sparsity: int | float | None = None,
    mask: object = None,
    init: object = None,
    fixed_modes: Sequence[int] = (),
    ridge: float = 0.0,
    tol: float | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    random_state: RandomState = None,
    callback: Callback | None = None,
    progress: bool = False,
) -> Decomposition:
    """The best sum of `rank` outer products for a tensor (CP, CANDECOMP, PARAFAC; monograph 3.2).

    The answer is the same for the same seed. All-zero, constant and rank-deficient tensors have
    valid answers, with components of weight zero.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor, of any order
    rank : int, at least 1; may exceed the dimensions. "auto" takes what `lt.select_rank` proposes,
        which the result holds as `selection`
    algorithm : "auto", or a settings object such as `AlternatingLeastSquares(ridge=0.1)`
    symmetric : bool, fit one factor that all modes share; the tensor must be symmetric
    nonnegative : bool, keep every factor at or above zero
    constraints : dict from modes to values of `lt.constraints`: `Unimodal()`, `Monotone()`,
        `Smooth(10.0)`, `Sparse(0.1)`, `Simplex()`, `Nonnegative()`. Columns satisfy them exactly
    sparsity : int or float, the number or fraction of entries of a sparse component that is fitted
        beside the CP tensor: gross errors, glitches, single events. The result holds it as `sparse`
    mask : array of truth values, True where an entry was observed; the others are not fitted, and
        may be NaN. For a SparseTensor a SparseTensor whose stored entries are the observed ones
    init : CPTensor, Decomposition or pair (weights, factors) to start from; never changed
    fixed_modes : modes whose factors stay exactly as in `init`
    ridge : float, penalty on the squared norm of the factors
    tol : float, relative decrease of the squared residual that counts as progress
    target : float, stop as soon as the relative residual is known to be at most this
    max_iter : int, iterations recorded in the history
    random_state : int, Generator or None
    callback : called after every iteration with a state that has `iteration`, `residual` and
        `tensor`; may return True to stop
    progress : bool, show iteration and residual on the terminal, if there is one

    Returns
    -------
    Decomposition
    """
    del sparsity  # `with_sparse_part` has taken it
    data = as_tensor(tensor)
    selection = select_rank_for(data, rank, mask, random_state) if isinstance(rank, str) else None
    rank = refuse_rank(rank if selection is None else selection.rank)
    settings: dict[str, Any] = {
        "fixed_modes": tuple(fixed_modes) or None,
        "ridge": ridge or None,
        "nonnegative": nonnegative or None,
        "tol": tol,
        "target": target,
        "max_iter": max_iter,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    if constraints:
        refuse_beside_constraints(algorithm, symmetric, ridge, fixed_modes)
        algorithm = ConstrainedFit(constraints)
    if isinstance(algorithm, str):
        if algorithm != "auto":
            raise InvalidInputError(
                f"algorithm={algorithm!r} must be 'auto' or a settings object of "
                "latensor.decomposition, such as AlternatingLeastSquares()"
            )
        algorithm = SharedFactor() if symmetric else Automatic()
    elif symmetric:
        algorithm = SharedFactor(start=algorithm)
    chosen = _configured(algorithm, settings)
    arguments = {"init": init, "mask": mask}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for name in arguments:
        _require_argument(chosen, name)
    rng = generator(random_state)
    small = prod(data.shape) <= _ONE_THREAD
    with watched(callback, progress) as watcher, one_blas_thread(small):
        try:
            result: Decomposition = chosen(data, rank, rng, watcher, **arguments)
        except UnscaledTensorError as error:
            if init is not None:
                weights, factors = as_cp(init, tuple(data.shape), rank)
                arguments["init"] = CPTensor(weights / error.scale, factors)
            smaller = DenseTensor(to_host(data.reference) / data.reference.dtype.type(error.scale))
            result = chosen(smaller, rank, rng, watcher, **arguments)
            cp = CPTensor(result.weights * error.scale, result.factors)
            result = replace(result, tensor=cp)
    return replace(result, origin=origin_of(data, mask), selection=selection)


def _configured(algorithm: Any, settings: dict[str, Any]) -> Any:
    """The algorithm with the caller's settings in place of its own."""
    known = {f.name for f in fields(algorithm)} if is_dataclass(algorithm) else set()
    for name in settings:
        if name not in known:
            raise InvalidInputError(
                f"{type(algorithm).__name__} has no setting {name!r}: leave it out, or use "
                "AlternatingLeastSquares, which has it"
            )
    return replace(algorithm, **settings) if settings else algorithm


def _require_argument(algorithm: Any, name: str) -> None:
    if name not in inspect.signature(algorithm).parameters:
        raise InvalidInputError(
            f"{type(algorithm).__name__} takes no {name}: use AlternatingLeastSquares, which does"
        )
