"""The hidden chain of a hidden Markov model: posteriors, likelihoods and likeliest paths.

Emissions enter only as likelihoods of rows in states, so that every kind of them shares this.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import run_tasks
from latensor.refinement.hmm.sequences import Sequences

# Rows that are looked at beyond a range, before all of the next one is.
_REACHES = (32, 128, 512)


@dataclass(frozen=True)
class Likelihoods:
    """How likely every row is in every state.

    Attributes
    ----------
    index : (n,) integers, the row of `table` that belongs to each row of the data
    table : (m, k) likelihoods, not negative
    log_scale : float, what must be added to a sum of logarithms over all rows
    row_scale : (n,) its parts, or None where they are all zero
    """

    index: Any
    table: Any
    log_scale: float = 0.0
    row_scale: Any = None


@dataclass(frozen=True)
class Expectation:
    """What one pass over the rows tells about the hidden states.

    Attributes
    ----------
    log_likelihood : float, of all rows
    posteriors : (n, k) probabilities of the states given all rows of the sequence
    starts : (k,) expected number of sequences that begin in each state
    steps : (k, k) expected number of steps from each state to each other
    """

    log_likelihood: float
    posteriors: Any
    starts: Any
    steps: Any


def expect(
    likelihoods: Likelihoods, sequences: Sequences, startprob: Any, transmat: Any, n_threads: int
) -> Expectation:
    """Posterior probabilities and expected counts: the E step of Baum and Welch, scaled.

    A long sequence is cut into ranges that start as if they knew nothing; their first rows are
    then done again from what the range before hands over, until both agree to rounding. What comes
    after a range is looked at only as far as it matters.

    Parameters
    ----------
    likelihoods : of every row in every state
    sequences : where they begin
    startprob : (k,)
    transmat : (k, k), rows sum to one
    n_threads : int, never changes a bit
    """
    from latensor.refinement.hmm import _kernels

    filtered, scale = _filter(likelihoods, sequences, startprob, transmat, n_threads)
    across = np.ascontiguousarray(transmat.T)
    ends = _range_ends(likelihoods, sequences, across, n_threads)
    k = len(startprob)
    starts = np.zeros((len(sequences.ranges), k))
    steps = np.zeros((len(sequences.ranges), k, k))
    run_tasks(
        _kernels.expected_counts,
        [
            (
                likelihoods.index,
                likelihoods.table,
                sequences.is_start,
                across,
                a,
                b,
                ends[i],
                filtered,
                starts[i],
                steps[i],
            )
            for i, (a, b) in enumerate(sequences.ranges)
        ],
        n_threads,
    )
    value = _sum_of_logs(scale, sequences, n_threads) + _log_scale(likelihoods, sequences)
    return Expectation(value, filtered, sequences.total(starts), sequences.total(steps) * transmat)


def log_likelihood(
    likelihoods: Likelihoods, sequences: Sequences, startprob: Any, transmat: Any, n_threads: int
) -> float:
    """The log-likelihood of all rows."""
    _, scale = _filter(likelihoods, sequences, startprob, transmat, n_threads)
    return _sum_of_logs(scale, sequences, n_threads) + _log_scale(likelihoods, sequences)


def _log_scale(likelihoods: Likelihoods, sequences: Sequences) -> float:
    if sequences.weights is None or likelihoods.row_scale is None:
        return likelihoods.log_scale
    return float(sequences.row_weights @ likelihoods.row_scale)


def likeliest_path(
    likelihoods: Likelihoods, sequences: Sequences, startprob: Any, transmat: Any, n_threads: int
) -> tuple[float, Any]:
    """The states (n,) that are likeliest together, and the log of their joint probability.

    Viterbi's algorithm on logarithms, one sequence a task. Ties go to the lower state.
    """
    from latensor.refinement.hmm import _kernels

    k = len(startprob)
    with np.errstate(divide="ignore"):
        log_table, log_start = np.log(likelihoods.table), np.log(startprob)
        log_steps = np.log(transmat)
    states = np.empty(sequences.n_rows, dtype=np.int64)
    scores = np.empty(len(sequences.lengths))
    kind = np.uint8 if k <= 256 else np.uint32

    def trace(first: int, last: int) -> None:
        longest = int(sequences.lengths[first:last].max())
        pointers = np.empty((longest, k), dtype=kind)
        for s in range(first, last):
            _kernels.viterbi(
                likelihoods.index,
                log_table,
                log_start,
                log_steps,
                sequences.begins[s],
                sequences.ends[s],
                pointers,
                states,
                scores,
                s,
            )

    run_tasks(trace, _groups(sequences), n_threads)
    return float(scores.sum()) + likelihoods.log_scale, states


def _groups(sequences: Sequences) -> list[tuple[int, int]]:
    """Runs of whole sequences for one task each, along the ranges."""
    firsts = np.searchsorted(sequences.begins, [a for a, _ in sequences.ranges])
    edges = sorted({*firsts.tolist(), len(sequences.lengths)})
    return [(a, b) for a, b in itertools.pairwise(edges) if b > a]


def _filter(
    likelihoods: Likelihoods, sequences: Sequences, startprob: Any, transmat: Any, n_threads: int
) -> tuple[Any, Any]:
    from latensor.refinement.hmm import _kernels

    index, table, is_start = likelihoods.index, likelihoods.table, sequences.is_start
    filtered = np.empty((sequences.n_rows, len(startprob)))
    scale = np.empty(sequences.n_rows)
    run_tasks(
        _kernels.forward,
        [
            (index, table, is_start, startprob, transmat, a, b, filtered, scale)
            for a, b in sequences.ranges
        ],
        n_threads,
    )
    for a, b in sequences.ranges[1:]:
        if not is_start[a]:
            _kernels.repair_forward(index, table, is_start, transmat, a, b, filtered, scale)
    return filtered, scale


def _range_ends(likelihoods: Likelihoods, sequences: Sequences, across: Any, n_threads: int) -> Any:
    """For every range the likelihoods (k,) of all rows after the one that follows it.

    Found by looking ahead until it no longer matters what comes; chains that remember longer go
    back over the whole of the next range.
    """
    from latensor.refinement.hmm import _kernels

    index, table, is_start = likelihoods.index, likelihoods.table, sequences.is_start
    ranges = sequences.ranges
    ends = np.ones((len(ranges), len(across)))
    seams = [i for i, (_, b) in enumerate(ranges[:-1]) if not is_start[b]]
    settled = np.ones(len(ranges), dtype=bool)

    def look(i: int) -> None:
        settled[i] = any(
            _kernels.look_ahead(index, table, is_start, across, ranges[i][1], reach, ends[i])
            for reach in _REACHES
        )

    run_tasks(look, [(i,) for i in seams], n_threads)
    for i in reversed(seams):
        if settled[i]:
            continue
        row, following = ranges[i][1], ranges[i + 1][1]
        owner = int(np.searchsorted(sequences.begins, row, side="right")) - 1
        stop = int(sequences.begins[owner] + sequences.lengths[owner])
        beyond = stop > following
        ends[i] = ends[i + 1] if beyond else 1.0
        _kernels.back_over(
            index, table, across, row + 1, following + 1 if beyond else stop, ends[i]
        )
    return ends


def _sum_of_logs(scale: Any, sequences: Sequences, n_threads: int) -> float:
    from latensor.refinement.hmm import _kernels

    sums = np.zeros(len(sequences.ranges))
    run_tasks(
        _kernels.sum_of_logs,
        [(scale, a, b, sums, i) for i, (a, b) in enumerate(sequences.ranges)],
        n_threads,
    )
    return float(sequences.total(sums))
