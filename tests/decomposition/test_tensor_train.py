"""`tensor_train`: the error asked for is kept, at every scale, on every kind of tensor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latensor as lt
from definitions import draw, tolerance
from latensor import InvalidInputError


def planted(rng, shape, ranks, noise=0.0, dtype="float64"):
    bounds = (1, *ranks, 1)
    cores = tuple(draw(rng, (bounds[m], d, bounds[m + 1]), dtype) for m, d in enumerate(shape))
    signal = lt.TensorTrain(cores).to_dense()
    disturbance = draw(rng, shape, dtype)
    ratio = noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
    return np.asarray(signal + ratio * disturbance, dtype=dtype)


def relative_error(tensor, train):
    return np.linalg.norm(np.asarray(train.to_dense()) - tensor) / np.linalg.norm(tensor)


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    exponent=st.floats(-11, -0.01),
    spectrum=st.sampled_from(["flat", "decaying", "low rank"]),
    seed=st.integers(0, 2**16),
)
def test_the_error_is_never_above_the_one_asked_for(shape, exponent, spectrum, seed):
    rng = np.random.default_rng(seed)
    tensor = rng.standard_normal(shape)
    if spectrum == "decaying":
        for mode, d in enumerate(shape):
            decay = 10.0 ** -np.arange(d).astype(float)
            tensor = tensor * decay.reshape([-1 if m == mode else 1 for m in range(len(shape))])
    elif spectrum == "low rank":
        tensor = planted(rng, shape, (2,) * (len(shape) - 1))
    error = float(10.0**exponent)
    train = lt.tensor_train(tensor, error=error)
    assert train.shape == tuple(shape)
    assert relative_error(tensor, train) <= error
    assert train.residual == pytest.approx(relative_error(tensor, train), abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_exact_ranks_are_found(seed):
    rng = np.random.default_rng(seed)
    tensor = planted(rng, (6, 5, 7, 4), (3, 4, 2))
    for train in (lt.tensor_train(tensor, error=1e-10), lt.tensor_train(tensor, (3, 4, 2))):
        assert train.ranks == (3, 4, 2)
        assert relative_error(tensor, train) < 1e-13
    assert lt.tensor_train(tensor, [1, 3, 4, 2, 1]).ranks == (3, 4, 2)
    assert lt.tensor_train(tensor, 100).ranks == (6, 28, 4)
    both = lt.tensor_train(tensor, (2, 9, 9), error=1e-10)
    assert both.ranks[0] == 2


def test_matrices_and_vectors(rng):
    matrix = rng.standard_normal((9, 7))
    values = np.linalg.svd(matrix, compute_uv=False)
    best = np.sqrt((values[3:] ** 2).sum() / (values**2).sum())
    assert lt.tensor_train(matrix, 3).residual == pytest.approx(best, rel=1e-12)
    assert lt.tensor_train(matrix[0], error=0.5).residual == 0.0


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_random_directions_find_what_an_svd_finds(noise, rng):
    # 700 x 720 at the first cut: above the size up to which the Gram matrix is decomposed.
    tensor = planted(rng, (700, 24, 30), (4, 5), noise)
    train = lt.tensor_train(tensor, (4, 5), random_state=1)
    assert train.residual <= noise + 1e-12
    assert lt.tensor_train(tensor, error=max(2 * noise, 1e-9)).ranks[0] <= 4
    again = lt.tensor_train(tensor, (4, 5), random_state=1)
    np.testing.assert_array_equal(train.cores[0], again.cores[0])


def test_not_worse_than_tensorly(rng):
    tensorly = pytest.importorskip("tensorly")
    from tensorly.decomposition import tensor_train

    for tensor in (rng.standard_normal((8, 7, 6, 5)), planted(rng, (9, 8, 7, 6), (3, 3, 3), 0.3)):
        theirs = tensorly.tt_to_tensor(tensor_train(tensor, [1, 3, 4, 3, 1]))
        ours = lt.tensor_train(tensor, (3, 4, 3)).residual
        assert ours <= np.linalg.norm(theirs - tensor) / np.linalg.norm(tensor) + 1e-10


def test_every_library_and_dtype(library, dtype, rng):
    tensor = planted(rng, (5, 6, 4), (2, 3), 0.05, dtype)
    bound = tolerance(dtype, tensor.size)
    train = lt.tensor_train(library.array(tensor), error=0.2)
    dense = library.host(train.to_dense())
    assert dense.dtype == tensor.dtype
    left = np.linalg.norm(dense - tensor) / np.linalg.norm(tensor)
    assert left <= 0.2
    assert train.residual == pytest.approx(left, abs=bound)
    for core in train.cores[:-1]:
        matrix = library.host(core).reshape(-1, core.shape[2])
        np.testing.assert_allclose(matrix.conj().T @ matrix, np.eye(core.shape[2]), atol=bound)


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e160, 1e300])
def test_scale_equivariance(scale, rng):
    tensor = planted(rng, (5, 6, 4), (2, 2), 0.1)
    tensor /= np.abs(tensor).max()
    base, scaled = (lt.tensor_train(t, error=0.3) for t in (tensor, tensor * scale))
    assert scaled.ranks == base.ranks
    assert scaled.residual == pytest.approx(base.residual, rel=1e-10)
    np.testing.assert_allclose(scaled.to_dense() / scale, base.to_dense(), atol=1e-12)


def test_factored_and_sparse_tensors_are_not_formed_or_refused(rng):
    cp = lt.CPTensor(rng.random(3), [rng.standard_normal((d, 3)) for d in (50, 60, 70, 80, 90)])
    train = lt.tensor_train(cp, error=1e-10)
    assert train.ranks == (3, 3, 3, 3)
    assert float(lt.inner(train, cp)) == pytest.approx(float(cp.norm()) ** 2, rel=1e-9)
    core = planted(rng, (4, 4, 4), (2, 2), 0.2)
    form = lt.TuckerTensor(core, tuple(rng.standard_normal((d, 4)) for d in (30, 20, 10)))
    for error in (1e-10, 0.1):
        train = lt.tensor_train(form, error=error)
        assert relative_error(form.to_dense(), train) <= error
    dense = np.where(rng.random((6, 7, 8)) < 0.1, 1.0, 0.0)
    sparse = lt.SparseTensor(np.argwhere(dense), dense[dense != 0], dense.shape)
    assert relative_error(dense, lt.tensor_train(sparse, error=0.2)) <= 0.2
    rounded = lt.tensor_train(train, error=0.5)
    assert isinstance(rounded, lt.TensorTrain)
    moment = lt.MomentTensor(rng.standard_normal((9, 4)))
    assert relative_error(moment.to_dense(), lt.tensor_train(moment, error=0.1)) <= 0.1
    large = lt.SparseTensor(np.zeros((1, 3), int), np.ones(1), (10**4,) * 3)
    with pytest.raises(InvalidInputError, match="above max_size"):
        lt.tensor_train(large, error=0.1)


def test_zero_and_refusals():
    train = lt.tensor_train(np.zeros((2, 3, 4)), error=0.1)
    assert (train.ranks, train.residual) == ((1, 1), 0.0)
    assert not train.to_dense().any()
    x = np.ones((2, 3, 4))
    for arguments, message in [
        ({}, "give ranks, an int or one per cut, or error"),
        ({"error": 0.0}, r"error=0.0 must be a number in \(0, 1\)"),
        ({"ranks": (2,)}, "has 1 entries for a tensor of order 3: give 2"),
        ({"ranks": 1.5}, "must be an integer, or one per cut"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            lt.tensor_train(x, **arguments)
    with pytest.raises(InvalidInputError, match="tensor holds 1 NaN"):
        lt.tensor_train(np.where(np.arange(24).reshape(2, 3, 4) == 5, np.nan, 1.0), 2)
