"""`topic_report`: everything on one page that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from latensor.report.cards import cards
from latensor.report.description import TopicPage
from latensor.report.evidence import certificate, evidence
from latensor.report.markup import Markup, element, joined, shorten
from latensor.report.overview import overview
from latensor.report.reproducing import reproducing
from latensor.report.topic_map import topic_map
from latensor.report.wording import percent

# Share of the differences from which on a map needs no word of warning.
_FAITHFUL = 0.9
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%231c5d99'/%3E"
    "%3Ccircle cx='6' cy='9' r='3.4' fill='white'/%3E"
    "%3Ccircle cx='11.4' cy='5' r='2' fill='%23f2b56b'/%3E%3C/svg%3E"
)


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
    style, script = Markup(_asset("page.css") + _widths()), _asset("page.js")
    sections = [
        ("overview", "Overview", overview(page)),
        ("map", "Map", _map(page)),
        ("topics", "Topics", cards(page)),
        ("certificate", "Trust", certificate(page)),
        ("evidence", "Evidence", evidence(page)),
        ("reproduce", "Reproduce", reproducing(page.reproduction)),
    ]
    present = [(name, title, body) for name, title, body in sections if body is not None]
    links = [element("li", element("a", title, href=f"#{name}")) for name, title, _ in present]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="latensor"),
        element("title", f"{shorten(page.title, 80) or 'Untitled corpus'}: topics"),
        element("link", rel="icon", href=_ICON),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "Skip to the topics", href="#topics", class_="skip"),
        element(
            "header",
            element("span", "latensor", class_="brand"),
            element("nav", element("ul", links), aria_label="Parts of this page"),
            class_="top",
        ),
        element("main", [body for _, _, body in present]),
        _footer(page),
        element("script", script),
    )
    root = element("html", head, body, lang="en")
    return f"<!doctype html>\n{root}\n"


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
    return element(
        "section",
        element("h2", "Map of topics", id="map-heading"),
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
        id="map",
        aria_labelledby="map-heading",
    )


def _footer(page: TopicPage) -> Markup:
    parts = ["Made by latensor; this page loads nothing from anywhere."]
    if page.created:
        parts.insert(0, f"{page.created}.")
    return element("footer", element("p", joined(" ", parts)))


def _asset(name: str) -> Markup:
    """A file of this package, declared to be safe inside the page."""
    text = (resources.files("latensor.report") / name).read_text(encoding="utf-8")
    return Markup(text)


def _widths() -> Markup:
    """Classes for bars: the policy forbids style attributes, which could carry anything."""
    return Markup("".join(f".w{i}{{width:{i}%}}" for i in range(101)) + "\n")


def _policy(style: str, script: str) -> str:
    """Only this style and this script may run; nothing may be loaded, sent or framed."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (style, script)
    ]
    return (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[1]}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
