"""Files in many pieces, here or on a cluster, for `latensor topics` and `latensor fit`."""

from __future__ import annotations

import glob
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import scipy.sparse
from rich.console import Console
from rich.table import Table
from rich.text import Text

import latensor as lt
from latensor.cli.compiling import announce_compiling
from latensor.cli.corpus import WORDING, Reading, stop_words_of
from latensor.cli.findings import say
from latensor.cli.interval_folds import LabelledFiles, options_named
from latensor.cli.intervals import label_columns
from latensor.cli.options import Target
from latensor.cli.progress import Meter, progress_meter
from latensor.cli.refusal import Refusal
from latensor.cli.topic_progress import topic_meter
from latensor.cli.wording import Wording
from latensor.moments.batch import Kind
from latensor.report import Reproduction, TopicPage
from latensor.report.topic_page import page_of, trends_of
from latensor.sources.matrix import MatrixSource
from latensor.sources.partitioned_documents import (
    TextReader,
    WordReader,
    split_document_weights,
)

# Documents that a report on many files looks at.
_SHOWN = 20_000
_BATCH = 4096

engine_option = click.option(
    "--engine",
    metavar="local|dask|dask://HOST:PORT|spark",
    help="Who goes over the files, which '*' in FILE may match many of.  [default: local]",
)
checkpoint_option = click.option(
    "--checkpoint",
    type=Target(file_okay=False),
    metavar="DIR",
    help="Folder from which the same command goes on where it was ended.",
)


def is_sharded(file: Path, engine: str | None) -> bool:
    """Whether a file is to be read as partitions."""
    return engine is not None or glob.has_magic(str(file))


def learn_topics(
    reading: Reading, settings: dict[str, Any], options: dict[str, Any], console: Console
) -> tuple[Any, TopicPage | None]:
    """The topics of documents in many files, and a page about them where a report is wanted.

    Parameters
    ----------
    settings : of the model
    options : of the command
    """
    if reading.format in ("uci", "ldac"):
        raise Refusal("--format uci and ldac are read as one file: leave out --engine")
    more: dict[str, Any] = (
        {} if reading.token_pattern is None else {"token_pattern": reading.token_pattern}
    )
    if reading.vocabulary is not None:
        from latensor.sources.vocabulary import read_vocabulary

        more["vocabulary"] = read_vocabulary(reading.vocabulary)
    text = reading.text_column
    columns = label_columns(reading)
    if columns and _is_text(reading):
        _, option, name = columns[0]
        raise Refusal(f"{option}={name} needs tables (CSV, JSON lines, Parquet), not plain text")
    with WORDING.errors(), options_named(columns), topic_meter(console) as meter:
        source = lt.sources.shards(
            str(reading.file),
            format=reading.format,
            engine=options["engine"] or "local",
            text=text or (None if _is_text(reading) else "text"),
            min_df=5 if reading.min_df is None else reading.min_df,
            max_df=0.5 if reading.max_df is None else reading.max_df,
            stop_words=stop_words_of(reading.stop_words or "english"),
            max_features=reading.max_features,
            labels=[name for _, _, name in columns] or None,
            **more,
        )
        say(console, f"{reading.file}: {_partitions(source)}")
        files = None
        if columns:
            with meter.step("reading dates and groups"):
                files = LabelledFiles(source, columns, options["jobs"])
            for remark in files.missing:
                say(console, remark)
        model: Any = lt.LatentDirichletAllocation(**settings, callback=meter.stage)
        model.fit(source, checkpoint=options["checkpoint"])
        model.set_params(callback=None)
        page = None
        if options["out"] is not None:
            with meter.step("describing the topics"):
                page = _page(model, source, reading, settings, options)
                if files is not None:
                    page = replace(page, trends=trends_of(files.fractions(model)))
    return model, page


