"""Moment tensors of batches against those of the same samples in memory."""

import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse

import latensor as lt

N, SIZES = 500, (7, 5, 6)


@pytest.fixture(name="views")
def _views(rng):
    return tuple(rng.standard_normal((N, d)) for d in SIZES)


class Again:
    """Batches made anew on every pass, all in the same memory."""

    def __init__(self, parts):
        self.parts = parts

    def __iter__(self):
        buffers = {}
        for part in self.parts:
            views = []
            for m, view in enumerate(part):
                buffer = buffers.setdefault((m, view.shape), np.empty_like(view))
                buffer[:] = view
                views.append(buffer)
            yield tuple(views)


def cut(arrays, size):
    """Batches of several arrays."""
    return [tuple(a[i : i + size] for a in arrays) for i in range(0, len(arrays[0]), size)]


def forms(views, weights, tmp_path):
    """The same samples as batches of every form, and as they are in memory."""
    rows, sparse = views[0], scipy.sparse.csr_array(views[1] * (views[1] > 0))
    whole = lt.MomentTensor(rows)
    yield "rows", lt.MomentTensor([b for (b,) in cut((rows,), 60)]), whole
    yield "one batch", lt.MomentTensor([rows]), whole
    yield "order 4", lt.MomentTensor([rows[:9], rows[9:]], order=4), lt.MomentTensor(rows, order=4)
    weighted = lt.MomentTensor(rows, weights)
    yield "rows and weights", lt.MomentTensor(cut((rows, weights), 60)), weighted
    views_in_memory = lt.MomentTensor(views)
    yield "views", lt.MomentTensor(cut(views, 60)), views_in_memory
    yield "views again", lt.MomentTensor(Again(cut(views, 60))), views_in_memory
    pairs = list(zip(cut(views, 60), [w for (w,) in cut((weights,), 60)], strict=True))
    yield "views and weights", lt.MomentTensor(pairs), lt.MomentTensor(views, weights)
    mixed = (rows, sparse, views[2])
    yield (
        "sparse",
        lt.MomentTensor(cut(mixed, 60)),
        lt.MomentTensor((rows, sparse.toarray(), views[2])),
    )
    parts = lt.sources.partitions([cut(views, 60)[:4], cut(views, 60)[4:]])
    yield "partitions", lt.MomentTensor(parts), views_in_memory
    path = tmp_path / "rows.csv"
    np.savetxt(path, rows, delimiter=",", header=",".join("abcdefg"), comments="", fmt="%.17g")
    yield "file", lt.MomentTensor(lt.sources.shards(path)), whole
    columns = ["abc", "de", "fg"]
    shards = lt.sources.shards(path, views=[list(c) for c in columns])
    split = (rows[:, :3], rows[:, 3:5], rows[:, 5:])
    yield "views of a file", lt.MomentTensor(shards), lt.MomentTensor(split)


def test_every_form_gives_the_contractions_of_the_samples(rng, views, tmp_path):
    for name, tensor, expected in forms(views, rng.random(N), tmp_path):
        assert isinstance(tensor, lt.MomentTensor), name
        assert tensor.shape == expected.shape, name
        np.testing.assert_allclose(tensor.to_dense(), expected.to_dense(), atol=1e-13, err_msg=name)
        assert float(tensor.norm()) == pytest.approx(float(expected.norm())), name
        factors = [rng.standard_normal((d, 3)) for d in tensor.shape]
        for mode in range(tensor.order):
            np.testing.assert_allclose(
                tensor.mttkrp(factors, mode), expected.mttkrp(factors, mode), atol=1e-12
            )
        assert tensor.n_terms == N
        assert tensor.sum_of_term_norms() == pytest.approx(expected.sum_of_term_norms())
        cp = lt.CPTensor(None, factors)
        assert float(lt.inner(tensor, cp)) == pytest.approx(float(lt.inner(expected, cp)))


def test_neither_threads_nor_the_cut_change_a_bit(rng, views):
    operands = [rng.standard_normal((d, 2)) for d in SIZES]
    found = [
        lt.MomentTensor(cut(views, size), n_jobs=jobs).contract(*operands)
        for size, jobs in ((17, 1), (17, 3), (100, 2), (500, 1))
    ]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_single_precision_stays(views):
    batches = cut([v.astype("float32") for v in views], 60)
    found = lt.MomentTensor(batches).to_dense()
    assert found.dtype == np.float32
    expected = lt.MomentTensor(views).to_dense()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert lt.decompose(lt.MomentTensor(batches), 2).factors[0].dtype == np.float32


def test_a_tensor_of_batches_is_pickled(views):
    tensor = lt.MomentTensor(cut(views, 60))
    again = pickle.loads(pickle.dumps(tensor))
    np.testing.assert_array_equal(again.to_dense(), tensor.to_dense())


class OneIterator:
    """Batches that look as if they could be gone over again, but hand out one iterator."""

    def __init__(self, batches):
        self._iterator = iter(batches)

    def __iter__(self):
        return self._iterator


