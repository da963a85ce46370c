"""Words in context: the part of a document in which the words of a topic stand, marked."""

from __future__ import annotations

import re
from collections.abc import Sequence

from latensor.report.markup import Child, clean, element

# Characters before the first marked word of a part, so that it stands in a sentence.
_BEFORE = 60


class Highlighter:
    """Marks the words of a topic in texts.

    Parameters
    ----------
    words : the words; capitals do not count
    """

    def __init__(self, words: Sequence[str]) -> None:
        # Longer words first: of "data base" and "data" the longer one is meant where both stand.
        cleaned = {" ".join(clean(word).lower().split()) for word in words} - {""}
        known = sorted(cleaned, key=lambda word: (-len(word), word))
        alternatives = "|".join(re.escape(word) for word in known)
        self._pattern = re.compile(rf"(?<!\w)(?:{alternatives})(?!\w)") if known else None

    def excerpt(self, text: str, length: int) -> list[Child]:
        """At most about `length` characters of a text, where the most of the words stand.

        Parameters
        ----------
        text : str, of any length
        length : int
        """
        line = " ".join(clean(text).split())
        # Lowering may lengthen a text (İ): places would be wrong, so such texts stay unmarked.
        lowered = line.lower()
        found: list[tuple[int, int]] = []
        if self._pattern is not None and len(lowered) == len(line):
            found = [match.span() for match in self._pattern.finditer(lowered)]
        begin = self._begin(line, lowered, found, length)
        end = min(len(line), begin + length)
        if end < len(line):
            cut = line.rfind(" ", begin + length // 2, end)
            end = cut if cut > 0 else end
        parts: list[Child] = ["… "] if begin else []
        at = begin
        for first, last in found:
            if first < at or last > end:
                continue
            parts += [line[at:first], element("mark", line[first:last])]
            at = last
        parts.append(line[at:end])
        return [*parts, " …"] if end < len(line) else parts

    def _begin(self, line: str, lowered: str, found: list[tuple[int, int]], length: int) -> int:
        """Where the part with the most different words begins; the first of equals."""
        if len(line) <= length or not found:
            return 0
        best, most = 0, 0
        for i, (first, _) in enumerate(found):
            begin = max(0, first - _BEFORE)
            inside = {lowered[a:b] for a, b in found[i:] if b <= begin + length}
            if len(inside) > most:
                best, most = begin, len(inside)
        # Words stay whole.
        return line.find(" ", best) + 1 if best and line[best - 1] != " " else best
