import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linear_sum_assignment

from latensor.decomposition import JointDiagonalization
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.tensors import CPTensor, MomentTensor
from latensor.whitening.symmetrization import symmetrize_views, unsymmetrize

SHAPES = [((6, 5, 7), 4), ((4, 4, 4), 4), ((6, 5, 7, 4), 3), ((5, 6, 4), 1)]
SCALES = ["equal", "unit_l1", "unit_l2", "unknown", "known"]


def views(seed, shape, rank, scale):
    """Factors and all weights that obey a scale rule; the tensor and its moments."""
    rng = np.random.default_rng([seed, *shape, rank])
    factors = [rng.standard_normal((d, rank)) for d in shape]
    third = rng.uniform(0.5, 2.0, rank)
    second = [rng.uniform(0.5, 2.0, rank) for _ in shape]
    cross = [rng.uniform(0.5, 2.0, rank) * rng.choice([-1.0, 1.0], rank) for _ in shape[1:]]
    if scale == "equal":
        second, cross = [third] * len(shape), [third] * (len(shape) - 1)
    elif scale == "unit_l1":
        factors = [rng.uniform(0.0, 1.0, (d, rank)) ** 3 for d in shape]
        factors = [f / f.sum(axis=0) for f in factors]
    elif scale == "unit_l2":
        factors = [f / np.linalg.norm(f, axis=0) for f in factors]
    elif scale == "unknown":
        second[0], cross = np.ones(rank), [np.ones(rank)] * (len(shape) - 1)
    moments = [(f * m) @ f.T for f, m in zip(factors, second, strict=True)]
    cross_moments = [(factors[0] * m) @ f.T for f, m in zip(factors[1:], cross, strict=True)]
    known = (second[0], *cross)
    return CPTensor(third, tuple(factors)), moments, cross_moments, known


def components_of(symmetrized, first_factor, order):
    """The orthogonal components, from the factor that the first mode was planted with."""
    turned = np.asarray(symmetrized.whitenings[0].projection).T @ first_factor
    turned /= np.linalg.norm(turned, axis=0)
    letters = "abcd"[:order]
    pattern = ",".join([letters, *(f"{m}z" for m in letters)])
    weights = np.einsum(f"{pattern}->z", np.asarray(symmetrized.tensor), *[turned] * order)
    return CPTensor(weights, (turned,) * order)


@pytest.mark.parametrize(("shape", "rank"), SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_rule_gives_all_factors_back_over_twenty_seeds(shape, rank, scale):
    for seed in range(20):
        tensor, moments, cross_moments, known = views(seed, shape, rank, scale)
        given_tensor = tensor if seed % 2 else tensor.to_dense()
        symmetrized = symmetrize_views(given_tensor, rank, moments, cross_moments)
        assert symmetrized.asymmetry < 1e-6
        components = components_of(symmetrized, tensor.factors[0], len(shape))
        turned = components.factors[0]
        np.testing.assert_allclose(turned.T @ turned, np.eye(rank), atol=1e-7)
        found = unsymmetrize(symmetrized, components, known if scale == "known" else scale)
        size = np.abs(tensor.to_dense()).max()
        np.testing.assert_allclose(found.to_dense(), tensor.to_dense(), atol=1e-7 * size)
        np.testing.assert_allclose(np.abs(found.weights), tensor.weights, rtol=1e-6)
        for own, true in zip(found.factors, tensor.factors, strict=True):
            cost = -np.abs(own.T @ true) / np.linalg.norm(true, axis=0)
            rows, columns = linear_sum_assignment(cost)
            sign = np.sign((own[:, rows] * true[:, columns]).sum(axis=0))
            if scale in ("equal", "unit_l1") and len(shape) == 3:
                assert (sign > 0).all()
            np.testing.assert_allclose(own[:, rows] * sign, true[:, columns], atol=1e-6)


def test_samples_of_three_views_are_only_contracted(rng):
    factors = [rng.standard_normal((d, 3)) for d in (60, 50, 40)]
    weights = np.array([0.5, 0.3, 0.2])
    tensor = MomentTensor(tuple(f.T for f in factors), weights)
    moments = [(f * weights) @ f.T for f in factors]
    cross_moments = [scipy.sparse.csr_array((factors[0] * weights) @ f.T) for f in factors[1:]]
    symmetrized = symmetrize_views(tensor, 3, moments, cross_moments)
    components = components_of(symmetrized, factors[0], 3)
    found = unsymmetrize(symmetrized, components, "equal")
    np.testing.assert_allclose(found.weights, weights, rtol=1e-8)
    for own, true in zip(found.factors, factors, strict=True):
        np.testing.assert_allclose(own, true, atol=1e-8)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_result_is_of_the_callers_library_and_dtype(library, precision):
    dtype = "float32" if library.name == "jax" else precision  # each dtype is compiled anew
    tensor, moments, cross_moments, _ = views(0, (5, 4, 6), 3, "unit_l2")
    symmetrized = symmetrize_views(
        library.array(tensor.to_dense(), dtype),
        3,
        library.arrays(moments, dtype),
        library.arrays(cross_moments, dtype),
    )
    assert library.owns(symmetrized.tensor)
    assert str(symmetrized.tensor.dtype).endswith(dtype)
    projection = library.host(symmetrized.whitenings[0].projection)
    turned = projection.T @ tensor.factors[0]
    turned /= np.linalg.norm(turned, axis=0)
    weights = np.einsum("abc,az,bz,cz->z", library.host(symmetrized.tensor), turned, turned, turned)
    factor = library.array(turned, dtype)
    found = unsymmetrize(
        symmetrized, CPTensor(library.array(weights, dtype), (factor,) * 3), "unit_l2"
    )
    assert library.owns(found.weights)
    assert all(str(f.dtype).endswith(dtype) for f in found.factors)
    np.testing.assert_allclose(
        library.host(found.to_dense()),
        tensor.to_dense(),
        atol=1e-9 if dtype == "float64" else 1e-3,
    )


def test_noise_shows_as_asymmetry_and_the_result_is_symmetric_all_the_same(rng):
    tensor, moments, cross_moments, _ = views(1, (6, 5, 7), 3, "equal")
    noisy = tensor.to_dense() + 1e-3 * rng.standard_normal((6, 5, 7))
    symmetrized = symmetrize_views(noisy, 3, moments, cross_moments)
    assert 1e-6 < symmetrized.asymmetry < 0.5
    swapped = symmetrized.tensor.transpose(1, 0, 2)
    np.testing.assert_allclose(symmetrized.tensor, swapped, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"rank": 6}, "rank=6 exceeds the shortest dimension 5"),
        ({"rank": 0}, "rank=0"),
        ({"tensor": np.ones((3, 3))}, "order 3 or more"),
        ({"tensor": np.ones((6, 5, 7), dtype=complex)}, "complex"),
        ({"second_moments": [np.eye(6), np.eye(5)]}, "got 2 and 2"),
        ({"second_moments": [np.eye(6), np.eye(5), np.eye(6)]}, r"second_moments\[2\] has dim"),
        ({"second_moments": [np.eye(6), -np.eye(5), np.eye(7)]}, r"second_moments\[1\] has a neg"),
        ({"second_moments": [np.eye(6), np.ones((5, 4)), np.eye(7)]}, r"second_moments\[1\]"),
        ({"cross_moments": [np.ones((6, 5)), np.ones((7, 6))]}, r"cross_moments\[1\] .* \(6, 7\)"),
    ],
)
def test_bad_input_is_refused(change, match):
    tensor, moments, cross_moments, _ = views(0, (6, 5, 7), 3, "equal")
    arguments = {
        "tensor": tensor,
        "rank": 3,
        "second_moments": moments,
        "cross_moments": cross_moments,
    }
    with pytest.raises(InvalidInputError, match=match):
        symmetrize_views(**(arguments | change))


