"""What the stages of the automatic fit hand on: a core, and how far its fit has come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array
from latensor.decomposition.optimize.iteration import ROUGH, Monitor
from latensor.decomposition.optimize.problem import CompleteProblem, DenseProblem
from latensor.decomposition.optimize.solves import hadamard_of_others, inverse_diagonal
from latensor.decomposition.optimize.starts import parameters
from latensor.decomposition.optimize.sweeps import row_norms
from latensor.decomposition.result import Status
from latensor.decomposition.subspace.compression import Compression
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor

# Squared residual, relative to the tensor, at which a fit is exact: (5e5 eps)^2. No local optimum
# comes near it, and rounding in the Grams keeps some solved problems above anything smaller.
EXACT = 1e-20


def exact_residual(epsilon: float) -> float:
    """Relative residual at which a fit of entries with this rounding error is exact."""
    return float(max(EXACT**0.5, 10 * epsilon))


@dataclass(frozen=True)
class Task:
    """What is asked for: the tensor, the rank, where randomness comes from and whom to tell."""

    data: Contractible
    problem: CompleteProblem
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    tol: float
    thorough: bool


@dataclass(frozen=True)
class Fit:
    """Factors (rank, d) of a core or a tensor, their squared residual, and why the fit ended.

    Of observed entries: also the relative error at entries that were left out of the fit.
    """

    factors: tuple[Array, ...]
    loss: float
    status: Status = Status.MAX_ITER
    held_out_error: float | None = None

    @property
    def rank(self) -> int:
        """The number of components."""
        return int(self.factors[0].shape[0])


@dataclass(frozen=True)
class NoiseFloor:
    """What a perfect fit leaves over, from the energy that compression left out.

    Parameters
    ----------
    shape : of the tensor
    variance : float, squared noise per entry: the energy outside the core over its entries
    sharp : bool, whether the core has only directions of the signal, so that its noise is like
        that of all other entries; a core with spare directions holds the largest of the noise
    """

    shape: tuple[int, ...]
    variance: float
    sharp: bool = False

    def level(self, core_shape: Sequence[int], rank: int) -> float:
        """The loss of a perfect fit of a core: that of noise alone, with a margin.

        Three standard deviations of a chi-squared sum. Directions that lean towards the noise
        hold a tenth more of it; spare ones, which were chosen by energy, up to the edge of its
        spectrum, the largest (1 + sqrt(d_n r_n / #core))^2 over the modes.
        """
        size = prod(core_shape)
        entries = max(size - parameters(core_shape, rank), 0)
        if self.sharp:
            margin = 1.1 + 3.0 * np.sqrt(2.0 / max(entries, 1))
        else:
            pairs = zip(self.shape, core_shape, strict=True)
            margin = 1.15 * max((1.0 + np.sqrt(d * r / size)) ** 2 for d, r in pairs)
        return float(margin * self.variance * entries)

    def beyond_noise(self, loss: float, core_shape: Sequence[int], rank: int) -> float:
        """The most of a loss that is not noise, three standard deviations of which are below it."""
        entries = prod(core_shape) - parameters(core_shape, rank)
        if not self.sharp or entries <= 0:
            return loss
        return loss - self.variance * (entries - 3.0 * float(np.sqrt(2.0 * entries)))


@dataclass(frozen=True)
class Core:
    """A core, what a fit of it needs to know, and whom to tell.

    Parameters
    ----------
    compression : the core and the bases that expand it
    rank : int
    rng : generator
    monitor : of the whole decomposition, its `base` being what the core leaves out
    assemble : puts a CP tensor together from factors of the core, for callbacks
    tol : float, relative decrease of the loss that counts as progress
    floor : NoiseFloor, or None where nothing was left out that could measure the noise
    cheap : bool, whether the core is so much smaller than the tensor that trials are cheap
    overfitted : bool, whether the rank is above that of the signal: which noise the components
        too many describe best only the whole tensor can tell
    """

    compression: Compression
    rank: int
    rng: np.random.Generator
    monitor: Monitor
    assemble: Callable[[Sequence[Array]], CPTensor]
    tol: float
    floor: NoiseFloor | None
    cheap: bool = True
    overfitted: bool = False

    @cached_property
    def problem(self) -> DenseProblem:
        """The core as what is fitted."""
        return DenseProblem(self.compression.core)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the core."""
        return self.problem.shape

    @property
    def smallest(self) -> float:
        """Loss below which only rounding is left: exactly low-rank input goes down to here."""
        return 1e-28 * self.problem.squared_norm

    @property
    def exact(self) -> float:
        """Loss at which a fit is exact."""
        return EXACT * self.problem.squared_norm

    def unmonitored(self) -> Core:
        """The same core for trials, which nobody is told about."""
        return replace(self, monitor=Monitor(self.monitor.squared_norm, base=self.monitor.base))

    def report(self, fit: Fit) -> Fit:
        """A fit, after the callback has been called with it."""
        self.monitor.record(fit.loss, lambda: self.assemble(fit.factors))
        return fit

    def spares(self, fit: Fit) -> bool:
        """Whether a fit is left to the tensor to finish: passes over a large core cost nearly as
        much, noise explains what is left, and sweeps have nearly ended.
        """
        last = self.monitor.history[-2:]
        slow = len(last) == 2 and last[0] ** 2 - last[1] ** 2 <= ROUGH * last[0] ** 2
        return slow and not self.cheap and self.floor is not None and self.accepts(fit)

    def accepts(self, fit: Fit) -> bool:
        """Whether a fit is exact, or as good as noise allows with every component above it."""
        if fit.loss <= EXACT * self.monitor.squared_norm:
            return True
        if self.floor is None:
            return False
        level = self.floor.level(self.shape, self.rank)
        if self.floor.sharp:
            return fit.loss <= level
        energies = np.prod([row_norms(factor) ** 2 for factor in fit.factors], axis=0)
        return bool(fit.loss <= level < energies.min())


def component_costs(factors: Sequence[Array]) -> Any:
    """By how much the loss rises if a component is dropped and one mode may adapt: (rank,)."""
    grams = [factor @ factor.conj().T for factor in factors]
    costs = np.full(len(factors[0]), np.inf)
    for mode, factor in enumerate(factors):
        inverse = inverse_diagonal(hadamard_of_others(grams, mode))
        energy = np.einsum("ij,ij->i", factor, factor.conj()).real
        costs = np.minimum(costs, energy / np.maximum(inverse, np.finfo(float).tiny))
    return costs
