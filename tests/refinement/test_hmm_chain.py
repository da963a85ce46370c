import numpy as np
import pytest

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.refinement.hmm import (
    CategoricalEmission,
    GaussianEmission,
    HiddenChain,
    Likelihoods,
    Sequences,
    climb,
    expect,
    likeliest_path,
    total_likelihood,
)
from latensor.refinement.hmm.baum_welch import extrapolated, step
from latensor.refinement.hmm.chain import log_likelihood
from sequence_examples import enumerate_paths


def problem(seed, n_components, lengths):
    rng = np.random.default_rng(seed)
    k = n_components
    start, steps = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    table = rng.random((int(np.sum(lengths)), k))
    return Likelihoods(np.arange(len(table)), table, 2.5), Sequences.of(lengths), start, steps


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_components, lengths", [(1, [3]), (2, [1, 7]), (3, [5, 2, 1, 4])])
def test_posteriors_counts_and_paths_are_those_of_enumeration(seed, n_components, lengths):
    likelihoods, sequences, start, steps = problem(seed, n_components, lengths)
    found = expect(likelihoods, sequences, start, steps, 1)
    score, path = likeliest_path(likelihoods, sequences, start, steps, 1)
    parts = [
        enumerate_paths(start, steps, likelihoods.table[a:b])
        for a, b in zip(sequences.begins, sequences.ends, strict=True)
    ]
    assert found.log_likelihood == pytest.approx(sum(p[0] for p in parts) + 2.5, abs=1e-12)
    assert np.abs(found.posteriors - np.concatenate([p[1] for p in parts])).max() < 1e-13
    assert np.abs(found.steps - sum(p[2] for p in parts)).max() < 1e-13
    assert np.abs(found.starts - sum(p[1][0] for p in parts)).max() < 1e-13
    assert score == pytest.approx(sum(p[3] for p in parts) + 2.5, abs=1e-12)
    assert (path == np.concatenate([p[4] for p in parts])).all()
    assert log_likelihood(likelihoods, sequences, start, steps, 1) == pytest.approx(
        found.log_likelihood, abs=1e-12
    )


@pytest.mark.parametrize(
    "transmat",
    [
        [[0.6, 0.4], [0.3, 0.7]],
        # Memories longer than a range, and for ever.
        [[0.9999, 0.0001], [0.0002, 0.9998]],
        [[1.0, 0.0], [0.0, 1.0]],
        [[0.0, 1.0], [1.0, 0.0]],
    ],
)
def test_cutting_a_sequence_into_ranges_changes_nothing(transmat):
    rng = np.random.default_rng(0)
    n = 3000
    likelihoods = Likelihoods(np.arange(n), 0.9 + 0.2 * rng.random((n, 2)))
    start, steps = np.array([0.8, 0.2]), np.array(transmat)
    lengths = [n - 700, 500, 200]
    whole = expect(likelihoods, Sequences.of(lengths), start, steps, 1)
    assert len(Sequences.of(lengths).ranges) == 1
    cut = Sequences.of(lengths, size=64)
    assert len(cut.ranges) > 20
    found = expect(likelihoods, cut, start, steps, 1)
    assert found.log_likelihood == pytest.approx(whole.log_likelihood, rel=1e-11, abs=1e-9)
    assert np.abs(found.posteriors - whole.posteriors).max() < 1e-10
    assert np.abs(found.steps - whole.steps).max() < 1e-8


@pytest.mark.parametrize("lengths", [[5], [1] * 9, [40], [3, 60, 2], [200, 200], [10] * 30])
def test_ranges_cover_all_rows_and_leave_short_sequences_whole(lengths):
    sequences = Sequences.of(lengths, size=16)
    firsts, lasts = zip(*sequences.ranges, strict=True)
    assert firsts[0] == 0
    assert lasts[-1] == sum(lengths)
    assert firsts[1:] == lasts[:-1]
    for first in firsts:
        owner = int(np.searchsorted(sequences.begins, first, side="right")) - 1
        assert sequences.is_start[first] or sequences.lengths[owner] > 16


def test_an_impossible_row_has_no_likelihood_and_breaks_nothing():
    likelihoods = Likelihoods(np.arange(4), np.array([[1.0, 0.5], [0, 0], [0.5, 1], [1, 1]]))
    found = expect(likelihoods, Sequences.of([4]), np.ones(2) / 2, np.full((2, 2), 0.5), 1)
    assert found.log_likelihood == -np.inf
    assert np.isfinite(found.posteriors).all()


def categorical(seed, n=4000, n_sequences=3, d=6, k=3):
    data = make_hmm(n, d, k, n_sequences=n_sequences, random_state=seed)
    rng = np.random.default_rng(seed + 100)
    start = HiddenChain(
        rng.dirichlet(np.ones(k)),
        rng.dirichlet(np.ones(k), k),
        CategoricalEmission(rng.dirichlet(np.ones(d), k)),
    )
    return start, data.X[:, 0], Sequences.of(data.lengths)


def gaussian(seed, kind, n=3000, p=3, k=3):
    data = make_gaussian_hmm(n, p, k, separation=4.0, covariance="full", random_state=seed)
    shapes = {
        "spherical": np.ones(k),
        "diag": np.ones((k, p)),
        "full": np.repeat(np.eye(p)[None], k, axis=0),
        "tied": np.eye(p),
    }
    rng = np.random.default_rng(seed)
    emission = GaussianEmission(data.X[rng.choice(n, k)], shapes[kind], kind, 1e-6)
    chain = HiddenChain(np.full(k, 1 / k), np.full((k, k), 1 / k), emission)
    return chain, data.X, Sequences.of(data.lengths)


