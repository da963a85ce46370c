from dataclasses import replace

import numpy as np
import pytest

from latensor.decomposition import AlternatingLeastSquares, GaussNewton, Status, decompose
from latensor.decomposition.auto.core import NoiseFloor, component_costs
from latensor.decomposition.optimize.problem import DenseProblem, multiply_mode, squared_norm
from latensor.decomposition.optimize.starts import (
    leading_part,
    leading_rank_one,
    pencil_groups,
    pencil_start,
    rank_one_rows,
)
from latensor.decomposition.optimize.sweeps import Sweeps, balanced
from latensor.decomposition.setup import as_problem, as_tensor
from latensor.decomposition.subspace.compression import (
    compress_contractible,
    compress_dense,
    compressed_shape,
    leading_directions,
    unfolding,
)
from latensor.tensors import CPTensor, SparseTensor

from .planted import compose, planted, relative_error, worst_match


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(
    ("shape", "rank", "collinearity"),
    [
        ((40, 45, 50), 5, None),
        ((60, 60, 60), 8, 0.9),
        ((12, 10, 11), 9, None),
        ((30, 4, 35), 6, None),
        ((15, 14, 13, 12), 4, 0.5),
        ((8, 8, 8), 11, None),
    ],
)
def test_exact_low_rank_is_recovered(seed, shape, rank, collinearity):
    tensor, factors = planted(seed, shape, rank, collinearity=collinearity)
    result = decompose(tensor, rank, random_state=seed)
    assert relative_error(result, tensor) < 1e-12
    assert result.residual < 1e-12
    assert worst_match(result, factors) > 1 - 1e-6


def test_complex_exact_low_rank_is_recovered():
    for seed in range(3):
        tensor, factors = planted(seed, (30, 35, 25), 4, dtype=np.complex128)
        result = decompose(tensor, 4, random_state=seed)
        assert relative_error(result, tensor) < 1e-10
        assert worst_match(result, factors) > 1 - 1e-8


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("noise", [1e-4, 1e-2, 1e-1])
def test_error_of_the_factors_is_proportional_to_the_noise(seed, noise):
    tensor, factors = planted(seed, (50, 50, 50), 5, noise=noise)
    result = decompose(tensor, 5, random_state=seed)
    assert result.residual <= noise
    assert np.sqrt(1 - worst_match(result, factors)) < 2 * noise


@pytest.mark.parametrize(
    ("shape", "rank"), [((8, 8, 8), 8), ((12, 12, 4), 12), ((10, 9, 10), 8), ((6, 6, 6, 6), 6)]
)
@pytest.mark.parametrize("noise", [1e-6, 1e-3, 1e-2])
def test_noise_at_full_rank_loses_no_component(shape, rank, noise):
    # Too short to be compressed: only the tensor itself can be searched for a start.
    for seed in range(8):
        tensor, factors = planted(seed, shape, rank, noise=noise)
        result = decompose(tensor, rank, random_state=seed)
        best = GaussNewton(tol=1e-12)(
            tensor, rank, np.random.default_rng(0), init=CPTensor(np.ones(rank), tuple(factors))
        )
        assert result.residual <= best.residual * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_residual_is_no_worse_than_the_best_of_many_alternating_runs(seed):
    tensor, _ = planted(seed, (25, 24, 23), 6, noise=0.3, collinearity=0.7)
    ours = decompose(tensor, 6, random_state=seed).residual
    fit = AlternatingLeastSquares(start="random", max_iter=300)
    others = [fit(tensor, 6, np.random.default_rng([seed, i])).residual for i in range(6)]
    assert ours <= min(others) * (1 + 1e-4)


def test_lost_components_are_found_again():
    # A leading start of this overcomplete tensor loses components without re-seeding.
    for seed in range(4):
        tensor, factors = planted(seed, (14, 14, 14), 20)
        result = decompose(tensor, 20, random_state=seed)
        assert relative_error(result, tensor) < 1e-6
        assert worst_match(result, factors) > 1 - 1e-4


