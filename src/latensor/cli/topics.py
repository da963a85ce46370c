"""`latensor topics`: from a file of documents to topics, a certificate and a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from latensor.cli.console import printing
from latensor.cli.corpus import Reading
from latensor.cli.findings import say
from latensor.cli.mixtures import apply_model
from latensor.cli.options import Source, Target, jobs_option, refuse_learning, seed_option, typed
from latensor.cli.refusal import Refusal, errors_in_one_line
from latensor.cli.shards import (
    checkpoint_option,
    engine_option,
    is_sharded,
    learn_topics,
    print_learned_topics,
)
from latensor.cli.topic_run import Wish, learn, print_topics
from latensor.report import TopicPage, write_report
from latensor.report.csv_link import csv_text, topic_rows
from latensor.whole_files import check_outputs, whole_text

EXAMPLES = 3
_PAGES = (".html", ".htm")
_EPILOG = """\b
Examples:
  latensor topics reviews.txt                        one document per line; choose how many topics
  latensor topics reviews.jsonl.gz --text-column body --topics 40 --out report.html
  latensor topics reviews.csv --stop-words none --min-df 0.001 --save model.npz
  latensor topics speeches --topics 12 --title Speeches --out report.html    a folder of texts
  latensor topics speeches.csv --date year --group party --out report.html   topics over time
  latensor topics docword.nips.txt.gz --vocab vocab.nips.txt --topics 50
  latensor topics --apply model.npz new.txt --out mixtures.csv
  latensor topics 'shards/*.jsonl.gz' --engine dask://127.0.0.1:8786 --topics 50 --save model.npz
