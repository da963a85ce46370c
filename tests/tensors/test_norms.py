"""Spectral norm and Kruskal rank: known values, certified bounds, every library."""

import pickle

import numpy as np
import pytest

import definitions
import latensor as lt
from definitions import draw


def test_spectral_norm_of_vectors_and_matrices_is_exact(library, dtype, rng):
    for shape in [(5,), (4, 6)]:
        array = draw(rng, shape, dtype)
        expected = np.linalg.norm(array.astype("complex128"), 2)
        bounds = lt.spectral_norm(library.array(array))
        slack = 1e-12 if np.finfo(dtype).eps < 1e-10 else 1e-4
        assert bounds.lower == pytest.approx(expected, rel=slack)
        assert bounds.upper == pytest.approx(expected, rel=slack)
        assert bounds.lower <= bounds.upper


@pytest.mark.parametrize("order", [3, 4, 5])
def test_spectral_norm_of_orthogonal_tensors_is_their_largest_weight(library, order):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
        weights = np.array([3.0, 2.5, -2.0, 1.0, 0.5, 0.1])
        tensor = lt.CPTensor(library.array(weights), (library.array(basis),) * order).to_dense()
        bounds = lt.spectral_norm(tensor)
        assert bounds.lower == pytest.approx(3.0, rel=1e-10)
        assert bounds.upper == pytest.approx(3.0, rel=1e-7)
        assert float(bounds) == bounds.lower


def test_spectral_norm_bounds_hold_and_are_attained(rng):
    for shape in [(4, 5, 3), (3, 2, 4, 2), (2, 3, 2, 2, 3)]:
        for dtype in ("float64", "complex128"):
            tensor = draw(rng, shape, dtype)
            bounds = lt.spectral_norm(tensor)
            attained = abs(lt.multilinear(tensor, *bounds.vectors))
            assert attained == pytest.approx(bounds.lower, rel=1e-9)
            for vector in bounds.vectors:
                assert np.linalg.norm(vector) == pytest.approx(1)
            unfoldings = [np.linalg.norm(lt.unfold(tensor, m), 2) for m in range(len(shape))]
            assert bounds.upper <= min(unfoldings) * (1 + 1e-12)
            assert bounds.lower <= bounds.upper
            for _ in range(200):
                trial = [draw(rng, d, dtype) for d in shape]
                trial = [v / np.linalg.norm(v) for v in trial]
                assert abs(lt.multilinear(tensor, *trial)) <= bounds.lower * (1 + 1e-12)


def test_spectral_norm_of_every_kind_of_tensor(rng):
    tensor = lt.CPTensor(draw(rng, 3), tuple(draw(rng, (d, 3)) for d in (4, 5, 3)))
    dense = tensor.to_dense()
    sparse = lt.SparseTensor.from_dense(dense * (rng.random(dense.shape) < 0.3))
    for implicit, array in ((tensor, dense), (sparse, sparse.to_dense())):
        mine, theirs = lt.spectral_norm(implicit), lt.spectral_norm(array)
        assert mine.lower == pytest.approx(theirs.lower, rel=1e-8)
        assert mine.upper >= mine.lower
    assert lt.spectral_norm(sparse).upper <= float(sparse.norm()) * (1 + 1e-12)


def test_spectral_norm_of_zero_and_repeatability(library, rng):
    zero = lt.spectral_norm(library.array(np.zeros((3, 2, 2))))
    assert zero.lower == zero.upper == 0
    assert all(np.linalg.norm(library.host(v)) == 1 for v in zero.vectors)
    tensor = library.array(draw(rng, (4, 4, 4)))
    one, two = lt.spectral_norm(tensor), lt.spectral_norm(tensor)
    assert one.lower == two.lower


KRUSKAL = {
    "identity": (np.eye(3), 3),
    "zero column": (np.array([[1.0, 0.0], [0.0, 0.0]]), 0),
    "parallel": (np.array([[1.0, -2.0, 0.0], [0.0, 0.0, 1.0]]), 1),
    "single column": (np.ones((4, 1)), 1),
    "one row": (np.array([[1.0, 2.0, 3.0]]), 1),
    "three in a plane": (np.array([[1.0, 0, 1, 0], [0, 1, 1, 0], [0, 0, 0, 1]]), 2),
    "tiny and large": (np.array([[1e-9, 0.0], [0.0, 1e9]]), 2),
}


@pytest.mark.parametrize("name", KRUSKAL)
def test_kruskal_rank_of_small_matrices(library, name):
    matrix, expected = KRUSKAL[name]
    found = lt.kruskal_rank(library.array(matrix))
    assert found == expected
    assert isinstance(found, int)
    assert found.exact
    if name != "tiny and large":  # the loop below measures rank without scaling the columns
        assert definitions.kruskal_rank(matrix) == expected


def test_kruskal_rank_against_all_subsets():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        matrix = rng.integers(-1, 2, size=(4, 7)).astype(float)
        found = lt.kruskal_rank(matrix)
        assert found.exact
        assert found == definitions.kruskal_rank(matrix)
        bounds = lt.kruskal_rank(matrix, max_subsets=0)
        assert bounds.lower <= definitions.kruskal_rank(matrix) <= bounds.upper