KINDS = ("spherical", "diag", "full", "tied")
PROBLEMS = [lambda: categorical(0), *(lambda kind=kind: gaussian(1, kind) for kind in KINDS)]


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_likelihood_never_falls(make, accelerate):
    chain, rows, sequences = make()
    previous, passes = -np.inf, 0
    for _ in range(8):
        found = climb(
            chain, rows, sequences, max_iter=3, tol=-np.inf, accelerate=accelerate, n_threads=1
        )
        chain, passes = found.chain, passes + found.n_iter
        value = total_likelihood(chain, rows, sequences, 1)
        # The start counts one more sequence than there is: that may cost a little.
        assert value >= previous - 1e-3
        previous = value
    assert passes == 24


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_one_pass_is_the_weighted_estimate(make):
    chain, rows, sequences = make()
    likelihoods = chain.emission.likelihoods(rows, sequences, 1)
    found = expect(likelihoods, sequences, chain.startprob, chain.transmat, 1)
    after, value = step(chain, rows, sequences, 1)
    assert value == found.log_likelihood
    assert np.abs(after.transmat - found.steps / found.steps.sum(axis=1)[:, None]).max() < 1e-12
    weights = found.posteriors
    totals = weights.sum(axis=0)
    if isinstance(after.emission, CategoricalEmission):
        d = after.emission.probabilities.shape[1]
        onehot = np.eye(d)[rows]
        assert np.abs(after.emission.probabilities.T - onehot.T @ weights / totals).max() < 1e-12
        return
    means = (weights.T @ rows) / totals[:, None]
    assert np.abs(after.emission.means - means).max() < 1e-9
    matrices = np.stack(
        [np.cov(rows.T, aweights=weights[:, j], bias=True) for j in range(len(means))]
    )
    expected = {
        "spherical": np.einsum("jaa->j", matrices) / 3,
        "diag": np.einsum("jaa->ja", matrices),
        "full": matrices,
        "tied": np.einsum("j,jab->ab", totals / totals.sum(), matrices),
    }[after.emission.kind]
    assert np.abs(after.emission.covariances - expected).max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_likelihoods_are_gaussian_densities(kind):
    from scipy.stats import multivariate_normal

    chain, rows, sequences = gaussian(2, kind)
    emission = step(chain, rows, sequences, 1)[0].emission
    found = emission.likelihoods(rows, sequences, 1)
    logs = np.log(found.table) + found.row_scale[:, None]
    for j, matrix in enumerate(emission.matrices()):
        expected = multivariate_normal(emission.means[j], matrix).logpdf(rows)
        likely = found.table[:, j] > 1e-200
        assert np.abs(logs[likely, j] - expected[likely]).max() < 1e-8


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_packing_and_unpacking_is_the_identity(make):
    chain, rows, sequences = make()
    chain = step(chain, rows, sequences, 1)[0]
    back = chain.unpacked(np.concatenate(chain.packed()))
    assert np.abs(back.transmat - chain.transmat).max() < 1e-12
    for one, other in zip(back.packed(), chain.packed(), strict=True):
        assert np.abs(one - other).max() < 1e-10


def test_extrapolation_needs_fewer_passes():
    start, rows, sequences = categorical(3, n=6000)
    settings = {"tol": 1e-8, "n_threads": 1, "max_iter": 2000}
    plain = climb(start, rows, sequences, accelerate=False, **settings)
    fast = climb(start, rows, sequences, accelerate=True, **settings)
    assert fast.n_iter < plain.n_iter / 2
    assert fast.history[-1] > plain.history[-1] - 1e-4


def test_an_extrapolated_model_is_valid_and_keeps_what_was_possible():
    start, rows, sequences = categorical(4)
    one = step(start, rows, sequences, 1)[0]
    two = step(one, rows, sequences, 1)[0]
    found, length = extrapolated(start, one, two, 64.0)
    assert 1 <= length <= 64
    assert np.abs(found.emission.probabilities.sum(axis=1) - 1).max() < 1e-12
    assert ((found.emission.probabilities > 0) == (two.emission.probabilities > 0)).all()
    same, length = extrapolated(two, two, two, 4.0)
    assert length == 1
    assert np.abs(same.transmat - two.transmat).max() < 1e-12


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_no_bit(n_threads):
    start, rows, sequences = categorical(5, n=90_000, n_sequences=2)
    assert len(sequences.ranges) > 2
    settings = {"max_iter": 4, "tol": 0.0, "accelerate": True}
    one = climb(start, rows, sequences, n_threads=1, **settings)
    many = climb(start, rows, sequences, n_threads=n_threads, **settings)
    assert one.history == many.history
    assert (one.chain.emission.probabilities == many.chain.emission.probabilities).all()
    chain, points, sequences = gaussian(6, "full", n=50_000)
    one = climb(chain, points, sequences, n_threads=1, **settings)
    many = climb(chain, points, sequences, n_threads=n_threads, **settings)
    assert (one.chain.emission.covariances == many.chain.emission.covariances).all()


def test_a_state_that_nothing_belongs_to_stays_as_it_is():
    rows = np.array([0, 1, 0, 1, 1, 0])
    probabilities = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    chain = HiddenChain(np.array([1.0, 0.0]), np.eye(2), CategoricalEmission(probabilities))
    after = step(chain, rows, Sequences.of([6]), 1)[0]
    assert (after.emission.probabilities[1] == probabilities[1]).all()
    assert (after.transmat == np.eye(2)).all()
