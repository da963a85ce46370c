"""Word moments of documents by exact U-statistics, as mergeable sums (monograph 4.1, 4.2.3).

For a document with counts c (V,) and length m, the average over ordered pairs and triples of
*different* tokens is unbiased whatever the length:

    pairs    (c c' - diag(c)) / (m (m - 1))
    triples  (c^(x)3 - sum_t c_t sym3(e_t, e_t, c) + 2 sum_t c_t e_t^(x)3) / (m (m - 1) (m - 2))

where sym3 sums the three placements. Words are scaled by s (V,), so that frequent ones do not
drown the others, and the moments are only ever taken along a basis Q (V, r): the pairs as
E2 Q (V, r), the triples as E3(Q, Q, Q) (r, r, r). Nothing of size V x V is formed.

Documents are weighted by min(m, cap): a long one tells more, up to a point. They fall into two
halves by their content (equal documents into the same one), and the sums of both are kept apart:
the difference of the halves measures the noise, at no cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread, run_tasks
from latensor.exceptions import InvalidInputError
from latensor.moments.documents import PreparedDocuments, prepare_documents, room_for
from latensor.moments.word_totals import refuse_other_words

# Rows of projected documents whose products are summed at once: they stay in the cache.
_ROWS = 2048


@dataclass(frozen=True)
class WordPairs:
    """First and second word moments along a basis.

    Attributes
    ----------
    mean : (V,) E1, in scaled words
    product : (V, r) E2 Q, in scaled words
    effective_size : float, the number of equally weighted documents worth as much
    """

    mean: Any
    product: Any
    effective_size: float


@dataclass(frozen=True)
class WordCore:
    """First and second word moments along a basis on every side.

    Attributes
    ----------
    first, second : Q'E1 (r,) and Q'E2 Q (r, r)
    weights : (2,) the weight of the documents behind either
    squares : float, the sum of the squares of their weights
    """

    first: Any
    second: Any
    weights: Any
    squares: float

    @property
    def effective_size(self) -> float:
        """The number of equally weighted documents worth as much."""
        return float(self.weights[0] ** 2 / or_one(self.squares))

    def merged(self, other: WordCore) -> WordCore:
        """The moments of the documents of both."""
        weights = self.weights + other.weights
        first = self.weights[0] * self.first + other.weights[0] * other.first
        second = self.weights[1] * self.second + other.weights[1] * other.second
        return WordCore(
            first / or_one(weights[0]),
            second / or_one(weights[1]),
            weights,
            self.squares + other.squares,
        )


@dataclass(frozen=True)
class WordTriples(WordPairs):
    """First, second and third word moments along a basis; `triples` is E3(Q, Q, Q) (r, r, r)."""

    triples: Any


class WordPairAccumulator:
    """First moment and the product of the second with a basis, from batches of documents.

    Parameters
    ----------
    basis : (V, r) array Q, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    n_threads : int
    """

    def __init__(self, basis: Any, scale: Any, cap: float, n_threads: int = 1) -> None:
        self.basis, self.scale, self.cap, self.n_threads = basis, scale, cap, n_threads
        # For each half and word: sums of the coefficients, then of projections times them.
        # None until there are any: a single batch needs no second array and no wider precision.
        self._sums: list[Any] = [None, None]
        self._weights = np.zeros((2, 3))
        self._squares = np.zeros(2)
        self._scaled_basis: Any = None
        self._spare: list[Any] = [None, None, None]

    def turned(self, basis: Any) -> Self:
        """An empty accumulator for another basis, in the memory of this one.

        This one is of no use afterwards.
        """
        other = type(self)(basis, self.scale, self.cap, self.n_threads)
        other._spare = [*self._sums, self._scaled_basis]
        return other

    def _width(self) -> int:
        return 2 + int(self.basis.shape[1])

    def update(self, batch: Any, weights: Any = None) -> Self:
        """Add documents.

        Parameters
        ----------
        batch : (n, V) CSR array of counts, or documents prepared once for several passes
        weights : (n,) how often each document counts; None for once, or if already prepared
        """
        if not isinstance(batch, PreparedDocuments):
            batch = prepare_documents(batch, weights)
        refuse_other_words(self.basis.shape[0], batch.n_features)
        for half, part in enumerate(batch.halves):
            if not len(part.lengths):
                continue
            base = np.minimum(part.lengths, self.cap)
            repeated = base if part.weights is None else base * part.weights
            coefficients = tuple_coefficients(part.lengths, repeated)
            projected = part.project(self._words(part.dtype), self.n_threads)
            rows = self._rows(projected, *coefficients)
            spread = part.spread(rows, self.n_threads, self._spare[half])
            self._spare[half] = None
            self._sums[half] = _add(self._sums[half], spread)
            for order in range(3):
                self._weights[half, order] += repeated[part.lengths > order].sum()
            self._squares[half] += (base * repeated).sum()
            self._add_products(half, projected, coefficients[2])
        return self

    def _words(self, dtype: Any) -> Any:
        """The scaled basis diag(s) Q in the precision of the documents."""
        if self._scaled_basis is None or self._scaled_basis.dtype != dtype:
            kind = np.promote_types(dtype, self.basis.dtype)
            scaled = room_for(self.basis.shape, kind, self._spare[2])
            np.multiply(self.scale.astype(kind)[:, None], self.basis, out=scaled)
            self._scaled_basis = scaled.astype(dtype, copy=False)
        return self._scaled_basis

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scaled_basis": None, "_spare": [None, None, None]}

    def _rows(self, projected: Any, singles: Any, pairs: Any, triples: Any) -> Any:
        """What is spread over the words of every document (n, width)."""
        rows = np.empty((len(projected), 2 + projected.shape[1]), projected.dtype)
        rows[:, 0], rows[:, 1] = singles, pairs
        np.multiply(projected, rows[:, 1:2], out=rows[:, 2:])
        return rows

    def _add_products(self, half: int, projected: Any, triples: Any) -> None:
        """Add what needs no words; nothing here."""

    def merge(self, other: Self) -> Self:
        """Add the documents that another accumulator with the same basis has seen."""
        if type(other) is not type(self):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        same = (
            self.cap == other.cap
            and np.array_equal(self.scale, other.scale)
            and np.array_equal(self.basis, other.basis)
        )
        if not same:
            raise InvalidInputError(
                "the two accumulators project onto different subspaces, so that their sums "
                "cannot be added: start the second from the first's basis, scale and cap"
            )
        self._sums = [_add(a, b) for a, b in zip(self._sums, other._sums, strict=True)]
        self._weights = self._weights + other._weights
        self._squares = self._squares + other._squares
        self._merge_products(other)
        return self

    def _merge_products(self, other: Self) -> None:
        """Add what `_add_products` has summed; nothing here."""

    def finalize(self) -> Any:
        """The moments of all documents so far; accumulation may go on afterwards."""
        return self._read((0, 1))

    def halves(self) -> tuple[Any, Any]:
        """The moments of the two halves of the documents, apart."""
        return self._read((0,)), self._read((1,))

    def pairs(
        self, halves: tuple[int, ...] = (0, 1), dtype: Any = np.float64, out: Any = None
    ) -> WordPairs:
        """The first two moments of all documents, or of one half, in some precision.

        The product is put into `out` where that is given and fits.
        """
        return WordPairs(*self._first_two(halves, dtype, out))

    def core(self, halves: tuple[int, ...] = (0, 1), room: Any = None) -> WordCore:
        """The first two moments along the basis, in the precision of the sums.

        Their product with the basis is put into `room` where that is given and fits.
        """
        sums = self._sums[halves[0]]
        kind = np.dtype(np.float64) if sums is None else sums.dtype
        pairs = self.pairs(halves, np.promote_types(kind, self.basis.dtype), room)
        with one_blas_thread():
            first, second = self.basis.T @ pairs.mean, self.basis.T @ pairs.product
        chosen = list(halves)
        return WordCore(
            first.astype(np.float64),
            second.astype(np.float64),
            self._weights[chosen, :2].sum(axis=0),
            float(self._squares[chosen].sum()),
        )

    def _read(self, halves: tuple[int, ...]) -> Any:
        return self.pairs(halves)

    def _sum(self, halves: tuple[int, ...]) -> Any:
        """The sums (V, width) of some of the halves."""
        total = None
        for half in halves:
            if self._sums[half] is not None:
                total = self._sums[half] if total is None else total + self._sums[half]
        return np.zeros((self.basis.shape[0], self._width())) if total is None else total

    def _first_two(
        self, halves: tuple[int, ...], dtype: Any = np.float64, out: Any = None
    ) -> tuple[Any, Any, float]:
        from latensor.moments._kernels import add_rows, without_same_word

        parts = [self._sums[half] for half in halves if self._sums[half] is not None]
        parts = parts or [self._sum(halves)]
        singles, pairs = sum(part[:, :2] for part in parts).T
        weights = self._weights[list(halves)].sum(axis=0)
        mean = (self.scale * singles / or_one(weights[0])).astype(dtype)
        weight = or_one(weights[1])
        factor = (self.scale / weight).astype(dtype)
        same_word = (self.scale**2 / weight * pairs).astype(dtype)
        product = room_for(self.basis.shape, np.result_type(dtype, *parts), out)
        first = self._width() - self.basis.shape[1]
        without_same_word(factor, parts[0], first, same_word, self.basis, product)
        for part in parts[1:]:
            add_rows(factor, part, first, product)
        squares = self._squares[list(halves)].sum()
        return mean, product, float(weights[0] ** 2 / or_one(squares))


class WordTripleAccumulator(WordPairAccumulator):
    """The first three word moments along a basis, in one pass over the documents.

    Costs n r^3 operations for n documents, in products of matrices.

    Parameters
    ----------
    basis : (V, r) array Q, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    n_threads : int
    """

    def __init__(self, basis: Any, scale: Any, cap: float, n_threads: int = 1) -> None:
        super().__init__(basis, scale, cap, n_threads)
        self._cubes = self._empty(basis.shape[1])

    def _empty(self, rank: int) -> Any:
        """Zeros for the sums of products of projections, for each half."""
        return np.zeros((2, rank, rank, rank))

    def _width(self) -> int:
        return 3 + 2 * int(self.basis.shape[1])

    def _rows(self, projected: Any, singles: Any, pairs: Any, triples: Any) -> Any:
        return np.hstack(
            [
                _columns(projected, singles, pairs, triples),
                weighed_rows(projected, triples),
                weighed_rows(projected, pairs),
            ]
        )

    def _add_products(self, half: int, projected: Any, triples: Any) -> None:
        add_cubes(
            weighed_rows(projected, triples),
            projected,
            projected,
            self._cubes[half],
            self.n_threads,
        )

    def _merge_products(self, other: Self) -> None:
        self._cubes = self._cubes + other._cubes

    def _read(self, halves: tuple[int, ...]) -> Any:
        words, neighbours = self._same_words_in_triples(halves)
        same = np.zeros((words.shape[1],) * 3)
        add_cubes(words, words, neighbours, same, self.n_threads)
        cube = _from_half(self._cubes[list(halves)].sum(axis=0))
        same = _from_half(same)
        cube -= same + same.transpose(0, 2, 1) + same.transpose(2, 1, 0)
        return WordTriples(*self._first_two(halves), cube / self._triple_weight(halves))

    def _same_words_in_triples(self, halves: tuple[int, ...]) -> tuple[Any, Any]:
        """Rows w, h (V, r) such that triples with a repeated word sum to three placements.

        With g the projected neighbours of a word and t its count, - sym3(w, w, g) + 2 t w^(x)3 is
        minus the three placements of (w, w, h), h = g - 2/3 t w.
        """
        sums, rank = self._sum(halves), self.basis.shape[1]
        words = self.scale[:, None] * self.basis
        neighbours = sums[:, 3 : 3 + rank] - (2 / 3) * sums[:, 2:3] * words
        if self._scaled_basis is not None:
            dtype = self._scaled_basis.dtype
            words, neighbours = words.astype(dtype), neighbours.astype(dtype)
        return words, neighbours

    def _triple_weight(self, halves: tuple[int, ...]) -> float:
        return float(or_one(self._weights[list(halves), 2].sum()))


def add_cubes(first: Any, second: Any, third: Any, out: Any, n_threads: int = 1) -> None:
    """Add sum_i a_i (x) b_i (x) c_i to out, for slices a <= b only, where a and b are alike."""
    # Products run along the rows, of which there are many more than columns.
    a, b = np.ascontiguousarray(first.T), np.ascontiguousarray(second.T)

    def add(index: int) -> None:
        for start in range(0, len(third), _ROWS):
            rows = slice(start, start + _ROWS)
            out[index, index:] += (a[index, rows] * b[index:, rows]) @ third[rows]

    with one_blas_thread():
        run_tasks(add, [(index,) for index in range(len(a))], n_threads)


def _from_half(cube: Any) -> Any:
    """The whole of an array symmetric in its first two axes, given for first <= second."""
    rows, columns = np.tril_indices(cube.shape[0], -1)
    whole = cube.copy()
    whole[rows, columns] = cube[columns, rows]
    return whole


def tuple_coefficients(lengths: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Weight over the number of ordered single tokens, pairs and triples, 0 where there is none."""
    counts = lengths
    found = []
    for order in range(1, 4):
        usable = lengths >= order
        found.append(np.where(usable, weights / np.where(usable, counts, 1.0), 0.0))
        counts = counts * (lengths - order)
    return found[0], found[1], found[2]


def _columns(projected: Any, *coefficients: Any) -> Any:
    return np.stack(coefficients, axis=1).astype(projected.dtype)


def weighed_rows(projected: Any, coefficients: Any) -> Any:
    """Rows (n, r) times a coefficient (n,) each, in the precision of the rows."""
    return projected * coefficients.astype(projected.dtype)[:, None]


def _add(total: Any, more: Any) -> Any:
    """A sum in double precision, or the only term as it is."""
    if total is None or more is None:
        return more if total is None else total
    return total + more.astype(np.float64)


def or_one(weight: Any) -> Any:
    """What to divide by: a weight, or one where there is none."""
    return weight if weight > 0 else 1.0