def test_weak_components_are_not_lost():
    rng = np.random.default_rng(0)
    factors = [np.linalg.qr(rng.standard_normal((60, 8)))[0] for _ in range(3)]
    weights = np.geomspace(1, 1e-3, 8)
    noise = rng.standard_normal((60, 60, 60))
    tensor = compose(factors, weights) + 1e-4 * noise / np.linalg.norm(noise)
    result = decompose(tensor, 8, random_state=0)
    np.testing.assert_allclose(np.abs(result.weights), weights, rtol=0.01)


def test_random_sparse_entries_get_no_further_round_of_subspaces(monkeypatch):
    shape, rng = (900, 800, 700), np.random.default_rng(0)
    entries = SparseTensor(rng.integers(0, shape, size=(200_000, 3)), rng.random(200_000), shape)
    blocks = SparseTensor(rng.integers(0, 30, size=(20_000, 3)), rng.random(20_000), shape)
    calls = []
    contract = SparseTensor.contract
    monkeypatch.setattr(
        SparseTensor, "contract", lambda self, *given: calls.append(0) or contract(self, *given)
    )
    counts = []
    for tensor in (entries, blocks):
        calls.clear()
        compression = compress_contractible(tensor, as_problem(tensor), 4, rng)
        squares = tensor.norm() ** 2, np.vdot(compression.core, compression.core)
        assert compression.base == pytest.approx(squares[0] - squares[1])
        counts.append(len(calls))
    # Three sketches, then one step; or two rounds of three.
    assert counts == [4, 9]


@pytest.fixture
def contractions(monkeypatch):
    """How often sparse tensors have been contracted to arrays."""
    calls = []
    contract = SparseTensor.contract
    monkeypatch.setattr(
        SparseTensor, "contract", lambda self, *given: calls.append(0) or contract(self, *given)
    )
    return calls


def test_random_sparse_entries_are_fitted_without_a_core(contractions):
    shape, rng = (900, 800, 700), np.random.default_rng(0)
    tensor = SparseTensor(rng.integers(0, shape, size=(200_000, 3)), rng.random(200_000), shape)
    result = decompose(tensor, 4, random_state=0)
    assert not contractions
    swept = decompose(tensor, 4, algorithm=AlternatingLeastSquares(start="random", max_iter=20))
    # Nearly all is noise: compare what the fits describe.
    assert 1 - result.residual**2 > (1 - 1e-2) * (1 - swept.residual**2)
    decompose(tensor, 4, random_state=0, target=swept.residual)
    assert not contractions


@pytest.mark.parametrize("seed", range(3))
def test_sparse_tensors_need_a_core_only_for_targets_that_sweeps_miss(contractions, seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 6, size=20_000)
    rows = 40 * groups[:, None] + rng.integers(0, 25, size=(20_000, 3))
    tensor = SparseTensor(rows, rng.random(20_000), (240, 250, 260))
    best = decompose(tensor, 6, random_state=seed)
    assert contractions
    contractions.clear()
    for excess, core in ((1.1, False), (1 + 1e-9, None)):
        target = excess * best.residual
        result = decompose(tensor, 6, target=target, random_state=seed)
        assert result.status is Status.TARGET_REACHED
        image = tensor.mttkrp(list(result.factors), 0)
        inner = float(np.sum(result.weights * np.sum(result.factors[0] * image, axis=0)))
        model = float(CPTensor(result.weights, result.factors).norm()) ** 2
        loss = float(tensor.norm()) ** 2 - 2 * inner + model
        assert np.sqrt(loss) / float(tensor.norm()) <= target * (1 + 1e-9)
        assert core is None or bool(contractions) is core


def test_small_targets_of_exact_sparse_tensors_are_not_met_by_rounding():
    rng = np.random.default_rng(0)
    blocks = [np.zeros((d, 3)) for d in (60, 50, 40)]
    for r in range(3):
        for factor in blocks:
            factor[10 * r : 10 * r + 9, r] = rng.random(9)
    dense = np.einsum("ir,jr,kr->ijk", *blocks)
    for target in (1e-5, 1e-9, 1e-12):
        result = decompose(SparseTensor.from_dense(dense), 3, target=target, random_state=0)
        assert relative_error(result, dense) <= target


