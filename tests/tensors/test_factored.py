"""CP, Tucker and implicit moment tensors against the dense tensor that each stands for."""

import pickle

import numpy as np
import pytest
import scipy.sparse

import definitions
import latensor as lt
from definitions import draw, tolerance

SHAPES = [(4,), (4, 3), (3, 4, 2), (2, 3, 1, 3), (2, 1, 3, 2, 2), (2, 2, 1, 2, 2, 3)]
ORDERS = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"order{len(shape)}")


def build(kind, rng, shape, dtype="float64"):
    """A factored tensor of NumPy arrays, and the dense tensor by its definition."""
    if kind == "cp":
        weights, factors = draw(rng, 3, dtype), [draw(rng, (d, 3), dtype) for d in shape]
        return lt.CPTensor(weights, tuple(factors)), definitions.cp(weights, factors)
    if kind == "tucker":
        ranks = [max(1, d - 1) for d in shape]
        core = draw(rng, ranks, dtype)
        factors = [draw(rng, (d, r), dtype) for d, r in zip(shape, ranks, strict=True)]
        return lt.TuckerTensor(core, tuple(factors)), definitions.tucker(core, factors)
    views = tuple(draw(rng, (6, d), dtype) for d in shape)
    weights = draw(rng, 6, dtype)
    return lt.MomentTensor(views, weights), definitions.moment(views, weights)


def moved(tensor, library):
    """The same tensor with its arrays in another library."""
    if isinstance(tensor, lt.CPTensor):
        return lt.CPTensor(library.array(tensor.weights), tuple(library.arrays(tensor.factors)))
    if isinstance(tensor, lt.TuckerTensor):
        return lt.TuckerTensor(library.array(tensor.core), tuple(library.arrays(tensor.factors)))
    return lt.MomentTensor(tuple(library.arrays(tensor._views)), library.array(tensor.reference))


@ORDERS
@pytest.mark.parametrize("kind", ["cp", "tucker", "moment"])
def test_all_contractions_equal_those_of_the_dense_tensor(library, rng, kind, shape):
    for dtype in ("float64", "complex64") if library.name != "jax" else ("float64",):
        tensor, dense = build(kind, rng, shape, dtype)
        given = moved(tensor, library)
        assert given.shape == dense.shape
        scale = max(1.0, float(np.linalg.norm(dense)))
        bound = tolerance(dtype, 512) * scale
        result = library.host(given.to_dense())
        assert result.dtype == dtype
        np.testing.assert_allclose(result, dense, atol=bound)
        norm = library.host(given.norm())
        assert float(norm) == pytest.approx(np.linalg.norm(dense), abs=10 * bound)
        kinds = [lambda d: draw(rng, (d, 2), dtype), lambda d: draw(rng, d, dtype), lambda d: None]  # noqa: B023
        for turn in range(3):
            operands = [kinds[(m + turn) % 3](d) for m, d in enumerate(shape)]
            result = given.contract(*(None if o is None else library.array(o) for o in operands))
            expected = lt.multilinear(dense, *operands)
            np.testing.assert_allclose(library.host(result), expected, atol=20 * bound)
        factors = [draw(rng, (d, 2), dtype) for d in shape]
        for mode in range(len(shape)):
            result = library.host(given.mttkrp(library.arrays(factors), mode))
            expected = definitions.mttkrp(dense, factors, mode)
            np.testing.assert_allclose(result, expected, atol=20 * bound)
            swept = given.sweep(library.arrays(factors)).mttkrp(mode)
            np.testing.assert_allclose(library.host(swept), result, atol=bound)


@pytest.mark.parametrize("left", ["cp", "tucker", "moment", "dense", "sparse"])
@pytest.mark.parametrize("right", ["cp", "tucker", "moment", "dense", "sparse"])
def test_inner_products_of_all_pairs(rng, left, right):
    def one(kind, dtype):
        if kind == "dense":
            array = draw(rng, (3, 4, 2), dtype)
            return array, array
        if kind == "sparse":
            array = draw(rng, (3, 4, 2)) * (rng.random((3, 4, 2)) < 0.5)
            return lt.SparseTensor.from_dense(array), array
        return build(kind, rng, (3, 4, 2), dtype)

    for dtype in ["float64"] + ["complex128"] * ("sparse" not in (left, right)):
        (a, dense_a), (b, dense_b) = one(left, dtype), one(right, dtype)
        assert complex(lt.inner(a, b)) == pytest.approx(
            complex(np.vdot(dense_a, dense_b)), abs=1e-11
        )


