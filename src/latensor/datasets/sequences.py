"""Planted sequences of hidden Markov models, with the states and parameters that made them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int, generator
from latensor.arrays.randomness import RandomState
from latensor.exceptions import InvalidInputError


@dataclass(frozen=True)
class HMMSample:
    """Sequences of symbols and their truth.

    Attributes
    ----------
    X : (n, 1) int64 symbols, sequence after sequence
    lengths : (s,) int64
    states : (n,) int64, the hidden states
    startprob : (k,)
    transmat : (k, k), rows sum to one
    emissionprob : (k, d), rows sum to one
    """

    X: Any
    lengths: Any
    states: Any
    startprob: Any
    transmat: Any
    emissionprob: Any


@dataclass(frozen=True)
class GaussianHMMSample:
    """Sequences of points and their truth.

    Attributes
    ----------
    X : (n, d) points, sequence after sequence
    lengths : (s,) int64
    states : (n,) int64, the hidden states
    startprob : (k,)
    transmat : (k, k), rows sum to one
    means : (k, d)
    covars : (k, d, d)
    """

    X: Any
    lengths: Any
    states: Any
    startprob: Any
    transmat: Any
    means: Any
    covars: Any


def make_hmm(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    n_sequences: int = 1,
    stay: float = 0.5,
    concentration: float = 0.5,
    startprob: Any = None,
    transmat: Any = None,
    emissionprob: Any = None,
    random_state: RandomState = None,
) -> HMMSample:
    """Symbols drawn from a hidden Markov model, to test and compare what learns it.

    Parameters
    ----------
    n_samples, n_features, n_components : int, symbols in all n, kinds of symbols d, states k
    n_sequences : int, of equal lengths up to one
    stay : float in [0, 1), added to the chance of staying: rows of `transmat` are `stay` on the
        diagonal and a draw from the uniform Dirichlet distribution times 1 - `stay`
    concentration : float, Dirichlet parameter of the symbols of a state: small for states with few
        symbols of their own, large for states that are hard to tell apart
    startprob : (k,); by default the stationary distribution of `transmat`
    transmat : (k, k), given instead of drawn
    emissionprob : (k, d), given instead of drawn
    random_state : int, Generator or None

    Returns
    -------
    HMMSample
    """
    d, k, lengths = _check_sizes(n_samples, n_features, n_components, n_sequences)
    rng = generator(random_state)
    start, steps = _chain(rng, k, stay, startprob, transmat)
    if emissionprob is None:
        if not concentration > 0:
            raise InvalidInputError(f"concentration={concentration!r} must be above 0")
        symbols = rng.dirichlet(np.full(d, float(concentration)), k)
    else:
        symbols = check_stochastic(emissionprob, (k, d), "emissionprob")
    states = draw_states(rng, start, steps, lengths)
    return HMMSample(
        draw_symbols(rng, symbols, states)[:, None], lengths, states, start, steps, symbols
    )


def make_gaussian_hmm(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    n_sequences: int = 1,
    stay: float = 0.5,
    separation: float = 3.0,
    covariance: str = "diag",
    startprob: Any = None,
    transmat: Any = None,
    means: Any = None,
    covars: Any = None,
    random_state: RandomState = None,
) -> GaussianHMMSample:
    """Points drawn from a hidden Markov model with Gaussian emissions.

    Parameters
    ----------
    n_samples, n_features, n_components : int, points in all n, their dimension d, states k
    n_sequences : int, of equal lengths up to one
    stay : float in [0, 1), as for `make_hmm`
    separation : float, the mean distance of two means in units of the typical standard deviation
    covariance : "spherical", "diag" or "full": how the covariances are drawn; variances lie
        between 1/2 and 2
    startprob, transmat : as for `make_hmm`
    means : (k, d), given instead of drawn
    covars : (k, d, d), given instead of drawn
    random_state : int, Generator or None

    Returns
    -------
    GaussianHMMSample
    """
    d, k, lengths = _check_sizes(n_samples, n_features, n_components, n_sequences)
    rng = generator(random_state)
    start, steps = _chain(rng, k, stay, startprob, transmat)
    if means is None:
        means = rng.standard_normal((k, d)) * (separation / np.sqrt(2 * d))
        if d == 1:
            # On a line two of several normal draws nearly coincide: spread them evenly instead.
            means = separation * rng.permutation(k)[:, None] + 0.2 * rng.standard_normal((k, 1))
    means = np.asarray(means, dtype=np.float64)
    if means.shape != (k, d):
        raise InvalidInputError(f"means has shape {means.shape}: expected {(k, d)}")
    factors = _factors(rng, k, d, covariance, covars)
    states = draw_states(rng, start, steps, lengths)
    points = draw_points(rng, means, factors, states)
    return GaussianHMMSample(
        points, lengths, states, start, steps, means, factors @ factors.transpose(0, 2, 1)
    )


def _factors(rng: np.random.Generator, k: int, d: int, covariance: str, covars: Any) -> Any:
    if covars is not None:
        given = np.asarray(covars, dtype=np.float64)
        if given.shape != (k, d, d):
            raise InvalidInputError(f"covars has shape {given.shape}: expected {(k, d, d)}")
        return np.linalg.cholesky(given)
    if covariance == "spherical":
        deviations = np.repeat(np.sqrt(rng.uniform(0.5, 2.0, (k, 1))), d, axis=1)
    elif covariance in ("diag", "full"):
        deviations = np.sqrt(rng.uniform(0.5, 2.0, (k, d)))
    else:
        raise InvalidInputError(f"covariance={covariance!r} must be 'spherical', 'diag' or 'full'")
    factors = np.einsum("ja,ab->jab", deviations, np.eye(d))
    if covariance == "full":
        turns = np.linalg.qr(rng.standard_normal((k, d, d)))[0]
        factors = np.linalg.cholesky(turns @ (factors**2) @ turns.transpose(0, 2, 1))
    return factors


def _check_sizes(
    n_samples: object, n_features: object, n_components: object, n_sequences: object
) -> tuple[int, int, Any]:
    n, d, k, s = (
        check_positive_int(value, name)
        for value, name in (
            (n_samples, "n_samples"),
            (n_features, "n_features"),
            (n_components, "n_components"),
            (n_sequences, "n_sequences"),
        )
    )
    if s > n:
        raise InvalidInputError(f"n_sequences={s} exceeds n_samples={n}: a sequence needs a row")
    return d, k, np.diff(np.linspace(0, n, s + 1).astype(np.int64))


def _chain(
    rng: np.random.Generator, k: int, stay: float, startprob: Any, transmat: Any
) -> tuple[Any, Any]:
    if transmat is None:
        if not 0 <= stay < 1:
            raise InvalidInputError(f"stay={stay!r} must be at least 0 and below 1")
        steps = stay * np.eye(k) + (1 - stay) * rng.dirichlet(np.ones(k), k)
    else:
        steps = check_stochastic(transmat, (k, k), "transmat")
    if startprob is None:
        return stationary_distribution(steps), steps
    return check_stochastic(np.asarray(startprob)[None], (1, k), "startprob")[0], steps


def check_stochastic(values: Any, shape: tuple[int, ...], name: str) -> Any:
    """Probabilities (m, n) whose rows sum to one."""
    found = np.asarray(values, dtype=np.float64)
    if found.shape != shape:
        raise InvalidInputError(f"{name} has shape {found.shape}: expected {shape}")
    if not np.isfinite(found).all() or (found < 0).any():
        raise InvalidInputError(f"{name} must hold finite numbers of at least 0")
    if np.abs(found.sum(axis=1) - 1).max() > 1e-6:
        raise InvalidInputError(f"{name} must have rows that sum to one")
    return found / found.sum(axis=1, keepdims=True)


def stationary_distribution(transmat: Any) -> Any:
    """The distribution (k,) that a step of the chain leaves as it is.

    The least-squares solution of p T = p, sum p = 1: where several distributions are stationary,
    the one of least norm.
    """
    k = len(transmat)
    system = np.vstack([np.asarray(transmat).T - np.eye(k), np.ones((1, k))])
    target = np.zeros(k + 1)
    target[-1] = 1.0
    found = np.maximum(np.linalg.lstsq(system, target, rcond=None)[0], 0.0)
    return found / found.sum()


def draw_states(rng: np.random.Generator, startprob: Any, transmat: Any, lengths: Any) -> Any:
    """Hidden states (n,) of chains of given lengths, one after the other."""
    edges = [row.tolist() for row in _edges(transmat)]
    start = _edges(np.asarray(startprob)[None])[0].tolist()
    states: list[int] = []
    uniform = iter(rng.random(int(np.sum(lengths))).tolist())
    for length in np.asarray(lengths).tolist():
        state = bisect_right(start, next(uniform))
        states.append(state)
        for _ in range(length - 1):
            state = bisect_right(edges[state], next(uniform))
            states.append(state)
    return np.array(states, dtype=np.int64)


def draw_symbols(rng: np.random.Generator, emissionprob: Any, states: Any) -> Any:
    """A symbol (n,) int64 for every state."""
    uniform = rng.random(len(states))
    edges = _edges(emissionprob)
    symbols = np.empty(len(states), dtype=np.int64)
    for state in range(len(edges)):
        chosen = states == state
        symbols[chosen] = np.searchsorted(edges[state], uniform[chosen], side="right")
    return symbols


def draw_points(rng: np.random.Generator, means: Any, factors: Any, states: Any) -> Any:
    """A point (n, d) for every state: its mean plus its factor (d, d) times normal numbers."""
    points = rng.standard_normal((len(states), means.shape[1]))
    for state in range(len(means)):
        chosen = states == state
        points[chosen] = means[state] + points[chosen] @ factors[state].T
    return points


def _edges(probabilities: Any) -> Any:
    """Where the interval from 0 to 1 is cut; the last cut is left out, so rounding has no gap."""
    return np.cumsum(probabilities, axis=1)[:, :-1]
