"""The worked example of the documentation does what it says."""

import importlib.util
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "docs" / "examples" / "poisson_mixture.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("poisson_mixture", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules["poisson_mixture"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["poisson_mixture"]


def planted(n, seed=0, d=6):
    rng = np.random.default_rng(seed)
    weights = np.array([0.5, 0.3, 0.2])
    rates = np.random.default_rng(1).uniform(0.5, 6, (3, d))
    labels = rng.choice(3, n, p=weights)
    return weights, rates, rng.poisson(rates[labels]).astype(float)


def test_population_moments_give_the_parameters_back(example):
    weights, rates, _ = planted(1)
    model = example.PoissonModel(3)
    second = np.einsum("j,ji,jl->il", weights, rates, rates)
    found = example.whiten(second, 3)
    frame = example.Frame({"directions": found.projection, "lift": found.lift})

    class Exact:
        def finalize(self):
            turned = rates @ found.projection
            return np.einsum("j,ja,jb,jc->abc", weights, turned, turned, turned)

    answer = model.read_off(frame, {"triples": Exact()}, np.random.default_rng(0))
    state = model.presented(frame, answer.state)
    assert np.abs(state.weights - weights).max() < 1e-8
    assert np.abs(state.rates - rates).max() < 1e-8


def test_accumulators_are_the_factorial_moments_of_the_sample(example):
    rows = planted(400)[2]
    units = example_batch(rows)
    directions = np.random.default_rng(2).standard_normal((6, 2))
    found = example.TripleCounts(directions).update(units).finalize()
    expected = np.zeros((6, 6, 6))
    for x in rows:
        for i in range(6):
            for j in range(6):
                for k in range(6):
                    value = x[i] * (x[j] - (i == j)) * (x[k] - (i == k) - (j == k))
                    expected[i, j, k] += value / len(rows)
    expected = np.einsum("ijk,ia,jb,kc->abc", expected, directions, directions, directions)
    assert np.abs(found - expected).max() < 1e-9 * np.abs(expected).max()


def example_batch(rows):
    from latensor.moments.batch import Batch

    return Batch((rows,), np.ones(len(rows)), np.arange(len(rows), dtype=np.uint64))


def test_all_that_the_base_promises(example):
    weights, rates, rows = planted(12_000)
    model = example.PoissonMixture(3, random_state=0).fit(rows)
    assert np.abs(model.rates_ - rates).max() < 0.25
    assert np.abs(model.weights_ - weights).max() < 0.03
    batches = [rows[:5000], rows[5000:5003], rows[5003:]]
    again = example.PoissonMixture(3, random_state=0, n_jobs=2).fit(batches)
    assert (again.rates_ == model.rates_).all()
    stream = example.PoissonMixture(3, random_state=0).partial_fit(rows[:6000])
    worker = stream.spawn().partial_fit(rows[6000:])
    assert np.abs(stream.merge(worker).rates_ - model.rates_).max() < 1e-3
    inside = model.intervals(rows[:3000])["rates"]
    assert (inside.low < inside.high).all()
    assert (pickle.loads(pickle.dumps(model)).rates_ == model.rates_).all()
    raw = example.PoissonMixture(3, refine=0, random_state=0).fit(rows)
    assert np.abs(raw.rates_ - rates).max() < 1.0
