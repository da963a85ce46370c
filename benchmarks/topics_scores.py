"""Quality of topics, measured the same way for everybody and by none of the methods' code.

*Perplexity* is document completion: the tokens of a test document are cut at random into two
halves, the mixture of topics is inferred from one and the words of the other are predicted. The
strength of the prior on mixtures and the fraction of the background distribution of words that is
mixed into the topics are tuned for every method on half of the test documents and scored on
the other half, and the other way round; words that no training document holds are left out.
*NPMI* is the coherence of the ten most probable words of a topic by co-occurrence in the training
documents. *L1* is the mean distance between planted topics and those learned, matched one to one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import scipy.optimize
import scipy.sparse

PRIORS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
BACKGROUNDS = (1e-4, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4)
N_TOP = 10


@dataclass(frozen=True)
class Completion:
    """Documents cut into an `observed` and a `hidden` half.

    `folds` are pairs of rows: those that tune and those that are scored with that choice.
    """

    observed: Any
    hidden: Any
    folds: tuple[tuple[Any, Any], ...]
    background: Any


def complete(train: Any, documents: Any, seed: int, halves: bool = True) -> Completion:
    """Cut the tokens of `documents` in two and, with `halves`, the documents as well."""
    rng = np.random.default_rng([seed, 2])
    frequency = np.asarray(train.sum(0)).ravel()
    documents = scipy.sparse.csr_array(documents * (frequency > 0))
    documents.eliminate_zeros()
    documents = documents[np.flatnonzero(np.asarray(documents.sum(1)).ravel() >= 2)]
    counts = documents.data.astype(np.int64)
    rows = np.repeat(np.arange(documents.shape[0]), np.diff(documents.indptr))
    rows, words = np.repeat(rows, counts), np.repeat(documents.indices, counts)
    order = np.lexsort((rng.random(rows.size), rows))
    rows, words = rows[order], words[order]
    sizes = np.bincount(rows, minlength=documents.shape[0])
    rank = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    seen = rank < np.repeat((sizes + 1) // 2, sizes)

    def matrix(chosen: Any) -> Any:
        entries = (np.ones(int(chosen.sum())), (rows[chosen], words[chosen]))
        result = scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=documents.shape))
        result.sum_duplicates()
        return result

    order = rng.permutation(documents.shape[0])
    one, other = np.sort(order[: order.size // 2]), np.sort(order[order.size // 2 :])
    folds = ((one, other), (other, one)) if halves else ((np.sort(order), np.sort(order)),)
    return Completion(matrix(seen), matrix(~seen), folds, frequency / frequency.sum())


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _log_likelihood(
    rows: Any,
    starts: Any,
    words: Any,
    counts: Any,
    hidden_starts: Any,
    hidden_words: Any,
    hidden_counts: Any,
    columns: Any,
    prior: Any,
    max_iter: int,
) -> float:
    """Sum of log p(hidden words | observed words) over documents.

    Mixtures by the collapsed fixed point: with the fractions g of a word's topics proportional to
    phi_wj (c_j - g_j + a_j), where c sums the fractions of all observed tokens, a word does not
    vote for itself. Started at the prior.
    """
    k = columns.shape[1]
    longest = 0
    for row in rows:
        longest = max(longest, starts[row + 1] - starts[row])
    fractions = np.empty((longest, k), dtype=columns.dtype)
    expected = np.empty(k, dtype=columns.dtype)
    before = np.empty(k, dtype=columns.dtype)
    fresh = np.empty(k, dtype=columns.dtype)
    total = 0.0
    for row in rows:
        first = starts[row]
        n_words = starts[row + 1] - first
        size = 0.0
        expected[:] = 0
        for i in range(n_words):
            column = columns[words[first + i]]
            count = counts[first + i]
            norm = 0.0
            for j in range(k):
                fractions[i, j] = column[j] * prior[j]
                norm += fractions[i, j]
            for j in range(k):
                fractions[i, j] /= norm
                expected[j] += count * fractions[i, j]
            size += count
        for _ in range(max_iter):
            before[:] = expected
            for i in range(n_words):
                column = columns[words[first + i]]
                count = counts[first + i]
                norm = 0.0
                for j in range(k):
                    rest = expected[j] - fractions[i, j]
                    fresh[j] = column[j] * (max(rest, 0.0) + prior[j])
                    norm += fresh[j]
                scale = 1.0 / norm
                for j in range(k):
                    value = fresh[j] * scale
                    expected[j] += count * (value - fractions[i, j])
                    fractions[i, j] = value
            change = 0.0
            for j in range(k):
                change += abs(expected[j] - before[j])
            if change < 1e-3 * size:
                break
        mass = 0.0
        for j in range(k):
            expected[j] = max(expected[j], 0.0) + prior[j]
            mass += expected[j]
        for position in range(hidden_starts[row], hidden_starts[row + 1]):
            column = columns[hidden_words[position]]
            value = 0.0
            for j in range(k):
                value += column[j] * expected[j]
            total += hidden_counts[position] * np.log(value / mass)
    return total


def perplexity(
    topics: Any, prior: Any, fraction: float, completion: Completion, rows: Any, max_iter: int = 50
) -> float:
    """Completion perplexity of some documents under one prior and one background fraction."""
    mixed = (1 - fraction) * np.asarray(topics, dtype=np.float64) + fraction * completion.background
    columns = np.ascontiguousarray(mixed.T)
    observed, hidden = completion.observed, completion.hidden
    value = _log_likelihood(
        np.asarray(rows),
        observed.indptr,
        observed.indices,
        observed.data,
        hidden.indptr,
        hidden.indices,
        hidden.data,
        columns,
        np.asarray(prior, dtype=np.float64),
        max_iter,
    )
    return float(np.exp(-value / hidden[rows].sum()))


def tuned_perplexity(topics: Any, alpha: Any, completion: Completion) -> dict[str, float]:
    """Perplexity of documents, with what the other half of the documents preferred.

    Each half is scored with what was tuned on the other, so that all documents count and none
    is scored with its own choice. `prior` and `fraction` are the choice of the first half.
    """
    topics = np.maximum(np.asarray(topics, dtype=np.float64), 0)
    topics = topics / topics.sum(1, keepdims=True)
    total, size = 0.0, 0.0
    chosen = []
    for tune, report in completion.folds:
        shape, strength, fraction = _tune(topics, alpha, completion, tune)
        value = perplexity(topics, shape * strength, fraction, completion, report)
        weight = float(completion.hidden[report].sum())
        total += weight * np.log(value)
        size += weight
        chosen.append((strength, fraction))
    strength, fraction = chosen[0]
    return {"perplexity": float(np.exp(total / size)), "prior": strength, "fraction": fraction}


def _tune(topics: Any, alpha: Any, completion: Completion, rows: Any) -> tuple[Any, float, float]:
    """Shape and strength of the prior and background fraction that suit some documents best.

    One after the other: the strength of an even prior, the background fraction, then the shape
    that the method itself learned, at every strength.
    """
    k = topics.shape[0]
    shapes = [np.ones(k)]
    if alpha is not None and np.ptp(alpha) > 1e-3 * np.mean(alpha):
        learned = np.maximum(np.asarray(alpha, dtype=np.float64), 1e-6 * np.max(alpha))
        shapes.append(learned * k / learned.sum())
    cost: dict[tuple[int, float, float], float] = {}

    def best(candidates: list[tuple[int, float, float]]) -> tuple[int, float, float]:
        for candidate in candidates:
            if candidate not in cost:
                shape, strength, fraction = candidate
                prior = shapes[shape] * strength
                cost[candidate] = perplexity(topics, prior, fraction, completion, rows)
        return min(candidates, key=cost.__getitem__)

    _, strength, _ = best([(0, strength, 0.03) for strength in PRIORS])
    _, strength, fraction = best([(0, strength, fraction) for fraction in BACKGROUNDS])
    numbers = range(len(shapes))
    shape, strength, fraction = best(
        [(s, strength, fraction) for s in numbers for strength in PRIORS]
    )
    return shapes[shape], strength, fraction


def npmi(topics: Any, documents: Any, n_top: int = N_TOP) -> float:
    """Mean normalized pointwise mutual information of the pairs among each topic's top words."""
    top = np.argsort(-np.asarray(topics), axis=1, kind="stable")[:, :n_top]
    words, index = np.unique(top, return_inverse=True)
    index = index.reshape(top.shape)
    occurs = scipy.sparse.csc_array(documents[:, words])
    occurs.data = np.ones_like(occurs.data)
    joint = np.asarray((occurs.T @ occurs).todense()) / documents.shape[0]
    single = np.diag(joint)
    left, right = np.triu_indices(top.shape[1], 1)
    first, second = index[:, left], index[:, right]
    both = joint[first, second]
    with np.errstate(divide="ignore", invalid="ignore"):
        value = np.log(both / (single[first] * single[second])) / -np.log(both)
    # Words that never meet have the lowest value there is; words in every document, none.
    value = np.where(both > 0, value, -1.0)
    return float(np.mean(np.nan_to_num(value, nan=0.0)))


