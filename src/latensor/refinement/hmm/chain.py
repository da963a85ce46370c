"""The hidden chain of a hidden Markov model: posteriors, likelihoods and likeliest paths.

Emissions enter only as likelihoods of rows in states, so that every kind of them shares this.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from latensor.arrays.threads import run_tasks
from latensor.refinement.hmm.sequences import Sequences

# Into how many lanes a range is cut. Not at all where they are no longer than what they must see
# of each other, nor for as many states, which fill the vectors of a processor themselves: one of
# 20 states takes .34 microseconds a row in place of .45, one of 5 states in lanes .07 for .11.
_LANES = 16


@dataclass(frozen=True)
class Likelihoods:
    """How likely every row is in every state.

    Attributes
    ----------
    index : (n,) integers, the row of `table` that belongs to each row of the data
    table : (m, k) likelihoods, not negative
    row_scale : (n,), what must be added to the logarithm of every row, or None for nothing
    """

    index: Any
    table: Any
    row_scale: Any = None

    def log_scale(self, sequences: Sequences) -> float:
        """What must be added to a sum of logarithms over all rows."""
        if self.row_scale is None:
            return 0.0
        parts = np.array([self.row_scale[a:b].sum() for a, b in sequences.ranges])
        return float(sequences.total(parts))


@dataclass(frozen=True)
class Expectation:
    """What one pass over the rows tells about the hidden states.

    Attributes
    ----------
    log_likelihood : float, of all rows
    parts : for every range the probabilities of the states given all rows of the sequence, in
        lanes (span, k, lanes)
    sequences : with the ranges
    starts : (k,) expected number of sequences that begin in each state
    totals : (k,) expected number of rows in each state
    steps : (k, k) expected number of steps from each state to each other
    """

    log_likelihood: float
    parts: list[Any]
    sequences: Sequences
    starts: Any
    totals: Any
    steps: Any

    @cached_property
    def posteriors(self) -> Any:
        """(n, k) probabilities of the states given all rows of the sequence."""
        from latensor.refinement.hmm.segments import _kernels as side_by_side

        found = np.empty((self.sequences.n_rows, len(self.starts)))
        for part, (first, last) in zip(self.parts, self.sequences.ranges, strict=True):
            side_by_side.in_rows(part, first, last, found)
        return found

    def weighted(self) -> Any:
        """(n, k) the posteriors, times how often every row counts."""
        weights = self.sequences.row_weights
        return self.posteriors if weights is None else self.posteriors * weights[:, None]


@dataclass(frozen=True)
class _Filtered:
    """State probabilities given the rows so far: for every range an array in lanes.

    Attributes
    ----------
    parts, scales : what `forward` fills
    ahead : int, rows that the backward pass looks ahead: twice as far as it mattered where the
        filter has begun, and some more
    lanes : int, at most
    """

    parts: list[Any]
    scales: list[Any]
    ahead: int
    lanes: int


@dataclass(frozen=True, eq=False)
class ChainOnRows:
    """A hidden chain, and how likely the rows of sequences are in its states.

    Attributes
    ----------
    likelihoods : of every row in every state
    sequences : where they begin
    startprob : (k,)
    transmat : (k, k), rows sum to one
    n_threads : int, never changes a bit
    """

    likelihoods: Likelihoods
    sequences: Sequences
    startprob: Any
    transmat: Any
    n_threads: int = 1

    def expect(self) -> Expectation:
        """Posterior probabilities and expected counts: the E step of Baum and Welch, scaled.

        A long sequence is cut into ranges, and these into lanes that are worked on side by side.
        They start as if they knew nothing; their first rows are then done again from what the part
        before hands over, until both agree to rounding. What comes after a part is looked at about
        as far as that took, and whether it was far enough is checked. Chains that remember longer
        are cut less.
        """
        filtered = self._filter(_LANES)
        if filtered.lanes > 1:
            found = self._count(filtered)
            if found is not None:
                return found
            filtered = self._filter(1)
        found = self._count(filtered)
        assert found is not None
        return found

    def log_likelihood(self) -> float:
        """The log-likelihood of all rows."""
        from latensor.refinement.hmm.segments import _kernels as side_by_side

        logs = np.array([side_by_side.sum_of_logs(s) for s in self._filter(_LANES).scales])
        return self._total(logs)

    def _total(self, logs: Any) -> float:
        """The log-likelihood of all rows from what every range gives (ranges,)."""
        return float(self.sequences.total(logs)) + self.likelihoods.log_scale(self.sequences)

    def sequence_log_likelihoods(self) -> Any:
        """The log-likelihood (s,) of every sequence, however often it counts."""
        with np.errstate(divide="ignore"):
            logs = np.log(np.concatenate([scale[:, 0] for scale in self._filter(1).scales]))
        if self.likelihoods.row_scale is not None:
            logs += self.likelihoods.row_scale
        return np.add.reduceat(logs, self.sequences.begins)

    def predicted(self) -> Any:
        """The probabilities (n, k) of the states of every row given the rows before it."""
        states = np.concatenate([part[:, :, 0] for part in self._filter(1).parts])
        states /= states.sum(axis=1, keepdims=True)
        found = np.empty_like(states)
        found[1:] = states[:-1] @ self.transmat
        found[self.sequences.is_start] = self.startprob
        found[self.sequences.is_cut] = 1 / len(self.startprob)
        return found

    def likeliest_path(self) -> tuple[float, Any]:
        """The states (n,) that are likeliest together, and the log of their joint probability.

        Viterbi's algorithm on logarithms, one sequence a task. Ties go to the lower state.
        """
        from latensor.refinement.hmm import _kernels

        sequences, k = self.sequences, len(self.startprob)
        with np.errstate(divide="ignore"):
            given = self.likelihoods.table, self.startprob, self.transmat
            logs = tuple(np.log(each) for each in given)
        states = np.empty(sequences.n_rows, dtype=np.int64)
        scores = np.empty(len(sequences.lengths))
        kind = np.uint8 if k <= 256 else np.uint32

        def trace(first: int, last: int) -> None:
            longest = int(sequences.lengths[first:last].max())
            pointers = np.empty((longest, k), dtype=kind)
            for s in range(first, last):
                ends = sequences.begins[s], sequences.ends[s]
                _kernels.viterbi(self.likelihoods.index, *logs, *ends, pointers, states, scores, s)

        # Runs of whole sequences for one task each, along the ranges.
        firsts = np.searchsorted(sequences.begins, [a for a, _ in sequences.ranges])
        edges = sorted({*firsts.tolist(), len(sequences.lengths)})
        tasks = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
        run_tasks(trace, tasks, self.n_threads)
        return float(scores.sum()) + self.likelihoods.log_scale(sequences), states

    def _filter(self, lanes: int) -> _Filtered:
        """The forward pass in so many lanes, or in one for chains that remember long.

        A range too short for the memory of the chain (the end of a batch, rows that are only seen)
        is alone in one lane; where most rows are in such ranges, all are.
        """
        from latensor.refinement.hmm import _kernels
        from latensor.refinement.hmm.segments import _kernels as side_by_side

        sequences, transmat = self.sequences, self.transmat
        index, table, is_start = self.likelihoods.index, self.likelihoods.table, sequences.is_start
        ranges, k = sequences.ranges, len(self.startprob)
        lanes = lanes if k < lanes else 1
        shapes = sequences.lanes(lanes)
        parts = [np.empty((span, k, count)) for span, count in shapes]
        scales = [np.empty(shape) for shape in shapes]
        reaches = [0] * len(ranges)

        def fill(i: int, first: int, last: int) -> None:
            chain = sequences.is_cut, self.startprob, transmat
            given = (index, table, is_start, *chain, first, last)
            if shapes[i][1] > 1:
                reaches[i] = side_by_side.forward(*given, parts[i], scales[i])
            else:
                _kernels.forward(*given, parts[i][:, :, 0], scales[i][:, 0])

        tasks = [(i, a, b) for i, (a, b) in enumerate(ranges)]
        run_tasks(fill, tasks, self.n_threads)
        short = [
            (i, a, b)
            for i, a, b in tasks
            if shapes[i][1] > 1 and _ahead(reaches[i]) >= shapes[i][0]
        ]
        if 2 * sum(b - a for _, a, b in short) > sequences.n_rows:
            return self._filter(1)
        for i, a, b in short:
            # Its lanes are shorter than what the chain remembers; those of most rows are not.
            shapes[i] = b - a, 1
            parts[i], scales[i] = np.empty((b - a, k, 1)), np.empty((b - a, 1))
        run_tasks(fill, short, self.n_threads)
        reach = max(reaches, default=0)
        for i, (a, b) in enumerate(ranges[1:], 1):
            if not is_start[a]:
                before = parts[i - 1][-1, :, -1]
                before = before / before.sum()
                given = (index, table, is_start, transmat, a, b, before, parts[i], scales[i])
                reach = max(reach, _kernels.carry(*given))
        return _Filtered(parts, scales, _ahead(reach), lanes)

    def _count(self, filtered: _Filtered) -> Expectation | None:
        """The backward pass; the filtered probabilities are overwritten.

        Every range looks ahead as far as the forward pass remembers and some more; None where that
        was not far enough. In one lane they are gone over from the last to the first instead.
        """
        from latensor.refinement.hmm import _kernels
        from latensor.refinement.hmm.segments import _kernels as side_by_side

        sequences = self.sequences
        index, table, is_start = self.likelihoods.index, self.likelihoods.table, sequences.is_start
        ranges, k = sequences.ranges, len(self.transmat)
        across = np.ascontiguousarray(self.transmat.T)
        ahead, reach = filtered.lanes > 1, filtered.ahead
        ends, begins = np.ones((len(ranges), k)), np.ones((len(ranges), k))
        starts, totals = np.zeros((len(ranges), k)), np.zeros((len(ranges), k))
        steps = np.zeros((len(ranges), k, k))
        logs = np.zeros(len(ranges))
        agree = [True] * len(ranges)

        def count(i: int, first: int, last: int) -> None:
            inner = last < len(is_start) and not is_start[last]
            if inner and ahead:
                owner = int(np.searchsorted(sequences.begins, last, side="right")) - 1
                stop = int(sequences.begins[owner] + sequences.lengths[owner])
                stop = min(stop, last + 1 + reach)
                _kernels.back_over(index, table, across, last + 1, stop, ends[i])
            elif inner:
                ends[i] = begins[i + 1]
            part, given = filtered.parts[i], (index, table, is_start, across, first, last)
            sums = (starts[i], totals[i], steps[i], begins[i])
            if part.shape[2] > 1:
                agree[i] = side_by_side.expected_counts(*given, reach, ends[i], part, *sums)
            else:
                _kernels.expected_counts(*given, ends[i], part[:, :, 0], *sums)
            logs[i] = side_by_side.sum_of_logs(filtered.scales[i])

        tasks = [(i, a, b) for i, (a, b) in enumerate(ranges)]
        run_tasks(count, tasks if ahead else tasks[::-1], self.n_threads if ahead else 1)
        if not all(agree) or not all(
            is_start[ranges[i + 1][0]] or side_by_side.same(ends[i], begins[i + 1])
            for i in range(len(ranges) - 1)
            if ahead
        ):
            return None
        # None where the chain takes none, however unlikely the others are.
        each, taken = sequences.total(steps), np.zeros_like(self.transmat)
        np.multiply(each, self.transmat, out=taken, where=self.transmat > 0)
        sums = (sequences.total(starts), sequences.total(totals), taken)
        return Expectation(self._total(logs), filtered.parts, sequences, *sums)


def _ahead(reach: int) -> int:
    """Rows to look ahead where the forward pass forgets after `reach` rows."""
    return 2 * reach + 32
