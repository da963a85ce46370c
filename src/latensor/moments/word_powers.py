"""The third word moment at pairs of equal directions, for many topics: T(I, v_j, v_j) for all j.

All that a step of the power method needs, in n r^2 operations instead of the n r^3 of the whole
core; and slices T(I, I, d_j) along a few directions, which joint diagonalization starts it from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.words import WordPairs, WordTripleAccumulator


@dataclass(frozen=True)
class WordPowers(WordPairs):
    """First two word moments along a basis, and `powers` (r, r), E3(q_i, q_j, q_j)."""

    powers: Any


@dataclass(frozen=True)
class WordSlices(WordPairs):
    """First two word moments along a basis, and `slices` (r, r, q), E3(Q, Q, Q d_j)."""

    slices: Any


class WordPowerAccumulator(WordTripleAccumulator):
    """The first two word moments along a basis, and the third at pairs of equal directions.

    Parameters
    ----------
    basis : (V, r) array Q, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    n_threads : int
    """

    def _empty(self, rank: int) -> Any:
        return np.zeros((2, rank, rank))

    def _add_products(self, half: int, projected: Any, triples: Any) -> None:
        with one_blas_thread():
            weighted = projected * triples.astype(projected.dtype)[:, None]
            self._cubes[half] += projected.T @ (weighted * projected)

    def _read(self, halves: tuple[int, ...]) -> WordPowers:
        words, neighbours = self._same_words_in_triples(halves)
        with one_blas_thread():
            same = 2 * (words.T @ (words * neighbours)) + neighbours.T @ (words * words)
        powers = self._cubes[list(halves)].sum(axis=0) - same
        return WordPowers(*self._first_two(halves), powers / self._triple_weight(halves))


class WordSliceAccumulator(WordTripleAccumulator):
    """The first two word moments along a basis, and slices of the third along few directions.

    Parameters
    ----------
    basis : (V, r) array Q, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    n_threads : int
    directions : (r, q) array with columns d_j
    """

    def __init__(
        self, basis: Any, scale: Any, cap: float, n_threads: int = 1, *, directions: Any
    ) -> None:
        self.directions = directions
        super().__init__(basis, scale, cap, n_threads)

    def _empty(self, rank: int) -> Any:
        return np.zeros((2, self.directions.shape[1], rank, rank))

    def _add_products(self, half: int, projected: Any, triples: Any) -> None:
        with one_blas_thread():
            along = (projected @ self.directions.astype(projected.dtype)).T
            weighted = along * triples.astype(projected.dtype)
            for place, weight in enumerate(weighted):
                self._cubes[half, place] += projected.T @ (projected * weight[:, None])

    def _read(self, halves: tuple[int, ...]) -> WordSlices:
        words, neighbours = self._same_words_in_triples(halves)
        cubes = self._cubes[list(halves)].sum(axis=0)
        with one_blas_thread():
            along, across = (words @ self.directions).T, (neighbours @ self.directions).T
            for place in range(len(cubes)):
                mixed = words.T @ (neighbours * along[place][:, None])
                cubes[place] -= words.T @ (words * across[place][:, None]) + mixed + mixed.T
        slices = np.moveaxis(cubes, 0, -1) / self._triple_weight(halves)
        return WordSlices(*self._first_two(halves), slices)
