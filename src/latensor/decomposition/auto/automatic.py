"""`algorithm="auto"`: the pipeline for free fits, and its answer as the start of all others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from latensor.arrays import Array, is_complex, to_host
from latensor.decomposition.algorithms.als import AlternatingLeastSquares
from latensor.decomposition.auto.complete import WILD, Completion, complete_entries, wildness
from latensor.decomposition.auto.constrained import Constraints, fit_constrained
from latensor.decomposition.auto.core import EXACT, Fit, Task
from latensor.decomposition.auto.pipeline import run
from latensor.decomposition.optimize.iteration import ROUGH, SLOW, Callback, Monitor
from latensor.decomposition.optimize.masked import (
    Observed,
    observe,
    refuse_too_few_entries,
    sufficient_entries,
)
from latensor.decomposition.optimize.nonnegative import nonnegative_part
from latensor.decomposition.optimize.problem import Problem
from latensor.decomposition.optimize.starts import parameters
from latensor.decomposition.optimize.sweeps import balanced, row_norms
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    assemble,
    check_fixed_modes,
    check_limits,
    check_ridge,
    finish,
    nonnegative_modes,
    refuse_rank,
    starting_factors,
    without_negative_entries,
)
from latensor.exceptions import ConvergenceWarning, InvalidInputError
from latensor.tensors.contractible import Contractible

# Sweeps, which converge linearly, have so much of the tolerance of Gauss-Newton steps.
_SLOWER = 0.1
# Penalty, relative to the data, that keeps components from growing while others cancel them.
_SMALL_RIDGE = 1e-6


@dataclass(frozen=True)
class Automatic:
    """Find the best CP fit of a tensor without choosing starts or restarts by hand.

    Compresses the tensor to a core of about twice the rank per mode (of the rank, with refined
    subspaces, where the data are that many components and noise), compares two starts
    there, fits the core by extrapolated alternating least squares and Levenberg-Marquardt,
    replaces misplaced components, and finishes on the whole tensor. With a penalty, a constraint or
    fixed modes the free fit is where the constrained one begins; with a mask, several starts are
    tried until two agree that entries left out of the fit do not contradict (`lt.complete` says
    more).

    Parameters
    ----------
    ridge, nonnegative, fixed_modes : as in `AlternatingLeastSquares`
    tol : float, relative decrease of the squared residual that counts as progress
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, iterations of all stages together; None for the stages' own limits
    thorough : bool, where noise does not explain the residual, whether to try a few other optima
        and keep the best; with a mask, whether to go on until two starts agree
    """

    ridge: float = 0.0
    nonnegative: bool | tuple[int, ...] = False
    fixed_modes: tuple[int, ...] = ()
    tol: float = 1e-7
    target: float | None = None
    max_iter: int | None = None
    thorough: bool = True

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)
        check_ridge(self.ridge)

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
        *,
        init: object = None,
        mask: object = None,
    ) -> Decomposition:
        """Decompose `tensor`; see `latensor.decompose` for the arguments."""
        rank = refuse_rank(rank)
        data = as_tensor(tensor)
        order = len(data.shape)
        fixed = check_fixed_modes(self.fixed_modes, order, init)
        constraints = Constraints(self.ridge, nonnegative_modes(self.nonnegative, order), fixed)
        if constraints.nonnegative and is_complex(data.reference):
            raise InvalidInputError("nonnegative needs a real tensor, but this one is complex")
        observed = None if mask is None else observe(data, mask)
        complete = as_problem(data, rank) if observed is None else None
        problem: Problem = observed if complete is None else complete  # type: ignore[assignment]
        if observed is not None and not self.ridge:
            refuse_too_few_entries(observed, rank, fixed)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)
        if problem.squared_norm == 0.0 and init is None:
            factors = tuple(np.zeros((rank, d)) for d in problem.shape)
            return finish(data.reference, factors, 0.0, Status.CONVERGED, monitor)
        if init is not None or constraints != Constraints():
            fit = self._constrained(data, problem, rank, rng, monitor, init, constraints)
        elif complete is None:
            assert observed is not None
            fit = self._observed(data, observed, rank, rng, monitor, constraints)
        else:
            fit = run(Task(data, complete, rank, rng, monitor, self.tol, self.thorough))
        loss = fit.loss - self.ridge * _squared_size(fit.factors)
        monitor.base = 0.0  # a loss of the tensor, whatever stage it came from
        residual = monitor.relative(loss)
        status = fit.status
        if status is Status.CONVERGED and self.target is not None and residual <= self.target:
            status = Status.TARGET_REACHED
        result = finish(data.reference, fit.factors, residual, status, monitor, fixed)
        return replace(result, held_out_error=fit.held_out_error)

    def _constrained(
        self,
        data: Contractible,
        problem: Problem,
        rank: int,
        rng: np.random.Generator,
        monitor: Monitor,
        init: object,
        constraints: Constraints,
    ) -> Fit:
        """A fit under constraints, from `init` or from the free fit."""
        fixed = constraints.fixed
        rows: Sequence[Array]
        if init is not None:
            last = constraints.free(len(problem.shape))[-1]
            rows = starting_factors(init, problem.shape, rank, last)
            rows = without_negative_entries(rows, constraints.nonnegative, fixed)
        elif isinstance(problem, Observed):
            return self._observed(data, problem, rank, rng, monitor, constraints)
        else:
            rows = _free_fit(data, rank, rng, constraints)
        return self._fit(data, problem, balanced(rows, fixed), constraints, monitor)

    def _fit(
        self,
        data: Contractible,
        problem: Problem,
        rows: Sequence[Array],
        constraints: Constraints,
        monitor: Monitor,
        trial: bool = False,
    ) -> Fit:
        sweeps = AlternatingLeastSquares()
        tol = _SLOWER * self.tol
        limit = sweeps.max_iter if self.max_iter is None else self.max_iter
        native = [problem.native(row) for row in rows]
        return fit_constrained(
            problem, native, constraints, tol, limit, monitor, data.reference, trial
        )

    def _observed(
        self,
        data: Contractible,
        observed: Observed,
        rank: int,
        rng: np.random.Generator,
        monitor: Monitor,
        constraints: Constraints,
    ) -> Fit:
        """A fit over observed entries: the best of several starts, until two agree."""
        told: list[Fit] = []

        def descend(entries: Observed, rows: Sequence[Array]) -> Fit:
            listener = Monitor(entries.squared_norm, self.target, self.max_iter)
            if entries is observed and not told:  # the callback follows the first start
                listener = monitor
            fit = self._fit(data, entries, rows, constraints, listener, trial=True)
            if listener is monitor:
                told.append(fit)
            return fit

        def decompose(array: Array) -> Sequence[Array]:
            return balanced(_free_fit(as_tensor(array), rank, rng, constraints))

        found = complete_entries(
            observed, rank, constraints, rng, descend, decompose, monitor, self.thorough
        )
        best = found.best.fit
        error = None if np.isnan(found.best.held_out_error) else found.best.held_out_error
        if monitor.ended is not None:
            return replace(best, held_out_error=error)
        if best.status is not Status.CONVERGED or constraints.nonnegative:
            best = self._fit(data, observed, best.factors, constraints, monitor)
        elif best is not told[0]:
            monitor.record(best.loss, lambda: assemble(data.reference, best.factors))
        best = self._bounded(data, observed, best, constraints)
        reason = _doubt(observed, found, best, monitor, self.thorough)
        if reason is not None:
            best = replace(best, status=Status.UNCONFIRMED)
            n, free = len(observed.entries), parameters(observed.shape, rank)
            warnings.warn(
                f"{reason} ({n:,} observed entries, {free:,} free parameters): the model may be "
                f"wrong where nothing was observed; {_advice(observed, rank)}",
                ConvergenceWarning,
                stacklevel=5,
            )
        return replace(best, held_out_error=error)

    def _bounded(
        self, data: Contractible, observed: Observed, fit: Fit, constraints: Constraints
    ) -> Fit:
        """A fit, or nearly the same without components that grow and cancel.

        Where no best fit exists, components grow without bound for ever smaller gains. A penalty
        so small that the residual hardly feels it keeps them at the size of the data.
        """
        sizes = np.prod([row_norms(factor) for factor in fit.factors], axis=0)
        norm = float(np.sqrt(observed.squared_norm))
        if constraints.ridge or constraints.nonnegative or sizes.max() <= WILD * norm:
            return fit
        ridge = _SMALL_RIDGE * norm ** (2.0 - 2.0 / len(observed.shape))
        silent = Monitor(observed.squared_norm)
        bounded = self._fit(
            data, observed, balanced(fit.factors), replace(constraints, ridge=ridge), silent
        )
        loss = bounded.loss - ridge * _squared_size(bounded.factors)
        allowed = (1.0 + SLOW) ** 2 * fit.loss
        return _unproved(replace(bounded, loss=loss)) if loss <= allowed else fit


def _free_fit(
    data: Contractible, rank: int, rng: np.random.Generator, constraints: Constraints
) -> Sequence[Array]:
    """Transposed factors of the fit without constraints, cut off at zero where these ask for it."""
    begin = Automatic(tol=ROUGH, thorough=False)(data, rank, rng)
    rows = starting_factors(begin, data.shape, rank, constraints.free(len(data.shape))[-1])
    signed = constraints.nonnegative
    return nonnegative_part(balanced(rows), signed) if signed else rows


def _doubt(
    observed: Observed, found: Completion, fit: Fit, monitor: Monitor, thorough: bool
) -> str | None:
    """Why a fit may be wrong at entries that were not observed; None where nothing says so."""
    missing = len(observed.entries) < prod(observed.shape)
    size = wildness(observed, fit.factors)
    if size > WILD:
        return f"the model is {size:.2g} times as large, on average, as what was observed"
    if found.best.contradicted:
        return (
            f"entries left out of the fit are missed by {found.best.held_out_error:.2g} of their "
            "norm, far more than the residual"
        )
    if missing and np.isnan(found.best.held_out_error):
        return "too few entries were observed to leave some out and check the fit by them"
    exact = fit.loss <= max(EXACT * observed.squared_norm, monitor.target_loss())
    if thorough and not exact and not found.agreements:
        return "no two starts reached the same residual"
    few = len(observed.entries) < sufficient_entries(observed.shape, fit.rank)
    if not exact and few and fit.status is Status.MAX_ITER:
        return "the fit did not converge, and few entries were observed"
    return None


def _advice(observed: Observed, rank: int) -> str:
    enough = sufficient_entries(observed.shape, rank)
    if enough > prod(observed.shape):
        return "give more entries, a lower rank or a ridge"
    if enough > len(observed.entries):
        return f"about {enough:,} entries would do; or give a lower rank or a ridge"
    return "try another rank or a ridge"


def _squared_size(factors: Sequence[Array]) -> float:
    return sum(float(np.linalg.norm(to_host(factor))) ** 2 for factor in factors)


def _unproved(fit: Fit) -> Fit:
    return replace(fit, status=Status.MAX_ITER) if fit.status is Status.CONVERGED else fit
