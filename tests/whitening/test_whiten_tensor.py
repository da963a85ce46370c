import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.sparse.linalg import aslinearoperator

from latensor.exceptions import InvalidInputError, NotIdentifiableError, RankDeficientError
from latensor.tensors import CPTensor, MomentTensor, TuckerTensor, asymmetry
from latensor.whitening.definite_slice import definite_combination
from latensor.whitening.tensor import unwhiten, whiten_tensor

SHAPES = [(8, 5, 3), (7, 4, 4), (6, 3, 5), (40, 5, 3), (5, 1, 3)]
SCALES = ["equal", "unit_l1", "unit_l2", "unknown", "known"]


def model(seed, dimension, rank, order, scale="equal"):
    """Vectors and weights of both moments that obey a scale rule, and the two moments."""
    rng = np.random.default_rng([seed, dimension, rank, order])
    vectors = rng.standard_normal((dimension, rank))
    third, second = rng.uniform(0.5, 2.0, rank), rng.uniform(0.5, 2.0, rank)
    if scale == "equal":
        second = third
    elif scale == "unit_l1":
        vectors = rng.uniform(0.0, 1.0, (dimension, rank)) ** 3
        vectors /= vectors.sum(axis=0)
    elif scale == "unit_l2":
        vectors /= np.linalg.norm(vectors, axis=0)
    elif scale == "unknown":
        second = np.ones(rank)
    tensor = CPTensor(third, (vectors,) * order)
    return tensor, (vectors * second) @ vectors.T, vectors, third, second


def orthogonal_components(whitened, vectors, order):
    """The components of a whitened tensor, by projecting the vectors that it was planted with."""
    turned = np.asarray(whitened.whitening.projection).T @ vectors
    turned /= np.linalg.norm(turned, axis=0)
    operands = "abcde"[:order]
    pattern = ",".join([operands, *(f"{m}z" for m in operands)])
    weights = np.einsum(f"{pattern}->z", np.asarray(whitened.tensor), *[turned] * order)
    return CPTensor(weights, (turned,) * order)


def distance(found, vectors, order):
    """The largest distance of a true vector to its found partner; even orders leave the sign."""
    plain = ((found[:, :, None] - vectors[:, None, :]) ** 2).sum(axis=0)
    turned = ((found[:, :, None] + vectors[:, None, :]) ** 2).sum(axis=0)
    cost = plain if order % 2 else np.minimum(plain, turned)
    rows, columns = linear_sum_assignment(cost)
    return np.sqrt(cost[rows, columns].max())


@pytest.mark.parametrize(("dimension", "rank", "order"), SHAPES)
@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_rule_gives_the_components_back_over_twenty_seeds(
    dimension, rank, order, scale
):
    for seed in range(20):
        tensor, moment, vectors, third, second = model(seed, dimension, rank, order, scale)
        given_tensor = tensor if seed % 2 else tensor.to_dense()
        whitened = whiten_tensor(given_tensor, rank, moment)
        assert whitened.definite
        assert asymmetry(whitened.tensor) < 1e-14
        components = orthogonal_components(whitened, vectors, order)
        gram = components.factors[0].T @ components.factors[0]
        np.testing.assert_allclose(gram, np.eye(rank), atol=1e-8)
        np.testing.assert_allclose(components.to_dense(), whitened.tensor, atol=1e-8)
        found = unwhiten(whitened, components, second if scale == "known" else scale)
        np.testing.assert_allclose(found.tensor.to_dense(), tensor.to_dense(), atol=1e-8)
        np.testing.assert_allclose(found.second_weights, second, rtol=1e-8)
        np.testing.assert_allclose(found.tensor.weights, third, rtol=1e-8)
        assert distance(found.tensor.factors[0], vectors, order) < 1e-8


