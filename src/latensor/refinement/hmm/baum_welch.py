"""Baum and Welch's likelihood climb for hidden Markov models, plain or in extrapolated steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from latensor.refinement.hmm.categorical import from_roots, shares_of
from latensor.refinement.hmm.chain import Expectation, Likelihoods, expect, log_likelihood
from latensor.refinement.hmm.sequences import Sequences

# The longest extrapolation at first, and what it grows by while it succeeds.
_FIRST_LENGTH = 4.0
_GROWTH = 4.0


class Emission(Protocol):
    """What a state emits; CategoricalEmission and GaussianEmission are."""

    def likelihoods(self, rows: Any, sequences: Sequences, n_threads: int) -> Likelihoods:
        """How likely every row is in every state."""

    def maximized(self, rows: Any, found: Expectation, n_threads: int) -> Self:
        """The emissions that make the rows likeliest, given what is known of their states."""

    def packed(self) -> Any:
        """The parameters as numbers in which steps can be extrapolated."""

    def unpacked(self, vector: Any) -> Self:
        """The emissions at such numbers, near these."""

    def reordered(self, order: Any) -> Self:
        """The same emissions, states in another order."""

    def pooled(self, first: int, second: int, share: float) -> Self:
        """Two states with what both emit together, of which one has `share`."""

    def parted(self, state: int, place: int, direction: Any) -> Self:
        """A state in two halves along a direction, the second at `place`."""

    def directions(self, rows: Any, posteriors: Any, beside: Any) -> list[tuple[Any, Any]]:
        """Ways to split states: for each the scores (k,) and the directions (k, .)."""

    @property
    def n_parameters(self) -> int:
        """How many numbers are free."""


@dataclass(frozen=True)
class HiddenChain:
    """All parameters of a hidden Markov model.

    Attributes
    ----------
    startprob : (k,)
    transmat : (k, k), rows sum to one
    emission : what the states emit
    """

    startprob: Any
    transmat: Any
    emission: Any  # an Emission; its rows and its own attributes differ by kind

    def reordered(self, order: Any) -> HiddenChain:
        """The same model, states in another order."""
        return HiddenChain(
            self.startprob[order],
            np.ascontiguousarray(self.transmat[np.ix_(order, order)]),
            self.emission.reordered(order),
        )

    def packed(self) -> tuple[Any, ...]:
        """The parameters as numbers in which steps can be extrapolated.

        Square roots of probabilities: there the distance is that of the likelihood.
        """
        return (
            np.sqrt(self.startprob),
            np.sqrt(self.transmat).ravel(),
            self.emission.packed(),
        )

    def unpacked(self, vector: Any) -> HiddenChain:
        """The model at the numbers `vector`, near this one: probabilities that it has stay."""
        k = len(self.startprob)
        return HiddenChain(
            from_roots(vector[None, :k], self.startprob[None])[0],
            from_roots(vector[k : k + k * k].reshape(k, k), self.transmat),
            self.emission.unpacked(vector[k + k * k :]),
        )


@dataclass(frozen=True)
class Climb:
    """Where a climb has come to.

    Attributes
    ----------
    chain : the parameters
    log_likelihood : float, of all rows, under the parameters before the last pass
    n_iter : int, passes over the rows
    converged : bool, whether it stopped because a pass gained too little
    history : log-likelihood per row before every pass
    """

    chain: HiddenChain
    log_likelihood: float
    n_iter: int
    converged: bool
    history: tuple[float, ...]


def total_likelihood(chain: HiddenChain, rows: Any, sequences: Sequences, n_threads: int) -> float:
    """The log-likelihood of all rows under a model."""
    found = chain.emission.likelihoods(rows, sequences, n_threads)
    return log_likelihood(found, sequences, chain.startprob, chain.transmat, n_threads)


def step(
    chain: HiddenChain, rows: Any, sequences: Sequences, n_threads: int
) -> tuple[HiddenChain, float]:
    """One pass: the model that the posteriors under `chain` make likeliest, and its likelihood.

    The likelihood is that of `chain`. One more start, drawn from the average of all states, is
    counted: a single sequence says next to nothing about where sequences begin.
    """
    likelihoods = chain.emission.likelihoods(rows, sequences, n_threads)
    found = expect(likelihoods, sequences, chain.startprob, chain.transmat, n_threads)
    starts = found.starts + found.totals / sequences.weight
    transmat = shares_of(found.steps, chain.transmat)
    emission = chain.emission.maximized(rows, found, n_threads)
    return HiddenChain(starts / starts.sum(), transmat, emission), found.log_likelihood


def climb(
    chain: HiddenChain,
    rows: Any,
    sequences: Sequences,
    *,
    max_iter: int,
    tol: float,
    accelerate: bool,
    n_threads: int,
    callback: Callable[[int, float], None] | None = None,
) -> Climb:
    """Raise the likelihood of the rows until a pass gains less than `tol` per row.

    Plain passes are those of Baum and Welch. Accelerated ones go in threes: with the free numbers
    x0 of a model and x1, x2 after one and two passes, r = x1 - x0 and v = x2 - 2 x1 + x0, the
    third pass starts at x0 + 2 a r + a^2 v with a = |r| / |v| (SQUAREM, Varadhan and Roland 2008),
    and its result is kept only where the likelihood there is higher than at x1.

    Parameters
    ----------
    chain : the start
    rows : symbols (n,) or samples (n, p), as the emission takes them
    sequences : where they begin
    max_iter : int, passes at most
    tol : float, the gain of log-likelihood per row and pass
    accelerate : bool
    n_threads : int, never changes a bit
    callback : told (passes, log-likelihood per row)
    """
    history: list[float] = []
    n_rows = max(sequences.weight, 1.0)

    def passed(start: HiddenChain) -> tuple[HiddenChain, float]:
        following, value = step(start, rows, sequences, n_threads)
        history.append(value / n_rows)
        if callback is not None:
            callback(len(history), value / n_rows)
        return following, value

    value, middle, longest = -np.inf, -np.inf, _FIRST_LENGTH
    converged = False
    while len(history) < max_iter and not converged:
        before = value
        first, value = passed(chain)
        if not accelerate or len(history) == max_iter:
            chain, converged = first, value - before <= tol * n_rows
            continue
        second, middle = passed(first)
        converged = middle - value <= tol * n_rows
        points = (chain, first, second)
        chain, value = second, middle
        if converged or len(history) == max_iter:
            continue
        trial, length = extrapolated(*points, longest)
        third, reached = passed(trial)
        if reached >= middle:
            chain, value = third, reached
            longest = max(longest, _GROWTH * length)
        else:
            longest = max(_FIRST_LENGTH, longest / _GROWTH)
    return Climb(chain, value, len(history), converged, tuple(history))


def extrapolated(
    start: HiddenChain, first: HiddenChain, second: HiddenChain, longest: float
) -> tuple[HiddenChain, float]:
    """Where three models in a row lead to, and the length a of the step (1 is the last of them)."""
    origin, one, two = (np.concatenate(chain.packed()) for chain in (start, first, second))
    direction, bend = one - origin, two - 2 * one + origin
    norm = float(np.linalg.norm(bend))
    length = float(np.linalg.norm(direction)) / norm if norm > 0 else 1.0
    length = min(max(length, 1.0), longest)
    return second.unpacked(origin + 2 * length * direction + length**2 * bend), length
