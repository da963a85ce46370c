"""The third word moment at pairs of equal directions, for many topics: T(I, v_j, v_j) for all j.

All that a step of the power method needs, in n r^2 operations instead of the n r^3 of the whole
core; and slices T(I, I, d_j) along a few directions, which joint diagonalization starts it from.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.moments.word_triples import WordTripleSums
from latensor.moments.words import WordPairs
from latensor.value_files import storable


@dataclass(frozen=True)
class WordPowerMoments(WordPairs):
    """First two word moments along a basis, and `powers` (r, r), E3(q_i, q_j, q_j)."""

    powers: Any


@dataclass(frozen=True)
class WordSlices(WordPairs):
    """First two word moments along a basis, and `slices` (r, r, q), E3(Q, Q, Q d_j)."""

    slices: Any


@storable
@dataclass(frozen=True, eq=False)
class WordPowerSums(WordTripleSums):
    """The first two word moments along a basis, and the third at pairs of equal directions."""

    def _shape(self) -> tuple[int, ...]:
        return (int(self.basis.shape[1]),) * 2

    def _add_products(self, sums: dict[str, Any], half: int, projected: Any, triples: Any) -> None:
        with one_blas_thread():
            weighted = projected * triples.astype(projected.dtype)[:, None]
            sums["products"][half] += projected.T @ (weighted * projected)

    def _whole(self, products: Any) -> Any:
        return products

    _packed = _unpacked = _whole

    def _same_words(self, words: Any, *neighbours: Any) -> Iterator[Any]:
        for rows in neighbours:
            with one_blas_thread():
                yield 2 * (words.T @ (words * rows)) + rows.T @ (words * words)

    def _moment(self, halves: tuple[int, ...], products: Any) -> WordPowerMoments:
        return WordPowerMoments(**self._fields(halves), powers=products)


@dataclass(frozen=True, eq=False)
class WordSliceSums(WordTripleSums):
    """The first two word moments along a basis, and slices of the third along few directions.

    Attributes
    ----------
    directions : (r, q) array with columns d_j
    """

    directions: Any = None

    def _shape(self) -> tuple[int, ...]:
        rank = int(self.basis.shape[1])
        return int(self.directions.shape[1]), rank, rank

    def _add_products(self, sums: dict[str, Any], half: int, projected: Any, triples: Any) -> None:
        with one_blas_thread():
            along = (projected @ self.directions.astype(projected.dtype)).T
            weighted = along * triples.astype(projected.dtype)
            for place, weight in enumerate(weighted):
                sums["products"][half, place] += projected.T @ (projected * weight[:, None])

    def _whole(self, products: Any) -> Any:
        return products

    _packed = _unpacked = _whole

    def _same_words(self, words: Any, *neighbours: Any) -> Iterator[Any]:
        for rows in neighbours:
            found = np.empty(self._shape())
            with one_blas_thread():
                along, across = (words @ self.directions).T, (rows @ self.directions).T
                for place in range(len(found)):
                    mixed = words.T @ (rows * along[place][:, None])
                    found[place] = words.T @ (words * across[place][:, None]) + mixed + mixed.T
            yield found

    def _moment(self, halves: tuple[int, ...], products: Any) -> WordSlices:
        return WordSlices(**self._fields(halves), slices=np.moveaxis(products, 0, -1))
