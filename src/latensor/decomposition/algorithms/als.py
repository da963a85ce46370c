"""Alternating least squares: one factor at a time, by a linear least-squares solve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import cast

import numpy as np

from latensor.arrays import Array, is_complex, to_host
from latensor.decomposition.optimize.convergence import has_converged
from latensor.decomposition.optimize.iteration import Callback, Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.masked import Observed, observe, refuse_too_few_entries
from latensor.decomposition.optimize.nonnegative import nonnegative_part
from latensor.decomposition.optimize.problem import CompleteProblem, DenseProblem, Problem
from latensor.decomposition.optimize.starts import leading_start, random_start
from latensor.decomposition.optimize.sweeps import Sweeps, balanced
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import (
    as_problem,
    as_tensor,
    assembler,
    check_fixed_modes,
    check_limits,
    check_ridge,
    finish,
    nonnegative_modes,
    refuse_rank,
    starting_factors,
    without_negative_entries,
)
from latensor.decomposition.subspace.compression import (
    LARGEST_CORE,
    Compression,
    compress_contractible,
    compress_dense,
    compressed_shape,
)
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible


@dataclass(frozen=True)
class AlternatingLeastSquares:
    """Fit a CP tensor of any order and rank by alternating least squares (monograph 3.7).

    Mode n solves min |T_(n) - A_n K'| over A_n, with K the Khatri-Rao product of the other
    factors, through the normal equations A_n Gamma = T_(n) K of size rank. Dependent components
    are no obstacle: the solve then returns the solution of least norm.

    Parameters
    ----------
    ridge : float, weight of the penalty |A_n|^2 of every factor, as the monograph's regularized
        ALS has it
    nonnegative : bool, or modes such as (0, 2): keep the entries of these factors at or above zero
    fixed_modes : modes whose factors stay exactly as `init` has them
    extrapolate : bool, start each sweep ahead in the direction of the last change; a sweep that
        does not lower the residual is undone, so that the residual still never rises
    start : "leading" (leading directions of every mode, random beyond their number) or "random",
        where no `init` is given
    tol : float, stop when the squared residual falls by less than this fraction, three times in a
        row
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, sweeps
    """

    ridge: float = 0.0
    nonnegative: bool | tuple[int, ...] = False
    fixed_modes: tuple[int, ...] = ()
    extrapolate: bool = True
    start: str = "leading"
    tol: float = 1e-8
    target: float | None = None
    max_iter: int = 500

    def __post_init__(self) -> None:
        check_limits(self.tol, self.target, self.max_iter)
        check_ridge(self.ridge)
        if self.start not in ("leading", "random"):
            raise InvalidInputError(f"start={self.start!r} must be 'leading' or 'random'")

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
        observed = None if mask is None else observe(data, mask)
        problem: Problem = as_problem(data, rank) if observed is None else observed
        order = len(problem.shape)
        nonnegative = nonnegative_modes(self.nonnegative, order)
        if nonnegative and is_complex(data.reference):
            raise InvalidInputError("nonnegative needs a real tensor, but this one is complex")
        fixed = check_fixed_modes(self.fixed_modes, order, init)
        free = tuple(mode for mode in range(order) if mode not in fixed)
        if observed is not None and not self.ridge:
            refuse_too_few_entries(observed, rank, fixed)
        if init is None:
            factors = self._start(data, problem, rank, rng)
            factors = nonnegative_part(factors, nonnegative) if nonnegative else factors
        else:
            factors = starting_factors(init, problem.shape, rank, free[-1])
            factors = without_negative_entries(factors, nonnegative, fixed)
        if not fixed:
            factors = balanced(factors)
        sweeps = Sweeps(problem, free, self.ridge, nonnegative)
        factors = tuple(problem.native(f) for f in factors)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)
        floor = (10 * problem.epsilon) ** 2 * problem.squared_norm
        step = sweeps.extrapolated if self.extrapolate else sweeps.sweep
        assemble = assembler(data.reference, fixed)
        proof = partial(
            has_converged,
            problem,
            tol=self.tol,
            ridge=self.ridge,
            fixed=fixed,
            nonnegative=nonnegative,
        )
        rule = StoppingRule(
            self.tol, self.max_iter, 3, floor, proof=lambda p: proof(p.factors), persistent=True
        )
        point, status = iterate(step, sweeps.start(factors), rule, monitor, assemble)
        loss = point.loss
        if self.ridge:
            loss -= self.ridge * sum(float(np.linalg.norm(to_host(f))) ** 2 for f in point.factors)
        residual = monitor.relative(loss)
        return finish(data.reference, point.factors, residual, status, monitor, fixed)

    def _start(
        self,
        data: Contractible,
        problem: Problem,
        rank: int,
        rng: np.random.Generator,
    ) -> Sequence[Array]:
        shape = compressed_shape(problem.shape, rank)
        wanted = self.start == "leading" and prod(shape) <= LARGEST_CORE
        if wanted and not isinstance(problem, Observed):
            compression = compress(data, cast(CompleteProblem, problem), rank, rng)
            return compression.expand(leading_start(compression.core, rank, rng))
        return random_factors(rng, problem.shape, rank, data.reference)


def random_factors(
    rng: np.random.Generator, shape: tuple[int, ...], rank: int, reference: Array
) -> tuple[Array, ...]:
    """Gaussian transposed factors, complex where the tensor is."""
    return random_start(shape, rank, rng, complex if is_complex(reference) else float)


def compress(
    data: Contractible, problem: CompleteProblem, rank: int, rng: np.random.Generator
) -> Compression:
    """A tensor of any kind compressed to a core on the host."""
    if isinstance(problem, DenseProblem):
        return compress_dense(problem.tensor, rank, rng, problem.squared_norm)
    return compress_contractible(data, problem, rank, rng)
