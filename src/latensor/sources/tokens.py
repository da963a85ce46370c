"""Text into words, and words into numbers: the inner loop of reading text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError

# Two or more letters, digits or underscores.
TOKEN_PATTERN = r"\b\w\w+\b"
ANY_WORD = r"\S+"
_SAME_PATTERNS = frozenset({TOKEN_PATTERN, r"(?u)\b\w\w+\b", r"\w\w+", r"\w{2,}"})
_FOREIGN_BLANK = re.compile(r"[^\x00-\x7f\w]")
# Bytes of characters beyond ASCII stay as they are, and so does the end of a text.
_BLANKS = bytes(
    code if code >= 128 or code == ord("\n") or re.match(r"\w", chr(code)) else ord(" ")
    for code in range(256)
)


class Tokenizer:
    """Splits texts into words as a regular expression finds them.

    The default pattern needs no regular expression: everything that is no word character becomes
    a blank, many texts at once, and what stands between blanks is a word. That gives words of one
    character too, which `is_word` tells apart; dropping them late, by their number, is much
    cheaper than looking at each.

    Parameters
    ----------
    token_pattern : str, a regular expression; where it has a group, the group is the word
    lowercase : bool
    """

    def __init__(self, token_pattern: str = TOKEN_PATTERN, lowercase: bool = True) -> None:
        if not isinstance(token_pattern, str) or not token_pattern:
            raise InvalidInputError(
                f"token_pattern={token_pattern!r} must be a regular expression as a string"
            )
        if not isinstance(lowercase, bool):
            raise InvalidInputError(f"lowercase={lowercase!r} must be True or False")
        self._default = token_pattern in _SAME_PATTERNS
        try:
            # A greedy run of word characters ends at a boundary by itself.
            compiled = re.compile(r"\w\w+" if self._default else token_pattern)
        except re.error as error:
            raise InvalidInputError(
                f"token_pattern={token_pattern!r} is not a regular expression: {error}"
            ) from error
        if compiled.groups > 1:
            raise InvalidInputError(
                f"token_pattern={token_pattern!r} has {compiled.groups} groups: use at most one, "
                "or groups that start with ?:"
            )
        self._find = compiled.findall
        self._lowercase = lowercase

    def is_word(self, word: str) -> bool:
        """Whether a word that `words` gave is one in the sense of the pattern."""
        return len(word) > 1 or not self._default

    def words(self, texts: list[str]) -> list[list[str]]:
        """The words of every text, and perhaps single characters that are none."""
        if not self._default:
            return [self._find(text.lower() if self._lowercase else text) for text in texts]
        # One text in another alphabet must not slow down the rest.
        plain = iter(self._between_blanks([text for text in texts if text.isascii()]))
        other = iter(self._between_blanks([text for text in texts if not text.isascii()]))
        return [next(plain if text.isascii() else other) for text in texts]

    def _between_blanks(self, texts: list[str]) -> list[list[str]]:
        """What stands between the characters that are no word characters."""
        joined = "\n".join(texts)
        if joined.count("\n") >= len(texts):
            joined = "\n".join([text.replace("\n", " ") for text in texts])
        if self._lowercase:
            joined = joined.lower()
        joined = (
            joined.encode("utf-8", "surrogatepass")
            .translate(_BLANKS)
            .decode("utf-8", "surrogatepass")
        )
        if not joined.isascii():
            for character in set(_FOREIGN_BLANK.findall(joined)):
                joined = joined.replace(character, " ")
        return [text.split() for text in joined.split("\n")]


class Numbering:
    """Numbers for words: of a fixed vocabulary, or growing with every new word.

    Parameters
    ----------
    words : iterable of the words that have a number, or None to give one to every word, in the
        order in which they are met
    """

    def __init__(self, words: Iterable[tuple[str, int]] | None = None) -> None:
        self._numbers: dict[str, int]
        if words is None:
            growing: defaultdict[str, int] = defaultdict()
            growing.default_factory = growing.__len__
            self._numbers = growing
            self._look_up: Callable[[Iterable[str]], Iterator[int]] = lambda words: map(
                growing.__getitem__, words
            )
        else:
            self._numbers = dict(words)
            get = self._numbers.get
            self._look_up = lambda words: map(get, words, repeat(-1))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[str]:
        """The words in the order of their numbers, where they grow."""
        return iter(self._numbers)

    def __call__(self, words: Iterable[str], count: int) -> Any:
        """The numbers (count,) int32 of words, -1 for those without."""
        return np.fromiter(self._look_up(words), np.int32, count)
