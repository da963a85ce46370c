"""Certificates: each number against its definition, each verdict on a case that deserves it."""

import json

import numpy as np
import pytest

import latensor as lt
from definitions import draw
from latensor import CPTensor, InvalidInputError
from latensor.diagnostics import certify, core_consistency, match
from latensor.diagnostics.components import components_of
from latensor.diagnostics.consistency import consistency_under_noise
from latensor.diagnostics.uniqueness import uniqueness


def planted(rng, rank=3, shape=(9, 8, 7), noise=0.01):
    cp = CPTensor(np.linspace(2, 1, rank), tuple(draw(rng, (d, rank)) for d in shape))
    dense = cp.to_dense()
    error = draw(rng, shape)
    return cp, dense + noise * np.linalg.norm(dense) / np.linalg.norm(error) * error


# Uniqueness


@pytest.mark.parametrize(
    ("shape", "rank", "shown", "word"),
    [
        ((4, 5, 6), 1, True, "one component"),
        ((4, 5, 6), 4, True, "Kruskal"),
        ((4, 4, 4), 5, True, "Kruskal"),
        ((4, 4, 4), 6, False, "no sufficient"),
        ((4, 4, 8), 7, True, "compounds"),  # 15 < 16: beyond Kruskal
        ((3, 3, 3, 3), 4, True, "Kruskal"),
        ((4, 4, 4, 4), 7, True, "grouped"),  # 16 < 17: beyond it too
        ((5, 5), 2, False, "matrix"),
        ((5,), 1, False, "vector"),
    ],
)
def test_uniqueness_of_generic_components(rng, shape, rank, shown, word):
    cp = CPTensor(None, tuple(draw(rng, (d, rank)) for d in shape))
    found = certify(cp).uniqueness
    assert found.shown is shown
    assert word in found.condition
    assert [int(k) for k in found.k_ranks] == [min(d, rank) for d in shape]
    assert found.required == 2 * rank + len(shape) - 1


def test_components_that_fraction_a_vector_are_not_unique(rng):
    factors = [draw(rng, (5, 3)) for _ in range(3)]
    factors[0][:, 1] = 2 * factors[0][:, 0]
    # k-ranks 1 + 3 + 3 = 7 < 8, and two components make a matrix, which splits in many ways.
    one = certify((None, factors))
    assert not one.uniqueness.shown
    assert "not shown" in str(one)
    assert one.condition.value > 1e13


def test_what_error_bars_can_undo_is_not_robustly_unique(rng):
    base = [draw(rng, (6, 3)) for _ in range(3)]
    for factor in base:
        factor[:, 1] = factor[:, 0] + 0.05 * draw(rng, 6)
    components = components_of(CPTensor(None, tuple(base)), "cp")
    assert uniqueness(components, np.zeros(3)).robust is True
    assert uniqueness(components, np.full(3, 0.2)).robust is False
    assert uniqueness(components).robust is None


# Core consistency


def test_core_consistency_is_the_least_squares_core(rng):
    _, tensor = planted(rng, noise=0.3)
    fit = lt.decompose(tensor, 3, random_state=0).tensor
    scale = np.cbrt(np.abs(fit.weights))
    signs = np.sign(fit.weights)
    matrices = [fit.factors[0] * scale * signs, fit.factors[1] * scale, fit.factors[2] * scale]
    kronecker = np.kron(np.kron(matrices[0], matrices[1]), matrices[2])
    core = np.linalg.lstsq(kronecker, tensor.ravel(), rcond=None)[0].reshape(3, 3, 3)
    ideal = np.zeros((3, 3, 3))
    ideal[range(3), range(3), range(3)] = 1
    expected = 100 * (1 - np.sum((core - ideal) ** 2) / 3)
    assert core_consistency(fit, tensor) == pytest.approx(expected, abs=1e-8)


@pytest.mark.parametrize("order", [2, 3, 4])
def test_core_consistency_of_exact_tensors_is_100(library, rng, order):
    factors = tuple(draw(rng, (d, 3)) for d in (6, 5, 4, 3)[:order])
    cp = CPTensor(np.array([1.0, -2.0, 3.0]), factors)
    assert core_consistency(cp, library.array(cp.to_dense())) == pytest.approx(100, abs=1e-8)
    assert core_consistency(cp, cp) == pytest.approx(100, abs=1e-8)
    sparse = lt.SparseTensor.from_dense(cp.to_dense())
    assert core_consistency(cp, sparse) == pytest.approx(100, abs=1e-8)


