"""`latensor topics --apply`: the topics of a saved model in other documents."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from rich.console import Console

import latensor as lt
from latensor.cli.corpus import WORDING, Reading, open_source
from latensor.cli.findings import say
from latensor.cli.refusal import Refusal
from latensor.cli.topic_progress import TopicMeter, topic_meter
from latensor.cli.wording import MODEL_FILE
from latensor.sources.vocabulary import read_vocabulary
from latensor.whole_files import whole_stream, whole_text


def apply_model(
    path: Path, reading: Reading, out: Path | None, jobs: int | None, console: Console
) -> None:
    """Write the fractions of the topics in every document of a file.

    Parameters
    ----------
    path : file of the model
    reading : the documents
    out : .csv or .npz file, or None for CSV on standard output
    jobs : int, threads, or None for all processors
    console : for what is not the result
    """
    with MODEL_FILE.errors():
        model: Any = lt.LatentDirichletAllocation.load(path)
    with WORDING.errors():
        model.set_params(n_jobs=jobs)
    with topic_meter(console) as meter, meter.step("reading"):
        with WORDING.errors():
            source, selector = _documents(model, reading, meter)
        if out is not None and out.suffix.lower() == ".npz":
            n_documents, n_empty = _write_arrays(model, source, selector, out)
        else:
            n_documents, n_empty = _write_table(model, source, selector, out)
    where = "" if out is None else f", in {out}"
    say(console, f"Fractions of {model.n_components_} topics in {n_documents:,} documents{where}")
    if n_empty:
        say(
            console,
            f"Note: {n_empty:,} of them hold no word of the model; theirs are those of alpha",
        )


def _documents(model: Any, reading: Reading, meter: TopicMeter) -> tuple[Any, Any]:
    """The documents, and the matrix that brings their columns to those of the model, or None."""
    words: list[str] = model.vocabulary_ or [str(j) for j in range(model.n_features_in_)]
    numbered = all(word.isdecimal() for word in words)
    own = None if reading.vocabulary is None else read_vocabulary(reading.vocabulary)
    given = own if own is not None or numbered else words
    source = open_source(reading, given, meter)
    if hasattr(source, "excerpts"):
        if given is not words:
            raise Refusal(
                "--vocab has no place here: texts are read with the words of the model"
                if own is not None
                else "the model knows words only by number: it cannot read text"
            )
        return source, None
    names = source.vocabulary or [str(column) for column in range(source.n_features)]
    if names == words:
        return source, None
    place = {word: column for column, word in enumerate(words)}
    known = [(row, place[name]) for row, name in enumerate(names) if name in place]
    if not known:
        raise Refusal(f"{reading.file} holds no word of the model: is --vocab the right file?")
    rows, columns = zip(*known, strict=True)
    ones = np.ones(len(known), np.float32)
    shape = (len(names), len(words))
    return source, scipy.sparse.csr_array((ones, (rows, columns)), shape=shape)


def _mixtures(model: Any, source: Any, selector: Any) -> Iterator[tuple[Any, int]]:
    """Fractions (n_b, k) of every batch, and how many of its documents have no known word."""
    for batch in source:
        counts = batch if selector is None else (batch @ selector).tocsr()
        lengths = np.asarray(counts.sum(axis=1)).ravel()
        yield model.transform(counts), int((lengths == 0).sum())


def _write_arrays(model: Any, source: Any, selector: Any, out: Path) -> tuple[int, int]:
    parts = list(_mixtures(model, source, selector))
    mixtures = np.concatenate([fractions for fractions, _ in parts])
    with whole_stream(out, gzipped=False) as stream:
        np.savez(stream, allow_pickle=False, mixtures=mixtures)
    return len(mixtures), sum(empty for _, empty in parts)


def _write_table(model: Any, source: Any, selector: Any, out: Path | None) -> tuple[int, int]:
    if out is None:
        written = _write_rows(model, source, selector, sys.stdout)
        # While a reader that is gone can still be told from one that has read all.
        sys.stdout.flush()
        return written
    with whole_text(out) as stream:
        return _write_rows(model, source, selector, stream)


def _write_rows(model: Any, source: Any, selector: Any, stream: Any) -> tuple[int, int]:
    writer = csv.writer(stream, lineterminator="\n")
    header = ["document", *(f"topic_{j}" for j in range(model.n_components_))]
    number = n_empty = 0
    for fractions, empty in _mixtures(model, source, selector):
        # Not before the file has shown that it can be read.
        if header:
            writer.writerow(header)
            header = []
        for row in fractions.tolist():
            writer.writerow([number, *(f"{fraction:.6g}" for fraction in row)])
            number += 1
        n_empty += empty
    if header:
        writer.writerow(header)
    return number, n_empty
