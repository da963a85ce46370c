"""`algorithm="auto"`: compress, start algebraically, fit the core, finish on the whole tensor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from latensor.arrays import Array, one_blas_thread, to_host
from latensor.decomposition.alternating import Point, Sweeps, balanced
from latensor.decomposition.compression import (
    LARGEST_CORE,
    Compression,
    compressed_shape,
)
from latensor.decomposition.core_fit import CoreFit
from latensor.decomposition.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.least_squares import AlternatingLeastSquares, compress, random_factors
from latensor.decomposition.masked import Observed, annealed, filled, observe
from latensor.decomposition.nonnegative import nonnegative_part
from latensor.decomposition.problem import DenseProblem, Problem, widened
from latensor.decomposition.result import Decomposition, Status
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    assemble,
    assembler,
    check_fixed_modes,
    check_limits,
    finish,
    refuse_rank,
    starting_factors,
)
from latensor.decomposition.sharpening import Directions, narrowed, sharpened, visible
from latensor.decomposition.start_search import NoiseFloor
from latensor.decomposition.starts import parameters, random_start
from latensor.tensors.contractible import Contractible

# Energy outside the core, relative, below which the tensor counts as exactly compressed.
_EXACT = 1e-12
# Relative loss of an expanded core fit that sweeps over the tensor could not improve.
_ROUNDING = 1e-22
_FULL_TOL = 1e-6
_ROUNDS = 8
# Other starts of a masked fit, tried while the relative squared residual is above this.
_MASKED_RESTARTS = 6
_GOOD_START = 1e-4
# Two starts that end this close are taken to have found the same optimum.
_AGREEMENT = 1e-3
# A matrix no wider than this is decomposed by one dense singular value decomposition.
_DIRECT_SVD = 1000


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
    """

    ridge: float = 0.0
    nonnegative: bool = False
    fixed_modes: tuple[int, ...] = ()
    tol: float = 1e-7
    target: float | None = None
    max_iter: int | None = None

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
        point, status = _Run(data, problem, rank, rng, monitor, self.tol).fit()
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
        return fit(data, rank, rng, callback, init=init, mask=mask)

    def _unconstrained(
        self, data: Contractible, rank: int, rng: np.random.Generator, mask: object
    ) -> object:
        """A start for a constrained fit: the free fit of the tensor, or of a filled-in one."""
        observed = None if mask is None else observe(data, mask)
        free = Automatic(tol=1e-5)(data if observed is None else filled(observed), rank, rng)
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
                free = Automatic(tol=1e-5)(filled(observed, best.factors), rank, rng)
                start = starting_factors(free, shape, rank, len(shape) - 1)
            else:
                start = random_start(shape, rank, rng)
            if self.nonnegative:
                start = nonnegative_part(start)
            other = annealed(observed, start, modes, self.nonnegative)
            agreements += abs(other.loss - best.loss) <= _AGREEMENT * best.loss
            best = min(best, other, key=lambda p: p.loss)
        return best.factors


