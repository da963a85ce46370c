"""Choice of the rank: planted ranks found, exact and empty cases, structured noise, evidence."""

import itertools
import json

import numpy as np
import pytest
import scipy.ndimage

import latensor as lt
from definitions import draw
from latensor import CPTensor, InvalidInputError
from latensor.diagnostics import core_consistency, select_rank

SHAPE = (20, 25, 15)


def planted(rank, noise, seed, shape=SHAPE, smallest=0.3, kind="gaussian"):
    """A tensor of unit components with weights in [smallest, 1], and noise relative to its norm."""
    rng = np.random.default_rng([seed, rank])
    units = [rng.standard_normal((d, rank)) for d in shape]
    factors = tuple(unit / np.linalg.norm(unit, axis=0) for unit in units)
    dense = CPTensor(rng.uniform(smallest, 1, rank), factors).to_dense()
    error = rng.standard_normal(shape)
    if kind == "outliers":
        error = rng.standard_t(3, shape)
    elif kind == "smooth":
        error = scipy.ndimage.gaussian_filter1d(error, 2, axis=1)
    return dense + noise * np.linalg.norm(dense) / np.linalg.norm(error) * error


@pytest.mark.parametrize(("noise", "allowed"), [(0.01, 0), (0.1, 0), (0.3, 1)])
def test_planted_ranks_are_found(noise, allowed):
    """All of 12 at 1 % and 10 % noise; one miss allowed at 30 %."""
    wrong = []
    for rank in range(1, 7):
        for seed in range(2):
            found = select_rank(planted(rank, noise, seed), n_splits=0, random_state=seed)
            if found.rank != rank or found.structured:
                wrong.append((rank, seed, found.rank))
    assert len(wrong) <= allowed, wrong


@pytest.mark.parametrize(
    ("shape", "ranks"),
    [((6, 5, 4), (1, 2, 3)), ((3, 4, 5), (1, 2)), ((40, 30), (1, 3)), ((5, 4, 3, 3), (1, 3))],
)
def test_small_tensors_matrices_and_order_four(shape, ranks):
    for rank in ranks:
        tensor = planted(rank, 0.1, 0, shape, smallest=0.5)
        assert select_rank(tensor, n_splits=0, random_state=0).rank == rank


@pytest.mark.parametrize(
    ("shape", "rank"),
    [((6, 7, 5), 4), ((50, 40, 45), 3), ((7, 7, 7), 9), ((4, 4), 2), ((3, 3, 3), 1)],
)
def test_exact_tensors_give_their_exact_rank(shape, rank):
    tensor = planted(rank, 0.0, 1, shape)
    found = select_rank(tensor, n_splits=0, random_state=0)
    assert found.rank == rank
    assert "exactly" in found.reason
    assert found.evidence[-1].rank == rank


def test_exact_tensors_of_every_kind(library):
    factors = [draw(np.random.default_rng(m), (d, 3)) for m, d in enumerate((12, 11, 10))]
    dense = CPTensor(None, tuple(factors)).to_dense()
    array = library.array(dense)
    assert select_rank(array, 4, n_splits=1, random_state=0).rank == 3
    if library.name == "numpy":
        for kind in (lt.SparseTensor.from_dense(dense), CPTensor(None, tuple(factors))):
            assert select_rank(kind, 4, n_splits=0, random_state=0).rank == 3
        assert select_rank(dense.astype("float32"), 4, n_splits=0, random_state=0).rank == 3
        assert select_rank(dense * 1j, 4, n_splits=0, random_state=0).rank == 3


def test_nothing_to_find():
    zero = select_rank(np.zeros((4, 5, 6)))
    assert zero.rank == 0
    assert "zero" in zero.reason
    for seed in range(5):
        noise = np.random.default_rng(seed).standard_normal((9, 8, 10))
        found = select_rank(noise, 4, n_splits=0, random_state=0)
        assert found.rank == 0
        assert "noise" in found.reason
    tiny = select_rank(np.random.default_rng(0).standard_normal((2, 3)), random_state=0)
    assert tiny.rank == 0
    assert "too few entries" in tiny.reason


@pytest.mark.parametrize("kind", ["outliers", "smooth"])
def test_structured_noise_is_left_to_what_replicates(kind):
    for seed in range(2):
        tensor = planted(2, 0.1, seed, kind=kind)
        found = select_rank(tensor, 5, random_state=seed)
        assert found.rank == 2
        assert found.structured
        assert "halves" in found.reason
        alone = select_rank(tensor, 4, n_splits=0, random_state=seed)
        assert alone.structured
        assert "n_splits" in alone.reason


