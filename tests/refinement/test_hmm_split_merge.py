import numpy as np
import pytest

from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.refinement.hmm import (
    CategoricalEmission,
    GaussianEmission,
    HiddenChain,
    Sequences,
    climb,
    rearranged,
    total_likelihood,
)
from latensor.refinement.hmm.split_merge import one_of_two, two_of_one

KINDS = ("spherical", "diag", "full", "tied")


def gaussian(kind, k=4, p=2, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((k, p, p))
    full = np.einsum("jab,jcb->jac", roots, roots) + np.eye(p)
    covariances = {
        "spherical": rng.uniform(0.5, 2, k),
        "diag": rng.uniform(0.5, 2, (k, p)),
        "full": full,
        "tied": full[0],
    }[kind]
    return GaussianEmission(rng.standard_normal((k, p)), covariances, kind, 1e-6)


def categorical(k=4, d=6, seed=0):
    return CategoricalEmission(np.random.default_rng(seed).dirichlet(np.ones(d), k))


def chain_of(emission, k=4, seed=1):
    rng = np.random.default_rng(seed)
    return HiddenChain(rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k), emission)


def is_valid(chain):
    assert abs(chain.startprob.sum() - 1) < 1e-12
    assert np.abs(chain.transmat.sum(axis=1) - 1).max() < 1e-12
    assert min(chain.startprob.min(), chain.transmat.min()) >= 0


@pytest.mark.parametrize("kind", KINDS)
def test_pooled_gaussians_have_the_moments_of_both(kind):
    emission = gaussian(kind)
    pooled = emission.pooled(1, 3, 0.3)
    shares = np.array([0.3, 0.7])
    means, matrices = emission.means[[1, 3]], emission.matrices()[[1, 3]]
    center = shares @ means
    second = np.einsum("j,jab->ab", shares, matrices)
    if kind != "tied":
        second = second + np.einsum("j,ja,jb->ab", shares, means - center, means - center)
    if kind == "spherical":
        second = np.trace(second) / 2 * np.eye(2)
    elif kind == "diag":
        second = np.diag(np.diag(second))
    for state in (1, 3):
        assert np.abs(pooled.means[state] - center).max() < 1e-12
        assert np.abs(pooled.matrices()[state] - second).max() < 1e-12
    for state in (0, 2):
        assert np.array_equal(pooled.means[state], emission.means[state])


@pytest.mark.parametrize("kind", KINDS)
def test_halves_of_a_gaussian_have_its_mean_and_trace(kind):
    emission = gaussian(kind)
    direction = np.array([0.6, 0.8])
    parted = emission.parted(2, 0, direction)
    halves = parted.means[[2, 0]]
    assert np.abs(halves.mean(axis=0) - emission.means[2]).max() < 1e-12
    assert np.linalg.norm(halves[0] - halves[1]) > 0.5
    if kind != "tied":
        shift = (halves[0] - halves[1]) / 2
        total = np.trace(parted.matrices()[2]) + shift @ shift
        assert abs(total - np.trace(emission.matrices()[2])) < 1e-9
    assert np.linalg.eigvalsh(parted.matrices()).min() > 0


def test_halves_of_symbols_have_their_mean():
    emission = categorical()
    pooled = emission.pooled(0, 1, 0.25)
    assert np.allclose(pooled.probabilities[0], 0.25 * emission.probabilities[0]
                       + 0.75 * emission.probabilities[1])  # fmt: skip
    direction = np.random.default_rng(0).standard_normal(6)
    direction -= (direction @ np.sqrt(emission.probabilities[2])) * np.sqrt(
        emission.probabilities[2]
    )
    parted = emission.parted(2, 3, direction / np.linalg.norm(direction))
    halves = parted.probabilities[[2, 3]]
    assert np.abs(halves.sum(axis=1) - 1).max() < 1e-12
    assert halves.min() >= 0
    assert np.abs(halves[0] - halves[1]).sum() > 0.05


@pytest.mark.parametrize("emission", [gaussian("diag"), categorical()])
def test_moves_keep_probabilities(emission):
    chain = chain_of(emission)
    united = one_of_two(chain, 0, 2, np.array([3.0, 1.0, 1.0, 2.0]))
    is_valid(united)
    assert np.array_equal(united.transmat[0], united.transmat[2])
    assert np.allclose(united.transmat[:, 0], united.transmat[:, 2])
    size = 2 if isinstance(emission, GaussianEmission) else 6
    moved = two_of_one(united, 3, (0, 2), np.eye(size)[0])
    is_valid(moved)
    assert np.allclose(moved.transmat[:, 3], moved.transmat[:, 2])


@pytest.mark.parametrize("seed", [2, 3, 6, 7, 8, 9])
def test_a_wrong_optimum_is_left_and_the_right_one_is_not(seed):
    made = make_gaussian_hmm(6_000, 2, 5, separation=6.0, stay=0.5, random_state=seed)
    sequences = Sequences.of(made.lengths)
    truth = HiddenChain(
        made.startprob,
        made.transmat,
        GaussianEmission(made.means, np.einsum("jaa->ja", made.covars), "diag", 1e-6),
    )
    options = {"max_iter": 60, "tol": 1e-7, "accelerate": True, "n_threads": 1}
    best = climb(truth, made.X, sequences, **options)
    assert rearranged(best.chain, made.X, sequences, 1, 0.004) == []
    # Two neighbours far from state 0 as one, and state 0 in two halves.
    distances = ((made.means[:, None] - made.means) ** 2).sum(axis=2)
    near = [int(s) for s in np.argsort(distances[np.argmax(distances[0])]) if s != 0][:2]
    wrong = two_of_one(
        one_of_two(best.chain, *near, np.ones(5)), 0, (near[0], near[1]), np.array([1.0, 0.0])
    )
    stuck = climb(wrong, made.X, sequences, **options)
    assert stuck.history[-1] < best.history[-1] - 0.01
    moves = rearranged(stuck.chain, made.X, sequences, 1, 0.05)
    reached = max(climb(move, made.X, sequences, **options).history[-1] for move in moves)
    assert reached > best.history[-1] - 1e-3


def test_two_states_have_nothing_to_move():
    made = make_hmm(500, 4, 2, random_state=0)
    chain = HiddenChain(made.startprob, made.transmat, CategoricalEmission(made.emissionprob))
    assert rearranged(chain, made.X[:, 0], Sequences.of(made.lengths), 1, 1.0) == []


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_no_bit(n_threads):
    made = make_hmm(40_000, 6, 4, random_state=1)
    rows, sequences = made.X[:, 0], Sequences.of(made.lengths)
    chain = HiddenChain(made.startprob, made.transmat, CategoricalEmission(made.emissionprob))
    alone = rearranged(chain, rows, sequences, 1, 10.0)
    several = rearranged(chain, rows, sequences, n_threads, 10.0)
    assert len(alone) == len(several) > 0
    for one, other in zip(alone, several, strict=True):
        assert np.array_equal(one.emission.probabilities, other.emission.probabilities)
        assert np.isfinite(total_likelihood(one, rows, sequences, 1))
