"""Real sequences for the hidden Markov benchmark, from the folder that LATENSOR_DATA names."""

from __future__ import annotations

import collections
import gzip
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM


@dataclass(frozen=True)
class RealSet:
    """Sequences to learn from and others to score, both with their lengths."""

    name: str
    kind: str
    states: tuple[int, ...]
    train: Any
    lengths: Any
    test: Any
    test_lengths: Any
    n_symbols: int = 0

    def ours(self, k: int, seed: int = 0) -> Any:
        """Our model for so many states, not yet fitted."""
        if self.kind == "symbols":
            return CategoricalHMM(k, n_features=self.n_symbols, random_state=seed, n_jobs=1)
        return GaussianHMM(k, random_state=seed, n_jobs=1)


def real_sets() -> Iterator[RealSet]:
    """All sets; none where LATENSOR_DATA is not set."""
    folder = os.environ.get("LATENSOR_DATA")
    if folder is None:
        return
    for read in (letters, bases, residues, words, vowels):
        yield read(Path(folder))


def _lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


def _column(parts: Sequence[Any]) -> tuple[Any, Any]:
    lengths = [len(part) for part in parts]
    return np.concatenate([np.asarray(part) for part in parts])[:, None], lengths


def letters(folder: Path) -> RealSet:
    """Letters and spaces of the King James Bible: 100,000 to learn from, 50,000 to score."""
    text = " ".join(line.split("\t")[-1] for line in _lines(folder / "hmm_kjv_text/kjv.tsv.gz")[1:])
    kept = "".join(c if "a" <= c <= "z" else " " for c in text.lower())
    codes = np.array([0 if c == " " else ord(c) - 96 for c in " ".join(kept.split())])
    train, test = codes[:100_000, None], codes[-50_000:, None]
    return RealSet("KJV letters", "symbols", (2, 5, 10), train, None, test, None, 27)


def bases(folder: Path) -> RealSet:
    """The genome of phage lambda: three quarters to learn from, the last to score."""
    lines = _lines(folder / "hmm_lambda_phage/lambda_virus.fa.gz")
    genome = "".join(line for line in lines if not line.startswith(">")).upper()
    codes = np.array(["ACGT".index(c) for c in genome if c in "ACGT"])[:, None]
    cut = 3 * len(codes) // 4
    return RealSet("lambda DNA", "symbols", (2, 3), codes[:cut], None, codes[cut:], None, 4)


def residues(folder: Path) -> RealSet:
    """Proteins as sequences of residues."""
    parts = []
    for name in ("train", "test"):
        lines = _lines(folder / f"hmm_protein_secondary_structure/{name}.csv.gz")
        parts.append(_proteins(lines))
    alphabet = sorted({c for protein in itertools.chain(*parts) for c in protein})
    train, test = ([[alphabet.index(c) for c in p] for p in part if len(p) > 2] for part in parts)
    (x, n), (y, m) = _column(train), _column(test)
    return RealSet("protein residues", "symbols", (3, 5), x, n, y, m, len(alphabet))


def _proteins(lines: Sequence[str]) -> list[str]:
    found: dict[str, list[str]] = collections.defaultdict(list)
    header = lines[0].split(",")
    protein, residue = header.index("protein"), header.index("residue")
    for line in lines[1:]:
        cells = line.split(",")
        found[cells[protein]].append(cells[residue])
    return ["".join(p) for p in found.values()]


def words(folder: Path, n_words: int = 2_000) -> RealSet:
    """Sentences of the English Web Treebank, all but the most frequent words made one."""
    parts = []
    for name in ("train", "test"):
        sentences: list[list[str]] = [[]]
        for line in _lines(folder / f"hmm_pos_ewt/{name}.tsv.gz"):
            if line.strip():
                sentences[-1].append(line.split("\t")[0].lower())
            else:
                sentences.append([])
        parts.append([s for s in sentences if len(s) > 2])
    counts = collections.Counter(w for s in parts[0] for w in s)
    index = {w: i + 1 for i, (w, _) in enumerate(counts.most_common(n_words - 1))}
    train, test = ([[index.get(w, 0) for w in s] for s in part] for part in parts)
    (x, n), (y, m) = _column(train), _column(test)
    return RealSet("EWT words", "symbols", (5,), x, n, y, m, n_words)


def vowels(folder: Path) -> RealSet:
    """Cepstra of spoken vowels, one sequence an utterance."""
    data = np.load(folder / "hmm_japanese_vowels/hmm_japanese_vowels.npz")
    x, y = data["train_x"], data["test_x"]
    n, m = data["train_lengths"], data["test_lengths"]
    return RealSet("Japanese vowels", "points", (3, 5), x, n, y, m)
