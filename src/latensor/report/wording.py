"""Numbers and levels as a reader wants them."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from latensor.report.description import Level, Topic
from latensor.report.markup import shorten

TRUST = {"good": "stable", "caution": "uncertain", "bad": "unstable", "unknown": "not known"}
MARKS = {"good": "✓", "caution": "!", "bad": "✕", "unknown": "?"}
VERDICTS = {
    "good": "Nothing found that speaks against these topics.",
    "caution": "Usable, with reservations.",
    "bad": "Do not interpret these topics before what is marked ✕ is resolved.",
}


def count(number: int) -> str:
    """12,345"""
    return f"{number:,}"


def class_in_words(name: str) -> str:
    """The name of a class as a heading: Gaussian HMM, PARAFAC2 Decomposition."""
    words = re.findall(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+", name)
    written = " ".join(word.upper() if any(map(str.isdigit, word)) else word for word in words)
    written = re.sub(r"\b(Noisy|Multi|Two|Mixed) (?=Or|View|Layer|Membership)", r"\1-", written)
    return written.replace(" Of ", " of ")


def sentence(text: str) -> str:
    """`text` with a capital letter at its beginning and a full stop."""
    return text[:1].upper() + text[1:].rstrip(".") + "."


def percent(fraction: float) -> str:
    """A fraction with the digits that it deserves: 12 %, 3.4 %, 0.05 %; no line breaks in it."""
    value = 100.0 * fraction
    digits = 0 if value >= 9.95 or not value else 1 if value >= 0.995 else 2
    text = "<0.01" if 0.0 < value < 0.01 else f"{value:.{digits}f}"
    return text + "\N{NO-BREAK SPACE}%"


def number(value: float) -> str:
    """A measured number in three significant digits, without exponents where possible."""
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "∞" if value > 0 else "−∞"
    size = abs(value)
    if size and not 1e-4 <= size < 1e7:
        text = f"{value:.2e}"
    elif size >= 100:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def times(factor: float) -> str:
    """×12, ×1.4"""
    return f"×{factor:,.0f}" if factor >= 9.95 else f"×{factor:.1f}"


def seconds(value: float) -> str:
    """Seconds, or minutes where there are many."""
    if value < 0.095:
        return f"{1000 * value:.0f} ms" if value >= 0.001 else "<1 ms"
    if value < 120:
        return f"{value:.1f} s"
    return f"{value // 60:.0f} min {value % 60:.0f} s"


def headline(topic: Topic, words: int = 3, length: int = 18) -> str:
    """What the topic is called: its name, or its first typical words."""
    if topic.name:
        return shorten(topic.name, 60)
    listed = topic.typical_words or topic.words
    return ", ".join(shorten(word.text, length) for word in listed[:words])


def worst(levels: Sequence[str]) -> Level | None:
    """The worst of some levels; None where nothing is known."""
    order: tuple[Level, ...] = ("bad", "caution", "good")
    return next((level for level in order if level in levels), None)
