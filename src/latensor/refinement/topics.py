"""The likelihood polish of topics: from a start by moments to the best fit nearby.

A few passes of a leave-one-out fixed point for latent Dirichlet allocation (collapsed variational
Bayes of order zero, with the token's own share recomputed instead of stored), accelerated by
momentum. Passes end when documents that were held out no longer gain; those are then given back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latensor.arrays import check_positive_int
from latensor.refinement.corpus import HeldOut, hold_out, read_corpus
from latensor.refinement.documents import Workers, read_prior, read_topics
from latensor.refinement.held_out import HeldOutSlice
from latensor.refinement.topic_passes import InMemoryPasses, StreamedPasses, TopicPasses

_MOST_PASSES = 150
# Passes end when the perplexity of the held-out slice is for two passes this much above its lowest:
# that of titles is lowest after four passes and then rises by 1 %.
_RISE = 4e-3
# Where a topic has fewer expected tokens than this for each word, the share of a token that its own
# word's count is judged without matters (up to 2 % of perplexity): held-out documents choose it,
# after so many passes that their order is that of the end.
_SPARSE = 6.0
# ... unless they hold too few tokens to tell such differences apart.
_FEWEST_JUDGED = 5000
_SHARES_LEFT_OUT = (0.5, 1.0, 0.0)
_TRIAL_PASSES = 12
# Without enough text to hold out: where small corpora (Reuters, 316 documents) are at their best.
_PASSES_WITHOUT_A_SLICE = 10


@dataclass(frozen=True)
class PolishProgress:
    """What a callback is told after every pass; it may return True to stop.

    Attributes
    ----------
    n_passes : int, passes done
    perplexity : float, of the held-out slice; NaN where there is none
    """

    n_passes: int
    perplexity: float


Callback = Callable[[PolishProgress], Any]


@dataclass(frozen=True, eq=False)
class PolishedTopics:
    """Topics after the likelihood polish.

    Attributes
    ----------
    topics : (k, V) rows of probabilities, (counts + b) / sum (counts + b) for the prior b
    counts : (k, V) expected counts of words on topics
    document_topics : (n, k) expected counts of tokens on topics of every document, in the order
        they came in; None where the documents were streamed
    history : (passes tried + 1,) float64, perplexity of the held-out slice at the start and
        after every pass; empty where no slice was held out
    n_passes : int, passes that led to these topics
    status : str, why the passes ended
    """

    topics: Any
    counts: Any
    document_topics: Any
    history: Any
    n_passes: int
    status: str


def polish_topics(
    batches: Iterable[Any],
    topics: Any,
    *,
    document_prior: Any = 0.1,
    word_prior: float = 0.05,
    passes: int | str = "auto",
    rng: np.random.Generator,
    held_out: HeldOut | None = None,
    n_threads: int | None = None,
    callback: Callback | None = None,
    document_weights: Any = None,
) -> PolishedTopics:
    """Improve topics of latent Dirichlet allocation by passes over the documents (monograph 4.2.3).

    Parameters
    ----------
    batches : re-iterable of (n_b, V) SciPy sparse counts, the same at every iteration. Documents
        that fit into a gigabyte, working memory included, are put together and kept; more are
        read anew in every pass, in constant memory.
    topics : (k, V) rows of probabilities to start from; their dtype, float32 or float64, is that
        of the work
    document_prior : Dirichlet prior of the mixtures, one number or (k,)
    word_prior : float, Dirichlet prior of the topics
    passes : int, exactly so many passes over all documents; or "auto", until the documents held
        out gain no more
    rng : Generator, chooses the documents to hold out where `held_out` is not given, and halves
    held_out : documents that the starting topics have not seen, chosen by `hold_out`. Without
        it documents are chosen here; where the topics come from them too, they gain little by
        passes over the others, and the passes end early.
    n_threads : int or None, for as many as Numba is allowed; the result does not depend on it
    callback : told after every pass; may return True to stop
    document_weights : (n,) or None; a weight of 2 is the same as giving the document twice
    """
    start = read_topics(topics)
    prior = read_prior(document_prior, len(start), "document_prior", start.dtype)
    read_prior(word_prior, 1, "word_prior", start.dtype)
    if passes != "auto":
        passes = check_positive_int(passes, "passes") if passes != 0 else 0
    seed = int(rng.integers(2**63))
    if passes != "auto":
        choice = HeldOut(seed, 0)
    else:
        choice = hold_out(batches, seed) if held_out is None else held_out
    corpus = read_corpus(batches, start, document_weights, choice)
    with Workers(n_threads) as workers:
        kind = StreamedPasses if corpus.documents is None else InMemoryPasses
        run: TopicPasses = kind(corpus, start, prior, float(word_prior), workers)
        judge = HeldOutSlice(corpus.held_out, prior, seed) if choice.limit else None
        if judge is None:
            wanted = _PASSES_WITHOUT_A_SLICE if passes == "auto" else int(passes)
            history: list[float] = []
            n_passes, settled, status = _fixed(run, wanted, callback)
        else:
            history, n_passes, settled, status = _until_no_gain(run, judge, workers, callback)
        document_topics = run.finish(n_passes, settled=settled)
        k = len(start)
        polished = run.counts.probabilities()[:, :k].T if n_passes else start
        return PolishedTopics(
            np.ascontiguousarray(polished),
            np.ascontiguousarray(run.counts.latest[:, :k].T),
            document_topics,
            np.array(history),
            n_passes,
            status,
        )


def _fixed(run: TopicPasses, passes: int, callback: Callback | None) -> tuple[int, bool, str]:
    """Make so many passes, unless the callback ends them: how many, settled or not, and why."""
    for number in range(1, passes + 1):
        run.advance()
        if callback is not None and callback(PolishProgress(number, float("nan"))):
            return number, False, f"stopped by the callback after {number} passes"
    return passes, False, f"{passes} passes made"


@dataclass
class _Trial:
    """Some passes at one share of the own token left out."""

    history: list[float]
    state: Any = None
    best: int = 0
    counts: Any = None


def _choose_left_out(
    run: InMemoryPasses,
    judge: HeldOutSlice,
    workers: Workers,
    first: float,
    callback: Callback | None,
) -> tuple[_Trial, bool]:
    """Try how much of a token its word's count shall be judged without, some passes each.

    The passes go on from those of the best share. Returns its trial, and whether the callback
    asked to stop.
    """
    start = run.state()
    chosen: _Trial | None = None
    told = 0
    for share in _SHARES_LEFT_OUT:
        run.resume(replace(start, left_out=share))
        judge.forget()
        trial = _Trial([first], counts=run.counts.latest.copy())
        stopped = False
        for number in range(1, _TRIAL_PASSES + 1):
            run.advance()
            trial.history.append(judge.perplexity(run.counts.probabilities(), workers))
            if trial.history[number] < trial.history[trial.best]:
                trial.best = number
                trial.counts[...] = run.counts.latest
            told += 1
            stopped = callback is not None and bool(
                callback(PolishProgress(told, trial.history[number]))
            )
            if stopped:
                break
        trial.state = run.state()
        better = chosen is None or trial.history[-1] < chosen.history[-1]
        if chosen is None or better:
            chosen = trial
        # Perplexity has one valley over the shares: beyond a better one on this side none is tried.
        if stopped or (better and share != _SHARES_LEFT_OUT[0]):
            break
    assert chosen is not None
    run.resume(chosen.state)
    return chosen, stopped


def _until_no_gain(
    run: TopicPasses, judge: HeldOutSlice, workers: Workers, callback: Callback | None
) -> tuple[list[float], int, bool, str]:
    """Make passes until the held-out slice gains no more, and go back to the best of them.

    Returns the perplexities, the best pass, whether more passes would have done no harm, and why
    the passes ended.
    """
    history = [judge.perplexity(run.counts.probabilities(), workers)]
    best, kept = 0, run.counts.latest.copy()
    sparse = run.counts.tokens_a_count < _SPARSE and judge.n_tokens >= _FEWEST_JUDGED
    if sparse and isinstance(run, InMemoryPasses):
        trial, stopped = _choose_left_out(run, judge, workers, history[0], callback)
        history, best, kept = trial.history, trial.best, trial.counts
        if stopped:
            run.counts.restore(kept)
            return history, best, False, "stopped by the callback"
    settled, status = True, f"{_MOST_PASSES} passes made, the most allowed"
    for number in range(len(history), _MOST_PASSES + 1):
        run.advance()
        history.append(judge.perplexity(run.counts.probabilities(), workers))
        if history[number] < history[best]:
            best = number
            kept[...] = run.counts.latest
        if callback is not None and callback(PolishProgress(number, history[number])):
            settled, status = False, f"stopped by the callback after {number} passes"
            break
        if min(history[-2:]) > (1.0 + _RISE) * history[best]:
            settled = False
            status = f"held-out documents were predicted best after pass {best} of {number}"
            break
        if number >= run.patience:
            earlier = min(history[: -run.patience])
            if history[best] > earlier * (1.0 - run.patience * run.worthwhile):
                status = f"held-out documents gained no more after pass {best} of {number}"
                break
    if best != len(history) - 1:
        run.counts.restore(kept)
    return history, best, settled, status
