import numpy as np
import pytest

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.refinement.hmm import (
    CategoricalEmission,
    ChainFamily,
    GaussianEmission,
    HiddenChain,
    Likelihoods,
    Sequences,
)
from sequence_examples import (
    enumerate_paths,
    expect,
    likeliest_path,
    log_likelihood,
    log_likelihood_of,
    one_step,
    prepared_rows,
    raised,
    units,
)


def problem(seed, n_components, lengths):
    rng = np.random.default_rng(seed)
    k = n_components
    start, steps = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    table = rng.random((int(np.sum(lengths)), k))
    scale = np.full(len(table), 0.1)
    return Likelihoods(np.arange(len(table)), table, scale), Sequences.of(lengths), start, steps


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
    assert found.log_likelihood == pytest.approx(
        sum(p[0] for p in parts) + 0.1 * sum(lengths), abs=1e-12
    )
    assert np.abs(found.posteriors - np.concatenate([p[1] for p in parts])).max() < 1e-13
    assert np.abs(found.steps - sum(p[2] for p in parts)).max() < 1e-13
    assert np.abs(found.starts - sum(p[1][0] for p in parts)).max() < 1e-13
    assert score == pytest.approx(sum(p[3] for p in parts) + 0.1 * sum(lengths), abs=1e-12)
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


