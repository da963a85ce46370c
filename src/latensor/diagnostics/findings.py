"""What all certificates share: statements, one verdict, words, JSON and HTML."""

from __future__ import annotations

import dataclasses
import html
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from latensor.tensors.kruskal import KruskalRank

GOOD, CAUTION, BAD, UNKNOWN = "good", "caution", "bad", "unknown"
MARKS = {GOOD: "[ok]", CAUTION: "[!]", BAD: "[!!]", UNKNOWN: "[?]"}
# How firmly the data determine what was found. Whether it fits well, or is of use, is said apart.
VERDICTS = {GOOD: "stable", CAUTION: "uncertain", BAD: "unstable"}


class Statement(NamedTuple):
    """One finding: its topic, how good it is, and the text."""

    topic: str
    level: str
    text: str


# How good a finding is, and the sentence about it.
Said: TypeAlias = tuple[str, str]


class finding:  # noqa: N801
    """A method of a certificate that says one thing, or None; the decorator names its topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic

    def __call__(self, method: Callable[[Any], Said | None]) -> finding:
        """Take the method that says it."""
        self.method = method
        return self

    def of(self, certificate: Findings) -> Statement | None:
        """What there is to say of this certificate."""
        said = self.method(certificate)
        return None if said is None else Statement(self.topic, *said)


class Findings:
    """Base of every certificate, a dataclass that gives a `headline` and its findings.

    These are methods under `@finding(topic)`, in the order in which they are said.

    Attributes
    ----------
    in_halves : int, the number of components where both halves of the data found all of them, which
        is observed stability; 0 where that was not tried
    larger : int, a larger number of components that predicts better, but not by enough, or that
        halves of the data did not find again; 0 where there is none
    """

    in_halves: int = 0
    larger: int = 0
    # Topics that the verdict does not ask, unless they are bad: how well the model fits is said
    # apart, and where both halves found the components stability need not be inferred.
    _apart: ClassVar[frozenset[str]] = frozenset()
    _inferred: ClassVar[frozenset[str]] = frozenset()

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        raise NotImplementedError(f"{type(self).__name__} must say what it is about")

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        found: dict[str, finding] = {}
        for cls in reversed(type(self).__mro__):
            found.update({name: f for name, f in vars(cls).items() if isinstance(f, finding)})
        return present(*(each.of(self) for each in found.values()))

    @finding("Halves")
    def _halves(self) -> Said | None:
        if self.in_halves <= 0:
            return None
        return GOOD, f"each half of the data finds all {self.in_halves} by itself."

    @finding("Number")
    def _number(self) -> Said | None:
        if not self.larger:
            return None
        return CAUTION, (
            f"{self.larger} predict what is held out better by more than one standard error, but "
            "not by two, or halves of the data do not find the same ones: more data would tell."
        )

    @property
    def judged(self) -> tuple[Statement, ...]:
        """The findings that the verdict is about."""
        left_out = self._apart | (self._inferred if self.in_halves > 0 else frozenset())
        return tuple(s for s in self.statements if s.topic not in left_out or s.level == BAD)

    @property
    def closing(self) -> str:
        """What follows the verdict."""
        return ""

    @property
    def verdict(self) -> str:
        """How firmly the data determine what was found: "stable", "uncertain" or "unstable".

        The worst of the statements that it is about.
        """
        levels = {statement.level for statement in self.judged}
        return VERDICTS[next((level for level in (BAD, CAUTION) if level in levels), GOOD)]

    def __str__(self) -> str:
        lines = [f"Certificate: {self.headline}"]
        for statement in self.statements:
            head = f"{MARKS[statement.level]:4} {statement.topic}: "
            lines += textwrap.wrap(
                head + statement.text, 96, initial_indent="  ", subsequent_indent="       "
            )
        lines.append(f"Verdict: {self.verdict}.{self.closing}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The certificate as numbers, texts, lists and dictionaries, ready for JSON.

        Infinite numbers become the text "infinity", unknown ones None.
        """
        known = {f.name: plain(getattr(self, f.name)) for f in dataclasses.fields(self)}  # type: ignore[arg-type]
        found = [statement._asdict() for statement in self.statements]
        return {**known, "verdict": self.verdict, "statements": found}

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{MARKS[s.level]}</td><th>{html.escape(s.topic)}</th>"
            f"<td>{html.escape(s.text)}</td></tr>"
            for s in self.statements
        )
        return (
            f"<table><caption>{html.escape(self.headline)}: <b>{self.verdict}</b></caption>"
            f"{rows}</table>"
        )


def present(*found: Statement | None) -> tuple[Statement, ...]:
    """The statements that have something to say."""
    return tuple(statement for statement in found if statement is not None)


def counted(number: int, one: str, many: str | None = None) -> str:
    """1 document; 12,345 documents"""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def listed(indices: Sequence[int], limit: int = 8) -> str:
    """Indices in a sentence, the first few of many."""
    return ", ".join(str(i) for i in indices[:limit]) + (", ..." if len(indices) > limit else "")


def unvarying(columns: Sequence[int], limit: int = 8) -> str:
    """That columns do not vary, in a sentence."""
    if len(columns) == 1:
        return f"column {columns[0]} does not vary"
    return f"columns {listed(columns, limit)} do not vary"


def shown_spectrum(values: Sequence[float], limit: int = 6) -> str:
    """Decreasing values in a sentence; of many the first ones and the last."""
    shown = [f"{value:.2g}" for value in values]
    if len(shown) > limit:
        shown[limit - 1 : -1] = ["..."]
    return ", ".join(shown)


def plain(value: Any) -> Any:
    """A value in types that JSON knows; infinity as text, what is not a number as None.

    Complex numbers are pairs.
    """
    if isinstance(value, KruskalRank):
        return {"lower": value.lower, "upper": value.upper, "method": value.method}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, complex):
        return {"real": plain(value.real), "imaginary": plain(value.imag)}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return value if math.isfinite(value) else ("infinity" if value > 0 else "-infinity")
    return value
