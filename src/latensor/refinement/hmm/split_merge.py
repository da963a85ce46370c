"""Moves between the optima of a hidden Markov model: two states made one, another one made two.

The climb of the likelihood often ends where two states share what one could do, while another
stands for two. The first shows: to make one of the two hardly lowers the likelihood. The second
shows less clearly, so that several states are tried.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from latensor.refinement.hmm.baum_welch import HiddenChain, total_likelihood
from latensor.refinement.hmm.chain import expect
from latensor.refinement.hmm.sequences import Sequences

# Pairs that are looked at: those that share most rows, and the rarest states with their nearest.
_PAIRS, _RARE = 6, 2
# Along how many states of every way to find a direction another one is split.
_SPLITS = 3


def rearranged(
    chain: HiddenChain, rows: Any, sequences: Sequences, n_threads: int, most_loss: float
) -> list[HiddenChain]:
    """Models to try, with the two states made one that it costs least, and another one split.

    Empty where that costs more than `most_loss` of log-likelihood per row: then every state has
    something of its own to say.

    Parameters
    ----------
    chain : a model that has been climbed
    rows : symbols (n,) or samples (n, p), as the emission takes them
    sequences : where they begin
    n_threads : int, never changes a bit
    most_loss : float
    """
    k = len(chain.startprob)
    if k < 3:
        return []
    likelihoods = chain.emission.likelihoods(rows, sequences, n_threads)
    found = expect(likelihoods, sequences, chain.startprob, chain.transmat, n_threads)
    posteriors = found.posteriors
    if sequences.row_weights is not None:
        posteriors = posteriors * sequences.row_weights[:, None]
    occupancy = posteriors.sum(axis=0)
    best, pair, united = -np.inf, (0, 1), chain
    for i, j in _alike(found.posteriors, occupancy):
        candidate = one_of_two(chain, i, j, occupancy)
        value = total_likelihood(candidate, rows, sequences, n_threads)
        if value > best:
            best, pair, united = value, (i, j), candidate
    if found.log_likelihood - best > most_loss * sequences.weight:
        return []
    trials = []
    beside = _neighbours(found.posteriors, sequences)
    for scores, directions in chain.emission.directions(rows, posteriors, beside):
        order = [s for s in np.argsort(-scores, kind="stable") if s not in pair]
        trials += [two_of_one(united, s, pair, directions[s]) for s in order[:_SPLITS]]
    return trials


def _alike(posteriors: Any, occupancy: Any) -> list[tuple[int, int]]:
    products = posteriors.T @ posteriors
    norms = np.sqrt(np.maximum(np.diag(products), np.finfo(float).tiny))
    cosines = products / np.outer(norms, norms)
    np.fill_diagonal(cosines, -1.0)
    pairs = list(itertools.combinations(range(len(norms)), 2))
    chosen = sorted(pairs, key=lambda pair: -cosines[pair])[:_PAIRS]
    for rare in np.argsort(occupancy, kind="stable")[:_RARE].tolist():
        nearest = int(np.argmax(cosines[rare]))
        pair = (min(rare, nearest), max(rare, nearest))
        if pair not in chosen:
            chosen.append(pair)
    return chosen


def _neighbours(posteriors: Any, sequences: Sequences) -> Any:
    """The posteriors of the rows before and after (n, 2 k); zero where there is none."""
    before, after = np.zeros_like(posteriors), np.zeros_like(posteriors)
    before[1:], after[:-1] = posteriors[:-1], posteriors[1:]
    before[sequences.begins] = 0.0
    after[sequences.ends - 1] = 0.0
    return np.hstack([before, after])


def one_of_two(chain: HiddenChain, first: int, second: int, occupancy: Any) -> HiddenChain:
    """Both states `first` and `second` become what the two were together, half of it each."""
    total = occupancy[first] + occupancy[second]
    share = float(occupancy[first] / total) if total > 0 else 0.5
    start, transmat = chain.startprob.copy(), chain.transmat.copy()
    pair = [first, second]
    start[pair] = start[pair].mean()
    transmat[pair] = share * transmat[first] + (1 - share) * transmat[second]
    transmat[:, pair] = transmat[:, pair].mean(axis=1, keepdims=True)
    return HiddenChain(start, transmat, chain.emission.pooled(first, second, share))


def two_of_one(
    chain: HiddenChain, state: int, pair: tuple[int, int], direction: Any
) -> HiddenChain:
    """State `state` is split along a direction, its second half in place of the second of a pair.

    The two of the pair are equal: the first one takes over what the second did.
    """
    kept, place = pair
    start, transmat = chain.startprob.copy(), chain.transmat.copy()
    start[kept] += start[place]
    transmat[:, kept] += transmat[:, place]
    start[state] = start[place] = start[state] / 2
    transmat[:, state] /= 2
    transmat[:, place] = transmat[:, state]
    transmat[place] = transmat[state]
    return HiddenChain(start, transmat, chain.emission.parted(state, place, direction))
