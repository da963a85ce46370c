"""`decompose`: the CP decomposition of any tensor, by the algorithm of the caller's choice."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import RandomState, generator, one_blas_thread, to_host
from latensor.arrays.guests import with_guests
from latensor.decomposition.algorithms.algebraic import is_exact, solve_overcomplete
from latensor.decomposition.algorithms.als import AlternatingLeastSquares
from latensor.decomposition.algorithms.foobi import Foobi
from latensor.decomposition.algorithms.gauss_newton import GaussNewton
from latensor.decomposition.algorithms.jennrich import SimultaneousDiagonalization
from latensor.decomposition.algorithms.joint_diagonalization import JointDiagonalization
from latensor.decomposition.algorithms.power_method import PowerMethod
from latensor.decomposition.algorithms.shared_factor import SharedFactor
from latensor.decomposition.algorithms.subspace_power import SubspacePower
from latensor.decomposition.algorithms.symmetric_als import SymmetricLeastSquares
from latensor.decomposition.algorithms.symmetric_spectral import SymmetricSpectral
from latensor.decomposition.algorithms.tensorization import Tensorization
from latensor.decomposition.auto import Automatic
from latensor.decomposition.constraints import Constraint
from latensor.decomposition.constraints.fit import ConstrainedFit, refuse_beside_constraints
from latensor.decomposition.gradients import with_cp_gradient
from latensor.decomposition.mode_labels import mode_labels_of, with_mode_labels
from latensor.decomposition.optimize.iteration import Callback, Progress
from latensor.decomposition.optimize.masked import observe
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.progress import watched
from latensor.decomposition.rank_choice import select_rank_for
from latensor.decomposition.result import Decomposition, Status, origin_of
from latensor.decomposition.scale import (
    rescaled,
    restored,
    restored_tensor,
    scaled_ridge,
    scaled_start,
)
from latensor.decomposition.setup import (
    ONE_THREAD,
    as_problem,
    as_tensor,
    check_rank,
    check_ridge,
    of_same_kind,
    stated_residual,
    warn_of_zero,
    with_free_modes,
)
from latensor.decomposition.sparse_part import with_sparse_part
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor

ALGORITHMS: dict[str, Any] = {
    "auto": Automatic,
    "als": AlternatingLeastSquares,
    "foobi": Foobi,
    "gauss_newton": GaussNewton,
    "jennrich": SimultaneousDiagonalization,
    "simultaneous_diagonalization": SimultaneousDiagonalization,
    "joint_diagonalization": JointDiagonalization,
    "power_method": PowerMethod,
    "shared_factor": SharedFactor,
    "subspace_power": SubspacePower,
    "symmetric_als": SymmetricLeastSquares,
    "symmetric_spectral": SymmetricSpectral,
    "tensorization": Tensorization,
}
# Algorithms that can give nothing but one factor for all modes.
_SYMMETRIC = (
    Foobi,
    JointDiagonalization,
    SharedFactor,
    SubspacePower,
    SymmetricLeastSquares,
    SymmetricSpectral,
)


@with_guests
@with_mode_labels(mode_labels_of)
@with_cp_gradient
@with_sparse_part
def decompose(
    tensor: object,
    rank: int | str,
    *,
    algorithm: Any = "auto",
    symmetric: bool | None = None,
    nonnegative: bool | Sequence[int] = False,
    constraints: Mapping[int, Constraint] | None = None,
    sparsity: int | float | None = None,
    mask: object = None,
    init: object = None,
    fixed_modes: Sequence[int] = (),
    ridge: float = 0.0,
    tol: float | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    random_state: RandomState = 0,
    callback: Callback | None = None,
    progress: bool = False,
) -> Decomposition:
    """The best sum of `rank` outer products for a tensor (CP, CANDECOMP, PARAFAC; monograph 3.2).

    The answer is the same for the same seed, and scales with the tensor. All-zero, constant and
    rank-deficient tensors have valid answers, with components of weight zero; of an all-zero one a
    warning says that there is no signal.

    Parameters
    ----------
    tensor : array of any library, or sparse, factored or implicit tensor, of any order. Labels of a
        pandas or xarray object or of an archive `np.load("data.npz")`, a vector as long as a mode,
        go into the result's `mode_labels`, its plots and files
    rank : int, at least 1; may exceed the dimensions, but not the product of all but the
        largest. "auto" takes what `lt.select_rank` proposes, which the result holds as
        `selection`
    algorithm : "auto", another name ("als", "gauss_newton", "jennrich", "power_method",
        "joint_diagonalization", "symmetric_als", "symmetric_spectral", "shared_factor", "foobi",
        "subspace_power", "tensorization"), or a settings object such as
        `AlternatingLeastSquares(ridge=0.1)`
    symmetric : bool, fit one factor that all modes share; the tensor must be symmetric
    nonnegative : bool, keep every factor at or above zero; or the modes whose factors to keep so
    constraints : dict from modes to values of `lt.constraints`: `Unimodal()`, `Monotone()`,
        `Smooth(10.0)`, `Sparse(0.1)`, `Simplex()`, `Nonnegative()`, `FewEntries(3)`,
        `FewComponents(0.01)`. Columns satisfy them exactly
    sparsity : int or float, the number or fraction of entries of a sparse component that is fitted
        beside the CP tensor: gross errors, glitches, single events. The result holds it as `sparse`
    mask : array of truth values, True where an entry was observed; the others are not fitted, and
        may be NaN. For a SparseTensor a SparseTensor whose stored entries are the observed ones
    init : CPTensor, Decomposition, CP tensor of TensorLy or pyttb, or pair (weights, factors) to
        start from; never changed
    fixed_modes : modes whose factors stay exactly as in `init`. Other modes may be longer or
        shorter than those of an `init` object, which applies a model to new samples
    ridge : float, penalty on the squared norm of the factors
    tol : float, relative decrease of the squared residual that counts as progress
    target : float, stop as soon as the relative residual is known to be at most this
    max_iter : int, iterations recorded in the history
    random_state : int, Generator or None for fresh randomness
    callback : called after every iteration with a state that has `iteration`, `residual` and
        `tensor`; may return True to stop
    progress : bool, show iteration and residual on the terminal, if there is one

    Returns
    -------
    Decomposition

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> factors = [np.random.default_rng(0).random((d, 2)) for d in (5, 6, 7)]
    >>> found = lt.decompose(lt.CPTensor(None, factors).to_dense(), 2, random_state=0)
    >>> bool(found.residual < 1e-12), found.certificate.verdict
    (True, 'stable')
    """
    del sparsity  # `with_sparse_part` has taken it
    data = as_tensor(tensor)
    selection = select_rank_for(data, rank, mask, random_state) if isinstance(rank, str) else None
    rank = check_rank(rank if selection is None else selection.rank, data.shape)
    check_ridge(ridge)
    origin = origin_of(data, mask)
    if mask is None:
        data, scale = rescaled(data)
    else:
        observed: Any = observe(data, mask)
        observed, scale = rescaled(observed)
        mask = observed
    problem: Problem = as_problem(data) if mask is None else observed
    settings: dict[str, Any] = {
        "fixed_modes": tuple(fixed_modes) or None,
        "ridge": scaled_ridge(ridge, scale, len(data.shape)) if ridge else None,
        "nonnegative": _modes(nonnegative),
        "tol": tol,
        "target": target,
        "max_iter": max_iter,
    }
    if constraints:
        refuse_beside_constraints(algorithm, symmetric, ridge, fixed_modes)
        algorithm = ConstrainedFit(constraints)
    free = {"fixed_modes", "ridge", "nonnegative", "max_iter"}
    plain = isinstance(algorithm, str) and algorithm == "auto" and init is None and mask is None
    plain = plain and all(settings[name] is None for name in free)
    chosen = _configured(_chosen(algorithm, symmetric), settings)
    rng = generator(random_state)
    if init is not None:
        given = with_free_modes(init, tuple(data.shape), rank, fixed_modes, rng)
        start = CPTensor(*of_same_kind(given, data.reference))
        init = scaled_start(start, scale, problem.squared_norm**0.5)
    arguments = {"init": init, "mask": mask}
    arguments = {name: value for name, value in arguments.items() if value is not None}
    for name in arguments:
        _require_argument(chosen, name)
    small = prod(data.shape) <= ONE_THREAD
    with watched(callback, progress) as watcher, one_blas_thread(small):
        watching = watcher if scale == 1.0 or watcher is None else _at_true_scale(watcher, scale)
        result = solve_overcomplete(data, rank, rng.spawn(1)[0], symmetric) if plain else None
        if result is None or not is_exact(result):
            fitted: Decomposition = chosen(data, rank, rng, watching, **arguments)
            result = fitted if result is None or fitted.residual <= result.residual else result
        residual = stated_residual(problem, result.tensor, result.residual)
    result = replace(result, residual=residual)
    if residual == 0.0:
        warn_of_zero(float(np.abs(to_host(result.weights)).max()))
    if result.status is Status.MAX_ITER and is_exact(result) and not ridge:
        result = replace(result, status=Status.CONVERGED)  # rounding hid it from the proof
    return replace(
        restored(result, scale),
        origin=origin,
        selection=selection,
        method=result.method or type(chosen).__name__,
    )


def _modes(nonnegative: object) -> object:
    """What `nonnegative` sets: None for nothing; modes as a tuple that settings can hold."""
    if nonnegative is False:
        return None
    if isinstance(nonnegative, list | tuple | set | frozenset):
        return tuple(nonnegative) or None
    return nonnegative


def _at_true_scale(callback: Callback, scale: float) -> Callback:
    def at_scale(state: Progress) -> Any:
        return callback(replace(state, _assemble=lambda: restored_tensor(state.tensor, scale)))

    return at_scale


def _chosen(algorithm: Any, symmetric: bool | None) -> Any:
    """The algorithm that a name stands for, with or without symmetry as asked."""
    if isinstance(algorithm, str):
        if algorithm not in ALGORITHMS:
            raise InvalidInputError(
                f"algorithm={algorithm!r} must be one of {', '.join(ALGORITHMS)}, or a settings "
                "object of latensor.decomposition, such as AlternatingLeastSquares()"
            )
        if algorithm == "auto" and symmetric:
            return SharedFactor()
        algorithm = ALGORITHMS[algorithm]()
    if symmetric:
        return algorithm if isinstance(algorithm, SharedFactor) else SharedFactor(start=algorithm)
    if symmetric is False and isinstance(algorithm, _SYMMETRIC):
        raise InvalidInputError(
            f"symmetric=False, but {type(algorithm).__name__} gives one factor for all modes: "
            "use algorithm='auto'"
        )
    if symmetric is False and hasattr(algorithm, "symmetric"):
        return replace(algorithm, symmetric=False)
    return algorithm


def _configured(algorithm: Any, settings: dict[str, Any]) -> Any:
    """The algorithm with the caller's settings in place of its own."""
    settings = {name: value for name, value in settings.items() if value is not None}
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
