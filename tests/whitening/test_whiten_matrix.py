import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

from latensor.arrays import library_name, to_host
from latensor.exceptions import InvalidInputError, RankDeficientError
from latensor.whitening import (
    canonical_directions,
    canonical_directions_of_samples,
    principal_directions,
    whiten,
)


def make(kind, matrix):
    if kind == "torch":
        return pytest.importorskip("torch").asarray(matrix)
    if kind == "jax":
        return pytest.importorskip("jax.numpy").asarray(matrix)
    return {"numpy": np.asarray, "sparse": scipy.sparse.csr_array, "operator": aslinearoperator}[
        kind
    ](matrix)


def symmetric(rng, size, values, dtype=np.float64):
    basis = np.linalg.qr(rng.standard_normal((size, len(values))))[0]
    matrix = (basis * values) @ basis.T
    return ((matrix + matrix.T) / 2).astype(dtype)


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax", "sparse", "operator"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [8, 600])
@pytest.mark.parametrize("values", [(5.0, 3.0, 2.0, 0.5), (5.0, -3.0, 2.0, -0.5)])
def test_whitening_turns_the_moment_into_signs_and_lift_undoes_it(kind, dtype, size, values):
    if kind == "jax" and size > 100:
        pytest.skip("jax compiles every shape: the smaller sizes stand for all")
    moment = symmetric(np.random.default_rng(0), size, values, dtype)
    found = whiten(make(kind, moment), 4)
    projection, lift, spectrum = (
        to_host(part) for part in (found.projection, found.lift, found.spectrum)
    )
    bound = 20 * size * np.finfo(dtype).eps
    assert projection.dtype == lift.dtype == spectrum.dtype == np.dtype(dtype)
    assert np.abs(spectrum - values).max() < bound
    assert np.abs(projection.T @ moment @ projection - np.diag(np.sign(values))).max() < bound
    assert np.abs(lift.T @ projection - np.eye(4)).max() < bound
    assert np.abs((lift * np.sign(values)) @ lift.T - moment).max() < bound
    assert found.rank == 4
    assert found.condition == pytest.approx(10.0, rel=1e-4)
    if kind in ("numpy", "torch", "jax"):
        parts = (found.projection, found.lift, found.spectrum)
        assert {library_name(part) for part in parts} == {kind}


@settings(max_examples=20, deadline=None)
@given(size=st.integers(2, 9), rank=st.integers(1, 9), seed=st.integers(0, 99))
def test_whiten_then_lift_is_the_identity_on_the_span(size, rank, seed):
    rng = np.random.default_rng(seed)
    rank = min(rank, size)
    factor = rng.standard_normal((size, rank))
    found = whiten(factor @ factor.T, rank)
    assert np.abs(found.lift @ (found.projection.T @ factor) - factor).max() < 1e-6


@pytest.mark.parametrize("kind", ["numpy", "sparse", "operator"])
def test_a_deficient_moment_says_what_it_supports(kind):
    moment = symmetric(np.random.default_rng(1), 7, (4.0, 2.0, 1.0))
    with pytest.raises(
        RankDeficientError, match=r"rank=5 exceeds the 3 directions.*rank to 3"
    ) as e:
        whiten(make(kind, moment), 5)
    assert e.value.usable_rank == 3
    assert np.abs(e.value.spectrum[:3] - [4.0, 2.0, 1.0]).max() < 1e-12
    assert 0 < e.value.threshold < 1e-12
    assert whiten(make(kind, moment), 3).rank == 3
    with pytest.raises(RankDeficientError, match="all its eigenvalues are zero"):
        whiten(make(kind, np.zeros((3, 3))), 1)


@pytest.mark.parametrize(
    "moment, rank, message",
    [
        (np.ones((2, 3)), 1, "second_moment must be square"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), 1, "second_moment must be symmetric"),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), 1, "second_moment holds 2 NaN"),
        (np.eye(2), 3, "rank=3 exceeds the 2"),
        (np.eye(2), 0, "rank=0"),
        (np.ones(3), 1, "second_moment must be a"),
    ],
)
def test_bad_moments_are_refused(moment, rank, message):
    with pytest.raises(InvalidInputError, match=message):
        whiten(moment, rank)


