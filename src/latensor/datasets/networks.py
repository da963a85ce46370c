"""Planted networks: samples with the hidden causes and the parameters that made them."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import RandomState, check_positive_int, generator
from latensor.exceptions import InvalidInputError

# Entries drawn at once: memory stays small, and a seed means the same whatever the size.
_DRAWN = 2**16


@dataclass(frozen=True)
class NoisyOrSample:
    """Samples of a noisy-or network and their truth.

    Attributes
    ----------
    samples : (n, d) of zeros and ones
    causes : (n, k) of zeros and ones, which causes were active
    prior : (k,)
    components : (k, d), the probability that a cause alone turns a feature on
    leak : (d,)
    """

    samples: Any
    causes: Any
    prior: Any
    components: Any
    leak: Any

    def draw(self, n_samples: int, random_state: RandomState = None) -> tuple[Any, Any]:
        """More samples (n, d) of the same network, and their causes (n, k)."""
        rng = generator(random_state)
        return draw_noisy_or(rng, n_samples, self.prior, self.components, self.leak)


def make_noisy_or(
    n_samples: int,
    n_features: int,
    n_components: int,
    *,
    prior: float = 0.05,
    density: float = 0.25,
    leak: float = 0.03,
    random_state: RandomState = None,
) -> NoisyOrSample:
    """Binary features with hidden causes, to test and compare what finds them.

    Every cause turns a random fraction of the features on, each with a probability between 0.2
    and 0.9; priors and leaks are drawn between 0.5 and 1.5 of their mean.

    Parameters
    ----------
    n_samples, n_features, n_components : int, samples n, features d and causes k
    prior : float, the mean probability of a cause
    density : float, the fraction of features that a cause acts on
    leak : float, the mean probability that a feature is on without a cause
    random_state : seed
    """
    rng = generator(random_state)
    n_samples = check_positive_int(n_samples, "n_samples")
    d = check_positive_int(n_features, "n_features")
    k = check_positive_int(n_components, "n_components")
    for name, value, most in (("prior", prior, 0.5), ("density", density, 1), ("leak", leak, 0.5)):
        if not (isinstance(value, numbers.Real) and 0 < value <= most):
            raise InvalidInputError(f"{name}={value!r} must be a number above 0, at most {most}")
    acts = rng.random((k, d)) < density
    # A cause without an effect would not be there.
    acts[np.arange(k), rng.integers(d, size=k)] = True
    components = np.where(acts, rng.uniform(0.2, 0.9, (k, d)), 0.0)
    priors = np.minimum(prior * rng.uniform(0.5, 1.5, k), 0.9)
    leaks = leak * rng.uniform(0.5, 1.5, d)
    samples, causes = draw_noisy_or(rng, n_samples, priors, components, leaks)
    return NoisyOrSample(samples, causes, priors, components, leaks)


def draw_noisy_or(
    rng: np.random.Generator, n_samples: int, prior: Any, components: Any, leak: Any
) -> tuple[Any, Any]:
    """Samples (n, d) of zeros and ones, and their active causes (n, k)."""
    k, d = components.shape
    logs = np.log1p(-np.minimum(components, 1 - 1e-16))
    samples = np.empty((n_samples, d))
    causes = np.empty((n_samples, k), dtype=np.int64)
    for start in range(0, n_samples, _DRAWN):
        part = slice(start, min(start + _DRAWN, n_samples))
        size = part.stop - start
        causes[part] = rng.random((size, k)) < prior
        off = np.exp(causes[part] @ logs) * (1 - leak)
        samples[part] = rng.random((size, d)) >= off
    return samples, causes
