"""More components than dimensions: exact up to the stated limits, and refused beyond."""

from __future__ import annotations

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition import Foobi, SubspacePower, Tensorization
from latensor.decomposition.algorithms.sym_squares import largest_rank


def planted(dimension, rank, order, seed, correlation=0.0, signs=False, noise=0.0):
    """Unit components that lean to a common direction, and their tensor."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((dimension, rank))
    vectors /= np.linalg.norm(vectors, axis=0)
    common = rng.standard_normal(dimension)
    common /= np.linalg.norm(common)
    vectors = np.sqrt(correlation) * common[:, None] + np.sqrt(1 - correlation) * vectors
    vectors /= np.linalg.norm(vectors, axis=0)
    weights = rng.uniform(0.5, 2.0, rank) * (rng.choice([-1.0, 1.0], rank) if signs else 1.0)
    tensor = lt.CPTensor(weights, (vectors,) * order).to_dense()
    if noise:
        drawn = lt.symmetrize(rng.standard_normal(tensor.shape))
        tensor = tensor + noise * np.linalg.norm(tensor) / np.linalg.norm(drawn) * drawn
    return vectors, tensor


def found_all(vectors, result, tolerance=1e-6):
    cosines = np.abs(vectors.T @ np.asarray(result.factors[0]))
    return (np.sqrt(np.maximum(1 - cosines.max(axis=1) ** 2, 0)) < tolerance).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("algorithm", [Foobi(), SubspacePower()])
@pytest.mark.parametrize(
    ("dimension", "rank", "correlation", "signs"),
    [(6, 15, 0.0, False), (8, 24, 0.5, False), (8, 20, 0.0, True), (10, 33, 0.8, False),
     (10, 40, 0.0, False), (5, 1, 0.0, False), (5, 3, 0.5, True), (2, 2, 0.0, False)],
)  # fmt: skip
def test_order_four_is_exact_up_to_the_limit(algorithm, dimension, rank, correlation, signs, seed):
    vectors, tensor = planted(dimension, rank, 4, seed, correlation, signs)
    result = algorithm(tensor, rank, np.random.default_rng(seed))
    assert found_all(vectors, result)
    assert result.residual < 1e-9
    assert result.method == type(algorithm).__name__
    if isinstance(algorithm, Foobi) and rank > 1:
        assert result.eigenvalue_ratio < 1e-6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("dimension", "order", "rank", "correlation"),
    [(4, 5, 10, 0.0), (6, 5, 20, 0.5), (6, 6, 21, 0.0), (3, 7, 10, 0.0), (3, 8, 9, 0.0)],
)
def test_orders_five_and_more(dimension, order, rank, correlation, seed):
    vectors, tensor = planted(dimension, rank, order, seed, correlation)
    result = Tensorization()(tensor, rank, np.random.default_rng(seed))
    assert found_all(vectors, result)
    assert result.residual < 1e-9


def test_tensors_without_symmetry_have_their_modes_merged():
    rng = np.random.default_rng(0)
    factors = tuple(rng.standard_normal((d, 12)) for d in (4, 5, 4, 5, 4))
    truth = lt.CPTensor(None, factors)
    for result in (
        lt.decompose(truth.to_dense(), 12, algorithm="tensorization"),
        lt.decompose(truth.to_dense(), 12),
    ):
        assert result.method == "Tensorization"
        assert result.residual < 1e-10
        assert lt.match(truth, result).score > 1 - 1e-8


@pytest.mark.parametrize("symmetric", [True, None])
@pytest.mark.parametrize(
    ("order", "dimension", "rank", "method"),
    [(4, 10, 33, "SubspacePower"), (5, 4, 9, "Tensorization"), (6, 4, 10, "Tensorization")],
)
def test_decompose_chooses_them_where_components_are_correlated(
    order, dimension, rank, method, symmetric
):
    vectors, tensor = planted(dimension, rank, order, 1, 0.8)
    result = lt.decompose(tensor, rank, symmetric=symmetric)
    assert result.method == method
    assert found_all(vectors, result)
    assert lt.decompose(tensor, rank, symmetric=symmetric).residual == result.residual


def test_other_fits_say_their_method_too():
    tensor = np.random.default_rng(0).standard_normal((3, 4, 5))
    assert lt.decompose(tensor, 2).method == "Automatic"
    assert lt.decompose(tensor, 2, algorithm="als").method == "AlternatingLeastSquares"
    # Noise on top: no algebra is exact, and free factors fit better than shared ones.
    noisy = planted(5, 7, 4, 0, noise=0.01)[1]
    assert lt.decompose(noisy, 7).method == "Automatic"


@pytest.mark.parametrize("algorithm", [Foobi(), SubspacePower()])
def test_the_error_is_linear_in_small_noise(algorithm):
    errors = []
    for noise in (1e-5, 1e-4, 1e-3):
        vectors, tensor = planted(8, 14, 4, 2, noise=noise)
        result = algorithm(tensor, 14, np.random.default_rng(0))
        cosines = np.abs(vectors.T @ np.asarray(result.factors[0])).max(axis=1)
        errors.append(np.sqrt(np.mean(1 - np.minimum(cosines, 1) ** 2)) / noise)
    assert max(errors) < 1.5 * min(errors)


def test_the_rank_is_found():
    vectors, tensor = planted(7, 10, 4, 0)
    result = SubspacePower()(tensor, 14, np.random.default_rng(0))
    assert found_all(vectors, result)
    np.testing.assert_allclose(np.sort(np.abs(np.asarray(result.weights)))[:4], 0, atol=1e-8)


def test_the_certificate_says_whether_the_rank_one_detector_has_a_gap(tmp_path):
    _, tensor = planted(8, 20, 4, 0)
    exact = lt.decompose(tensor, 20, algorithm="foobi", random_state=0)
    certificate = exact.certificate
    assert certificate.eigenvalue_ratio == exact.eigenvalue_ratio < 1e-6
    assert "Rank-one detector" in str(certificate)
    assert certificate.to_dict()["eigenvalue_ratio"] == exact.eigenvalue_ratio
    assert lt.load(exact.save(tmp_path / "exact.npz")).eigenvalue_ratio == exact.eigenvalue_ratio
    noise = lt.decompose(
        lt.symmetrize(np.random.default_rng(0).standard_normal((8,) * 4)), 20, algorithm="foobi"
    )
    assert noise.certificate.eigenvalue_ratio > 0.3
    marked = [s.level for s in noise.certificate.statements if s.topic == "Rank-one detector"]
    assert marked == ["caution"]
    assert lt.decompose(tensor, 20, symmetric=True).certificate.eigenvalue_ratio is None


@pytest.mark.parametrize("options", [{}, {"symmetric": True}, {"algorithm": "foobi"}])
def test_no_signal_is_told(options):
    with pytest.warns(UserWarning, match="no signal"):
        found = lt.decompose(np.zeros((4,) * 4), 3, **options)
    assert found.certificate.verdict == "unstable"
    assert "the data are zero" in str(found.certificate)
    assert found.certificate.explained is None
    assert "energy" not in str(found.certificate)


@pytest.mark.parametrize("algorithm", [Foobi(), SubspacePower(), Tensorization()])
def test_zero_and_deficient_tensors(algorithm):
    order = 5 if isinstance(algorithm, Tensorization) else 4
    zero = algorithm(np.zeros((4,) * order), 3, np.random.default_rng(0))
    assert not np.asarray(zero.weights).any()
    # Components within a plane of four dimensions.
    rng = np.random.default_rng(0)
    vectors = np.vstack([rng.standard_normal((2, 2)), np.zeros((2, 2))])
    vectors /= np.linalg.norm(vectors, axis=0)
    tensor = lt.CPTensor(None, (vectors,) * order).to_dense()
    assert found_all(vectors, algorithm(tensor, 2, rng))


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scale(scale):
    vectors, tensor = planted(6, 12, 4, 0, 0.5)
    result = lt.decompose(tensor * scale, 12, symmetric=True)
    assert found_all(vectors, result)
    assert result.method == "SubspacePower"


@pytest.mark.parametrize("name", ["numpy", "torch", "jax.numpy"])
def test_arrays_of_all_libraries_in_single_precision(name):
    library = pytest.importorskip(name)
    vectors, tensor = planted(6, 9, 4, 0)
    given = library.asarray(tensor.astype(np.float32))
    result = lt.decompose(given, 9, symmetric=True)
    assert type(result.factors[0]) is type(given)
    assert result.factors[0].dtype == given.dtype
    assert found_all(vectors, result, 1e-3)


def test_the_limits():
    # k (k - 1) / 2 <= d^2 (d^2 - 1) / 12.
    assert [largest_rank(d) for d in (6, 8, 10, 12, 15, 20)] == [15, 26, 41, 59, 92, 163]


@pytest.mark.parametrize(
    ("algorithm", "shape", "rank", "message"),
    [
        (Foobi(), (6,) * 4, 16, r"rank=16 is above 15.*algorithm='auto'"),
        (Foobi(), (20,) * 4, 101, "rank=101 is above the 100 .*SubspacePower"),
        (SubspacePower(), (6,) * 4, 16, "rank=16 is above 15"),
        (SubspacePower(), (4,) * 3, 2, "order 3, but SubspacePower is for order 4"),
        (Foobi(), (3,) * 5, 2, "order 5, but Foobi is for order 4: use Tensorization"),
        (Tensorization(), (3,) * 4, 2, "order 4.*SubspacePower or Foobi"),
        (Tensorization(), (3,) * 5, 7, "rank=7 is above the 6"),
        (SubspacePower(), (4,) * 4, 0, "rank=0"),
    ],
)
def test_what_a_method_cannot_do_is_refused(algorithm, shape, rank, message):
    tensor = lt.CPTensor(None, (np.ones((shape[0], 1)),) * len(shape)).to_dense()
    with pytest.raises(lt.InvalidInputError, match=message):
        algorithm(tensor, rank, np.random.default_rng(0))


@pytest.mark.parametrize("algorithm", [Foobi(), SubspacePower(), Tensorization(symmetric=True)])
def test_tensors_that_are_not_symmetric_are_refused_with_how_much(algorithm):
    order = 5 if isinstance(algorithm, Tensorization) else 4
    tensor = np.random.default_rng(0).standard_normal((3,) * order)
    with pytest.raises(lt.InvalidInputError, match=r"not symmetric: swapping .* changes it by"):
        algorithm(tensor, 2, np.random.default_rng(0))


def test_the_lifted_tensor():
    vectors, tensor = planted(5, 3, 3, 0)
    orthogonal = np.linalg.qr(vectors)[0]
    cube = lt.CPTensor(None, (orthogonal,) * 3).to_dense()
    expected = lt.CPTensor(None, (orthogonal,) * 4).to_dense()
    np.testing.assert_allclose(lt.lift(cube), expected, atol=1e-12)
    np.testing.assert_allclose(lt.lift(tensor), np.einsum("mij,mkl->ijkl", tensor, tensor))
    with pytest.raises(lt.InvalidInputError, match="order 3"):
        lt.lift(np.ones((3, 3)))
    with pytest.raises(lt.InvalidInputError, match="the lifted tensor"):
        lt.lift(np.ones((9, 9, 9)), max_size=100)


@pytest.mark.parametrize("seed", [1, 2])
def test_third_order_components_that_stick_are_freed(seed):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((60, 210))
    vectors /= np.linalg.norm(vectors, axis=0)
    tensor = lt.CPTensor(rng.uniform(0.5, 2.0, 210), (vectors,) * 3).to_dense()
    found = lt.decompose(tensor, 210, symmetric=True)
    assert found.residual < 1e-9
    cosines = np.abs(vectors.T @ np.asarray(found.factors[0])).max(axis=1)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-10)


def test_noise_is_not_taken_for_rounding_in_single_precision():
    _, tensor = planted(6, 8, 4, 0, noise=0.02)
    double, single = (
        lt.decompose(tensor.astype(kind), 8, symmetric=True, random_state=0)
        for kind in (np.float64, np.float32)
    )
    assert single.residual == pytest.approx(double.residual, rel=1e-4)
