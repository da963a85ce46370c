"""Topics over time and by group: a small figure for every topic, and all numbers in a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latensor.diagnostics.findings import counted
from latensor.report.charts import svg
from latensor.report.csv_link import csv_link
from latensor.report.description import Topic, TopicPage, Trend
from latensor.report.markup import Markup, element, scrolling, section, shorten, table_head
from latensor.report.wording import count, headline, percent

# Topics that have a figure before the reader asks for all, and groups that a figure has bars for.
_FIRST = 8
_BARS = 12
_TABLE_ROWS = 200
_WIDTH, _HEIGHT = 240, 96
_LEFT, _RIGHT, _TOP, _BOTTOM = 6, 6, 18, 20
_ROW, _LABEL = 20, 96
# Standard errors to each side of a line, and how far beyond the line they may push the axis.
_BAND = 2.0
_ROOM = 1.5


def trends(page: TopicPage) -> list[tuple[str, str, Markup]]:
    """Sections about time and groups: anchor, name in the navigation, content."""
    names = {"time": ("over-time", "Time"), "group": ("by-group", "Groups")}
    return [(*names[trend.kind], _section(page, trend)) for trend in page.trends]


def _section(page: TopicPage, trend: Trend) -> Markup:
    anchor = "over-time" if trend.kind == "time" else "by-group"
    chosen = _shown_groups(trend)
    fractions, errors = trend.fractions[chosen], trend.errors[chosen]
    spread = _spread(fractions)
    order = np.argsort(-spread, kind="stable")
    figures = [
        _figure(page.topics[j], trend, chosen, fractions[:, j], errors[:, j])
        for j in order.tolist()
    ]
    title = "Topics over time" if trend.kind == "time" else "Topics by group"
    what = "interval" if trend.kind == "time" else "group"
    text = (
        f"The fraction of the words of every {what} ({shorten(trend.name, 60)}) that a topic has, "
        f"in {counted(len(trend.labels), what)}; those that differ most come first. "
        + (
            "Bands are two standard errors to each side, from how documents differ."
            if trend.kind == "time"
            else "Whiskers are two standard errors to each side, from how documents differ."
        )
    )
    if len(chosen) < len(trend.labels):
        text += f" The {len(chosen)} groups with the most documents are drawn."
    return section(
        anchor,
        title,
        element("p", text, class_="explanation"),
        element("div", figures[:_FIRST], class_="trends"),
        element(
            "details",
            element("summary", f"The other {counted(len(figures) - _FIRST, 'topic')}"),
            element("div", figures[_FIRST:], class_="trends"),
        )
        if len(figures) > _FIRST
        else None,
        _table(page.topics, trend, title),
    )


def _spread(fractions: Any) -> Any:
    """How far apart the fractions of every topic are, (k,)."""
    low = np.where(np.isnan(fractions), np.inf, fractions).min(axis=0)
    high = np.where(np.isnan(fractions), -np.inf, fractions).max(axis=0)
    return np.where(high >= low, high - low, 0.0)


def _shown_groups(trend: Trend) -> Any:
    """Places of what is drawn: all intervals, or the groups with the most documents."""
    everything = np.arange(len(trend.labels))
    if trend.kind == "time" or len(everything) <= _BARS:
        return everything
    return np.sort(np.argsort(-np.asarray(trend.n_documents), kind="stable")[:_BARS])


def _figure(topic: Topic, trend: Trend, chosen: Any, values: Any, errors: Any) -> Markup:
    labels = [trend.labels[i] for i in chosen.tolist()]
    draw = _line if trend.kind == "time" else _bars
    name = headline(topic)
    known = np.flatnonzero(~np.isnan(values))
    said = f"Topic {topic.number}, {name}: no words"
    if len(known):
        low, high = known[np.argmin(values[known])], known[np.argmax(values[known])]
        said = (
            f"Topic {topic.number}, {name}: from {percent(values[low])} ({shorten(labels[low], 40)}"
            f") to {percent(values[high])} ({shorten(labels[high], 40)})"
        )
    return element(
        "figure",
        element(
            "figcaption",
            element(
                "a",
                element("span", str(topic.number), class_="number"),
                " ",
                element("bdi", name),
                href=f"#topic-{topic.number}",
            ),
        ),
        draw(labels, values, np.nan_to_num(errors), said),
    )


def _runs(values: Any) -> list[Any]:
    """Places of neighbouring values that are known."""
    known = np.flatnonzero(~np.isnan(values))
    return np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else []


def _line(labels: Sequence[str], values: Any, errors: Any, label: str) -> Markup:
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    most = float(np.nanmax(values, initial=0.0)) or 1.0
    high = min(float(np.nanmax(values + _BAND * errors, initial=most)), _ROOM * most)
    step = (right - _LEFT) / max(len(values) - 1, 1)

    def place(i: int, value: float) -> str:
        y = bottom - min(max(value / high, 0.0), 1.0) * (bottom - _TOP)
        return f"{_LEFT + i * step:.1f} {y:.1f}"

    parts: list[Markup] = []
    for run in _runs(values):
        places = run.tolist()
        line = "L".join(place(i, values[i]) for i in places)
        upper = [place(i, values[i] + _BAND * errors[i]) for i in places]
        lower = [place(i, values[i] - _BAND * errors[i]) for i in places[::-1]]
        parts.append(element("path", class_="band", d="M" + "L".join(upper + lower) + "Z"))
        if len(places) == 1:
            x, y = line.split()
            parts.append(element("circle", class_="dot", cx=x, cy=y, r=2.5))
        else:
            parts.append(element("path", class_="line", d="M" + line))
    parts += [
        element("path", class_="axis", d=f"M{_LEFT} {bottom}H{right}"),
        element("text", percent(high), x=_LEFT, y=_TOP - 6),
        element("text", shorten(labels[0], 16), x=_LEFT, y=_HEIGHT - 4),
        element("text", shorten(labels[-1], 16), x=right, y=_HEIGHT - 4, class_="end")
        if len(labels) > 1
        else Markup(""),
    ]
    return svg(label, parts, _WIDTH, _HEIGHT, "chart trend")


def _bars(labels: Sequence[str], values: Any, errors: Any, label: str) -> Markup:
    high = float(np.nanmax(values + _BAND * errors, initial=0.0)) or 1.0
    right = _WIDTH - 38
    parts: list[Markup] = []
    for i, name in enumerate(labels):
        y = i * _ROW
        parts.append(element("text", shorten(name, 12), x=_LABEL - 5, y=y + 14, class_="end"))
        if np.isnan(values[i]):
            parts.append(element("text", "–", x=_LABEL + 4, y=y + 14))
            continue
        unit = (right - _LABEL) / high
        low, top = (max(values[i] + way * _BAND * errors[i], 0.0) for way in (-1, 1))
        parts += [
            element(
                "rect",
                class_="column used",
                x=float(_LABEL),
                y=float(y + 4),
                width=max(values[i] * unit, 0.5),
                height=12.0,
            ),
            element(
                "path",
                class_="whisker",
                d=f"M{_LABEL + low * unit:.1f} {y + 10}h{(top - low) * unit:.1f}",
            ),
            element("text", percent(values[i]), x=_WIDTH - 1, y=y + 14, class_="end"),
        ]
    return svg(label, parts, _WIDTH, len(labels) * _ROW + 4, "chart trend")


def _table(topics: Sequence[Topic], trend: Trend, title: str) -> Markup:
    head = ["interval" if trend.kind == "time" else "group", "documents"]
    heads = [*head, *(f"topic {topic.number}" for topic in topics)]
    rows = [
        [label, str(int(number)), *("" if np.isnan(v) else f"{v:.6g}" for v in row)]
        for label, number, row in zip(
            trend.labels, trend.n_documents, trend.fractions.tolist(), strict=True
        )
    ]
    cells = [
        element(
            "tr",
            element("th", element("bdi", shorten(row[0], 60)), scope="row"),
            element("td", count(int(row[1]))),
            [element("td", percent(float(cell)) if cell else "–") for cell in row[2:]],
        )
        for row in rows[:_TABLE_ROWS]
    ]
    table = element(
        "table",
        table_head(heads),
        element("tbody", cells),
    )
    return element(
        "details",
        element("summary", "The numbers"),
        element("p", csv_link([heads, *rows], f"{trend.kind}.csv", "All of them as CSV")),
        scrolling(title, table),
    )