"""
# What has a place where a saved model is applied.
_READING = ("vocab", "kind", "text_column", "token_pattern", "jobs", "out", "model")


def read_topics(context: Any, parameter: Any, value: str) -> int | str:
    """A number of topics as typed: a whole number of at least 1, or auto."""
    return _whole_or_auto("--topics", value, 1)


def _read_refine(context: Any, parameter: Any, value: str) -> int | str:
    return _whole_or_auto("--refine", value, 0)


def _whole_or_auto(option: str, value: str, least: int) -> int | str:
    if value == "auto":
        return value
    if not value.isdecimal() or int(value) < least:
        raise Refusal(f"{option}={value} must be a whole number of at least {least}, or auto")
    return int(value)


def _read_frequency(context: Any, parameter: Any, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        number = int(value) if value.isdecimal() else float(value)
    except ValueError:
        number = -1.0
    if not (number >= 1 if isinstance(number, int) else 0 <= number <= 1):
        raise Refusal(
            f"{parameter.opts[0]}={value} must be a number of documents (1, 2, ...) or a fraction "
            "of them (0.0 to 1.0)"
        )
    return number


@click.command(epilog=_EPILOG)
@click.argument("file", type=Source())
@click.option(
    "--topics",
    callback=read_topics,
    default="auto",
    show_default=True,
    metavar="K|auto",
    help="Number of topics; auto chooses it and shows why.",
)
@click.option(
    "--vocab",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The words of uci and ldac columns, one per line; for text, the words to count.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["uci", "ldac", "text", "jsonl", "csv", "parquet"]),
    help="What FILE is; told from its content by default. text is one document per line.",
)
@click.option(
    "--text-column",
    metavar="NAME",
    help="The member of jsonl or the column of csv or parquet that holds the text.  "
    "[default: text]",
)
@click.option(
    "--date",
    metavar="COLUMN",
    help="The column that says when a document is from (2026-11-17, a year or a number): the "
    "report shows the topics over time.",
)
@click.option(
    "--group",
    metavar="COLUMN",
    help="The column that says what a document belongs to: the report shows the topics by group.",
)
@click.option(
    "--token-pattern",
    metavar="REGEX",
    help="What a word of a text is.  [default: two or more letters, digits or underscores]",
)
@click.option(
    "--min-df",
    callback=_read_frequency,
    metavar="N|FRACTION",
    help="Leave out words in fewer documents.  [default for text: 5; less below 1000 documents]",
)
@click.option(
    "--max-df",
    callback=_read_frequency,
    metavar="N|FRACTION",
    help="Leave out words in more documents.  [default for text: 0.5]",
)
@click.option(
    "--stop-words",
    metavar="english|none|FILE",
    help="Words to leave out, as a list that is known or a file.  [default where words have "
    "names: english]",
)
@click.option("--keep-stop-words", is_flag=True, help="Leave no stop words out: --stop-words none.")
@click.option(
    "--max-features",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep only so many words, the most frequent ones.",
)
@seed_option
@click.option(
    "--refine",
    callback=_read_refine,
    default="auto",
    show_default=True,
    metavar="N|auto",
    help="Passes of EM after the moments; 0 gives the estimate of the moments.",
)
@click.option(
    "--words",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Words shown of every topic.",
)
@jobs_option
@engine_option
@checkpoint_option
@click.option(
    "--out",
    type=Target(),
    metavar="FILE",
    help="Where to write the report (.html) or the words of the topics (.csv); with --apply the "
    "fractions (.csv or .npz).",
)
@click.option("--title", metavar="TEXT", help="What the report calls it.  [default: FILE]")
@click.option(
    "--save",
    type=Target(),
    metavar="FILE",
    help="Where to write the model, for --apply and for Python (.npz).",
)
@click.option(
    "--apply",
    "model",
    type=click.Path(path_type=Path),
    metavar="MODEL",
    help="Find the topics of a saved model in the documents of FILE, instead of learning.",
)
@click.pass_context
def topics(context: click.Context, /, model: Path | None, **options: Any) -> None:
    """Learn the topics of the documents in FILE and say how far to trust them.

    FILE is text with one document per line, JSON lines, CSV, or word counts (UCI bag-of-words,
    LDA-C), plain or compressed by gzip; Parquet; or a folder with a text file for every document.
    Texts are lowercased. Without --out and --save nothing is written. Topics and documents count
    from 0, as in Python.

    With --apply, FILE is read with the words of a saved model, and the fraction of every topic in
    every document goes to --out or, as CSV, to the standard output.
    """
    if options["keep_stop_words"]:
        if options["stop_words"] is not None:
            raise Refusal("--keep-stop-words and --stop-words exclude each other: give one")
        options["stop_words"] = "none"
    reading = Reading(
        file=options["file"],
        format=options["kind"],
        text_column=options["text_column"],
        token_pattern=options["token_pattern"],
        vocabulary=options["vocab"],
        min_df=options["min_df"],
        max_df=options["max_df"],
        stop_words=options["stop_words"],
        max_features=options["max_features"],
        date=options["date"],
        group=options["group"],
    )
    out, save = options["out"], options["save"]
    with errors_in_one_line():
        if model is not None:
            refuse_learning(context, _READING)
            _check_suffix(out, (".csv", ".npz"))
            check_outputs({"--out": out}, [model, *_inputs(reading)])
            # The standard output is for the fractions.
            with printing(stderr=True) as console:
                apply_model(model, reading, out, options["jobs"], console)
            return
        is_page = out is not None and out.suffix.lower() in _PAGES
        if out is None and (reading.date or reading.group):
            raise Refusal("--date and --group change the report only: give --out report.html")
        if options["title"] is not None and not is_page:
            raise Refusal("--title is for a report: give --out report.html")
        sharded = is_sharded(reading.file, options["engine"])
        _check_suffix(out, _PAGES if reading.date or reading.group else (*_PAGES, ".csv"))
        check_outputs({"--out": out, "--save": save}, [] if sharded else _inputs(reading))
        options["command"] = typed(context)
        with printing() as console:
            fitted, page, show = (_learn_shards if sharded else _learn)(reading, options, console)
            if save is not None:
                fitted.save(save)
            if out is not None and page is not None:
                _write(page, out)
            show()
            if save is not None:
                say(console, f"The model is in {save}")
            if out is not None:
                what = "words of the topics are" if out.suffix.lower() == ".csv" else "report is"
                say(console, f"The {what} in {out}")


# A model, a page about it where one is wanted, and what prints it.
_Learned = tuple[Any, TopicPage | None, Callable[[], None]]


def _learn_shards(reading: Reading, options: dict[str, Any], console: Console) -> _Learned:
    """Many files, whose documents are not kept here: a report shows the first of each.

    Dates and groups are those of all documents, summed by whoever holds the files.
    """
    settings = {
        "n_components": options["topics"],
        "refine": options["refine"],
        "random_state": options["seed"],
        "n_jobs": options["jobs"],
    }
    model, page = learn_topics(reading, settings, options, console)
    return model, page, lambda: print_learned_topics(model, options["words"], console)


def _learn(reading: Reading, options: dict[str, Any], console: Console) -> _Learned:
    wish = Wish(
        topics=options["topics"],
        refine=options["refine"],
        seed=options["seed"],
        jobs=options["jobs"],
        n_words=options["words"],
        command=options["command"],
        title=options["title"] or "",
        checkpoint=options["checkpoint"],
    )
    learned = learn(reading, wish, console, EXAMPLES if options["out"] is not None else 0)
    return learned.model, learned.page, lambda: print_topics(learned, console)


def _write(page: TopicPage, out: Path) -> None:
    if out.suffix.lower() == ".csv":
        with whole_text(out) as stream:
            stream.write(csv_text(topic_rows(page)))
    else:
        write_report(page, out)


def _check_suffix(out: Path | None, suffixes: tuple[str, ...]) -> None:
    if out is not None and out.suffix.lower() not in suffixes:
        *first, last = suffixes
        raise Refusal(f"--out={out} must end with {', '.join(first)} or {last}")


def _inputs(reading: Reading) -> list[Path]:
    """The files that are read."""
    files = [reading.file, reading.vocabulary, reading.stop_words]
    return [Path(file) for file in files if file is not None]
