"""Compiled loops of the topic models; imported only where one is called.

Plain loops over arrays; the checks are done by the callers. Documents are rows of a CSR matrix
(`starts` int64, `words` int32, `counts`). Every loop runs over documents or words first..last-1
of a partition that depends on sizes alone, holds no lock and is run from several threads, so that
the same sums are made in the same order whichever thread takes which part.

Tables of words by topics are (V, w) with a word's row contiguous; the columns beyond the k topics
are zero and keep rows whole multiples of a vector register.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from latensor.arrays._kernels import compiled

# Sums over topics may be reordered, by the compiler alone: the order is fixed in the machine code
# and does not depend on threads, as long as loops that sum store nothing (the compiler makes two
# versions of others, and chooses by where arrays lie). Infinities are kept: logarithms of zero meet
# them.
_VECTOR = {"reassoc", "contract", "nsz", "arcp", "nnan"}
# Steps of one document go ahead by half of the last: an error of 1 % after 10 steps instead of 20
# (0.7 overshoots).
_AHEAD = 0.5


@compiled(set())
def _mixed(state: Any) -> Any:
    """A 64-bit number as good as random, from a counter (the finalizer of SplitMix64)."""
    x = np.uint64(state)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@compiled(set())
def _uniform(state: Any) -> Any:
    """The top 53 bits of the mixed state as a number in [0, 1)."""
    return np.float64(_mixed(state) >> np.uint64(11)) * 1.1102230246251565e-16


@compiled(_VECTOR)
def expected_counts(
    starts: Any,
    words: Any,
    counts: Any,
    weights: Any,
    table: Any,
    inverse: Any,
    alpha: Any,
    word_prior: Any,
    left_out: Any,
    steps: int,
    mixtures: Any,
    out: Any,
) -> float:
    """Leave-one-out fixed point of documents, and the counts of words it expects.

    For a word v of a document with expected topic counts c, with N the table (the prior b added)
    and S its column sums, the plain responsibility g^ ~ N_vj / S_j (c_j + a_j) is what the token
    itself has put into c and, times `left_out`, into N; both are taken out before it is judged:
    g ~ max(N_vj - left_out g^_j, b) / S_j max(c_j - g^_j + a_j, a_j). Then c is the sum of g.

    Parameters
    ----------
    weights : (n,) how many times each document counts in `out`
    table, out : (V, w); `out` is added to
    inverse, alpha : (w,) 1 / S and a, zero beyond the topics
    mixtures : (n, w) c where the documents start from

    Returns
    -------
    the log-likelihood of the words, each predicted from all others
    """
    width = table.shape[1]
    zero = table.dtype.type(0)
    one = table.dtype.type(1)
    total = np.empty(width, table.dtype)  # (c_j + a_j) / S_j
    lowest = np.empty(width, table.dtype)  # a_j / S_j
    fraction = np.empty(width, table.dtype)
    fresh = np.empty(width, table.dtype)
    last_step = np.empty(width, table.dtype)
    likelihood, least_total = 0.0, zero
    for j in range(width):
        lowest[j] = alpha[j] * inverse[j]
    for j in range(width):
        least_total += alpha[j]
    for d in range(len(starts) - 1):
        weight = weights[d]
        length = zero
        for i in range(starts[d], starts[d + 1]):
            length += counts[i]
        lift = 1.0 / max(length + least_total - one, least_total)
        logs = 0.0
        for j in range(width):
            fresh[j] = last_step[j] = mixtures[d, j]
        for step in range(steps):
            speed = table.dtype.type(_AHEAD if step > 1 else 0.0)
            for j in range(width):
                ahead = max(fresh[j] + speed * (fresh[j] - last_step[j]), zero)
                total[j] = (ahead + alpha[j]) * inverse[j]
                last_step[j] = fresh[j]
                fresh[j] = zero
            final = step == steps - 1
            for i in range(starts[d], starts[d + 1]):
                row = table[words[i]]
                norm = zero
                for j in range(width):
                    norm += row[j] * total[j]
                own = one / norm
                own_word = own * left_out
                norm = zero
                for j in range(width):
                    plain = row[j] * total[j]
                    fraction[j] = max(row[j] - own_word * plain, word_prior) * max(
                        total[j] - own * inverse[j] * plain, lowest[j]
                    )
                for j in range(width):
                    norm += fraction[j]
                scale = counts[i] / norm
                if final:
                    logs += counts[i] * np.log(np.float64(norm) * lift)
                    target = out[words[i]]
                    for j in range(width):
                        x = fraction[j] * scale
                        fresh[j] += x
                        target[j] += x * weight
                else:
                    for j in range(width):
                        fresh[j] += fraction[j] * scale
        likelihood += weight * logs
    return likelihood


@compiled(_VECTOR)
def fill_mixtures(
    starts: Any,
    words: Any,
    counts: Any,
    topics: Any,
    alpha: Any,
    max_iter: int,
    tol: float,
    first: int,
    last: int,
    mixtures: Any,
) -> int:
    """Expected topic counts of documents first..last-1 under given topics, by leave-one-out steps.

    Each document goes on from its row of `mixtures` until no step moves more than `tol` of its
    tokens; the largest number of steps is returned.

    Parameters
    ----------
    topics : (V, w) probabilities of words; zero beyond the topics, as `alpha` (w,)
    mixtures : (n, w), overwritten
    """
    width = topics.shape[1]
    zero = topics.dtype.type(0)
    one = topics.dtype.type(1)
    total = np.empty(width, topics.dtype)
    fraction = np.empty(width, topics.dtype)
    fresh = np.empty(width, topics.dtype)
    last_step = np.empty(width, topics.dtype)
    longest = 0
    for d in range(first, last):
        current = mixtures[d]
        length = zero
        for i in range(starts[d], starts[d + 1]):
            length += counts[i]
        taken = 0
        while taken < max_iter:
            taken += 1
            speed = topics.dtype.type(_AHEAD if taken > 2 else 0.0)
            for j in range(width):
                change = current[j] - last_step[j] if taken > 2 else zero
                total[j] = max(current[j] + speed * change, zero) + alpha[j]
                last_step[j] = current[j]
                fresh[j] = zero
            for i in range(starts[d], starts[d + 1]):
                row = topics[words[i]]
                norm = zero
                for j in range(width):
                    fraction[j] = row[j] * total[j]
                for j in range(width):
                    norm += fraction[j]
                if not norm > zero:  # a word that no topic has says nothing about the mixture
                    continue
                own = one / norm
                norm = zero
                for j in range(width):
                    fraction[j] = row[j] * max(total[j] - own * fraction[j], alpha[j])
                for j in range(width):
                    norm += fraction[j]
                scale = counts[i] / norm
                for j in range(width):
                    fresh[j] += fraction[j] * scale
            moved = zero
            for j in range(width):
                moved += abs(fresh[j] - current[j])
            for j in range(width):
                current[j] = fresh[j]
            if moved <= tol * length:
                break
        longest = max(longest, taken)
    return longest


@compiled(_VECTOR)
def score_documents(
    starts: Any,
    words: Any,
    counts: Any,
    topics: Any,
    alpha: Any,
    mixtures: Any,
    smallest: Any,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Log-likelihood of documents first..last-1 with known expected topic counts.

    Parameters
    ----------
    topics : (V, w), alpha : (w,), mixtures : (n, w) expected counts without the prior
    smallest : probabilities below this one are raised to it
    out : (n,) float64, overwritten
    """
    width = topics.shape[1]
    zero = topics.dtype.type(0)
    total = np.empty(width, topics.dtype)
    for d in range(first, last):
        norm = zero
        for j in range(width):
            total[j] = mixtures[d, j] + alpha[j]
        for j in range(width):
            norm += total[j]
        scale = topics.dtype.type(1) / norm
        result = 0.0
        for i in range(starts[d], starts[d + 1]):
            row = topics[words[i]]
            probability = zero
            for j in range(width):
                probability += row[j] * total[j]
            result += counts[i] * np.log(np.float64(max(probability * scale, smallest)))
        out[d] = result


