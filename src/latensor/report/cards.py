"""Topics as cards: words with bars, measures, documents and neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from latensor.diagnostics.findings import counted
from latensor.report.context import Highlighter
from latensor.report.csv_link import csv_link, topic_rows
from latensor.report.description import Topic, TopicPage, TopicWord
from latensor.report.markup import Markup, element, joined, section, shorten
from latensor.report.wording import (
    MARKS,
    TRUST,
    headline,
    percent,
    times,
)

_WORD_LENGTH = 60
_EXCERPT_LENGTH = 400
_NEIGHBOURS = 3
# Cards that stand on the page before all are asked for: a phone shows one at a time.
_FIRST_CARDS = 24
_LEVELS = ("good", "caution", "bad", None)


def cards(page: TopicPage) -> Markup:
    """The section of all topics, with what sorts and filters them."""
    near = _neighbours(page)
    order = places(page.topics)
    shown = sorted(range(len(page.topics)), key=lambda i: order[i]["fraction"])
    return section(
        "topics",
        "Topics",
        _controls(page),
        element(
            "div",
            [_card(page.topics[i], near[i], order[i]) for i in shown],
            class_="cards",
            data_first=str(_FIRST_CARDS),
        ),
        element(
            "p",
            element("button", f"Show all {len(shown)} topics", type="button", id="show-all"),
            class_="script-only",
            hidden=True,
        )
        if len(shown) > _FIRST_CARDS
        else None,
        element(
            "p",
            "No topic has such a word among the words shown.",
            id="nothing-found",
            hidden=True,
        ),
    )


def places(topics: Sequence[Topic]) -> list[dict[str, int]]:
    """For each topic its place in the list when sorted by each key; what is unknown comes last.

    Trust goes by level, then by split-half distance. Ties go by number.
    """

    def fraction(topic: Topic) -> tuple[float, ...]:
        return (-topic.fraction,)

    def trust(topic: Topic) -> tuple[float, ...]:
        distance = topic.split_half_distance
        return _LEVELS.index(topic.trust), np.inf if distance is None else distance

    def coherence(topic: Topic) -> tuple[float, ...]:
        return (np.inf if topic.coherence is None else -topic.coherence,)

    def by_number(topic: Topic) -> tuple[float, ...]:
        return ()

    keys = {"fraction": fraction, "trust": trust, "coherence": coherence, "number": by_number}
    found: list[dict[str, int]] = [{} for _ in topics]
    for name, key in keys.items():
        order = sorted(range(len(topics)), key=lambda i: (*key(topics[i]), topics[i].number))
        for place, i in enumerate(order):
            found[i][name] = place
    return found


def _controls(page: TopicPage) -> list[Markup | None]:
    """What changes the list; all but the choice of words needs a script and is hidden without."""
    topics = page.topics
    sortings = [("fraction", "size")]
    if any(topic.trust or topic.split_half_distance is not None for topic in topics):
        sortings.append(("trust", "stability"))
    if any(topic.coherence is not None for topic in topics):
        sortings.append(("coherence", "coherence"))
    sortings.append(("number", "number"))
    words = None
    if any(topic.typical_words for topic in topics):
        words = _choice(
            "words",
            "Words",
            [("probable", "most frequent"), ("typical", "most typical")],
            "words-",
        )
    slider = None
    if any(topic.ranked_words for topic in topics):
        slider = _slider(max(len(topic.words) for topic in topics))
    tools: list[Markup | None] = []
    if len(topics) > 1:
        tools.append(
            element(
                "div",
                element("label", "Find topics by word", for_="find"),
                element(
                    "input",
                    id="find",
                    type="search",
                    autocomplete="off",
                    spellcheck="false",
                ),
                class_="find script-only",
                hidden=True,
            )
        )
        tools.append(_choice("sort", "Sort by", sortings, "sort-", script_only=True))
    tools += [words, slider]
    return [
        element("div", tools, class_="controls"),
        element("p", id="list-status", role="status", class_="quiet") if len(topics) > 1 else None,
        element("p", csv_link(topic_rows(page), "topics.csv", "Words of all topics as CSV")),
    ]


def _slider(n_words: int) -> Markup:
    """The weight of frequency against lift (Sievert and Shirley 2014), which ranks words anew."""
    return element(
        "div",
        element("label", "Relevance λ", for_="relevance"),
        element(
            "input",
            id="relevance",
            type="range",
            min="0",
            max="1",
            step="0.1",
            value="1",
            autocomplete="off",
            data_words=str(n_words),
            aria_describedby="relevance-value",
        ),
        element("output", "1: by frequency", id="relevance-value", for_="relevance"),
        class_="relevance script-only",
        hidden=True,
    )


def _choice(
    name: str,
    legend: str,
    options: Sequence[tuple[str, str]],
    prefix: str,
    script_only: bool = False,
) -> Markup:
    buttons = []
    for i, (value, text) in enumerate(options):
        identity = prefix + value
        buttons += [
            element(
                "input",
                type="radio",
                name=name,
                id=identity,
                value=value,
                checked=i == 0,
                autocomplete="off",
            ),
            element("label", text, for_=identity),
        ]
    return element(
        "fieldset",
        element("legend", legend),
        element("div", buttons, class_="segments"),
        class_="script-only" if script_only else None,
        hidden=script_only,
    )


def _neighbours(page: TopicPage) -> list[list[Topic]]:
    """For each topic the topics nearest to it, nearest first."""
    if page.distances is None or len(page.topics) < 3:
        return [[] for _ in page.topics]
    found = []
    for i in range(len(page.topics)):
        order = [int(j) for j in np.argsort(page.distances[i], kind="stable") if j != i]
        found.append([page.topics[j] for j in order[:_NEIGHBOURS]])
    return found


def _card(topic: Topic, near: Sequence[Topic], order: Mapping[str, int]) -> Markup:
    identity = f"topic-{topic.number}"
    return element(
        "article",
        element(
            "header",
            element(
                "h3",
                element(
                    "a",
                    element("span", "Topic ", class_="unseen"),
                    element("span", str(topic.number), class_="number"),
                    " ",
                    element("bdi", headline(topic)),
                    href="#" + identity,
                ),
                id=identity + "-heading",
            ),
            element(
                "p",
                element("span", element("strong", percent(topic.fraction)), " of all words"),
                _chip(topic),
                class_="meta",
            ),
        ),
        _words(topic.words, "probable", "Most frequent words"),
        _words(topic.typical_words or topic.words, "typical", "Most typical words"),
        _words(topic.ranked_words, "ranked", "Words by relevance") if topic.ranked_words else None,
        _measures(topic),
        _documents(topic),
        _near(near),
        id=identity,
        class_="card",
        tabindex="-1",
        aria_labelledby=identity + "-heading",
        data_topic=str(topic.number),
        **{"data_" + name: place for name, place in order.items()},
    )


def _chip(topic: Topic) -> Markup | None:
    if topic.trust is None:
        return None
    return element(
        "span",
        element("span", MARKS[topic.trust], class_="mark", aria_hidden="true"),
        TRUST[topic.trust],
        class_=f"chip {topic.trust}",
    )


def _words(words: Sequence[TopicWord], kind: str, label: str) -> Markup:
    most = max(word.probability for word in words) or 1.0
    lifted = kind != "probable" and all(word.lift is not None for word in words)
    ranked = kind == "ranked" and lifted
    rows = []
    for word in words:
        width = round(100 * word.probability / most)
        rows.append(
            element(
                "li",
                element("bdi", shorten(word.text, _WORD_LENGTH)),
                element("i", class_=f"b w{width}"),
                element("b", percent(word.probability)),
                element("span", times(word.lift or 0.0)) if lifted else None,
                data_p=f"{word.probability:.4g}" if ranked else None,
                data_lift=f"{word.lift:.4g}" if ranked else None,
            )
        )
    return element("ol", rows, class_=f"words {kind}{' lifted' * lifted}", aria_label=label)


def _measures(topic: Topic) -> Markup | None:
    rows = []
    if topic.coherence is not None:
        rows.append(("coherence", f"{topic.coherence:.2f}".replace("-", "−")))
    if topic.split_half_distance is not None:
        rows.append(("distance between halves", f"{topic.split_half_distance:.2f}"))
    if not rows and not topic.trust_note:
        return None
    return element(
        "div",
        element("p", topic.trust_note) if topic.trust_note else None,
        element(
            "dl",
            [element("div", element("dt", name), element("dd", value)) for name, value in rows],
        )
        if rows
        else None,
        class_="measures",
    )


def _documents(topic: Topic) -> Markup | None:
    documents = topic.documents
    if not documents:
        return None
    shown = Highlighter([word.text for word in (*topic.words, *topic.typical_words)])
    rows = [
        element(
            "li",
            element(
                "p",
                element("bdi", shorten(document.name, 80)),
                element("span", f"{percent(document.fraction)} of it", class_="value"),
                class_="document-name",
            ),
            element("blockquote", shown.excerpt(document.excerpt, _EXCERPT_LENGTH), dir="auto")
            if document.excerpt.strip()
            else None,
        )
        for document in documents
    ]
    return element(
        "details",
        element(
            "summary",
            counted(len(documents), "document that shows", "documents that show"),
            " this topic",
        ),
        element("ul", rows),
    )


def _near(near: Sequence[Topic]) -> Markup | None:
    if not near:
        return None
    links = [
        element(
            "a",
            element("span", str(topic.number), class_="number"),
            " ",
            element("bdi", headline(topic, words=2)),
            href=f"#topic-{topic.number}",
        )
        for topic in near
    ]
    return element("p", "Nearest: ", joined(" · ", links), class_="near")
