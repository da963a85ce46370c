"""Tables to take along: CSV in the page itself, which a link saves without a script."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from latensor.report.description import TopicPage
from latensor.report.markup import Markup, clean, element, shorten

# Spreadsheets take what begins so for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# Characters of a cell in a page.
_LONGEST = 100


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV; texts that a spreadsheet would run get an apostrophe in front."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    for row in rows:
        writer.writerow([_safe(cell) for cell in row])
    return stream.getvalue()


def _safe(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    text = clean(cell)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(_FORMULA) else text
    return text


def csv_link(rows: Iterable[Sequence[object]], name: str, text: str) -> Markup:
    """A link that saves a table, long texts cut, under a name."""
    cut = ([shorten(c, _LONGEST) if isinstance(c, str) else c for c in row] for row in rows)
    address = "data:text/csv;charset=utf-8," + quote(csv_text(cut), safe=",.-_()!*;:@/=+$")
    return element("a", text, href=address, download=name)


def topic_rows(page: TopicPage) -> list[list[object]]:
    """The words of all topics as a table: topic, its fraction, rank, word, probability, lift."""
    rows: list[list[object]] = [["topic", "fraction", "rank", "word", "probability", "lift"]]
    for topic in page.topics:
        for rank, word in enumerate(topic.words, 1):
            lift = "" if word.lift is None else f"{word.lift:.6g}"
            cells = [topic.number, f"{topic.fraction:.6g}", rank, word.text]
            rows.append([*cells, f"{word.probability:.6g}", lift])
    return rows