def test_core_consistency_falls_where_components_interact(rng):
    core = np.zeros((2, 2, 2))
    core[0, 0, 0] = core[1, 1, 1] = 1.0
    core[0, 1, 1] = core[1, 0, 1] = 0.9
    bases = tuple(np.linalg.qr(draw(rng, (d, 2)))[0] for d in (6, 5, 4))
    tucker = lt.TuckerTensor(core, bases)
    assert core_consistency((None, bases), tucker) == pytest.approx(100 * (1 - 2 * 0.81 / 2))
    core[0, 1, 1] = 1e6
    tensor = lt.TuckerTensor(core, bases).to_dense()
    certificate = lt.certify(lt.CPTensor(None, bases), tensor)
    assert certificate.core_consistency < -1e9
    assert "core consistency far below 0 %" in str(certificate)


@pytest.mark.parametrize("seed", range(3))
def test_noise_alone_explains_a_low_core_consistency(seed):
    """Nearly square factors magnify noise in the core, though components are well determined."""
    rng = np.random.default_rng(seed)
    cp = CPTensor(rng.uniform(0.5, 2, 4), [rng.standard_normal((d, 4)) for d in (6, 5, 5, 4)])
    components = components_of(cp, "decomposition")
    signal = cp.to_dense()
    level = 0.05 * np.linalg.norm(signal) / np.sqrt(signal.size)
    draws = [signal + level * rng.standard_normal(signal.shape) for _ in range(200)]
    seen = np.array([core_consistency(cp, noisy) for noisy in draws])
    limit = consistency_under_noise(components, level)
    assert limit is not None
    assert (seen < limit).mean() < 0.03
    assert 100 - seen.mean() > 0.2 * (100 - limit)
    found = lt.decompose(draws[0], 4, random_state=0).certificate
    assert max(found.errors.components) < 0.2
    assert found.verdict != "unstable"


def test_noise_does_not_explain_components_that_interact():
    rng = np.random.default_rng(0)
    factors = [np.linalg.qr(rng.standard_normal((d, 3)))[0] for d in (9, 10, 11)]
    tensor = lt.TuckerTensor(rng.standard_normal((3, 3, 3)), factors).to_dense()
    tensor += 0.01 * rng.standard_normal(tensor.shape)
    found = lt.decompose(tensor, 3, random_state=0).certificate
    assert found.core_consistency < found.consistency_under_noise
    said = {statement.topic: statement.level for statement in found.statements}
    assert said["Number of components"] != "good"


def test_core_consistency_needs_independent_columns(rng):
    cp = CPTensor(None, tuple(draw(rng, (d, 4)) for d in (3, 5, 6)))
    assert core_consistency(cp, cp) is None


# Residual, gap, cancellation


def test_numbers_by_hand():
    weights = np.array([3.0, 1.0, 2.5])
    bases = tuple(np.eye(4)[:, :3] for _ in range(3))
    cp = CPTensor(weights, bases)
    tensor = cp.to_dense()
    tensor[3, 3, 3] = 2.0
    found = certify(cp, tensor)
    assert found.residual == pytest.approx(2 / np.sqrt(9 + 1 + 6.25 + 4))
    assert found.gap == pytest.approx(0.5 / 3)
    assert found.gap_pair == (0, 2)
    assert found.congruence == 0
    assert found.congruence_pair is None
    assert found.inflation == pytest.approx(1)
    assert found.condition.value == pytest.approx(1)
    assert found.core_consistency == pytest.approx(100)
    assert found.errors.noise == pytest.approx(2 / np.sqrt(64 - 30))
    assert found.errors.worst == pytest.approx(tuple(2 / weights))
    # Orthogonal components: each of the 10 tangent directions has variance one.
    assert found.errors.components == pytest.approx(tuple(found.errors.noise * 10**0.5 / weights))


