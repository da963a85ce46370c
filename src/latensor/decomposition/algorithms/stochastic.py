"""Stochastic least squares: a CP fit of a moment tensor that follows a stream (monograph 6.1.1)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from latensor.arrays import Array, like, to_host
from latensor.decomposition.optimize.solves import hadamard_of_others, solve_gram
from latensor.decomposition.optimize.sweeps import congruences
from latensor.exceptions import ConvergenceWarning, InvalidInputError
from latensor.tensors.cp import CPTensor
from latensor.tensors.moment import MomentTensor, in_batches

# A component collapses where its weight falls below this fraction of that of the start, ...
_LOST = 0.1
# ... or where its cosines with another, multiplied over the modes, pass this figure.
_PARALLEL = 0.9


@dataclass(frozen=True)
class StochasticLeastSquares:
    """Keep a CP fit of E x_1 (x) x_2 (x) x_3 up to date from batches that are seen once.

    For f(C) = |sum_j c-th component - S(x)|^2, S(x) = x_1 (x) x_2 (x) x_3, the monograph's gradient
    is 2 (C G - S(x)(A, B, .)), G the Hadamard product of the Grams of A and B. A batch of b samples
    after N moves every factor against it, in the metric of G:
    C <- C - b / (N + b) (C - S(A, B, .) G^-1), and the weights likewise. So everything seen counts
    the same, in O(b d k) operations and the memory of the factors.

    It does not find components: from a random start it fails, and a component that the start
    lacks is not found later. Start from `lt.decompose` of the first samples. Components that
    vanish or become one are told (`collapsed`, with a warning): decompose anew then.

    Parameters
    ----------
    tensor : CPTensor, the fit so far
    n_samples : float, how many samples it stands for; fewer let it follow a drift faster
    collapsed : components that are no longer what they were at the start

    Examples
    --------
    >>> import latensor as lt
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> means = rng.standard_normal((3, 20))
    >>> def batch(n):
    ...     return means[rng.integers(3, size=n)] + 0.1 * rng.standard_normal((n, 20))
    >>> start = lt.decompose(lt.MomentTensor(batch(200)), 3, symmetric=True)
    >>> fit = lt.decomposition.StochasticLeastSquares(start.tensor, 200)
    >>> for _ in range(20):
    ...     fit = fit.update(batch(500))
    >>> fit.n_samples, fit.collapsed
    (10200.0, ())
    >>> bool(np.abs(fit.tensor.weights).min() > 10)
    True
    """

    tensor: CPTensor
    n_samples: float
    collapsed: tuple[int, ...] = ()
    _start: CPTensor | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.tensor, CPTensor):
            raise InvalidInputError(
                f"tensor is a {type(self.tensor).__name__}, expected the CPTensor of a fit: give "
                "lt.decompose(lt.MomentTensor(first_samples), rank).tensor"
            )
        if not 0 < float(self.n_samples) < np.inf:
            raise InvalidInputError(
                f"n_samples={self.n_samples!r} must be the number of samples, above 0, that "
                "tensor was fitted to"
            )
        unit = self.tensor.normalized()
        object.__setattr__(self, "tensor", unit)
        object.__setattr__(self, "n_samples", float(self.n_samples))
        if self._start is None:
            object.__setattr__(self, "_start", unit)

    def update(self, samples: Any, weights: Any = None) -> StochasticLeastSquares:
        """The fit after one more batch.

        Parameters
        ----------
        samples : (b, d) rows, dense or sparse, or a tuple of them, one view per mode
        weights : (b,) how often each sample counts, default once
        """
        if in_batches(samples):
            raise InvalidInputError(
                f"samples is a {type(samples).__name__} of batches: call update with each of them"
            )
        order = None if isinstance(samples, tuple) else self.tensor.order
        batch = MomentTensor(samples, weights, order)
        if batch.shape != self.tensor.shape:
            raise InvalidInputError(
                f"samples have the moment tensor {batch.shape}, but the fit is of shape "
                f"{self.tensor.shape}"
            )
        # The default weights are 1/b each; weights of the caller count samples.
        count = float(batch.n_terms)
        if weights is not None:
            count = float(to_host(batch.weights.sum()))
            if not count > 0 or bool((to_host(batch.weights) < 0).any()):
                raise InvalidInputError("weights must not be negative, nor all be zero")
        total, step = self.n_samples + count, count / (self.n_samples + count)
        per_sample = 1.0 if weights is None else 1.0 / count
        found = self._moved(batch, per_sample, step)
        assert self._start is not None
        collapsed = _collapsed(self._start, found)
        if set(collapsed) - set(self.collapsed):
            warnings.warn(
                f"components {list(collapsed)} vanished or became one with another after "
                f"{total:,.0f} samples: the start lacked a component, or the data have changed; "
                "decompose recent samples anew",
                ConvergenceWarning,
                stacklevel=2,
            )
        return replace(self, tensor=found, n_samples=total, collapsed=collapsed)

    def _moved(self, batch: MomentTensor, per_sample: float, step: float) -> CPTensor:
        """The factors and weights a step further, all from the same point."""
        reference = batch.reference
        factors = [np.asarray(to_host(f), dtype=np.float64) for f in self.tensor.factors]
        weights = np.asarray(to_host(self.tensor.weights), dtype=np.float64)
        native: list[Array] = [like(f, reference) for f in factors]
        grams = [f.T @ f for f in factors]
        safe = np.where(weights == 0, 1.0, weights)
        moved, inner = [], np.zeros(len(weights))
        for mode, factor in enumerate(factors):
            right = np.asarray(to_host(batch.mttkrp(native, mode)), dtype=np.float64) * per_sample
            inner = np.einsum("ij,ij->j", right, factor)
            target = solve_gram(hadamard_of_others(grams, mode), right.T, 0.0).T
            fresh = (1 - step) * factor + step * target / safe
            moved.append(fresh / np.maximum(np.linalg.norm(fresh, axis=0), 1e-300))
        fitted = solve_gram(np.prod(grams, axis=0), inner[:, None], 0.0)[:, 0]
        weights = (1 - step) * weights + step * fitted
        return CPTensor(like(weights, reference), tuple(like(f, reference) for f in moved))


def _collapsed(start: CPTensor, now: CPTensor) -> tuple[int, ...]:
    """Components that lost their weight, or came to lie on another."""
    before, after = (np.abs(np.asarray(to_host(t.weights))) for t in (start, now))
    lost = after < _LOST * before
    lost |= (_overlaps(now.factors) > _PARALLEL) & (_overlaps(start.factors) <= _PARALLEL)
    return tuple(int(j) for j in np.flatnonzero(lost))


def _overlaps(factors: Sequence[Array]) -> Any:
    """The largest product of cosines that each component has with another."""
    return congruences([np.asarray(to_host(f)).T for f in factors]).max(axis=1, initial=0.0)