@pytest.mark.parametrize("shape", [(9000, 8000, 7000), (5000, 40, 30, 60)])
def test_sparse_tensors_are_never_made_dense(shape):
    from latensor.tensors import SparseTensor

    rng = np.random.default_rng(0)
    rank, support = 4, 6
    factors = []
    for d in shape:
        factor = np.zeros((d, rank))
        for r in range(rank):
            factor[rng.choice(d, support, replace=False), r] = rng.uniform(1, 2, support)
        factors.append(factor)
    coordinates, values = [], []
    for r in range(rank):
        grid = np.meshgrid(*[np.flatnonzero(f[:, r]) for f in factors], indexing="ij")
        index = np.stack([g.reshape(-1) for g in grid], axis=1)
        coordinates.append(index)
        values.append(np.prod([f[index[:, m], r] for m, f in enumerate(factors)], axis=0))
    tensor = SparseTensor(np.concatenate(coordinates), np.concatenate(values), shape)
    result = decompose(tensor, rank, random_state=0)
    assert result.residual < 1e-6
    assert worst_match(result, factors) > 1 - 1e-6


def test_history_falls_and_ends_at_the_residual():
    tensor, _ = planted(1, (50, 40, 45), 5, noise=0.2, collinearity=0.6)
    result = decompose(tensor, 5, random_state=0)
    assert result.status is Status.CONVERGED
    assert np.all(np.diff(result.history) <= 1e-9)
    assert result.history[-1] == pytest.approx(result.residual, rel=1e-6)
    assert result.residual == pytest.approx(relative_error(result, tensor), rel=1e-9)


@pytest.mark.parametrize("target", [0.5, 0.25, 0.2004])
def test_target_is_met_and_saves_work(target):
    tensor, _ = planted(2, (50, 40, 45), 5, noise=0.2, collinearity=0.6)
    result = decompose(tensor, 5, random_state=0, target=target)
    assert result.status is Status.TARGET_REACHED
    assert relative_error(result, tensor) <= target
    assert result.n_iter < decompose(tensor, 5, random_state=0).n_iter


# Compression


def test_a_target_within_what_converged_leaves_open_is_met():
    """The first fit is far above the target, and ends within `tol` of it, above it."""
    rng = np.random.default_rng([141, 100, 100, 100, 20])
    factors = [np.linalg.qr(rng.standard_normal((100, 20)))[0] for _ in range(3)]
    signal = CPTensor(rng.uniform(0.1, 1.0, 20), tuple(factors)).to_dense()
    error = rng.standard_normal(signal.shape)
    tensor = signal + 0.5 * np.linalg.norm(signal) / np.linalg.norm(error) * error
    loose, tight = (decompose(tensor, 20, tol=tol).residual for tol in (1e-7, 1e-14))
    target = 0.2 * loose + 0.8 * tight
    assert tight < target < loose
    found = decompose(tensor, 20, target=target)
    assert found.residual <= target
    assert found.status is Status.TARGET_REACHED


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("shape", [(60, 50, 40), (40, 60, 3), (90, 5, 4), (30, 25, 28, 3)])
def test_compression_splits_the_squared_norm(shape, dtype):
    tensor, _ = planted(3, shape, 3, noise=0.1, dtype=dtype)
    total = squared_norm(tensor)
    packed = compress_dense(tensor, 3, np.random.default_rng(0), total)
    assert packed.core.shape == compressed_shape(shape, 3)
    assert packed.base + squared_norm(packed.core) == pytest.approx(total)
    assert packed.base < 0.1**2 * total
    for basis in packed.bases:
        if basis is not None:
            np.testing.assert_allclose(basis.conj() @ basis.T, np.eye(len(basis)), atol=1e-12)
    expanded = packed.core
    for mode, basis in enumerate(packed.bases):
        if basis is not None:
            expanded = multiply_mode(expanded, basis.T, mode)
    assert squared_norm(tensor - expanded) == pytest.approx(packed.base, rel=1e-6)