@compiled(_VECTOR)
def left_to_right(
    starts: Any,
    words: Any,
    counts: Any,
    keys: Any,
    topics: Any,
    alpha: Any,
    draws: int,
    first: int,
    last: int,
    out: Any,
) -> None:
    """Log-likelihood of documents first..last-1, the fractions of their topics integrated out.

    The tokens of a document, in random order, are put on topics one after the other in every draw,
    by c_j + a_j with c the tokens before: the mean over draws of the product of p(token | before).

    Parameters
    ----------
    keys : (n,) uint64, begin the random numbers of a document: it has the same under all topics
    topics, alpha : (V, k) positive probabilities, and (k,) a; float64
    out : (n,) float64, overwritten
    """
    k = topics.shape[1]
    step = np.uint64(0x9E3779B97F4A7C15)
    total = 0.0
    for j in range(k):
        total += alpha[j]
    counted = np.empty((draws, k))
    weights = np.empty(draws)
    for d in range(first, last):
        length = np.int64(0)
        for i in range(starts[d], starts[d + 1]):
            length += np.int64(counts[i])
        tokens = np.empty(length, np.int64)
        place = 0
        for i in range(starts[d], starts[d + 1]):
            for _ in range(np.int64(counts[i])):
                tokens[place] = words[i]
                place += 1
        state = np.uint64(keys[d])
        for draw in range(draws):
            weights[draw] = 1.0
            for j in range(k):
                counted[draw, j] = alpha[j]
        result = 0.0
        for t in range(length):
            state += step
            chosen = t + np.int64(_mixed(state) % np.uint64(length - t))
            word = tokens[chosen]
            tokens[chosen] = tokens[t]
            row = topics[word]
            norm = 0.0
            for draw in range(draws):
                probability = 0.0
                for j in range(k):
                    probability += row[j] * counted[draw, j]
                state += step
                number = _uniform(state) * probability - row[0] * counted[draw, 0]
                j = 0
                while j < k - 1 and number > 0.0:
                    j += 1
                    number -= row[j] * counted[draw, j]
                counted[draw, j] += 1.0
                weights[draw] *= probability / (total + t)
                norm += weights[draw]
            result += np.log(norm / draws)
            for draw in range(draws):
                weights[draw] *= draws / norm
        out[d] = result


