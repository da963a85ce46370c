"""The subspace of the words that documents vary in: the leading directions of M2, never formed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from latensor.arrays.threads import one_blas_thread
from latensor.exceptions import NotIdentifiableError
from latensor.moments.documents import in_single
from latensor.moments.words import WordPairAccumulator, WordTotals

# Frequent words are damped by this power of their frequency. Measured on text after the polish:
# 0.15 to 0.25 are equally good, 0.35 is worse on long documents, 0.5 is bad.
WORD_POWER = 0.25
# Documents longer than so many times the mean weigh no more than that.
LENGTH_CAP = 10.0
# Two iterations and ten columns lose several per cent of perplexity; beyond these nothing is won.
_ITERATIONS = 5
_OVERSAMPLING = 30

Batches = Callable[[], Iterable[tuple[Any, Any]]]


@dataclass(frozen=True)
class WordSubspace:
    """Directions that the moments of documents are taken along.

    Attributes
    ----------
    basis : (V, r) orthonormal columns, in scaled words, by falling eigenvalue
    scale : (V,), zero for words that never occur
    cap : float, the length beyond which a document weighs no more
    spectrum : (s,) eigenvalues of M2, also of the oversampled directions that were left out
    noise : (r,) the noise of M2 among the first 1, 2, ..., r directions, relative to the weakest
        of them, from the two halves of the documents. Above 1/2 that one is doubtful
    """

    basis: Any
    scale: Any
    cap: float
    spectrum: Any
    noise: Any


def word_scale(totals: WordTotals) -> Any:
    """The factor (V,) every word is scaled by: its frequency to the power -1/4, 0 if unseen."""
    frequency = totals.totals / max(totals.n_tokens, 1.0)
    seen = frequency > 0
    return np.where(seen, np.where(seen, frequency, 1.0) ** -WORD_POWER, 0.0)


def find_subspace(
    batches: Batches,
    totals: WordTotals,
    rank: int,
    rng: np.random.Generator,
    n_threads: int = 1,
    callback: Callable[[], None] | None = None,
    *,
    concentration: float = 1.0,
    at_least: int | None = None,
) -> WordSubspace:
    """The `rank` leading directions of M2 = E2 - a/(a+1) E1 E1', by subspace iteration.

    Each of the five iterations and the last, which reads the eigenvalues off, is one pass over
    the documents.

    Parameters
    ----------
    batches : called for every pass, gives (documents, weights or None)
    totals : the words counted before
    rank : int
    rng : draws the start
    n_threads : int
    callback : told after every batch
    concentration : float, a of M2; what it is hardly turns the leading subspace
    at_least : int, fewer directions than `rank`, but not than this, will do; default `rank`
    """
    scale = word_scale(totals)
    cap = LENGTH_CAP * max(totals.mean_length, 1.0)
    seen = np.flatnonzero(scale > 0)
    width = min(rank + _OVERSAMPLING, len(seen))
    whole = width == len(seen)
    basis = np.zeros((len(scale), width))
    basis[seen] = np.eye(width) if whole else rng.standard_normal((len(seen), width))
    single = _Single(batches)
    for number in range(0 if whole else _ITERATIONS):
        basis = _orthonormal(basis)
        # The last iteration makes good what the others lose by rounding.
        passed = batches if number == _ITERATIONS - 1 else single
        pairs = _pass(passed, basis, scale, cap, n_threads, callback).finalize()
        basis = _stepped(corrected(pairs, basis, concentration), basis)
    basis = basis if whole else _orthonormal(_orthonormal(basis))
    sums = _pass(batches, basis, scale, cap, n_threads, callback)
    least = rank if at_least is None else at_least
    return subspace_of_sums(sums, concentration, rank, least)


def _pass(
    batches: Batches, basis: Any, scale: Any, cap: float, n_threads: int, callback: Any
) -> WordPairAccumulator:
    accumulator = WordPairAccumulator(basis, scale, cap, n_threads)
    for documents, weights in batches():
        accumulator.update(documents, weights)
        if callback is not None:
            callback()
    return accumulator


def corrected(pairs: Any, basis: Any, concentration: float) -> Any:
    """M2 Q (V, r) from E2 Q and the mean."""
    share = concentration / (concentration + 1)
    return pairs.product - share * np.outer(pairs.mean, pairs.mean @ basis)


class _Single:
    """Batches in single precision, turned into it once where they stay in memory."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._kept: list[tuple[Any, Any]] | None = None

    def __call__(self) -> Iterable[tuple[Any, Any]]:
        if self._kept is not None:
            return self._kept
        batches = self._batches()
        if not isinstance(batches, list):
            return batches
        self._kept = [(in_single(documents), weights) for documents, weights in batches]
        return self._kept


