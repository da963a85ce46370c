"""Matching of components: invariances, the best pairing, scores by hand and by the peers."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from definitions import draw
from latensor import CPTensor, InvalidInputError
from latensor.diagnostics import match

SHAPE = (6, 5, 4)


def random_cp(rng, rank, shape=SHAPE, dtype="float64"):
    return CPTensor(rng.uniform(1, 2, rank), tuple(draw(rng, (d, rank), dtype) for d in shape))


def disguised(rng, cp):
    """The same tensor with components permuted, rescaled and with signs changed in pairs."""
    order = rng.permutation(cp.rank)
    scales = rng.uniform(0.5, 2, (cp.order, cp.rank)) * rng.choice([-1, 1], (cp.order, cp.rank))
    factors = tuple(f[:, order] * s for f, s in zip(cp.factors, scales, strict=True))
    return CPTensor(cp.weights[order] / scales.prod(axis=0), factors), order


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 6), order=st.integers(2, 4))
def test_a_disguised_tensor_matches_itself(seed, rank, order):
    rng = np.random.default_rng(seed)
    cp = random_cp(rng, rank, (6, 5, 4, 3)[:order])
    other, permuted = disguised(rng, cp)
    found = match(cp, other)
    assert found.score == pytest.approx(1, abs=1e-12)
    assert found.weighted_score == pytest.approx(1, abs=1e-12)
    np.testing.assert_array_equal(permuted[found.permutation], np.arange(rank))
    np.testing.assert_allclose(found.aligned.to_dense(), cp.to_dense(), atol=1e-12)
    ours, theirs = cp.normalized(), found.aligned.normalized()
    np.testing.assert_allclose(theirs.weights, ours.weights, rtol=1e-12)
    for mine, its in zip(ours.factors, theirs.factors, strict=True):
        np.testing.assert_allclose(its, mine, atol=1e-12)


def test_the_pairing_is_the_best_of_all(rng):
    for _ in range(20):
        a, b = random_cp(rng, 4), random_cp(rng, 4)
        units = zip(a.normalized().factors, b.normalized().factors, strict=True)
        table = np.prod([np.abs(f.T @ g) for f, g in units], axis=0)
        best = max(
            np.mean([table[i, p[i]] for i in range(4)]) for p in itertools.permutations(range(4))
        )
        assert match(a, b).score == pytest.approx(best, rel=1e-12)


def test_the_closest_pair_is_given_up_for_the_best_pairing():
    def directions(*degrees):
        return np.array([np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))])

    # The second of b is closest to the first of a, which is all that the first of b has.
    found = match((None, [directions(0, 60)]), (None, [directions(-30, 20)]))
    assert [(p.a, p.b) for p in found.pairs] == [(0, 0), (1, 1)]
    expected = (np.cos(np.deg2rad(30)) + np.cos(np.deg2rad(40))) / 2
    assert found.score == pytest.approx(expected)


def test_scores_by_hand():
    a = CPTensor(np.array([2.0, 1.0]), (np.eye(2), np.eye(2)))
    half = np.sqrt(0.5)
    turned = np.array([[1.0, half], [0.0, half]])
    b = CPTensor(np.array([1.0, -1.0]), (np.eye(2), turned))
    found = match(a, b)
    first, second = found.pairs
    assert (first.a, first.b, second.a, second.b) == (0, 0, 1, 1)
    assert first.congruences == pytest.approx((1, 1))
    assert second.congruences == pytest.approx((1, half))
    assert found.score == pytest.approx((1 + half) / 2)
    # Weights 2 and 1 agree by one half; a component and its negative do not agree at all.
    assert found.weighted_score == pytest.approx((0.5 + 0.0) / 2)
    assert "score 0.8536" in str(found)
    assert float(found) == found.score


def test_weights_decide_between_equal_vectors_if_asked():
    column = np.ones((3, 2))
    a = CPTensor(np.array([1.0, 5.0]), (column, column))
    b = CPTensor(np.array([5.0, 1.0]), (column, column))
    assert [p.b for p in match(a, b, weight_penalty=True).pairs] == [1, 0]
    assert match(a, b, weight_penalty=True).weighted_score == pytest.approx(1)


@pytest.mark.parametrize("ranks", [(3, 5), (5, 3), (1, 4)])
def test_different_ranks_leave_components_over(rng, ranks):
    large = random_cp(rng, max(ranks))
    small_rank = min(ranks)
    kept = rng.permutation(large.rank)[:small_rank]
    small = CPTensor(large.weights[kept], tuple(f[:, kept] for f in large.factors))
    pair = (small, large) if ranks[0] < ranks[1] else (large, small)
    found = match(*pair)
    assert found.score == pytest.approx(1)
    assert len(found.pairs) == small_rank
    left = found.unmatched_b if ranks[0] < ranks[1] else found.unmatched_a
    assert set(left) == set(range(large.rank)) - set(kept.tolist())
    assert sorted(found.permutation.tolist()) == list(range(ranks[1]))
    np.testing.assert_allclose(found.aligned.to_dense(), pair[1].to_dense(), atol=1e-12)
    assert "without a partner" in str(found)


def test_shared_factors_stay_shared_and_inputs_untouched(library, rng):
    factor = draw(rng, (5, 3))
    factor.setflags(write=False)
    shared = library.array(factor)
    a = CPTensor(library.array([1.0, 2.0, 3.0]), (shared,) * 3)
    flipped = library.array(-factor[:, [2, 0, 1]])
    b = CPTensor(library.array([-3.0, -1.0, -2.0]), (flipped,) * 3)
    found = match(a, b)
    assert found.aligned.is_symmetric
    assert library.owns(found.aligned.weights)
    np.testing.assert_allclose(library.host(found.aligned.factors[0]), factor, atol=1e-14)
    np.testing.assert_allclose(library.host(found.aligned.weights), [1, 2, 3], atol=1e-14)
    assert found.weighted_score == pytest.approx(1)


def test_complex_phases_are_aligned(rng):
    a = random_cp(rng, 3, dtype="complex128")
    phases = np.exp(1j * rng.uniform(0, 6, (3, 3)))
    factors = tuple(f * p for f, p in zip(a.factors, phases, strict=True))
    b = CPTensor(a.weights / phases.prod(axis=0), factors)
    found = match(a, b)
    assert found.weighted_score == pytest.approx(1)
    for mine, its in zip(a.factors, found.aligned.factors, strict=True):
        np.testing.assert_allclose(its, mine, atol=1e-12)
    np.testing.assert_allclose(found.aligned.weights, a.weights, atol=1e-12)


def test_some_modes_only_may_differ_in_the_others(rng):
    a = random_cp(rng, 3)
    b = CPTensor(a.weights, (draw(rng, (9, 3)), *a.factors[1:]))
    found = match(a, b, modes=[1, -1])
    assert found.score == pytest.approx(1)
    assert found.modes == (1, 2)
    assert len(found.pairs[0].congruences) == 2


def test_zero_components_score_zero(rng):
    cp = random_cp(rng, 2)
    zero = CPTensor(cp.weights, (cp.factors[0] * np.array([1.0, 0.0]), *cp.factors[1:]))
    assert match(cp, zero).score == pytest.approx(0.5)


def test_dtype_is_kept(rng):
    cp = random_cp(rng, 2)
    narrow = CPTensor(cp.weights.astype("float32"), tuple(f.astype("float32") for f in cp.factors))
    found = match(cp, narrow)
    assert found.aligned.weights.dtype == np.float32
    assert found.score == pytest.approx(1, abs=1e-6)


def test_agrees_with_tensorly_on_one_mode(rng):
    metrics = pytest.importorskip("tensorly.metrics")
    for _ in range(5):
        a, b = draw(rng, (7, 4)), draw(rng, (7, 4))
        expected, order = metrics.congruence_coefficient(a, b)
        found = match((None, [a]), (None, [b]))
        assert found.score == pytest.approx(float(expected), rel=1e-10)
        np.testing.assert_array_equal(found.permutation, order)


def test_agrees_with_pyttb_where_taking_the_best_first_is_right(rng):
    pyttb = pytest.importorskip("pyttb")
    a = random_cp(rng, 3)
    noisy = tuple(f + 0.05 * draw(rng, f.shape) for f in a.factors)
    b = CPTensor(a.weights * 1.1, noisy)
    pair = [pyttb.ktensor([f.copy() for f in x.factors], x.weights.copy()) for x in (a, b)]
    expected = pair[0].copy().score(pair[1].copy(), weight_penalty=True)[0]
    assert match(*pair).weighted_score == pytest.approx(expected, rel=1e-8)
    expected = pair[0].copy().score(pair[1].copy(), weight_penalty=False)[0]
    assert match(a, b).score == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("x", None), {}, "a must be a CPTensor"),
        (((None, [np.eye(2)]), 3), {}, "b must be a CPTensor"),
        (((None, [np.eye(2)]), (None, [np.eye(2)] * 2)), {}, "same\\s+order"),
        (((None, [np.eye(2)]), (None, [np.eye(3)])), {}, "differ in mode 0"),
        (((None, [np.eye(2)]), (None, [np.eye(2)])), {"modes": [1]}, "modes=1 is out of range"),
        (((None, [np.eye(2)]), (None, [np.eye(2)])), {"modes": []}, "at least one mode"),
        (((None, [np.eye(2)]), (None, [np.eye(2)])), {"modes": [0, -1]}, "none twice"),
        (((None, [np.eye(2) * np.nan]), (None, [np.eye(2)])), {}, "NaN"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(InvalidInputError, match=message):
        match(*arguments, **options)
