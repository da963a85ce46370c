"""How much of pure noise a CP fit explains, against which the gain of a component is held."""

from __future__ import annotations

import math
from math import prod

import numpy as np

from latensor.decomposition.auto import Automatic
from latensor.decomposition.decompose import decompose

# How noise is fitted, and data to be held against it: ranks are told apart by more than optima of
# nearly the same loss differ by, and by far more than steps of 1e-5 gain.
FIT = Automatic(tol=1e-5, thorough=False)
# Fraction of the entries that the bound may charge for all ranks together before it is too crude.
_CRUDE = 0.5
# Simulated noise tensors: their number, for tensors up to that many entries and beyond.
_SIMULATIONS = ((1_000, 8), (math.inf, 3))
# Between the typical gain from noise and the largest one that is met.
_MARGIN = 1.25


class NoiseLimit:
    """The least that is left of a white noise tensor by a fit of some rank.

    A component explains at most the squared spectral norm of the noise, which for unit variance is
    below (sum over modes of root d)^2 (Chevet's inequality; from order 3 on the mean of the norm
    is 5 to 10 % lower, its fluctuations are of order one). In small tensors that is a large
    fraction of all there is, and later components find less: there, fits of simulated noise tell.

    Parameters
    ----------
    shape : of the tensor
    max_rank : int
    rng : generator
    """

    def __init__(self, shape: tuple[int, ...], max_rank: int, rng: np.random.Generator) -> None:
        self.shape = shape
        self.entries = prod(shape)
        self.per_component = sum(shape) - len(shape) + 1
        # The bound is all but attained by matrices, where fluctuations then exceed it.
        slack = 1.0 if sum(d > 1 for d in shape) <= 2 else 0.0
        self.charge = (sum(math.sqrt(d) for d in shape) + slack) ** 2
        self._crude = self.charge * max_rank > _CRUDE * self.entries
        self._seed = int(rng.integers(2**62))
        self._known = {0: 0.0}

    def freedom(self, rank: int) -> float:
        """Entries less parameters."""
        if len(self.shape) == 2:
            return float(prod(max(d - rank, 0) for d in self.shape))
        return float(self.entries - self.per_component * rank)

    def saturated(self, rank: int) -> bool:
        """Whether any tensor is fitted exactly at this rank, so that a perfect fit says nothing."""
        if len(self.shape) == 2:
            return rank >= min(self.shape)
        return self.freedom(rank) < 0

    def testable(self, rank: int) -> bool:
        """Whether enough entries are left to tell noise from signal."""
        return self.freedom(rank) >= self.entries / 2

    def log_left(self, rank: int) -> float:
        """Logarithm of the least fraction of the energy of noise that a fit of `rank` leaves."""
        if rank not in self._known:
            bound = 1.0 - rank * self.charge / self.entries
            value = math.log(bound) if bound > 0 else -math.inf
            if self._crude:
                value = max(value, _MARGIN * self._simulated(rank))
            self._known[rank] = value
        return self._known[rank]

    def _simulated(self, rank: int) -> float:
        count = next(n for size, n in _SIMULATIONS if self.entries <= size)
        least = 0.0
        for seed in range(count):
            noise = np.random.default_rng([self._seed, seed]).standard_normal(self.shape)
            residual = decompose(
                noise, rank, algorithm=FIT, random_state=self._seed + seed
            ).residual
            least = min(least, 2.0 * math.log(max(residual, np.finfo(float).tiny)))
        return least