@pytest.mark.parametrize("n_rows", [4, 3000])
@pytest.mark.parametrize("smallest", [0.3, 1e-30, 1e-200, 1e-290])
def test_what_is_nearly_impossible_is_still_told(n_rows, smallest):
    """Rows that swap two states which the chain hardly ever leaves: the rows decide."""
    table = np.tile([[1.0, 0.0], [0.0, 1.0]], (n_rows // 2, 1))
    start, steps = (
        np.array([1.0, 0.0]),
        np.array([[1 - smallest, smallest], [smallest, 1 - smallest]]),
    )
    likelihoods, sequences = Likelihoods(np.arange(n_rows), table), Sequences.of([n_rows])
    found = expect(likelihoods, sequences, start, steps, 1)
    assert found.log_likelihood == pytest.approx((n_rows - 1) * np.log(smallest), rel=1e-6)
    assert np.abs(found.posteriors - table).max() < 1e-6
    assert np.abs(found.steps - [[0, n_rows / 2], [n_rows / 2 - 1, 0]]).max() < 1e-3 * n_rows
    assert log_likelihood(likelihoods, sequences, start, steps, 1) == found.log_likelihood


@pytest.mark.parametrize("half", [3, 2000])
def test_an_impossible_sequence_is_cut_where_it_becomes_so(half):
    """The first part as if it were alone, the second as one of an unknown first state."""
    rng = np.random.default_rng(0)
    table = rng.random((2 * half, 3))
    # From states 0 and 1 nothing leads to state 2, which alone gives the row in the middle.
    steps = np.array([[0.6, 0.4, 0.0], [0.3, 0.7, 0.0], [0.2, 0.2, 0.6]])
    start = np.array([0.5, 0.5, 0.0])
    table[half] = [0.0, 0.0, 1.0]
    found = expect(Likelihoods(np.arange(2 * half), table), Sequences.of([2 * half]), start, steps)
    assert found.log_likelihood == -np.inf
    first = expect(Likelihoods(np.arange(half), table), Sequences.of([half]), start, steps)
    rest = table[half:].copy()
    rest[0] = 1.0
    last = expect(
        Likelihoods(np.arange(half), rest), Sequences.of([half]), np.full(3, 1 / 3), steps
    )
    expected = np.concatenate([first.posteriors, last.posteriors])
    assert np.abs(found.posteriors - expected).max() < 1e-10
    assert np.abs(found.steps - first.steps - last.steps).max() < 1e-8


def categorical(seed, n=4000, n_sequences=3, d=6, k=3):
    data = make_hmm(n, d, k, n_sequences=n_sequences, random_state=seed)
    rng = np.random.default_rng(seed + 100)
    start = HiddenChain(
        rng.dirichlet(np.ones(k)),
        rng.dirichlet(np.ones(k), k),
        CategoricalEmission(rng.dirichlet(np.ones(d), k)),
    )
    return start, data.X[:, 0], data.lengths


def gaussian(seed, kind, n=3000, p=3, k=3):
    data = make_gaussian_hmm(n, p, k, separation=4.0, covariance="full", random_state=seed)
    shapes = {
        "spherical": np.ones(k),
        "diag": np.ones((k, p)),
        "full": np.repeat(np.eye(p)[None], k, axis=0),
        "tied": np.eye(p),
    }
    rng = np.random.default_rng(seed)
    emission = GaussianEmission.of(data.X[rng.choice(n, k)], shapes[kind], kind, 1e-6)
    chain = HiddenChain(np.full(k, 1 / k), np.full((k, k), 1 / k), emission)
    return chain, data.X, data.lengths


KINDS = ("spherical", "diag", "full", "tied")
PROBLEMS = [lambda: categorical(0), *(lambda kind=kind: gaussian(1, kind) for kind in KINDS)]


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
@pytest.mark.parametrize("accelerate", [False, True])
def test_the_likelihood_never_falls(make, accelerate):
    chain, rows, lengths = make()
    found = raised(chain, rows, lengths, max_iter=24, tol=-np.inf, accelerate=accelerate)
    assert found.n_iter == len(found.history) == 24
    if not accelerate:
        # The start counts one more sequence than there is: that may cost a little.
        assert (np.diff(found.history) >= -1e-6).all()
    assert log_likelihood_of(found.state, rows, lengths) / len(rows) >= max(found.history) - 1e-6


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_one_pass_is_the_weighted_estimate(make):
    chain, rows, lengths = make()
    sequences = Sequences.of(lengths)
    design = prepared_rows(chain.emission, rows, lengths)
    likelihoods = chain.emission.likelihoods(design)
    found = expect(likelihoods, sequences, chain.startprob, chain.transmat, 1)
    after, value = one_step(chain, rows, lengths)
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


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_a_step_maximizes_the_complete_likelihood(make):
    chain, rows, lengths = make()
    family = ChainFamily(chain.emission.design)
    sums = family.expect(chain, family.prepare(units(rows, lengths)))
    # Without the one more start and the least variance, which the likelihood knows nothing of.
    sums["totals"] = sums["totals"].copy()
    after = family.maximize({**sums, "weight": 1e30}, chain)
    best = family.complete(sums, after)
    rng = np.random.default_rng(0)
    vector = family.pack(after)
    for _ in range(10):
        other = family.unpack(vector + 0.01 * rng.standard_normal(len(vector)), after)
        assert family.complete(sums, other) <= best + 1e-6 * abs(best)


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_pieces_with_margins_add_up_to_the_whole(make):
    chain, rows, lengths = make()
    family = ChainFamily(chain.emission.design)
    batch = units(rows, lengths)
    pieces, owners = batch.rows.cut(700, 300)
    cut = type(batch)((pieces,), batch.weights[owners], np.arange(len(owners), dtype=np.uint64))
    whole, found = (family.expect(chain, family.prepare(b)) for b in (batch, cut))
    assert len(owners) > 3
    assert found["weight"] == whole["weight"]
    for name, expected in whole.items():
        assert np.abs(found[name] - expected).max() <= 1e-9 * np.abs(expected).max(), name


@pytest.mark.parametrize("kind", KINDS)
def test_likelihoods_are_gaussian_densities(kind):
    from scipy.stats import multivariate_normal

    chain, rows, lengths = gaussian(2, kind)
    emission = one_step(chain, rows, lengths)[0].emission
    design = prepared_rows(emission, rows, lengths)
    found = emission.likelihoods(design)
    logs = np.log(found.table) + found.row_scale[:, None]
    for j, matrix in enumerate(emission.matrices()):
        expected = multivariate_normal(emission.means[j], matrix).logpdf(rows)
        likely = found.table[:, j] > 1e-200
        assert np.abs(logs[likely, j] - expected[likely]).max() < 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_missing_entries_have_marginal_densities_and_conditional_moments(kind):
    from scipy.stats import multivariate_normal

    chain, rows, lengths = gaussian(2, kind, n=400)
    emission = one_step(chain, rows, lengths)[0].emission
    rng = np.random.default_rng(1)
    holes = rows.copy()
    holes[rng.random(rows.shape) < 0.4] = np.nan
    holes[:3] = np.nan
    design = prepared_rows(emission, holes, lengths)
    found = emission.likelihoods(design)
    logs = np.log(np.maximum(found.table[found.index], 1e-300)) + found.row_scale[:, None]
    posteriors = rng.dirichlet(np.ones(3), len(rows))

    class Known:
        def weighted(self):
            return posteriors

    after = emission.maximized(emission.sums(design, Known()))
    firsts, products = np.zeros((3, 3)), np.zeros((3, 3, 3))
    for t, row in enumerate(holes):
        seen = ~np.isnan(row)
        for j, matrix in enumerate(emission.matrices()):
            mean, rest = emission.means[j].copy(), matrix.copy()
            if seen.any():
                part = matrix[np.ix_(seen, seen)]
                expected = multivariate_normal(mean[seen], part).logpdf(row[seen])
                assert logs[t, j] == pytest.approx(expected, abs=1e-8) or expected < -500
                gain = matrix[:, seen] @ np.linalg.inv(part)
                mean = mean + gain @ (row[seen] - mean[seen])
                rest = matrix - gain @ matrix[seen]
            else:
                assert logs[t, j] == 0
            firsts[j] += posteriors[t, j] * mean
            products[j] += posteriors[t, j] * (np.outer(mean, mean) + rest)
    counts = posteriors.sum(axis=0)
    means = firsts / counts[:, None]
    if kind in ("full", "tied"):
        scatter = products - counts[:, None, None] * means[:, :, None] * means[:, None, :]
        expected = scatter / counts[:, None, None]
        expected = scatter.sum(axis=0) / counts.sum() if kind == "tied" else expected
    else:
        # Of independent entries those that were not observed tell nothing at all.
        seen = ~np.isnan(holes)
        counts, rows = posteriors.T @ seen, np.where(seen, holes, 0.0)
        means = posteriors.T @ rows / counts
        squares = posteriors.T @ rows**2 - counts * means**2
        expected = squares / counts
        expected = squares.sum(axis=1) / counts.sum(axis=1) if kind == "spherical" else expected
    assert np.abs(after.means - means).max() < 1e-8
    assert np.abs(after.covariances - expected).max() < 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_likelihood_of_what_was_observed_never_falls(kind):
    chain, rows, lengths = gaussian(3, kind, n=1500)
    rows = rows.copy()
    rows[np.random.default_rng(2).random(rows.shape) < 0.3] = np.nan
    found = raised(chain, rows, lengths, max_iter=15, tol=-np.inf, accelerate=False)
    assert (np.diff(found.history) >= -1e-6).all()


@pytest.mark.parametrize("make", PROBLEMS, ids=["categorical", *KINDS])
def test_packing_and_unpacking_is_the_identity(make):
    chain, rows, lengths = make()
    chain = one_step(chain, rows, lengths)[0]
    family = ChainFamily(chain.emission.design)
    back = family.unpack(family.pack(chain), chain)
    assert np.abs(back.transmat - chain.transmat).max() < 1e-12
    assert np.abs(family.pack(back) - family.pack(chain)).max() < 1e-10


def test_extrapolation_needs_fewer_passes():
    start, rows, lengths = categorical(3, n=6000)
    settings = {"tol": 1e-8, "max_iter": 2000}
    plain = raised(start, rows, lengths, accelerate=False, **settings)
    fast = raised(start, rows, lengths, accelerate=True, **settings)
    assert fast.n_iter < plain.n_iter / 2
    assert fast.history[-1] > plain.history[-1] - 1e-4


def test_zeros_stay_zeros_and_what_is_not_named_stays_as_it_is():
    start, rows, lengths = categorical(4)
    left_right = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])
    chain = HiddenChain(np.array([1.0, 0.0, 0.0]), left_right, start.emission)
    found = raised(chain, rows, lengths, max_iter=30).state
    assert ((found.transmat > 0) <= (left_right > 0)).all()
    assert np.array_equal(found.startprob, chain.startprob)
    family = ChainFamily(chain.emission.design, "t")
    sums = family.expect(start, family.prepare(units(rows, lengths)))
    after = family.maximize(sums, start)
    assert np.array_equal(after.startprob, start.startprob)
    assert np.array_equal(after.emission.probabilities, start.emission.probabilities)
    assert np.abs(after.transmat - start.transmat).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_covariances_around_means_that_stay(kind):
    chain, rows, lengths = gaussian(5, kind, k=1)
    family = ChainFamily(chain.emission.design, "c")
    after = family.maximize(family.expect(chain, family.prepare(units(rows, lengths))), chain)
    assert np.array_equal(after.emission.means, chain.emission.means)
    centred = rows - chain.emission.means[0]
    expected = {
        "spherical": (centred**2).mean(),
        "diag": (centred**2).mean(axis=0),
        "full": centred.T @ centred / len(rows),
        "tied": centred.T @ centred / len(rows),
    }[kind]
    assert np.abs(after.emission.covariances - expected).max() < 1e-5


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_no_bit(n_threads):
    start, rows, lengths = categorical(5, n=90_000, n_sequences=2)
    sequences = Sequences.of(lengths)
    assert len(sequences.ranges) > 2
    likelihoods = start.emission.likelihoods(rows)
    one, many = (
        expect(likelihoods, sequences, start.startprob, start.transmat, n) for n in (1, n_threads)
    )
    assert one.log_likelihood == many.log_likelihood
    assert np.array_equal(one.steps, many.steps)


