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
    merge gives the same sample. Equal pieces are kept once, with the sum of their weights.

    Attributes
    ----------
    limit : int, rows
    pieces : list of (hash, rows, weight)
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.pieces: list[tuple[bytes, Any, float]] = []

    def update(self, rows: Any, lengths: Any, weights: Any = None) -> Self:
        """Add whole sequences, rows (n,) or (n, p) one after the other.

        A weight of 2 is the same as giving a sequence twice.
        """
        ends = np.cumsum(lengths)
        numbers = np.ones(len(ends)) if weights is None else np.asarray(weights, np.float64)
        fresh = []
        for end, length, weight in zip(
            ends.tolist(), np.asarray(lengths).tolist(), numbers.tolist(), strict=True
        ):
            for first in range(end - length, end, _PIECE):
                piece = np.ascontiguousarray(rows[first : min(first + _PIECE, end)])
                key = hashlib.blake2b(piece.tobytes(), digest_size=8).digest()
                fresh.append((key, piece, weight))
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

    def finalize(self) -> tuple[Any, Any, Any]:
        """The rows of the sample, the lengths (s,) of its pieces, and their weights.

        The weights (s,) are None where every piece counts once.
        """
        rows = np.concatenate([piece for _, piece, _ in self.pieces])
        lengths = np.array([len(piece) for _, piece, _ in self.pieces], dtype=np.int64)
        weights = np.array([weight for _, _, weight in self.pieces])
        return rows, lengths, None if (weights == 1).all() else weights

    def _keep(self, fresh: list[tuple[bytes, Any, float]]) -> Self:
        known: dict[bytes, tuple[bytes, Any, float]] = {}
        for key, rows, weight in [*self.pieces, *fresh]:
            before = known[key][2] if key in known else 0.0
            known[key] = (key, rows, before + weight)
        ranked = sorted(known.values(), key=lambda piece: piece[0])
        totals = np.cumsum([len(rows) for _, rows, _ in ranked])
        count = max(int(np.searchsorted(totals, self.limit, side="right")), 1)
        self.pieces = ranked[:count]
        return self
