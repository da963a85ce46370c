"""Distances under one rate matrix: exact tables, samples, when they are used."""

import numpy as np
import pytest

import latensor as lt
from latensor.datasets import make_tree
from latensor.datasets.trees import _transitions
from latensor.models.trees.affinity import logdet_affinity
from latensor.models.trees.rates import common_rates
from latensor.models.trees.sums import PairProbabilities, PairTables
from latensor.moments.batch import Batch

FREQUENCIES = np.array([0.35, 0.15, 0.2, 0.3])


def exact(tree, shape, sites):
    """Tables of all pairs of leaves of a tree under HKY, and the paths between them."""
    n = tree.n_observed
    paths = tree.distances()[:n, :n]
    # Along the eigenvectors of a short time; rates of sites by the Laplace transform of the gamma.
    root, short = np.sqrt(FREQUENCIES), 1e-6
    moved = _transitions("hky", 4, [short])[0] - np.eye(4)
    rates, vectors = np.linalg.eigh((root[:, None] * moved / root) / short)
    if np.isinf(shape):
        tables = _transitions("hky", 4, paths.ravel()).reshape(n, n, 4, 4) * FREQUENCIES[:, None]
    else:
        factors = (1 - np.multiply.outer(paths, np.minimum(rates, 0)) / shape) ** -shape
        tables = np.einsum("ac,ijc,bc->ijab", vectors, factors, vectors) * np.outer(root, root)
    return PairProbabilities(tables, np.full((n, n), sites), sites), paths


def pairs_of(data, k=4):
    codes = data.X.astype(np.int16)
    units = Batch((codes,), np.ones(len(codes)), np.arange(len(codes), dtype=np.uint64))
    return PairTables(k).update(units).finalize()


@pytest.mark.parametrize("seed", range(3))
def test_exact_tables_give_the_paths_of_the_tree(seed):
    tree = make_tree(10, 12, model="hky", random_state=seed).tree
    pairs, paths = exact(tree, np.inf, 1e12)
    known = logdet_affinity(pairs, 4)
    rates = common_rates(pairs, known)
    found = rates.affinity(known, pairs)
    assert np.isinf(found.shape)
    assert rates.deviance < 1
    # Log-determinants have the same scale.
    assert np.abs(found.distances - known.distances).max() < 1e-6
    scale = found.distances.sum() / paths.sum()
    assert np.abs(found.distances - scale * paths).max() < 1e-6


@pytest.mark.parametrize("shape", [0.5, 1.0])
def test_exact_tables_of_gamma_rates_give_the_shape_and_the_paths(shape):
    tree = make_tree(10, 24, shape="caterpillar", model="hky", random_state=0).tree
    pairs, paths = exact(tree, shape, 1e5)
    known = logdet_affinity(pairs, 4)
    found = common_rates(pairs, known).affinity(known, pairs)
    assert found.shape == shape
    clear = ~found.saturated
    scale = found.distances[clear].sum() / paths[clear].sum()
    assert np.abs(found.distances - scale * paths)[clear].max() < 1e-3 * paths.max()
    # Log-determinants are not proportional to paths.
    scale = known.distances[clear].sum() / paths[clear].sum()
    assert np.abs(known.distances - scale * paths)[clear].max() > 0.05 * paths.max()


def test_a_table_of_its_own_on_every_edge_keeps_log_determinants():
    data = make_tree(2000, 16, model="general", random_state=0)
    pairs = pairs_of(data)
    assert common_rates(pairs, logdet_affinity(pairs, 4)) is None


def test_leaves_with_names_of_their_own_keep_log_determinants():
    data = make_tree(1000, 12, model="hky", random_state=0)
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.permutation(4)[column] for column in data.X.T])
    model = lt.LatentTree(refine=0, support=None).fit(X)
    assert "rate matrix" not in model.certificate_.method
    plain = lt.LatentTree(refine=0, support=None).fit(data.X)
    assert "one rate matrix" in plain.certificate_.method


@pytest.mark.parametrize("n_symbols", [30, 32])
def test_symbols_that_leaves_lack(n_symbols):
    """Determinants are zero where a leaf lacks a symbol."""
    data = make_tree(150, 8, model="jc", n_states=30, random_state=0)
    assert min(len(np.unique(column)) for column in data.X.T) < 30
    model = lt.LatentTree(refine=0, support=None, n_symbols=n_symbols).fit(data.X)
    assert lt.robinson_foulds(model.tree_, data.tree) == 0
    assert not model.saturated_.any()


def test_few_sites_give_a_nearer_tree():
    errors = []
    for seed in range(3):
        data = make_tree(500, 64, shape="balanced", model="hky", random_state=seed)
        known = logdet_affinity(pairs_of(data), 4)
        found = common_rates(pairs_of(data), known).affinity(known, pairs_of(data))
        paths = data.tree.distances()[:64, :64]
        near = (paths < np.median(paths)) & (paths > 0)
        errors.append([np.std(d[near] / paths[near]) for d in (known.distances, found.distances)])
    by_determinants, by_rates = np.mean(errors, axis=0)
    assert by_rates < 0.8 * by_determinants


def test_one_step_from_all_sites_is_near_the_maximum_of_a_resample():
    data = make_tree(2000, 12, model="hky", random_state=3)
    whole = pairs_of(data)
    rates = common_rates(whole, logdet_affinity(whole, 4))
    rows = np.random.default_rng(0).integers(0, 2000, 2000)
    half = pairs_of(type(data)(data.X[rows], data.tree, None, None, None))
    known = logdet_affinity(half, 4)
    step = rates.affinity(known, half).distances
    fresh = common_rates(half, known).affinity(known, half).distances
    spread = np.abs(fresh - rates.affinity(known, whole).distances).max()
    assert np.abs(step - fresh).max() < 0.5 * spread
