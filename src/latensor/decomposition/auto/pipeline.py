"""The stages of `algorithm="auto"`: compression, the fit of the core, the finish on the tensor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from latensor.arrays import Array, one_blas_thread, to_host
from latensor.decomposition.algorithms.als import compress, random_factors
from latensor.decomposition.auto.contests import Contests
from latensor.decomposition.auto.core_fit import CoreFit
from latensor.decomposition.auto.start_search import NoiseFloor
from latensor.decomposition.optimize.alternating import Point, Sweeps, balanced
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import DenseProblem, Problem, widened
from latensor.decomposition.optimize.starts import overdetermined, parameters
from latensor.decomposition.result import Status
from latensor.decomposition.setup import assemble, assembler
from latensor.decomposition.subspace.compression import (
    LARGEST_CORE,
    Compression,
    compress_to_signal,
    compressed_shape,
)
from latensor.decomposition.subspace.sharpening import (
    Directions,
    narrowed,
    sharpened,
    visible,
)
from latensor.tensors.contractible import Contractible

# Energy outside the core, relative, below which the tensor counts as exactly compressed.
_EXACT = 1e-12
# Relative loss of an expanded core fit that sweeps over the tensor could not improve.
_ROUNDING = 1e-22
_FULL_TOL = 1e-6
# Share of the loss by which a target may be missed for sweeps to go on, and until when.
_NEAR_TARGET = 1e-5
_ROUNDING_TOL = 1e-13
# Tolerance on the core of a fit that describes noise and is far from done with it there.
_ROUGH_TOL = 1e-4
_ROUNDS = 8
# A matrix no wider than this is decomposed by one dense singular value decomposition.
_DIRECT_SVD = 1000
# Entries from which a sweep is so dear that starts are not compared.
_LARGE = 1 << 17


@dataclass(frozen=True)
class _Fitted:
    """A compression, the fit of its core and the point that the fit has reached."""

    compression: Compression
    fit: CoreFit
    point: Point


@dataclass
class StagedFit:
    """One unconstrained fit of a tensor of any kind.

    Parameters
    ----------
    data : the tensor
    problem : the same, as what is fitted
    rank : int
    rng : generator
    monitor : of the whole decomposition
    tol : float, relative decrease of the loss that counts as progress
    thorough : bool, whether to try other optima where noise does not explain the residual
    """

    data: Contractible
    problem: Problem
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    tol: float
    thorough: bool

    def run(self) -> tuple[Point, Status]:
        """The best point found, and why the search for it ended."""
        problem = self.problem
        core_shape = compressed_shape(problem.shape, self.rank)
        dense = isinstance(problem, DenseProblem)
        small = dense or prod(problem.shape) <= LARGEST_CORE
        if len(problem.shape) < 3 and min(problem.shape) <= _DIRECT_SVD and small:
            return self._fit_matrix()
        if isinstance(problem, DenseProblem) and core_shape == problem.shape:
            signal = self._signal(problem)
            if signal is None:
                return self._fit_whole(problem)
            return self._finished(self._fit_signal(signal))
        if prod(core_shape) > LARGEST_CORE:
            return self._fit_uncompressed()
        return self._finished(self._fit_core(compress(self.data, problem, self.rank, self.rng)))

    def _exact(self, compression: Compression) -> bool:
        return compression.base <= _EXACT * self.problem.squared_norm

    def _finished(self, fitted: _Fitted) -> tuple[Point, Status]:
        """The fit of a core as one of the tensor; other optima where the first is not certain.

        With a target the first fit is finished before others are tried, which it may spare.
        """
        if self.monitor.target is None:
            *_, point = fitted.point, *self._improving(fitted)
            return self._expanded(fitted.compression, point)
        best, status = self._expanded(fitted.compression, fitted.point)
        rivals = self._improving(fitted)
        while self.monitor.ended is None and status is not Status.TARGET_REACHED:
            rival = next(rivals, None)
            if rival is None:
                break
            other, status = self._expanded(fitted.compression, rival)
            best = min(best, other, key=lambda p: p.loss)
        self.monitor.base = 0.0
        return best, status

    def _improving(self, fitted: _Fitted) -> Iterator[Point]:
        """Better and better fits of a core, from stages of growing cost."""
        if not self.thorough or self._exact(fitted.compression):
            return
        fit = fitted.fit
        rough = fit.tol > self.tol
        rivals = Contests(fit).improving(fitted.point)
        best = fitted.point
        while True:
            self.monitor.base = fitted.compression.base
            with one_blas_thread():
                if rough:
                    rival: Point | None = replace(fit, tol=self.tol).polish(best)
                else:
                    rival = next(rivals, None)
            if rival is None:
                return
            if rival.loss < best.loss:
                best = rival
                yield best
            if rough:
                return

    def _expanded(self, compression: Compression, core_point: Point) -> tuple[Point, Status]:
        """The fit of a core as one of the tensor, finished there where that can help."""
        problem, monitor = self.problem, self.monitor
        reached = monitor.reached(core_point.loss)
        expanded = compression.expand(core_point.factors)
        factors = balanced([problem.native(f) for f in expanded])
        loss = core_point.loss + compression.base
        monitor.base = 0.0
        exact = self._exact(compression)
        if exact and not (reached and monitor.target_loss() > _EXACT * problem.squared_norm):
            explicit = problem.explicit_loss(factors)
            loss = loss if explicit is None else explicit
            exact = explicit is None or explicit <= _ROUNDING * problem.squared_norm
        if exact or reached or monitor.ended is not None:
            grams = tuple(problem.gram(f) for f in factors)
            status = monitor.ended or (Status.TARGET_REACHED if reached else Status.CONVERGED)
            return Point(factors, grams, loss), status
        return self._refine(factors, loss)

    def _fit_core(self, wide: Compression) -> _Fitted:
        """The best fit of a core, and the compression that it belongs to."""
        problem, rank = self.problem, self.rank
        outside = prod(problem.shape) - wide.core.size
        if self._exact(wide) or outside == 0:
            return self._fitted(wide, None)
        if wide.clear:
            return self._fit_signal(wide)
        floor = NoiseFloor(problem.shape, wide.base / outside)
        directions = visible(wide, problem.shape, rank, floor.variance)
        if directions is Directions.FEWER:
            # Which noise the components too many fit best only the whole tensor can tell.
            return self._fitted(wide, floor, tol=max(self.tol, _ROUGH_TOL))
        if directions is Directions.MIXED:
            return self._fitted(wide, floor)
        if directions is Directions.CLEAR:
            narrow = narrowed(wide, rank)
        else:
            self.monitor.base = wide.base
            freedom = wide.core.size - parameters(wide.core.shape, rank)
            if self.monitor.target_loss() > floor.variance * freedom:
                # A target above the noise may well be met without the passes that sharpening takes.
                fitted = self._fitted(wide, floor)
                if self.monitor.reached(fitted.point.loss) or self.monitor.ended is not None:
                    return fitted
            narrow = sharpened(problem, wide, rank, self.rng)
        return self._fitted(narrow, NoiseFloor(problem.shape, floor.variance, sharp=True))

    def _signal(self, problem: DenseProblem) -> Compression | None:
        """A large tensor without the directions that are noise, where the rank leaves any."""
        if prod(problem.shape) < _LARGE:
            return None
        narrow = [min(d, self.rank) for d in problem.shape]
        if not overdetermined(narrow, self.rank):
            return None
        return compress_to_signal(problem.tensor, self.rank, problem.squared_norm)

    def _fit_signal(self, signal: Compression) -> _Fitted:
        shape = self.problem.shape
        variance = signal.base / (prod(shape) - signal.core.size)
        floor = None if self._exact(signal) else NoiseFloor(shape, variance, sharp=True)
        return self._fitted(signal, floor, compare=signal.core.size < _LARGE)

    def _fitted(
        self,
        compression: Compression,
        floor: NoiseFloor | None,
        *,
        compare: bool = True,
        tol: float | None = None,
    ) -> _Fitted:
        self.monitor.base = compression.base
        fit = CoreFit(
            compression.core,
            self.rank,
            self.rng,
            self.monitor,
            lambda point: assemble(self.data.reference, compression.expand(point.factors)),
            floor,
            1e-12 if self._exact(compression) else tol or self.tol,
            compressed=compare,
            unsorted=tuple(n for n, u in enumerate(compression.bases) if u is None),
        )
        with one_blas_thread():
            return _Fitted(compression, fit, fit.run())

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
        if self.thorough and self.monitor.ended is None and not self.monitor.reached(point.loss):
            point = Contests(fit).improved(point)
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
            gap = point.loss - monitor.target_loss() if monitor.target is not None else np.inf
            tol = _FULL_TOL if gap > _NEAR_TARGET * point.loss else _ROUNDING_TOL
            if before.loss - point.loss < tol * point.loss:
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