def test_kruskal_rank_of_large_matrices_is_bounded(rng):
    generic = lt.kruskal_rank(rng.standard_normal((40, 80)), max_subsets=10_000)
    assert 1 <= generic.lower < generic.upper == 40
    assert not generic.exact
    nearly_orthogonal = np.concatenate([np.eye(64), np.ones((64, 1)) / 8], axis=1)
    assert lt.kruskal_rank(nearly_orthogonal, max_subsets=0).lower >= 8
    dependent = rng.standard_normal((40, 80))
    dependent[:, 5] = dependent[:, 6] - dependent[:, 7]
    assert lt.kruskal_rank(dependent).upper == 2
    again = pickle.loads(pickle.dumps(generic))
    assert (again, again.upper, again.method) == (generic, generic.upper, generic.method)


def test_a_tolerance_above_all_columns_leaves_nothing():
    for tol in (1.0, 2.0, np.inf):
        found = lt.kruskal_rank(np.eye(3), tol=tol)
        assert found.lower == found.upper == 0
    assert lt.kruskal_rank(np.eye(3), tol=0.999) == 3


def test_float32_tolerance_follows_the_dtype(library, rng):
    matrix = rng.standard_normal((5, 3))
    matrix[:, 2] = matrix[:, 0] + matrix[:, 1]
    assert lt.kruskal_rank(library.array(matrix, "float32")) == 2


def test_matrices_have_exact_bounds_whatever_their_shape(rng):
    matrix = draw(rng, (1500, 3))
    for given in (matrix, matrix.T, lt.CPTensor(None, (np.eye(4)[:, :3],) * 2)):
        bounds = lt.spectral_norm(given)
        dense = given if isinstance(given, np.ndarray) else given.to_dense()
        assert bounds.lower == pytest.approx(np.linalg.norm(dense, 2), rel=1e-10)
        assert bounds.upper == pytest.approx(bounds.lower, rel=1e-10)


def test_bounds_survive_cancellation_and_rounding(rng):
    column = draw(rng, (5, 1))
    pair = np.hstack([column, column + 1e-9 * draw(rng, (5, 1))])
    for repeat in (1, 30):  # small enough to be formed, and not
        factors = tuple(np.tile(pair, (repeat, 1)) for _ in range(4))
        tensor = lt.CPTensor([1.0, -1.0], factors)
        bounds = lt.spectral_norm(tensor)
        exact = lt.spectral_norm(lt.CPTensor([1.0, -1.0], (pair,) * 4)).lower * repeat**2
        assert bounds.upper >= exact * (1 - 1e-6)
    for _ in range(50):
        vectors = [draw(rng, d, "float32") for d in (7, 8, 9)]
        near = lt.outer(*vectors)
        bounds = lt.spectral_norm(near)
        attained = abs(lt.multilinear(near.astype(float), *(v.astype(float) for v in vectors)))
        lengths = np.prod([np.linalg.norm(v.astype(float)) for v in vectors])
        assert bounds.upper >= attained / lengths


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_extreme_scales(scale):
    tensor = np.full((2, 3, 4), scale)
    bounds = lt.spectral_norm(tensor)
    assert bounds.lower == pytest.approx(scale * np.sqrt(24), rel=1e-12)
    assert lt.frobenius_norm(tensor) == pytest.approx(scale * np.sqrt(24), rel=1e-12)
    assert lt.kruskal_rank(scale * np.eye(3)) == 3
    assert lt.asymmetry(scale * np.array([[0.0, 1.0], [0.0, 0.0]])) == pytest.approx(np.sqrt(2))
    single = np.full((3, 3), 1e-23 if scale < 1 else 1e30, np.float32)
    assert lt.frobenius_norm(single) == pytest.approx(3 * float(single[0, 0]), rel=1e-6)
    factors = (np.full((2, 1), scale), np.full((2, 1), 1 / scale))
    tensor = lt.CPTensor(None, factors)
    np.testing.assert_allclose(tensor.normalized().to_dense(), np.ones((2, 2)))
    cores = (np.full((2, 2, 2), scale), (np.eye(2), None, np.full((3, 2), 2.0)))
    assert lt.frobenius_norm(lt.TuckerTensor(*cores)) == pytest.approx(
        scale * lt.frobenius_norm(lt.TuckerTensor(np.ones((2, 2, 2)), cores[1])), rel=1e-12
    )
    assert lt.frobenius_norm(tensor) == pytest.approx(2.0, rel=1e-12)
    once = lt.CPTensor([1.0, -2.0], (np.eye(3, 2), np.ones((2, 2))))
    scaled = lt.CPTensor(once.weights * scale, once.factors)
    assert lt.frobenius_norm(scaled) == pytest.approx(scale * once.norm(), rel=1e-12)
    thin = lt.CPTensor(None, (single[:, :1], single[:, :1] / single[0, 0]))
    assert lt.frobenius_norm(thin) == pytest.approx(3 * float(single[0, 0]), rel=1e-6)


@pytest.mark.parametrize("n_samples", [5, 200])
@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_moments_of_extreme_samples_have_a_norm(scale, n_samples):
    samples = np.random.default_rng(0).standard_normal((n_samples, 4))
    norm = lt.frobenius_norm(lt.MomentTensor(samples * scale, order=3))
    expected = float(lt.frobenius_norm(lt.MomentTensor(samples, order=3)))
    assert float(norm) / scale**3 == pytest.approx(expected, rel=1e-10)
