"""Tucker decompositions of tensors with missing entries.

Missing entries take the values of the model, and a sweep of orthogonal iteration improves the model
of the completed tensor. That is expectation and maximization: the squared residual of the observed
entries, which is all that counts, never rises. Sweeps start ahead in the direction of the last
change of the completed tensor while that pays, which takes a tenth of the plain ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from latensor.arrays import Array, Namespace, machine_epsilon
from latensor.decomposition.optimize.iteration import Monitor, StoppingRule, iterate
from latensor.decomposition.optimize.sweeps import MOMENTUM, faster
from latensor.decomposition.result import Status
from latensor.decomposition.tucker.fixed import FixedFactors
from latensor.decomposition.tucker.orthogonal import (
    Subspaces,
    Truncation,
    conjugated,
    orthogonal_sweep,
    squared_norm,
    truncate,
)
from latensor.tensors.dense import DenseTensor, contract_modes

_PATIENCE = 5


@dataclass(frozen=True)
class Completed:
    """Subspaces, the tensor that their model completes, and the loss of the observed entries."""

    found: Subspaces
    filled: Array
    loss: float
    previous: Array = None
    momentum: float = MOMENTUM


@dataclass(frozen=True)
class ObservedTensor:
    """A dense tensor of which some entries are known.

    Attributes
    ----------
    xp : namespace of the arrays
    array : the tensor, zero where unknown
    observed : truth values of the same shape
    rule : how far each mode is cut, the ranks given
    frame : the factors that are given, or None
    """

    xp: Namespace
    array: Array
    observed: Array
    rule: Truncation
    frame: FixedFactors | None

    def fit(
        self,
        start: Subspaces | None,
        tol: float,
        monitor: Monitor,
        assemble: Callable[[Subspaces], Any],
    ) -> tuple[Completed, Status]:
        """Iterate from given subspaces, or from those of the tensor with holes at the mean."""
        xp = self.xp
        count = xp.sum(xp.astype(self.observed, self.array.dtype))
        mean = xp.sum(self.array) / count
        filled = xp.where(self.observed, self.array, mean * xp.ones_like(self.array))
        if start is None:
            seen = self._project(filled).array
            start = truncate(xp, seen, self.rule, squared_norm(xp, seen))
        state = self._completed(start, filled)
        floor = (100 * machine_epsilon(self.array)) ** 2 * monitor.squared_norm
        rule = StoppingRule(
            tol, monitor.budget or 1, _PATIENCE, floor, proof="extrapolation", persistent=True
        )
        return iterate(self.step, state, rule, monitor, lambda state: assemble(state.found))

    def step(self, state: Completed) -> Completed:
        """One sweep on the completed tensor, from ahead of it or, where that fails, from it."""
        if state.previous is not None:
            ahead = state.filled + state.momentum * (state.filled - state.previous)
            reached = self._swept(state.found, ahead)
            if reached.loss < state.loss:
                return replace(reached, previous=state.filled, momentum=faster(state.momentum))
            state = replace(state, momentum=0.5 * state.momentum)
        reached = self._swept(state.found, state.filled)
        if reached.loss >= state.loss:  # only rounding is left
            return replace(state, previous=None)
        return replace(reached, previous=state.filled, momentum=state.momentum)

    def _swept(self, found: Subspaces, filled: Array) -> Completed:
        modes = [m for m, basis in enumerate(found.bases) if basis is not None]
        if not modes:
            return self._completed(found, filled)
        seen = self._project(filled)
        return self._completed(orthogonal_sweep(self.xp, seen, modes, 0.0, found), filled)

    def _completed(self, found: Subspaces, filled: Array) -> Completed:
        """The model of a completed tensor in given subspaces, and what it completes."""
        xp = self.xp
        seen = self._project(filled)
        operands = [None if b is None else conjugated(b) for b in found.bases]
        core = contract_modes(xp, seen.array, operands)
        inner = contract_modes(xp, core, [None if b is None else b.T for b in found.bases])
        model = inner if self.frame is None else self.frame.expand(xp, inner)
        missed = xp.where(self.observed, self.array - model, xp.zeros_like(model))
        loss = squared_norm(xp, missed)
        return Completed(
            replace(found, core=core, loss=loss), xp.where(self.observed, self.array, model), loss
        )

    def _project(self, filled: Array) -> DenseTensor:
        tensor = DenseTensor(filled)
        return tensor if self.frame is None else self.frame.project(tensor)
