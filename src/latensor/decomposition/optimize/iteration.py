"""One loop for every iterative method: start, step, stop, finish.

A method is a function from a state to the next state; a state knows its loss, the squared
residual. `iterate` repeats it until a stopping rule holds. One `Monitor` lives as long as a whole
decomposition, which may consist of several stages: it keeps the history, speaks to the callback
and knows the target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from latensor.decomposition.result import Status
from latensor.tensors.cp import CPTensor

# CONVERGED means that so many further Gauss-Newton steps would gain less than `tol` each. It is
# said where one step without damping promises at most this fraction of `tol`: where the valley
# bends, or the residual is large, later steps may gain a few times as much as the first promises.
CONVERGED_STEPS = 50
CONVERGED_PROMISE = 0.2
# Gains, relative to the loss, that are slow, and differences of optima that count. Sweeps make way
# for Levenberg-Marquardt after two in a row, of which one step costs about ten sweeps of a core
# and is worth dozens.
SLOW = 1e-3
# Relative tolerance of fits that are only compared, and of losses that are those of one optimum.
ROUGH = 1e-5
# Sweeps or Levenberg-Marquardt steps of one stage: where so many do not end it, it is in a swamp.
MOST_ITERATIONS = 100
# Levenberg-Marquardt steps after which fits are compared. A trial is on course while as many times
# its gain over such a fraction of all its iterations would take it where it has to come.
TRIAL_STEPS, _LOOKS = 25, 5
# Steps whose gains are compared with those of as many before, to extrapolate what is left.
_WINDOW = 5


class State(Protocol):
    """A point that an iterative method has reached."""

    @property
    def loss(self) -> float:
        """The squared Frobenius norm of the residual (plus penalties, where there are any)."""


StateT = TypeVar("StateT", bound=State)


@dataclass(frozen=True)
class Progress:
    """What a callback is told after every iteration; it may return True to stop.

    Attributes
    ----------
    iteration : int, counted from 1
    residual : float, relative Frobenius norm of what is left
    """

    iteration: int
    residual: float
    _assemble: Callable[[], CPTensor] = field(repr=False)

    @property
    def tensor(self) -> CPTensor:
        """The current decomposition, put together when asked for."""
        return self._assemble()


Callback = Callable[[Progress], Any]


@dataclass
class Monitor:
    """The history of a decomposition, and the ways in which it may be ended from outside.

    Parameters
    ----------
    squared_norm : float, of the data; residuals are relative to it
    target : float, relative residual that is good enough, or None
    budget : int, iterations that may be recorded in all stages together
    callback : called with a `Progress` after every iteration, or None
    base : float, squared residual that no fit of the present stage can touch (what compression
        left out); added to every loss
    """

    squared_norm: float
    target: float | None = None
    budget: int | None = None
    callback: Callback | None = None
    base: float = 0.0
    history: list[float] = field(default_factory=list)
    ended: Status | None = None

    def relative(self, loss: float) -> float:
        """The relative residual that belongs to a loss of the present stage."""
        if self.squared_norm <= 0.0:
            return 0.0
        return float(np.sqrt(max(loss + self.base, 0.0) / self.squared_norm))

    def reached(self, loss: float) -> bool:
        """Whether a loss of the present stage meets the target."""
        return self.target is not None and self.relative(loss) <= self.target

    def target_loss(self) -> float:
        """The loss of the present stage at which the target is met; zero where there is none."""
        if self.target is None:
            return 0.0
        return max(self.target**2 * self.squared_norm - self.base, 0.0)

    def record(self, loss: float, assemble: Callable[[], CPTensor]) -> Status | None:
        """Note one iteration; why the whole decomposition has to end, or None to go on."""
        residual = self.relative(loss)
        self.history.append(residual)
        if self.callback is not None and self.callback(
            Progress(len(self.history), residual, assemble)
        ):
            self.ended = Status.STOPPED
        elif self.target is not None and residual <= self.target:
            self.ended = Status.TARGET_REACHED
        elif self.budget is not None and len(self.history) >= self.budget:
            self.ended = Status.MAX_ITER
        return self.ended


@dataclass(frozen=True)
class StoppingRule:
    """When one stage is done.

    Parameters
    ----------
    tol : float, smallest relative decrease of the loss that counts as progress
    max_iter : int
    patience : int, so many small decreases in a row end the stage: accelerated methods pause
    floor : float, loss below which rounding decides and nothing is left to gain
    plateau : float, loss above which small decreases do not count as convergence
    proof : asked for a state whose decreases are small whether nothing is left to gain there,
        without which the stage ends as MAX_ITER. None for trials, which small decreases end;
        "extrapolation" where the decreases, continued geometrically, have to be small as well
    persistent : bool, whether to go on, twice as patient, where the proof fails
    beat : float, a trial ends where it is not on course below this loss. That costs a fifth of what
        finishing every trial does, and loses few winners
    """

    tol: float
    max_iter: int
    patience: int = 1
    floor: float = 0.0
    plateau: float = np.inf
    proof: Callable[[Any], bool] | Literal["extrapolation"] | None = None
    persistent: bool = False
    beat: float = np.inf


def iterate(
    step: Callable[[StateT], StateT],
    state: StateT,
    rule: StoppingRule,
    monitor: Monitor | None = None,
    assemble: Callable[[StateT], CPTensor] | None = None,
) -> tuple[StateT, Status]:
    """Repeat `step` from `state` until `rule` holds or `monitor` ends the decomposition.

    Without a monitor the stage is a trial: nothing is recorded. Returns the last state and why
    the loop ended.
    """
    slow, patience = 0, rule.patience
    if monitor is not None and monitor.ended is not None:
        return state, monitor.ended
    base = 0.0 if monitor is None else monitor.base
    losses = [state.loss]
    for _ in range(rule.max_iter):
        before = state.loss
        state = step(state)
        losses.append(state.loss)
        if monitor is not None and assemble is not None:
            current = state
            ended = monitor.record(state.loss, lambda s=current: assemble(s))  # type: ignore[misc]
            if ended is not None:
                return state, ended
        if state.loss <= rule.floor or getattr(state, "stationary", False):
            return state, Status.CONVERGED
        back = rule.max_iter // _LOOKS
        ahead = _LOOKS * (losses[-1 - back] - state.loss) if len(losses) > back else np.inf
        if state.loss - ahead > rule.beat:
            return state, Status.STOPPED
        small = before - state.loss <= rule.tol * max(before + base, 0.0)
        slow = slow + 1 if small and state.loss <= rule.plateau else 0
        if slow >= patience:
            if rule.proof == "extrapolation":
                allowed = CONVERGED_STEPS * CONVERGED_PROMISE * rule.tol * (state.loss + base)
                proved = _remaining(losses) <= allowed
            else:
                proved = rule.proof is None or rule.proof(state)
            if proved:
                return state, Status.CONVERGED
            if not rule.persistent:
                return state, Status.MAX_ITER
            slow, patience = 0, 2 * patience
    return state, Status.MAX_ITER


def _remaining(losses: list[float]) -> float:
    """What is left to gain if gains decrease as they did: the rest of a geometric series."""
    window = min(_WINDOW, (len(losses) - 1) // 2)
    if window == 0:  # one step: as if all further ones gained as much
        return CONVERGED_STEPS * (losses[0] - losses[-1])
    late = losses[-1 - window] - losses[-1]
    early = losses[-1 - 2 * window] - losses[-1 - window]
    if late <= 0.0:
        return 0.0
    return late * late / (early - late) if late < early else np.inf
