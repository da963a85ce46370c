"""How many topics: by the spectrum where it has a gap, else by words held out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.base import clone

from latensor.estimation.documents import Documents
from latensor.models.topics.read_off import (
    START_SMOOTHING,
    as_probabilities,
    topics_from_moments,
)
from latensor.models.topics.subspace import WordSubspace, find_subspace
from latensor.exceptions import NotIdentifiableError
from latensor.moments.documents import prepare_documents
from latensor.moments.word_totals import WordTotalsAccumulator
from latensor.moments.words import WordTripleAccumulator

# What the stage is called in callbacks, and the share of it that the moments take.
_STAGE = "number of topics"
_SHARE_OF_MOMENTS = 0.1
_CANDIDATES = (2, 3, 5, 7, 10, 14, 20, 28, 40, 56, 80)
_LARGEST = max(_CANDIDATES)
# Documents that the choice is made on: enough to tell perplexities apart, few enough to be quick.
_DOCUMENTS = 20_000
_HELD_OUT = 0.1
_PASSES = 2
# The spectrum ends where an eigenvalue falls to this part of the one before, the first pair apart.
# Planted corpora fall to 0.04-0.5 after their last topic, text nowhere below 0.88.
_GAP = 0.6
# Only directions whose noise is below this can be the last of the topics.
_NOISE = 0.5
# The smallest number of topics within a standard error of the best, or this near to it: fewer are
# easier to read. On news the perplexity falls as far as one looks, by 2 to 5 % for each step of the
# candidates towards the end: anything tighter would take the last of them.
_NEAR = 1.05


@dataclass(frozen=True)
class TopicCount:
    """A number of topics and what spoke for it.

    Attributes
    ----------
    n_components : int
    reason : str, in one sentence
    spectrum : (m,) eigenvalues of the second moment, falling
    noise : (m',) whitened noise among the first 1, 2, ... directions
    candidates, perplexities : tuples, the numbers tried and the perplexity of documents held out;
        empty where the spectrum decided
    errors : tuple, standard errors of the perplexities over the documents held out
    """

    n_components: int
    reason: str
    spectrum: Any
    noise: Any
    candidates: tuple[int, ...] = ()
    perplexities: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.n_components} topics: {self.reason}"]
        errors = self.errors or (None,) * len(self.candidates)
        lines += [
            f"{k:6d} topics   perplexity {value:10.1f}" + ("" if e is None else f" +- {e:.1f}")
            for k, value, e in zip(self.candidates, self.perplexities, errors, strict=True)
        ]
        return "\n".join(lines)


def choose_count(model: Any, documents: Documents, rng: np.random.Generator) -> TopicCount:
    """The number of topics of some documents, with the evidence.

    Parameters
    ----------
    model : estimator whose parameters say how to polish and score; not changed. Its callback is
        told the share that is done
    documents : those of the fit; up to 20,000 of them are looked at
    rng : draws which are held out
    """
    counts = _some(documents)
    usable = np.flatnonzero(np.diff(counts.indptr) > 0)
    counts = counts[usable]
    held = np.zeros(counts.shape[0], bool)
    held[rng.permutation(len(held))[: max(1, int(_HELD_OUT * len(held)))]] = True
    if counts.shape[0] < 20:
        raise NotIdentifiableError(
            f"n_components='auto' needs at least 20 documents with words, got {counts.shape[0]}: "
            "give n_components as an integer"
        )
    train = counts[np.flatnonzero(~held)]
    tell = _no_one if model.callback is None else model.callback
    tell(_STAGE, 0.0)
    sums, subspace = _moments(model, train, rng)
    tell(_STAGE, _SHARE_OF_MOMENTS)
    by_gap = _gap(subspace)
    if by_gap is not None:
        return TopicCount(
            by_gap,
            f"the spectrum falls to noise after direction {by_gap}",
            subspace.spectrum,
            subspace.noise,
        )
    return _by_held_out_words(model, sums, subspace, train, counts[np.flatnonzero(held)], rng, tell)


def _some(documents: Documents) -> Any:
    kept, n_documents = [], 0
    for batch in documents.batches:
        kept.append(batch)
        n_documents += batch.shape[0]
        if n_documents >= 4 * _DOCUMENTS:
            break
    counts = scipy.sparse.vstack(kept, format="csr")
    step = max(1, counts.shape[0] // _DOCUMENTS)
    return counts[::step]


def _moments(model: Any, train: Any, rng: Any) -> tuple[WordTripleAccumulator, WordSubspace]:
    totals = WordTotalsAccumulator(train.shape[1]).update(train).finalize()
    prepared = [(prepare_documents(train), None)]
    rank = min(_LARGEST, train.shape[1], train.shape[0])
    subspace = find_subspace(
        lambda: prepared,
        totals,
        rank,
        rng,
        model._threads(),
        concentration=model._assumed_concentration(),
        at_least=1,
    )
    sums = WordTripleAccumulator(subspace.basis, subspace.scale, subspace.cap, model._threads())
    return sums.update(prepared[0][0]), subspace


def _gap(subspace: WordSubspace) -> int | None:
    """The number of directions before the largest relative drop, if there is a large one."""
    values = np.maximum(subspace.spectrum[: subspace.basis.shape[1] + 1], 0.0)
    if len(values) < 3 or values[1] <= 0:
        return None
    positive = values[:-1] > 0
    ratios = np.where(positive, values[1:] / np.where(positive, values[:-1], 1.0), 1.0)
    # The first direction is how long and how common words are: it stands out of any text. And where
    # there are hardly more words than directions, the last of them fall to nothing by themselves.
    ratios[0] = 1.0
    ratios[subspace.noise[: len(ratios)] >= _NOISE] = 1.0
    last = int(np.argmin(ratios))
    return last + 1 if ratios[last] < _GAP else None


def _no_one(stage: str, share: float) -> None:
    """Told the progress where the model has no callback."""


def _by_held_out_words(
    model: Any,
    sums: Any,
    subspace: WordSubspace,
    train: Any,
    held: Any,
    rng: Any,
    tell: Callable[[str, float], None],
) -> TopicCount:
    moments = sums.finalize()
    totals = np.asarray(train.sum(axis=0)).ravel()
    tried: dict[int, tuple[float, float]] = {}
    rising = 0
    candidates = [k for k in _CANDIDATES if k <= subspace.basis.shape[1]]
    for number, k in enumerate(candidates):
        try:
            start = topics_from_moments(
                moments, sums.basis, sums.scale, k, rng, concentration=model._concentration
            )
        except NotIdentifiableError:
            break
        topics = as_probabilities(start.topics, totals, START_SMOOTHING)
        trial = clone(model).set_params(
            n_components=k, refine=_PASSES, init=topics, algorithm="auto", callback=None
        )
        tried[k] = _held_out_perplexity(trial.fit(train), held)
        # The work for a candidate grows with its number of topics.
        done = sum(candidates[: number + 1]) / sum(candidates)
        tell(_STAGE, _SHARE_OF_MOMENTS + (1 - _SHARE_OF_MOMENTS) * done)
        rising = rising + 1 if tried[k] > min(tried.values()) else 0
        # Perplexity has one valley: three numbers in a row beyond its bottom end the search.
        if rising == 3:
            break
    chosen, reason = _smallest_near_best(tried)
    return TopicCount(
        chosen,
        reason,
        subspace.spectrum,
        subspace.noise,
        tuple(tried),
        tuple(value for value, _ in tried.values()),
        tuple(error for _, error in tried.values()),
    )


def _held_out_perplexity(model: Any, held: Any) -> tuple[float, float]:
    """The perplexity of documents, and its standard error over them."""
    scores, tokens = model._completion(held, 0)
    mean = scores.sum() / tokens.sum()
    residuals = scores - mean * tokens
    error = float(np.sqrt((residuals**2).sum()) / tokens.sum())
    perplexity = float(np.exp(-mean))
    return perplexity, perplexity * error


def _smallest_near_best(tried: dict[int, tuple[float, float]]) -> tuple[int, str]:
    """The fewest topics within a standard error, or 5 %, of the lowest perplexity, and why."""
    best = min(tried, key=lambda k: tried[k][0])
    lowest, error = tried[best]
    limit = max(lowest + error, _NEAR * lowest)
    chosen = min(k for k, (value, _) in tried.items() if value <= limit)
    near = "a standard error" if lowest + error > _NEAR * lowest else f"{_NEAR - 1:.0%}"
    reason = (
        f"the spectrum has no gap; the fewest topics within {near} of the lowest perplexity of "
        f"documents held out, which {best} topics have"
    )
    if best == max(tried) and len(tried) > 1:
        reason += ", the most that were tried"
    return chosen, reason
