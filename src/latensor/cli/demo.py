"""`latensor demo`: the topics of the documentation of the Python packages at hand."""

from __future__ import annotations

import json
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from latensor.cli.console import printing
from latensor.cli.corpus import Reading
from latensor.cli.docstrings import Docstring, collect_docstrings, installed_packages
from latensor.cli.findings import say
from latensor.cli.image_demo import image_demo
from latensor.cli.options import Target
from latensor.cli.refusal import Refusal, errors_in_one_line
from latensor.cli.topic_progress import topic_meter
from latensor.cli.topic_run import Wish, learn, print_topics
from latensor.cli.topics import EXAMPLES, read_topics
from latensor.report import write_report
from latensor.whole_files import check_outputs, whole_text

CORPUS = "docstrings.jsonl"
REPORT = "topics.html"
IMAGE = "image.png"
_SEED = 0
# About as many as the moments of these documents support firmly, four times their noise. Words held
# out would speak for eighty, many of which two halves of the documents do not agree on.
_TOPICS = 20
# Words, not the names of variables.
_TOKENS = "[a-z]{3,}"
_EPILOG = """\b
Examples:
  latensor demo                          learn topics, write demo-output/topics.html
  latensor demo --topics auto            as many as words held out speak for
  latensor demo --image china            compress a photograph instead, demo-output/image.png
"""


@click.command(epilog=_EPILOG)
@click.option(
    "--out",
    type=Target(file_okay=False),
    default=Path("demo-output"),
    show_default=True,
    help="Folder for what is made; made itself if it does not exist.",
)
@click.option(
    "--topics",
    callback=read_topics,
    default=str(_TOPICS),
    show_default=True,
    metavar="K|auto",
    help="Number of topics; auto chooses it and shows why.",
)
@click.option(
    "--image",
    type=click.Choice(["china", "flower"]),
    help="Compress one of the two photographs that scikit-learn ships, instead.",
)
@click.option("--limit", type=click.IntRange(min=1), hidden=True)
@click.pass_context
def demo(
    context: click.Context, /, out: Path, topics: int | str, image: str | None, limit: int | None
) -> None:
    """Learn the topics of the documentation of the Python packages installed here.

    The documents are the docstrings of the standard library, NumPy, SciPy and scikit-learn: about
    ten thousand, read from their source files without importing anything.
    """
    with errors_in_one_line(), printing() as console:
        if image is not None:
            if context.get_parameter_source("topics") is not ParameterSource.DEFAULT:
                raise Refusal("--topics and --image exclude each other: give one of them")
            _make(out, IMAGE)
            image_demo(image, out / IMAGE, console)
            return
        _make(out, CORPUS, REPORT)
        with topic_meter(console) as meter, meter.step("reading source files", "collecting"):
            docstrings = collect_docstrings(
                installed_packages(),
                lambda read, files: meter.fraction(read / files, f"{read:,} of {files:,} files"),
                limit=limit,
            )
        say(
            console,
            f"{len(docstrings):,} docstrings of the standard library, NumPy, SciPy and "
            f"scikit-learn in {meter.seconds['collecting']:.1f} s",
        )
        _learn(docstrings, topics, out, console)


def _make(out: Path, *names: str) -> None:
    """Make the folder, and refuse before the work what could not be written after it."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        check_outputs({"--out": out / name})


def _learn(docstrings: list[Docstring], topics: int | str, out: Path, console: Console) -> None:
    corpus, report = out / CORPUS, out / REPORT
    with whole_text(corpus) as stream:
        for docstring in docstrings:
            stream.write(json.dumps(docstring._asdict()) + "\n")
    command = (
        f"latensor topics {corpus} --token-pattern '{_TOKENS}' --topics {topics} --seed {_SEED} "
        f"--out {report}"
    )
    wish = Wish(
        topics=topics,
        seed=_SEED,
        title="Documentation of Python, NumPy, SciPy and scikit-learn",
        command=command,
        names=[docstring.name for docstring in docstrings],
    )
    learned = learn(Reading(corpus, token_pattern=_TOKENS), wish, console, EXAMPLES)
    write_report(learned.page, report)
    print_topics(learned, console)
    say(console, f"The report is in {report}: open it in a browser")
    say(console, f"The documents are in {corpus}; the same by hand:\n  {command}")
