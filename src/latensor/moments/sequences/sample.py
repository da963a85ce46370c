"""Pieces of sequences that stand for a stream, the same however it is cut into calls and merged."""

from __future__ import annotations

import hashlib
from typing import Any, Self

import numpy as np

from latensor.exceptions import InvalidInputError

# Longer sequences are kept or dropped in pieces.
_PIECE = 4096


class SequenceSample:
    """The pieces of sequences with the smallest hashes, as many as hold `limit` rows.

    The hash of a piece is a function of its rows alone: any order of whole sequences and any
    merge gives the same sample.

    Attributes
    ----------
    limit : int, rows
    pieces : list of (hash, rows)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pieces: list[tuple[bytes, Any]] = []

    def update(self, rows: Any, lengths: Any) -> Self:
        """Add whole sequences, rows (n,) or (n, p) one after the other."""
        ends = np.cumsum(lengths)
        fresh = []
        for end, length in zip(ends.tolist(), np.asarray(lengths).tolist(), strict=True):
            for first in range(end - length, end, _PIECE):
                piece = np.ascontiguousarray(rows[first : min(first + _PIECE, end)])
                fresh.append((hashlib.blake2b(piece.tobytes(), digest_size=8).digest(), piece))
        return self._keep(fresh)

    def merge(self, other: SequenceSample) -> Self:
        """Add the sequences that another sample of the same limit has seen."""
        if other.limit != self.limit:
            raise InvalidInputError(
                f"cannot merge a sample of {other.limit} rows into one of {self.limit} rows"
            )
        return self._keep(other.pieces)

    def spawn(self) -> SequenceSample:
        """An empty sample of the same limit."""
        return SequenceSample(self.limit)

    def finalize(self) -> tuple[Any, Any]:
        """The rows of the sample and the lengths (s,) of its pieces."""
        pieces = [piece for _, piece in self.pieces]
        return np.concatenate(pieces), np.array([len(piece) for piece in pieces], dtype=np.int64)

    def _keep(self, fresh: list[tuple[bytes, Any]]) -> Self:
        ranked = sorted(self.pieces + fresh, key=lambda piece: piece[0])
        totals = np.cumsum([len(piece) for _, piece in ranked])
        count = max(int(np.searchsorted(totals, self.limit, side="right")), 1)
        self.pieces = ranked[:count]
        return self
