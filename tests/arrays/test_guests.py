"""Arrays of libraries that computations do not run on come back as what they were."""

import copy
import pickle
import sys
import types

import numpy as np
import pytest

import latensor as lt
from latensor.arrays import guests


class Guest:
    """An array of another library: it can be exported, and made of NumPy's."""

    def __init__(self, values, device="here"):
        self._values = np.ascontiguousarray(values)
        self.device, self.dtype, self.shape = device, self._values.dtype, self._values.shape

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values, dtype=dtype)

    def __dlpack__(self, **options):
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._values.__dlpack_device__()


@pytest.fixture(params=["stand-in", "tensorflow"])
def guest(request, monkeypatch):
    """How to make a guest, and its type."""
    if request.param == "tensorflow":
        tensorflow = pytest.importorskip("tensorflow")
        return tensorflow.constant, tensorflow.Tensor
    monkeypatch.setitem(sys.modules, "guest_library", types.ModuleType("guest_library"))
    own = guests.GuestLibrary(
        lambda module, value: isinstance(value, Guest),
        lambda module, values, device: Guest(values, device),
    )
    monkeypatch.setitem(guests.LIBRARIES, "guest_library", own)
    return Guest, Guest


def planted(dtype="float64"):
    rng = np.random.default_rng(0)
    factors = [rng.standard_normal((d, 2)) for d in (6, 5, 4)]
    return lt.CPTensor(np.ones(2), factors).to_dense().astype(dtype)


def host(value):
    return np.asarray(value)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_decompositions_carry_arrays_of_the_callers_kind(guest, dtype):
    make, kind = guest
    values, close = planted(dtype), 100 * np.finfo(dtype).eps
    given = make(values)
    for found in (lt.decompose(given, 2), lt.tucker(given, (2, 2, 2)), lt.complete(given, 2)):
        first, factors = found.tensor
        assert all(isinstance(f, kind) for f in (first, *factors, *found.tensor.factors))
        assert host(factors[0]).dtype == dtype
        dense = found.tensor.to_dense()
        assert isinstance(dense, kind)
        np.testing.assert_allclose(host(dense), values, atol=close, rtol=close)
        assert isinstance(found.history, np.ndarray)  # as it is for PyTorch
        assert isinstance(found.residual, float)
        assert found.tensor.shape == values.shape
        assert found.status.name == "CONVERGED"
    assert isinstance(lt.decompose(given, 2), lt.Decomposition)
    assert isinstance(lt.decompose(given, 2).tensor.canonical(), lt.CPTensor)


def test_other_forms_come_back_too(guest):
    make, kind = guest
    values = planted()
    given = make(values)
    train = lt.tensor_train(given, ranks=(2, 2))
    assert all(isinstance(core, kind) for core in train.cores)
    np.testing.assert_allclose(host(train.to_dense()), values, atol=1e-10)
    slices = [make(s) for s in values]
    fitted = lt.parafac2(slices, 2).tensor
    assert isinstance(fitted.weights, kind)
    assert all(isinstance(s, kind) for s in fitted.slices())
    robust = lt.robust_pca(given, rank=(2, 2, 2))
    assert isinstance(robust.low_rank.core, kind)
    left, sizes, right = lt.truncated_svd(make(values[0]), 2)
    assert all(isinstance(v, kind) for v in (left, sizes, right))
    assert isinstance(lt.whiten(make(np.eye(3)), 2).projection, kind)


