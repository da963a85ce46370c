"""What speaks for and against each rank: fits of one compressed core, and of its halves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, is_numpy, like, machine_epsilon, to_host
from latensor.decomposition.algorithms.als import compress
from latensor.decomposition.auto import Automatic
from latensor.decomposition.decompose import decompose
from latensor.decomposition.optimize.problem import CompleteProblem
from latensor.decomposition.setup import as_problem
from latensor.decomposition.subspace.compression import LARGEST_CORE, Compression, compressed_shape
from latensor.diagnostics.components import components_of
from latensor.diagnostics.conditioning import sensitivity
from latensor.diagnostics.consistency import consistency_of, degeneracy
from latensor.diagnostics.matching import match
from latensor.diagnostics.noise_limit import FIT, NoiseLimit
from latensor.exceptions import InvalidInputError
from latensor.tensors.contractible import Contractible
from latensor.tensors.cp import CPTensor
from latensor.tensors.dense import DenseTensor

# Rows that each half of a split must have.
_SHORTEST_HALF = 2
_HALF_FIT = Automatic(tol=1e-5, thorough=False)
# Units of what noise could explain from which on a larger rank may show more: noise alone stays
# below 1 / 1.25, the margin of the limit, but for its fluctuations.
_NEAR = 0.9


@dataclass(frozen=True)
class RankEvidence:
    """One row of the evidence: what a fit of this rank looks like.

    Attributes
    ----------
    rank : int
    residual : float, relative Frobenius norm of what is left over
    signal : float or None, how much more the last component explains than it could of pure noise:
        real components have more than 1; None where the tensor is too small to tell
    noise : float or None, standard deviation of an entry, if what is left over is noise
    structure : float or None, the largest singular value of an unfolding of the residual, in units
        of what white noise of that size has: about 1 or less if only noise is left
    core_consistency : float or None, in per cent
    condition : float, condition number of the decomposition
    congruence : float, the most negative cosine between two components
    component_error : float or None, relative error expected of the worst component; above one
        half it is mostly noise
    replicability : float or None, how well two fits to random halves of the tensor agree: the
        lowest match score of a component over all splits; None above the first rank that noise
        explains, and after three in a row that are below 0.8
    spectrum_gap : float or None, ratio of singular value `rank` to the next one, geometric mean
        over the unfoldings that have both
    held_out : float or None, where entries are missing: relative error of the prediction of
        observed entries that the fit was not shown
    """

    rank: int
    residual: float
    signal: float | None
    noise: float | None
    structure: float | None
    core_consistency: float | None
    condition: float
    congruence: float
    component_error: float | None
    replicability: float | None
    spectrum_gap: float | None
    held_out: float | None = None


class Examination:
    """A tensor compressed once, to be fitted at every rank.

    Parameters
    ----------
    data : the tensor
    max_rank : int, the largest rank that the compression must serve
    n_splits : int, how many times the tensor is halved to see what replicates
    rng : generator
    """

    def __init__(
        self, data: Contractible, max_rank: int, n_splits: int, rng: np.random.Generator
    ) -> None:
        size = prod(compressed_shape(data.shape, max_rank))
        if size > LARGEST_CORE:
            raise InvalidInputError(
                f"max_rank={max_rank} needs a compressed tensor of {size} entries, more than the "
                f"{LARGEST_CORE} that are allowed: lower max_rank"
            )
        self.data = data
        self.shape = tuple(data.shape)
        self.entries = prod(self.shape)
        problem = as_problem(data)
        self.squared_norm = problem.squared_norm
        self.exact_residual = max(1e-10, 100 * machine_epsilon(data.reference))
        self.limit = NoiseLimit(self.shape, max_rank, rng)
        self.compression: Compression | None = None
        self.halves: list[tuple[int, Array, Array]] = []
        self.fits: dict[int, CPTensor] = {}
        self.losses = [self.squared_norm]
        self.seed = int(rng.integers(2**62))
        if self.squared_norm > 0:
            self.compression = compress(data, problem, max_rank, rng)
            self.halves = self._all_halves(problem, n_splits, rng)

    def _all_halves(
        self, problem: CompleteProblem, n_splits: int, rng: np.random.Generator
    ) -> list[tuple[int, Array, Array]]:
        """Splits of the modes in turn, the longest first: noise that is smooth along one mode
        looks alike in both halves of it, but not in halves of another.
        """
        longest_first = sorted(range(len(self.shape)), key=lambda m: -self.shape[m])
        modes = [m for m in longest_first if self.shape[m] >= 2 * _SHORTEST_HALF]
        if not modes:
            return []
        return [self._halved(problem, modes[i % len(modes)], rng) for i in range(n_splits)]

    def _halved(
        self, problem: CompleteProblem, mode: int, rng: np.random.Generator
    ) -> tuple[int, Array, Array]:
        """Cores of two random halves of the slices of one mode, in the bases of the whole.

        Components keep their vectors in the other modes, by which the two fits are compared.
        """
        assert self.compression is not None
        order = rng.permutation(self.shape[mode])
        basis = self.compression.bases[mode]
        cores = []
        for rows in (order[: len(order) // 2], order[len(order) // 2 :]):
            if basis is None:
                part = np.eye(self.shape[mode])[rows]
            else:
                # Only the rows of this half: the other must not leak in by way of the basis.
                inside = np.linalg.qr(to_host(basis)[:, rows].T)[0].T
                part = np.zeros((len(inside), self.shape[mode]), dtype=inside.dtype)
                part[:, rows] = inside
            bases = list(self.compression.bases)
            bases[mode] = part if basis is None or is_numpy(basis) else like(part, basis)
            cores.append(problem.project(bases))
        return mode, cores[0], cores[1]

    @cached_property
    def spectra(self) -> tuple[Any, ...]:
        """Leading singular values of the unfoldings, by mode."""
        assert self.compression is not None
        return tuple(_unfolding_values(self.compression.core, m) for m in range(len(self.shape)))

    def empty(self) -> RankEvidence:
        """The row of rank zero: all of the tensor is left over."""
        noise = math.sqrt(self.squared_norm / self.entries)
        present = float(self.squared_norm > 0)
        return RankEvidence(0, present, None, noise, None, None, 1.0, 0.0, None, None, None)

    def row(self, rank: int) -> RankEvidence:
        """Fit the next rank and look at it from all sides."""
        assert self.compression is not None
        core = self.compression.core
        fit = decompose(core, rank, algorithm=FIT, random_state=self.seed + rank)
        self.fits[rank] = fit.tensor
        self.losses.append(self._loss(fit.residual**2 * float(np.vdot(core, core).real)))
        residual = math.sqrt(self.losses[rank] / self.squared_norm)
        freedom = self.limit.freedom(rank)
        variance = self.losses[rank] / freedom if self.limit.testable(rank) else None
        components = components_of(fit.tensor, "fit")
        left_over = core - to_host(fit.tensor.to_dense())
        return RankEvidence(
            rank,
            residual,
            self._signal(rank),
            None if variance is None else math.sqrt(variance),
            self._structure(left_over, variance, residual),
            consistency_of(components, DenseTensor(core)),
            sensitivity(components).condition.value,
            degeneracy(components)[0],
            self._component_error(fit.tensor, variance),
            None,
            _gap(self.spectra, rank),
        )

    def _loss(self, core_loss: float) -> float:
        """The squared residual of the tensor from that of the core."""
        assert self.compression is not None
        # What compression leaves out is a difference of squared norms, good to 1e-15 of them: where
        # the core is fitted exactly and that is all there is, it is rounding.
        rounding = self.compression.base <= 1e-13 * self.squared_norm
        if rounding and core_loss <= self.exact_residual**2 * self.squared_norm:
            return core_loss
        return core_loss + self.compression.base

    def exact(self, row: RankEvidence) -> bool:
        """Whether a fit leaves nothing over, although it could."""
        return row.residual <= self.exact_residual and not self.limit.saturated(row.rank)

    def beaten(self, rank: int) -> bool:
        """Whether some larger rank explains more than it could if only noise were left."""
        for larger in range(rank + 1, len(self.losses)):
            if self.limit.testable(larger) and self._excess(rank, larger) > 1.0:
                return True
        return False

    def nearly_beaten(self, rank: int) -> bool:
        """Whether some larger rank comes near what it could not explain of noise."""
        return any(
            self.limit.testable(larger) and self._excess(rank, larger) > _NEAR
            for larger in range(rank + 1, len(self.losses))
        )

    def _signal(self, rank: int) -> float | None:
        return self._excess(rank - 1, rank) if self.limit.testable(rank) else None

    def _excess(self, rank: int, larger: int) -> float:
        """What a larger rank explains, in units of what it could explain of noise alone."""
        floor = self.exact_residual**2 * self.squared_norm
        gain = math.log(max(self.losses[rank], floor) / max(self.losses[larger], floor))
        fraction = self.entries / self.limit.freedom(rank)
        return gain / (-self.limit.log_left(larger - rank) * fraction)

    def excess_kurtosis(self, rank: int) -> float:
        """Of the entries that a fit leaves over: about 0 for Gaussian noise, large for outliers.

        Known for dense tensors; others are given the benefit of the doubt.
        """
        if not isinstance(self.data, DenseTensor) or self.entries > LARGEST_CORE:
            return 0.0
        left_over = to_host(self.data.array) - to_host(self._expanded(self.fits[rank]).to_dense())
        squares = np.abs(left_over) ** 2
        expected = 2.0 if np.iscomplexobj(left_over) else 3.0
        return float(np.mean(squares**2) / np.mean(squares) ** 2 - expected)

    def _expanded(self, tensor: CPTensor) -> CPTensor:
        """A fit of the core as a fit of the tensor, on the host."""
        assert self.compression is not None
        rows = [np.ascontiguousarray(to_host(f).T) for f in tensor.factors]
        columns = tuple(to_host(f).T for f in self.compression.expand(rows))
        return CPTensor(to_host(tensor.weights), columns)

    def _structure(self, left_over: Any, variance: float | None, residual: float) -> float | None:
        if variance is None or residual <= self.exact_residual:
            return None
        ratios = []
        for mode, d in enumerate(self.shape):
            edge = math.sqrt(variance) * (math.sqrt(d) + math.sqrt(self.entries / d))
            ratios.append(_unfolding_values(left_over, mode)[0] / edge)
        return float(max(ratios))

    def _component_error(self, tensor: CPTensor, variance: float | None) -> float | None:
        if variance is None:
            return None
        components = components_of(self._expanded(tensor), "fit")
        moved = sensitivity(components).components
        if not np.all(np.isfinite(moved)):
            return None
        return float(np.max(math.sqrt(variance) * moved / components.magnitudes))

    def replicability(self, rank: int) -> float | None:
        """The lowest match score of a component between fits of two halves, over all splits."""
        scores = []
        for split, (mode, *halves) in enumerate(self.halves):
            seed = self.seed + 1000 * (split + 1) + rank
            first, second = (
                decompose(half, rank, algorithm=_HALF_FIT, random_state=seed) for half in halves
            )
            others = [m for m in range(len(self.shape)) if m != mode]
            scores += [pair.score for pair in match(first, second, modes=others).pairs]
        return min(scores) if scores else None


def _unfolding_values(tensor: Any, mode: int) -> Any:
    matrix = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
    return np.linalg.svd(matrix, compute_uv=False)


def _gap(spectra: Sequence[Any], rank: int) -> float | None:
    """Geometric mean over the modes of singular value `rank` over the next."""
    logarithms = []
    for values in spectra:
        if len(values) > rank:
            floor = len(values) * np.finfo(float).eps * float(values[0])
            logarithms.append(
                math.log(max(float(values[rank - 1]), floor) / max(float(values[rank]), floor))
            )
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else None