@pytest.mark.parametrize("order", [3, 4, 5])
@pytest.mark.parametrize("signs", ["positive", "mixed"])
def test_without_a_second_moment_a_definite_one_is_found_over_twenty_seeds(order, signs):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        vectors = rng.standard_normal((8, 5))
        weights = rng.uniform(0.5, 2.0, 5)
        if signs == "mixed":
            weights *= rng.choice([-1.0, 1.0], 5)
        tensor = CPTensor(weights, (vectors,) * order)
        whitened = whiten_tensor(tensor.to_dense(), 5, random_state=seed)
        assert whitened.definite
        components = orthogonal_components(whitened, vectors, order)
        gram = components.factors[0].T @ components.factors[0]
        np.testing.assert_allclose(gram, np.eye(5), atol=1e-8)
        found = unwhiten(whitened, components, "unit_l2").tensor
        scale = np.abs(tensor.to_dense()).max()
        np.testing.assert_allclose(found.to_dense(), tensor.to_dense(), atol=1e-9 * scale)


@pytest.mark.parametrize("size", [2, 5, 12])
def test_the_search_ends_at_a_well_conditioned_combination(size):
    for seed in range(20):
        rng = np.random.default_rng(seed)
        vectors = np.linalg.qr(rng.standard_normal((size, size)))[0] + 0.2 * rng.standard_normal(
            (size, size)
        )
        weights = rng.uniform(0.5, 2.0, size) * rng.choice([-1.0, 1.0], size)
        slices = np.einsum("aj,bj,cj,j->abc", vectors, vectors, vectors, weights)
        moment, definite = definite_combination(slices, 20, rng)
        assert definite
        assert np.linalg.eigvalsh(moment)[0] > 0
        # No worse than a small multiple of what equal weights would give.
        assert np.linalg.cond(moment) < 10 * np.linalg.cond(vectors) ** 2


def test_a_tensor_with_dependent_components_has_no_definite_slice_and_says_so():
    slices = np.zeros((2, 2, 1))
    slices[:, :, 0] = np.diag([1.0, -1.0])
    moment, definite = definite_combination(slices, 5, np.random.default_rng(0))
    assert not definite
    assert np.abs(np.linalg.eigvalsh(moment)).min() > 0
    assert not definite_combination(np.zeros((2, 2, 2)), 5, np.random.default_rng(0))[1]


@pytest.mark.parametrize("scale", ["equal", "unit_l2", "known"])
def test_an_indefinite_second_moment_is_whitened_by_magnitude_and_undone(scale):
    rng = np.random.default_rng(3)
    vectors = rng.standard_normal((6, 4))
    if scale == "unit_l2":
        vectors /= np.linalg.norm(vectors, axis=0)
    weights = np.array([1.0, -2.0, 1.5, -0.5])
    tensor = CPTensor(weights, (vectors,) * 3)
    whitened = whiten_tensor(tensor, 4, (vectors * weights) @ vectors.T)
    assert not whitened.definite
    components = orthogonal_components(whitened, vectors, 3)
    # The components are orthogonal in the indefinite inner product only.
    turned = components.factors[0]
    assert np.abs(turned.T @ turned - np.eye(4)).max() > 1e-3
    found = unwhiten(
        whitened, _decompose_exactly(components, whitened), weights if scale == "known" else scale
    )
    np.testing.assert_allclose(found.tensor.to_dense(), tensor.to_dense(), atol=1e-10)
    if scale != "unit_l2":
        np.testing.assert_allclose(found.second_weights, weights, rtol=1e-8)
        # Known weights of the second moment leave the signs free, as an even order does.
        assert distance(found.tensor.factors[0], vectors, 3 if scale == "equal" else 4) < 1e-8


def _decompose_exactly(components, whitened):
    """Weights for vectors that are not orthogonal, by least squares."""
    turned = components.factors[0]
    columns = np.einsum("az,bz,cz->abcz", turned, turned, turned).reshape(-1, turned.shape[1])
    weights = np.linalg.lstsq(columns, np.asarray(whitened.tensor).reshape(-1), rcond=None)[0]
    return CPTensor(weights, (turned,) * 3)


