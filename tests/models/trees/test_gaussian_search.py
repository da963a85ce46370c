"""Interchanges of Gaussian trees by the likelihood of correlations."""

from dataclasses import replace

import numpy as np
import pytest

import latensor as lt
from latensor.datasets import make_tree
from latensor.models.trees.gaussian import GaussianTreeFamily, GaussianTreeState
from latensor.models.trees.gaussian_search import _gains, _messages, interchange_by_correlations
from latensor.models.trees.interchange import interchanged, interchanges


def planted(seed, n=12, rows=2000, shape="random"):
    data = make_tree(rows, n, shape=shape, model="gaussian", random_state=seed)
    state = GaussianTreeState(data.tree, data.correlation, np.zeros(n), np.ones(n))
    return data, state


def moved(state, chosen):
    """The state after interchanges, with correlations as they were."""
    return replace(state, tree=interchanged(state.tree, chosen))


@pytest.mark.parametrize("seed", range(3))
def test_messages_are_functions_of_variance_one_that_know_their_node(seed):
    _, state = planted(seed)
    tree, n = state.tree, state.tree.n_observed
    every = state.correlations()
    up, down = _messages(state, tree.children())
    below = tree.below()
    for told, found in ((up, True), (down, False)):
        for v, (function, along, bound) in told.items():
            node = int(tree.parent[v]) if found else v
            assert function @ every[:n, :n] @ function == pytest.approx(1)
            assert function @ every[:n, node] == pytest.approx(along)
            assert abs(along) <= bound + 1e-12
            # It is the best linear function of its own leaves.
            own = below[v] == found
            assert (function[~own] == 0).all()
            best = np.linalg.solve(every[:n, :n][np.ix_(own, own)], every[:n, node][own])
            assert np.allclose(function[own], best / along)


def test_exact_correlations_ask_for_nothing_and_wrong_trees_are_mended():
    data, state = planted(1)
    n = state.tree.n_observed
    family = GaussianTreeFamily(state.correlations()[:n, :n], 2000.0)
    assert _gains(state, family) == []
    assert interchange_by_correlations(state, family)[1] == 0
    inner = [v for v in range(n, len(state.tree)) if state.tree.parent[v] >= 0]
    for place, v in enumerate(inner):
        wrong = moved(state, [interchanges(state.tree, v)[place % 2]])
        assert lt.robinson_foulds(wrong.tree, data.tree) > 0
        fitted = family.run_em(wrong, 30, 1e-6).state
        best = max(_gains(fitted, family), key=lambda each: each.gain)
        assert best.gain > 1
        assert lt.robinson_foulds(moved(wrong, [best]).tree, data.tree) == 0


@pytest.mark.parametrize("seed", range(3))
def test_samples_mend_several_wrong_edges(seed):
    data, state = planted(seed, n=16)
    wrong = state
    for v in [v for v in range(16, len(state.tree)) if state.tree.parent[v] >= 0][::4]:
        wrong = moved(wrong, interchanges(wrong.tree, v)[:1])
    observed = np.corrcoef(data.X.T)
    tree, moves = interchange_by_correlations(wrong, GaussianTreeFamily(observed, 2000.0))
    assert moves >= 2
    assert lt.robinson_foulds(tree, data.tree) == 0


def test_signs_of_leaves_do_not_matter_and_options_are_followed():
    # A tree whose distances alone mislead.
    data = make_tree(1000, 20, shape="coalescent", model="gaussian", random_state=2)
    fits = {
        how: lt.LatentTree(interchange=how, support=None, random_state=0).fit(data.X)
        for how in ("auto", "distance")
    }
    assert fits["distance"].n_moves_ == 0
    assert fits["auto"].n_moves_ > 0
    assert "interchanges by likelihood" in str(fits["auto"].certificate_)
    assert fits["auto"].lower_bound_ > fits["distance"].lower_bound_
    wrong = {how: lt.robinson_foulds(f.tree_, data.tree) for how, f in fits.items()}
    assert wrong["auto"] < wrong["distance"]
    turned = lt.LatentTree(support=None, random_state=0).fit(data.X * (-1) ** np.arange(20))
    assert lt.robinson_foulds(turned.tree_, fits["auto"].tree_) == 0