def test_residual_without_the_tensor_is_that_of_the_fit(rng):
    _, tensor = planted(rng, noise=0.2)
    fit = lt.decompose(tensor, 3, random_state=0)
    alone, full = certify(fit), certify(fit, tensor)
    assert alone.residual == pytest.approx(full.residual, rel=1e-6)
    assert alone.errors.noise == pytest.approx(full.errors.noise, rel=1e-3)
    assert alone.core_consistency is None


@pytest.mark.parametrize("kind", ["sparse", "cp", "moment"])
def test_residual_of_tensors_that_are_never_formed(rng, kind):
    if kind == "moment":
        data = lt.MomentTensor(tuple(draw(rng, (30, d)) for d in (5, 4, 3)))
    else:
        data = CPTensor(None, tuple(draw(rng, (d, 6)) for d in (5, 4, 3)))
        if kind == "sparse":
            data = lt.SparseTensor.from_dense(data.to_dense() * (rng.random((5, 4, 3)) < 0.4))
    model = CPTensor(None, tuple(draw(rng, (d, 2)) for d in (5, 4, 3)))
    dense = data.to_dense()
    expected = np.linalg.norm(dense - model.to_dense()) / np.linalg.norm(dense)
    assert certify(model, data).residual == pytest.approx(expected, rel=1e-9)


def test_cancelling_components_are_named(rng):
    vectors = [draw(rng, 6) for _ in range(3)]
    factors = [np.stack([v, v + 0.01 * draw(rng, 6), draw(rng, 6)], axis=1) for v in vectors]
    cp = CPTensor(np.array([100.0, -100.0, 1.0]), tuple(factors))
    found = certify(cp)
    assert found.congruence < -0.99
    assert found.congruence_pair == (0, 1)
    assert found.inflation > 100
    assert found.verdict == "unstable"
    assert "cancel each other" in str(found)


# The monograph's theorems


def test_orthogonal_bounds_hold(rng):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        basis = np.linalg.qr(rng.standard_normal((6, 6)))[0][:, :4]
        truth = CPTensor(np.array([4.0, 3.0, 2.0, 1.0]), (basis,) * 3)
        error = lt.symmetrize(rng.standard_normal((6, 6, 6)))
        error *= 1e-3 / lt.spectral_norm(error).upper
        tensor = truth.to_dense() + error
        fit = lt.decompose(tensor, 4, symmetric=True, random_state=0)
        assert fit.tensor.is_symmetric
        given, estimated = certify(fit, tensor, noise=1e-3), certify(fit, tensor)
        assert not given.bounds.estimated
        assert estimated.bounds.estimated
        assert given.bounds.values == pytest.approx(5e-3)
        np.testing.assert_allclose(given.bounds.vectors, 8e-3 / np.abs(fit.weights))
        assert given.bounds.ratio == pytest.approx(1e-3 * 6 / np.abs(fit.weights).min())
        aligned = match(truth, fit).aligned.normalized()
        for bounds in (given.bounds, estimated.bounds):
            off = np.linalg.norm(aligned.factors[0] - basis, axis=0)
            assert (off <= bounds.vectors).all()
            assert (np.abs(aligned.weights - truth.weights) <= bounds.values).all()
        assert "Guarantee" in str(given)


@pytest.mark.parametrize("kind", ["sparse", "cp"])
def test_bounds_are_those_of_the_entries_for_tensors_that_are_not_formed(rng, kind):
    truth = CPTensor(np.array([3.0, 1.0]), (draw(rng, (4, 2)),) * 3)
    dense = truth.to_dense()
    indices = np.argwhere(dense != 0)
    tensor = truth if kind == "cp" else lt.SparseTensor(indices, dense[tuple(indices.T)], (4, 4, 4))
    found = [lt.decompose(t, 1, symmetric=True, random_state=0) for t in (dense, tensor)]
    expected, bounds = (fit.certificate.bounds for fit in found)
    assert bounds.ratio == pytest.approx(expected.ratio, rel=1e-4)  # two fits, each to its tol