def matched_distance(truth: Any, topics: Any) -> float:
    """Mean L1 distance between true topics and those learned, matched one to one."""
    cost = np.array([np.abs(topics - row).sum(1) for row in truth])
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    return float(cost[rows, columns].mean())


@numba.njit(cache=True)  # type: ignore[untyped-decorator]
def _pass(
    starts: Any,
    words: Any,
    counts: Any,
    columns: Any,
    alpha: Any,
    expected: Any,
    weights: Any,
    leave_one_out: bool,
) -> None:
    k = columns.shape[1]
    fraction = np.empty(k)
    fresh = np.empty(k)
    for row in range(expected.shape[0]):
        fresh[:] = 0
        for position in range(starts[row], starts[row + 1]):
            word = words[position]
            norm = 0.0
            for j in range(k):
                fraction[j] = columns[word, j] * (expected[row, j] + alpha[j])
                norm += fraction[j]
            if leave_one_out:
                scale, norm = 1.0 / norm, 0.0
                for j in range(k):
                    rest = max(expected[row, j] - fraction[j] * scale, 0.0)
                    fraction[j] = columns[word, j] * (rest + alpha[j])
                    norm += fraction[j]
            scale = counts[position] / norm
            for j in range(k):
                fraction[j] *= scale
                fresh[j] += fraction[j]
                weights[word, j] += fraction[j]
        expected[row] = fresh


