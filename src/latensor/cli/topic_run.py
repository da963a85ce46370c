"""One run of `latensor topics`: read, learn, describe, and say what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

import latensor as lt
from latensor.cli.corpus import WORDING, Corpus, Reading, opened_corpus
from latensor.cli.findings import say
from latensor.cli.topic_progress import TopicMeter, topic_meter
from latensor.report import Reproduction, TopicPage
from latensor.report.topic_page import page_of

_TRUST = {
    "good": ("stable", "green"),
    "caution": ("uncertain", "yellow"),
    "bad": ("unstable", "red"),
}


@dataclass(frozen=True)
class Wish:
    """What to learn and how to show it.

    Attributes
    ----------
    topics : int or "auto"
    refine : int or "auto", passes of the refinement
    seed : int
    jobs : int, threads, or None for all processors
    n_words : int, words shown of a topic
    title : str, what the report calls the corpus
    command : str, what was typed
    names : what the documents are called, by number
    checkpoint : folder in which the fit is saved on its way, or None
    """

    topics: int | str = "auto"
    refine: int | str = "auto"
    seed: int = 0
    jobs: int | None = None
    n_words: int = 10
    title: str = ""
    command: str = ""
    names: Callable[[int], str] | Sequence[str] | None = None
    checkpoint: Path | None = None


@dataclass(frozen=True, eq=False)
class Learned:
    """A model, all that a report shows of it, warnings of the fit, and seconds by stage."""

    model: Any
    page: TopicPage
    notes: list[str]
    seconds: dict[str, float]


def learn(reading: Reading, wish: Wish, console: Console, n_examples: int) -> Learned:
    """Learn the topics of a file, and gather what there is to say about them.

    Parameters
    ----------
    n_examples : int, documents that show a topic; 0 spares a pass over the texts
    """
    with topic_meter(console) as meter, ExitStack() as stack:
        with meter.step("reading", "reading"):
            corpus = stack.enter_context(opened_corpus(reading, meter))
        for remark in (*corpus.remarks, *filter(None, [corpus.advice])):
            say(console, remark)
        notes: list[str] = []
        with WORDING.warnings(notes):
            model = _fitted(corpus, wish, meter)
            with meter.step("describing the topics", "description"):
                page = _described(model, corpus, reading, wish, meter, n_examples)
    before, after = dict(list(meter.seconds.items())[:-1]), meter.seconds["description"]
    return Learned(model, page, notes, {**before, **model.stage_seconds_, "description": after})


def _fitted(corpus: Corpus, wish: Wish, meter: TopicMeter) -> Any:
    def show(stage: str, fraction: float) -> None:
        # The choice of their number follows the reading, and tells nothing while it lasts.
        chooses = wish.topics == "auto" and stage == "reading" and fraction >= 1
        meter.stage("number of topics" if chooses else stage, float("nan") if chooses else fraction)

    model: Any = lt.LatentDirichletAllocation(
        wish.topics, refine=wish.refine, random_state=wish.seed, n_jobs=wish.jobs, callback=show
    )
    with WORDING.errors():
        model.fit(corpus.documents, checkpoint=wish.checkpoint)
    return model.set_params(callback=None)


def _described(
    model: Any, corpus: Corpus, reading: Reading, wish: Wish, meter: TopicMeter, n_examples: int
) -> TopicPage:
    texts = corpus.texts
    reproduction = Reproduction(
        command=wish.command,
        snippet=_snippet(reading, corpus.settings, wish),
        seed=wish.seed,
        seconds=meter.seconds,
        settings={
            "words": f"{corpus.remarks[-1]}.",
            "refinement": str(model.status_),
        },
    )
    return page_of(
        model,
        corpus.documents,
        title=wish.title or reading.file.name,
        excerpts=None if texts is None else texts.excerpts,
        names=wish.names or getattr(texts, "names", None),
        n_words=wish.n_words,
        n_examples=n_examples,
        intervals=corpus.intervals,
        reproduction=reproduction,
    )


def _snippet(reading: Reading, settings: dict[str, Any], wish: Wish) -> str:
    """The same in Python."""
    plain = {"min_df": 1, "max_df": 1.0, "stop_words": None, "max_features": None}
    given: dict[str, Any] = {
        "format": reading.format,
        "text_column": reading.text_column,
        "token_pattern": reading.token_pattern,
        "vocabulary": None if reading.vocabulary is None else str(reading.vocabulary),
    }
    arguments = {k: v for k, v in given.items() if v is not None}
    arguments |= {k: v for k, v in settings.items() if v != plain[k]}
    lines = ["import latensor as lt", ""]
    if settings["stop_words"] not in (None, "english"):
        lines.append(f"stop_words = open({settings['stop_words']!r}).read().split()")
    listed = [
        "stop_words=stop_words"
        if name == "stop_words" and value != "english"
        else f"{name}={value!r}"
        for name, value in arguments.items()
    ]
    lines += ["documents = lt.sources.read_documents(", f"    {str(reading.file)!r},"]
    lines += [f"    {entry}," for entry in listed]
    options = f"refine={wish.refine}, " if wish.refine != "auto" else ""
    lines += [
        ")",
        f"model = lt.LatentDirichletAllocation({wish.topics!r}, {options}random_state={wish.seed})",
        "model.fit(documents)",
        f"model.top_words({wish.n_words})",
    ]
    for method, column in (("topics_over_time", reading.date), ("topics_by_group", reading.group)):
        if column is not None:
            read = f"lt.sources.read_column({str(reading.file)!r}, {column!r})"
            more = ', "calendar"' if method == "topics_over_time" else ""
            lines.append(f"model.{method}(documents, {read}{more})")
    return "\n".join(lines)


def print_topics(learned: Learned, console: Console) -> None:
    """Print the table of topics, the evidence for their number, the certificate and the time."""
    model, page = learned.model, learned.page
    selection = getattr(model, "selection_", None)
    if selection is not None:
        say(console, f"\n{WORDING(selection)}")
        if selection.candidates and selection.n_components == max(selection.candidates):
            say(
                console,
                f"{selection.n_components} is the largest number tried: more may predict better, "
                "fewer are easier to read; --topics K takes as many as you say",
            )
    table = Table("topic", "fraction", "words", "NPMI", "stability")
    for column in (0, 1, 3):
        table.columns[column].justify = "right"
    for topic in page.topics:
        trust, style = _TRUST.get(topic.trust or "", ("unknown", ""))
        table.add_row(
            str(topic.number),
            f"{100 * topic.fraction:.1f} %",
            Text(" ".join(word.text for word in topic.words)),
            "" if topic.coherence is None else f"{topic.coherence:.2f}",
            Text(trust, style=style),
        )
    console.print(table)
    say(
        console,
        "fraction: of all words; NPMI: whether the words meet in documents, -1 to 1; stability: "
        "whether two halves of the documents agree",
    )
    if page.refinement is not None:
        values = page.refinement.perplexity
        say(
            console,
            f"Perplexity of words: {values[0]:,.0f} by moments, {values[-1]:,.0f} after refinement "
            f"({model.status_})",
        )
    else:
        say(console, f"Topics of the moments alone ({model.status_})")
    for note in learned.notes:
        say(console, f"Note: {note}")
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        say(console, f"\n{WORDING(certificate)}\n")
    seconds = learned.seconds
    stages = ", ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    say(console, f"Time: {sum(seconds.values()):.2f} s ({stages})")