@dataclass
class _Run:
    data: Contractible
    problem: Problem
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    tol: float

    def fit(self) -> tuple[Point, Status]:
        problem, monitor = self.problem, self.monitor
        core_shape = compressed_shape(problem.shape, self.rank)
        dense = isinstance(problem, DenseProblem)
        small = dense or prod(problem.shape) <= LARGEST_CORE
        if len(problem.shape) < 3 and min(problem.shape) <= _DIRECT_SVD and small:
            return self._fit_matrix()
        if isinstance(problem, DenseProblem) and core_shape == problem.shape:
            return self._fit_whole(problem)
        if prod(core_shape) > LARGEST_CORE:
            return self._fit_uncompressed()
        compression = compress(self.data, problem, self.rank, self.rng)
        exact = compression.base <= _EXACT * problem.squared_norm
        compression, core_point = self._fit_core(compression, exact)
        reached = monitor.reached(core_point.loss)
        expanded = compression.expand(core_point.factors)
        factors = balanced([problem.native(f) for f in expanded])
        loss = core_point.loss + compression.base
        monitor.base = 0.0
        if exact:
            explicit = problem.explicit_loss(factors)
            loss = loss if explicit is None else explicit
            exact = explicit is None or explicit <= _ROUNDING * problem.squared_norm
        if exact or reached or monitor.ended is not None:
            grams = tuple(problem.gram(f) for f in factors)
            status = monitor.ended or (Status.TARGET_REACHED if reached else Status.CONVERGED)
            return Point(factors, grams, loss), status
        return self._refine(factors, loss)

    def _fit_core(self, wide: Compression, exact: bool) -> tuple[Compression, Point]:
        """The best fit of a core, and the compression that it belongs to."""
        problem, rank = self.problem, self.rank
        outside = prod(problem.shape) - wide.core.size
        if exact or outside == 0:
            return wide, self._fitted(wide, None, 1e-12 if exact else self.tol)
        floor = NoiseFloor(problem.shape, wide.base / outside)
        directions = visible(wide, problem.shape, rank, floor.variance)
        if directions is Directions.MIXED:
            return wide, self._fitted(wide, floor, self.tol)
        if directions is Directions.CLEAR:
            narrow = narrowed(wide, rank)
        else:
            self.monitor.base = wide.base
            freedom = wide.core.size - parameters(wide.core.shape, rank)
            if self.monitor.target_loss() > floor.variance * freedom:
                # A target above the noise may well be met without the passes that sharpening takes.
                point = self._fitted(wide, floor, self.tol)
                if self.monitor.reached(point.loss) or self.monitor.ended is not None:
                    return wide, point
            narrow = sharpened(problem, wide, rank, self.rng)
        floor = NoiseFloor(problem.shape, floor.variance, sharp=True)
        return narrow, self._fitted(narrow, floor, self.tol)

    def _fitted(self, compression: Compression, floor: NoiseFloor | None, tol: float) -> Point:
        self.monitor.base = compression.base
        fit = CoreFit(
            compression.core,
            self.rank,
            self.rng,
            self.monitor,
            lambda point: assemble(self.data.reference, compression.expand(point.factors)),
            floor,
            tol,
            unsorted=tuple(n for n, u in enumerate(compression.bases) if u is None),
        )
        with one_blas_thread():
            return fit.run()

    def _fit_whole(self, problem: DenseProblem) -> tuple[Point, Status]:
        """The fit of a tensor that is too short for its rank to be compressed."""
        fit = CoreFit(
            widened(problem.tensor),
            self.rank,
            self.rng,
            self.monitor,
            assembler(self.data.reference),
            None,
            self.tol,
            compressed=2 * (self.rank + 3) ** len(problem.shape) < prod(problem.shape),
            unsorted=tuple(range(len(problem.shape))),
        )
        point = fit.run()
        if self.monitor.reached(point.loss):
            return point, self.monitor.ended or Status.TARGET_REACHED
        return point, self.monitor.ended or Status.CONVERGED

    def _fit_matrix(self) -> tuple[Point, Status]:
        """A vector as its own only component; a matrix by its leading singular vectors."""
        problem, rank = self.problem, self.rank
        whole = problem.project([None] * len(problem.shape))
        matrix = whole.reshape(whole.shape[0], -1)
        left, values, right = np.linalg.svd(matrix, full_matrices=False)
        count = min(rank, len(values))
        rows = [np.zeros((rank, d), dtype=whole.dtype) for d in matrix.shape]
        rows[0][:count] = left[:, :count].T * np.sqrt(values[:count])[:, None]
        rows[1][:count] = right[:count] * np.sqrt(values[:count])[:, None]
        if whole.ndim == 1:
            rows = [rows[0] * rows[1]]
        loss = float(np.sum(values[count:] ** 2))
        factors = tuple(problem.native(row) for row in rows)
        point = Point(factors, tuple(problem.gram(f) for f in factors), loss)
        ended = self.monitor.record(loss, lambda: assemble(self.data.reference, factors))
        return point, Status.CONVERGED if ended in (None, Status.MAX_ITER) else ended

    def _fit_uncompressed(self) -> tuple[Point, Status]:
        """Extrapolated sweeps from a random start, where even the core would be too large."""
        problem = self.problem
        sweeps = Sweeps(problem)
        factors = random_factors(self.rng, problem.shape, self.rank, self.data.reference)
        point = sweeps.start([problem.native(f) for f in factors])
        rule = StoppingRule(self.tol, 500, 3)
        give = assembler(self.data.reference)
        return iterate(sweeps.extrapolated, point, rule, self.monitor, give)

    def _refine(self, factors: Sequence[Array], loss: float) -> tuple[Point, Status]:
        """Sweeps over the whole tensor, with fits in the subspace of the last change between."""
        monitor, problem = self.monitor, self.problem
        sweeps = Sweeps(problem)
        give = assembler(self.data.reference)
        grams = tuple(problem.gram(f) for f in factors)
        point = Point(tuple(factors), grams, loss)
        single = StoppingRule(0.0, 1)
        for turn in range(_ROUNDS):
            before = point
            point, _ = iterate(sweeps.sweep, point, single, monitor, give)
            if monitor.ended is not None:
                return point, monitor.ended
            if before.loss - point.loss < _FULL_TOL * point.loss:
                break
            if turn > 0:
                point = self._subspace_step(before, point)
                if monitor.reached(point.loss):
                    return point, Status.TARGET_REACHED
        return point, Status.CONVERGED

    def _subspace_step(self, before: Point, after: Point) -> Point:
        """The best fit within the span of the factors before and after a sweep, per mode."""
        problem = self.problem
        bases: list[Array | None] = []
        for old, new, d in zip(before.factors, after.factors, problem.shape, strict=True):
            if 2 * self.rank > 0.75 * d:
                bases.append(None)
            else:
                spanning = np.vstack([to_host(new), to_host(old)]).T
                bases.append(np.ascontiguousarray(np.linalg.qr(spanning)[0].T))
        sizes = [d if u is None else len(u) for u, d in zip(bases, problem.shape, strict=True)]
        if all(basis is None for basis in bases) or prod(sizes) > LARGEST_CORE:
            return after
        core = problem.project(bases)
        small = DenseProblem(core)
        host = [to_host(f) for f in after.factors]
        inside = [f if u is None else f @ u.conj().T for f, u in zip(host, bases, strict=True)]
        sweeps = Sweeps(small)
        rule = StoppingRule(self.tol, 50, 3)
        with one_blas_thread():
            reached, _ = iterate(sweeps.extrapolated, sweeps.start(balanced(inside)), rule)
        outside = max(problem.squared_norm - small.squared_norm, 0.0)
        if reached.loss + outside > after.loss:
            return after
        compression = Compression(core, tuple(bases), outside)
        factors = tuple(problem.native(f) for f in balanced(compression.expand(reached.factors)))
        grams = tuple(problem.gram(f) for f in factors)
        return Point(factors, grams, reached.loss + outside)
