"""Hidden Markov models for tests: their exact moments, and what enumeration says about them."""

import itertools
from dataclasses import dataclass

import numpy as np

from latensor.datasets.sequences import stationary_distribution
from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.moments.sequences import DECAYS, LAGS, Pairs, Windows
from latensor.refinement.em import em
from latensor.refinement.hmm import ChainFamily, ChainOnRows, Sequences

# So many rows that nothing is left of the noise.
MANY = 1e24


def expect(*given):
    return ChainOnRows(*given).expect()


def likeliest_path(*given):
    return ChainOnRows(*given).likeliest_path()


def log_likelihood(*given):
    return ChainOnRows(*given).log_likelihood()


def random_chain(rng, n_components, stay=0.3):
    transmat = stay * np.eye(n_components) + (1 - stay) * rng.dirichlet(
        np.ones(n_components), n_components
    )
    return stationary_distribution(transmat), transmat


def population_pairs(startprob, transmat, emissions, n_sequences=MANY):
    fraction = stationary_distribution(transmat)
    tables = {
        lag: MANY
        * emissions.T
        @ (fraction[:, None] * np.linalg.matrix_power(transmat, lag))
        @ emissions
        for lag in LAGS
    }
    return Pairs(
        MANY, n_sequences, MANY * fraction @ emissions, n_sequences * startprob @ emissions, tables
    )


def population_windows(transmat, emissions, features, observed=None):
    """The sums over rows of an endless sequence; `observed` (k, g) are means given the state."""
    fraction = stationary_distribution(transmat)
    identity = np.eye(len(fraction))
    reverse = (fraction[:, None] * transmat).T / fraction[:, None]
    seen = emissions @ features

    def window(steps):
        return np.hstack([steps @ np.linalg.solve(identity - g * steps, seen) for g in DECAYS])

    past, future = window(reverse), window(transmat)
    joint = MANY * fraction[:, None] * emissions
    observed = np.zeros((len(fraction), 0)) if observed is None else observed
    weighted = MANY * fraction[:, None] * observed
    return Windows(
        joint.sum(axis=0),
        joint.T @ past,
        joint.T @ future,
        np.einsum("jc,ja,jb->cab", joint, past, future),
        weighted.sum(axis=0),
        weighted.T @ past,
        weighted.T @ future,
    )


def enumerate_paths(startprob, transmat, likelihoods):
    """Log-likelihood, posteriors, expected steps and the best path, by all k^n paths."""
    n, k = likelihoods.shape
    total, best, best_path = 0.0, -1.0, None
    posteriors, steps = np.zeros((n, k)), np.zeros((k, k))
    for path in itertools.product(range(k), repeat=n):
        value = startprob[path[0]] * likelihoods[0, path[0]]
        for t in range(1, n):
            value *= transmat[path[t - 1], path[t]] * likelihoods[t, path[t]]
        total += value
        posteriors[np.arange(n), path] += value
        for before, after in itertools.pairwise(path):
            steps[before, after] += value
        if value > best:
            best, best_path = value, path
    return np.log(total), posteriors / total, steps / total, np.log(best), np.array(best_path)


def match(found, truth):
    """The order of the rows of `found` that fits `truth` best."""
    from scipy.optimize import linear_sum_assignment

    cost = np.abs(truth[:, None] - found[None]).sum(axis=2)
    return linear_sum_assignment(cost)[1]


@dataclass(frozen=True, eq=False)
class Coded:
    """Symbols in the first column of rows, further quantities in the others."""

    n_symbols: int

    def __call__(self, rows):
        return np.ascontiguousarray(rows[:, 0].astype(np.int64) if rows.ndim == 2 else rows)

    def observables(self, rows):
        return rows[:, 1:] if rows.ndim == 2 else None

    def missing(self, rows):
        return np.zeros(len(rows), dtype=bool)


def units(rows, lengths, weights=None):
    """A batch of sequences."""
    count = len(lengths)
    weights = np.ones(count) if weights is None else np.asarray(weights, dtype=np.float64)
    return Batch((Ragged.of(rows, lengths),), weights, np.arange(count, dtype=np.uint64))


def raised(chain, rows, lengths, weights=None, design=None, **settings):
    """EM from a chain over sequences in memory."""
    design = chain.emission.design if design is None else design
    family = ChainFamily(design)
    prepared = family.prepare(units(rows, lengths, weights))
    return em(lambda start: start.update(prepared), family, chain, prepared=True, **settings)


def one_step(chain, rows, lengths, weights=None, size=16_384, design=None):
    """The chain after one step of EM, and the log-likelihood before it."""
    family = ChainFamily(chain.emission.design if design is None else design)
    batch = units(rows, lengths, weights)
    sequences = Sequences.within(batch.rows, batch.weights, size)
    design = family.prepare(batch).parts[1]
    prepared = Batch((batch.rows, design, sequences), batch.weights, batch.keys)
    sums = family.expect(chain, prepared)
    return family.maximize(sums, chain), sums["log_likelihood"]


def prepared_rows(emission, rows, lengths):
    """Rows as emissions take them."""
    return ChainFamily(emission.design).prepare(units(rows, lengths)).parts[1]


def log_likelihood_of(chain, rows, lengths):
    family = ChainFamily(chain.emission.design)
    return family.log_likelihood(chain, family.prepare(units(rows, lengths)))
