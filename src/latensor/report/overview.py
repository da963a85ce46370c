"""The first screen: what the corpus is, what was found in it, and how far to trust it."""

from __future__ import annotations

from latensor.diagnostics.findings import counted
from latensor.report.description import Level, TopicPage
from latensor.report.markup import Markup, element, shorten
from latensor.report.wording import (
    MARKS,
    TRUST,
    VERDICTS,
    count,
    headline,
    number,
    percent,
    worst,
)

_LARGEST = 6
_RATED = {"good": "stable", "caution": "uncertain", "bad": "unstable"}


def overview(page: TopicPage) -> Markup:
    """Title, figures of the corpus, the verdict and the largest topics."""
    return element(
        "section",
        element(
            "div",
            element("p", "Topic report", class_="kicker"),
            element("h1", element("bdi", shorten(page.title, 120) or "Untitled corpus")),
            _lead(page),
            _figures(page),
            _verdict(page),
            class_="opening",
        ),
        _largest(page),
        id="overview",
        class_="hero",
        aria_label="Overview",
    )


def _lead(page: TopicPage) -> list[Markup | None]:
    """What was found in how much, and which documents could give little or nothing."""
    lead = element(
        "p",
        element("strong", counted(len(page.topics), "topic")),
        " found in ",
        element("strong", counted(page.n_documents, "document")),
        ".",
        class_="lead",
    )
    notes = []
    if page.n_empty_documents:
        verb = "was" if page.n_empty_documents == 1 else "were"
        notes.append(
            f"{counted(page.n_empty_documents, 'document')} without a word of the vocabulary "
            f"{verb} dropped."
        )
    if page.n_short_documents:
        verb = "has" if page.n_short_documents == 1 else "have"
        notes.append(
            f"{counted(page.n_short_documents, 'document')} {verb} fewer than three words."
        )
    return [lead, element("p", " ".join(notes), class_="notes") if notes else None]


def _figures(page: TopicPage) -> Markup:
    figures = [
        (count(page.n_tokens), "words in all"),
        (count(page.n_words), "different words"),
    ]
    if page.n_documents:
        mean = page.n_tokens / page.n_documents
        figures.append((number(mean), "words per document"))
    return element(
        "dl",
        [element("div", element("dt", name), element("dd", figure)) for figure, name in figures],
        class_="figures",
    )


def overall(page: TopicPage) -> Level | None:
    """How far to trust the whole: as told, or the worst of the certificate."""
    return page.verdict or worst([statement.level for statement in page.certificate])


def _verdict(page: TopicPage) -> Markup | None:
    """The verdict on the whole in words, and how many topics can be trusted."""
    level = overall(page)
    rated = [topic.trust for topic in page.topics if topic.trust is not None]
    if level is None and not rated:
        return None
    parts: list[Markup | None] = []
    if level is not None:
        mixed = level == "good" and worst(rated) in ("caution", "bad")
        parts.append(
            element(
                "p",
                element("span", MARKS[level], class_="mark", aria_hidden="true"),
                element("strong", f"Verdict: {TRUST[level]}. "),
                "Sound as a whole; single topics are marked." if mixed else VERDICTS[level],
            )
        )
    if rated:
        parts.append(_trust_bar(rated, len(page.topics)))
    if page.certificate:
        parts.append(element("p", element("a", "Read the certificate", href="#certificate")))
    return element("div", parts, class_=f"verdict {level or 'unknown'}")


def _trust_bar(rated: list[Level], total: int) -> Markup:
    """Topics by how far they can be trusted, as one bar and in words."""
    levels: tuple[Level, ...] = ("good", "caution", "bad")
    found = [(level, rated.count(level)) for level in levels if level in rated]
    unknown = total - len(rated)
    words = [f"{many} {_RATED[level]}" for level, many in found]
    if unknown:
        words.append(f"{unknown} not rated")
    fractions = [
        element("i", class_=f"{level} w{round(100 * many / total)}") for level, many in found
    ]
    return element(
        "div",
        element("div", fractions, class_="stack", aria_hidden="true"),
        element("p", f"Of {counted(total, 'topic')}: ", ", ".join(words), "."),
    )


def _largest(page: TopicPage) -> Markup:
    """The largest topics in a line each."""
    order = sorted(page.topics, key=lambda topic: (-topic.fraction, topic.number))[:_LARGEST]
    most = max(topic.fraction for topic in order) or 1.0
    rows = [
        element(
            "li",
            element(
                "a",
                element("span", str(topic.number), class_="number"),
                element("bdi", headline(topic, words=4), class_="words-line"),
                element("span", percent(topic.fraction), class_="value"),
                element("i", class_=f"b w{round(100 * topic.fraction / most)}", aria_hidden="true"),
                href=f"#topic-{topic.number}",
            ),
        )
        for topic in order
    ]
    title = "The topics" if len(order) == len(page.topics) else "The largest topics"
    rest = len(page.topics) - len(order)
    return element(
        "div",
        element("h2", title, id="largest-heading"),
        element("ol", rows, class_="largest", aria_labelledby="largest-heading"),
        element("p", element("a", f"and {counted(rest, 'more', 'more')}", href="#topics"))
        if rest
        else None,
        class_="largest-box",
    )
