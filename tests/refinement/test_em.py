"""EM over all data by way of a sample whose statistics are corrected."""

import numpy as np
import pytest

import latensor as lt
from latensor.datasets.sequences import draw_states, draw_symbols


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
