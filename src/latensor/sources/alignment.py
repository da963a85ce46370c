"""Aligned sequences out of FASTA files, as rows of sites."""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from latensor.exceptions import InvalidInputError

_ALPHABETS = {"dna": "ACGT", "protein": "ACDEFGHIKLMNPQRSTVWY", "binary": "01"}
# Not one of the four bases, but some of them.
_AMBIGUOUS = set("RYSWKMBDHVNX?-.~*")


@dataclass(frozen=True)
class Alignment:
    """Aligned sequences.

    Attributes
    ----------
    X : (sites, sequences) int16, places in the alphabet, -1 for gaps and ambiguous symbols
    names : of the sequences
    alphabet : str
    """

    X: Any
    names: list[str]
    alphabet: str


def read_alignment(path: str | os.PathLike[str], alphabet: str = "auto") -> Alignment:
    """Aligned sequences of a FASTA file, plain or gzip; sites become rows.

    Parameters
    ----------
    path : file; a sequence begins with a line ">name"
    alphabet : "auto", "dna" (U is T), "protein", "binary", or the symbols themselves; all others
        are missing
    """
    name = os.fspath(path)
    opened: Any = gzip.open if str(name).endswith(".gz") else open
    try:
        with opened(name, "rt", encoding="utf-8") as stream:
            lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise InvalidInputError(f"path={name!r} cannot be read as text: {error}") from error
    names: list[str] = []
    parts: list[list[str]] = []
    for line in map(str.strip, lines):
        if line.startswith(">"):
            names.append(line[1:].split()[0] if line[1:].split() else f"sequence {len(names)}")
            parts.append([])
        elif line and not line.startswith(";"):
            if not parts:
                raise InvalidInputError(
                    f"path={name!r} begins with {line[:20]!r}: a FASTA file begins with '>name'"
                )
            parts[-1].append(line.replace(" ", "").upper())
    sequences = ["".join(each) for each in parts]
    lengths = [len(s) for s in sequences]
    if not any(lengths):
        raise InvalidInputError(
            f"path={name!r} holds no sequences: a FASTA file has lines '>name', each followed by "
            "its symbols"
        )
    if len(set(lengths)) > 1:
        shown = ", ".join(f"{n}: {m}" for n, m in list(zip(names, lengths, strict=True))[:4])
        raise InvalidInputError(
            f"path={name!r} holds sequences of unequal length ({shown}): align them first"
        )
    if len(set(names)) < len(names):
        raise InvalidInputError(f"path={name!r} names a sequence twice")
    if alphabet == "auto":
        letters = set("".join(sequences)) - _AMBIGUOUS
        fits = [a for a in ("binary", "dna") if letters <= set(_ALPHABETS[a]) | {"U"}]
        alphabet = fits[0] if fits else "protein"
        strange = sorted(each for each in letters if alphabet != "binary" and not each.isalpha())
        if strange:
            where = next(place for place, each in enumerate(sequences) if strange[0] in each)
            raise InvalidInputError(
                f"path={name!r} holds {strange[0]!r} at site {sequences[where].index(strange[0])} "
                f"of {names[where]!r}, which is no symbol of DNA or proteins: correct it, write - "
                "where it is unknown, or give alphabet="
            )
    symbols = _ALPHABETS.get(alphabet, alphabet)
    table = np.full(256, -1, dtype=np.int16)
    for place, symbol in enumerate(symbols):
        table[ord(symbol)] = place
    if alphabet == "dna":
        table[ord("U")] = table[ord("T")]
    raw = np.stack([np.frombuffer(s.encode("latin-1", "replace"), np.uint8) for s in sequences])
    return Alignment(table[raw].T.copy(), names, symbols)