@compiled(set())
def document_keys(starts: Any, words: Any, counts: Any, seed: Any, out: Any) -> None:
    """A random 64-bit number for each document that depends on its words and the seed alone."""
    for d in range(len(starts) - 1):
        key = _mixed(np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15))
        for i in range(starts[d], starts[d + 1]):
            item = (np.uint64(words[i]) << np.uint64(32)) ^ np.uint64(counts[i])
            key = _mixed(key ^ _mixed(item + np.uint64(0x9E3779B97F4A7C15)))
        out[d] = key


@compiled(set())
def draw_tokens(starts: Any, words: Any, counts: Any, keys: Any, sizes: Any, out: Any) -> None:
    """How many of each word's tokens are among so many that are drawn of their document.

    Without replacement, by a generator that starts from the document's key: what is drawn depends
    on no other document.

    Parameters
    ----------
    sizes : (n,) int64, tokens to draw, at most as many as the document has
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    for d in range(len(starts) - 1):
        left = np.int64(0)
        for i in range(starts[d], starts[d + 1]):
            left += np.int64(counts[i])
        wanted, state = sizes[d], np.uint64(keys[d])
        for i in range(starts[d], starts[d + 1]):
            count, drawn = np.int64(counts[i]), np.int64(0)
            if count > 65536:
                # The expected number, rounded by chance: of half of so many tokens, chance would
                # move it by less than one per cent.
                state += step
                drawn = np.int64(count * (wanted / left) + _uniform(state))
                drawn = max(min(drawn, count, wanted), wanted - (left - count))
                wanted -= drawn
                left -= count
                count = np.int64(0)
            for _ in range(count):
                state += step
                if _uniform(state) * left < wanted:
                    drawn += 1
                    wanted -= 1
                left -= 1
            out[i] = drawn