@pytest.mark.parametrize("kind", ["cp", "tucker", "moment", "sparse"])
@pytest.mark.parametrize("moment", [True, False])
def test_every_kind_of_tensor_gives_the_same_whitening(kind, moment, rng):
    vectors, weights = rng.standard_normal((50, 3)), np.array([3.0, 2.0, 1.0])
    if kind == "sparse":
        vectors = np.eye(50)[:, :3] + np.eye(50)[:, 1:4]
    cp = CPTensor(weights, (vectors,) * 3)
    dense = cp.to_dense()
    if kind == "tucker":
        tensor = TuckerTensor(
            np.einsum("az,bz,cz,z->abc", *[np.eye(3)] * 3, weights), (vectors,) * 3
        )
    elif kind == "moment":
        tensor = MomentTensor(vectors.T, weights)
    elif kind == "sparse":
        sparse = pytest.importorskip("latensor.tensors.sparse").SparseTensor
        places = np.argwhere(dense)
        tensor = sparse(places, dense[tuple(places.T)], dense.shape)
    else:
        tensor = cp
    second = (vectors * weights) @ vectors.T if moment else None
    whitened = whiten_tensor(tensor, 3, second)
    assert whitened.definite
    components = orthogonal_components(whitened, vectors, 3)
    found = unwhiten(whitened, components, "equal" if moment else "unit_l2").tensor
    np.testing.assert_allclose(found.to_dense(), dense, atol=1e-8 * np.abs(dense).max())


@pytest.mark.parametrize("kind", ["sparse", "operator"])
def test_the_second_moment_may_be_sparse_or_an_operator(kind):
    tensor, moment, vectors, _, _ = model(0, 8, 4, 3)
    given_moment = scipy.sparse.csr_array(moment) if kind == "sparse" else aslinearoperator(moment)
    whitened = whiten_tensor(tensor, 4, given_moment)
    components = orthogonal_components(whitened, vectors, 3)
    found = unwhiten(whitened, components).tensor
    np.testing.assert_allclose(found.to_dense(), tensor.to_dense(), atol=1e-8)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("moment", [True, False])
def test_the_result_is_of_the_callers_library_and_dtype(library, precision, moment):
    dtype = "float32" if library.name == "jax" else precision  # each dtype is compiled anew
    tensor, second, vectors, _, _ = model(0, 6, 3, 3)
    dense = library.array(tensor.to_dense(), dtype)
    whitened = whiten_tensor(dense, 3, library.array(second, dtype) if moment else None)
    for array in (whitened.tensor, whitened.whitening.projection, whitened.whitening.lift):
        assert library.owns(array)
        assert str(array.dtype).endswith(dtype)
    turned = library.host(whitened.whitening.projection).T @ vectors
    turned /= np.linalg.norm(turned, axis=0)
    weights = np.einsum("abc,az,bz,cz->z", library.host(whitened.tensor), turned, turned, turned)
    components = CPTensor(library.array(weights, dtype), (library.array(turned, dtype),) * 3)
    found = unwhiten(whitened, components, "unit_l2")
    assert library.owns(found.tensor.weights)
    assert str(found.second_weights.dtype).endswith(dtype)
    np.testing.assert_allclose(
        library.host(found.tensor.to_dense()),
        tensor.to_dense(),
        atol=1e-9 if dtype == "float64" else 1e-3,
    )


def test_the_error_is_proportional_to_the_noise():
    tensor, moment, vectors, _, _ = model(1, 8, 4, 3, "unit_l2")
    rng = np.random.default_rng(0)
    errors, levels = [], [1e-4, 1e-3, 1e-2]
    noise = rng.standard_normal(moment.shape)
    for level in levels:
        noisy = moment + level * np.abs(moment).max() * (noise + noise.T) / 2
        whitened = whiten_tensor(tensor, 4, noisy)
        turned = np.asarray(whitened.whitening.projection).T @ vectors
        gram = turned.T @ turned
        scale = np.sqrt(gram.diagonal())
        errors.append(np.abs(gram / np.outer(scale, scale) - np.eye(4)).max())
    slope = np.polyfit(np.log(levels), np.log(errors), 1)[0]
    assert slope == pytest.approx(1.0, abs=0.25)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 5))