def test_long_sums_run_in_blocks(rng, monkeypatch):
    from latensor.tensors import factored

    samples, weights = draw(rng, (50, 4)), rng.random(50)
    whole = lt.MomentTensor(samples, weights)
    operand, factors = draw(rng, (4, 2)), [draw(rng, (4, 3))] * 3
    monkeypatch.setattr(factored, "BLOCK_ENTRIES", 40)
    blocks = lt.MomentTensor(samples, weights)
    for operands in ([operand] * 3, [None, operand, None], [None] * 3, [draw(rng, 4)] * 3):
        expected = lt.multilinear(definitions.moment([samples] * 3, weights), *operands)
        np.testing.assert_allclose(blocks.contract(*operands), expected, atol=1e-11)
    np.testing.assert_allclose(blocks.mttkrp(factors, 1), whole.mttkrp(factors, 1), atol=1e-11)
    assert float(blocks.norm()) == pytest.approx(float(whole.norm()), rel=1e-12)
    assert float(super(lt.MomentTensor, blocks).norm()) == pytest.approx(float(whole.norm()))


@pytest.mark.parametrize("form", ["csr_matrix", "csc_array", "coo_array", "lil_matrix"])
def test_moments_of_sparse_samples(rng, form):
    dense = draw(rng, (9, 5)) * (rng.random((9, 5)) < 0.4)
    other = draw(rng, (9, 3))
    sparse = getattr(scipy.sparse, form)(dense)
    before = sparse.toarray().copy()
    for order in (1, 2, 3, 4):
        expected = definitions.moment([dense] * order, np.full(9, 1 / 9))
        moment = lt.MomentTensor(sparse, order=order)
        np.testing.assert_allclose(moment.to_dense(), expected, atol=1e-12)
        assert float(moment.norm()) == pytest.approx(np.linalg.norm(expected))
        factors = [draw(rng, (5, 2))] * order
        np.testing.assert_allclose(
            moment.mttkrp(factors, 0), definitions.mttkrp(expected, factors, 0), atol=1e-11
        )
    mixed = lt.MomentTensor((sparse, other, sparse))
    expected = definitions.moment([dense, other, dense], np.full(9, 1 / 9))
    np.testing.assert_allclose(mixed.to_dense(), expected, atol=1e-12)
    np.testing.assert_array_equal(sparse.toarray(), before)
    assert lt.MomentTensor(sparse.astype("float32")).to_dense().dtype == np.float32


def test_a_moment_tensor_never_forms_what_it_stands_for(rng):
    d = 20_000  # d^3 would be 64 terabytes
    samples = scipy.sparse.random_array((100, d), density=0.001, rng=rng, format="csr")
    moment = lt.MomentTensor(samples)
    vector = draw(rng, d)
    expected = samples.T @ ((samples @ vector) ** 2) / 100
    np.testing.assert_allclose(moment.contract(None, vector, vector), expected, atol=1e-10)
    gram = (samples @ samples.T).toarray()
    assert float(moment.norm()) == pytest.approx(np.sqrt((gram**3).sum()) / 100)
    bounds = lt.spectral_norm(moment)
    assert bounds.lower <= bounds.upper


def test_data_frames_are_samples(rng):
    pandas = pytest.importorskip("pandas")
    samples = draw(rng, (5, 3))
    frame = pandas.DataFrame(samples, columns=list("abc"))
    np.testing.assert_allclose(
        lt.MomentTensor(frame).to_dense(), lt.MomentTensor(samples).to_dense()
    )