def test_core_errors_are_errors_of_the_tensor():
    tensor, _ = planted(4, (50, 45, 40), 3, noise=0.2)
    problem = as_problem(as_tensor(tensor))
    packed = compress_dense(tensor, 3, np.random.default_rng(0), problem.squared_norm)
    rng = np.random.default_rng(1)
    rows = [rng.standard_normal((3, r)) for r in packed.core.shape]
    inside = Sweeps(DenseProblem(packed.core)).start(rows).loss + packed.base
    outside = Sweeps(problem).start(packed.expand(rows)).loss
    assert inside == pytest.approx(outside)


def test_compression_through_contractions_keeps_as_much():
    _, factors = planted(5, (50, 45, 40), 3)
    cp = CPTensor(None, tuple(factors))
    packed = compress_contractible(cp, as_problem(cp), 3, np.random.default_rng(0))
    assert packed.core.shape == (13, 13, 13)
    assert packed.base < 1e-6 * float(cp.norm()) ** 2


@pytest.mark.parametrize("shape", [(20, 300), (200, 30), (300, 200), (200, 8)])
def test_leading_directions_are_singular_vectors(shape):
    rng = np.random.default_rng(0)
    left, _, right = np.linalg.svd(rng.standard_normal(shape), full_matrices=False)
    values = 0.5 ** np.arange(len(right))
    matrix = (left * values) @ right
    count = min(shape[0], 12)
    found = leading_directions(matrix, count, rng)
    assert found.shape == (count, shape[0])
    np.testing.assert_allclose(found @ found.T, np.eye(count), atol=1e-10)
    np.testing.assert_allclose(np.abs(np.sum(found[:4] * left.T[:4], axis=1)), 1.0, atol=1e-6)


