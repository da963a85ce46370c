"""`algorithm="auto"`: compress, start algebraically, fit the core, finish on the whole tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from latensor.arrays import Array, to_host
from latensor.decomposition.algorithms.als import AlternatingLeastSquares
from latensor.decomposition.auto.pipeline import StagedFit
from latensor.decomposition.optimize.alternating import balanced
from latensor.decomposition.optimize.iteration import Callback, Monitor
from latensor.decomposition.optimize.masked import Observed, annealed, filled, observe
from latensor.decomposition.optimize.nonnegative import nonnegative_part
from latensor.decomposition.optimize.starts import random_start
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    check_fixed_modes,
    check_limits,
    finish,
    refuse_rank,
    starting_factors,
)
from latensor.tensors.contractible import Contractible

# Other starts of a masked fit, tried while the relative squared residual is above this.
_MASKED_RESTARTS = 6
_GOOD_START = 1e-4
# Two starts that end this close are taken to have found the same optimum.
_AGREEMENT = 1e-3

# A weight so many times the norm of the data is cancelled by others. The penalty that prevents it,
# relative to the data, and the share by which the residual may rise for that.
_RUNAWAY = 10.0
_SMALL_RIDGE = 1e-6
_HARDLY = 1e-3


@dataclass(frozen=True)
class Automatic:
    """Find the best CP fit of a tensor without choosing starts or restarts by hand.

    Compresses the tensor to a core of about twice the rank per mode (of the rank, sharpened, where
    the data are that many components and noise), compares algebraic and other starts there, fits
    the core by extrapolated alternating least squares and Levenberg-Marquardt, replaces misplaced
    components, and finishes by a few sweeps over the whole tensor. A start, a penalty, a
    constraint, fixed modes or a mask lead to `AlternatingLeastSquares`, begun from the
    unconstrained answer unless `init` is given.

    Parameters
    ----------
    ridge, nonnegative, fixed_modes : as in `AlternatingLeastSquares`
    tol : float, relative decrease of the squared residual that counts as progress
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, iterations of all stages together; None for the stages' own limits
    thorough : bool, where noise does not explain the residual, whether to try a few other optima
        and keep the best
    """

    ridge: float = 0.0
    nonnegative: bool = False
    fixed_modes: tuple[int, ...] = ()
    tol: float = 1e-7
    target: float | None = None
    max_iter: int | None = None
    thorough: bool = True

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)

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
        if init is not None or mask is not None or self.ridge or self.nonnegative:
            return self._constrained(data, rank, rng, callback, init, mask)
        check_fixed_modes(self.fixed_modes, len(data.shape), init)
        problem = as_problem(data)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)
        if problem.squared_norm == 0.0:
            factors = tuple(np.zeros((rank, d)) for d in problem.shape)
            return finish(data.reference, factors, 0.0, Status.CONVERGED, monitor)
        point, status = StagedFit(data, problem, rank, rng, monitor, self.tol, self.thorough).run()
        loss = point.loss
        if problem.epsilon > 1e-10:
            explicit = problem.explicit_loss(point.factors)
            loss = loss if explicit is None else explicit
        residual = monitor.relative(loss)
        if status is Status.CONVERGED and self.target is not None and residual <= self.target:
            status = Status.TARGET_REACHED
        return finish(data.reference, point.factors, residual, status, monitor)

    def _constrained(
        self,
        data: Contractible,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None,
        init: object,
        mask: object,
    ) -> Decomposition:
        fit = AlternatingLeastSquares(
            self.ridge,
            self.nonnegative,
            self.fixed_modes,
            tol=min(self.tol, 1e-8),
            target=self.target,
            max_iter=500 if self.max_iter is None else self.max_iter,
        )
        if init is None:
            check_fixed_modes(self.fixed_modes, len(data.shape), init)
            init = self._unconstrained(data, rank, rng, mask)
            result = fit(data, rank, rng, callback, init=init, mask=mask)
            if mask is None or self.ridge or self.nonnegative:
                return result
            return self._bounded(fit, result, data, rng, init, mask)
        return fit(data, rank, rng, callback, init=init, mask=mask)

    def _bounded(
        self,
        fit: AlternatingLeastSquares,
        result: Decomposition,
        data: Contractible,
        rng: np.random.Generator,
        init: object,
        mask: object,
    ) -> Decomposition:
        """A masked fit, or nearly the same without components that grow and cancel.

        Where no best fit exists, weights grow without bound for ever smaller gains. A penalty so
        small that the residual hardly feels it keeps them at the size of the data.
        """
        norm = float(np.sqrt(observe(data, mask).values.squared_norm))
        weights = np.abs(to_host(result.weights))
        wanted = result.status in (Status.STOPPED, Status.TARGET_REACHED)
        if wanted or weights.max(initial=0.0) <= _RUNAWAY * norm:
            return result
        ridge = _SMALL_RIDGE * norm ** (2.0 - 2.0 / len(data.shape))
        bounded = replace(fit, ridge=ridge)(data, len(weights), rng, init=init, mask=mask)
        allowed = (1.0 + _HARDLY) * result.residual
        return bounded if bounded.residual <= allowed else result

    def _unconstrained(
        self, data: Contractible, rank: int, rng: np.random.Generator, mask: object
    ) -> object:
        """A start for a constrained fit: the free fit of the tensor, or of a filled-in one."""
        observed = None if mask is None else observe(data, mask)
        free = Automatic(tol=1e-5, thorough=False)(
            data if observed is None else filled(observed), rank, rng
        )
        if observed is None and not self.nonnegative:
            return free.tensor
        shape = tuple(data.shape)
        rows: Sequence[Array] = balanced(starting_factors(free, shape, rank, len(shape) - 1))
        if self.nonnegative:
            rows = nonnegative_part(rows)
        if observed is not None:
            rows = self._best_annealed(observed, rows, rank, rng)
        return None, [np.ascontiguousarray(row.T) for row in rows]

    def _best_annealed(
        self, observed: Observed, rows: Sequence[Array], rank: int, rng: np.random.Generator
    ) -> Sequence[Array]:
        """The best of several starts of a masked fit: from filled-in tensors, then random.

        The first fill is the mean of what was observed, the later ones are the best model so far.
        """
        shape = observed.values.shape
        modes = tuple(range(len(shape)))
        best = annealed(observed, rows, modes, self.nonnegative)
        agreements = 0
        for attempt in range(_MASKED_RESTARTS):
            if best.loss <= _GOOD_START * observed.values.squared_norm or agreements > 1:
                break
            start: Sequence[Array]
            if attempt % 2 == 0:
                free = Automatic(tol=1e-5, thorough=False)(
                    filled(observed, best.factors), rank, rng
                )
                start = starting_factors(free, shape, rank, len(shape) - 1)
            else:
                start = random_start(shape, rank, rng)
            if self.nonnegative:
                start = nonnegative_part(start)
            other = annealed(observed, start, modes, self.nonnegative)
            agreements += abs(other.loss - best.loss) <= _AGREEMENT * best.loss
            best = min(best, other, key=lambda p: p.loss)
        return best.factors
