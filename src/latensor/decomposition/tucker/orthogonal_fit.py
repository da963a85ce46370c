"""The ways to a Tucker decomposition with orthonormal factors: where to start, how to go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from latensor.arrays import Array, Namespace, like, machine_epsilon, to_host
from latensor.arrays.subspace import orthonormal
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.problem import widened
from latensor.decomposition.result import Status
from latensor.decomposition.tucker.compression import (
    compress,
    compress_to_budget,
    has_grams,
    oversampled,
)
from latensor.decomposition.tucker.multistart import best_subspaces, is_searchable
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    conjugated,
    exact_loss,
    expanded,
    orthogonal_sweep,
    squared_norm,
    truncate,
    truncate_matrix,
)
from latensor.tensors.contractible import Contractible
from latensor.tensors.dense import DenseTensor

# A sketch pays off where a mode is this many times longer than what a sketch keeps of it.
_LONG = 8
# The core is small enough to be iterated closer than the tensor.
_CORE_SWEEPS, _CORE_TOL = 20, 1e-5


@dataclass(frozen=True)
class OrthogonalFit:
    """A tensor to be cut to a core, and how far.

    Attributes
    ----------
    xp : namespace of the tensor's arrays
    tensor : what is decomposed
    rule : how far each mode is cut
    energy : float, the squared norm of the tensor, not zero
    rng : draws what is random
    """

    xp: Namespace
    tensor: Contractible
    rule: Truncation
    energy: float
    rng: np.random.Generator

    def start(self, method: str) -> Subspaces:
        """A decomposition without iteration; for "auto" and "hooi" the point to go on from."""
        tensor, rule = self.tensor, self.rule
        if not isinstance(tensor, DenseTensor):
            return self._from_core(method)
        if method == "randomized":
            return self._from_core(method)
        array = tensor.array
        if rule.fixed and len(rule.modes) == array.ndim == 2:
            return truncate_matrix(array, rule, self.energy)
        if method == "auto" and rule.fixed and self._sketch_pays():
            return self._from_core(method)
        return truncate(self.xp, array, rule, self.energy, sequential=method != "hosvd")

    def _from_core(self, method: str) -> Subspaces:
        """A decomposition of a core that keeps more than is asked for, in the end cut down."""
        xp, tensor, rule, energy = self.xp, self.tensor, self.rule, self.energy
        if rule.fixed and method == "hosvd" and has_grams(tensor):
            return compress(xp, tensor, rule.ranks, energy, self.rng, sweeps=0)
        if rule.fixed:
            widths = {m: min(tensor.shape[m], oversampled(r)) for m, r in rule.ranks.items()}
            outer = compress(xp, tensor, widths, energy, self.rng)
        else:
            outer = compress_to_budget(xp, tensor, rule, energy, self.rng)
        rest = squared_norm(xp, outer.core)
        unit = rest or 1.0
        inner_rule = replace(
            rule,
            fractions={m: (s * energy - outer.loss) / unit for m, s in rule.fractions.items()},
            total=(rule.total * energy - outer.loss) / unit,
        )
        inner = truncate(xp, outer.core, inner_rule, rest, sequential=method != "hosvd")
        modes = self._to_sweep(inner, outer.core.shape)
        if method not in ("sequential", "hosvd") and modes:
            core = DenseTensor(outer.core)
            stopping = StoppingRule(_CORE_TOL, _CORE_SWEEPS)
            inner, _ = iterate(
                lambda state: orthogonal_sweep(xp, core, modes, rest, state), inner, stopping
            )
        return expanded(outer, inner)

    def _sketch_pays(self) -> bool:
        """Whether the Gram of the first mode to be cut costs more than a few passes."""
        ranks, shape = self.rule.ranks, self.tensor.shape
        first = min(self.rule.modes, key=lambda m: (ranks[m] / shape[m], -m))
        others = prod(shape) // shape[first]
        return min(shape[first], others) > _LONG * oversampled(ranks[first])

    def start_from(self, factors: Sequence[Array | None], exact: Subspaces | None) -> Subspaces:
        """The point that given factors span, in coordinates of `exact` where there is one."""
        ranks, shape = self.rule.ranks, self.tensor.shape
        if sum(rank < shape[mode] for mode, rank in ranks.items()) <= 1:
            return self.start("sequential")  # a single mode is cut once for all, from any start
        bases: list[Array | None] = [None] * len(factors)
        for mode, factor in enumerate(factors):
            outer = None if exact is None else exact.bases[mode]
            if factor is None or self.rule.ranks[mode] == self.tensor.shape[mode]:
                continue
            inner = factor if outer is None else conjugated(outer).T @ factor
            bases[mode] = orthonormal(inner)
        core = self.tensor.contract(*(None if b is None else conjugated(b) for b in bases))
        loss = max(self.energy - squared_norm(self.xp, core), 0.0)
        return Subspaces(core, tuple(bases), loss)

    def search(self, start: Subspaces) -> Subspaces:
        """The best of several starts, for small dense tensors; see `multistart`."""
        tensor, shape = self.tensor, self.tensor.shape
        floor = 100 * machine_epsilon(tensor.reference) * self.energy
        if not (
            isinstance(tensor, DenseTensor)
            and self.rule.fixed
            and is_searchable(shape)
            and self._to_sweep(start, shape)
            and start.loss > floor
        ):
            return start
        array = widened(to_host(tensor.array))
        hosts = [None if b is None else widened(to_host(b)) for b in start.bases]
        found = best_subspaces(array, hosts, self.energy)
        bases = tuple(None if b is None else like(b, tensor.array) for b in found)
        core = tensor.contract(*(None if b is None else conjugated(b) for b in bases))
        return Subspaces(core, bases, max(self.energy - squared_norm(self.xp, core), 0.0))

    def iterate(
        self,
        start: Subspaces,
        tol: float,
        monitor: Monitor,
        assemble: Callable[[Subspaces], Any],
    ) -> tuple[Subspaces, Status]:
        """Orthogonal iteration until the squared residual falls by less than `tol`."""
        modes = self._to_sweep(start, self.tensor.shape)
        floor = 100 * machine_epsilon(self.tensor.reference) * self.energy
        if start.loss <= floor or not modes:
            return start, Status.CONVERGED

        def step(state: Subspaces) -> Subspaces:
            reached = orthogonal_sweep(self.xp, self.tensor, modes, self.energy, state)
            # Rounding may undo a step that has nothing left to gain.
            return reached if reached.loss <= state.loss else state

        rule = StoppingRule(
            tol, monitor.budget or 1, floor=floor, proof="extrapolation", persistent=True
        )
        return iterate(step, start, rule, monitor, assemble)

    def _to_sweep(self, found: Subspaces, shape: Sequence[int]) -> list[int]:
        """The modes that have a basis, or none where at most one of them is a choice.

        With all other modes whole, the cut of a single mode is already the best one.
        """
        modes = [m for m, basis in enumerate(found.bases) if basis is not None]
        choices = sum(found.ranks[m] < shape[m] for m in modes)
        return modes if choices > 1 else []

    def residual(self, found: Subspaces) -> float:
        """The relative error; entry by entry where a difference of energies loses its digits."""
        loss = exact_loss(self.xp, self.tensor, found.core, found.bases, found.loss, self.energy)
        return float(np.sqrt(loss / self.energy))
