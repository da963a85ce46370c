"""The third word moment along a basis, by exact U-statistics: E3(Q, Q, Q) (monograph 4.1, 4.2.3).

What travels is of the size of the core. Let Q (V, r) span the leading eigenvectors of M2, which is
E2 less a multiple of E1 E1': then M2 Q lies in the span of Q, and Q'E1, Q'E2 Q give all that topics
are read off. The halves of the documents differ outside of it, by noise that the certificate has to
see: a sample of the words shows it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from latensor.arrays import Array
from latensor.arrays.threads import inner_thread_count, one_blas_thread, run_tasks
from latensor.moments.sums import upper_triangle
from latensor.moments.words import (
    WordCore,
    WordPairs,
    WordPairSums,
    closed_core,
    or_one,
    weighed_rows,
)
from latensor.value_files import storable

# Rows whose products are summed at once, for so many slices: they stay in the cache, and matrices
# are large enough for BLAS (three quarters of the time of one slice at a time at r = 50).
_ROWS = 2048
_SLICES = 4


@dataclass(frozen=True)
class WordTriples(WordPairs):
    """First, second and third word moments along a basis; `triples` is E3(Q, Q, Q) (r, r, r)."""

    triples: Any


@storable
@dataclass(frozen=True, eq=False)
class WordRows:
    """Words that stand for all of them in sums over words.

    Attributes
    ----------
    index : (s,) int, increasing
    weights : (s,) float, the number of words that each stands for
    """

    index: Array
    weights: Array

    @classmethod
    def drawn(cls, totals: Array, count: int, rng: np.random.Generator) -> WordRows | None:
        """About `count` words, drawn by the root of their totals; None where all are no more.

        The root is what the noise of a frequency is in proportion to. By systematic sampling:
        words on a line of their probabilities, hit by marks at distance one.
        """
        if len(totals) <= count:
            return None
        sizes = np.sqrt(totals)
        chances = np.zeros(len(sizes))
        certain = np.zeros(len(sizes), dtype=bool)
        while True:
            # What would be drawn more than once is taken, and the others share the rest.
            rest = np.where(certain, 0.0, sizes)
            left = count - np.count_nonzero(certain)
            chances = np.where(certain, 1.0, left * rest / max(float(rest.sum()), 1e-300))
            if not (chances > 1).any():
                break
            certain |= chances >= 1
        marks = np.floor(np.cumsum(chances) + rng.random())
        index = np.flatnonzero((np.diff(marks, prepend=0.0) > 0) & (chances > 0))
        return cls(index, 1 / chances[index])


@storable
@dataclass(frozen=True, eq=False)
class WordTripleSums(WordPairSums):
    """The first three word moments along a basis, in one pass over the documents.

    Costs n r^3 operations for n documents, in products of matrices. Triples that repeat a word are
    taken out at the end, by sums (V, r) of which no one else has need: what is sent has done that
    already (`closed`), and holds r (r + 1) (r + 2) / 6 numbers in their place, for either half of
    the documents; in single precision where documents are read so.

    Attributes
    ----------
    rows : WordRows whose sums travel besides, where the basis spans the leading eigenvectors of M2;
        None for all words
    """

    rows: WordRows | None = None

    def _shape(self) -> tuple[int, ...]:
        """Of the sums of products of projections."""
        return (int(self.basis.shape[1]),) * 3

    def _nothing(self) -> dict[str, Any]:
        return {**super()._nothing(), "products": np.zeros((2, *self._shape()))}

    def _rows(self, projected: Any, singles: Any, pairs: Any, triples: Any) -> Any:
        rank = projected.shape[1]
        rows = np.empty((len(projected), 3 + 2 * rank), projected.dtype)
        rows[:, 0], rows[:, 1], rows[:, 2 + rank] = singles, pairs, triples
        np.multiply(projected, rows[:, 1:2], out=rows[:, 2 : 2 + rank])
        np.multiply(projected, rows[:, 2 + rank : 3 + rank], out=rows[:, 3 + rank :])
        return rows

    def _add_products(self, sums: dict[str, Any], half: int, projected: Any, triples: Any) -> None:
        add_cubes(weighed_rows(projected, triples), projected, projected, sums["products"][half])

    def closed(self) -> Self:
        """The same sums without triples that repeat a word, along the basis."""
        if self.sums is None or self.is_closed:
            return self
        first, second, rows = (
            np.stack(v) for v in zip(*map(self._closed_half, range(2)), strict=True)
        )
        repeated = self._same_words(*self._neighbours((0,), (1,)))
        products = [
            self._packed(self._whole(total) - same)
            for total, same in zip(self.sums["products"], repeated, strict=True)
        ]
        return replace(
            self,
            sums={
                "first": first,
                "second": second,
                "rows": rows,
                "products": np.stack(products).astype(self._sent),
                "weights": self.sums["weights"],
                "squares": self.sums["squares"],
            },
        )

    def _closed_half(self, half: int) -> tuple[Any, Any, Any]:
        sums = self._sum((half,))[:, : self._width()]
        words = self.scale[:, None] * self.basis
        with one_blas_thread():
            first = self.basis.T @ (self.scale * sums[:, 0])
            second = words.T @ (sums[:, 2:] - sums[:, 1:2] * words)
        kept = sums if self.rows is None else sums[self.rows.index]
        return first, upper_triangle(second), kept.astype(self._sent)

    def core(self, halves: tuple[int, ...] = (0, 1)) -> WordCore:
        if not self.is_closed:
            return super().core(halves)
        return closed_core(self.seen(), halves)

    def pairs(
        self, halves: tuple[int, ...] = (0, 1), dtype: Any = np.float64, out: Any = None
    ) -> WordPairs:
        if not self.is_closed:
            return super().pairs(halves, dtype, out)
        return WordPairs(**self._closed_pairs(halves))

    def _closed_pairs(self, halves: tuple[int, ...]) -> dict[str, Any]:
        """The first two moments as fields of `WordPairs`.

        Of the whole, the part outside of the span of the basis is left out where few words
        travelled; of a half, it is right for these words alone.
        """
        core = self.core(halves)
        found = {
            "effective_size": core.effective_size,
            "first": core.first,
            "second": core.second,
        }
        seen = self.seen()["rows"][list(halves)].sum(axis=0)
        singles, pairs = (or_one(weight) for weight in core.weights)
        chosen: Any = slice(None) if self.rows is None else self.rows.index
        scale = self.scale[chosen, None]
        product = scale / pairs * (seen[:, 2:] - seen[:, 1:2] * scale * self.basis[chosen])
        mean = scale[:, 0] * seen[:, 0] / singles
        if self.rows is None:
            return {**found, "mean": mean, "product": product}
        with one_blas_thread():
            gram = self.basis.T @ self.basis
            inside = np.linalg.solve(gram, np.column_stack([core.first, core.second]))
            lifted = self.basis @ inside
        if len(halves) < 2:
            lifted[chosen] = np.column_stack([mean, product])
        return {**found, "mean": lifted[:, 0], "product": lifted[:, 1:]}

    def _read(self, halves: tuple[int, ...]) -> Any:
        return self._moment(halves, self._products(halves) / self._triple_weight(halves))

    def _moment(self, halves: tuple[int, ...], products: Any) -> Any:
        return WordTriples(**self._fields(halves), triples=products)

    def _fields(self, halves: tuple[int, ...]) -> dict[str, Any]:
        """The first two moments as fields of `WordPairs`."""
        if self.is_closed:
            return self._closed_pairs(halves)
        names = ("mean", "product", "effective_size")
        return dict(zip(names, self._first_two(halves), strict=True))

    def _products(self, halves: tuple[int, ...]) -> Any:
        """Sums over triples of different words."""
        total = self.seen()["products"][list(halves)].sum(axis=0, dtype=np.float64)
        if self.is_closed:
            return self._unpacked(total)
        [same] = self._same_words(*self._neighbours(halves))
        return self._whole(total) - same

    def _packed(self, products: Any) -> Any:
        """Sums of products without what symmetry repeats."""
        first, second, third, _ = _triples(products.shape[0])
        return products[first, second, third]

    def _unpacked(self, products: Any) -> Any:
        return products[_triples(self._shape()[0])[3]]

    def _whole(self, products: Any) -> Any:
        return _from_half(products)

    def _same_words(self, words: Any, *neighbours: Any) -> Iterator[Any]:
        """Sums over triples that repeat a word, from w and every h of `_neighbours`."""
        shape = self._shape()
        found = np.zeros((shape[0], shape[1], len(neighbours) * shape[2]))
        add_cubes(words, words, np.hstack(neighbours), found)
        for part in np.split(_from_half(found), len(neighbours), axis=2):
            yield part + part.transpose(0, 2, 1) + part.transpose(2, 1, 0)

    def _neighbours(self, *choices: tuple[int, ...]) -> list[Any]:
        """Rows w (m, r), and h (m, r) for every choice of halves, of the m words that occur.

        Triples with a repeated word sum to three placements: with g the projected neighbours of a
        word and t its count, - sym3(w, w, g) + 2 t w^(x)3 is minus the placements of (w, w, h),
        h = g - 2/3 t w.
        """
        width = self._width()
        sums = [self._sum(halves) for halves in choices]
        # Nothing was seen of a half without sums of triples.
        counts = [s[:, width] if s.shape[1] > width else np.zeros(len(s)) for s in sums]
        seen = np.flatnonzero(sum(counts) > 0)
        words = self.scale[seen, None] * self.basis[seen]
        kind = np.float32 if self.single else words.dtype
        found = [
            s[seen, width + 1 :] - (2 / 3) * c[seen, None] * words
            if s.shape[1] > width
            else np.zeros_like(words)
            for s, c in zip(sums, counts, strict=True)
        ]
        return [rows.astype(kind, copy=False) for rows in (words, *found)]

    def _triple_weight(self, halves: tuple[int, ...]) -> float:
        return float(or_one(self.seen()["weights"][list(halves), 2].sum()))


def add_cubes(first: Any, second: Any, third: Any, out: Any) -> None:
    """Add sum_i a_i (x) b_i (x) c_i to out, at least for slices a <= b, where a and b are alike."""
    # Products run along the rows, of which there are many more than columns.
    a, b = np.ascontiguousarray(first.T), np.ascontiguousarray(second.T)

    def add(index: int) -> None:
        slices = slice(index, index + _SLICES)
        place = out[slices, index:]
        for start in range(0, len(third), _ROWS):
            rows = slice(start, start + _ROWS)
            products = a[slices, None, rows] * b[index:, rows]
            found = products.reshape(-1, products.shape[-1]) @ third[rows]
            place += found.reshape(place.shape)

    with one_blas_thread():
        run_tasks(add, [(index,) for index in range(0, len(a), _SLICES)], inner_thread_count())


def _from_half(cube: Any) -> Any:
    """The whole of an array symmetric in its first two axes, given for first <= second."""
    rows, columns = np.tril_indices(cube.shape[0], -1)
    whole = cube.copy()
    whole[rows, columns] = cube[columns, rows]
    return whole


@functools.lru_cache(maxsize=1)
def _triples(size: int) -> tuple[Array, Array, Array, Array]:
    """Indices i <= j <= l of a cube, and where in this order every entry (size,) * 3 is found."""
    grid = np.indices((size, size, size), dtype=np.int32)
    first, second, third = grid[:, (grid[0] <= grid[1]) & (grid[1] <= grid[2])]
    places = np.empty((size, size, size), dtype=np.int32)
    for order in itertools.permutations((first, second, third)):
        places[order] = np.arange(len(first), dtype=np.int32)
    return first, second, third, places
