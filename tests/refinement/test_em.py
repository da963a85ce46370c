"""EM over all data by way of a sample whose statistics are corrected."""

import numpy as np
import pytest

import latensor as lt
from latensor.datasets.sequences import draw_states, draw_symbols
from latensor.moments.batch import Batch
from latensor.refinement.em import em
from latensor.refinement.family import Family


class SmallSample(lt.CategoricalHMM):
    _row_limit = 4_000


@pytest.mark.parametrize("seed", [0, 1])
def test_a_sample_that_leads_astray_is_left_for_all_data(seed):
    # Five overlapping states of which 4,000 rows say little: corrected by the statistics of all
    # data their likelihood has no maximum nearby. EM must neither follow it nor stop early.
    rng = np.random.default_rng(seed)
    transmat = 0.3 * rng.dirichlet(np.full(5, 0.5), 5) + 0.7 * np.eye(5)
    emission = rng.dirichlet(np.full(12, 0.5), 5)
    lengths = np.full(60, 1000)
    states = draw_states(rng, np.full(5, 0.2), transmat, lengths)
    symbols = draw_symbols(rng, emission, states).reshape(-1, 1)
    sampled = SmallSample(5, random_state=0).fit(symbols, lengths)
    further = lt.CategoricalHMM(5, init_params="")
    for name in ("startprob_", "transmat_", "emissionprob_"):
        setattr(further, name, getattr(sampled, name))
    further.fit(symbols, lengths)
    # EM with everything in memory gains no more from there than tenths of what noise is worth.
    assert further.score(symbols, lengths) - sampled.score(symbols, lengths) < 0.1 * 80 / 2
    assert sampled.converged_
    assert sampled.n_iter_ < 400


class Bowl(Family[np.ndarray]):
    """A likelihood -|x|^2 / 2 whose steps shrink every direction at a rate of its own."""

    rates = np.array([0.998, 0.95, 0.6, 0.1])

    def expect(self, state, prepared):
        return {"weight": 1.0, "log_likelihood": -float(state @ state) / 2}

    def maximize(self, sums, state):
        return self.rates * state

    def pack(self, state):
        return state

    def unpack(self, vector, like):
        return vector


def test_one_small_gain_after_an_extrapolation_is_no_convergence():
    # Here an extrapolation ends where one step gains little: 89 times `tol` was left.
    start = np.random.default_rng(10).normal(size=4)
    unit = Batch((np.zeros((1, 1)),), np.ones(1), np.zeros(1, dtype=np.uint64))
    found = em(lambda s: s.update(unit), Bowl(), start, max_iter=5000, tol=1e-6)
    assert found.converged
    assert found.state @ found.state / 2 < 1e-6


def test_steps_that_point_in_several_slow_directions_are_followed_in_all_of_them():
    """Of a linear map with four rates the last steps give the fixed point itself."""

    class Slow(Bowl):
        rates = np.array([0.999, 0.99, 0.95, 0.9])

    start = np.random.default_rng(3).normal(size=4)
    unit = Batch((np.zeros((1, 1)),), np.ones(1), np.zeros(1, dtype=np.uint64))
    found = em(lambda s: s.update(unit), Slow(), start, max_iter=60, tol=1e-12)
    assert found.converged
    assert found.state @ found.state / 2 < 1e-12
