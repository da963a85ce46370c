"""`page_of`: what a report shows, gathered from a fitted topic model and its documents."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from typing import Any, Protocol

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.models.topics.intervals import FractionSums, Intervals, TopicFractions
from latensor.report.description import (
    CountChoice,
    CountEvidence,
    ExampleDocument,
    Level,
    RefinementHistory,
    Reproduction,
    Spectrum,
    Statement,
    Topic,
    TopicPage,
    Trend,
)
from latensor.report.reading import (
    hellinger_distances,
    probable_words,
    ranked_words,
    relevant_words,
)
from latensor.report.wording import sentence

_PACKAGES = ("latensor", "numpy", "scipy", "numba", "scikit-learn")
_VERDICTS: dict[str, Level] = {"stable": "good", "uncertain": "caution", "unstable": "bad"}
_LEVELS: dict[str, Level] = {"good": "good", "caution": "caution", "bad": "bad"}
# A document of three words is all of one topic by chance: fractions count as if so many words of
# other topics stood in every document.
_WORDS_OF_DOUBT = 5
# Candidates for every example shown: some turn out to have the same text.
_SPARE = 4
# Words that stand for a document whose text is not at hand.
_WORDS_OF_A_DOCUMENT = 20
# Eigenvalues shown beyond those used, so that a reader sees where they end.
_BEYOND = 30


class _Documents(Protocol):
    """A source of documents as `latensor.sources` makes them."""

    def __iter__(self) -> Any:
        """Batches of counts (n_b, V)."""


@dataclass(frozen=True, eq=False)
class CorpusFractions:
    """How the topics are spread over a corpus.

    Attributes
    ----------
    fractions : (k,) fraction of all words that belong to each topic
    n_tokens : int, words in all
    leading : for every topic its documents as (number, fraction), largest fraction first
    contents : number of a leading document to (columns of its words, counts)
    trends : fractions in intervals and groups, by kind and name
    """

    fractions: Any
    n_tokens: int
    leading: list[list[tuple[int, float]]]
    contents: Mapping[int, tuple[Any, Any]]
    trends: Mapping[tuple[str, str], TopicFractions] = field(default_factory=dict)


def page_of(
    model: Any,
    documents: _Documents,
    *,
    title: str = "",
    excerpts: Callable[[list[int]], Mapping[int, str]] | None = None,
    names: Callable[[int], str] | Sequence[str] | None = None,
    n_words: int = 10,
    n_examples: int = 3,
    intervals: Mapping[tuple[str, str], Intervals] | None = None,
    reproduction: Reproduction | None = None,
    created: str = "",
) -> TopicPage:
    """All that a report shows about a topic model, gathered in two passes over its documents.

    Parameters
    ----------
    model : LatentDirichletAllocation or SingleTopic, fitted or loaded
    documents : source of the documents to show, with the words of the model
    title : str, what the corpus is
    excerpts : gives texts of documents by number, as `excerpts` of a source of texts does, which
        is the default where there is one; else the words of a document stand for its text
    names : what documents are called, by number; default "document 12", counted from 0
    n_words : int, words of a topic
    n_examples : int, documents that show a topic; 0 for none
    intervals : of time and groups, what the documents belong to by kind ("time" or "group") and
        the name of the column: the page then shows how topics differ between them
    reproduction : how to get the same model again; seed, versions and stages are filled in
    created : str, when, if the page shall say so
    """
    if n_examples < 0:
        raise InvalidInputError(f"n_examples={n_examples} must be at least 0")
    vocabulary = _vocabulary(model)
    corpus = corpus_fractions(model, documents, n_examples, intervals)
    if excerpts is None:
        excerpts = getattr(documents, "excerpts", None)
    examples = _examples(corpus, excerpts, _namer(names), vocabulary, n_examples)
    certificate = getattr(model, "certificate_", None)
    return TopicPage(
        title=title,
        n_documents=int(model.n_documents_) - int(model.n_empty_documents_),
        n_tokens=corpus.n_tokens,
        n_words=len(model.components_[0]),
        topics=_topics(model, documents, corpus, examples, vocabulary, n_words, certificate),
        n_empty_documents=int(model.n_empty_documents_),
        n_short_documents=0 if certificate is None else int(certificate.n_short),
        distances=hellinger_distances(model.components_),
        spectrum=_spectrum(model, certificate),
        refinement=_refinement(model),
        choice=_choice(model),
        certificate=_statements(certificate),
        verdict=None if certificate is None else _VERDICTS.get(certificate.verdict),
        reproduction=_completed(reproduction or Reproduction(), model),
        created=created,
        trends=trends_of(corpus.trends),
    )


def trends_of(found: Mapping[tuple[str, str], TopicFractions]) -> list[Trend]:
    """Fractions in intervals and groups as a page shows them, by kind and name."""
    return [
        Trend(kind, name, list(map(str, each.labels)), *each.tables())  # type: ignore[arg-type]
        for (kind, name), each in found.items()
    ]


def corpus_fractions(
    model: Any,
    documents: _Documents,
    n_examples: int = 0,
    intervals: Mapping[tuple[str, str], Intervals] | None = None,
) -> CorpusFractions:
    """How much of a corpus every topic has, and the documents that have most of it.

    Parameters
    ----------
    model : fitted topic model with k topics
    documents : source of batches (n_b, V)
    n_examples : int, documents that will be shown for a topic
    intervals : what the documents belong to, of time or groups
    """
    k = len(model.components_)
    sums = {key: FractionSums(found, k) for key, found in (intervals or {}).items()}
    fractions, n_tokens, first = np.zeros(k), 0.0, 0
    best = [np.empty((0, 3)) for _ in range(k)]
    contents: dict[int, tuple[Any, Any]] = {}
    for batch in documents:
        mixtures = np.asarray(model.transform(batch), dtype=np.float64)
        lengths = np.asarray(batch.sum(axis=1), dtype=np.float64).ravel()
        fractions += lengths @ mixtures
        n_tokens += float(lengths.sum())
        for each in sums.values():
            each.add(mixtures, lengths)
        if n_examples:
            for topic in range(k):
                best[topic] = _best(
                    best[topic], mixtures[:, topic], lengths, first, n_examples * _SPARE
                )
            kept = {int(number) for table in best for number in table[:, 0]}
            contents = {number: words for number, words in contents.items() if number in kept}
            for number in sorted(kept - contents.keys()):
                row = slice(*batch.indptr[number - first : number - first + 2])
                contents[number] = (batch.indices[row].copy(), batch.data[row].copy())
        first += batch.shape[0]
    total = fractions.sum()
    return CorpusFractions(
        fractions / total if total > 0 else np.full(k, 1 / k),
        round(n_tokens),
        [[(int(number), float(fraction)) for number, fraction, _ in table] for table in best],
        contents,
        {key: each.finish() for key, each in sums.items()},
    )


def _best(table: Any, fractions: Any, lengths: Any, first: int, wanted: int) -> Any:
    """The rows (number, fraction, merit) of the documents that show a topic best, so far."""
    merits = fractions * lengths / (lengths + _WORDS_OF_DOUBT)
    order = np.argsort(-merits, kind="stable")[:wanted]
    order = order[lengths[order] > 0]
    rows = np.column_stack((order + first, fractions[order], merits[order]))
    both = np.concatenate((table, rows))
    return both[np.argsort(-both[:, 2], kind="stable")[:wanted]]


def _examples(
    corpus: CorpusFractions,
    excerpts: Callable[[list[int]], Mapping[int, str]] | None,
    name: Callable[[int], str],
    vocabulary: Sequence[str] | None,
    wanted: int,
) -> list[tuple[ExampleDocument, ...]]:
    """For every topic its documents, no two of them with the same text."""
    numbers = sorted(corpus.contents)
    texts: Mapping[int, str]
    if excerpts is None or not numbers:
        texts = {n: _words_of(*corpus.contents[n], vocabulary) for n in numbers}
    else:
        texts = excerpts(numbers)
    found = []
    for documents in corpus.leading:
        shown: dict[str, ExampleDocument] = {}
        for number, fraction in documents:
            text = " ".join(texts[number].split())
            shown.setdefault(text, ExampleDocument(name(number), min(fraction, 1.0), text))
        found.append(tuple(shown.values())[:wanted])
    return found


def _words_of(columns: Any, counts: Any, vocabulary: Sequence[str] | None) -> str:
    """The most frequent words of a document, which stand for its text."""
    order = np.argsort(-counts, kind="stable")[:_WORDS_OF_A_DOCUMENT]
    words = [str(j) if vocabulary is None else str(vocabulary[j]) for j in columns[order]]
    listed = [f"{w} ×{c:.0f}" if c > 1 else w for w, c in zip(words, counts[order], strict=True)]
    return ", ".join(listed)


def _namer(names: Callable[[int], str] | Sequence[str] | None) -> Callable[[int], str]:
    if names is None:
        return lambda number: f"document {number}"
    if callable(names):
        return names
    return names.__getitem__


def _vocabulary(model: Any) -> Sequence[str] | None:
    words = getattr(model, "vocabulary_", None)
    return words if words is not None else getattr(model, "feature_names_in_", None)


def _topics(
    model: Any,
    documents: _Documents,
    corpus: CorpusFractions,
    examples: list[tuple[ExampleDocument, ...]],
    vocabulary: Sequence[str] | None,
    n_words: int,
    certificate: Any,
) -> list[Topic]:
    k = len(model.components_)
    words = probable_words(model.components_, corpus.fractions, vocabulary, n_words)
    typical = relevant_words(model.components_, corpus.fractions, vocabulary, n_words)
    ranked = ranked_words(model.components_, corpus.fractions, vocabulary, n_words)
    coherent = _coherence(model, documents)
    distances = [np.nan] * k if certificate is None else certificate.split_half
    levels = [None] * k if certificate is None else certificate.topic_levels()
    return [
        Topic(
            number=j,
            fraction=float(corpus.fractions[j]),
            words=words[j],
            typical_words=typical[j],
            ranked_words=ranked[j],
            documents=examples[j],
            coherence=coherent[j],
            split_half_distance=None if np.isnan(distances[j]) else float(distances[j]),
            trust=_LEVELS.get(levels[j] or ""),
            trust_note=_trust_note(levels[j]),
        )
        for j in range(k)
    ]


def _coherence(model: Any, documents: _Documents) -> list[float | None]:
    """NPMI of every topic; None where there is no pair of words."""
    k, n_features = model.components_.shape
    if n_features < 2:
        return [None] * k
    # Rounding may carry a perfect topic a hair beyond one.
    return [float(value) for value in np.clip(model.coherence(documents), -1.0, 1.0)]


def _trust_note(level: str | None) -> str:
    return {
        "good": "",
        "caution": "The halves of the documents agree on its main words, less on the rest.",
        "bad": "The halves of the documents do not agree on this topic.",
    }.get(level or "", "A half of the documents is too little to tell.")


def _spectrum(model: Any, certificate: Any) -> Spectrum | None:
    values = getattr(model, "spectrum_", None)
    if values is None:
        return None
    used = len(model.components_)
    # Moments of a sample have negative eigenvalues too, as many as noise makes positive ones.
    shown = np.asarray(values, dtype=np.float64)[: used + _BEYOND]
    shown = shown[shown > 0]
    if len(shown) < used:
        return None
    noise = None if certificate is None else float(shown[used - 1]) / certificate.eigenvalue_ratio
    return Spectrum([float(v) for v in shown], used, noise)


def _refinement(model: Any) -> RefinementHistory | None:
    history = getattr(model, "history_", None)
    if history is None or len(history) < 2:
        return None
    return RefinementHistory(list(range(len(history))), [float(v) for v in history])


def _choice(model: Any) -> CountChoice | None:
    selection = getattr(model, "selection_", None)
    if selection is None or not selection.candidates:
        return None
    rows = [
        CountEvidence(int(count), float(value))
        for count, value in zip(selection.candidates, selection.perplexities, strict=True)
    ]
    return CountChoice(rows, int(selection.n_components), sentence(selection.reason))


def _statements(certificate: Any) -> tuple[Statement, ...]:
    if certificate is None:
        return ()
    return tuple(
        Statement(_LEVELS[found.level], found.text)
        for found in certificate.statements
        if found.level in _LEVELS
    )


def _completed(reproduction: Reproduction, model: Any) -> Reproduction:
    """What a model knows by itself, where the caller has not said otherwise."""
    seed = reproduction.seed
    if seed is None and isinstance(model.random_state, int | np.integer):
        seed = int(model.random_state)
    settings = dict(reproduction.settings)
    selection = getattr(model, "selection_", None)
    # Where several numbers were tried a chart says it better.
    if selection is not None and not selection.candidates:
        settings.setdefault("number of topics", f"{selection.n_components}: {selection.reason}")
    return replace(
        reproduction,
        seed=seed,
        versions=reproduction.versions or installed_versions(),
        seconds={**reproduction.seconds, **getattr(model, "stage_seconds_", {})},
        settings=settings,
    )


def installed_versions() -> dict[str, str]:
    """The versions of Python and of the packages that a result depends on."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
