"""HTML and SVG without a template engine: text is escaped unless it was made here.

Words and documents come from anywhere. Everything that enters a page goes through `element`, which
escapes whatever is not `Markup`, so that forgetting to escape is not possible; only a file of this
package is ever declared to be `Markup` by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

_EMPTY = frozenset({"meta", "link", "img", "input", "br", "hr"})
# Not allowed in HTML, or half of a character: NUL and other controls, lone surrogates.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# Embeddings and overrides of the writing direction would turn round what stands after a word.
_OVERRIDES = re.compile("[\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]
Attribute = str | float | bool | None


def clean(text: str) -> str:
    """Text that every parser reads alike, and that cannot turn round its surroundings."""
    return _OVERRIDES.sub("", _FORBIDDEN.sub("\ufffd", text))


def shorten(text: str, length: int) -> str:
    """`text` in at most `length` characters, on one line, cut with an ellipsis."""
    line = " ".join(clean(text).split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def decimal(value: float, digits: int = 1) -> str:
    """A coordinate, without the zeros that say nothing."""
    text = f"{value:.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def element(name: str, /, *children: Child, **attributes: Attribute) -> Markup:
    """An element with its children, all text escaped.

    Parameters
    ----------
    name : str, the tag
    *children : Markup is taken as it is, other text is escaped; None is left out; iterables are
        taken one by one
    **attributes : `class_="x"` gives class, `aria_label` aria-label; None and False are left out,
        True stands without a value, floats are rounded to two digits
    """
    head = name + "".join(
        _attribute(key.strip("_").replace("_", "-"), value) for key, value in attributes.items()
    )
    if name in _EMPTY:
        return Markup(f"<{head}>")
    return Markup(f"<{head}>{fragment(children)}</{name}>")


def section(anchor: str, heading: str, /, *children: Child) -> Markup:
    """A part of a page under a heading, which it is named after."""
    title = element("h2", heading, id=f"{anchor}-heading")
    return element("section", title, children, id=anchor, aria_labelledby=f"{anchor}-heading")


def scrolling(label: str, table: Markup) -> Markup:
    """A table that scrolls by itself where it is wider than a phone: it can be focused."""
    return element("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def table_head(names: Iterable[str]) -> Markup:
    """The heads of the columns of a table."""
    return element("thead", element("tr", [element("th", name, scope="col") for name in names]))


def fragment(children: Child) -> Markup:
    """Children without an element around them."""
    if children is None:
        return Markup("")
    if isinstance(children, Markup):
        return children
    if isinstance(children, str):
        return Markup(escape(clean(children), quote=False))
    if isinstance(children, int):
        return Markup(str(children))
    return Markup("".join(fragment(child) for child in children))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    if value is True:
        return f" {key}"
    text = decimal(value, 2) if isinstance(value, float) else str(value)
    return f' {key}="{escape(clean(text))}"'


def joined(separator: str, parts: Iterable[Child]) -> Markup:
    """Parts with a text between them."""
    return Markup(fragment(separator).join(fragment(part) for part in parts))