def test_evidence_tells_the_ranks_apart():
    tensor = planted(3, 0.1, 0)
    found = select_rank(tensor, 5, random_state=0)
    rows = found.evidence
    assert [row.rank for row in rows] == [0, 1, 2, 3, 4, 5]
    assert int(found) == found.rank == 3
    assert rows[0].residual == 1
    assert all(b.residual <= a.residual * (1 + 1e-6) for a, b in itertools.pairwise(rows))
    assert all(row.signal > 5 for row in rows[1:4])
    assert all(row.signal < 1 for row in rows[4:])
    size = 0.1 * np.linalg.norm(tensor) / np.sqrt(1.01 * tensor.size)
    assert rows[3].noise == pytest.approx(size, rel=0.03)
    assert rows[2].structure > 1.5 > 1.1 > rows[3].structure
    assert rows[3].replicability > 0.99 > 0.5 > rows[4].replicability
    assert rows[3].component_error < 0.1
    assert rows[4].component_error > 0.5
    assert rows[3].spectrum_gap > 3 > 1.2 > rows[4].spectrum_gap
    fit = lt.decompose(tensor, 3, random_state=0)
    assert rows[3].residual == pytest.approx(fit.residual, rel=5e-3)
    assert rows[3].core_consistency == pytest.approx(core_consistency(fit, tensor), abs=0.01)
    values = np.linalg.svd(lt.unfold(tensor, 1), compute_uv=False)
    np.testing.assert_allclose(found.spectra[1][:3], values[:3], rtol=1e-3)


def test_compression_does_not_change_the_evidence():
    tensor = planted(2, 0.1, 3, (60, 50, 40))
    found = select_rank(tensor, 3, n_splits=1, random_state=0)
    assert found.rank == 2
    assert len(found.spectra[0]) < 60
    fit = lt.decompose(tensor, 2, random_state=0)
    assert found.evidence[2].residual == pytest.approx(fit.residual, rel=5e-3)
    assert found.evidence[2].core_consistency == pytest.approx(
        core_consistency(fit, tensor), abs=0.1
    )
    assert found.evidence[2].replicability > 0.99


def test_the_table_and_its_dictionary():
    found = select_rank(planted(2, 0.1, 0), 3, n_splits=1, random_state=0)
    lines = str(found).splitlines()
    assert lines[0].startswith("Proposed rank: 2.")
    assert [line[0] for line in lines[2:]] == [" ", " ", ">", " "]
    assert "RankSelection(rank 2" in repr(found)
    written = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert written["rank"] == 2
    assert len(written["evidence"]) == 4
    assert written["evidence"][2]["residual"] == found.evidence[2].residual


def test_the_limit_is_named_when_it_is_too_low():
    found = select_rank(planted(4, 0.1, 0), 3, n_splits=0, random_state=0)
    assert found.rank == 3
    assert "max_rank" in found.reason or found.structured


def test_a_seed_gives_the_same_evidence():
    tensor = planted(2, 0.2, 0)
    tensor.setflags(write=False)
    first, second = (select_rank(tensor, 3, n_splits=1, random_state=7) for _ in range(2))
    assert first.evidence == second.evidence


@pytest.mark.parametrize(
    ("tensor", "options", "message"),
    [
        (np.ones(4), {}, "a vector is one component"),
        (np.ones((3, 3, 3)), {"max_rank": 0}, "max_rank=0"),
        (np.ones((3, 3, 3)), {"max_rank": 2.5}, "max_rank=2.5"),
        (np.ones((3, 3, 3)), {"n_splits": -1}, "n_splits=-1"),
        (np.ones((3, 3, 3)), {"n_splits": True}, "n_splits=True"),
        (np.ones((3, 3, 3)), {"random_state": "x"}, "random_state='x'"),
        (np.full((3, 3, 3), np.nan), {}, "NaN"),
        (np.ones((0, 3, 3)), {}, "empty"),
        (lt.CPTensor(None, (np.ones((100, 1)),) * 6), {"max_rank": 20}, "lower max_rank"),
    ],
)
def test_bad_input(tensor, options, message):
    with pytest.raises(InvalidInputError, match=message):
        select_rank(tensor, **options)


@pytest.mark.parametrize("exponent", [-660, 400, 664])
def test_entries_near_the_ends_of_the_range_change_nothing_but_the_scale(exponent):
    rng = np.random.default_rng(11)
    tensor = lt.CPTensor([3.0, 2.0], [rng.standard_normal((d, 2)) for d in (12, 11, 10)]).to_dense()
    tensor += 0.1 * rng.standard_normal(tensor.shape)
    plain = lt.select_rank(tensor, 3, n_splits=0, random_state=0)
    scaled = lt.select_rank(np.ldexp(tensor, exponent), 3, n_splits=0, random_state=0)
    assert scaled.rank == plain.rank == 2
    for one, other in zip(scaled.evidence, plain.evidence, strict=True):
        np.testing.assert_allclose(one.residual, other.residual, rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(one.noise, np.ldexp(other.noise, exponent), rtol=1e-6)
    for values, expected in zip(scaled.spectra, plain.spectra, strict=True):
        np.testing.assert_allclose(values, np.ldexp(expected, exponent), rtol=1e-9)


@pytest.mark.parametrize("shape", [(12, 10, 8), (8, 8, 8), (4,) * 5])
def test_noise_in_a_small_tensor_ends_the_search_early(shape):
    for seed in range(2):
        noise = np.random.default_rng(seed).standard_normal(shape)
        found = select_rank(noise, random_state=seed)
        assert found.rank == 0
        assert "No component stands out" in found.reason
        assert len(found.evidence) <= 5  # three ranks that explain no more than noise; perhaps one
