"""A worked example of a new model: mixtures of Poisson counts, from factorial moments.

Given the component j, the counts x_1, ..., x_d are independent Poisson with rates l_j. Products of
distinct "ways to choose" have the form that tensors need: with weights w_j,

    E[x x'] - diag E[x] = sum_j w_j l_j l_j',   and of order three likewise:
    E[x (x) x (x) x] - three terms on pairs of equal indices + 2 on triples = sum_j w_j l_j^(x)3.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln

from latensor.decomposition import JointDiagonalization
from latensor.estimation.base import LatentEstimator, component_order
from latensor.estimation.model import Answer, Frame, Model
from latensor.estimation.parameter_intervals import NOT_NEGATIVE, PROBABILITY
from latensor.estimation.parameters import AT_LEAST_ONE, N_JOBS, REFINE, parameter
from latensor.moments.sums import Sums
from latensor.refinement.linear_family import LinearFamily
from latensor.whitening import whiten


@dataclass(frozen=True)
class PoissonState:
    """The parameters: weights (k,) and rates (k, d)."""

    weights: Any
    rates: Any


@dataclass(frozen=True, eq=False)
class PairCounts(Sums):
    """Weight, counts and products of counts: what the survey needs."""

    def summed(self, batch):
        rows = batch.rows.astype(float)
        weighted = rows * batch.weights[:, None]
        return {"weight": batch.weight, "first": weighted.sum(0), "second": weighted.T @ rows}

    def finalize(self):
        """The mean, and the factorial second moment sum_j w_j l_j l_j'."""
        sums = self.seen()
        mean = sums["first"] / sums["weight"]
        return mean, sums["second"] / sums["weight"] - np.diag(mean)


@dataclass(frozen=True, eq=False)
class TripleCounts(Sums):
    """The factorial third moment along directions W (d, k): the frame of this accumulator."""

    directions: Any

    def summed(self, batch):
        rows = batch.rows.astype(float)
        scores = rows @ self.directions
        weighted = scores * batch.weights[:, None]
        third = np.einsum("na,nb,nc->abc", weighted, scores, scores, optimize=True)
        return {"weight": batch.weight, "third": third, "pairs": rows.T @ weighted,
                "first": batch.weights @ rows}  # fmt: skip

    def finalize(self):
        """sum_j w_j (W'l_j)^(x)3."""
        s, w = self.seen(), self.directions
        pairs = np.einsum("ia,ib,ic->abc", w, w, s["pairs"], optimize=True)
        equal = pairs + pairs.transpose(0, 2, 1) + pairs.transpose(2, 0, 1)
        triples = np.einsum("i,ia,ib,ic->abc", s["first"], w, w, w, optimize=True)
        return (s["third"] - equal + 2 * triples) / s["weight"]


@dataclass(frozen=True)
class PoissonDensities:
    """log p(x, j) = x'log l_j - sum_i log x_i! + log w_j - sum_i l_ji: linear in (x, -, 1)."""

    def features(self, rows):
        rows = rows.astype(float)
        return np.column_stack([rows, gammaln(rows + 1).sum(axis=1), np.ones(len(rows))])

    def natural(self, state):
        constants = np.log(state.weights) - state.rates.sum(axis=1)
        return np.vstack([np.log(state.rates).T, -np.ones(len(constants)), constants])

    def maximize(self, sums):
        counts = np.maximum(sums[:, -1], 1e-10 * sums[:, -1].sum())
        return PoissonState(counts / counts.sum(), np.maximum(sums[:, :-2] / counts[:, None], 1e-9))

    def coordinates(self, state):
        return np.concatenate([np.log(state.weights), np.log(state.rates).ravel()])

    def from_coordinates(self, vector, like):
        k = len(like.weights)
        weights = np.exp(vector[:k] - vector[:k].max())
        return PoissonState(weights / weights.sum(), np.exp(vector[k:]).reshape(like.rates.shape))


@dataclass(frozen=True)
class PoissonModel(Model[PoissonState]):
    """The settings, what is folded, and how parameters are read off."""

    n_components: int
    pilot_size = 5_000

    def survey(self, run, streaming):
        known = run.fold("pairs", PairCounts())
        found = whiten(known.finalize()[1], self.n_components)
        values = {"directions": found.projection, "lift": found.lift}
        return Frame(values, {"pairs": known}, known.sums["weight"])

    def moments(self, frame):
        return {"pairs": PairCounts(), "triples": TripleCounts(frame["directions"])}

    def read_off(self, frame, moments, rng):
        core = moments["triples"].finalize()
        values, vectors = JointDiagonalization()(core, self.n_components, rng)
        # The core is sum_j w_j^-1/2 v_j^(x)3 of orthonormal v_j = w_j^1/2 W'l_j.
        weights = 1 / np.maximum(np.abs(values), 1e-9) ** 2
        rates = (vectors[0] * values).T @ frame["lift"].T
        return Answer(PoissonState(weights / weights.sum(), np.maximum(rates, 1e-9)))

    def family(self, frame):
        return LinearFamily(PoissonDensities())

    def order(self, frame, state):
        return component_order(state.weights, state.rates)

    def permuted(self, state, order):
        return PoissonState(state.weights[order], state.rates[order])

    def parameters(self, frame, state):
        return {"weights": state.weights, "rates": state.rates}


@dataclass(eq=False, repr=False)
class PoissonMixture(LatentEstimator):
    """Mixtures of independent Poisson counts; fit, streams, merges and intervals are inherited."""

    n_components: int = parameter(2, AT_LEAST_ONE)
    _: KW_ONLY
    refine: int | str = parameter("auto", *REFINE)
    random_state: Any = None
    n_jobs: int | None = parameter(None, *N_JOBS)

    _fitted_names = frozenset({"weights_", "rates_", "n_iter_"})
    _intervals_of = ({"weights": PROBABILITY, "rates": NOT_NEGATIVE}, "rates")

    def _model(self):
        return PoissonModel(self.n_components)

    def _attributes(self, answer, frame):
        state = self._model().presented(frame, answer.state)
        return {"weights_": state.weights, "rates_": state.rates, "n_iter_": answer.n_iter}