def test_components_and_scales_that_do_not_fit_are_refused():
    tensor, moments, cross_moments, _ = views(0, (6, 5, 7), 3, "equal")
    symmetrized = symmetrize_views(tensor, 3, moments, cross_moments)
    components = components_of(symmetrized, tensor.factors[0], 3)
    for bad, match in [
        ("l2", "scale='l2'"),
        ((1.0, 1.0), "sequence of 3 weights"),
        ((-1.0, 1.0, 1.0), "positive weights"),
    ]:
        with pytest.raises(InvalidInputError, match=match):
            unsymmetrize(symmetrized, components, bad)
    with pytest.raises(InvalidInputError, match="order 4"):
        unsymmetrize(symmetrized, CPTensor(None, components.factors[:1] * 4))
    zero = CPTensor(np.array([1.0, 0.0, 1.0]), components.factors)
    with pytest.raises(NotIdentifiableError, match="component 1"):
        unsymmetrize(symmetrized, zero, "equal")


@pytest.mark.parametrize("disturbed", ["tensor", "moments", "both"])
@pytest.mark.parametrize("scale", ["equal", "unit_l2"])
def test_the_error_is_proportional_to_the_noise(disturbed, scale):
    """Ten times the noise, ten times the error, through decomposition and inverse."""
    levels = np.array([1e-6, 1e-5, 1e-4])
    slopes = []
    for seed in range(5):
        tensor, moments, cross_moments, _ = views(seed, (8, 7, 9), 3, scale)
        rng = np.random.default_rng([seed, 77])
        dense = tensor.to_dense()
        noise = rng.standard_normal(dense.shape)
        own = [rng.standard_normal(m.shape) for m in moments]
        own = [0.5 * (n + n.T) for n in own]
        crossed = [rng.standard_normal(m.shape) for m in cross_moments]
        errors = []
        for level in levels:
            to_tensor = level if disturbed != "moments" else 0.0
            to_moments = level if disturbed != "tensor" else 0.0
            symmetrized = symmetrize_views(
                dense + to_tensor * noise,
                3,
                [m + to_moments * n for m, n in zip(moments, own, strict=True)],
                [m + to_moments * n for m, n in zip(cross_moments, crossed, strict=True)],
            )
            found = JointDiagonalization()(symmetrized.tensor, 3, np.random.default_rng(seed))
            back = unsymmetrize(symmetrized, found.tensor, scale)
            errors.append(np.linalg.norm(back.to_dense() - dense) / np.linalg.norm(dense))
        assert errors[-1] < 0.1
        slopes.append(np.polyfit(np.log(levels), np.log(errors), 1)[0])
    assert 0.9 < np.median(slopes) < 1.1
    assert max(slopes) < 1.5
    assert min(slopes) > 0.5
