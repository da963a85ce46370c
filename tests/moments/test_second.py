import pickle

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from latensor.arrays import library_name, to_host
from latensor.exceptions import InvalidInputError
from latensor.moments import (
    CovarianceAccumulator,
    CovarianceSketchAccumulator,
    CrossCovarianceAccumulator,
    centered_operator,
    covariance_operator,
    unbiased_factor,
)


def make(kind, matrix):
    if kind == "torch":
        return pytest.importorskip("torch").asarray(matrix)
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(matrix)
    return np.asarray(matrix) if kind == "numpy" else getattr(scipy.sparse, kind)(matrix)


KINDS = ["numpy", "torch", "jax", "csr_matrix", "csc_array", "coo_array"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_mean_and_covariance_of_a_batch(kind, dtype):
    rng = np.random.default_rng(0)
    batch = (rng.standard_normal((30, 5)) * (rng.random((30, 5)) < 0.4)).astype(dtype)
    found = CovarianceAccumulator().update(make(kind, batch)).finalize()
    bound = 100 * np.finfo(dtype).eps
    assert (found.count, found.weight) == (30, 30.0)
    assert np.abs(to_host(found.mean) - batch.mean(axis=0)).max() < bound
    covariance = to_host(found.covariance)
    assert covariance.dtype == np.dtype(dtype)
    assert np.abs(covariance - np.cov(batch.T, bias=True)).max() < bound
    assert np.abs(covariance * unbiased_factor(30) - np.cov(batch.T)).max() < bound
    if kind in ("torch", "jax"):
        assert library_name(found.covariance) == library_name(found.mean) == kind


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 40), max_size=4), seed=st.integers(0, 99), sparse=st.booleans())
def test_any_split_in_any_order_gives_the_same_moment(cuts, seed, sparse):
    rng = np.random.default_rng(seed)
    data = 100.0 + rng.standard_normal((40, 4))
    weights = rng.integers(0, 3, 40).astype(float)
    pairs = [
        (part, fraction)
        for part, fraction in zip(
            np.split(data, sorted(cuts)), np.split(weights, sorted(cuts)), strict=True
        )
        if len(part)
    ]
    wrap = scipy.sparse.csr_array if sparse else np.asarray
    expected = CovarianceAccumulator().update(np.repeat(data, weights.astype(int), axis=0))
    streamed = CovarianceAccumulator()
    merged = CovarianceAccumulator()
    for part, fraction in pairs:
        streamed.update(wrap(part), fraction)
    for part, fraction in pairs[::-1]:
        merged = CovarianceAccumulator().update(wrap(part), fraction).merge(merged)
    # The sparse route subtracts squares of the mean, 1e4 times the variance here.
    bound = 1e-9 if sparse else 1e-12
    for found in (streamed.finalize(), merged.finalize()):
        assert found.weight == weights.sum()
        assert np.abs(found.mean - expected.finalize().mean).max() < 1e-12
        assert np.abs(found.covariance - expected.finalize().covariance).max() < bound


def test_a_large_mean_costs_no_digits():
    noise = np.random.default_rng(1).standard_normal((1000, 3))
    near, far = CovarianceAccumulator(), CovarianceAccumulator()
    for part in np.split(noise, 10):
        near.update(part)
        far.update(part + 1e8)
    assert np.abs(near.finalize().covariance - far.finalize().covariance).max() < 1e-6


def test_single_precision_sums_do_not_drift():
    batches = np.random.default_rng(2).standard_normal((400, 50, 2)).astype(np.float32)
    stream = CovarianceAccumulator()
    for batch in batches:
        stream.update(batch)
    exact = np.cov(batches.reshape(-1, 2).astype(float).T, bias=True)
    assert np.abs(stream.finalize().covariance - exact).max() < 1e-6


@pytest.mark.parametrize(
    "kinds",
    [
        ("numpy", "numpy"),
        ("csr_array", "numpy"),
        ("numpy", "csr_array"),
        ("csr_array", "csc_array"),
        ("torch", "torch"),
    ],
)
def test_cross_covariance_of_two_views(kinds):
    rng = np.random.default_rng(3)
    x, y = rng.poisson(0.5, (60, 4)).astype(float), rng.poisson(1.0, (60, 3)).astype(float)
    weights = rng.integers(0, 3, 60).astype(float)
    whole = CrossCovarianceAccumulator()
    parts = [CrossCovarianceAccumulator() for _ in range(2)]
    whole.update((make(kinds[0], x), make(kinds[1], y)), weights)
    for part, rows in zip(parts, (slice(0, 25), slice(25, 60)), strict=True):
        part.update((make(kinds[0], x[rows]), make(kinds[1], y[rows])), weights[rows])
    merged = pickle.loads(pickle.dumps(parts[0])).merge(parts[1])
    repeated = np.repeat(np.hstack([x, y]), weights.astype(int), axis=0)
    exact = np.cov(repeated.T, bias=True)
    for found in (whole.finalize(), merged.finalize()):
        assert np.abs(to_host(found.x_covariance) - exact[:4, :4]).max() < 1e-13
        assert np.abs(to_host(found.y_covariance) - exact[4:, 4:]).max() < 1e-13
        assert np.abs(to_host(found.cross_covariance) - exact[:4, 4:]).max() < 1e-13
        assert np.abs(to_host(found.y_mean) - repeated[:, 4:].mean(axis=0)).max() < 1e-13