@pytest.mark.parametrize("symmetric", [True, None])
@pytest.mark.parametrize("kind", ["dense", "sparse", "cp", "masked"])
def test_certificates_scale_with_the_tensor(rng, kind, symmetric):
    truth = CPTensor(np.array([3.0, 1.0]), (draw(rng, (4, 2)),) * 3)
    seen = draw(rng, (4, 4, 4)) > -1 if kind == "masked" else None
    expected = None
    for scale in (1.0, 2.0**-990, 2.0**990):
        dense = truth.to_dense() * scale
        places = np.argwhere(dense != 0)
        tensor = {
            "sparse": lt.SparseTensor(places, dense[tuple(places.T)], dense.shape),
            "cp": CPTensor(truth.weights * scale, truth.factors),
        }.get(kind, dense)
        options = {"mask": seen} if kind == "masked" else {"symmetric": symmetric}
        found = lt.decompose(tensor, 1, random_state=0, **options).certificate
        values = [found.residual, found.weights[0] / scale, found.errors.weights[0] / scale]
        values += [] if found.bounds is None else [found.bounds.values / scale]
        expected = expected or values
        assert values == pytest.approx(expected, rel=1e-6)


def test_bounds_need_orthogonal_symmetric_components_of_order_three(rng):
    basis = np.linalg.qr(draw(rng, (5, 5)))[0]
    assert certify((None, (basis,) * 3), noise=1e-3).bounds is not None
    assert certify((None, (basis, basis.copy(), basis)), noise=1e-3).bounds is None
    assert certify((None, (basis,) * 4), noise=1e-3).bounds is None
    assert certify((None, (draw(rng, (5, 3)),) * 3), noise=1e-6).bounds is None
    assert certify((None, (basis,) * 3)).bounds is None
    assert not certify((None, (basis,) * 3), noise=0.5).bounds.informative


def test_whitened_bounds_hold():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        factor = rng.standard_normal((6, 3))
        factor /= np.linalg.norm(factor, axis=0)
        weights = np.array([0.5, 0.3, 0.2])
        second = (factor * weights) @ factor.T
        third = CPTensor(weights, (factor,) * 3)
        small = 1e-5
        error = lt.symmetrize(rng.standard_normal((6, 6, 6)))
        error *= small / lt.spectral_norm(error).upper
        matrix_error = lt.symmetrize(rng.standard_normal((6, 6)))
        matrix_error *= small / np.linalg.norm(matrix_error, 2)
        found = certify(
            third, noise=small, second_moment=second + matrix_error, second_moment_noise=small
        ).bounds
        assert found.whitened
        assert found.informative
        # The procedure itself: whiten, decompose, un-whiten.
        values, vectors = np.linalg.eigh(second + matrix_error)
        values, vectors = values[-3:], vectors[:, -3:]
        whitener, lift = vectors / np.sqrt(values), vectors * np.sqrt(values)
        core = lt.multilinear(third.to_dense() + error, whitener, whitener, whitener)
        fit = lt.decompose(core, 3, symmetric=True, random_state=0)
        flips = np.sign(fit.weights)
        estimates = lift @ (fit.factors[0] * flips)
        target = factor * np.sqrt(weights)
        distances = np.linalg.norm(target[:, :, None] - estimates[:, None, :], axis=0)
        order = distances.argmin(axis=1)
        assert sorted(order) == [0, 1, 2]
        assert (distances.min(axis=1) <= found.vectors).all()
        off = np.abs(weights**-0.5 - np.abs(fit.weights)[order])
        assert (off <= found.values).all()
        # Estimated instead of given, the error of M is what the components leave of it.
        assert certify(third, noise=small, second_moment=second + matrix_error).bounds is not None
        assert (
            certify(third, noise=small, second_moment=second, second_moment_noise=1.0).bounds
            is None
        )


# The text


def test_a_good_fit_is_stable_on_every_library(library):
    _, tensor = planted(np.random.default_rng(0))
    array = library.array(tensor)
    found = certify(lt.decompose(array, 3, random_state=0), array)
    assert found.verdict == "stable"
    text = str(found)
    assert "Verdict: stable" in text
    assert max(len(line) for line in text.splitlines()) <= 100
    for topic in ("Fit", "Unique", "Stability", "Number of components", "Cancellation", "Order"):
        assert f"{topic}:" in text


