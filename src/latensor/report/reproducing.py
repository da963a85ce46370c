"""How to get the same topics again."""

from __future__ import annotations

from collections.abc import Mapping

from latensor.report.description import Reproduction
from latensor.report.markup import Markup, element, section
from latensor.report.wording import seconds


def reproducing(how: Reproduction | None) -> Markup | None:
    """Command, snippet, versions and time per stage; None where nothing is known."""
    if how is None:
        return None
    settings = dict(how.settings)
    if how.seed is not None:
        settings = {"seed": str(how.seed), **settings}
    parts = [
        _code("On the command line", how.command, "command"),
        _code("In Python", how.snippet, "snippet"),
        _pairs("Settings", settings),
        _pairs("Versions", how.versions),
        _stages(how.seconds),
    ]
    if not any(parts):
        return None
    return section(
        "reproduce",
        "How to reproduce",
        element("div", parts, class_="reproduce"),
    )


def _code(title: str, text: str, name: str) -> Markup | None:
    if not text.strip():
        return None
    copy = element("button", "Copy", type="button", class_="copy", data_copy=name, hidden=True)
    return element(
        "div",
        element("div", element("h3", title), copy, class_="code-head"),
        element(
            "pre",
            element("code", text.strip("\n")),
            # Focusable, because long lines scroll by themselves.
            tabindex="0",
            id=name,
            aria_label=title,
            role="region",
        ),
        class_="code",
    )


def _pairs(title: str, pairs: Mapping[str, str]) -> Markup | None:
    if not pairs:
        return None
    rows = [
        element("div", element("dt", name), element("dd", element("bdi", value)))
        for name, value in pairs.items()
    ]
    return element("div", element("h3", title), element("dl", rows, class_="pairs"))


def _stages(times: Mapping[str, float]) -> Markup | None:
    if not times:
        return None
    most = max(times.values()) or 1.0
    rows = [
        element(
            "div",
            element("dt", name),
            element(
                "dd",
                element("i", class_=f"b w{round(100 * value / most)}", aria_hidden="true"),
                element("span", seconds(value), class_="value"),
            ),
        )
        for name, value in times.items()
    ]
    total = sum(times.values())
    return element(
        "div",
        element("h3", f"Time: {seconds(total)}"),
        element("dl", rows, class_="pairs stages"),
    )