def _page(
    model: Any,
    source: Any,
    reading: Reading,
    settings: dict[str, Any],
    options: dict[str, Any],
) -> TopicPage:
    """A report on the first documents of every partition, which are read here."""
    each = max(1, _SHOWN // source.n_partitions)
    reader = TextReader.of(WordReader(source.layout.tokenizer), model.vocabulary_)
    texts: list[str] = []
    counts: list[Any] = []
    for head in source.heads(Kind.DOCUMENTS, each):
        documents = list(split_document_weights(head)[0])[:each]
        found = reader(documents)
        if found is not None:
            texts += documents
            counts.append(found[0][0])
    shown = f"the first {len(texts):,} documents, {each:,} of a partition at most"
    return page_of(
        model,
        MatrixSource(scipy.sparse.csr_array(scipy.sparse.vstack(counts)), _BATCH, name="X"),
        title=f"{reading.file} ({shown})",
        excerpts=lambda numbers: {number: texts[number] for number in numbers},
        n_words=options["words"],
        reproduction=Reproduction(
            command=options["command"],
            seed=settings["random_state"],
            settings={"shown": f"{shown}.", "refinement": str(model.status_)},
        ),
    )


def _is_text(reading: Reading) -> bool:
    return reading.format == "text" or ".txt" in reading.file.suffixes


def print_learned_topics(model: Any, n_words: int, console: Console) -> None:
    """The topics of documents that were not kept: their words, weights and certificate."""
    say(console, f"{model.n_documents_:,} documents, {model.n_features_in_:,} words kept")
    selection = getattr(model, "selection_", None)
    if selection is not None:
        say(console, f"\n{WORDING(selection)}")
    table = Table("topic", "fraction", "words")
    fractions = model.alpha_ / model.alpha_.sum()
    for number, (fraction, words) in enumerate(
        zip(fractions, model.top_words(n_words), strict=True)
    ):
        table.add_row(str(number), f"{100 * fraction:.1f} %", Text(" ".join(map(str, words))))
    console.print(table)
    say(console, f"\n{WORDING(model.certificate_)}\n")
    stages = ", ".join(f"{name} {value:.2f} s" for name, value in model.stage_seconds_.items())
    say(console, f"Time: {sum(model.stage_seconds_.values()):.2f} s ({stages})")


class _Passes:
    """Tells a meter of every pass over the data, and how far it is."""

    def __init__(self, meter: Meter, name: str) -> None:
        self._meter, self._name, self._number = meter, name, 0

    def __call__(self, stage: str, number: int) -> None:
        self._number = number

    def partition(self, stage: str, fraction: float) -> None:
        """Once a partition."""
        text = f"fitting {self._name}: pass {self._number + 1} ({stage}), {100 * fraction:.0f} %"
        self._meter.step(text)


def fit_shards(
    name: str,
    file: Path,
    arguments: dict[str, Any],
    options: dict[str, Any],
    wording: Wording,
    console: Console,
) -> Any:
    """A model of rows, sequences or views in many files, and its certificate."""

    def split(option: str) -> list[str] | None:
        given = options[option]
        return None if given is None else [part.strip() for part in given.split(",")]

    views = options["views"]
    began = time.perf_counter()
    with announce_compiling(), progress_meter(console) as meter, wording.errors():
        source = lt.sources.shards(
            str(file),
            engine=options["engine"] or "local",
            columns=split("columns"),
            sequence=options["lengths"],
            weight=options["weights"],
            views=None if views is None else [part.split(",") for part in views.split(":")],
        )
        say(console, f"{file}: {_partitions(source)}")

        model = getattr(lt, name)(**arguments)
        model.fit(source, callback=_Passes(meter, name), checkpoint=options["checkpoint"])
    count = int(getattr(model, "n_components_", 0)) or len(model.correlations_)
    say(console, f"{name}: {count} components, {time.perf_counter() - began:.2f} s")
    say(console, f"\n{wording(model.certificate_)}")
    return model


def _partitions(source: Any) -> str:
    count = int(source.n_partitions)
    return f"{count:,} partition" + "s" * (count != 1)
