"""The subspace of the words that documents vary in: the leading directions of M2, never formed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import NotIdentifiableError
from latensor.moments.documents import room_for
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_totals import WordTotals
from latensor.moments.words import WordCore, WordPairSums
from latensor.refinement.em import Loop
from latensor.value_files import storable

# Frequent words are damped by this power of their frequency. Measured on text after refinement:
# 0.15 to 0.25 are equally good, 0.35 is worse on long documents, 0.5 is bad.
WORD_POWER = 0.25
# Documents longer than so many times the mean weigh no more than that.
LENGTH_CAP = 10.0
# Two iterations and ten columns lose several per cent of perplexity; beyond these nothing is won.
# Where refinement follows, two iterations less end as well: Reuters (26 splits), BBC and AP.
_ITERATIONS = 5
_ITERATIONS_BEFORE_REFINEMENT = 3
_OVERSAMPLING = 30
# Single precision is enough for directions that stand in noise. Where those left out are this much
# weaker than the weakest kept, the documents have hardly any, and the last passes are made precise.
_NOISELESS = 1e-3
# Rows of words that are changed at once: they stay in the cache.
_ROWS = 1024

# One pass over the documents.
Fold = Callable[[Any], Any]


@storable
@dataclass(frozen=True)
class WordSubspace:
    """Directions that the moments of documents are taken along.

    Attributes
    ----------
    basis : (V, r) orthonormal columns, in scaled words, by decreasing eigenvalue
    scale : (V,), zero for words that never occur
    cap : float, the length beyond which a document weighs no more
    spectrum : (s,) eigenvalues of M2, also of the oversampled directions that were left out
    halves : two (s, s) arrays, M2 of either half of the documents along the eigenvectors of both
    noisy : bool, whether moments have so much noise that single precision adds nothing to it
    """

    basis: Any
    scale: Any
    cap: float
    spectrum: Any
    halves: tuple[Any, Any]
    noisy: bool = False

    @cached_property
    def noise(self) -> Any:
        """The noise (r,) of M2 among the first 1, 2, ..., r directions, relative to the weakest.

        As the two halves of the documents show it; above 1/2 that direction is doubtful. The larger
        of two measures: half the difference of the whitened halves, and what an eigenvalue loses
        when the directions of one half meet the other. The first is right for directions of topics
        but blind to those that noise has made, which the whole documents have chosen so that both
        halves agree on them.
        """
        first, second = self.halves
        rank = self.basis.shape[1]
        values = self.spectrum[:rank]
        roots = np.sqrt(values)
        half = (first - second)[:rank, :rank] / (2 * np.outer(roots, roots))
        crossed = np.zeros(rank)
        with one_blas_thread():
            difference = [
                np.abs(np.linalg.eigvalsh(half[:r, :r])).max() for r in range(1, rank + 1)
            ]
            for one, other in ((first, second), (second, first)):
                directions = np.linalg.eigh(one)[1][:, ::-1][:, :rank]
                crossed += np.einsum("ij,ij->j", directions, other @ directions) / 2
        lost = np.maximum.accumulate(1 - crossed / values)
        return np.maximum(difference, lost)


def word_scale(totals: WordTotals) -> Any:
    """The factor (V,) every word is scaled by: its frequency to the power -1/4, 0 if unseen."""
    frequency = totals.totals / max(totals.n_tokens, 1.0)
    seen = frequency > 0
    return np.where(seen, np.where(seen, frequency, 1.0) ** -WORD_POWER, 0.0)


def find_subspace(
    fold: Fold,
    totals: WordTotals,
    rank: int,
    rng: np.random.Generator,
    *,
    concentration: float = 1.0,
    at_least: int | None = None,
    before_refinement: bool = False,
    loop: Loop | None = None,
) -> WordSubspace:
    """The `rank` leading directions of M2 = E2 - a/(a+1) E1 E1', by subspace iteration.

    Each of the five iterations (three before refinement) and the last pass, which reads the
    eigenvalues off, is one pass over the documents.

    Parameters
    ----------
    fold : makes a pass
    totals : the words counted before
    rank : int
    rng : draws the start
    concentration : float, a of M2; what it is hardly turns the leading subspace
    at_least : int, fewer directions than `rank`, but not than this, will do; default `rank`
    before_refinement : bool, whether what the topics lack in accuracy is made good later
    loop : where the directions after every iteration are kept, and taken up again
    """
    loop = loop or Loop()
    scale = word_scale(totals)
    cap = LENGTH_CAP * max(totals.mean_length, 1.0)
    seen = np.flatnonzero(scale > 0)
    width = min(rank + _OVERSAMPLING, len(seen))
    least = rank if at_least is None else at_least
    noisy = width < len(seen)
    basis = _start(seen, len(scale), width, rng)
    product = None
    sums = WordPairSums(basis, scale, cap, noisy)
    if noisy:
        iterations = _ITERATIONS_BEFORE_REFINEMENT if before_refinement else _ITERATIONS
        begin, basis, noisy = loop.state or (0, basis, noisy)
        for number in range(begin, iterations):
            # The last iteration makes good what the others lose by rounding.
            single = noisy or number < iterations - 1
            if not single:
                basis = basis.astype(np.float64)
            sums = fold(sums.turned(basis, single))
            basis, values, product = _stepped(sums, concentration, product)
            noisy = bool(values[min(rank, width - 1)] > _NOISELESS * values[min(least, width) - 1])
            loop.commit((number + 1, basis, noisy))
        if not noisy:
            basis = _orthonormal(basis.astype(np.float64))
        basis = _orthonormal(basis, out=product)
    last = fold(WordCoreSums(basis, scale, cap, noisy))
    return replace(subspace_of_sums(last, concentration, rank, least), noisy=noisy)


def _start(seen: Any, n_words: int, width: int, rng: np.random.Generator) -> Any:
    """Directions (V, width) over the words seen: all of them, or random ones."""
    if width == len(seen):
        basis = np.zeros((n_words, width))
        basis[seen] = np.eye(width)
        return basis
    # Independent numbers of variance 1 / V: columns so near to orthonormal that they may pass.
    drawn = rng.random((len(seen), width), np.float32)
    drawn -= np.float32(0.5)
    drawn *= np.float32((12 / len(seen)) ** 0.5)
    if len(seen) == n_words:
        return drawn
    basis = np.zeros((n_words, width), np.float32)
    basis[seen] = drawn
    return basis


def _stepped(sums: WordPairSums, concentration: float, room: Any) -> tuple[Any, Any, Any]:
    """The next directions, M2 Q made orthonormal; the decreasing eigenvalues of Q' M2 Q; and M2 Q.

    M2 is shifted where it has negative eigenvalues. The population's M2 has none, but noise makes
    as many negative as positive ones, and those would take the place of topics among the leading
    magnitudes.

    The directions take the place of those that the sums were taken along, the product that of
    `room` where it fits.
    """
    basis = sums.basis
    pairs = sums.pairs(dtype=basis.dtype, out=room)
    fraction = basis.dtype.type(concentration / (concentration + 1))
    with one_blas_thread():
        along = pairs.mean @ basis
        core = _symmetric(basis.T @ pairs.product).astype(np.float64)
        values = np.linalg.eigvalsh(core - float(fraction) * np.outer(along, along))[::-1]
    shift = basis.dtype.type(min(float(values[-1]), 0.0))
    for begin in range(0, len(basis), _ROWS):
        rows = slice(begin, begin + _ROWS)
        pairs.product[rows] -= (fraction * pairs.mean[rows, None]) * along
        pairs.product[rows] -= shift * basis[rows]
    return _orthonormal(pairs.product, out=basis), values, pairs.product


def _orthonormal(matrix: Any, out: Any = None) -> Any:
    """Orthonormal columns with the same span: Cholesky of the Gram matrix, QR where that fails.

    In `out`, another array, where that is given and fits.
    """
    with one_blas_thread():
        try:
            factor = np.linalg.cholesky((matrix.T @ matrix).astype(np.float64))
            inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
            found = room_for(matrix.shape, matrix.dtype, out)
            np.matmul(matrix, inverse.T.astype(matrix.dtype), out=found)
        except np.linalg.LinAlgError:
            found = np.linalg.qr(matrix)[0]
    return np.ascontiguousarray(found)


def subspace_of_sums(
    sums: WordPairSums | WordCoreSums,
    concentration: float,
    rank: int | None = None,
    at_least: int = 1,
) -> WordSubspace:
    """The leading directions of M2 within the basis that it was summed along.

    Parameters
    ----------
    sums : moments along an orthonormal basis
    concentration : float, a of M2
    rank : int, directions to keep; None for those that are usable
    at_least : int, with fewer usable directions the topics are not identifiable
    """
    basis, scale = sums.basis, sums.scale
    with one_blas_thread():
        halves = sums.core((0,)), sums.core((1,))
        core = halves[0].merged(halves[1])
        values, vectors = leading_eigenpairs(_corrected(core, concentration))
        usable = usable_rank(values, len(scale))
        if usable < at_least:
            raise NotIdentifiableError(
                f"n_components={at_least} exceeds the {usable} directions that the second moment "
                f"of the words supports ({core.effective_size:.0f} effective documents, "
                f"{int((scale > 0).sum())} words): lower n_components or give more documents"
            )
        turned = [vectors.T @ _corrected(half, concentration) @ vectors for half in halves]
        kept = vectors[:, : usable if rank is None else min(rank, usable)]
        directions = (basis @ kept.astype(basis.dtype)).astype(np.float64)
        if basis.dtype != np.float64:
            directions = _orthonormal(directions)
    directions *= _signs(directions)
    return WordSubspace(directions, scale, sums.cap, values, (turned[0], turned[1]))


def _corrected(core: WordCore, concentration: float) -> Any:
    """M2 along the basis (r, r), from the first two moments along it."""
    fraction = concentration / (concentration + 1)
    return _symmetric(core.second - fraction * np.outer(core.first, core.first))


def leading_eigenpairs(matrix: Any) -> tuple[Any, Any]:
    """Eigenvalues of a symmetric matrix, the largest first, and vectors with fixed signs."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], with_signs(vectors[:, ::-1])


def with_signs(columns: Any) -> Any:
    """Columns whose entry of largest magnitude is positive: rounding must not turn them around."""
    return columns * _signs(columns)


def _signs(columns: Any) -> Any:
    """(r,) 1 or -1, by which columns get a positive entry of largest magnitude."""
    return np.where(columns.max(axis=0) >= -columns.min(axis=0), 1.0, -1.0)


def _symmetric(matrix: Any) -> Any:
    return (matrix + matrix.T) / 2


def usable_rank(values: Any, n_words: int) -> int:
    """The number of eigenvalues that are positive beyond rounding."""
    floor = n_words * np.finfo(np.float32).eps * 1e-3 * float(np.abs(values).max())
    return int(np.count_nonzero(values > floor))
