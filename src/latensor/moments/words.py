"""Word moments of documents by exact U-statistics, as mergeable sums (monograph 4.1, 4.2.3).

For a document with counts c (V,) and length m, the average over ordered pairs and triples of
*different* tokens is unbiased whatever the length:

    pairs    (c c' - diag(c)) / (m (m - 1))
    triples  (c^(x)3 - sum_t c_t sym3(e_t, e_t, c) + 2 sum_t c_t e_t^(x)3) / (m (m - 1) (m - 2))

where sym3 sums the three placements. Words are scaled by s (V,), so that frequent ones do not
hide the others, and the moments are only ever taken along a basis Q (V, r): the pairs as
E2 Q (V, r), the triples as E3(Q, Q, Q) (r, r, r). Nothing of size V x V is formed.

Documents are weighted by min(m, cap): a long one tells more, up to a point. They fall into two
halves by their content (equal documents into the same one), and the sums of both are kept apart:
the difference of the halves measures the noise, at no cost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentHalf, prepared_documents, room_for
from latensor.moments.sums import Closing, plus, same, symmetric_matrix
from latensor.moments.word_totals import refuse_other_words
from latensor.value_files import storable

# What the sums of the two halves of the documents are called.
HALVES = ("first", "second")

# Rows of words that are changed at once: they stay in the cache.
_ROWS = 1024


@dataclass(frozen=True)
class WordPairs:
    """First and second word moments along a basis.

    Attributes
    ----------
    mean : (V,) E1, in scaled words
    product : (V, r) E2 Q, in scaled words
    effective_size : float, the number of equally weighted documents worth as much
    first, second : Q'E1 (r,) and Q'E2 Q (r, r), where they are known; else None
    """

    mean: Any
    product: Any
    effective_size: float
    first: Any = field(default=None, kw_only=True)
    second: Any = field(default=None, kw_only=True)

    def along(self, basis: Any) -> tuple[Any, Any]:
        """Q'E1 (r,) and Q'E2 Q (r, r), symmetric, along the basis (V, r) of the moments."""
        if self.first is not None:
            return self.first, self.second
        with one_blas_thread():
            second = basis.T @ self.product
            return basis.T @ self.mean, (second + second.T) / 2


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


@storable(fields=())
class Spare:
    """Arrays that may be written to; no part of a frame, and never sent or stored anywhere."""

    def __init__(self, arrays: Iterable[Any] = ()) -> None:
        self.arrays = list(arrays)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Spare)

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return Spare, ()

    def take(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """One that fits, which is then no longer spare; None where there is none."""
        for place, array in enumerate(self.arrays):
            if array.shape == shape and array.dtype == dtype:
                return self.arrays.pop(place)
        return None


@storable
@dataclass(frozen=True, eq=False)
class WordPairSums(Closing):
    """First moment and the product of the second with a basis, from batches of documents.

    What travels are the sums of both halves of the documents, added, V (r + 2) numbers: in single
    precision where the documents are read so, because the moments then have so much noise that it
    adds nothing (each of the log2 P merges of P partitions rounds by 6e-8).

    Attributes
    ----------
    basis : (V, r) array Q, in scaled words
    scale : (V,) array s
    cap : float, the length beyond which a document weighs no more
    single : bool, whether documents are read in single precision
    spare : arrays of earlier sums, whose memory is used again
    """

    threads_inside: ClassVar[bool] = True
    basis: Any
    scale: Any
    cap: float
    single: bool = False
    spare: Spare = field(default_factory=Spare, repr=False)

    def turned(self, basis: Any, single: bool | None = None) -> Self:
        """An empty accumulator for another basis, in the memory of this one.

        This one is of no use afterwards.
        """
        spare = Spare(self.spare.arrays)
        if self.sums is not None and not self.is_closed:
            spare.arrays.extend(half for half in self.sums["words"].values() if half is not None)
        spare.arrays.extend(self.__dict__.get("_scaled", {}).values())
        kept = self.single if single is None else single
        return replace(self, basis=basis, single=kept, sums=None, spare=spare)

    def _width(self) -> int:
        return 2 + int(self.basis.shape[1])

    def opened(self, batch: Batch) -> Self:
        """Add the documents of a batch, in place after the first one."""
        prepared = prepared_documents(batch, self.single)
        refuse_other_words(self.basis.shape[0], prepared.n_features)
        sums = self.sums or self._nothing()
        for half, part in enumerate(prepared.halves):
            if len(part.lengths):
                self._add(sums, half, part)
        if self.sums is sums:
            return self
        found = replace(self, sums=sums)
        found.__dict__["_scaled"] = self._scaled
        return found

    def _nothing(self) -> dict[str, Any]:
        return {
            "words": dict.fromkeys(HALVES),
            "weights": np.zeros((2, 3)),
            "squares": np.zeros(2),
        }

    def _add(self, sums: dict[str, Any], half: int, part: DocumentHalf) -> None:
        base = np.minimum(part.lengths, self.cap)
        repeated = base if part.weights is None else base * part.weights
        coefficients = tuple_coefficients(part.lengths, repeated)
        projected = part.project(self._words(part.dtype))
        rows = self._rows(projected, *coefficients)
        words, name = sums["words"], HALVES[half]
        if words[name] is None:
            # A single batch needs no wider precision.
            room = self.spare.take((self.basis.shape[0], rows.shape[1]), rows.dtype)
            words[name] = part.spread(rows, room)
        else:
            words[name] = words[name].astype(np.float64, copy=False)
            part.add_spread(rows, words[name])
        for order in range(3):
            sums["weights"][half, order] += repeated[part.lengths > order].sum()
        sums["squares"][half] += (base * repeated).sum()
        self._add_products(sums, half, projected, coefficients[2])

    @cached_property
    def _scaled(self) -> dict[Any, Any]:
        return {}

    def _words(self, dtype: Any) -> Any:
        """The scaled basis diag(s) Q in the precision of the documents."""
        if dtype not in self._scaled:
            kind = np.promote_types(dtype, self.basis.dtype)
            room = self.spare.take(self.basis.shape, kind)
            scaled = room_for(self.basis.shape, kind, room)
            np.multiply(self.scale.astype(kind)[:, None], self.basis, out=scaled)
            self._scaled[dtype] = scaled.astype(dtype, copy=False)
        return self._scaled[dtype]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_scaled"}

    def _rows(self, projected: Any, singles: Any, pairs: Any, triples: Any) -> Any:
        """What is spread over the words of every document (n, width)."""
        rows = np.empty((len(projected), 2 + projected.shape[1]), projected.dtype)
        rows[:, 0], rows[:, 1] = singles, pairs
        np.multiply(projected, rows[:, 1:2], out=rows[:, 2:])
        return rows

    def _add_products(self, sums: dict[str, Any], half: int, projected: Any, triples: Any) -> None:
        """Add what needs no words; nothing here."""

    def merge(self, other: Self) -> Self:
        """With the documents that another of the same basis has seen."""
        if type(other) is not type(self):
            raise InvalidInputError(
                f"cannot merge a {type(other).__name__} into a {type(self).__name__}"
            )
        if not same(self.empty(), other.empty()):
            raise InvalidInputError(
                "the two accumulators project onto different subspaces, so that their sums "
                "cannot be added: start the second from the first's basis, scale and cap"
            )
        return super().merge(other)

    @property
    def is_closed(self) -> bool:
        return self.sums is not None and "words" not in self.sums

    def closed(self) -> Self:
        if self.sums is None or self.is_closed:
            return self
        both = self._sum((0, 1))[:, : self._width()].astype(self._sent)
        return replace(
            self,
            sums={"both": both, "weights": self.sums["weights"], "squares": self.sums["squares"]},
        )

    @property
    def _sent(self) -> Any:
        """The precision in which sums travel."""
        return np.dtype(np.float32 if self.single else np.float64)

    def finalize(self) -> Any:
        """The moments of all documents so far."""
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

    def core(self, halves: tuple[int, ...] = (0, 1)) -> WordCore:
        """The first two moments along the basis, in the precision of the sums."""
        seen = self.seen()
        sums = seen["words"][HALVES[halves[0]]]
        kind = np.dtype(np.float64) if sums is None else sums.dtype
        pairs = self.pairs(halves, np.promote_types(kind, self.basis.dtype))
        first, second = pairs.along(self.basis)
        chosen = list(halves)
        return WordCore(
            first.astype(np.float64),
            second.astype(np.float64),
            seen["weights"][chosen, :2].sum(axis=0),
            float(seen["squares"][chosen].sum()),
        )

    def _read(self, halves: tuple[int, ...]) -> Any:
        return self.pairs(halves)

    def _sum(self, halves: tuple[int, ...]) -> Any:
        """The sums (V, width) of some of the halves."""
        total = None
        for half in halves:
            total = plus(total, self.seen()["words"][HALVES[half]])
        return np.zeros((self.basis.shape[0], self._width())) if total is None else total

    def _parts(self, halves: tuple[int, ...]) -> list[Any]:
        """Sums (V, width) that are added up."""
        seen = self.seen()
        if self.is_closed:
            if len(halves) < 2:
                raise InvalidInputError("these sums travelled, and know no halves any more")
            return [seen["both"]]
        parts = [seen["words"][HALVES[half]] for half in halves]
        return [part for part in parts if part is not None] or [self._sum(halves)]

    def _first_two(
        self, halves: tuple[int, ...], dtype: Any = np.float64, out: Any = None
    ) -> tuple[Any, Any, float]:
        seen = self.seen()
        parts = self._parts(halves)
        singles, pairs = sum(part[:, :2] for part in parts).T
        weights = seen["weights"][list(halves)].sum(axis=0)
        mean = (self.scale * singles / or_one(weights[0])).astype(dtype)
        weight = or_one(weights[1])
        factor = (self.scale / weight).astype(dtype)
        same_word = (self.scale**2 / weight * pairs).astype(dtype)
        product = room_for(self.basis.shape, np.result_type(dtype, *parts), out)
        # In blocks that stay in the cache: compiled loops are a few times as fast and cost a second
        # to compile, for some four milliseconds a pass at 20,000 words and 60 directions.
        columns = slice(2, 2 + product.shape[1])
        for begin in range(0, len(product), _ROWS):
            rows = slice(begin, begin + _ROWS)
            place, scale = product[rows], factor[rows, None]
            np.multiply(scale, parts[0][rows, columns], out=place)
            place -= same_word[rows, None] * self.basis[rows]
            for part in parts[1:]:
                place += scale * part[rows, columns]
        squares = seen["squares"][list(halves)].sum()
        return mean, product, float(weights[0] ** 2 / or_one(squares))


def closed_core(sums: dict[str, Any], halves: tuple[int, ...]) -> WordCore:
    """The first two moments along a basis, of sums that travelled."""
    chosen = list(halves)
    weights = sums["weights"][chosen, :2].sum(axis=0)
    return WordCore(
        sums["first"][chosen].sum(axis=0) / or_one(weights[0]),
        symmetric_matrix(sums["second"][chosen].sum(axis=0)) / or_one(weights[1]),
        weights,
        float(sums["squares"][chosen].sum()),
    )


def tuple_coefficients(lengths: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Weight over the number of ordered single tokens, pairs and triples, 0 where there is none."""
    counts = lengths
    found = []
    for order in range(1, 4):
        usable = lengths >= order
        found.append(np.where(usable, weights / np.where(usable, counts, 1.0), 0.0))
        counts = counts * (lengths - order)
    return found[0], found[1], found[2]


def weighed_rows(projected: Any, coefficients: Any) -> Any:
    """Rows (n, r) times a coefficient (n,) each, in the precision of the rows."""
    return projected * coefficients.astype(projected.dtype)[:, None]


def or_one(weight: Any) -> Any:
    """What to divide by: a weight, or one where there is none."""
    return weight if weight > 0 else 1.0