def test_a_state_that_nothing_belongs_to_stays_as_it_is():
    rows = np.array([0, 1, 0, 1, 1, 0])
    probabilities = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]])
    chain = HiddenChain(np.array([1.0, 0.0]), np.eye(2), CategoricalEmission(probabilities))
    after = one_step(chain, rows, [6])[0]
    assert (after.emission.probabilities[1] == probabilities[1]).all()
    assert (after.transmat == np.eye(2)).all()


def test_symbols_that_were_never_seen_fraction_one_row():
    rows = np.array([0, 1, 0, 1, 1, 0])
    probabilities = np.array([[0.4, 0.4, 0.1, 0.1], [0.5, 0.5, 0.0, 0.0]])
    chain = HiddenChain(np.array([1.0, 0.0]), np.eye(2), CategoricalEmission(probabilities))
    after = one_step(chain, rows, [6])[0].emission.probabilities
    assert np.abs(after[0] - np.array([3, 3, 0.5, 0.5]) / 7).max() < 1e-12
    # What was said to be impossible stays so.
    assert (after[1, 2:] == 0).all()


def test_a_symbol_that_is_missing_says_nothing():
    start, rows, lengths = categorical(6, n=50)
    holes = rows.copy()
    holes[[3, 20, 21]] = -1
    found = log_likelihood_of(start, holes, lengths)
    table = start.emission.probabilities.T[rows]
    table[[3, 20, 21]] = 1.0
    expected = log_likelihood(
        Likelihoods(np.arange(50), table), Sequences.of(lengths), start.startprob, start.transmat
    )
    assert found == pytest.approx(expected, rel=1e-12)