def test_a_component_fitted_to_noise_is_pointed_out():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        _, tensor = planted(rng, 3, (20, 15, 12), noise=0.1)
        good = certify(lt.decompose(tensor, 3, random_state=0), tensor)
        bad = certify(lt.decompose(tensor, 4, random_state=0), tensor)
        assert good.verdict == "stable"
        assert max(good.errors.components) < 0.1
        assert bad.verdict == "unstable"
        assert max(bad.errors.components) > 0.5
        assert "mostly noise" in str(bad)


@pytest.mark.parametrize(
    "build",
    [
        lambda rng: (CPTensor(None, tuple(draw(rng, (d, 2)) for d in (3, 4, 5))), None),
        lambda rng: (CPTensor(np.zeros(2), tuple(draw(rng, (d, 2)) for d in (3, 4, 5))), None),
        lambda rng: (lt.decompose(np.zeros((3, 4, 5)), 2), np.zeros((3, 4, 5))),
        lambda rng: (lt.decompose(np.ones((3, 4, 5)), 2, random_state=0), np.ones((3, 4, 5))),
        lambda rng: (CPTensor(None, tuple(draw(rng, (d, 9)) for d in (2, 2, 2))), None),
        lambda rng: (CPTensor(None, (draw(rng, (4, 1)),)), None),
        lambda rng: (CPTensor(None, (draw(rng, (4, 2)), draw(rng, (3, 2)))), None),
        lambda rng: (CPTensor(None, (draw(rng, (4, 3), "complex128"),) * 3), None),
        lambda rng: (lt.decompose(draw(rng, (5, 4, 3), "float32"), 2), None),
    ],
)
def test_every_certificate_has_words_and_json(rng, build):
    decomposition, tensor = build(rng)
    found = certify(decomposition, tensor)
    assert "Verdict" in str(found)
    assert repr(found).startswith("Certificate(rank")
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert written["verdict"] == found.verdict
    assert written["rank"] == found.rank
    assert {s["topic"] for s in written["statements"]} >= {"Fit", "Unique", "Stability"}


def test_inputs_are_left_alone(rng):
    cp, tensor = planted(rng)
    arrays = [cp.weights, *cp.factors, tensor]
    for array in arrays:
        array.setflags(write=False)
    copies = [array.copy() for array in arrays]
    certify(cp, tensor)
    for array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor": np.ones((2, 2, 2))}, "tensor has shape"),
        ({"noise": -1.0}, "noise=-1.0"),
        ({"noise": np.nan}, "noise=nan"),
        ({"noise": "little"}, "noise='little'"),
        ({"second_moment_noise": 0.1}, "needs second_moment"),
        ({"second_moment": np.eye(2)}, "second_moment has shape"),
        ({"tensor": np.full((4, 4, 4), np.nan)}, "NaN"),
    ],
)
def test_bad_input(rng, options, message):
    cp = CPTensor(None, (draw(rng, (4, 2)),) * 3)
    with pytest.raises(InvalidInputError, match=message):
        certify(cp, **options)
    with pytest.raises(InvalidInputError, match="decomposition must be a CPTensor"):
        certify(np.ones((2, 2)))


def test_a_model_that_explains_little_says_so():
    rng = np.random.default_rng(0)
    tensor = rng.standard_normal((8, 9, 10))
    found = lt.decompose(tensor, 2, random_state=0)
    text = " ".join(str(lt.certify(found, tensor)).split())
    assert found.residual > 0.75
    assert "Most of the tensor is not explained" in text
    assert "Verdict: stable" not in text


@pytest.mark.parametrize(
    "options, level, word",
    [
        ({}, "good", "the fit converged"),
        ({"algorithm": "als", "max_iter": 1}, "caution", "ended before it converged"),
        ({"target": 0.9}, "caution", "reached `target`"),
    ],
)
def test_a_fit_that_was_ended_early_is_not_called_stable(rng, options, level, word):
    _, data = planted(rng)
    found = lt.decompose(data, 3, random_state=0, **options)
    certificate = found.certificate
    stated = next(s for s in certificate.statements if s.topic == "Convergence")
    assert stated.level == level
    assert word in stated.text
    assert (certificate.verdict == "stable") <= (level == "good")
    assert certificate.to_dict()["status"] == found.status.name
    assert lt.certify(found.tensor, data).status is None
