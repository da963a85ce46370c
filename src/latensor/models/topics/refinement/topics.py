"""The likelihood refinement of topics in memory: from a start by moments to the best fit nearby.

A few passes of a leave-one-out fixed point for latent Dirichlet allocation (collapsed variational
Bayes of order zero): words are decided on one after the other, with steps that go ahead. Documents
that were held out say whether passes do harm; they are then given back, and passes with all
documents follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.arrays import Array, check_positive_int
from latensor.models.topics.refinement.corpus import HeldOut, hold_out, read_corpus
from latensor.models.topics.refinement.documents import Workers, read_prior, read_topics
from latensor.models.topics.refinement.held_out import HeldOutSlice
from latensor.models.topics.refinement.word_by_word import WordByWordPasses

# Passes end when the perplexity of the held-out slice is for two passes this much above its lowest.
_RISE = 4e-3
# Without enough text to hold out: where small corpora (Reuters, 316 documents) are at their best.
_PASSES_WITHOUT_A_SLICE = 10


@dataclass(frozen=True)
class TopicProgress:
    """What a callback is told after every pass; it may return True to stop.

    Attributes
    ----------
    n_passes : int, passes done
    perplexity : float, of the held-out slice; NaN where there is none, or it was given back
    """

    n_passes: int
    perplexity: float


Callback = Callable[[TopicProgress], Any]


@dataclass(frozen=True, eq=False)
class RefinedTopics:
    """Topics after the likelihood refinement.

    Attributes
    ----------
    topics : (k, V) rows of probabilities, (counts + b) / sum (counts + b) for the prior b
    counts : (k, V) expected counts of words on topics
    document_topics : (n, k) expected counts of tokens on topics of every document
    history : (passes judged + 1,) float64, perplexity of the held-out slice at the start and
        after every pass until it is given back; empty where no slice was held out
    n_passes : int, passes that led to these topics, those with all documents included
    status : str, why the passes ended
    """

    topics: Array
    counts: Array
    document_topics: Array
    history: Array
    n_passes: int
    status: str


def refine_topics(
    counts: Any,
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
) -> RefinedTopics:
    """Improve topics of latent Dirichlet allocation by passes over the documents (monograph 4.2.3).

    Parameters
    ----------
    counts : (n, V) SciPy sparse counts
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
        choice = hold_out(counts, seed) if held_out is None else held_out
    corpus = read_corpus(counts, start, document_weights, choice)
    with Workers(n_threads) as workers:
        run = WordByWordPasses(corpus, start, prior, float(word_prior), workers)
        judge = HeldOutSlice(corpus.held_out, prior, seed) if choice.limit else None
        # Where every document held out has weight zero, none of them can judge.
        judge = judge if judge is not None and judge.n_tokens > 0 else None
        if judge is None:
            wanted = _PASSES_WITHOUT_A_SLICE if passes == "auto" else int(passes)
            history: list[float] = []
            n_passes, converged, status = _fixed(run, wanted, callback)
        else:
            history, n_passes, converged, status = _until_no_gain(run, judge, workers, callback)

        def tell(number: int) -> bool:
            return callback is not None and bool(callback(TopicProgress(number, float("nan"))))

        first = run.probabilities()
        document_topics, more = run.finish(n_passes, converged=converged, tell=tell)
        k = len(start)
        found = run.probabilities() if n_passes else first
        return RefinedTopics(
            np.ascontiguousarray(found[:, :k].T),
            np.ascontiguousarray(run.latest[:, :k].T),
            document_topics,
            np.array(history),
            n_passes + more,
            status + f"; then {more} passes with all documents" * (more > 0),
        )


def _fixed(run: WordByWordPasses, passes: int, callback: Callback | None) -> tuple[int, bool, str]:
    """Make so many passes, unless the callback ends them: how many, converged or not, and why."""
    for number in range(1, passes + 1):
        run.advance()
        if callback is not None and callback(TopicProgress(number, float("nan"))):
            return number, False, f"stopped by the callback after {number} passes"
    return passes, False, f"{passes} passes made"


def _until_no_gain(
    run: WordByWordPasses, judge: HeldOutSlice, workers: Workers, callback: Callback | None
) -> tuple[list[float], int, bool, str]:
    """Make passes until the held-out slice gains no more, and go back to the best of them.

    Returns the perplexities, the best pass, whether more passes would have done no harm, and why
    the passes ended.
    """
    history = [judge.perplexity(run.probabilities(), workers)]
    best, kept = 0, run.keep()
    converged, status = True, f"{run.most_passes} passes made, and held-out documents still gained"
    for number in range(1, run.most_passes + 1):
        run.advance()
        history.append(judge.perplexity(run.probabilities(), workers))
        if history[number] < history[best]:
            best, kept = number, run.keep()
        if callback is not None and callback(TopicProgress(number, history[number])):
            converged, status = False, f"stopped by the callback after {number} passes"
            break
        if min(history[-2:]) > (1.0 + _RISE) * history[best]:
            converged = False
            status = f"held-out documents were predicted best after pass {best} of {number}"
            break
        if run.is_still:
            status = f"nothing moved after pass {number}"
            break
    if not (converged and best > 0):
        run.restore(kept)
        return history, best, False, status
    return history, len(history) - 1, True, status
