"""Expectation maximization, written once: one loop for every family, over memory or any source.

A pass is a fold of `Statistics`. Where a source is larger than memory, EM runs on a sample whose
statistics are corrected by those of all data (a control variate): its fixed points are those of
EM over all data, at a few passes instead of hundreds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol

import numpy as np

from latensor.moments.sums import plus, times
from latensor.refinement.family import Family, State, Statistics
from latensor.value_files import storable

# A pass over units: what a fold makes of an empty accumulator.
Fold = Callable[[Statistics[State]], Statistics[State]]

# What the longest extrapolation grows by while it succeeds, where a family limits it.
_GROWTH = 4.0
# Steps that an extrapolation looks back on, and the numbers that they may take: in a prototype ten
# in place of five took about as many passes on eight of eleven mixtures, and more on three.
_MOST_STEPS, _MOST_NUMBERS = 6, 1_000_000
# Statistics that were corrected by subtraction have a likelihood only near the state at which they
# were taken: half a packed unit, the width of the data. Beyond, two overlapping states of a chain
# (rate .998, 10,000 rows) sent their means to 1e10.
_REACH = 0.5
# What a step is taken to leave for the next where none before it tells, at the start and after an
# extrapolation: ended by that gain alone, ten states (100,000 rows) left 33 nat in place of 0.02.
_UNSEEN_RATE = 0.99
# The step after an extrapolation gains what that has spoilt, which makes the next look the last: of
# thirty components (9,000 rows) 0.8 nat were left. So EM does not end after one that gained more
# than so many tolerances.
_JUMPED = 10.0
# Rounds of corrected EM: each shrinks the error by (sample size)^-1/2 / (1 - rate of EM).
_ROUNDS = 20
# The log-likelihood of all data that is not worth another step: a twentieth of what the noise of
# one parameter is worth (1/2).
_NOT_WORTH = 0.025
# A round may promise so many times what is expected, and what it promises may be so many times
# what it keeps: five overlapping states of a chain (400,000 rows) were promised 8e-2 of 2e-5.
_BELIEVED = 4.0


class Keeper(Protocol):
    """Where the states of loops are kept."""

    def commit(self, name: str, state: Any) -> None:
        """Keep the state of a loop in place of the folds that have led to it."""


@dataclass(frozen=True, eq=False)
class Loop:
    """Passes of which only the last state is kept: what folds give may be as large as the model.

    Attributes
    ----------
    keeper : Keeper, or None where nothing is kept
    name : str
    state : plain values and arrays that the loop has committed last; None at its beginning
    """

    keeper: Keeper | None = None
    name: str = ""
    state: Any = None

    def commit(self, state: Any) -> None:
        """Keep a state from which the same bits follow."""
        if self.keeper is not None:
            self.keeper.commit(self.name, state)


@dataclass(frozen=True)
class Reached(Generic[State]):
    """Where EM has arrived.

    Attributes
    ----------
    state : the parameters after the last step
    log_likelihood : float, per sample, before the last step
    n_iter : int, passes
    converged : bool, whether the steps to come gain less than the tolerance, if they go on to
        shrink as the last two did; directions much slower than these may hold more
    history : the log-likelihood per sample before every pass
    """

    state: State
    log_likelihood: float
    n_iter: int
    converged: bool
    history: tuple[float, ...] = ()

    @property
    def gain(self) -> float:
        """What all passes but the last one have gained."""
        return self.history[-1] - self.history[0]


def em(
    fold: Fold[State],
    family: Family[State],
    state: State,
    *,
    max_iter: int,
    tol: float = 0.0,
    accelerate: bool = True,
    prepared: bool = False,
    offset: dict[str, Any] | None = None,
    factor: float = 1.0,
    most: float = np.inf,
    loop: Loop | None = None,
) -> Reached[State]:
    """Raise a likelihood by steps of EM, extrapolated where they are slow.

    After a few plain steps, every third point is extrapolated (`_Extrapolation`); one of lower
    likelihood is given up for the plain one. It
    ends where the gain that is left, from the ratio of the last two (Aitken), is below `tol`.

    Parameters
    ----------
    fold : goes over the units
    family, state : the likelihood and where to start
    max_iter : int, passes
    tol : float, log-likelihood per sample
    accelerate : bool, False for plain steps
    prepared : bool, whether the units come out of `family.prepare`
    offset, factor : statistics that are added to `factor` times those of the units; the objective
        is then factor * log-likelihood + complete(offset, state), and steps stay within half a
        packed unit of the start
    most : float, a gain beyond which the objective is not believed
    loop : where the state after every pass is kept, and taken up again
    """
    loop = loop or Loop()
    origin = family.pack(state)
    state, log_likelihood, last_gain, jumped, known, memory = loop.state or (
        state,
        -np.inf,
        np.inf,
        0.0,
        (),
        (),
    )
    history: list[float] = list(known)
    extrapolation = _Extrapolation(family, *memory)

    def step(at: State) -> tuple[State, float]:
        found = fold(Statistics(family, at, prepared))
        sums, value, weight = found.seen(), found.seen()["log_likelihood"], found.weight
        if offset is not None:
            value = factor * value + family.complete(offset, at)
            sums, weight = plus(times(sums, factor), offset), factor * weight + offset["weight"]
        history.append((float(value) + family.log_prior(at)) / weight)
        after = family.maximize(sums, at)
        if accelerate:
            extrapolation.remember(at, after)
        return after, history[-1]

    def reached(converged: bool) -> Reached[State]:
        return Reached(state, log_likelihood, len(history), converged, tuple(history))

    def is_far(at: State) -> bool:
        if offset is None:
            return False
        return history[-1] - history[0] > most or bool(
            np.abs(family.pack(at) - origin).max() > _REACH
        )

    def ends(gain: float) -> bool:
        """Whether all steps to come would gain less than the tolerance."""
        nonlocal last_gain
        rate = _UNSEEN_RATE if np.isinf(last_gain) else 0.0
        if 0 < last_gain < np.inf and gain > 0:
            rate = min(gain / last_gain, 0.999)
        last_gain = gain
        return gain * max(1.0, rate / (1 - rate)) < tol and jumped < _JUMPED * tol

    while len(history) < max_iter:
        if history:
            memory = extrapolation.memory()
            loop.commit((state, log_likelihood, last_gain, jumped, tuple(history), memory))
        for number in (1, 2):
            after, value = step(state)
            if is_far(after):
                return reached(False)
            done = ends(value - log_likelihood)
            state, log_likelihood = after, value
            if done:
                return reached(True)
            few = len(history) < family.plain_steps or len(history) + 2 > max_iter
            if number == 1 and (few or not accelerate):
                break
        else:
            jump = extrapolation.point(state)
            if jump is None or is_far(jump):
                continue
            after, value = step(jump)
            is_higher = value >= log_likelihood and not is_far(after)
            extrapolation.judge(is_higher)
            if is_higher:
                jumped = value - log_likelihood
                state, log_likelihood, last_gain = after, value, np.inf
    return reached(False)


class _Extrapolation(Generic[State]):
    """Where the last steps t -> G(t) of EM point to, in packed coordinates.

    Near an optimum G is linear, and the last steps f = G(t) - t with their differences give the
    point where f would vanish: G(t) - dG c, c minimizing |f - df c| (Anderson; a secant method in
    several directions). Far from it such points are often worse; then the last two steps r and
    r + v of one path are followed to 2 a r + a^2 v, a = |r| / |v| (SQUAREM), at most as far as the
    family allows at first. After m points of the first kind in succession that were given up, m of
    the second kind come before the next.

    Parameters
    ----------
    family : Family
    longest : float, the longest extrapolation of a path, in steps
    steps : the last pairs of t and G(t)
    n_given_up, n_paths : int, m, and how many points of the second kind come next
    """

    def __init__(
        self,
        family: Family[State],
        longest: float | None = None,
        steps: Sequence[tuple[Any, Any]] = (),
        n_given_up: int = 0,
        n_paths: int = 0,
    ) -> None:
        self._family, self._steps = family, list(steps)
        self._longest = family.first_stretch if longest is None else longest
        self._n_given_up, self._n_paths, self._stretch = n_given_up, n_paths, 0.0
        # The state after the last step, packed.
        self._last: tuple[State | None, Any] = None, None

    def memory(self) -> tuple[Any, ...]:
        """All that later points depend on."""
        return self._longest, tuple(self._steps), self._n_given_up, self._n_paths

    def remember(self, at: State, after: State) -> None:
        """One more step."""
        first = self._last[1] if at is self._last[0] else self._family.pack(at)
        self._last = after, self._family.pack(after)
        self._steps.append((first, self._last[1]))
        # A path has two steps.
        most = max(2, min(_MOST_STEPS, _MOST_NUMBERS // (2 * len(self._steps[0][0]))))
        del self._steps[:-most]

    def point(self, like: State) -> State | None:
        """The point that the steps point to, near a state; None where it is not far."""
        points, images = np.array(self._steps).transpose(1, 2, 0)
        steps = images - points
        self._stretch = 0.0
        if self._n_paths or len(self._steps) < 3:
            step, bend = steps[:, -2], steps[:, -1] - steps[:, -2]
            length, curvature = float(np.linalg.norm(step)), float(np.linalg.norm(bend))
            if not curvature > 0 or length <= curvature:
                self._n_paths = max(0, self._n_paths - 1)
                return None
            self._stretch = min(length / curvature, self._longest)
            vector = points[:, -2] + 2 * self._stretch * step + self._stretch**2 * bend
        else:
            changes = np.diff(steps)
            lengths = np.maximum(np.linalg.norm(changes, axis=0), np.finfo(float).tiny)
            cutoff = float(np.sqrt(np.finfo(float).eps))
            parts = np.linalg.lstsq(changes / lengths, steps[:, -1], rcond=cutoff)[0]
            with np.errstate(over="ignore", invalid="ignore"):  # not finite: it is no point
                vector = images[:, -1] - (np.diff(images) / lengths) @ parts
        return self._family.unpack(vector, like) if np.isfinite(vector).all() else None

    def judge(self, is_higher: bool) -> None:
        """Learn whether the likelihood at the last point is higher than before."""
        if self._stretch:
            self._n_paths = max(0, self._n_paths - 1)
            if is_higher:
                self._longest = max(self._longest, _GROWTH * self._stretch)
            else:
                self._longest = max(_GROWTH, self._stretch / _GROWTH)
        else:
            self._n_given_up = 0 if is_higher else self._n_given_up + 1
            self._n_paths = self._n_given_up
        if not is_higher:
            del self._steps[-1:]


def best_start(
    fold: Fold[State],
    family: Family[State],
    candidates: Sequence[State],
    *,
    max_iter: int,
) -> tuple[int, Reached[State]]:
    """The candidate that a few steps of EM lead highest, and where they lead it."""
    settings: dict[str, Any] = {"max_iter": max_iter, "accelerate": False, "prepared": True}
    tried = [em(fold, family, c, **settings) for c in candidates]
    best = max(range(len(tried)), key=lambda i: tried[i].log_likelihood)
    return best, tried[best]


@dataclass(frozen=True)
class Refined(Generic[State]):
    """A state that EM over all data has led to.

    Attributes
    ----------
    statistics : Statistics of all data at the final state, whose `state` and `value` it holds
    n_iter : int, passes over the sample and over all data
    converged : bool
    history : the log-likelihood per sample before every pass
    """

    statistics: Statistics[State]
    n_iter: int
    converged: bool
    history: tuple[float, ...] = ()

    @property
    def state(self) -> State:
        """The parameters."""
        return self.statistics.state


@storable
@dataclass(frozen=True, eq=False)
class _Rounds(Generic[State]):
    """Where rounds of corrected EM have come to.

    Attributes
    ----------
    state, sums : parameters, and the statistics of all data there
    n_iter : int, passes
    history : log-likelihoods per sample
    gain : float, of the last round; None before the first
    number : int, rounds
    ended : "converged", or "sample" where the sample leads no further; else empty
    """

    state: State
    sums: Any
    n_iter: int
    history: tuple[float, ...]
    gain: float | None = None
    number: int = 0
    ended: str = ""


@dataclass(frozen=True)
class Refinement(Generic[State]):
    """How a likelihood is raised over all data.

    Parameters
    ----------
    fold : goes over all units
    family : Family
    sample_fold : goes over units in memory that stand for all, prepared
    sample_is_everything : bool
    max_iter : int, passes of one run of EM
    tol : float, what all steps to come may gain, in log-likelihood per sample
    loop : begins the next loop of passes over all units
    """

    fold: Fold[State]
    family: Family[State]
    sample_fold: Fold[State]
    sample_is_everything: bool
    max_iter: int
    tol: float
    loop: Callable[[], Loop] = Loop

    def plain(self, state: State, n_steps: int) -> Refined[State]:
        """A given number of plain passes over all data."""
        reached = em(
            self.fold,
            self.family,
            state,
            max_iter=n_steps,
            tol=-np.inf,
            accelerate=False,
            loop=self.loop(),
        )
        return Refined(self._at(reached.state), n_steps, False, reached.history)

    def converge(self, state: State) -> Refined[State]:
        """To an optimum of the likelihood of all data."""
        reached = em(
            self.sample_fold,
            self.family,
            state,
            max_iter=self.max_iter,
            tol=self.tol,
            prepared=True,
        )
        if self.sample_is_everything:
            return Refined(
                self._at(reached.state), reached.n_iter, reached.converged, reached.history
            )
        found = self._rounds(reached)
        if found.ended == "converged":
            return Refined(self._known(found), found.n_iter, True, found.history)
        # The sample does not see the slowest directions: only all data do.
        reached = em(
            self.fold,
            self.family,
            found.state,
            max_iter=self.max_iter,
            tol=self._tolerance(found.sums["weight"]) / 10,
            loop=self.loop(),
        )
        return Refined(
            self._at(reached.state),
            found.n_iter + reached.n_iter,
            reached.converged,
            (*found.history, *reached.history),
        )

    def _rounds(self, reached: Reached[State]) -> _Rounds[State]:
        """EM on the sample, corrected by all data until it gains no more."""
        loop = self.loop()
        now: _Rounds[State] | None = loop.state
        if now is None:
            sums = self._at(reached.state).seen()
            now = _Rounds(reached.state, sums, reached.n_iter, reached.history)
        while now.number < _ROUNDS and not now.ended:
            loop.commit(now)
            now = self._next_round(now)
        loop.commit(now)
        return now

    def _next_round(self, now: _Rounds[State]) -> _Rounds[State]:
        at = self._known(now)
        tol = self._tolerance(at.weight)
        reached = self._corrected(at, tol / 10, now.gain)
        found = self._at(reached.state)
        gain = found.objective - at.objective
        now = replace(now, n_iter=now.n_iter + reached.n_iter + 2, gain=gain, number=now.number + 1)
        if gain >= 0:
            history = (*now.history, found.objective)
            now = replace(now, state=reached.state, sums=found.seen(), history=history)
        broken = reached.gain > tol and gain < reached.gain / _BELIEVED
        if broken or gain < tol:
            converged = not broken and reached.converged
            now = replace(now, ended="converged" if converged else "sample")
        return now

    def _tolerance(self, weight: float) -> float:
        return max(self.tol, _NOT_WORTH / weight)

    def _known(self, now: _Rounds[State]) -> Statistics[State]:
        return replace(Statistics(self.family, now.state), sums=now.sums)

    def corrected(self, at: Statistics[State], tol: float) -> tuple[State, int]:
        """The optimum near a state, from the statistics of all data there and the sample.

        Where EM does not converge there, the sample is too small to see the slowest direction, and
        as no likelihood of all data can tell, the plain step of all data is taken.
        """
        reached = self._corrected(at, tol / 10, np.inf)
        return (reached.state if reached.converged else at.maximized()), reached.n_iter + 1

    def _corrected(
        self, at: Statistics[State], tol: float, expected: float | None
    ) -> Reached[State]:
        """EM on the sample, whose statistics are corrected by those of all data.

        With S(t) the statistics at t, it uses f S_sample(t) + [S(t0) - f S_sample(t0)], f being
        how many units one of the sample stands for. `expected` is what it should gain, None for
        what the noise of a sample of m units leaves of p parameters: p / 2m a unit.
        """
        here = self.sample_fold(Statistics(self.family, at.state, True))
        factor = at.weight / here.weight
        if expected is None:
            expected = len(self.family.pack(at.state)) / (2 * here.weight)
        return em(
            self.sample_fold,
            self.family,
            at.state,
            max_iter=self.max_iter,
            tol=tol,
            prepared=True,
            offset=plus(at.seen(), times(here.seen(), -factor)),
            factor=factor,
            most=max(_BELIEVED * expected, 10 * tol),
        )

    def _at(self, state: State) -> Statistics[State]:
        return self.fold(Statistics(self.family, state))
