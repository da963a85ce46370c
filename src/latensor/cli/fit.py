"""`latensor fit`: from a file to the parameters of a model, a certificate and a figure."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from latensor.cli.console import printing
from latensor.cli.findings import say
from latensor.cli.fit_input import Reading
from latensor.cli.fit_models import MODELS, find_model, settings_of
from latensor.cli.fit_run import (
    COMMAND,
    FILES,
    WORDING,
    Run,
    apply_model,
    execute,
    print_findings,
    save,
    write_page,
)
from latensor.cli.options import Source, Target, jobs_option, refuse_learning, seed_option, typed
from latensor.cli.refusal import Refusal, errors_in_one_line
from latensor.cli.saving import SUMMARY, output_folder
from latensor.cli.shards import checkpoint_option, engine_option, fit_shards, is_sharded
from latensor.whole_files import check_outputs

_EPILOG = """\b
Examples:
  latensor fit --list                                     the models, and what they need
  latensor fit spherical flowers.csv --components 3 --out found
  latensor fit diagonal notes.csv.gz --columns Length-Diagonal
  latensor fit categorical-hmm proteins.csv --columns residue --lengths protein
  latensor fit gaussian-hmm vowels.npz --array x --lengths lengths --covariance full
  latensor fit multi-view patients.csv --views age,bmi:g1-g20:p1-p9 --components 4
  latensor fit ica ecg.npy --components auto --out heart
  latensor fit communities friends.csv --components 3 --out friends
  latensor fit tree primates.fasta --out primates
  latensor fit noisy-or symptoms.csv --components auto --out causes
  latensor fit regressions sales.csv --target price --components 2
  latensor fit gaussian flowers.csv --components 3 --out flowers.html --save model.npz
  latensor fit gaussian more.csv --apply model.npz --out labels.csv
  latensor fit network wine.csv --target quality --components 4 --activation relu
  latensor fit pearson crabs.csv --columns class --weights crabs --out crabs
