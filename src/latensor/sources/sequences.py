"""Sequences as callers give them: rows one after the other, and how long each sequence is."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import is_array, to_host
from latensor.exceptions import InvalidInputError
from latensor.moments.batches import as_weights
from latensor.moments.ragged import Ragged
from latensor.sources.shards import Parts

# Longer sequences are cut into pieces, which are sampled, weighed and worked on like sequences.
LONGEST = 131_072
# Rows before and after a piece that it sees. A filter that keeps 0.97 of an error a row (states
# that last for 30 rows and that no row tells apart) has forgotten all but 1e-13 of it by then.
MARGIN = 1024


@dataclass(frozen=True)
class SequenceReader:
    """Batches of sequences: rows, or tuples (rows, lengths) or (rows, lengths, weights).

    Attributes
    ----------
    rows : reads the rows of a batch: symbols (n,), or points (n, p), on the host; picklable
    """

    rows: Callable[[Any], Any]

    def __call__(self, given: Any) -> Parts | None:
        rows, lengths, weights = batch_parts(given)
        if tuple(getattr(rows, "shape", (1,)))[:1] == (0,):
            return None
        return cut_sequences(self.rows(rows), lengths, weights)


def batch_parts(given: Any) -> tuple[Any, Any, Any]:
    """Rows, lengths and weights of a batch, None for what was not given."""
    parts = tuple(given) if isinstance(given, list | tuple) else (given,)
    rows, lengths, weights = (*parts, None, None)[:3]
    return rows, lengths, weights


def cut_sequences(rows: Any, lengths: object, sample_weight: object) -> Parts:
    """Sequences as units with their weights, long ones in pieces.

    Parameters
    ----------
    rows : (n,) symbols or (n, p) points on the host
    lengths : as `read_lengths` takes them
    sample_weight : (s,) or a number, how often every sequence counts; None for once
    """
    whole = Ragged.of(rows, read_lengths(lengths, len(rows)))
    weights = read_sequence_weights(sample_weight, len(rows), len(whole))
    if whole.lengths.max(initial=0) <= LONGEST:
        return (whole,), weights
    pieces, owners = whole.cut(LONGEST, MARGIN)
    return (pieces,), weights[owners]


def read_lengths(lengths: object, n_rows: int) -> Any:
    """The lengths (s,) of the sequences, one of all rows by default.

    Parameters
    ----------
    lengths : integers (s,) that sum to `n_rows`; or for every row (n,) the name of its sequence,
        the rows of a sequence standing together; or None
    n_rows : int
    """
    if lengths is None:
        return np.array([n_rows], dtype=np.int64)
    given = np.asarray(to_host(lengths) if is_array(lengths) else lengths)
    counts = given.dtype.kind in "biuf"
    if given.shape == (n_rows,) and n_rows > 1 and not (counts and _are_lengths(given, n_rows)):
        return _runs(given)
    if given.ndim != 1 or not counts or not given.size:
        raise InvalidInputError(
            f"lengths must be a list of the lengths of the sequences, got {lengths!r:.80}"
        )
    if (given != np.floor(given)).any() or (given < 1).any():
        raise InvalidInputError(
            f"lengths must hold integers of at least 1, got {given.min()} as the smallest"
        )
    if given.sum() != n_rows:
        raise InvalidInputError(
            f"lengths sum to {given.sum():g}, but X has {n_rows} rows: give the length of every "
            "sequence, in the order in which they stand in X"
        )
    return given.astype(np.int64)


def _are_lengths(given: Any, n_rows: int) -> bool:
    return bool((given >= 1).all() and given.sum() == n_rows)


def _runs(names: Any) -> Any:
    """The lengths of runs of equal names."""
    first = np.flatnonzero(np.append(True, names[1:] != names[:-1]))
    return np.diff(np.append(first, len(names))).astype(np.int64)


def read_sequence_weights(sample_weight: object, n_rows: int, n_sequences: int) -> Any:
    """How often every sequence counts (s,)."""
    if sample_weight is None:
        return np.ones(n_sequences)
    if isinstance(sample_weight, numbers.Real):
        sample_weight = np.full(n_sequences, sample_weight, dtype=np.float64)
    given = np.asarray(to_host(sample_weight) if is_array(sample_weight) else sample_weight)
    if given.shape == (n_rows,) != (n_sequences,):
        raise InvalidInputError(
            f"sample_weight holds one number per row ({n_rows}): give one per sequence "
            f"({n_sequences}), a chain has no weights for its rows"
        )
    return as_weights(sample_weight, n_sequences, "sample_weight")
