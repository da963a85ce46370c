"""The array library is inferred, never set; every argument is named when something is wrong."""

import numpy as np
import pytest

from latensor import InvalidInputError
from latensor.arrays import (
    as_array,
    check_finite,
    check_mode,
    check_positive_int,
    describe,
    generator,
    is_array,
    is_complex,
    is_traced,
    library_name,
    like,
    machine_epsilon,
    matmul,
    real_dtype,
    resolve,
    standard_normal,
    to_host,
)


def test_resolve_keeps_arrays_as_they_are(library, dtype):
    given = library.array(np.ones((2, 3)), dtype)
    xp, arrays = resolve(tensor=given)
    assert arrays["tensor"] is given
    assert library_name(given) == library.name
    assert library.name in xp.__name__
    assert describe(given).startswith(library.name)
    assert describe(given).endswith(f"{dtype}, shape (2, 3)")


def test_resolve_converts_an_object_once(library):
    one = library.array(np.ones(2))
    _, arrays = resolve(tensor=one, other=one, nothing=None)
    assert arrays["other"] is arrays["tensor"] is one
    assert arrays["nothing"] is None
    counts = library.array(np.ones(2), "int64")
    _, arrays = resolve(first=counts, second=counts)
    assert arrays["first"] is arrays["second"]


def test_plain_numbers_follow_the_arrays_beside_them(library):
    single = library.array(np.ones(2), "float32")
    _, arrays = resolve(tensor=single, weights=[1, 2.5], phase=[1j, 2])
    assert library.owns(arrays["weights"])
    assert str(resolve(tensor=single, weights=[1, 2.5])[1]["weights"].dtype).endswith("float32")
    assert is_complex(arrays["phase"])
    stacked = as_array([library.array(np.ones(2)), library.array(np.zeros(2))], "x")
    assert library.owns(stacked)
    assert tuple(stacked.shape) == (2, 2)


def test_masked_arrays_views_and_subclasses():
    with pytest.raises(InvalidInputError, match="x is a masked array"):
        as_array(np.ma.masked_array([1.0, 2.0], mask=[0, 1]), "x")
    assert type(as_array(np.matrix([[1.0]]), "x")) is np.ndarray
    swapped = np.arange(3.0).astype(">f8")
    assert resolve(x=swapped)[1]["x"].dtype.isnative
    torch = pytest.importorskip("torch")
    complex_view = torch.tensor([1 + 2j, 3 - 1j]).conj()
    np.testing.assert_array_equal(to_host(complex_view), [1 - 2j, 3 + 1j])
    np.testing.assert_array_equal(to_host(complex_view.imag), [-2, 1])
    with pytest.raises(InvalidInputError, match="mixes arrays of several libraries"):
        as_array([torch.ones(2), np.ones(2)], "x")


def test_lists_frames_and_numbers_become_numpy_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": [3.5, 4.0]})
    for value in ([[1, 3.5], [2, 4.0]], ((1, 3.5), (2, 4.0)), frame):
        np.testing.assert_array_equal(as_array(value, "x"), [[1, 3.5], [2, 4]])
    assert as_array(np.float32(3), "x").dtype == np.float32
    assert not is_array([1, 2])


@pytest.mark.parametrize("kind", ["int8", "uint64", "bool", "int64"])
def test_integers_become_the_default_float(library, kind):
    if library.name == "torch" and kind == "uint64":
        pytest.skip("PyTorch has no arithmetic for it")
    _, arrays = resolve(tensor=library.array(np.ones(3), kind))
    assert arrays["tensor"].dtype == library.module.ones(1).dtype


def test_dtypes_are_promoted(library):
    low, high = (
        library.array(np.ones((2, 2)), "float32"),
        library.array(np.ones((2, 2)), "complex128"),
    )
    _, arrays = resolve(a=low, b=high)
    assert str(arrays["a"].dtype).endswith("complex128")
    xp, _ = resolve(a=low)
    assert str(matmul(xp, low, high).dtype).endswith("complex128")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "x must be an array, not NoneType"),
        ({"a": 1}, "x must be an array, not dict"),
        ([object()], "x is a list of Python objects"),
        ([[1], [2, 3]], "x cannot be read as an array"),
    ],
)
def test_what_is_not_an_array(value, text):
    with pytest.raises(InvalidInputError, match=text):
        as_array(value, "x")


def test_other_standard_arrays_are_pointed_to_their_door():
    sparse = pytest.importorskip("sparse")
    with pytest.raises(InvalidInputError, match=r"x is a sparse\.COO: .* lt\.SparseTensor"):
        as_array(sparse.COO(np.eye(2)), "x")


def test_resolve_needs_something():
    with pytest.raises(InvalidInputError, match="no array given: a, b"):
        resolve(a=None, b=None)


def test_precision(library):
    for dtype, real in [
        ("float32", "float32"),
        ("complex64", "float32"),
        ("complex128", "float64"),
    ]:
        array = library.array(np.ones(2), dtype)
        assert str(real_dtype(array)).endswith(real)
        assert machine_epsilon(array) == np.finfo(dtype).eps
        assert is_complex(array) == dtype.startswith("complex")


def test_host_and_back(library, dtype):
    values = np.arange(4).astype(dtype)
    array = library.array(values)
    np.testing.assert_array_equal(to_host(array), values)
    back = like(np.arange(4.0), array)
    assert library.owns(back)
    assert back.dtype == array.dtype
    assert is_complex(like(np.ones(2) * 1j, array))
    assert not is_complex(like(np.arange(3), library.array(np.ones(1), "float32")))


def test_tracers_are_recognised():
    jax = pytest.importorskip("jax")
    seen = []
    jax.jit(lambda x: seen.append(is_traced(x)) or x)(jax.numpy.ones(2))
    assert seen == [True]
    assert not is_traced(jax.numpy.ones(2))


def test_random_numbers_are_the_same_on_every_library(library):
    reference = library.array(np.ones(1), "float64")
    drawn = standard_normal(generator(3), (4, 2), reference)
    np.testing.assert_array_equal(
        library.host(drawn), np.random.default_rng(3).standard_normal((4, 2))
    )
    single = standard_normal(generator(3), (4,), library.array(np.ones(1), "complex64"))
    assert str(single.dtype).endswith("complex64")


def test_generator_from_every_kind_of_seed():
    rng = np.random.default_rng(1)
    assert generator(rng) is rng
    assert generator(np.int64(5)).integers(100) == generator(5).integers(100)
    old = generator(np.random.RandomState(0)).integers(100)
    assert old == generator(np.random.RandomState(0)).integers(100)
    assert generator(None) is not generator(None)
    for wrong in ("seed", 1.5, True, -1):
        with pytest.raises(InvalidInputError, match="random_state="):
            generator(wrong)


def test_modes_and_counts():
    assert check_mode(np.int32(-1), 3) == 2
    assert check_positive_int(np.int64(2), "n") == 2
    for wrong in (0, -1, 1.5, "2", True, None):
        with pytest.raises(InvalidInputError, match=r"n=.* must be a positive integer"):
            check_positive_int(wrong, "n")


def test_finite_results_cost_no_look_at_the_input():
    class Trap:
        def __getattr__(self, name):
            raise AssertionError("the input was looked at")

    result = np.ones(3)
    assert check_finite(result, tensor=Trap()) is result
    # A sum that overflows is not a reason to refuse finite numbers.
    large = np.full(4, 1e308)
    assert check_finite(large, tensor=Trap()) is large
