"""Corpora for the topic benchmark: two planted ones, five of real text read from LATENSOR_DATA.

The readers are the benchmark's own, so that every method gets the same plain matrix and none
is measured by code of ours. Which documents train and which test: 20 newsgroups by date as
published, BBC and DBLP as published (validation joined to training), AP and Reuters at random,
one document in five for the test.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

from latensor.datasets import make_topics

N_TEST = 2000


@dataclass(frozen=True)
class Documents:
    """A corpus cut in two; `topics` and `alpha` are the truth where it is planted."""

    train: Any
    test: Any
    topics: Any = None
    alpha: Any = None


@dataclass(frozen=True)
class Corpus:
    """Where a corpus comes from; `read` gives None where its files are missing."""

    name: str
    title: str
    n_components: int
    read: Callable[[int], Documents | None]


def _folder(name: str) -> Path | None:
    root = os.environ.get("LATENSOR_DATA")
    folder = Path(root) / name if root else None
    return folder if folder is not None and folder.is_dir() else None


def _matrix(rows: Iterable[Any], words: Iterable[Any], counts: Iterable[Any], shape: Any) -> Any:
    entries = (np.asarray(counts, dtype=np.float64), (np.asarray(rows), np.asarray(words)))
    matrix = scipy.sparse.csr_array(scipy.sparse.coo_array(entries, shape=shape))
    matrix.sum_duplicates()
    matrix.indices = matrix.indices.astype(np.int32)
    matrix.indptr = matrix.indptr.astype(np.int32)
    return matrix


def _not_empty(matrix: Any) -> Any:
    return matrix[np.flatnonzero(np.diff(matrix.indptr))]


def _over_training_words(train: Any, test: Any) -> Documents:
    """The two parts over the words that training documents hold, without empty documents."""
    seen = np.flatnonzero(np.bincount(train.indices, minlength=train.shape[1]))
    return Documents(_not_empty(train[:, seen]), _not_empty(test[:, seen]))


def read_bag_of_words(path: Path) -> Any:
    with gzip.open(path, "rt") as stream:
        n_documents, n_features, _ = (int(next(stream)) for _ in range(3))
        table = np.array(stream.read().split(), dtype=np.int64).reshape(-1, 3)
    return _matrix(table[:, 0] - 1, table[:, 1] - 1, table[:, 2], (n_documents, n_features))


def read_ldac(path: Path, n_features: int) -> Any:
    rows: list[int] = []
    words: list[int] = []
    counts: list[int] = []
    with gzip.open(path, "rt") as stream:
        for row, line in enumerate(stream):
            for entry in line.split()[1:]:
                word, count = entry.split(":")
                rows.append(row)
                words.append(int(word))
                counts.append(int(count))
    return _matrix(rows, words, counts, (row + 1, n_features))


def read_partitions(path: Path, vocabulary: list[str]) -> dict[str, Any]:
    """Matrices of the parts of a table `text, partition, label`."""
    number = {word: index for index, word in enumerate(vocabulary)}
    parts: dict[str, list[list[int]]] = {}
    with gzip.open(path, "rt") as stream:
        for line in stream:
            text, part, *_ = line.rstrip("\n").split("\t")
            words = [number[word] for word in text.split() if word in number]
            parts.setdefault(part, []).append(words)
    matrices = {}
    for part, documents in parts.items():
        rows = np.repeat(np.arange(len(documents)), [len(words) for words in documents])
        words = np.array([word for document in documents for word in document])
        shape = (len(documents), len(vocabulary))
        matrices[part] = _matrix(rows, words, np.ones(words.size), shape)
    return matrices


def newsgroups(seed: int) -> Documents | None:
    """Words in at least 10 training documents and in fewer than a tenth of them."""
    folder = _folder("20newsgroups")
    if folder is None:
        return None
    train = read_bag_of_words(folder / "docword.train.txt.gz")
    test = read_bag_of_words(folder / "docword.test.txt.gz")
    width = max(train.shape[1], test.shape[1])
    train.resize((train.shape[0], width))
    test.resize((test.shape[0], width))
    frequency = np.bincount(train.indices, minlength=width)
    kept = np.flatnonzero((frequency >= 10) & (frequency < 0.1 * train.shape[0]))
    return _over_training_words(train[:, kept], test[:, kept])


def partitioned(name: str) -> Callable[[int], Documents | None]:
    def read(seed: int) -> Documents | None:
        folder = _folder(name)
        if folder is None:
            return None
        vocabulary = (folder / "vocab.txt").read_text().split()
        parts = read_partitions(folder / "corpus.tsv.gz", vocabulary)
        train = scipy.sparse.vstack([parts["train"], parts["val"]], format="csr")
        return _over_training_words(train, parts["test"])

    return read


def shuffled(name: str, file: str) -> Callable[[int], Documents | None]:
    def read(seed: int) -> Documents | None:
        folder = _folder(name)
        if folder is None:
            return None
        n_features = len((folder / "vocab.txt").read_text().split())
        counts = _not_empty(read_ldac(folder / file, n_features))
        order = np.random.default_rng([seed, 1]).permutation(counts.shape[0])
        cut = counts.shape[0] // 5
        return _over_training_words(counts[np.sort(order[cut:])], counts[np.sort(order[:cut])])

    return read


def planted(
    n_documents: int, n_features: int, n_components: int, **settings: Any
) -> Callable[[int], Documents]:
    def read(seed: int) -> Documents:
        sample = make_topics(
            n_documents + N_TEST, n_features, n_components, random_state=seed, **settings
        )
        train = _not_empty(sample.counts[:n_documents])
        test = _not_empty(sample.counts[n_documents:])
        return Documents(train, test, sample.topics, sample.alpha)

    return read


CORPORA = (
    Corpus("reuters", "Reuters-395", 20, shuffled("reuters_lda", "reuters.ldac.gz")),
    Corpus("bbc", "BBC news", 20, partitioned("bbc_news")),
    Corpus("ap", "AP", 50, shuffled("ap", "ap.ldac.gz")),
    Corpus("dblp", "DBLP titles", 20, partitioned("dblp_titles")),
    Corpus("newsgroups", "20 newsgroups", 50, newsgroups),
    Corpus("planted30", "planted, 20,000 documents", 30, planted(20_000, 5_000, 30)),
    Corpus(
        "planted50",
        "planted, 30,000 documents",
        50,
        planted(30_000, 10_000, 50, lengths="lognormal"),
    ),
)