def test_principal_directions_are_eigenvectors_and_refuse_negative_variances():
    covariance = symmetric(np.random.default_rng(2), 6, (3.0, 2.0, 1.0))
    values, vectors = principal_directions(covariance, 4)
    assert np.abs(values - [3.0, 2.0, 1.0, 0.0]).max() < 1e-14
    assert np.abs(covariance @ vectors - vectors * values).max() < 1e-14
    with pytest.raises(InvalidInputError, match="negative eigenvalue"):
        principal_directions(symmetric(np.random.default_rng(2), 6, (3.0, -2.0)), 2)


def two_views(rng, n_samples=500, sizes=(6, 4)):
    shared = rng.standard_normal((n_samples, 3))
    views = [
        shared @ rng.standard_normal((3, size)) + rng.standard_normal((n_samples, size))
        for size in sizes
    ]
    return [view - view.mean(axis=0) for view in views]


def generalized_eigenvalues(x, y):
    first, second, cross = x.T @ x, y.T @ y, x.T @ y
    left = cross @ np.linalg.solve(second, cross.T)
    return np.sqrt(np.sort(scipy.linalg.eigh((left + left.T) / 2, first)[0])[::-1].clip(0))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("route", ["covariances", "samples"])
def test_canonical_correlations_solve_the_generalized_eigenproblem(seed, route):
    x, y = two_views(np.random.default_rng(seed))
    n_samples = len(x)
    if route == "covariances":
        found = canonical_directions(
            x.T @ x / n_samples, y.T @ y / n_samples, x.T @ y / n_samples, 4
        )
    else:
        found = canonical_directions_of_samples(x, y, 4)
    assert np.abs(found.correlations - generalized_eigenvalues(x, y)[:4]).max() < 1e-10
    scores = x @ found.x_directions, y @ found.y_directions
    for view in scores:
        assert np.abs(view.T @ view / n_samples - np.eye(4)).max() < 1e-10
    cross = scores[0].T @ scores[1] / n_samples
    assert np.abs(cross - np.diag(found.correlations)).max() < 1e-10
    assert found.next_correlation == 0.0


def test_both_routes_agree_with_and_without_ridge():
    x, y = two_views(np.random.default_rng(5))
    for ridge in (0.0, 0.3):
        moments = (x.T @ x / 500, y.T @ y / 500, x.T @ y / 500)
        one = canonical_directions(*moments, 2, ridge=ridge)
        other = canonical_directions_of_samples(x, y, 2, ridge=ridge)
        for first, second in zip(one, other, strict=True):
            assert np.abs(np.asarray(first) - np.asarray(second)).max() < 1e-10


def test_correlations_do_not_depend_on_linear_maps_of_a_view():
    rng = np.random.default_rng(6)
    x, y = two_views(rng)
    turned = x @ (rng.standard_normal((6, 6)) * 10.0 ** np.arange(-3, 3))
    one, other = (canonical_directions_of_samples(view, y, 3) for view in (x, turned))
    assert np.abs(one.correlations - other.correlations).max() < 1e-10


@pytest.mark.parametrize("kind", ["torch", "jax"])
def test_canonical_directions_stay_in_the_library(kind):
    x, y = (view.astype(np.float32) for view in two_views(np.random.default_rng(7)))
    moments = [make(kind, matrix / 500) for matrix in (x.T @ x, y.T @ y, x.T @ y)]
    found = canonical_directions(*moments, 2)
    assert library_name(found.x_directions) == library_name(found.correlations) == kind
    exact = generalized_eigenvalues(x.astype(float), y.astype(float))[:2]
    assert np.abs(to_host(found.correlations) - exact).max() < 1e-4


def test_canonical_directions_say_what_exists():
    with pytest.raises(RankDeficientError, match=r"rank=3 exceeds the 1 pairs.*x varies in 1"):
        canonical_directions(np.diag([1.0, 0.0]), np.eye(3), np.zeros((2, 3)), 3)
    with pytest.raises(RankDeficientError, match="y is constant"):
        canonical_directions(np.eye(2), np.zeros((3, 3)), np.zeros((2, 3)), 1)
    with pytest.raises(InvalidInputError, match=r"must be \(d1, d1\)"):
        canonical_directions(np.eye(2), np.eye(3), np.zeros((3, 2)), 1)
