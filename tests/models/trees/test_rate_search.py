"""Likelihoods under one rate matrix, and interchanges that raise them."""

from dataclasses import replace

import numpy as np
import pytest

import latensor as lt
from latensor.datasets import make_tree
from latensor.datasets.trees import _KAPPA, _transitions
from latensor.models.trees import rate_search
from latensor.models.trees.family import TreeState, evaluate
from latensor.models.trees.interchange import interchanged, interchanges
from latensor.models.trees.rate_search import _Partials, classes_of, interchange_under_rates
from latensor.models.trees.rates import RateMatrix

FREQUENCIES = np.array([0.35, 0.15, 0.2, 0.3])


def matrix(shape=np.inf, used=(0, 1, 2, 3)):
    """The matrix of `make_tree`'s HKY model."""
    rate = np.ones((4, 4))
    rate[[0, 2, 1, 3], [2, 0, 3, 1]] = _KAPPA
    rate *= FREQUENCIES
    np.fill_diagonal(rate, 0.0)
    np.fill_diagonal(rate, -rate.sum(axis=1))
    rate /= -(FREQUENCIES * np.diag(rate)).sum()
    root = np.sqrt(FREQUENCIES)
    rates, vectors = np.linalg.eigh(-root[:, None] * rate / root)
    rates[0], vectors[:, 0] = 0.0, root
    return RateMatrix(FREQUENCIES, vectors, rates, shape, np.array(used))


def logs_by_tables(tree, lengths, codes):
    """Log-likelihoods of sites by the kernel that knows nothing of rates."""
    tables = _transitions("hky", 4, lengths)
    return evaluate(TreeState(tree, FREQUENCIES, tables, None, 4), codes, np.ones(len(codes)))[
        "logs"
    ]


def swapped(tree, v):
    """A child of v and a sibling of v, interchanged."""
    return interchanged(tree, interchanges(tree, v)[1:])


@pytest.mark.parametrize("shape", [np.inf, 0.5])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_the_likelihood_is_that_of_the_tables(shape, missing):
    data = make_tree(300, 9, shape="random", model="hky", random_state=1)
    rng = np.random.default_rng(0)
    codes = np.where(rng.random(data.X.shape) < missing, -1, data.X).astype(np.int16)
    weights = rng.uniform(0.5, 2.0, len(codes))
    lengths = np.maximum(data.tree.length, 1e-4)
    found = _Partials(codes, weights, matrix(shape)).go_round(data.tree, lengths, times=0)
    classes = [logs_by_tables(data.tree, r * lengths, codes) for r in classes_of(shape)]
    expected = weights @ np.log(np.exp(classes).mean(axis=0))
    assert found == pytest.approx(expected, abs=1e-8 * abs(expected))


@pytest.mark.parametrize("shape", [np.inf, 2.0])
def test_lengths_end_at_a_maximum(shape):
    data = make_tree(400, 8, shape="random", model="hky", random_state=2)
    codes = data.X.astype(np.int16)
    partials = _Partials(codes, np.ones(len(codes)), matrix(shape))
    lengths = np.full(len(data.tree), 0.3)
    best = partials.go_round(data.tree, lengths, times=20)
    assert best > partials.go_round(data.tree, np.maximum(data.tree.length, 1e-4), times=0)
    for v in np.flatnonzero(data.tree.parent >= 0):
        for factor in (0.8, 1.25):
            other = lengths.copy()
            other[v] *= factor
            assert partials.go_round(data.tree, other, times=0) < best + 1e-6


def test_gains_of_quartets_are_gains_of_the_whole():
    data = make_tree(500, 10, shape="random", model="hky", random_state=3)
    codes = data.X.astype(np.int16)
    partials = _Partials(codes, np.ones(len(codes)), matrix())
    inner = [v for v in data.tree.splits().values() if v >= 10]
    for v in inner:
        wrong = swapped(data.tree, v)
        lengths = np.maximum(data.tree.length, 1e-4)
        value = partials.go_round(wrong, lengths, times=8)
        gains = rate_search._gains(partials, wrong, lengths, {v})
        gain = next(g for g in gains if g.v == v)
        moved = lengths.copy()
        moved[gain.nodes] = gain.lengths
        right = interchanged(wrong, [gain])
        assert partials.go_round(right, moved, times=0) - value == pytest.approx(
            gain.gain, abs=1e-3
        )
        assert lt.robinson_foulds(right, data.tree) == 0


@pytest.mark.parametrize("gamma", [None, 0.5])
def test_a_wrong_tree_is_mended(gamma):
    data = make_tree(2000, 16, shape="random", model="hky", gamma=gamma, random_state=0)
    tree = data.tree
    for v in [v for v in tree.splits().values() if v >= 16][::3]:
        tree = swapped(tree, v)
    assert lt.robinson_foulds(tree, data.tree) > 0.2
    given = matrix(np.inf if gamma is None else gamma)
    codes = data.X.astype(np.int16)
    found, moves = interchange_under_rates(tree, codes, np.ones(len(codes)), given)
    assert moves >= 3
    assert lt.robinson_foulds(found, data.tree) == 0
    inner = list(found.splits().values())
    assert np.isnan(found.support).all()
    known = replace(tree, support=np.where(np.isnan(tree.support), 0.5, np.nan))
    found, _ = interchange_under_rates(
        known, codes, np.ones(len(codes)), given, np.random.default_rng(0)
    )
    # Those that were known stay as they are, new ones are measured; all of these are true.
    new = found.support[inner] != 0.5
    assert 3 <= new.sum() < len(inner)
    assert found.support[inner][new].min() > 0.9
    # Sites that do not fit are no reason to fail.
    many = replace(given, shape=np.inf)
    huge = np.broadcast_to(codes[:1], (2**22, 16))
    assert interchange_under_rates(tree, huge, np.ones(len(huge)), many) == (tree, 0)


@pytest.mark.parametrize("shape", [0.25, 0.5, 4.0])
def test_classes_of_rates_have_mean_one_and_grow(shape):
    rates = classes_of(shape)
    assert rates.mean() == pytest.approx(1, abs=1e-12)
    assert (np.diff(rates) > 0).all()


def test_the_default_is_nearer_than_distances_and_says_so():
    gaps, moves = [], 0
    for seed in range(20, 24):
        data = make_tree(400, 48, shape="birth", model="hky", random_state=seed)
        fits = [
            lt.LatentTree(interchange=how, support=None, shrinkage=30, refine=3, random_state=0)
            for how in ("distance", "auto")
        ]
        far, near = (lt.robinson_foulds(fit.fit(data.X).tree_, data.tree) for fit in fits)
        assert fits[0].n_moves_ == 0
        gaps.append(far - near)
        moves += fits[1].n_moves_
        if fits[1].n_moves_:
            assert "interchanges by likelihood" in fits[1].certificate_.method
        # Hidden nodes of the new tree have tables of their own.
        assert fits[1].score(data.X) > fits[0].score(data.X) - 0.05
    assert moves > 0
    assert np.mean(gaps) > 0


def test_streams_and_symbols_that_no_leaf_has():
    data = make_tree(600, 24, shape="birth", model="hky", random_state=5)
    X = np.where(data.X == 3, 7, data.X)
    settings = {"n_symbols": 8, "support": None, "shrinkage": 30, "random_state": 0}
    whole = lt.LatentTree(**settings).fit(X)
    assert lt.robinson_foulds(whole.tree_, data.tree) < 0.2
    stream = lt.LatentTree(**settings)
    for rows in np.array_split(X, 3):
        stream.partial_fit(rows)
    assert lt.robinson_foulds(stream.tree_, whole.tree_) == 0