FUNCTIONS = {
    "unfold": lambda T, a: lt.unfold(T, 1),
    "fold": lambda T, a: lt.fold(lt.unfold(T, 1), 1, (6, 5, 4)),
    "mode_product": lambda T, a: lt.mode_product(T, a(np.ones((3, 5))), 1),
    "multilinear": lambda T, a: lt.multilinear(T, a(np.ones((6, 2))), None, a(np.ones(4))),
    "mttkrp": lambda T, a: lt.mttkrp(T, [a(np.ones((d, 2))) for d in (6, 5, 4)], 0),
    "khatri_rao": lambda T, a: lt.khatri_rao(a(np.eye(3)), a(np.ones((2, 3)))),
    "kronecker": lambda T, a: lt.kronecker(a(np.eye(3)), a(np.ones((2, 3)))),
    "hadamard": lambda T, a: lt.hadamard(T, T),
    "outer": lambda T, a: lt.outer(a(np.ones(2)), a(np.ones(3))),
    "symmetrize": lambda T, a: lt.symmetrize(a(np.arange(9.0).reshape(3, 3))),
    "frontal_slices": lambda T, a: lt.frontal_slices(T)[2],
    "fiber": lambda T, a: lt.fiber(T, 0, (1, 2)),
    "pseudo_inverse": lambda T, a: lt.pseudo_inverse(lt.unfold(T, 0)),
    "low_rank_approximation": lambda T, a: lt.low_rank_approximation(lt.unfold(T, 0), 1),
    "to_dense": lambda T, a: lt.CPTensor(None, [a(np.ones((3, 2)))] * 3).to_dense(),
    "tucker": lambda T, a: lt.TuckerTensor(T, (None, a(np.ones((7, 5))), None)).to_dense(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_algebra_gives_the_callers_kind_back(guest, name):
    make, kind = guest
    found = FUNCTIONS[name](make(planted()), make)
    expected = FUNCTIONS[name](planted(), np.asarray)
    assert isinstance(found, kind)
    np.testing.assert_array_equal(host(found), expected)


def test_numbers_and_names_stay(guest):
    make, _ = guest
    values = planted()
    found = lt.decompose(make(values), 2)
    plain = lt.decompose(values, 2)
    assert lt.inner(make(values), make(values)) == pytest.approx((values**2).sum())
    assert lt.frobenius_norm(found.tensor) == pytest.approx(lt.frobenius_norm(plain.tensor))
    assert found.tensor.norm() == plain.tensor.norm()
    assert lt.match(found, plain).score == pytest.approx(1)
    assert repr(found).startswith(repr(plain))
    assert str(found.summary()) == str(plain.summary())
    assert lt.certify(found, make(values)).verdict == lt.certify(plain, values).verdict
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = found.no_such_name


def test_results_are_copied_and_stored(guest, tmp_path):
    make, kind = guest
    found = lt.decompose(make(planted()), 2)
    for again in (copy.deepcopy(found), copy.copy(found), pickle.loads(pickle.dumps(found))):
        assert isinstance(again.tensor.factors[0], kind)
    found.save(tmp_path / "found.lt")
    assert isinstance(lt.load(tmp_path / "found.lt").tensor.factors[0], np.ndarray)


def test_results_go_to_the_device_of_the_first_guest(monkeypatch, guest):
    make, kind = guest
    if kind is not Guest:
        device = lt.unfold(make(planted()), 0).device
        assert device == make(planted()).device
        return
    assert lt.unfold(Guest(planted(), "there"), 0).device == "there"


def test_bad_guests_are_refused(guest):
    make, _ = guest
    with pytest.raises(lt.InvalidInputError, match="rank"):
        lt.decompose(make(planted()), 0)
    with pytest.raises(lt.InvalidInputError, match="NaN"):
        lt.mode_product(make(np.full((2, 2), np.nan)), make(np.ones((2, 2))), 0)
    with pytest.raises(lt.InvalidInputError, match="not numbers"):
        lt.unfold(make(np.array([["a", "b"]])), 0)


def test_symbolic_tensors_are_refused():
    tensorflow = pytest.importorskip("tensorflow")
    traced = tensorflow.function(lambda x: lt.unfold(x, 0), autograph=False)
    with pytest.raises(lt.InvalidInputError, match="tensorflow"):
        traced(tensorflow.constant(planted()))


def test_variables_are_read():
    tensorflow = pytest.importorskip("tensorflow")
    found = lt.tucker(tensorflow.Variable(planted("float32")), (2, 2, 2)).tensor
    assert found.core.dtype == tensorflow.float32
    dense = tensorflow.einsum("abc,ia,jb,kc->ijk", found.core, *found.factors)
    np.testing.assert_allclose(dense, found.to_dense(), atol=1e-5)


def test_without_a_guest_library_nothing_is_looked_for(monkeypatch):
    monkeypatch.setattr(guests, "LIBRARIES", {"no_such_library": None})
    assert isinstance(lt.unfold(planted(), 0), np.ndarray)
    # Whatever has an array is still read, and is of NumPy then.
    assert isinstance(lt.unfold(Guest(planted()), 0), np.ndarray)


@pytest.mark.parametrize("kind", ["stand-in", "tensorflow"])
def test_dlpack_shares_memory_with_torch(kind):
    torch = pytest.importorskip("torch")
    values = planted("float64")
    given = Guest(values) if kind == "stand-in" else None
    if given is None:
        given = pytest.importorskip("tensorflow").constant(values)
    shared = torch.from_dlpack(given)
    assert shared.data_ptr() == torch.from_dlpack(given).data_ptr()
    found = lt.decompose(shared, 2).tensor
    assert isinstance(found.factors[0], torch.Tensor)
    torch.testing.assert_close(found.to_dense(), torch.tensor(values))