def test_cp_unpacks_and_normalizes(library, rng):
    tensor, dense = build("cp", rng, (3, 4, 2))
    given = moved(tensor, library)
    weights, factors = given
    assert weights is given.weights
    assert factors is given.factors
    assert len(given) == 2
    assert given[1] is factors
    unit = given.normalized()
    for factor in unit.factors:
        np.testing.assert_allclose(np.linalg.norm(library.host(factor), axis=0), 1, atol=1e-14)
    np.testing.assert_allclose(library.host(unit.to_dense()), dense, atol=1e-13)
    ordered = given.sorted()
    assert (np.diff(np.abs(library.host(ordered.weights))) <= 0).all()
    np.testing.assert_allclose(library.host(ordered.to_dense()), dense, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_canonical_form_is_one_for_all_scalings_and_orders(library, rng, dtype):
    tensor, dense = build("cp", rng, (3, 4, 2), dtype)
    base = moved(tensor, library).canonical()
    scales = [draw(rng, 3, dtype) for _ in range(3)]
    shuffle = np.array([2, 0, 1])
    other = lt.CPTensor(
        library.array((tensor.weights / np.prod(scales, axis=0))[shuffle]),
        tuple(
            library.array((f * s)[:, shuffle]) for f, s in zip(tensor.factors, scales, strict=True)
        ),
    ).canonical()
    np.testing.assert_allclose(library.host(base.to_dense()), dense, atol=1e-12)
    np.testing.assert_allclose(library.host(base.weights), library.host(other.weights), atol=1e-12)
    for one, two in zip(base.factors, other.factors, strict=True):
        np.testing.assert_allclose(library.host(one), library.host(two), atol=1e-12)
        largest = np.take_along_axis(
            library.host(one), np.abs(library.host(one)).argmax(axis=0)[None], axis=0
        )
        assert (largest.real > 0).all()


def test_symmetric_cp_keeps_sharing_one_factor(library, rng):
    factor = library.array(draw(rng, (4, 3)))
    tensor = lt.CPTensor(library.array([1.0, -2.0, 3.0]), (factor,) * 3)
    assert tensor.is_symmetric
    for same in (tensor.normalized(), tensor.sorted(), tensor.canonical()):
        assert same.is_symmetric
        np.testing.assert_allclose(
            library.host(same.to_dense()), library.host(tensor.to_dense()), atol=1e-13
        )


def test_equal_weights_are_ordered_by_first_large_entry():
    factor = np.eye(4)[:, [2, 0, 3, 1]]
    tensor = lt.CPTensor(np.ones(4) * (1 + 1e-15 * np.arange(4)), (factor, factor)).sorted()
    np.testing.assert_array_equal(tensor.factors[0], np.eye(4))


def test_zero_components_stay_zero(library):
    factors = library.arrays([np.zeros((3, 2)), np.ones((2, 2))])
    unit = lt.CPTensor(None, tuple(factors)).canonical()
    np.testing.assert_array_equal(library.host(unit.weights), [0, 0])
    assert np.isfinite(library.host(unit.to_dense())).all()


def test_partial_tucker_keeps_a_mode_whole(library, rng):
    core, factor = draw(rng, (2, 3, 4)), draw(rng, (5, 2))
    tensor = lt.TuckerTensor(library.array(core), (library.array(factor), None, None))
    dense = lt.mode_product(core, factor, 0)
    assert tensor.shape == (5, 3, 4)
    assert tensor.ranks == (2, 3, 4)
    np.testing.assert_allclose(library.host(tensor.to_dense()), dense, atol=1e-13)
    assert float(tensor.norm()) == pytest.approx(np.linalg.norm(dense))
    factors = [draw(rng, (d, 2)) for d in dense.shape]
    np.testing.assert_allclose(
        library.host(tensor.mttkrp(library.arrays(factors), 1)),
        definitions.mttkrp(dense, factors, 1),
        atol=1e-12,
    )


@pytest.mark.parametrize("kind", ["cp", "tucker", "moment"])
def test_tensors_survive_pickling_and_say_what_they_are(rng, kind):
    tensor, dense = build(kind, rng, (3, 4, 2))
    again = pickle.loads(pickle.dumps(tensor))
    np.testing.assert_array_equal(again.to_dense(), tensor.to_dense())
    assert "3 x 4 x 2" in repr(tensor)
    np.testing.assert_allclose(again.to_dense(), dense, atol=1e-12)