def test_complex_views_have_a_hermitian_covariance():
    rng = np.random.default_rng(4)
    data = rng.standard_normal((50, 3)) + 1j * rng.standard_normal((50, 3))
    found = CovarianceAccumulator().update(data[:20]).update(data[20:]).finalize()
    assert np.abs(found.covariance - np.cov(data.T, bias=True)).max() < 1e-13


def test_operators_equal_the_matrices_they_stand_for():
    rng = np.random.default_rng(5)
    data = scipy.sparse.random_array((40, 6), density=0.3, rng=rng, format="csr")
    weights = rng.random(40)
    mean = np.average(data.toarray(), axis=0, weights=weights)
    operator = centered_operator(data, mean, weights)
    dense = np.sqrt(weights)[:, None] * (data.toarray() - mean)
    assert np.abs(operator @ np.eye(6) - dense).max() < 1e-14
    assert np.abs(operator.T @ np.eye(40) - dense.T).max() < 1e-14
    assert np.abs(operator.matvec(mean) - dense @ mean).max() < 1e-14
    assert np.abs(operator.rmatvec(weights) - dense.T @ weights).max() < 1e-13
    covariance = covariance_operator([data[:15], data[15:]])
    assert np.abs(covariance @ np.eye(6) - np.cov(data.toarray().T, bias=True)).max() < 1e-14


@pytest.mark.parametrize("kind", ["numpy", "torch", "csr_array"])
def test_a_sketch_is_exact_while_the_data_spans_no_more_than_its_rank(kind):
    rng = np.random.default_rng(6)
    data = 3.0 + rng.standard_normal((60, 4)) @ rng.standard_normal((4, 30))
    first, second = (CovarianceSketchAccumulator(5) for _ in range(2))
    first.update(make(kind, data[:10])).update(make(kind, data[10:33]))
    second.update(make(kind, data[33:]))
    found = first.merge(second).finalize()
    exact = np.cov(data.T, bias=True)
    factor = to_host(found.factor)
    assert factor.shape == (5, 30)
    assert np.abs(factor.T @ factor - exact).max() < 1e-10
    assert found.total_variance == pytest.approx(np.trace(exact), rel=1e-10)
    assert found.error < 1e-10


@pytest.mark.parametrize("seed", range(3))
def test_the_error_of_a_sketch_is_bounded_by_what_it_says(seed):
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((200, 30)) * 0.8 ** np.arange(30)
    stream = CovarianceSketchAccumulator(12)
    for part in np.split(data, 8):
        stream.update(part)
    found = stream.finalize()
    missing = np.linalg.eigvalsh(np.cov(data.T, bias=True) - found.factor.T @ found.factor)
    assert missing[0] > -1e-12
    assert missing[-1] <= found.error
    assert found.error < 0.1 * found.total_variance
    assert found.total_variance == pytest.approx(np.trace(np.cov(data.T, bias=True)))


def updated(*batches):
    stream = CovarianceAccumulator()
    for batch in batches:
        stream.update(batch)
    return stream


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: updated().finalize(), "no sample has been seen"),
        (lambda: CovarianceSketchAccumulator(3).finalize(), "no sample has been seen"),
        (lambda: updated(np.ones((2, 3)), np.ones((2, 4))), "4 features, but .* had 3"),
        (lambda: updated(np.ones((2, 3))).merge(updated(np.ones((2, 4)))), "4 features"),
        (lambda: updated(np.ones(3)), "must be a matrix"),
        (lambda: updated(np.array([[1.0, np.inf]])), "batch holds 1 NaN or infinite"),
        (lambda: updated().merge(CrossCovarianceAccumulator()), "cannot merge"),
        (lambda: updated().update(np.ones((2, 1)), [1.0]), "one number per sample"),
        (lambda: updated().update(np.ones((2, 1)), [1.0, -1.0]), r"weights\[1\] is -1"),
        (
            lambda: CrossCovarianceAccumulator().update((np.ones((2, 1)), np.ones((3, 1)))),
            "x has 2 rows and y has 3 rows",
        ),
        (lambda: covariance_operator(iter([np.ones((2, 2))])), "only once"),
        (lambda: covariance_operator([]), "batches is empty"),
        (lambda: CovarianceSketchAccumulator(0), "rank=0"),
        (lambda: CovarianceSketchAccumulator(1).update(np.ones((2, 2)) * 1j), "is complex"),
        (
            lambda: CovarianceSketchAccumulator(2).merge(CovarianceSketchAccumulator(3)),
            "rank 3 into one of rank 2",
        ),
        (lambda: unbiased_factor(1.0), "weight above 1"),
    ],
)
def test_bad_batches_are_refused(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("n_samples", [7, 3000])
def test_rounding_of_a_constant_is_no_variance(n_samples):
    rng = np.random.default_rng(0)
    batch = np.c_[np.full(n_samples, 0.1), rng.standard_normal(n_samples), np.full(n_samples, 1e6)]
    found = CovarianceAccumulator().update(batch).finalize(host=True).covariance
    assert not found[0].any()
    assert not found[:, 2].any()
    assert found[1, 1] == pytest.approx(batch[:, 1].var(), rel=1e-12)
    # A small variance beside a large mean is one.
    narrow = 1e6 + 1e-6 * rng.standard_normal((n_samples, 1))
    assert CovarianceAccumulator().update(narrow).finalize(host=True).covariance[0, 0] > 0
