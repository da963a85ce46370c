"""What is folded for a mixture of regressions, and where EM starts (monograph 4.5)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from latensor.arrays import Array
from latensor.decomposition import JointDiagonalization
from latensor.diagnostics.findings import shown_spectrum
from latensor.engines import LocalEngine
from latensor.estimation.base import component_order
from latensor.estimation.directions import varying_directions
from latensor.estimation.halves import select_by_halves
from latensor.estimation.model import Answer, Effort, Frame, Model, Search, Start
from latensor.estimation.run import Run
from latensor.estimation.selection import Selection
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.regression.mixture_family import (
    RegressionMixtureFamily,
    RegressionMixtureState,
)
from latensor.moments.batch import Batch, Kind
from latensor.moments.responses import JointCovariance, ResponseCubes, ResponseSquares
from latensor.moments.sums import Folded, Joint
from latensor.refinement.em import Reached, em
from latensor.sources.shards import Source

# Units on which starts are compared, passes of EM for each, and what they may leave to gain.
_TRIAL_UNITS, _TRIAL, _LEFT = 10_000, 100, 1e-4
# Likelihoods per sample that differ by less belong to one optimum of a trial. Two starts can agree
# on a wrong one (3 of 20 runs of ten components, where two were enough): so many are always tried.
_SAME = 1e-3
_FEWEST = 6
# Starts in all features, at least, where the second moment does not show all directions of the
# components, and the passes and tolerance of each: of 15 regressions on 20 features starts inside
# its subspace had agreed on a wrong optimum, and single ones in all features found the right one.
_WHOLE, _PASSES, _WHOLE_LEFT = 3, 200, 1e-6
# The variance of the noise at a start, as a fraction of that of y: EM lets it shrink.
_FIRST_VARIANCE = 0.3


@dataclass(frozen=True)
class RegressionMixtureModel(Model[RegressionMixtureState]):
    """The settings of a mixture of regressions, and what its moments say."""

    n_components: int | str
    link: str
    n_features: int
    sample_limit: int
    n_init: int
    reg_covar: float
    kind: ClassVar[Kind] = Kind.TARGETED
    pilot_size: ClassVar[int] = 20_000

    def select(self, run: Run, effort: Effort) -> Selection | None:
        automatic = isinstance(self.n_components, str)
        return select_by_halves(run, self, effort) if automatic else None

    def survey(self, run: Run, streaming: bool) -> Frame:
        head = run.head()
        both = np.column_stack([np.asarray(part, dtype=np.float64) for part in head.parts])
        summed = run.fold("covariance", JointCovariance(both.mean(axis=0)))
        mean, covariance = summed.finalize()
        count, units = int(self.n_components), summed.seen()["units"]
        needed = count * (self.n_features + 1)
        if units < needed:
            raise InvalidInputError(
                f"n_components={count} regressions of {self.n_features} features have {needed} "
                f"coefficients, X has {units:.0f} samples: give more samples, or lower n_components"
            )
        whitener, _ = varying_directions(covariance[:-1, :-1])
        deviation = float(np.sqrt(max(covariance[-1, -1], 0.0))) or 1.0
        target = np.array([mean[-1], deviation]) if self.link == "identity" else np.array([0.0, 1])
        squares = ResponseSquares(mean[:-1], whitener, np.array([mean[-1], deviation]))
        known: dict[str, Folded] = {"covariance": summed}
        rank = whitener.shape[1]
        basis = np.eye(rank)
        if self.link == "identity" and count < rank:
            known["squares"] = filled = run.fold("squares", squares)
            basis = leading(filled.finalize(), count)
        frame = {
            "count": count,
            "centre": mean[:-1],
            "whitener": whitener,
            "target": target,
            "scale": squares.target,
            "basis": basis,
            "rank": rank,
            "constant": tuple(int(i) for i in np.flatnonzero(np.diag(covariance)[:-1] <= 0)),
            "floor": max(self.reg_covar / target[1] ** 2, 1e-12),
        }
        return Frame(frame, known, units)

    def moments(self, frame: Frame) -> dict[str, Folded]:
        whitening = (frame["centre"], frame["whitener"], frame["scale"])
        wanted: dict[str, Folded] = {
            "covariance": JointCovariance(np.append(frame["centre"], frame["scale"][0]))
        }
        wanted["covariance"] = frame.known.get("covariance", wanted["covariance"]).empty()
        if self.by_moments(frame):
            wanted["squares"] = ResponseSquares(*whitening)
            wanted["cubes"] = ResponseCubes(*whitening, frame["basis"])
        return wanted

    def by_moments(self, frame: Frame) -> bool:
        """Whether moments determine the components."""
        return self.link == "identity" and frame["count"] <= frame["rank"]

    def read_off(
        self, frame: Frame, moments: Joint, rng: np.random.Generator
    ) -> Answer[RegressionMixtureState]:
        evidence: dict[str, Any] = {"off_diagonal": float("nan"), "gap": float("nan")}
        evidence["n_samples"] = float(moments["covariance"].seen()["weight"])
        if not self.by_moments(frame):
            return Answer(None, evidence, doubtful=True)
        count, basis = frame["count"], frame["basis"]
        squares = moments["squares"].finalize()
        second = basis.T @ squares["second"] @ basis / 2
        values, vectors = np.linalg.eigh(second)
        values, vectors = values[::-1][:count], vectors[:, ::-1][:, :count]
        noise = float(np.sqrt(frame["rank"] / evidence["n_samples"]))
        evidence["gap"] = float(values[-1]) / noise
        whole = np.linalg.eigvalsh(squares["second"])[::-1] / 2
        # Entries of y^2 (xx' - I) / 2 of a standardized normal y have the variance 3 / 4 n: their
        # eigenvalues reach 3^1/2 (r / n)^1/2.
        evidence["n_seen"] = int((whole[:count] > np.sqrt(3) * noise).sum())
        evidence["spectrum"] = tuple(float(v) for v in whole[:count] / max(whole[0], 1e-300))
        if values[-1] <= 1e-12 * abs(values[0]):
            return Answer(None, evidence, doubtful=True)
        root = vectors * np.sqrt(values)
        back = vectors / np.sqrt(values)
        third = moments["cubes"].finalize() / 6
        core = np.einsum("abc,ai,bj,ck->ijk", third, back, back, back, optimize=True)
        found = JointDiagonalization()(core, count, rng)
        sizes, (turned, *_) = found
        sizes = np.where(np.abs(sizes) < 1e-3, 1e-3, sizes)
        weights = 1 / sizes**2
        # The core is sum_j w_j^-1/2 v_j^(x)3, v_j = w_j^1/2 back'b_j.
        slopes = (root @ (turned * sizes)).T
        system = np.vstack([(weights[:, None] * slopes).T, weights])
        known = np.append(basis.T @ squares["square"] / 2, 0.0)
        intercepts = np.linalg.lstsq(system, known, rcond=1e-6)[0]
        explained = weights @ ((slopes**2).sum(axis=1) + intercepts**2)
        variance = max(1 - float(explained), frame["floor"], 1e-4)
        coefficients = np.column_stack([intercepts, slopes @ basis.T])
        weights = np.maximum(weights, 1e-3 / count)
        state = RegressionMixtureState(
            weights / weights.sum(), coefficients, np.full(count, variance)
        )
        evidence["off_diagonal"] = found.off_diagonal
        return Answer(state, evidence, doubtful=count > 1)

    def check_moments(self, frame: Frame, answer: Answer[RegressionMixtureState]) -> None:
        if answer.state is None:
            spectrum = answer.evidence.get("spectrum")
            seen = f" (spectrum {shown_spectrum(spectrum)} of the largest)" if spectrum else ""
            raise NotIdentifiableError(
                f"n_components={frame['count']} regressions on {frame['rank']} independent "
                f"features with link={self.link!r} are not determined by three moments{seen}: "
                "leave refine at 'auto'"
            )

    def family(self, frame: Frame) -> RegressionMixtureFamily:
        return RegressionMixtureFamily(
            frame["centre"], frame["whitener"], self.link, frame["floor"], frame["target"]
        )

    def sample_size(self, frame: Frame) -> int:
        return self.rows_in_memory(self.sample_limit, self.n_features + 1)

    def search(
        self, frame: Frame, search_: Search[RegressionMixtureState]
    ) -> Start[RegressionMixtureState]:
        """The best of random rotations inside the subspace that the second moment shows.

        They end once six are tried and two of them have led to the best optimum. Where the moment
        does not show all directions, starts in all features take their place.
        """
        count, basis, rank = frame["count"], frame["basis"], frame["rank"]
        units, rng = search_.sample.take(slice(0, _TRIAL_UNITS)), search_.rng
        names = [f"random start {number + 1}" for number in range(max(self.n_init, 1))]
        starts: dict[str, RegressionMixtureState] = {}
        if search_.evidence.get("n_seen", count) < count < rank:
            basis, inner, fold = np.eye(rank), self.family(frame), search_.fold
            most, tol, fewest = _PASSES, _WHOLE_LEFT, _WHOLE
        else:
            inner = replace(self.family(frame), whitener=frame["whitener"] @ basis)
            fold = _fold_of(inner, units)
            most, tol, fewest = _TRIAL, _LEFT, min(_FEWEST, 2 * count - 1)
            if search_.state is not None:
                known = search_.state.coefficients
                inside = np.column_stack([known[:, 0], known[:, 1:] @ basis])
                starts["moments"] = replace(search_.state, coefficients=inside)
        spread = self.spread(frame, units, inner)
        reached: dict[str, Reached[RegressionMixtureState]] = {}
        for name in (*starts, *names):
            start = starts.get(name) or self.drawn(count, spread, rng)
            reached[name] = em(fold, inner, start, max_iter=most, tol=tol, prepared=True)
            values = [each.log_likelihood for each in reached.values()]
            agreed = sum(value > max(values) - _SAME for value in values)
            if agreed >= 2 and len(reached) >= fewest:
                break
        best = max(reached, key=lambda name: reached[name].log_likelihood)
        state = reached[best].state
        lifted = np.column_stack([state.coefficients[:, 0], state.coefficients[:, 1:] @ basis.T])
        evidence = {"n_starts": len(reached), "n_agreed": agreed}
        return Start(replace(state, coefficients=lifted), best, 0, evidence)

    def spread(self, frame: Frame, units: Batch, inner: RegressionMixtureFamily) -> Array:
        """The root (m, m) of the mean of b b' over components, as far as moments show it."""
        prepared = inner.prepare(units)
        z, y = prepared.parts
        m = z.shape[1] - 1
        if self.link != "identity":
            return np.eye(m) / np.sqrt(m)
        cut = prepared.weights * np.minimum(y**2, 9.0)
        second = ((z[:, 1:] * cut[:, None]).T @ z[:, 1:]) / prepared.weight
        second -= np.eye(m) * cut.sum() / prepared.weight
        values, vectors = np.linalg.eigh(second / 2)
        values = np.maximum(values, max(0.02 * float(values[-1]), 0.1 / m))
        return np.asarray(vectors * np.sqrt(values))

    def drawn(self, count: int, spread: Array, rng: np.random.Generator) -> RegressionMixtureState:
        """A random start whose second moment is that of the data: a random rotation."""
        m = spread.shape[1]
        wide = max(count, m)
        turned = np.linalg.qr(rng.standard_normal((wide, wide)))[0][:count, :m]
        slopes = np.sqrt(count) * turned @ spread.T
        if self.link != "identity":
            slopes *= rng.uniform(1.0, 3.0, (count, 1))
        coefficients = np.column_stack([np.zeros(count), slopes])
        variance = _FIRST_VARIANCE if self.link == "identity" else 1.0
        return RegressionMixtureState(
            np.full(count, 1 / count), coefficients, np.full(count, variance)
        )

    def order(self, frame: Frame, state: RegressionMixtureState) -> Array:
        found = self.parameters(frame, state)
        return np.asarray(component_order(found["weights"], found["coef"]))

    def permuted(self, state: RegressionMixtureState, order: Array) -> RegressionMixtureState:
        return RegressionMixtureState(
            state.weights[order], state.coefficients[order], state.variances[order]
        )

    def parameters(self, frame: Frame, state: RegressionMixtureState) -> dict[str, Array]:
        shift, scale = frame["target"]
        coef = scale * state.coefficients[:, 1:] @ frame["whitener"].T
        intercept = shift + scale * state.coefficients[:, 0] - coef @ frame["centre"]
        found = {"weights": state.weights, "coef": coef, "intercept": intercept}
        return {**found, "variances": state.variances * scale**2}


def leading(moments: dict[str, Array], count: int) -> Array:
    """The directions (r, count), orthonormal, that the coefficients span."""
    values, vectors = np.linalg.eigh(moments["clipped"])
    return np.ascontiguousarray(vectors[:, np.argsort(-np.abs(values), kind="stable")[:count]])


def _fold_of(family: RegressionMixtureFamily, units: Batch) -> Any:
    """Passes over units in memory, in coordinates of their own."""
    blocks = [family.prepare(block) for block in units.blocks(Kind.TARGETED.block)]
    source = replace(Source.of(Kind.TARGETED), shards=(blocks,), blocked=True)
    engine = LocalEngine(1)
    return lambda start: engine.fold(source, start)
