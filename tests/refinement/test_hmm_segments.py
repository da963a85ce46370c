from dataclasses import replace

import numpy as np
import pytest

from latensor.moments.ragged import Ragged
from latensor.refinement.hmm import ChainOnRows, Likelihoods, Sequences
from sequence_examples import expect, log_likelihood


def reference(likelihoods, lengths, start, steps):
    """Forward and backward in plain NumPy, one sequence after the other."""
    rows = likelihoods.table[likelihoods.index]
    value, posteriors, counts = (
        likelihoods.log_scale(Sequences.of(lengths)),
        [],
        np.zeros_like(steps),
    )
    for part in np.split(rows, np.cumsum(lengths)[:-1]):
        forward, backward = np.empty_like(part), np.ones_like(part)
        state = start
        for t, row in enumerate(part):
            state = state * row if t == 0 else state @ steps * row
            value += np.log(state.sum())
            state = forward[t] = state / state.sum()
        for t in range(len(part) - 2, -1, -1):
            backward[t] = steps @ (part[t + 1] * backward[t + 1])
            backward[t] /= backward[t].sum()
        product = forward * backward
        posteriors.append(product / product.sum(axis=1, keepdims=True))
        for t in range(len(part) - 1):
            joint = forward[t][:, None] * steps * (part[t + 1] * backward[t + 1])
            counts += joint / joint.sum()
    starts = sum(part[0] for part in posteriors)
    return value, np.concatenate(posteriors), starts, counts


FAST = [[0.5, 0.3, 0.2], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4]]
CHAINS = {
    "fast": FAST,
    "one state": [[1.0]],
    # Memories longer than a lane, than all lanes, and for ever.
    "slow": [[0.97, 0.03], [0.02, 0.98]],
    "slower": [[0.9995, 0.0005], [0.0005, 0.9995]],
    "for ever": [[1.0, 0.0], [0.0, 1.0]],
    "periodic": [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]],
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize(
    "lengths", [[2111], [3] * 700, [1, 1500, 2, 1, 130, 129], [64] * 20, [1] * 150]
)
@pytest.mark.parametrize("size", [16_384, 300])
def test_lanes_and_ranges_give_what_plain_loops_give(name, lengths, size):
    rng = np.random.default_rng(0)
    steps = np.array(CHAINS[name])
    k = len(steps)
    start = rng.dirichlet(np.ones(k))
    table = 0.8 + 0.4 * rng.random((9, k))
    index, scale = rng.integers(9, size=sum(lengths)), rng.standard_normal(sum(lengths))
    likelihoods = Likelihoods(index, table, scale)
    value, posteriors, starts, counts = reference(likelihoods, lengths, start, steps)
    sequences = Sequences.of(lengths, size=size)
    found = expect(likelihoods, sequences, start, steps, 1)
    assert found.log_likelihood == pytest.approx(value, rel=1e-11)
    assert np.abs(found.posteriors - posteriors).max() < 1e-10
    assert np.abs(found.starts - starts).max() < 1e-9
    assert np.abs(found.totals - posteriors.sum(axis=0)).max() < 1e-8
    assert np.abs(found.steps - counts).max() < 1e-8
    assert log_likelihood(likelihoods, sequences, start, steps, 1) == pytest.approx(
        value, rel=1e-11
    )


def test_what_is_not_known_of_the_next_lane_is_looked_at_again(monkeypatch):
    rng = np.random.default_rng(1)
    steps = np.array(FAST)
    k = len(steps)
    start, lengths = np.full(k, 1 / k), [1700, 1400]
    likelihoods = Likelihoods(np.arange(3100), 0.5 + rng.random((3100, k)))
    value, posteriors, _, counts = reference(likelihoods, lengths, start, steps)
    counted = []
    count = ChainOnRows._count

    def spied(chain, filtered):
        # As if the forward pass had forgotten at once: lanes see too little of each other.
        if filtered.lanes > 1:
            filtered = replace(filtered, ahead=2)
        found = count(chain, filtered)
        counted.append(found is not None)
        return found

    monkeypatch.setattr(ChainOnRows, "_count", spied)
    found = expect(likelihoods, Sequences.of(lengths), start, steps, 1)
    assert counted == [False] * (len(counted) - 1) + [True]
    assert len(counted) > 1
    assert found.log_likelihood == pytest.approx(value, rel=1e-11)
    assert np.abs(found.posteriors - posteriors).max() < 1e-10
    assert np.abs(found.steps - counts).max() < 1e-8


def test_impossible_rows_in_lanes_break_nothing():
    rng = np.random.default_rng(2)
    table = rng.random((4000, 2))
    table[[5, 1700, 3999]] = 0.0
    found = expect(
        Likelihoods(np.arange(4000), table),
        Sequences.of([2500, 1500]),
        np.full(2, 0.5),
        np.array([[0.7, 0.3], [0.4, 0.6]]),
        1,
    )
    assert found.log_likelihood == -np.inf
    assert np.isfinite(found.posteriors).all()
    assert np.abs(found.posteriors.sum(axis=1) - 1).max() < 1e-12
    assert np.isfinite(found.steps).all()


@pytest.mark.parametrize("lengths", [[1], [63], [128], [1023, 2], [5000], [40_000]])
@pytest.mark.parametrize("most", [1, 4, 16])
def test_lanes_have_room_for_all_rows_and_none_is_empty(lengths, most):
    sequences = Sequences.of(lengths)
    for (first, last), (span, count) in zip(sequences.ranges, sequences.lanes(most), strict=True):
        assert 1 <= count <= most
        assert 0 <= span * count - (last - first) < span


def test_short_ranges_do_not_take_the_lanes_of_long_ones():
    # Two pieces of a long sequence, with rows between them that are only seen: a short range.
    rng = np.random.default_rng(3)
    steps = np.array(FAST)
    k = len(steps)
    rows = rng.integers(9, size=70_000)
    units = Ragged.of(rows, [70_000]).cut(35_000, 300)[0]
    sequences = Sequences.within(units, np.ones(len(units)))
    table = 0.8 + 0.4 * rng.random((9, k))
    found = expect(Likelihoods(units.rows, table), sequences, np.full(k, 1 / k), steps)
    in_lanes = sum(b - a for part, (a, b) in zip(found.parts, sequences.ranges, strict=True)
                   if part.shape[2] > 1)  # fmt: skip
    assert in_lanes > 0.9 * sequences.n_rows
    assert any(part.shape[2] == 1 for part in found.parts)
    whole = expect(Likelihoods(rows, table), Sequences.of([70_000]), np.full(k, 1 / k), steps)
    assert np.abs(found.steps - whole.steps).max() < 1e-6
    assert np.abs(found.totals - whole.totals).max() < 1e-6