ROWS = np.ones((4, 3))
REFUSED = {
    "generator": (lambda: (b for b in [ROWS]), {}, "read only once.*StochasticLeastSquares"),
    "one iterator": (lambda: OneIterator([ROWS]), {}, "OneIterator, which can be read only once"),
    "weights": (lambda: [ROWS], {"weights": np.ones(4)}, "give pairs"),
    "order": (lambda: [(ROWS, ROWS, ROWS)], {"order": 4}, "leave order out"),
    "empty": (lambda: [np.ones((0, 3))], {}, "no batch with a sample"),
    "vectors": (lambda: [(ROWS, np.ones(4), ROWS)], {}, "must be a matrix"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_batches_are_refused(case):
    make, settings, message = REFUSED[case]
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.MomentTensor(make(), **settings)


LATER = {
    "width": (np.ones((2, 4)), "4 features, expected 3"),
    "nan": (np.full((2, 3), np.nan), "NaN"),
}


@pytest.mark.parametrize("case", LATER)
def test_bad_later_batches_are_refused(case):
    batch, message = LATER[case]
    with pytest.raises(lt.InvalidInputError, match=message):
        lt.MomentTensor([ROWS, batch]).to_dense()


def test_samples_that_change_between_passes_are_refused():
    batches = [ROWS, ROWS]
    tensor = lt.MomentTensor(batches)
    tensor.to_dense()
    batches.append(ROWS)
    with pytest.raises(lt.InvalidInputError, match="8 samples on the first pass and 12 now"):
        tensor.to_dense()


def planted(rng, d, k, n, noise=1.0):
    means = [rng.standard_normal((d, k)) for _ in range(3)]
    labels = rng.integers(k, size=n)
    return means, tuple(m.T[labels] + noise * rng.standard_normal((n, d)) for m in means)


def angles(means, factors):
    """The largest angle between a mean and the nearest column."""
    found = []
    for mean, factor in zip(means, factors, strict=True):
        unit = mean / np.linalg.norm(mean, axis=0)
        found.append(np.sqrt(np.maximum(1 - np.abs(unit.T @ factor).max(axis=1) ** 2, 0)).max())
    return max(found)


def test_views_are_recovered_in_memory_that_their_number_does_not_change(rng, monkeypatch):
    from latensor.engines import batched_moment

    monkeypatch.setattr(batched_moment, "_BLOCK_ENTRIES", 1 << 15)
    d, k, peaks = 150, 4, []
    for n in (1200, 3600):
        means, views = planted(rng, d, k, n)
        batches = cut(views, 500)
        tracemalloc.start()
        found = lt.decompose(lt.MomentTensor(Again(batches), n_jobs=1), k)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        # One factor has n / k samples of noise 1 per feature against a norm of sqrt(d).
        assert angles(means, found.factors) < 2 * np.sqrt(k / n)
    assert peaks[1] < 1.4 * peaks[0]  # three times the samples
    assert peaks[1] < 8 * d**3 / 2
    # The same path in memory gives the same components.
    inside = lt.decompose(lt.MomentTensor(views), k)
    np.testing.assert_allclose(inside.factors[0], found.factors[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["noise", "exact"])
def test_an_estimated_norm_is_close_and_exact_inside_the_subspaces(rng, kind):
    _, views = planted(rng, 80, 6, 3000, noise=float(kind == "noise"))
    tensor = lt.MomentTensor(views)
    exact = float(tensor.norm()) ** 2
    projection = tensor.projected([40, 40, 40])
    inside = float(np.sum(projection.core**2))
    assert projection.outside == pytest.approx(exact - inside, rel=0.1, abs=1e-10 * exact)


@pytest.mark.parametrize("algorithm", ["als", "gauss_newton"])
def test_algorithms_run_over_batches(rng, algorithm):
    means, views = planted(rng, 40, 3, 3000, noise=0.5)
    found = lt.decompose(lt.MomentTensor(cut(views, 500)), 3, algorithm=algorithm)
    assert angles(means, found.factors) < 0.05


def test_the_power_method_runs_over_batches(rng):
    basis = np.linalg.qr(rng.standard_normal((30, 4)))[0]
    rows = basis.T[rng.integers(4, size=2000)]
    found = lt.decompose(lt.MomentTensor([rows[:700], rows[700:]]), 4, algorithm="power_method")
    cosines = np.abs(basis.T @ found.factors[0]).max(axis=1)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-8)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_a_fit_scales_with_the_samples(rng, scale):
    _, views = planted(rng, 12, 2, 300, noise=0.1)
    plain = lt.decompose(lt.MomentTensor(cut(views, 100)), 2)
    scaled = lt.decompose(lt.MomentTensor(cut([v * scale for v in views], 100)), 2)
    np.testing.assert_allclose(scaled.weights / scale / scale / scale, plain.weights, rtol=1e-6)
