"""One run of `latensor fit`: read, fit, say what was found, and save it."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

import latensor as lt
from latensor.cli.compiling import announce_compiling
from latensor.cli.findings import MOST_LISTED, say
from latensor.cli.fit_input import Data, Reading
from latensor.cli.fit_models import MODELS, Entry
from latensor.cli.fit_record import (
    ARRAYS,
    PARAMETERS,
    as_json,
    certificate_content,
    parameters_of,
    snippet,
    write_answers,
)
from latensor.cli.progress import Meter, progress_meter
from latensor.cli.refusal import Refusal
from latensor.cli.saving import SUMMARY, Output
from latensor.cli.wording import MODEL_FILE, Wording
from latensor.report import Reproduction, write_model_report
from latensor.report.model_tables import Rows, rows_of
from latensor.report.topic_page import installed_versions
from latensor.whole_files import check_outputs, whole_stream

COMMAND = "latensor fit"
# All that the command may write, whatever the model: a run removes what an earlier one left.
FILES = frozenset(
    {PARAMETERS, ARRAYS, SUMMARY}.union(*({e.kind.result, e.kind.picture} for e in MODELS))
)
WORDING = Wording(
    {
        r"X\.T\b": "--transpose",
        r"engine(?==)": "--engine",
        r"paths(?==)": "FILE",
        r"n_components\b": "--components",
        r"covariance_type\b": "--covariance",
        r"sample_weight\b": "--weights",
        r"lengths\b(?= ?=| has| must)": "--lengths",
        r"(refine|variance|method|noise|kinds|collapse|link|binarize)\b(?= ?=)": r"--\1",
        r"random_state\b": "--seed",
        r"n_jobs\b": "--jobs",
        r"of \w+ must be None, or\b": "must be",
    }
)


@dataclass
class Run:
    """One run of the command.

    Attributes
    ----------
    arguments : dict, of the class
    command : str, what was typed
    """

    entry: Entry
    reading: Reading
    arguments: dict[str, Any]
    command: str
    console: Console
    data: Data | None = None
    model: Any = None
    seconds: float = 0.0
    likelihood: str = ""
    notes: list[str] = field(default_factory=list)
    checkpoint: Path | None = None


def execute(run: Run) -> None:
    """Read the file and fit the model."""
    with announce_compiling(), progress_meter(run.console) as meter:
        meter.step(f"reading {run.reading.file}")
        data = run.data = run.entry.read(run.reading)
        say(run.console, f"{run.reading.file}: {data.shape}")
        meter.step(f"fitting {run.entry.model} to {data.n_rows:,} rows")
        start = time.perf_counter()
        with WORDING.warnings(run.notes), WORDING.errors():
            run.model = getattr(lt, run.entry.model)(**run.arguments)
            run.model.fit(*data.arguments, **data.keywords, checkpoint=run.checkpoint)
        run.seconds = time.perf_counter() - start
        run.likelihood = _likelihood(run, meter)
    unasked = run.arguments.get("refine", "auto") == "auto"
    if unasked and getattr(run.model, "converged_", None) is False:
        run.notes.append("EM had not converged when it ended; give --refine N")


def print_findings(run: Run) -> None:
    """Print what was found."""
    assert run.data is not None
    data = run.data
    kind, console, model = run.entry.kind, run.console, run.model
    count = _count(run)
    automatic = run.arguments.get("n_components") == "auto"
    chosen = ", chosen from the data" if automatic else ""
    say(console, f"{run.entry.model}: {count} {kind.noun[count == 1]}{chosen}")
    _print_rows(console, rows_of(model, data.names, data.arguments, console.width))
    if run.likelihood:
        say(console, run.likelihood)
    say(console, f"{_passes(model)}{run.seconds:.2f} s")
    for note in run.notes:
        say(console, f"Note: {note}")
    say(console, f"\n{WORDING(model.certificate_)}")


def _print_rows(console: Console, found: Rows) -> None:
    """Print the table, the first rows of many."""
    head, rows = found
    table = Table()
    for place, title in enumerate(head):
        words = any(": " in row[place] for row in rows)
        # What a column of a file is called may look like mark-up.
        table.add_column(Text(title), justify="left" if words else "right", overflow="fold")
    for row in rows[:MOST_LISTED]:
        table.add_row(*map(Text, row))
    console.print(table)
    if len(rows) > MOST_LISTED:
        say(console, f"and {len(rows) - MOST_LISTED} more")


def _count(run: Run) -> int:
    model, count = run.model, run.entry.kind.count
    if count is not None:
        return count(model)
    return int(getattr(model, "n_components_", 0)) or len(model.correlations_)


def _passes(model: Any) -> str:
    passes = int(getattr(model, "n_iter_", 0) or 0)
    if not passes:
        return ""
    return f"{passes} {'pass' if passes == 1 else 'passes'} of refinement, "


def _likelihood(run: Run, meter: Meter) -> str:
    """What the model predicts of the rows it was fitted to, where it has a likelihood."""
    model, data = run.model, run.data
    assert data is not None
    if data.sample_weight is not None or not hasattr(model, "predict_proba"):
        return ""
    meter.step("measuring the likelihood")
    value = float(model.score(*data.arguments))
    if run.entry.kind.result == "states.csv":
        value /= data.n_rows
    text = f"Log-likelihood per {run.entry.kind.unit} {value:.5g}"
    if hasattr(model, "bic"):
        text += f", BIC {model.bic(*data.arguments):,.6g}"
    return text


def write_page(run: Run, path: Path) -> None:
    """Write one page about the model."""
    data = run.data
    assert data is not None
    how = Reproduction(
        command=run.command,
        snippet=snippet(run.entry, data, run.arguments),
        versions=installed_versions(),
        seconds={"fit": run.seconds},
    )
    with progress_meter(run.console) as meter:
        meter.step("writing the page")
        write_model_report(
            run.model,
            path,
            *data.arguments,
            names=_names(data),
            title=run.reading.file.name,
            reproduction=how,
        )


def _names(data: Data) -> tuple[str, ...] | None:
    """What columns are called, where it is more than a number."""
    return None if all(name.isdecimal() for name in data.names) else data.names


def save(run: Run, output: Output, figure: bool) -> None:
    """Write the parameters, an answer for every row, the figure and the summary."""
    assert run.data is not None
    entry, data, model = run.entry, run.data, run.model
    found = parameters_of(model, entry.parameters)
    output.arrays(ARRAYS, found)
    certificate = certificate_content(model)
    content = {
        "model": entry.model,
        "n_components": _count(run),
        "features": list(data.names),
        "parameters": found,
        "certificate": certificate,
        "reproduce": {
            "command": run.command,
            "python": snippet(entry, data, run.arguments).splitlines(),
        },
        "versions": installed_versions(),
    }
    output.text(PARAMETERS, as_json(content))
    with progress_meter(run.console) as meter:
        meter.step("asking for every row")
        name = entry.kind.result
        if entry.kind.write is not None:
            entry.kind.write(output.open(name), model, data)
        else:
            write_answers(name, output.open(name), model, data)
        if figure:
            meter.step("drawing")
            _draw(run, output)
    summary = {
        "version": lt.__version__,
        "model": entry.model,
        "source": {"path": str(run.reading.file), "content": data.shape, "rows": data.n_rows},
        "arguments": run.arguments,
        "verdict": certificate["verdict"],
        "seconds": run.seconds,
        "notes": run.notes,
    }
    output.summary(COMMAND, summary)


def _draw(run: Run, output: Output) -> None:
    try:
        from latensor import plots
        from latensor.plots.figures import draw
    except ImportError:
        run.notes.append("figures need matplotlib: pip install 'latensor[plots]'")
        return
    data = run.data
    assert data is not None
    figure = plots.picture(
        run.model, *data.arguments, names=_names(data), sample_weight=data.sample_weight
    )
    draw(figure, output.open(run.entry.kind.picture))


def apply_model(path: Path, entry: Entry, reading: Reading, out: Path | None) -> str:
    """Write what a saved model says of the rows of a file; the standard output takes CSV.

    Returns
    -------
    str, a sentence about it
    """
    kind = entry.kind
    if kind.write is not None:
        raise Refusal(f"--apply is not for {entry.name}: it is about the {kind.noun[0]} it learned")
    suffix = Path(kind.result).suffix
    if out is None and suffix != ".csv":
        raise Refusal(f"--apply gives arrays for {entry.name}: say where to, --out FILE{suffix}")
    if out is not None and out.suffix.lower() != suffix:
        raise Refusal(f"--out={out} must end with {suffix}")
    check_outputs({"--out": out}, [path, reading.file])
    with MODEL_FILE.errors():
        model = lt.load(path, "model")
    if type(model).__name__ != entry.model:
        raise Refusal(f"{path} holds a {type(model).__name__}, {entry.name} is a {entry.model}")
    data = entry.read(reading)
    with WORDING.errors():
        if out is None:
            stream = io.BytesIO()
            write_answers(kind.result, stream, model, data)
            click.echo(stream.getvalue().decode("utf-8"), nl=False)
            return f"{data.n_rows:,} rows by the model in {path}"
        with whole_stream(out, gzipped=False) as target:
            write_answers(kind.result, target, model, data)
    return f"{data.n_rows:,} rows by the model in {path}: {out}"
