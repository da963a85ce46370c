"""What certificates of small models share: their verdict, and their words."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from latensor.diagnostics.statements import BAD, CAUTION, GOOD, Statement

_MARKS = {GOOD: "[ok]", CAUTION: "[!]", BAD: "[!!]"}
_VERDICTS = ((BAD, "do not trust"), (CAUTION, "caution"))


class Findings:
    """Gives a certificate with `statements` and a `headline` its `verdict` and its text."""

    @property
    def headline(self) -> str:
        """What the certificate is about, in a few words."""
        raise NotImplementedError(f"{type(self).__name__} must say what it is about")

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The findings, each with its topic, how good it is, and a sentence."""
        raise NotImplementedError(f"{type(self).__name__} must say what was found")

    @property
    def verdict(self) -> str:
        """The worst of all statements: "trust", "caution" or "do not trust"."""
        levels = {statement.level for statement in self.statements}
        return next((text for level, text in _VERDICTS if level in levels), "trust")

    def __str__(self) -> str:
        lines = [f"Certificate: {self.headline}"]
        for statement in self.statements:
            head = f"{_MARKS[statement.level]:4} {statement.topic}: "
            lines += textwrap.wrap(
                head + statement.text, 96, initial_indent="  ", subsequent_indent="       "
            )
        lines.append(f"Verdict: {self.verdict}.")
        return "\n".join(lines)


def present(*found: Statement | None) -> tuple[Statement, ...]:
    """The statements that have something to say."""
    return tuple(statement for statement in found if statement is not None)


def listed(indices: Sequence[int], limit: int = 8) -> str:
    """Indices in a sentence, the first few of many."""
    return ", ".join(str(i) for i in indices[:limit]) + (", ..." if len(indices) > limit else "")
