"""Alternating least squares for symmetric tensors: one factor, any rank (monograph 3.7)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from latensor.arrays import check_positive_int, is_complex, machine_epsilon, to_host
from latensor.decomposition.algorithms.symmetric import (
    relative_residual,
    symmetric_cp,
    symmetric_tensor,
)
from latensor.decomposition.algorithms.symmetric_spectral import SymmetricSpectral
from latensor.decomposition.optimize.iteration import (
    CONVERGED_STEPS,
    Callback,
    Monitor,
    StoppingRule,
    iterate,
)
from latensor.decomposition.optimize.starts import random_start
from latensor.decomposition.optimize.symmetric_sweeps import (
    SymmetricIterate,
    SymmetricSweeps,
    Variant,
)
from latensor.decomposition.result import Decomposition
from latensor.decomposition.setup import as_problem, refuse_rank, starting_factors
from latensor.exceptions import InvalidInputError
from latensor.tensors.cp import CPTensor


@dataclass(frozen=True)
class SymmetricLeastSquares:
    """Fit sum_j w_j a_j^(x)p to a symmetric tensor by alternating least squares (monograph 3.7).

    A_t = norm(T_(1) (B kr C) (B'B * C'C)^-1), where B and C are earlier iterates. Unlike the power
    method it needs no orthogonal components, and any rank is allowed; unlike it, it may end in a
    local optimum, which the spectral start avoids where rank <= d.

    Parameters
    ----------
    variant : "delayed", B = A_{t-1} and C = A_{t-2}, the monograph's first; or "same",
        B = C = A_{t-1}, its second. The first is the ordinary alternating method, and converges
        from near a solution, though slowly where components are nearly parallel. The second
        moves all modes at once: where two components have a cosine above about 0.4 (order 3) it
        may leave the solution it starts from, and the best iterate is returned.
    start : "spectral", the result of `SymmetricSpectral` (random where rank > d or the tensor is
        complex), which on exact input is the answer already; or "random", which with 10 starts
        failed for 1 to 3 of 100 orthogonal tensors (d = 6, rank 4) but for 47 ("delayed") and 79
        ("same") of 100 with independent components
    n_restarts : int, random starts, each tried for a few steps; the best goes on
    ridge : float, the monograph's alpha, added to the diagonal of B'B * C'C
    tol : float, relative decrease of the squared residual that counts as progress
    target : float, stop as soon as the relative residual is at most this
    max_iter : int, steps
    """

    variant: Variant = "delayed"
    start: Literal["spectral", "random"] = "spectral"
    n_restarts: int = 10
    ridge: float = 0.0
    tol: float = 1e-8
    target: float | None = None
    max_iter: int = 500

    def __call__(
        self,
        tensor: object,
        rank: int,
        rng: np.random.Generator,
        callback: Callback | None = None,
        *,
        init: object = None,
    ) -> Decomposition:
        """Decompose a symmetric tensor of any kind, of order 3 or more, real or complex.

        Parameters
        ----------
        tensor : dense array of any library, or sparse, factored or implicit tensor
        rank : int, at least 1
        rng : Generator, draws the starts
        callback : told after every step; may return True to stop
        init : CPTensor or pair (weights, factors) whose first factor to start from
        """
        data = symmetric_tensor(tensor, type(self).__name__, complex_allowed=True)
        rank = refuse_rank(rank)
        self._check()
        problem = as_problem(data)
        order = len(data.shape)
        sweeps = SymmetricSweeps(problem, self.variant, self.ridge)
        monitor = Monitor(problem.squared_norm, self.target, self.max_iter, callback)

        def assemble(state: SymmetricIterate) -> CPTensor:
            factor = to_host(state.factor).T
            return symmetric_cp(data.reference, sweeps.weights(state.factor), factor, order)

        if init is not None:
            state = sweeps.start(starting_factors(init, data.shape, rank, order - 1)[0])
        elif self.start == "spectral" and rank <= data.shape[0] and not is_complex(data.reference):
            model = SymmetricSpectral()(data, rank, rng).tensor
            state = sweeps.start(np.array(to_host(model.factors[0]).T, dtype=np.float64, order="C"))
        else:
            trials = StoppingRule(self.tol, min(CONVERGED_STEPS, self.max_iter), CONVERGED_STEPS)
            dtype = np.dtype(complex if is_complex(data.reference) else float)
            ends = []
            for _ in range(self.n_restarts):
                (factor,) = random_start(data.shape[:1], rank, rng, dtype)
                ends.append(iterate(sweeps.step, sweeps.start(factor), trials)[0])
            state = min(ends, key=lambda end: end.loss)
        best = [state]

        def step(current: SymmetricIterate) -> SymmetricIterate:
            ahead = sweeps.step(current)
            if ahead.loss < best[0].loss:
                best[0] = ahead
            # Progress is counted against the best so far: neither variant falls at every step.
            return replace(ahead, loss=best[0].loss)

        floor = (10 * machine_epsilon(data.reference)) ** 2 * problem.squared_norm
        rule = StoppingRule(
            self.tol,
            self.max_iter,
            CONVERGED_STEPS,
            floor=floor,
            proof="extrapolation",
            persistent=True,
        )
        _, status = iterate(step, state, rule, monitor, assemble)
        model = assemble(best[0])
        history = np.array(monitor.history)
        return Decomposition(model, relative_residual(data, model), len(history), status, history)

    def _check(self) -> None:
        check_positive_int(self.n_restarts, "n_restarts")
        check_positive_int(self.max_iter, "max_iter")
        if self.variant not in ("delayed", "same"):
            raise InvalidInputError(f"variant={self.variant!r} must be 'delayed' or 'same'")
        if self.start not in ("spectral", "random"):
            raise InvalidInputError(f"start={self.start!r} must be 'spectral' or 'random'")
        if not self.ridge >= 0:
            raise InvalidInputError(f"ridge={self.ridge!r} must be a number of at least 0")
