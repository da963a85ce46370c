"""`topic_report`: everything on one page that needs nothing but itself."""

from __future__ import annotations

from latensor.report.cards import cards
from latensor.report.description import TopicPage
from latensor.report.evidence import certificate, evidence
from latensor.report.frame import asset, html_page
from latensor.report.markup import Markup, element, section, shorten
from latensor.report.overview import overview
from latensor.report.reproducing import reproducing
from latensor.report.topic_map import topic_map
from latensor.report.trends import trends
from latensor.report.wording import percent

# Fraction of the differences from which on a map needs no word of warning.
_FAITHFUL = 0.9


def topic_report(page: TopicPage) -> str:
    """The whole report about a topic model as one HTML page.

    The page loads nothing: style and script stand in it, named by their hashes in a content
    security policy that allows nothing else. Without a script all content is there; a script adds
    sorting, filtering and selecting. The same description gives the same page.

    Parameters
    ----------
    page : TopicPage, what to show

    Returns
    -------
    str, the HTML
    """
    sections = [
        ("overview", "Overview", overview(page)),
        ("map", "Map", _map(page)),
        ("topics", "Topics", cards(page)),
        *trends(page),
        ("certificate", "Certificate", certificate(page)),
        ("evidence", "Evidence", evidence(page)),
        ("reproduce", "Reproduce", reproducing(page.reproduction)),
    ]
    present = [(name, title, body) for name, title, body in sections if body is not None]
    return html_page(
        f"{shorten(page.title, 80) or 'Untitled corpus'}: topics",
        present,
        script=asset("page.js"),
        skip=("Skip to the topics", "#topics"),
        created=page.created,
    )


def _map(page: TopicPage) -> Markup | None:
    if page.distances is None or len(page.topics) < 2:
        return None
    drawing, shown = topic_map(page)
    levels = [
        (level, text)
        for level, text in (("good", "stable"), ("caution", "uncertain"), ("bad", "unstable"))
        if any(topic.trust == level for topic in page.topics)
    ]
    legend = [
        element("li", element("i", class_=f"ring {level}", aria_hidden="true"), text)
        for level, text in levels
    ]
    return section(
        "map",
        "Map of topics",
        element(
            "p",
            "Topics that use the same words stand near each other; a larger circle is more of the "
            "corpus. ",
            f"Two dimensions hold {percent(shown)} of the differences between topics, so read "
            "neighbourhoods, not exact distances. "
            if shown < _FAITHFUL
            else None,
            element(
                "span",
                "Arrow keys move between topics, Enter selects one.",
                class_="keys script-only",
                hidden=True,
            ),
            class_="explanation",
        ),
        element(
            "div",
            element(
                "figure",
                drawing,
                element("figcaption", element("ul", legend)) if legend else None,
            ),
            element(
                "section",
                element("div", id="selected-content"),
                element(
                    "p",
                    element("button", "Previous", type="button", id="previous"),
                    element("button", "Next", type="button", id="next"),
                    class_="turn",
                ),
                element("p", role="status", id="selected-status", class_="unseen"),
                id="selected",
                class_="card script-only",
                aria_label="Selected topic",
                hidden=True,
            ),
            class_="map-and-topic",
        ),
    )