def test_multiplying_a_mode_agrees_with_tensordot():
    rng = np.random.default_rng(0)
    for shape in [(4, 5, 6), (4, 5, 40), (3, 4, 5, 2)]:
        tensor = rng.standard_normal(shape)
        for mode, d in enumerate(shape):
            rows = rng.standard_normal((3, d))
            expected = np.moveaxis(np.tensordot(rows, tensor, axes=(1, mode)), 0, mode)
            np.testing.assert_allclose(multiply_mode(tensor, rows, mode), expected)
            assert unfolding(tensor, mode).shape == (d, tensor.size // d)


# Starts


@pytest.mark.parametrize("shape", [(6, 6, 6), (5, 9, 7), (6, 3, 6), (6, 5, 3, 4)])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_pencil_solves_exact_tensors(shape, dtype):
    rank = 4
    tensor, _ = planted(6, shape, rank, dtype=dtype)
    keep = tuple(min(d, rank) for d in shape)
    for core in (tensor, leading_part(tensor, keep, range(len(shape)))[0]):
        rows = pencil_start(core, rank)
        assert rows is not None
        problem = DenseProblem(core)
        assert Sweeps(problem).start(rows).loss < 1e-12 * problem.squared_norm


@pytest.mark.parametrize(("shape", "rank"), [((3,) * 5, 7), ((4, 3, 2, 3, 2), 6), ((2,) * 6, 4)])
def test_a_pencil_of_merged_modes_solves_ranks_above_all_dimensions(shape, rank):
    tensor, _ = planted(6, shape, rank)
    rows = pencil_start(tensor, rank)
    problem = DenseProblem(tensor)
    assert Sweeps(problem).start(rows).loss < 1e-12 * problem.squared_norm


def test_pencils_need_two_groups_of_modes_as_long_as_the_rank():
    assert pencil_groups((5, 6, 4), 5) == ((1,), (0,), (2,))
    assert pencil_groups((5, 6, 4), 6) is None
    assert pencil_groups((5, 6), 2) is None
    assert pencil_groups((3, 3, 3, 3, 3), 9) == ((0, 1), (2, 3), (4,))


def test_rank_one_tensors_are_taken_apart():
    rng = np.random.default_rng(0)
    true = [rng.standard_normal((4, d)) for d in (3, 5, 2)]
    rows = rank_one_rows(np.einsum("ra,rb,rc->rabc", *true))
    for found, row in zip(rows, true, strict=True):
        unit = row / np.linalg.norm(row, axis=1, keepdims=True)
        np.testing.assert_allclose(np.abs(np.sum(found * unit, axis=1)), 1.0, atol=1e-12)


def test_leading_rank_one_term_is_found_in_noise():
    for seed in range(5):
        tensor, factors = planted(seed, (12, 11, 10), 1, noise=1.0)
        vectors, energy = leading_rank_one(tensor, np.random.default_rng(seed))
        match = 1.0
        for vector, factor in zip(vectors, factors, strict=True):
            match *= abs(vector @ factor[:, 0]) / np.linalg.norm(factor)
        assert match > 0.9
        value = np.einsum("abc,a,b,c->", tensor, *vectors)
        assert energy == pytest.approx(value**2, rel=1e-6)


def test_component_costs_are_what_dropping_costs():
    tensor, _ = planted(7, (8, 7, 6), 3)
    problem = DenseProblem(tensor)
    rows = [f.T.copy() for f in planted(7, (8, 7, 6), 3)[1]]
    point = Sweeps(problem).start(balanced(rows))
    costs = component_costs(point.factors)
    for j in range(3):
        kept = [np.delete(f, j, axis=0) for f in point.factors]
        best = min(
            Sweeps(problem, (mode,)).sweep(Sweeps(problem).start(kept)).loss for mode in range(3)
        )
        assert costs[j] == pytest.approx(best, rel=1e-6)


def test_a_component_that_splits_a_strong_one_is_replaced():
    """Weights over three decades: the weakest was missed, its place taken by a part of a strong."""
    rng = np.random.default_rng([83, 100, 100, 100, 20])
    factors = [rng.standard_normal((100, 20)) for _ in range(3)]
    factors = [f / np.linalg.norm(f, axis=0) for f in factors]
    rng.uniform(0.1, 1.0, 20)
    signal = CPTensor(np.geomspace(1.0, 1e-3, 20), tuple(factors)).to_dense()
    error = rng.standard_normal(signal.shape)
    tensor = signal + 0.01 * np.linalg.norm(signal) / np.linalg.norm(error) * error
    assert decompose(tensor, 20, random_state=83).residual < 0.00998


@pytest.mark.parametrize("seed", [124, 127])
def test_weak_components_of_a_whole_tensor_of_order_four_are_found(seed):
    """A weak term of the residual shows in its unfoldings; one of noise makes place for it."""
    rng = np.random.default_rng([seed, 20, 20, 20, 20, 20])
    factors = [rng.standard_normal((20, 20)) for _ in range(4)]
    factors = [f / np.linalg.norm(f, axis=0) for f in factors]
    rng.uniform(0.1, 1.0, 20)
    signal = CPTensor(np.geomspace(1.0, 1e-3, 20), tuple(factors)).to_dense()
    error = rng.standard_normal(signal.shape)
    error *= 0.01 * np.linalg.norm(signal) / np.linalg.norm(error)
    found = decompose(signal + error, 20, random_state=seed)
    assert found.residual * np.linalg.norm(signal + error) < 0.996 * np.linalg.norm(error)


def test_a_swamp_of_collinear_components_is_left():
    """A fifth of the components replaced leads back into it; half of them do not."""
    rng = np.random.default_rng([4, 40, 40, 40, 12])
    root = np.linalg.cholesky(np.full((12, 12), 0.9) + 0.1 * np.eye(12)).T
    factors = [np.linalg.qr(rng.standard_normal((40, 12)))[0] @ root for _ in range(3)]
    signal = CPTensor(rng.uniform(0.1, 1.0, 12), tuple(factors)).to_dense()
    error = rng.standard_normal(signal.shape)
    error *= 0.002 * np.linalg.norm(signal) / np.linalg.norm(error)
    found = decompose(signal + error, 12, random_state=4)
    assert found.residual * np.linalg.norm(signal + error) < np.linalg.norm(error)


@pytest.mark.parametrize("seed", [134, 147])
def test_a_swamp_of_a_whole_tensor_is_left_by_another_start(seed):
    """Too large for other starts while the first converges; a swamp takes longer than they do."""
    rng = np.random.default_rng([seed, 30, 30, 30, 40])
    factors = [rng.standard_normal((30, 40)) for _ in range(3)]
    factors = [f / np.linalg.norm(f, axis=0) for f in factors]
    signal = CPTensor(rng.uniform(0.1, 1.0, 40), tuple(factors)).to_dense()
    error = rng.standard_normal(signal.shape)
    error *= 0.01 * np.linalg.norm(signal) / np.linalg.norm(error)
    found = decompose(signal + error, 40, random_state=seed)
    assert found.residual * np.linalg.norm(signal + error) < np.linalg.norm(error)
    assert found.status is Status.CONVERGED


def test_sweeps_that_stick_on_a_whole_tensor_replace_a_component(monkeypatch):
    from latensor.decomposition.auto import converge

    counts = []
    descend = converge.descend

    def counted(problem, fit, *given, **options):
        counts.append(fit.loss)
        return descend(problem, fit, *given, **options)

    monkeypatch.setattr(converge, "descend", counted)
    for seed in (91, 111):
        rng = np.random.default_rng([seed, 30, 30, 30, 45])
        factors = [rng.standard_normal((30, 45)) for _ in range(3)]
        factors = [f / np.linalg.norm(f, axis=0) for f in factors]
        tensor = CPTensor(None, factors).to_dense()
        counts.clear()
        found = decompose(tensor, 45, random_state=seed)
        assert found.residual < 1e-12
        # Levenberg-Marquardt begins where every component has its place, not 10 % away.
        assert counts[0] < 1e-3 * np.linalg.norm(tensor) ** 2


@pytest.mark.parametrize("favoured", [0, 1])
def test_the_tensor_decides_between_two_fits_of_its_core(monkeypatch, favoured):
    from latensor.decomposition.auto import pipeline

    rng = np.random.default_rng(3)
    factors = [rng.standard_normal((30, 3)) for _ in range(3)]
    tensor = CPTensor(None, factors).to_dense() + 0.5 * rng.standard_normal((30, 30, 30))
    best = decompose(tensor, 3, random_state=0).residual
    converged = []

    def other(core, fit, thorough):
        converged.append(fit)
        worse = replace(fit, factors=(fit.factors[0][::-1], *fit.factors[1:]))
        # Whatever the core says of them.
        return replace(worse, loss=(0.5, 2.0)[favoured] * fit.loss)

    monkeypatch.setattr(pipeline, "improved", other)
    assert abs(decompose(tensor, 3, random_state=0).residual - best) < 1e-9
    assert converged


def test_components_too_many_meet_a_target_on_the_tensor():
    rng = np.random.default_rng(6)
    factors = [np.linalg.qr(rng.standard_normal((40, 3)))[0] for _ in range(3)]
    tensor = compose(factors, [3.0, 2.0, 1.5]) + 1e-3 * rng.standard_normal((40, 40, 40))
    whole = decompose(tensor, 9)
    met = decompose(tensor, 9, target=1.002 * whole.residual)
    assert met.status is Status.TARGET_REACHED
    assert met.residual <= 1.002 * whole.residual
    assert met.residual == pytest.approx(relative_error(met, tensor), abs=1e-10)
    assert met.history[-1] == pytest.approx(met.residual, rel=1e-9)
    assert met.n_iter < whole.n_iter


def test_what_is_beyond_noise_is_what_a_component_could_have():
    floor = NoiseFloor((50, 50, 50), 2.0, sharp=True)
    entries = 20**3 - 20 * 58
    noise = 2.0 * entries
    assert floor.beyond_noise(noise, (20, 20, 20), 20) < 0.1 * noise
    assert floor.beyond_noise(noise + 500.0, (20, 20, 20), 20) > 500.0
    # A core with spare directions does not tell how much of it is noise.
    assert NoiseFloor((50, 50, 50), 2.0).beyond_noise(noise, (20, 20, 20), 20) == noise