"""
_READING = ("columns", "array", "lengths", "weights", "target", "views", "kinds", "transpose")


def _read_count(context: Any, parameter: Any, value: str | None) -> int | str | None:
    least = 0 if parameter.name == "refine" else 1
    if value is None or value == "auto":
        return value
    if not value.isdecimal() or int(value) < least:
        name = parameter.opts[0]
        raise Refusal(f"{name}={value} must be a whole number of at least {least}, or auto")
    return int(value)


def _print_models(context: click.Context, parameter: Any, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    width = max(min(Console().width, 100), 30)
    for entry in MODELS:
        click.echo(f"{entry.name}  (lt.{entry.model})")
        for text in (f"for {entry.purpose}", f"file: {entry.holds}"):
            click.echo(textwrap.indent(textwrap.fill(text, width - 4), "    "))
    context.exit()


@click.command(epilog=_EPILOG)
@click.argument("model")
@click.argument("file", type=Source())
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_models,
    help="Name the models, what they are for and what they need, and stop.",
)
@click.option(
    "--components",
    callback=_read_count,
    metavar="K|auto",
    help="Components, states, sources or directions; auto, the default, takes as many as the data "
    "speak for.",
)
@click.option(
    "--columns",
    metavar="A,B,...",
    help="Columns to fit: names, or numbers counted from 0, and FIRST-LAST.  [default: all]",
)
@click.option(
    "--views",
    metavar="A,B:C,D:...",
    help="Columns of every view, views between colons; of an .npz file the arrays.",
)
@click.option(
    "--lengths",
    metavar="COLUMN",
    help="For HMMs, the column that names the sequence of a row; of an .npz file an array, with "
    "one entry per row or the length of every sequence.  [default: one sequence]",
)
@click.option("--weights", metavar="COLUMN", help="The column that says how often a row counts.")
@click.option(
    "--target", metavar="COLUMN", help="For regressions and network, the column to explain."
)
@click.option("--array", metavar="NAME", help="Which array of an .npz file holds the rows.")
@click.option(
    "--transpose",
    is_flag=True,
    help="The rows of the file are the columns to fit, named by its first column where that is "
    "text.",
)
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line of a CSV file names its columns.  [default: told from it]",
)
@click.option(
    "--kinds",
    metavar="KIND,KIND,...",
    help="For multi-view: gaussian or categorical, for every view.",
)
@click.option(
    "--variance",
    type=click.Choice(["differing", "common"]),
    help="For spherical: one variance per component, or one for all.  [default: differing]",
)
@click.option(
    "--covariance",
    type=click.Choice(["spherical", "diag", "full", "tied"]),
    help="For gaussian and gaussian-hmm.  [default: full for gaussian, else diag]",
)
@click.option(
    "--noise",
    type=click.Choice(["gaussian", "none"]),
    help="For ica: whether sensors have noise.  [default: gaussian]",
)
@click.option(
    "--link",
    type=click.Choice(["identity", "logit", "log"]),
    help="For regressions: numbers, zeros and ones, or counts as target.  [default: identity]",
)
@click.option(
    "--activation",
    type=click.Choice(["sigmoid", "tanh", "relu", "softplus", "gelu", "erf"]),
    help="For network: what hidden units make of their input.  [default: sigmoid]",
)
@click.option(
    "--scores",
    type=click.Choice(["gaussian", "mixture", "matching"]),
    help="For network: whose score functions the features have.  [default: gaussian]",
)
@click.option(
    "--binarize",
    type=float,
    metavar="T",
    help="For noisy-or: entries above T are on.  [default: all are 0 or 1]",
)
@click.option(
    "--collapse",
    type=float,
    metavar="LEVEL",
    help="For tree: collapse inner edges not longer than zero at this level of significance, such "
    "as 0.05, so that nodes have any degree.  [default: binary tree]",
)
@click.option(
    "--method",
    type=click.Choice(["moments", "views"]),
    help="For mixtures: all columns together, or three random views.  [default: moments]",
)
@click.option(
    "--refine",
    callback=_read_count,
    metavar="N|auto",
    help="Passes of EM after the moments; 0 gives the estimate of the moments.  [default: auto]",
)
@seed_option
@jobs_option
@click.option(
    "--out",
    type=Target(),
    metavar="DIR|FILE",
    help="Folder for parameters (.json, .npz), an answer for every row and the figure; or one page "
    "about all of it (.html).",
)
@click.option(
    "--save",
    "model_file",
    type=Target(),
    metavar="FILE",
    help="Where to write the model, for --apply and for lt.load in Python (.npz).",
)
@click.option(
    "--apply",
    "learned",
    type=click.Path(path_type=Path),
    metavar="SAVED",
    help="A model that --save wrote: say what it makes of the rows of FILE, learn nothing. The "
    "answers go to --out, or as CSV to the standard output.",
)
@engine_option
@checkpoint_option
@click.option("--no-figure", is_flag=True, help="Draw nothing.")
@click.pass_context
def fit(
    context: click.Context, /, model: str, file: Path, out: Path | None, **options: Any
) -> None:
    """Fit MODEL to the rows of FILE and say how far to trust the result.

    FILE is .csv or .tsv (plain or gzip, with or without a line of names), .npy, .npz or, with
    pyarrow, .parquet. Without --out nothing is written. Rows, columns and components count from
    0, as in Python.
    """
    with errors_in_one_line(), printing() as console:
        entry = find_model(model)
        reading = Reading(
            file, header=options["header"], **{name: options[name] for name in _READING}
        )
        arguments = _arguments(entry, options)
        if options["learned"] is not None:
            refuse_learning(context, {"out", "learned", "header", *_READING})
            done = apply_model(options["learned"], entry, reading, out)
            click.echo(done, err=True)
            return
        if is_sharded(file, options["engine"]):
            _fit_shards(entry, file, arguments, options, out, console)
            return
        run = Run(entry, reading, arguments, typed(context), console)
        run.checkpoint = options["checkpoint"]
        if out is None or out.suffix.lower() in (".html", ".htm"):
            if options["no_figure"]:
                raise Refusal("--no-figure is for a folder of files: give --out DIR")
            check_outputs({"--out": out, "--save": options["model_file"]}, [file])
            execute(run)
            if out is not None:
                write_page(run, out)
            _save_model(run.model, options, console)
            print_findings(run)
            if out is not None:
                say(console, f"The page is in {out}")
            return
        with output_folder(out, COMMAND, FILES, [file]) as output:
            model_file = options["model_file"]
            if model_file is not None and model_file.name in FILES | {SUMMARY}:
                raise Refusal(f"--save={model_file} is what a file of --out is called: rename it")
            check_outputs({"--save": model_file}, [file])
            execute(run)
            save(run, output, not options["no_figure"])
            _save_model(run.model, options, console)
        print_findings(run)
        say(console, f"Saved in {out}: {', '.join(output.names)}")


def _fit_shards(
    entry: Any,
    file: Path,
    arguments: dict[str, Any],
    options: dict[str, Any],
    out: Path | None,
    console: Console,
) -> None:
    if out is not None:
        raise Refusal("--out answers for every row of one file: use --save for the model")
    check_outputs({"--save": options["model_file"]})
    model = fit_shards(entry.model, file, arguments, options, WORDING, console)
    _save_model(model, options, console)


def _save_model(model: Any, options: dict[str, Any], console: Console) -> None:
    if options["model_file"] is not None:
        model.save(options["model_file"])
        say(console, f"The model is in {options['model_file']}")


def _arguments(entry: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the class, as options give them."""
    # All options of any model, so that those of another are refused and none is forgotten.
    values = {option: options[option[2:]] for each in MODELS for option in each.options}
    given = {
        name: value for name, value in values.items() if value is not None and value is not False
    }
    settings = settings_of(entry, given)
    if settings.get("noise") == "none":
        settings["noise"] = None
    if "kinds" in settings:
        settings["kinds"] = [kind.strip() for kind in settings["kinds"].split(",")]
    count = entry.components if options["components"] is None else options["components"]
    chosen = {} if count is None else {entry.counted: count}
    return {**chosen, **settings, "random_state": options["seed"]}
