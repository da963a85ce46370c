"""Every numeric example of the monograph's chapter 5 that concerns tensor operations."""

import numpy as np
import pytest

import latensor as lt

FIRST = np.array([[0.0, 2.0, 4.0, 6.0], [8.0, 10.0, 12.0, 14.0], [16.0, 18.0, 20.0, 22.0]])
SECOND = np.array([[1.0, 3.0, 5.0, 7.0], [9.0, 11.0, 13.0, 15.0], [17.0, 19.0, 21.0, 23.0]])


@pytest.fixture
def tensor(library):
    return lt.from_frontal_slices(library.array(FIRST), library.array(SECOND))


def test_frontal_slices_fibres_and_shape(library, tensor):
    assert tuple(tensor.shape) == (3, 4, 2)
    np.testing.assert_array_equal(library.host(tensor), np.arange(24.0).reshape(3, 4, 2))
    np.testing.assert_array_equal(library.host(lt.matrix_slice(tensor, (0, 1), (0,))), FIRST)
    np.testing.assert_array_equal(library.host(lt.matrix_slice(tensor, (0, 1), (1,))), SECOND)
    np.testing.assert_array_equal(library.host(lt.fiber(tensor, 0, (0, 0))), [0, 8, 16])
    np.testing.assert_array_equal(library.host(lt.fiber(tensor, 1, (0, 0))), [0, 2, 4, 6])
    np.testing.assert_array_equal(library.host(lt.fiber(tensor, 2, (0, 0))), [0, 1])


def test_unfolding_follows_the_equation(library, tensor):
    # T(i, j, l) = M(i, l + (j - 1) d) with d the last dimension, counted from zero here.
    matrix = library.host(lt.unfold(tensor, 0))
    for i, j, l in np.ndindex(3, 4, 2):  # noqa: E741
        assert matrix[i, l + 2 * j] == library.host(tensor)[i, j, l]
    np.testing.assert_array_equal(library.host(lt.fold(lt.unfold(tensor, 1), 1, (3, 4, 2))), tensor)


def test_rank_one_unfolds_into_a_khatri_rao_product(library, rng):
    u, v, w = (library.array(rng.standard_normal((d, 1))) for d in (3, 4, 2))
    rank_one = lt.outer(u[:, 0], v[:, 0], w[:, 0])
    expected = library.host(u) @ library.host(lt.khatri_rao([v, w])).T
    np.testing.assert_allclose(library.host(lt.unfold(rank_one, 0)), expected, atol=1e-15)


def test_khatri_rao_of_unequal_dimensions(library):
    # The book's naive loop strides by the first dimension; the definition needs the second.
    a = library.array([[1.0, 2.0], [3.0, 4.0]])
    b = library.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    expected = [[1, 20], [2, 40], [3, 60], [3, 40], [6, 80], [9, 120]]
    np.testing.assert_array_equal(library.host(lt.khatri_rao([a, b])), expected)


def test_kruskal_form_to_tensor(library, rng):
    weights = rng.standard_normal(3)
    a, b, c = (rng.standard_normal((d, 3)) for d in (3, 4, 2))
    cp = lt.CPTensor(library.array(weights), tuple(library.arrays([a, b, c])))
    expected = (a * weights) @ library.host(lt.khatri_rao(library.arrays([b, c]))).T
    np.testing.assert_allclose(library.host(lt.unfold(cp.to_dense(), 0)), expected, atol=1e-13)


def test_frobenius_norm(library, tensor):
    assert float(lt.frobenius_norm(tensor)) == pytest.approx(np.sqrt((np.arange(24) ** 2).sum()))


def test_the_image_compresses_twentysix_times():
    rank, shape = 50, (768, 1024, 3)
    parameters = rank * (sum(shape) + 1)
    assert parameters < 90_000
    assert round(np.prod(shape) / parameters) == 26


def test_gradient_descent_through_a_tucker_tensor(rng):
    torch = pytest.importorskip("torch")
    target = torch.asarray(rng.random((5, 5, 5)))
    core = torch.asarray(rng.random((5, 5, 5))).requires_grad_()
    factors = [torch.asarray(rng.random((5, 5))).requires_grad_() for _ in range(3)]
    losses = []
    for _ in range(200):
        error = lt.frobenius_norm(lt.TuckerTensor(core, tuple(factors)).to_dense() - target)
        loss = error + 0.01 * sum(lt.frobenius_norm(factor) for factor in factors)
        losses.append(float(error.detach()))
        loss.backward()
        with torch.no_grad():
            for parameter in [core, *factors]:
                parameter -= 0.01 * parameter.grad
                parameter.grad = None
    assert losses[-1] < 0.05 * losses[0]
