"""The map of topics: circles by fraction, near each other if the topics are alike."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latensor.report.arrangement import (
    Floats,
    classical_scaling,
    place_labels,
    radii,
    spread,
)
from latensor.report.description import TopicPage
from latensor.report.markup import Markup, element, shorten
from latensor.report.wording import TRUST, headline, percent


@dataclass(frozen=True)
class _Format:
    """One drawing of the map: for a desk, or for a phone, where the same text needs more room."""

    name: str
    width: float
    height: float
    least_radius: float
    most_radius: float
    text: float
    letters: int


def _formats(count: int) -> tuple[_Format, _Format]:
    # Many topics need more room, which only grows downwards.
    low, tall = 540 * max(1.0, count / 100), 380 * max(1.0, count / 50)
    return (
        _Format("wide", 780, low, 11, 62, 13, 16),
        _Format("narrow", 360, tall, 11, 46, 12, 12),
    )


def topic_map(page: TopicPage) -> tuple[Markup, float]:
    """The map in two drawings, of which the style sheet shows one, and how much it can show.

    Parameters
    ----------
    page : TopicPage with distances

    Returns
    -------
    Markup, and the fraction of the variation between topics that two dimensions hold
    """
    places, shown = classical_scaling(page.distances)
    drawings = [_draw(page, places, form) for form in _formats(len(page.topics))]
    return Markup("".join(drawings)), shown


def _draw(page: TopicPage, places: Floats, form: _Format) -> Markup:
    fractions = np.array([topic.fraction for topic in page.topics], dtype=np.float64)
    radius = radii(fractions, form.width, form.height, form.least_radius, form.most_radius)
    upright = form.height > 1.1 * form.width
    moved = spread(places[:, ::-1] if upright else places, radius, form.width, form.height, 6.0)
    texts = [
        shorten(headline(topic, words=1, length=form.letters), form.letters)
        for topic in page.topics
    ]
    labels = place_labels(moved, radius, texts, form.text, form.width, form.height)
    # What nothing stands in above and below is cut off.
    half = [
        max(r, abs(at.y - y) + form.text) if at else r
        for (_, y), r, at in zip(moved, radius, labels, strict=True)
    ]
    top = max(float((moved[:, 1] - half).min()) - 6.0, 0.0)
    bottom = min(float((moved[:, 1] + half).max()) + 6.0, form.height)
    circles, names = [], []
    for topic, (x, y), r, text, label in zip(
        page.topics, moved, radius, texts, labels, strict=True
    ):
        inside = label is not None and label.inside
        tip = f"Topic {topic.number}: {headline(topic)} ({percent(topic.fraction)})"
        if topic.trust is not None:
            tip += f", {TRUST[topic.trust]}"
        circles.append(
            element(
                "a",
                element("title", tip),
                element("circle", cx=float(x), cy=float(y), r=float(r)),
                element(
                    "text",
                    topic.number,
                    x=float(x),
                    y=float(y + (-0.35 if inside else 0.36) * form.text),
                ),
                href=f"#topic-{topic.number}",
                class_=f"spot {topic.trust or 'unknown'}",
                aria_label=tip,
                data_topic=str(topic.number),
            )
        )
        if label is not None:
            names.append(
                element(
                    "text",
                    text,
                    class_="name inside" if label.inside else "name",
                    x=label.x,
                    y=label.y + 0.36 * form.text,
                    data_topic=str(topic.number),
                )
            )
    return element(
        "svg",
        circles,
        element("g", names, aria_hidden="true"),
        class_=f"map {form.name}",
        viewBox=f"0 {top:.0f} {form.width:.0f} {bottom - top:.0f}",
        role="group",
        aria_label="Map of topics",
    )