def test_lift_undoes_projection_on_the_span(seed, rank):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((7, rank))
    tensor = CPTensor(rng.uniform(0.5, 1.0, rank), (vectors,) * 3)
    whitening = whiten_tensor(tensor, rank, random_state=seed).whitening
    back = whitening.lift @ (whitening.projection.T @ vectors)
    np.testing.assert_allclose(back, vectors, atol=1e-7)


def test_the_same_seed_gives_the_same_bits_and_the_input_stays():
    tensor = model(2, 9, 3, 3)[0].to_dense()
    kept = tensor.copy()
    tensor.flags.writeable = False
    first, second = (whiten_tensor(tensor, 3, random_state=5) for _ in range(2))
    assert np.array_equal(first.tensor, second.tensor)
    assert np.array_equal(tensor, kept)


def nan_tensor():
    tensor = np.ones((4, 4, 4))
    tensor[3, 1, 2] = np.nan
    return tensor


@pytest.mark.parametrize(
    ("tensor", "rank", "moment", "match"),
    [
        (np.ones((4, 4)), 2, None, "order 2"),
        (np.ones((4, 4, 3)), 2, None, "modes differ in dimension; use symmetrize_views"),
        (np.ones((4, 4, 4)), 5, None, "rank=5 exceeds the 4"),
        (np.ones((4, 4, 4)), 0, None, "rank=0"),
        (np.ones((4, 4, 4)), 2, np.eye(3), "second_moment has dimension 3"),
        (np.arange(64.0).reshape(4, 4, 4), 2, np.eye(4), r"not symmetric: .* changes it by"),
        (np.ones((4, 4, 4), dtype=complex), 2, np.eye(4), "complex"),
        (nan_tensor(), 2, np.eye(4), r"first at \(3, 1, 2\)"),
        (nan_tensor(), 2, None, r"first at \(3, 1, 2\)"),
    ],
)
def test_bad_input_is_refused(tensor, rank, moment, match):
    with pytest.raises(InvalidInputError, match=match):
        whiten_tensor(tensor, rank, moment)


@pytest.mark.parametrize(
    ("tensor", "match"),
    [(np.ones((4, 4, 4)), "exceeds the 1 directions"), (np.zeros((4, 4, 4)), "tensor is zero")],
)
def test_too_few_directions_are_refused_with_their_number(tensor, match):
    with pytest.raises(RankDeficientError, match=match):
        whiten_tensor(tensor, 2)


def test_components_and_scales_that_do_not_fit_are_refused():
    tensor, moment, vectors, _, _ = model(0, 6, 3, 3)
    whitened = whiten_tensor(tensor, 3, moment)
    components = orthogonal_components(whitened, vectors, 3)
    for bad, match in [("l2", "scale='l2'"), (np.ones(2), r"shape \(3,\)")]:
        with pytest.raises(InvalidInputError, match=match):
            unwhiten(whitened, components, bad)
    with pytest.raises(NotIdentifiableError, match="component 1 the weight -1"):
        unwhiten(whitened, components, np.array([1.0, -1.0, 1.0]))
    with pytest.raises(InvalidInputError, match="dimension 6, but 3"):
        unwhiten(whitened, tensor)
    with pytest.raises(InvalidInputError, match="not ndarray"):
        unwhiten(whitened, vectors)
    zero = CPTensor(np.array([1.0, 0.0, 1.0]), components.factors)
    with pytest.raises(NotIdentifiableError, match="component 1 has weight 0"):
        unwhiten(whitened, zero, "equal")
    negative = CPTensor(np.array([1.0, -1.0, 1.0]), components.factors[:1] * 4)
    with pytest.raises(NotIdentifiableError, match="component 1 has weight -1"):
        unwhiten(whitened, negative, "equal")
