"""Starts and moves of Gaussian mixtures: what each promises, on data where it must show."""

import numpy as np
import pytest

from latensor.moments.batch import Batch
from latensor.refinement.families.covariances import COVARIANCE_TYPES, as_matrices
from latensor.refinement.families.gaussian import GaussianFamily
from latensor.refinement.mixture_moves import normality, passes, split_and_merge
from latensor.refinement.mixture_search import search, starts_of
from latensor.refinement.mixture_starts import Coordinates, by_labels, merge_down, overfit

KINDS = pytest.mark.parametrize("kind", COVARIANCE_TYPES)


def prepared(rows, kind):
    family = GaussianFamily.of(kind, rows.mean(axis=0), np.cov(rows.T), 1e-6)
    batch = Batch((rows,), np.ones(len(rows)), np.arange(len(rows), dtype=np.uint64))
    points = family.prepare(batch)
    return family, points, Coordinates.of(family, batch, points)


def four_clusters(seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 2000)
    means = np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 9.0], [14.0, 14.0]])
    return means[labels] + rng.standard_normal((2000, 2)), labels


def test_the_statistic_tells_normal_rows_from_two_clusters():
    rng = np.random.default_rng(0)
    normal, ones = rng.standard_normal(2000), np.ones(2000)
    assert normality(normal, ones) < 15
    assert normality(normal + 4 * rng.integers(0, 2, 2000), ones) > 100
    assert normality(np.where(rng.random(2000) < 0.02, 6.0, normal), ones) > 100
    assert normality(ones, ones) == 0


@KINDS
def test_merging_keeps_the_mean_and_the_spread(kind):
    family, points, coordinates = prepared(four_clusters()[0], kind)
    many = overfit(family, points, coordinates.standardized, 4, np.random.default_rng(0))
    few = merge_down(family, many, 4)
    assert len(many.weights) == 9
    assert few.weights.sum() == pytest.approx(1)

    def total(state):
        matrices = as_matrices(kind, state.covariances, len(state.weights), 2)
        mean = state.weights @ state.means
        gaps = state.means - mean
        spread = np.tensordot(state.weights, matrices, axes=1) + (gaps.T * state.weights) @ gaps
        return mean, np.trace(spread)

    one, two = total(many), total(few)
    np.testing.assert_allclose(one[0], two[0], atol=1e-10)
    assert one[1] == pytest.approx(two[1], rel=1e-9)


@KINDS
def test_moves_leave_a_wrong_optimum(kind):
    """Two clusters under one component, and one cluster under two."""
    rows, labels = four_clusters()
    family, points, _ = prepared(rows, kind)
    right = passes(family, points, by_labels(family, points, labels, 4), 20)[1]
    wrong = np.array([0, 0, 1, 2])[labels]
    wrong[(labels == 3) & (rows[:, 0] > 14)] = 3
    state, before = passes(family, points, by_labels(family, points, wrong, 4), 20)
    assert before < right - 0.05
    _, after, n_moves = split_and_merge(family, points, state)
    assert n_moves >= 1
    assert after == pytest.approx(right, abs=1e-4)


def test_nested_clusters_are_told_apart():
    """One mean and two scales: no third moment sees them."""
    rng = np.random.default_rng(1)
    scales = np.repeat([1.0, 8.0], 1000)
    rows = rng.standard_normal((2000, 3)) * scales[:, None]
    family, points, coordinates = prepared(rows, "full")
    found = search(family, points, starts_of(family, coordinates, 2, rng, {}))
    wide = np.argmax(np.trace(found.state.covariances, axis1=1, axis2=2))
    owners = family.joint(found.state, points).argmax(axis=1)
    assert ((owners == wide) == (scales > 1)).mean() > 0.95


@KINDS
def test_a_search_is_the_same_for_the_same_seed(kind):
    family, points, coordinates = prepared(four_clusters()[0], kind)

    def run():
        starts = starts_of(family, coordinates, 4, np.random.default_rng(3), {})
        return search(family, points, starts)

    one, two = run(), run()
    np.testing.assert_array_equal(one.state.means, two.state.means)
    assert one.start == two.start
    assert set(one.values) >= {one.start}


def test_a_component_on_a_few_rows_is_collapsed():
    rows = four_clusters()[0]
    rows[:4] = 30.0 + 1e-6 * np.arange(8).reshape(4, 2)
    labels = np.zeros(len(rows), dtype=int)
    labels[:4] = 1
    family, points, _ = prepared(rows, "full")
    state = by_labels(family, points, labels, 2, shrink=False)
    assert list(family.collapsed(state, len(rows))) == [False, True]
