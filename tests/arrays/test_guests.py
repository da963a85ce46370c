"""Arrays of libraries that are not known: read through NumPy, or shared through DLPack."""

import numpy as np
import pytest

import latensor as lt


class Guest:
    """An array of another library: it can only be exported."""

    def __init__(self, values):
        self._values = np.ascontiguousarray(values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype)

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


def guest(kind, values):
    if kind == "stand-in":
        return Guest(values)
    return pytest.importorskip("tensorflow").constant(values)


def planted(dtype):
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, 2)) for d in (6, 5, 4)]
    return lt.CPTensor(np.ones(2), factors).to_dense().astype(dtype)


@pytest.mark.parametrize("kind", ["stand-in", "tensorflow"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_has_an_array_is_read_in_its_precision(kind, dtype):
    values = planted(dtype)
    given, close = guest(kind, values), 100 * np.finfo(dtype).eps
    for found in (lt.decompose(given, 2), lt.tucker(given, (2, 2, 2))):
        assert found.tensor.factors[0].dtype == dtype
        assert isinstance(found.tensor.factors[0], np.ndarray)
        np.testing.assert_allclose(found.tensor.to_dense(), values, atol=close, rtol=close)
    assert isinstance(lt.unfold(given, 1), np.ndarray)
    np.testing.assert_array_equal(lt.unfold(given, 1), lt.unfold(values, 1))


@pytest.mark.parametrize("kind", ["stand-in", "tensorflow"])
def test_dlpack_shares_memory_with_torch(kind):
    torch = pytest.importorskip("torch")
    values = planted("float64")
    given = guest(kind, values)
    shared = torch.from_dlpack(given)
    assert shared.data_ptr() == torch.from_dlpack(given).data_ptr()
    found = lt.decompose(shared, 2).tensor
    assert isinstance(found.factors[0], torch.Tensor)
    torch.testing.assert_close(found.to_dense(), torch.tensor(values))


def test_factors_go_back_to_tensorflow():
    tensorflow = pytest.importorskip("tensorflow")
    found = lt.tucker(tensorflow.constant(planted("float32")), (2, 2, 2)).tensor
    back = [tensorflow.convert_to_tensor(f) for f in (found.core, *found.factors)]
    assert all(f.dtype == tensorflow.float32 for f in back)
    dense = tensorflow.einsum("abc,ia,jb,kc->ijk", *back)
    np.testing.assert_allclose(dense, found.to_dense(), atol=1e-5)
