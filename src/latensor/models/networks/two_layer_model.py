"""What is folded for a network with one hidden layer, where its weights start, how they go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import scipy
import scipy.special

from latensor.arrays import Array
from latensor.estimation.base import component_order
from latensor.estimation.directions import varying_directions
from latensor.estimation.model import Answer, Effort, Frame, Model
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.networks.activations import ACTIVATIONS
from latensor.models.networks.two_layer_family import NetworkFamily, NetworkState
from latensor.models.networks.two_layer_read_off import Replicates, Subspace, read_units, subspace
from latensor.models.networks.two_layer_scores import scores_of
from latensor.moments.batch import Batch, Kind
from latensor.moments.responses import JointCovariance
from latensor.moments.score_sums import Residual, ScoreMoments
from latensor.moments.sums import Folded, Grouped, Joint
from latensor.moments.unit_sample import Sample
from latensor.refinement.em import Fold
from latensor.refinement.family import Statistics

# Directions in which third moments are summed where second ones do not show all units.
_MOST_DIRECTIONS = 48
# Units on which starts are compared, the steps and tolerance of each; steps of networks with twice
# the units, and after each unit that they lose.
_TRIAL_UNITS, _TRIAL, _TRIAL_TOL = 10_000, 150, 1e-6
_WIDE_TRIAL, _PRUNING = 200, 60
# Two losses are one where they differ by less than this fraction, or both are next to nothing of
# the variance of y.
_SAME, _TINY = 0.02, 1e-10
# Rounds of corrected steps over all data, and the fraction of the loss that is not worth another.
_ROUNDS = 10
# Groups of samples whose moments tell noise from signal.
_GROUPS, _GROUPS_SEED = 4, 0
# What a logit changes by with a probability near one half.
_SLOPE = 4.0


@dataclass(frozen=True)
class NetworkModel(Model[NetworkState]):
    """The settings of a network, and what its moments say."""

    n_components: int
    activation: str
    loss: str
    n_features: int
    n_outputs: int
    scores: Any
    alpha: float
    n_init: int
    sample_limit: int
    kind: ClassVar[Kind] = Kind.TARGETED
    pilot_size: ClassVar[int] = 20_000

    # ------------------------------------------------------------------ moments
    def survey(self, run: Run, streaming: bool) -> Frame:
        head = run.head()
        both = np.column_stack([np.asarray(part, dtype=np.float64) for part in head.parts])
        summed = run.fold("covariance", JointCovariance(both.mean(axis=0)))
        mean, covariance = summed.finalize()
        d, count, units = self.n_features, self.n_components, summed.seen()["units"]
        if units < count * d:
            raise InvalidInputError(
                f"n_components={count} hidden units on {d} features have {count * d} weights, X "
                f"has {units:.0f} samples: give more samples, or lower n_components"
            )
        spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        scale = np.where(spread > 0, spread, 1.0)
        whitener, lift = varying_directions(covariance[:d, :d])
        target = np.stack([mean[d:], scale[d:]])
        linear = whitener.T @ covariance[:d, d:] / target[1]
        rank = whitener.shape[1]
        frame: dict[str, Any] = {
            "residual": Residual(mean[:d], whitener, target, linear),
            "lift": lift,
            "rank": rank,
            "scores": scores_of(self.scores, run, lift),
            "null": self._null(mean[d:]),
            "constant": tuple(int(i) for i in np.flatnonzero(spread[:d] == 0)),
            "basis": np.eye(rank),
            "spectrum": np.zeros(0),
            "n_seen": 0,
        }
        known: dict[str, Folded] = {"covariance": summed}
        if count <= rank:
            known["squares"], found, frame["third"] = self._surveyed(run, Frame(frame))
            form = Replicates.of(known["squares"]).whole  # type: ignore[arg-type]
            inside = found.basis @ found.basis.T
            form = np.einsum("ab,bcq,cd->adq", inside, form, inside, optimize=True)
            frame |= {
                "quadratic": replace(frame["residual"], quadratic=form),
                "basis": found.basis,
                "spectrum": found.spectrum,
                "n_seen": found.n_seen,
            }
        return Frame(frame, known, units)

    def _surveyed(self, run: Run, frame: Frame) -> tuple[Grouped, Subspace, float | None]:
        """Second moments, and the subspace that they, and where needed third ones, show.

        In a subspace that third moments have chosen, their noise looks like a signal: how far they
        are from zero is told from all directions then.
        """
        squares = run.fold("squares", self._score_moments(frame, 2))
        pair, count = Replicates.of(squares), self.n_components
        found = subspace([pair], count)
        if found.n_seen >= count:
            return squares, found, None
        inner = subspace([pair], min(frame["rank"], _MOST_DIRECTIONS)).basis
        cubes = run.fold("cubes", self._score_moments(frame, 3, inner))
        third = Replicates.of(cubes)
        both = subspace([pair.projected(inner), third], count)
        return squares, replace(both, basis=inner @ both.basis), third.deviations

    def _score_moments(self, frame: Frame, order: int, basis: Any = None) -> Grouped:
        residual = frame.values.get("quadratic", frame["residual"]) if order == 3 else None
        return Grouped.of(
            ScoreMoments(
                residual or frame["residual"],
                order,
                np.eye(frame["rank"]) if basis is None else basis,
                frame["scores"],
                frame["lift"],
            ),
            _GROUPS,
            _GROUPS_SEED,
        )

    def moments(self, frame: Frame) -> dict[str, Folded]:
        residual: Residual = frame["residual"]
        centre = np.concatenate([residual.centre, residual.target[0]])
        covariance = frame.known.get("covariance", JointCovariance(centre)).empty()
        if self.n_components > frame["rank"]:
            return {"covariance": covariance}
        return {
            "covariance": covariance,
            "squares": self._score_moments(frame, 2),
            "cubes": self._score_moments(frame, 3, frame["basis"]),
        }

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[NetworkState]:
        seen = moments["covariance"].seen()
        evidence: dict[str, Any] = {
            "n_samples": float(seen["weight"]),
            "n_units": float(seen["units"]),
            "second": float("nan"),
            "third": float("nan"),
        }
        if self.n_components > frame["rank"]:
            return Answer(None, evidence, doubtful=True)
        basis, residual = frame["basis"], frame["residual"]
        whole = Replicates.of(moments["squares"])
        second, third = whole.projected(basis), Replicates.of(moments["cubes"])
        known = frame.values.get("third")
        evidence["second"] = whole.deviations
        evidence["third"] = third.deviations if known is None else known
        mean, covariance = moments["covariance"].finalize()
        d = self.n_features
        linear = residual.whitener.T @ covariance[:d, d:] / residual.target[1]
        noise = 1 / np.sqrt(evidence["n_units"])
        inner = read_units(
            basis.T @ linear, second, third, self.n_components, self.activation, noise, rng
        )
        if inner is None:
            return Answer(None, evidence, doubtful=True)
        scale = np.linalg.norm(inner.hidden, axis=1)
        height = ACTIVATIONS[self.activation].hermite(scale, inner.bias, 0)[0]
        shift = (mean[d:] - residual.target[0]) / residual.target[1]
        constant, output = shift - inner.output @ height, inner.output
        if self.loss == "log":
            # A probability p near one half has the logit 4 (p - 1/2).
            deviations = residual.target[1]
            constant = _SLOPE * (residual.target[0] + deviations * constant)
            constant = constant - (0.5 * _SLOPE if self.n_outputs == 1 else 0.0)
            output = _SLOPE * deviations[:, None] * output
        state = NetworkState(inner.hidden @ basis.T, inner.bias, output, constant)
        return Answer(state, evidence)

    def _null(self, means: Array) -> float:
        """What the best constant loses, per sample, as the likelihood counts it."""
        if self.loss == "squared":
            return 0.5 * self.n_outputs
        parts = np.append(means, 1 - means) if self.n_outputs == 1 else means
        return float(scipy.special.entr(np.clip(parts, 0.0, 1.0)).sum())

    def check_moments(self, frame: Frame, answer: Answer[NetworkState]) -> None:
        if answer.state is not None:
            return
        if self.n_components > frame["rank"]:
            raise NotIdentifiableError(
                f"n_components={self.n_components} hidden units exceed the {frame['rank']} "
                "directions of X: moments of order three do not determine them; leave refine at "
                "'auto', or lower n_components"
            )
        raise NotIdentifiableError(
            "the third moment of y with the score function of X is "
            f"{answer.evidence['third']:.2g} standard deviations from zero (the second "
            f"{answer.evidence['second']:.2g}), as it is for relu or an odd activation without "
            "biases, or for too few samples: moments do not determine the hidden units; leave "
            "refine at 'auto'"
        )

    # ------------------------------------------------------------------ refinement
    def family(self, frame: Frame) -> NetworkFamily:
        residual: Residual = frame["residual"]
        target = residual.target
        if self.loss == "log":
            target = np.stack([np.zeros(self.n_outputs), np.ones(self.n_outputs)])
        return NetworkFamily(
            residual.centre, residual.whitener, target, self.activation, self.loss, self.alpha
        )

    def sample_size(self, frame: Frame) -> int:
        width = self.n_features + self.n_outputs
        return self.rows_in_memory(self.sample_limit, width)

    def refined(
        self,
        run: Run,
        frame: Frame,
        answer: Answer[NetworkState],
        sample: Sample,
        effort: Effort,
    ) -> Answer[NetworkState]:
        """L-BFGS on all weights: on a sample in memory, then corrected by gradients of all data."""
        family, units = self.family(frame), sample.units
        start, evidence = self._started(run, frame, family, answer, sample)
        steps = effort.max_iter if isinstance(effort.refine, str) else int(effort.refine)
        fold = run.prepared(family, units)
        reached = descended(fold, family, start, steps, effort.tol)
        at = run.fold("gradient", Statistics(family, reached.state))
        n_iter, converged, history = reached.n_iter, reached.converged, [at.objective]
        if not sample.is_everything and isinstance(effort.refine, str):
            converged = False
            for _ in range(_ROUNDS):
                again = descended(fold, family, at.state, steps, effort.tol, at)
                found = run.fold("gradient", Statistics(family, again.state))
                n_iter += again.n_iter
                gain = found.objective - at.objective
                if gain >= 0:
                    at = found
                    history.append(at.objective)
                if gain <= effort.tol * max(abs(at.objective), 1e-300):
                    converged = gain >= 0
                    break
        return replace(
            answer,
            state=at.state,
            statistics=at,
            n_iter=n_iter,
            converged=converged,
            start=evidence["start"],
            history=tuple(history),
            evidence={**answer.evidence, **evidence},
        )

    def corrected(
        self, run: Run, frame: Frame, sums: Joint, answer: Answer[NetworkState]
    ) -> Answer[NetworkState]:
        """L-BFGS on the sample of a stream, corrected by the gradient of all data at the pilot."""
        at, units = sums["statistics"], sums["sample"].units
        fold = run.prepared(at.family, units)
        reached = descended(fold, at.family, at.state, Effort.max_iter, Effort.tol, at)
        return replace(
            answer,
            state=reached.state,
            statistics=replace(at, state=reached.state),
            n_iter=reached.n_iter,
            start="stream",
        )

    def _started(
        self,
        run: Run,
        frame: Frame,
        family: NetworkFamily,
        answer: Answer[NetworkState],
        sample: Sample,
    ) -> tuple[NetworkState, dict[str, Any]]:
        """The best of the moments and of random weights inside the subspace that they show.

        Starts are compared again in all directions: what is best inside, however many agree on it,
        may be wrong outside.
        """
        basis, rng = frame["basis"], run.rng("starts")
        units = sample.first(_TRIAL_UNITS)
        inner = replace(family, whitener=family.whitener @ basis)
        begun = []
        if answer.state is not None:
            begun = [(replace(answer.state, hidden=answer.state.hidden @ basis), "moments")]
        state, evidence = self._best_start(run, inner, units, begun, rng)
        state = replace(state, hidden=state.hidden @ basis.T)
        if basis.shape[1] == basis.shape[0]:
            return state, evidence
        begun = [(state, evidence["start"])]
        return self._best_start(run, family, units, begun, rng)

    def _best_start(
        self,
        run: Run,
        family: NetworkFamily,
        units: Batch,
        begun: list[tuple[NetworkState, str]],
        rng: np.random.Generator,
    ) -> tuple[NetworkState, dict[str, Any]]:
        """The best of given and random starts, and how far they agree.

        A random start is a network of twice the units that loses the least needed ones. Starts end
        where no wider network is better than the best, but for what it fits of the noise: of relu
        networks, two starts in three may agree on the wrong optimum.
        """
        fold, prepared = run.prepared(family, units), family.prepare(units)
        width = family.whitener.shape[1]
        noise = self.n_components * (width + 1 + self.n_outputs) / len(units)
        ends: list[tuple[Descended, str]] = []
        floor = np.inf

        def tried(state: NetworkState, name: str) -> None:
            state = self._with_output(state, prepared)
            ends.append((descended(fold, family, state, _TRIAL, _TRIAL_TOL), name))
            ends.sort(key=lambda end: end[0].loss)

        def is_agreed() -> bool:
            best = ends[0][0].loss if ends else np.inf
            same = _SAME * floor + _TINY
            return bool((1 - noise) * best - same <= floor <= best + same)

        for state, name in begun:
            tried(state, name)
        for number in range(self.n_init):
            wide = self._with_output(self._drawn(2, width, rng), prepared)
            reached = descended(fold, family, wide, _WIDE_TRIAL, _TRIAL_TOL)
            floor = min(floor, reached.loss)
            if is_agreed():
                break
            tried(self._pruned(fold, family, reached.state, prepared), f"random start {number + 1}")
            if is_agreed():
                break
        best, name = ends[0]
        agreed = sum(end.loss <= best.loss * (1 + _SAME) + _TINY for end, _ in ends)
        evidence = {"start": name, "n_starts": len(ends), "n_agreed": agreed}
        ratio = floor / max(best.loss, _TINY)
        evidence["wide"] = ratio if ratio > 1 else min(1.0, ratio / (1 - min(noise, 0.5)))
        return best.state, evidence

    def _pruned(
        self, fold: Fold[NetworkState], family: NetworkFamily, state: NetworkState, units: Batch
    ) -> NetworkState:
        """A wide network without the units that the least squares of its outputs need least.

        Twice as many random units as there are find the optimum far more often than as many do
        (relu, 3 units: 75 to 100 % of the starts against 10 to 50 %).
        """
        while len(state.bias) > self.n_components:
            gram, right = self._normal(state, units)
            inverse = np.linalg.inv(gram)
            found = inverse @ right
            needed = (found[:-1] ** 2).sum(axis=1) / np.diag(inverse)[:-1]
            state = state.permuted(np.delete(np.arange(len(needed)), np.argmin(needed)))
            state = self._with_output(state, units)
            state = descended(fold, family, state, _PRUNING, _TRIAL_TOL).state
        return state

    def _drawn(self, times: int, width: int, rng: np.random.Generator) -> NetworkState:
        """Random weights of several times the units: rows of rotations, so that few are alike."""
        k = times * self.n_components
        rows = [np.linalg.qr(rng.standard_normal((width, width)))[0] for _ in range(-(-k // width))]
        hidden = np.concatenate(rows)[:k] * rng.uniform(0.7, 2.5, (k, 1))
        zero = np.zeros((self.n_outputs, k))
        return NetworkState(hidden, rng.standard_normal(k), zero, np.zeros(self.n_outputs))

    def _normal(self, state: NetworkState, units: Batch) -> tuple[Array, Array]:
        """The normal equations of the output layer, with its ridge; the constant comes last."""
        rows, targets = units.parts
        active = ACTIVATIONS[self.activation].value(rows @ state.hidden.T + state.bias)
        design = np.column_stack([active, np.ones(len(rows))]) * np.sqrt(units.weights)[:, None]
        gram = design.T @ design
        ridge = (self.alpha + 1e-8 * float(np.trace(gram)) / len(gram)) * np.eye(len(gram))
        ridge[-1, -1] *= 1e-6
        factor = _SLOPE if self.loss == "log" else 1.0
        centred = targets - (0.5 if self.loss == "log" and self.n_outputs == 1 else 0.0)
        return gram + ridge, design.T @ (factor * centred * np.sqrt(units.weights)[:, None])

    def _with_output(self, state: NetworkState, units: Batch) -> NetworkState:
        """The output layer that a ridge regression of the targets gives."""
        found = np.linalg.solve(*self._normal(state, units))
        return replace(state, output=found[:-1].T, constant=found[-1])

    # ------------------------------------------------------------------ what users meet
    def order(self, frame: Frame, state: NetworkState) -> Array:
        weights = np.linalg.norm(state.output, axis=0) * np.linalg.norm(state.hidden, axis=1)
        return np.asarray(component_order(weights, state.hidden @ frame["residual"].whitener.T))

    def signed(self, frame: Frame, state: NetworkState) -> NetworkState:
        """Units of symmetric activations with their largest weight positive."""
        centre = ACTIVATIONS[self.activation].twice_centre
        if centre is None:
            return state
        weights = state.hidden @ frame["residual"].whitener.T
        largest = np.argmax(np.abs(weights), axis=1)
        signs = np.where(weights[np.arange(len(weights)), largest] < 0, -1.0, 1.0)
        # a f(u) = a (2c - f(-u)) where f is symmetric about the value c at 0.
        constant = state.constant + centre * state.output @ (signs < 0)
        turned = state.flipped(signs)
        return replace(turned, output=state.output * signs, constant=constant)

    def presented(self, frame: Frame, state: NetworkState) -> NetworkState:
        return self.permuted(self.signed(frame, state), self.order(frame, state))

    def parameters(self, frame: Frame, state: NetworkState) -> dict[str, Array]:
        residual, target = frame["residual"], self.family(frame).target
        components = state.hidden @ residual.whitener.T
        return {
            "components": components,
            "hidden_intercept": state.bias - components @ residual.centre,
            "output": target[1][:, None] * state.output,
            "intercept": target[0] + target[1] * state.constant,
        }

    def aligned(
        self, frame: Frame, state: NetworkState, center: Mapping[str, Array], match_by: str
    ) -> NetworkState:
        return super().aligned(frame, self.signed(frame, state), center, match_by)


@dataclass(frozen=True)
class Descended:
    """Where L-BFGS has arrived; `loss` is what it has lowered, per sample."""

    state: NetworkState
    loss: float
    n_iter: int
    converged: bool


def descended(
    fold: Fold[NetworkState],
    family: NetworkFamily,
    state: NetworkState,
    max_iter: int,
    tol: float,
    at: Statistics[NetworkState] | None = None,
) -> Descended:
    """Raise the likelihood of units by L-BFGS on all weights.

    With `at`, statistics of all data at `state`, what is lowered is the loss of the units plus a
    linear term that makes its gradient at `state` that of all data: its optimum is that of all
    data up to the noise of the curvature.
    """
    origin = family.pack(state)
    tilt = np.zeros_like(origin)

    def lost(vector: Array) -> tuple[float, Array]:
        here = family.unpack(vector, state)
        found = fold(Statistics(family, here, True)).seen()
        weight = found["weight"] if at is None else at.weight
        # The ridge counts once, however many units stand for all of them.
        value = -found["log_likelihood"] / found["weight"] - family.log_prior(here) / weight
        gradient = -found["gradient"] / found["weight"] - family.prior_gradient(here) / weight
        return float(value + vector @ tilt), gradient + tilt

    if at is not None:
        whole = -(at.seen()["gradient"] + family.prior_gradient(state)) / at.weight
        tilt = whole - lost(origin)[1]
    if max_iter == 0:
        return Descended(state, lost(origin)[0], 0, False)
    found = scipy.optimize.minimize(
        lost, origin, jac=True, method="L-BFGS-B",
        options={"maxiter": max_iter, "maxfun": 2 * max_iter, "maxcor": 20, "ftol": 1e-3 * tol,
                 "gtol": 1e-2 * tol},
    )  # fmt: skip
    reached = found.x if np.isfinite(found.x).all() else origin
    end = family.unpack(np.asarray(reached), state)
    return Descended(end, float(found.fun), int(found.nit), bool(found.success))
