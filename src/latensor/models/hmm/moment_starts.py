"""Models read off the moments of sequences, one for every kind of view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latensor.estimation.homogeneous import project_to_simplex
from latensor.models.hmm.read_off import (
    HiddenStates,
    pair_likelihood,
    read_chain,
    read_states,
)
from latensor.models.hmm.trials import Start
from latensor.moments.sequences import Pairs, Windows
from latensor.refinement.hmm import HiddenChain

# The fraction of the average that the symbols of every state are mixed with, at most: none is
# impossible only because sampling noise has made it negative.
_MIXED = 0.02


@dataclass(frozen=True)
class MomentStart(Start):
    """A model as the moments give it, with the states it was made of.

    Attributes
    ----------
    states : what was read off
    pair_likelihood : float, how well it predicts pairs of symbols
    """

    states: HiddenStates
    pair_likelihood: float
    of_moments: ClassVar[bool] = True


def moment_starts(
    pairs: Pairs,
    sums: Windows,
    features: Any,
    views: str,
    algorithm: Any,
    emission: Callable[[HiddenStates, Any, float], Any],
    rng: np.random.Generator,
) -> list[MomentStart]:
    """One model for each kind of view, by decreasing likelihood of the pairs.

    Parameters
    ----------
    pairs, sums : the moments
    features : (d, r) that windows were summed along, for r + 1 states
    views : "lag", "window" or "auto" for both
    algorithm : "auto" or an algorithm of `lt.decomposition`
    emission : makes emissions of what was read off, of the probabilities (k, d) of the symbols,
        and of the scale 1 / sqrt(n) of the noise
    rng : draws the start of the decomposition
    """
    noise = 1 / np.sqrt(max(sums.weight, 1.0))
    frequency = pairs.counts / pairs.n_rows
    starts = []
    kinds = ("lag", "window") if views == "auto" else (views,)
    for kind in kinds if features.shape[1] > 0 else kinds[:1]:
        states = read_states(sums, features, kind, algorithm, rng)
        mixed = min(_MIXED, noise)
        symbols = (1 - mixed) * project_to_simplex(states.symbols) + mixed * frequency
        startprob, transmat = read_chain(pairs, symbols)
        starts.append(
            MomentStart(
                kind,
                HiddenChain(startprob, transmat, emission(states, symbols, noise)),
                states,
                pair_likelihood(pairs, transmat, symbols),
            )
        )
    return sorted(starts, key=lambda start: -start.pair_likelihood)