def _stepped(product: Any, basis: Any) -> Any:
    """The next directions: M2 Q, shifted where M2 has negative eigenvalues.

    The population's M2 has none, but noise makes as many negative as positive ones, and those
    would take the place of topics among the leading magnitudes.
    """
    with one_blas_thread():
        lowest = float(np.linalg.eigvalsh(_symmetric(basis.T @ product))[0])
    return product - lowest * basis if lowest < 0 else product


def _orthonormal(matrix: Any) -> Any:
    """Orthonormal columns with the same span: Cholesky of the Gram matrix, QR where that fails."""
    with one_blas_thread():
        try:
            factor = np.linalg.cholesky(matrix.T @ matrix)
            inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
            found = matrix @ inverse.T
        except np.linalg.LinAlgError:
            found = np.linalg.qr(matrix)[0]
    return np.ascontiguousarray(found)


def subspace_of_sums(
    sums: WordPairAccumulator, concentration: float, rank: int | None = None, at_least: int = 1
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
    moments = sums.pairs()
    with one_blas_thread():
        whole, first, second = (
            _symmetric(basis.T @ corrected(part, basis, concentration))
            for part in (moments, sums.pairs((0,)), sums.pairs((1,)))
        )
        values, vectors = falling_eigenpairs(whole)
        usable = usable_rank(values, len(scale))
        if usable < at_least:
            raise NotIdentifiableError(
                f"n_components={at_least} exceeds the {usable} directions that the second moment "
                f"of the words supports ({moments.effective_size:.0f} effective documents, "
                f"{int((scale > 0).sum())} words): lower n_components or give more documents"
            )
        kept = vectors[:, : usable if rank is None else min(rank, usable)]
        noise = _noise(first, second, kept, values)
        directions = np.ascontiguousarray(with_signs(basis @ kept))
    return WordSubspace(directions, scale, sums.cap, values, noise)


def _noise(first: Any, second: Any, kept: Any, values: Any) -> Any:
    """The noise (r,) among the first 1, 2, ..., r directions, as the two halves show it.

    The larger of two measures: half the difference of the whitened halves, and what an eigenvalue
    loses when the directions of one half meet the other. The first is right for directions of
    topics but blind to those that noise has made, which the whole documents have chosen so that
    both halves agree on them.
    """
    rank = kept.shape[1]
    roots = np.sqrt(values[:rank])
    half = kept.T @ (first - second) @ kept / (2 * np.outer(roots, roots))
    difference = [np.abs(np.linalg.eigvalsh(half[:r, :r])).max() for r in range(1, rank + 1)]
    crossed = np.zeros(rank)
    for one, other in ((first, second), (second, first)):
        directions = np.linalg.eigh(one)[1][:, ::-1][:, :rank]
        crossed += np.einsum("ij,ij->j", directions, other @ directions) / 2
    lost = np.maximum.accumulate(1 - crossed / values[:rank])
    return np.maximum(difference, lost)


def falling_eigenpairs(matrix: Any) -> tuple[Any, Any]:
    """Eigenvalues of a symmetric matrix, the largest first, and vectors with fixed signs."""
    values, vectors = np.linalg.eigh(matrix)
    return values[::-1], with_signs(vectors[:, ::-1])


def with_signs(columns: Any) -> Any:
    """Columns whose entry of largest magnitude is positive: rounding must not turn them around."""
    largest = np.abs(columns).argmax(axis=0)
    signs = np.sign(columns[largest, np.arange(columns.shape[1])])
    return columns * np.where(signs == 0, 1.0, signs)


def _symmetric(matrix: Any) -> Any:
    return (matrix + matrix.T) / 2


def usable_rank(values: Any, n_words: int) -> int:
    """The number of eigenvalues that are positive beyond rounding."""
    floor = n_words * np.finfo(np.float32).eps * 1e-3 * abs(float(values[0]))
    return int(np.count_nonzero(values > floor))
