"""What a report is made from: plain data, filled in by whoever has fitted a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from latensor.exceptions import InvalidInputError
from latensor.report.checks import (
    require_count,
    require_finite,
    require_fraction,
    require_level,
    require_text,
)

Level = Literal["good", "caution", "bad"]
"""How good a finding is, in the words of `lt.certify`."""


@dataclass(frozen=True)
class TopicWord:
    """A word of a topic.

    Attributes
    ----------
    text : str, the word; shown as it is, whatever it holds
    probability : float, fraction of the topic's words that are this word
    lift : float or None, how many times more frequent the word is here than in the whole corpus
    """

    text: str
    probability: float
    lift: float | None = None

    def __post_init__(self) -> None:
        require_text(self.text, "TopicWord.text")
        require_fraction(self.probability, f"probability of {self.text!r}")
        if self.lift is not None:
            require_finite(self.lift, f"lift of {self.text!r}", least=0.0)


@dataclass(frozen=True)
class ExampleDocument:
    """A document that shows a topic.

    Attributes
    ----------
    name : str, how the reader finds the document: its number, line or title
    fraction : float, fraction of the document's words that belong to the topic
    excerpt : str, some of its text; the page cuts it after about 400 characters
    """

    name: str
    fraction: float
    excerpt: str = ""

    def __post_init__(self) -> None:
        require_text(self.name, "ExampleDocument.name")
        require_text(self.excerpt, f"excerpt of document {self.name!r}")
        require_fraction(self.fraction, f"fraction of document {self.name!r}")


@dataclass(frozen=True)
class Topic:
    """One topic.

    Attributes
    ----------
    number : int, at least 0, how the topic is called everywhere (`#topic-7` leads to it)
    fraction : float, its fraction of all words of the corpus
    words : its most probable words, best first; at least one
    typical_words : its words by relevance, which favours words that are rare elsewhere; may be
        empty
    ranked_words : the words that some relevance brings to the front, for the page to rank anew;
        may be empty
    documents : documents that show it; may be empty
    name : str, what a person calls it; without it the page shows the first words
    coherence : float or None, NPMI of its first words, from -1 to 1
    split_half_distance : float or None, how far the topic moves from one half of the corpus to
        the other, from 0 (nowhere) to 2 (L1 distance of two disjoint topics)
    trust : "good", "caution", "bad" or None, where nothing is known
    trust_note : str, why, in one plain sentence
    """

    number: int
    fraction: float
    words: Sequence[TopicWord]
    typical_words: Sequence[TopicWord] = ()
    documents: Sequence[ExampleDocument] = ()
    name: str = ""
    coherence: float | None = None
    split_half_distance: float | None = None
    trust: Level | None = None
    trust_note: str = ""
    ranked_words: Sequence[TopicWord] = ()

    def __post_init__(self) -> None:
        require_count(self.number, "number of a topic")
        object.__setattr__(self, "number", int(self.number))
        where = f"topic {self.number}"
        require_fraction(self.fraction, f"fraction of {where}")
        require_text(self.name, f"name of {where}")
        require_text(self.trust_note, f"trust_note of {where}")
        if not self.words:
            raise InvalidInputError(f"words of {where} are empty: give at least one word")
        if self.coherence is not None:
            require_finite(self.coherence, f"coherence of {where}", least=-1.0, most=1.0)
        if self.split_half_distance is not None:
            require_finite(self.split_half_distance, f"split_half_distance of {where}", least=0.0)
        if self.trust is not None:
            require_level(self.trust, f"trust of {where}")


@dataclass(frozen=True, eq=False)
class Trend:
    """Fractions of the topics in intervals of time or in groups of documents.

    Attributes
    ----------
    kind : "time" or "group"
    name : str, the column that it comes from
    labels : (g,) what the intervals or groups are called
    fractions : (g, k), of every topic in the words of a group; NaN where there are none
    errors : (g, k), standard errors; NaN where they are not known
    n_documents : (g,) ints
    """

    kind: Literal["time", "group"]
    name: str
    labels: Sequence[str]
    fractions: Any
    errors: Any
    n_documents: Sequence[int]

    def __post_init__(self) -> None:
        require_text(self.name, "name of a trend")
        if self.kind not in ("time", "group"):
            raise InvalidInputError(f"kind={self.kind!r} of a trend must be 'time' or 'group'")
        for label in self.labels:
            require_text(label, f"label of {self.name!r}")
        count = len(self.labels)
        for part in ("fractions", "errors"):
            table = np.array(getattr(self, part), dtype=np.float64)
            if table.ndim != 2 or len(table) != count or not count:
                raise InvalidInputError(
                    f"{part} of {self.name!r} have shape {table.shape}, and {count} labels need "
                    f"({count}, topics)"
                )
            object.__setattr__(self, part, table)
        if self.fractions.shape != self.errors.shape or len(self.n_documents) != count:
            raise InvalidInputError(f"parts of {self.name!r} differ in length")
        if np.nanmin(self.fractions, initial=0.0) < 0 or np.isinf(self.fractions).any():
            raise InvalidInputError(f"fractions of {self.name!r} must be finite and at least 0")


@dataclass(frozen=True)
class Spectrum:
    """The eigenvalues of the second moment, and how many were used.

    Attributes
    ----------
    values : (m,) numbers, largest first
    chosen : int, how many topics were taken
    noise : float or None, the level below which an eigenvalue is noise
    """

    values: Sequence[float]
    chosen: int
    noise: float | None = None

    def __post_init__(self) -> None:
        if not len(self.values):
            raise InvalidInputError("values of the spectrum are empty: leave spectrum=None")
        for i, value in enumerate(self.values):
            require_finite(value, f"eigenvalue {i + 1} of the spectrum")
        require_count(self.chosen, "chosen of the spectrum", least=1)
        if self.noise is not None:
            require_finite(self.noise, "noise of the spectrum", least=0.0)


@dataclass(frozen=True)
class RefinementHistory:
    """Perplexity along the likelihood refinement.

    Attributes
    ----------
    passes : (m,) numbers, passes over the corpus, increasing; 0 is the answer of the moments
    perplexity : (m,) numbers, of the words of the corpus
    kept : number or None, the pass whose topics were kept; None is the last
    """

    passes: Sequence[float]
    perplexity: Sequence[float]
    kept: float | None = None

    def __post_init__(self) -> None:
        if len(self.passes) != len(self.perplexity) or not len(self.passes):
            raise InvalidInputError(
                f"{len(self.passes)} passes and {len(self.perplexity)} perplexities: "
                "give one perplexity for each pass, or leave refinement=None"
            )
        for i, (done, value) in enumerate(zip(self.passes, self.perplexity, strict=True)):
            require_finite(done, f"passes[{i}] of the refinement", least=0.0)
            require_finite(value, f"perplexity[{i}] of the refinement", least=0.0)
            if i and done <= self.passes[i - 1]:
                raise InvalidInputError(
                    f"passes of the refinement must increase, and passes[{i}]={done} follows "
                    f"{self.passes[i - 1]}"
                )
        if self.kept is not None and self.kept not in self.passes:
            raise InvalidInputError(f"kept={self.kept} is none of the passes of the refinement")


@dataclass(frozen=True)
class CountEvidence:
    """What speaks for and against one number of topics: held-out perplexity, and coherence."""

    n_topics: int
    perplexity: float
    coherence: float | None = None

    def __post_init__(self) -> None:
        require_count(self.n_topics, "n_topics of the evidence", least=1)
        where = f"for {self.n_topics} topics"
        require_finite(self.perplexity, f"perplexity {where}", least=0.0)
        if self.coherence is not None:
            require_finite(self.coherence, f"coherence {where}", least=-1.0, most=1.0)


@dataclass(frozen=True)
class CountChoice:
    """Why this number of topics.

    Attributes
    ----------
    rows : what was tried, at least one
    chosen : int, the number of topics taken
    reason : str, why, in plain words
    """

    rows: Sequence[CountEvidence]
    chosen: int
    reason: str = ""

    def __post_init__(self) -> None:
        if not self.rows:
            raise InvalidInputError("rows of a choice are empty: leave choice=None")
        counts = [row.n_topics for row in self.rows]
        if len(set(counts)) < len(counts):
            raise InvalidInputError(f"rows of a choice repeat a number of topics: {counts}")
        require_count(self.chosen, "chosen number of topics", least=1)
        require_text(self.reason, "reason of the choice")


@dataclass(frozen=True)
class Statement:
    """One finding of the certificate.

    Attributes
    ----------
    level : "good", "caution", "bad" or "unknown", which does not count for the verdict
    sentence : str, what it means, in plain words
    name : str, what was measured
    value : float or None, the number
    """

    level: Level | Literal["unknown"]
    sentence: str
    name: str = ""
    value: float | None = None

    def __post_init__(self) -> None:
        require_text(self.sentence, "sentence of a statement")
        require_text(self.name, "name of a statement")
        if self.level != "unknown":
            require_level(self.level, f"level of the statement {self.sentence!r}")


@dataclass(frozen=True)
class Reproduction:
    """How to get the same topics again; what is empty is left out.

    Attributes
    ----------
    command : str, the command line
    snippet : str, the same in Python
    seed : int or None
    versions : name of a package to its version
    seconds : name of a stage to the seconds it took
    settings : name of a setting to its value, in the reader's words
    """

    command: str = ""
    snippet: str = ""
    seed: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stage, value in self.seconds.items():
            require_finite(value, f"seconds of stage {stage!r}", least=0.0)


@dataclass(frozen=True, eq=False)
class TopicPage:
    """All that a report shows; what is None or empty is left out.

    Attributes
    ----------
    title : str, what the corpus is
    n_documents : int, documents that were used
    n_tokens : int, words in them
    n_words : int, size of the vocabulary
    topics : at least one, in any order; the page shows the largest first
    n_empty_documents : int, documents without any word of the vocabulary, which were dropped
    n_short_documents : int, documents of fewer than three words, used for what they can give
    distances : (k, k) array or None, how far apart the topics are, in the order of `topics`
    trends : the topics over time and by group, columns in the order of `topics`; may be empty
    spectrum, refinement, choice, reproduction : or None
    certificate : findings, in the order in which they are shown
    verdict : "good", "caution", "bad" or None: how far to trust the whole; None is the worst of
        the certificate
    created : str, when, if the page shall say so; a page without it is the same each time
    """

    title: str
    n_documents: int
    n_tokens: int
    n_words: int
    topics: Sequence[Topic]
    n_empty_documents: int = 0
    n_short_documents: int = 0
    distances: Any = None
    spectrum: Spectrum | None = None
    refinement: RefinementHistory | None = None
    choice: CountChoice | None = None
    certificate: Sequence[Statement] = ()
    verdict: Level | None = None
    reproduction: Reproduction | None = None
    created: str = ""
    trends: Sequence[Trend] = ()

    def __post_init__(self) -> None:
        require_text(self.title, "title")
        require_text(self.created, "created")
        for name in (
            "n_documents",
            "n_tokens",
            "n_words",
            "n_empty_documents",
            "n_short_documents",
        ):
            require_count(getattr(self, name), name)
        if not self.topics:
            raise InvalidInputError("topics are empty: a report needs at least one topic")
        numbers = [topic.number for topic in self.topics]
        if len(set(numbers)) < len(numbers):
            raise InvalidInputError(f"numbers of the topics repeat: {numbers}")
        for trend in self.trends:
            if trend.fractions.shape[1] != len(numbers):
                raise InvalidInputError(
                    f"fractions of {trend.name!r} have {trend.fractions.shape[1]} columns for "
                    f"{len(numbers)} topics"
                )
        if self.verdict is not None:
            require_level(self.verdict, "verdict")
        if self.distances is not None:
            object.__setattr__(self, "distances", _checked_distances(self.distances, len(numbers)))


def _checked_distances(distances: Any, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The distances as a (k, k) array of their own, symmetric to the last bit."""
    try:
        matrix = np.array(distances, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError("distances must be a matrix of numbers") from None
    if matrix.shape != (count, count):
        raise InvalidInputError(
            f"distances have shape {matrix.shape}, and {count} topics need ({count}, {count})"
        )
    if not np.all(np.isfinite(matrix)) or np.any(matrix < 0):
        raise InvalidInputError("distances must be finite and at least 0")
    if not np.allclose(matrix, matrix.T, rtol=1e-4, atol=1e-6 * (1.0 + matrix.max())):
        raise InvalidInputError("distances must be symmetric: distances[i, j] == distances[j, i]")
    matrix = (matrix + matrix.T) / 2.0
    np.fill_diagonal(matrix, 0.0)
    matrix.flags.writeable = False
    return matrix
