"""Expectation maximization for mixtures whose components have linear log densities.

Where log p(x, j) = f(x)' c_j with features f(x) (m,), the last of which is 1, both steps are one
matrix product: the joint log densities are F C, and all that the maximization needs are the sums
R' F of the features weighted by responsibility. Gaussians with spherical or diagonal covariances,
categorical variables and their products over views are such families.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from latensor.arrays.threads import one_blas_thread, run_tasks

State = TypeVar("State")
# Rows worked on at a time: features and responsibilities stay in the cache.
_BLOCK = 2048
# The partition of the rows does not depend on the threads: neither do the bits of a sum.
_PARTS = 16
# Plain steps before extrapolation: the first ones move far, and need none.
_PLAIN_STEPS = 6


class Family(Protocol[State]):
    """What a mixture is to expectation maximization: two pure functions."""

    def natural(self, state: State) -> Any:
        """The coefficients C (m, k) of log p(x, j) = f(x)' c_j."""

    def maximize(self, sums: Any) -> State:
        """The parameters that the sums (k, m) of weighted features maximize."""

    def coordinates(self, state: State) -> Any:
        """The parameters as one vector of unbounded numbers, for extrapolation."""

    def from_coordinates(self, vector: Any, like: State) -> State:
        """The parameters of such a vector."""


@dataclass(frozen=True)
class Design:
    """The features of samples, made block by block where they would not fit.

    Attributes
    ----------
    n_rows : int
    block : gives the features (b - a, m) of rows a to b, contiguous float64
    weights : (n_rows,) array, empty where every row counts once
    """

    n_rows: int
    block: Callable[[int, int], Any]
    weights: Any

    @property
    def weight(self) -> float:
        """The number of samples that the rows stand for."""
        return float(self.weights.sum()) if len(self.weights) else float(self.n_rows)


def held(features: Any, weights: Any = None) -> Design:
    """The design of features (n, m) that are at hand."""
    matrix = np.ascontiguousarray(features, dtype=np.float64)
    return Design(len(matrix), lambda a, b: matrix[a:b], _weights(weights))


def made(rows: Any, features: Callable[[Any], Any], weights: Any = None) -> Design:
    """The design of rows (n, d) whose features are made anew, block by block, in every step."""
    return Design(rows.shape[0], lambda a, b: features(rows[a:b]), _weights(weights))


def _weights(weights: Any) -> Any:
    return np.empty(0) if weights is None else np.ascontiguousarray(weights, dtype=np.float64)


def expect(design: Design, natural: Any, n_threads: int = 1) -> tuple[Any, float]:
    """The sums (k, m) of features weighted by responsibility, and the log-likelihood per sample.

    Parameters
    ----------
    design : the samples
    natural : (m, k) coefficients of the joint log densities
    n_threads : int, changes nothing but the time
    """
    from latensor.refinement.gaussian_kernels._kernels import normalize_rows

    natural = np.ascontiguousarray(natural)
    ranges = parts(design.n_rows)
    sums = np.zeros((len(ranges), natural.shape[1], natural.shape[0]))
    logs = np.zeros(len(ranges))

    def part(index: int, start: int, stop: int) -> None:
        for a in range(start, stop, _BLOCK):
            b = min(a + _BLOCK, stop)
            features = design.block(a, b)
            responsibilities = features @ natural
            logs[index] += normalize_rows(responsibilities, design.weights[a:b])
            sums[index] += responsibilities.T @ features

    with one_blas_thread():
        run_tasks(part, [(i, a, b) for i, (a, b) in enumerate(ranges)], n_threads)
    return sums.sum(axis=0), float(logs.sum()) / design.weight


def joint_logs(design: Design, natural: Any, n_threads: int = 1) -> Any:
    """The joint log densities log p(x_i, j) of every sample and component, (n, k)."""
    natural = np.ascontiguousarray(natural)
    result = np.empty((design.n_rows, natural.shape[1]))

    def part(start: int, stop: int) -> None:
        for a in range(start, stop, _BLOCK):
            b = min(a + _BLOCK, stop)
            np.matmul(design.block(a, b), natural, out=result[a:b])

    with one_blas_thread():
        run_tasks(part, parts(design.n_rows), n_threads)
    return result


def parts(n_rows: int) -> list[tuple[int, int]]:
    """The fixed partition of rows into at most sixteen ranges of whole blocks."""
    size = max(1, -(-n_rows // (_PARTS * _BLOCK))) * _BLOCK
    return [(a, min(a + size, n_rows)) for a in range(0, n_rows, size)]


@dataclass(frozen=True)
class Climb(Generic[State]):
    """Where expectation maximization has arrived.

    Attributes
    ----------
    state : the parameters
    log_likelihood : float, per sample, of the parameters before the last step
    n_iter : int, passes over the samples
    converged : bool, whether the last step gained less than the tolerance
    """

    state: State
    log_likelihood: float
    n_iter: int
    converged: bool


def climb(
    design: Design,
    family: Family[State],
    state: State,
    *,
    max_iter: int,
    tol: float = 0.0,
    accelerate: bool = True,
    n_threads: int = 1,
) -> Climb[State]:
    """Raise the likelihood by steps of expectation maximization, extrapolated where they are slow.

    After a few plain steps, two steps r and r + v from the same point are extrapolated to
    -2 a r + a^2 v with a = -|r| / |v| (SQUAREM); a point of lower likelihood is given up for the
    plain one, so that the likelihood never falls.

    Parameters
    ----------
    design, family : the samples and what a mixture is
    state : the parameters to start from
    max_iter : int, passes over the samples
    tol : float, the gain of log-likelihood per sample below which a step is the last
    accelerate : bool, False for plain steps only
    n_threads : int, changes nothing but the time
    """

    def step(current: State) -> tuple[State, float]:
        sums, value = expect(design, family.natural(current), n_threads)
        return family.maximize(sums), value

    n_iter, log_likelihood, converged = 0, -np.inf, False
    while n_iter < max_iter and not converged:
        first, value = step(state)
        n_iter += 1
        converged = value - log_likelihood < tol
        start, state, log_likelihood = state, first, value
        if not accelerate or converged or n_iter < _PLAIN_STEPS or n_iter + 2 > max_iter:
            continue
        second, value = step(first)
        n_iter += 1
        converged = value - log_likelihood < tol
        state, log_likelihood = second, value
        jumped = None if converged else _extrapolate(family, start, first, second)
        if jumped is None:
            continue
        after, value = step(jumped)
        n_iter += 1
        if value >= log_likelihood:
            state, log_likelihood = after, value
    return Climb(state, log_likelihood, n_iter, converged)


def _extrapolate(family: Family[State], start: State, first: State, second: State) -> State | None:
    """The point that two steps from `start` point to; None where they do not point far."""
    origin = family.coordinates(start)
    step = family.coordinates(first) - origin
    bend = family.coordinates(second) - origin - 2 * step
    length, curvature = float(np.linalg.norm(step)), float(np.linalg.norm(bend))
    if not curvature > 0 or length <= curvature:
        return None
    stretch = length / curvature
    vector = origin + 2 * stretch * step + stretch**2 * bend
    return family.from_coordinates(vector, second) if np.isfinite(vector).all() else None