def expectation_maximization(
    counts: Any,
    topics: Any,
    alpha: Any,
    *,
    leave_one_out: bool = False,
    n_passes: int = 100,
    tol: float = 1e-4,
) -> Any:
    """Topics that EM reaches from given ones, usually the true ones: what a start can hope for.

    The fractions of a word's topics are proportional to phi_wj (c_j + a_j), with the expected
    counts c of the document's topics and the Dirichlet parameters a; with `leave_one_out` c without
    the word's own part, which comes closer to the likelihood with mixtures integrated out. Stops
    once a pass moves the topics by less than `tol` in L1.
    """
    topics = np.asarray(topics, dtype=np.float64)
    alpha = np.asarray(alpha, dtype=np.float64)
    lengths = np.asarray(counts.sum(1)).ravel()
    expected = lengths[:, None] * (alpha / alpha.sum())[None, :]
    for _ in range(n_passes):
        weights = np.zeros((counts.shape[1], topics.shape[0]))
        columns = np.ascontiguousarray(topics.T)
        documents = (counts.indptr, counts.indices, counts.data)
        _pass(*documents, columns, alpha, expected, weights, leave_one_out)
        fresh = weights.T + 1e-12
        fresh /= fresh.sum(1, keepdims=True)
        moved = float(np.abs(fresh - topics).sum(1).mean())
        topics = fresh
        if moved < tol:
            break
    return topics
