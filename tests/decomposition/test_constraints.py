"""Constraints: proximal steps are optimal, columns exactly feasible, the loss never rises."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import isotonic_regression

import latensor as lt
from latensor.decomposition.constraints.fit import ConstrainedFit

C = lt.constraints
ALL = {
    "nonnegative": C.Nonnegative(),
    "simplex": C.Simplex(),
    "increasing": C.Monotone(),
    "decreasing, nonnegative": C.Monotone(increasing=False, nonnegative=True),
    "unimodal": C.Unimodal(),
    "unimodal, nonnegative": C.Unimodal(nonnegative=True),
    "slopes": C.Smooth(3.0, order=1),
    "curvature": C.Smooth(0.5),
    "sparse": C.Sparse(0.7),
    "sparse, nonnegative": C.Sparse(0.7, nonnegative=True),
    "few components": C.FewComponents(0.7),
    "few entries": C.FewEntries(3),
    "few entries, nonnegative": C.FewEntries(2, nonnegative=True),
}
COLUMNS = arrays(
    np.float64, st.integers(1, 12), elements=st.floats(-100, 100, allow_subnormal=False)
)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=30, deadline=None)
@given(column=COLUMNS, weight=st.floats(0.1, 10), data=st.data())
def test_proximal_steps_are_feasible_and_no_feasible_column_is_better(name, column, weight, data):
    constraint = ALL[name]
    found = constraint.nearest(column, weight)
    assert constraint.holds(found)

    def value(x):
        return weight * float(np.sum((x - column) ** 2)) + constraint.penalty(x)

    other = data.draw(
        arrays(np.float64, len(column), elements=st.floats(-100, 100, allow_subnormal=False))
    )
    for candidate in (
        constraint.nearest(other, weight),
        constraint.nearest(found + 0.01 * other, 1e9),
    ):
        assert value(found) <= value(candidate) + 1e-9 * (1 + value(candidate))


@settings(max_examples=50, deadline=None)
@given(column=COLUMNS)
def test_isotonic_and_unimodal_steps_are_those_of_all_splits(column):
    np.testing.assert_allclose(
        C.Monotone().nearest(column, 1.0), isotonic_regression(column).x, atol=1e-9
    )
    for floor, constraint in ((-np.inf, C.Unimodal()), (0.0, C.Unimodal(nonnegative=True))):
        errors = []
        for split in range(len(column) + 1):
            parts = []
            for piece, turn in ((column[:split], 1), (column[split:], -1)):
                if len(piece):
                    fitted = isotonic_regression(piece[::turn]).x[::turn]
                    parts.append(np.maximum(fitted, floor))
            errors.append(np.sum((np.concatenate(parts) - column) ** 2))
        found = np.sum((constraint.nearest(column, 1.0) - column) ** 2)
        assert found == pytest.approx(min(errors), rel=1e-9, abs=1e-8)


def bands(d, centres, widths):
    x = np.linspace(0.0, 1.0, d)[:, None]
    return np.exp(-0.5 * ((x - np.array(centres)) / np.array(widths)) ** 2)


def planted(seed=0, noise=0.05, shape=(12, 40, 15)):
    """Amounts, bands with one peak each, and increasing courses."""
    rng = np.random.default_rng(seed)
    amounts = rng.uniform(0.2, 1.0, (shape[0], 3))
    spectra = bands(shape[1], (0.3, 0.45, 0.7), (0.08, 0.1, 0.12))
    courses = np.cumsum(rng.exponential(1.0, (shape[2], 3)) ** 3, axis=0)
    truth = lt.CPTensor(None, (amounts, spectra, courses / courses.max(axis=0)))
    exact = truth.to_dense()
    tensor = exact + noise * np.linalg.norm(exact) / np.sqrt(exact.size) * rng.standard_normal(
        shape
    )
    return truth, tensor


PAIRS = [
    {0: C.Nonnegative(), 1: C.Unimodal(nonnegative=True), 2: C.Monotone()},
    {1: C.Smooth(0.1), 2: C.Monotone(nonnegative=True)},
    {0: C.Simplex(), 1: C.Sparse(0.01, nonnegative=True), -1: C.Monotone()},
    {0: C.Simplex(), 1: C.Simplex(), 2: C.Simplex()},
    {0: C.Sparse(0.001), 1: C.Smooth(0.1, order=1)},
    {2: C.Unimodal()},
    {0: C.FewComponents(0.001), 1: C.Unimodal()},
    {0: C.FewEntries(11), 1: C.FewEntries(35, nonnegative=True)},
]


@pytest.mark.parametrize("constraints", PAIRS, ids=range(len(PAIRS)))
@pytest.mark.parametrize("fraction", [1.0, 0.7])
def test_results_are_exactly_feasible_and_the_loss_never_rises(constraints, fraction):
    truth, tensor = planted()
    mask = None if fraction == 1.0 else np.random.default_rng(1).random(tensor.shape) < fraction
    data = tensor if mask is None else np.where(mask, tensor, np.nan)
    found = lt.decompose(data, 3, constraints=constraints, mask=mask, random_state=0)
    for mode, constraint in constraints.items():
        assert all(constraint.holds(column) for column in found.factors[mode].T)
        if isinstance(constraint, C.Simplex):
            np.testing.assert_allclose(found.factors[mode].sum(axis=0), 1.0)
    assert np.all(np.diff(found.history) <= 1e-12)
    left = (tensor - found.tensor.to_dense())[... if mask is None else mask]
    norm = np.linalg.norm(tensor[... if mask is None else mask])
    assert found.residual == pytest.approx(np.linalg.norm(left) / norm, rel=1e-9)
    assert found.residual < 0.1
    assert lt.match(truth, found).score > 0.98
    assert np.all(np.diff(np.abs(found.weights)) <= 1e-9 * abs(found.weights[0]))


def test_few_components_leave_those_out_that_add_little_and_few_entries_find_the_support():
    rng = np.random.default_rng(2)
    sparse = np.zeros((20, 3))
    for column, rows in zip(sparse.T, ([1, 4, 7], [8, 9, 2], [15, 1, 18]), strict=True):
        column[rows] = rng.uniform(1.0, 2.0, 3) * rng.choice([-1, 1], 3)
    truth = lt.CPTensor(None, (sparse, rng.standard_normal((9, 3)), rng.standard_normal((8, 3))))
    exact = truth.to_dense()
    tensor = exact + 0.05 * np.abs(exact).mean() * rng.standard_normal(exact.shape)
    found = lt.decompose(tensor, 3, constraints={0: C.FewEntries(3)})
    assert lt.match(truth, found).score > 0.99
    assert np.count_nonzero(found.factors[0]) == 9
    fewer = lt.decompose(tensor, 5, constraints={2: C.FewComponents(0.05)})
    assert np.count_nonzero(fewer.weights) == 3
    assert fewer.residual < 0.1
    with pytest.raises(lt.InvalidInputError, match="count=0"):
        C.FewEntries(0)


def test_constraints_bring_the_components_back_where_freedom_does_not():
    """At much noise, constrained columns are nearer to the truth than free ones."""
    gains = []
    for seed in range(3):
        truth, tensor = planted(seed, noise=1.5)
        free = lt.decompose(tensor, 3, random_state=0)
        kept = lt.decompose(tensor, 3, constraints=PAIRS[0], random_state=0)
        gains.append(lt.match(truth, kept).score - lt.match(truth, free).score)
    assert min(gains) > 0


def test_a_column_that_contradicts_its_constraint_is_the_best_that_satisfies_it():
    rng = np.random.default_rng(0)
    vectors = [rng.uniform(0.5, 1.0, 4), np.arange(6.0)[::-1] + 1, rng.uniform(0.5, 1.0, 5)]
    tensor = np.einsum("i,j,k->ijk", *vectors)
    rising = {0: C.Nonnegative(), 1: C.Monotone(nonnegative=True), 2: C.Nonnegative()}
    found = lt.decompose(tensor, 1, constraints=rising)
    np.testing.assert_allclose(found.factors[1][:, 0], 6**-0.5)
    mean = np.einsum("i,j,k->ijk", vectors[0], np.full(6, vectors[1].mean()), vectors[2])
    expected = np.linalg.norm(tensor - mean) / np.linalg.norm(tensor)
    assert found.residual == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-3, 1e100])
@pytest.mark.parametrize("constraints", PAIRS[:3], ids=range(3))
def test_results_do_not_depend_on_the_unit(constraints, scale):
    _, tensor = planted()
    one, other = (
        lt.decompose(x, 3, constraints=constraints, random_state=0)
        for x in (tensor, tensor * scale)
    )
    np.testing.assert_allclose(other.weights, one.weights * scale, rtol=1e-4)
    np.testing.assert_allclose(other.residual, one.residual, rtol=1e-6)


def test_other_libraries_sparse_tensors_and_starts(library):
    truth, tensor = planted()
    constraints = PAIRS[0]
    plain = lt.decompose(tensor, 3, constraints=constraints, random_state=0)
    array = library.array(tensor)
    found = lt.decompose(array, 3, constraints=constraints, random_state=0)
    assert library.owns(found.weights)
    np.testing.assert_allclose(library.host(found.weights), plain.weights, rtol=1e-4)
    sparse = lt.SparseTensor.from_dense(tensor)
    again = lt.decompose(sparse, 3, constraints=constraints, init=truth)
    assert again.residual == pytest.approx(plain.residual, rel=1e-4)
    single = lt.decompose(tensor.astype(np.float32), 3, constraints=constraints, random_state=0)
    assert single.weights.dtype == np.float32
    for mode, constraint in constraints.items():
        assert all(constraint.holds(column) for column in single.factors[mode].T)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"constraints": {3: C.Unimodal()}}, "constraints=3 is out of range"),
        ({"constraints": {0: C.Unimodal}}, "must be a value of lt.constraints"),
        ({"constraints": {0: "unimodal"}}, "must be a value of lt.constraints"),
        ({"constraints": [C.Unimodal()]}, "must be a dictionary"),
        ({"constraints": {0: C.Unimodal()}, "ridge": 1.0}, "ridge=1.0 cannot be combined"),
        ({"constraints": {0: C.Unimodal()}, "symmetric": True}, "symmetric=True cannot be"),
    ],
)
def test_bad_input_is_refused(options, words):
    with pytest.raises(lt.InvalidInputError, match=words):
        lt.decompose(np.ones((3, 3, 3)), 1, **options)


def test_bad_strengths_are_refused():
    for strength in (0.0, -1.0, np.nan, np.inf, True, "10"):
        with pytest.raises(lt.InvalidInputError, match="strength="):
            C.Smooth(strength)
    with pytest.raises(lt.InvalidInputError, match="complex"):
        lt.decompose(np.ones((3, 3, 3)) * 1j, 1, constraints={0: C.Unimodal()})


def test_zero_and_constant_tensors():
    for tensor in (np.zeros((3, 4, 5)), np.ones((3, 4, 5))):
        found = lt.decompose(tensor, 2, constraints={1: C.Unimodal(nonnegative=True)})
        assert found.residual < 1e-6
        assert np.isfinite(found.weights).all()


def test_nonnegative_modes_go_with_constraints():
    tensor = np.random.default_rng(0).standard_normal((5, 8, 6))
    found = lt.decompose(tensor, 2, constraints={1: C.Smooth(0.1)}, nonnegative=(0,))
    assert (found.factors[0] >= 0).all()
    assert (found.factors[2] < 0).any()


def test_settings_are_kept():
    _, tensor = planted()
    short = lt.decompose(tensor, 3, constraints=PAIRS[0], max_iter=2, tol=0.0, random_state=0)
    assert short.n_iter == 2
    assert short.status is lt.decomposition.Status.MAX_ITER
    assert ConstrainedFit({0: C.Nonnegative()}).tol == 1e-8
