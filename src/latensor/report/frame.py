"""The frame of every page: one file that loads nothing, with a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from latensor.report.markup import Markup, element, joined

_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Crect width='16' height='16' rx='4' fill='%231c5d99'/%3E"
    "%3Ccircle cx='6' cy='9' r='3.4' fill='white'/%3E"
    "%3Ccircle cx='11.4' cy='5' r='2' fill='%23f2b56b'/%3E%3C/svg%3E"
)


def html_page(
    title: str,
    sections: Sequence[tuple[str, str, Markup]],
    *,
    script: Markup | None = None,
    skip: tuple[str, str],
    created: str = "",
) -> str:
    """A whole page of HTML.

    The page loads nothing: style and script stand in it, named by their hashes in a content
    security policy that allows nothing else.

    Parameters
    ----------
    title : str, in the head
    sections : pairs of anchor and name in the navigation, and the content
    script : what runs, or None
    skip : words and target of the link that leads past the navigation
    created : str, when it was made
    """
    style = Markup(asset("page.css") + _widths())
    links = [element("li", element("a", name, href=f"#{anchor}")) for anchor, name, _ in sections]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="latensor"),
        element("title", title),
        element("link", rel="icon", href=_ICON),
        element("style", style),
    )
    made = ["Made by latensor; this page loads nothing from anywhere."]
    if created:
        made.insert(0, f"{created}.")
    body = element(
        "body",
        element("a", skip[0], href=skip[1], class_="skip"),
        element(
            "header",
            element("span", "latensor", class_="brand"),
            element("nav", element("ul", links), aria_label="Parts of this page"),
            class_="top",
        ),
        element("main", [content for _, _, content in sections]),
        element("footer", element("p", joined(" ", made))),
        None if script is None else element("script", script),
    )
    root = element("html", head, body, lang="en")
    return f"<!doctype html>\n{root}\n"


def asset(name: str) -> Markup:
    """A file of this package, declared to be safe inside the page."""
    text = (resources.files("latensor.report") / name).read_text(encoding="utf-8")
    return Markup(text)


def _widths() -> Markup:
    """Classes for bars: the policy forbids style attributes, which could carry anything."""
    return Markup("".join(f".w{i}{{width:{i}%}}" for i in range(101)) + "\n")


def _policy(style: str, script: str | None) -> str:
    """Only this style and this script may run; nothing may be loaded, sent or framed."""
    runs = "'none'" if script is None else f"'sha256-{_hash(script)}'"
    return (
        f"default-src 'none'; style-src 'sha256-{_hash(style)}'; script-src {runs}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
