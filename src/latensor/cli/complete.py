"""`latensor complete`: from some entries of a tensor to all of them."""

from __future__ import annotations

import time
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import click
import numpy as np

import latensor as lt
from latensor.array_files import read_npy
from latensor.cli.compiling import announce_compiling
from latensor.cli.console import printing
from latensor.cli.decompose import read_rank
from latensor.cli.files import Input, read_input
from latensor.cli.findings import WORDING, Delivery, Run, print_components, say, table_of
from latensor.cli.mode_names import read_mode_labels
from latensor.cli.options import (
    Source,
    Target,
    array_option,
    labels_option,
    mask_option,
    max_iter_option,
    nonnegative_option,
    seed_option,
    title_option,
)
from latensor.cli.progress import progress_meter
from latensor.cli.refusal import Refusal, errors_in_one_line
from latensor.cli.saving import SUMMARY
from latensor.exceptions import InvalidInputError
from latensor.tensors.tns import read_tns_entries

ARRAYS = "completion.npz"

_EPILOG = """\b
Examples:
  latensor complete gaps.npy --rank 3                 NaN is missing; print the held-out error
  latensor complete gaps.npy --out filled             filled/completion.npz has the whole array
  latensor complete ratings.tns --rank 5 --at places.npy --out found
                                                      each line is an observed entry, zeros too
  latensor complete gaps.npy --rank 3 --out page.html one page about all of it
  latensor complete photo.npz --array x --mask seen --rank 20 --nonnegative
"""


@click.command(epilog=_EPILOG)
@click.argument("file", type=Source())
@click.option(
    "--rank",
    callback=read_rank,
    metavar="K|auto",
    default="auto",
    help="Number of components; auto, the default, takes those that predict entries left out.",
)
@nonnegative_option
@click.option(
    "--ridge",
    metavar="X",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Penalty on the components, where entries are few.",
)
@max_iter_option
@array_option
@mask_option
@click.option("--missing", metavar="NAME", help="The opposite of --mask: True is missing.")
@click.option(
    "--at",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An .npy file of coordinates (n, order), counted from 0, to predict; needs --out.",
)
@labels_option
@seed_option
@title_option
@click.option(
    "--out",
    type=Target(),
    metavar="DIR|FILE",
    help=f"Folder for {ARRAYS}, {SUMMARY} and figures, made if it does not exist; or one page "
    "about all of it (.html).",
)
def complete(
    file: Path,
    rank: int | str,
    nonnegative: bool,
    ridge: float,
    max_iter: int | None,
    array: str | None,
    mask: str | None,
    missing: str | None,
    at: Path | None,
    labels: Path | None,
    seed: int,
    title: str | None,
    out: Path | None,
) -> None:
    """Fill in the tensor in FILE from its observed entries, and say how far to trust them.

    FILE is .npy or .npz with NaN where an entry is missing (or --mask), .tns or .tns.gz with a line
    for every observed entry, or an image with --mask. Without --out nothing is written.
    """
    inputs = [file, *(Path(n) for n in (mask, missing, at, labels) if n is not None)]
    delivery = Delivery("latensor complete", ARRAYS, out, title, inputs)
    if at is not None and not delivery.is_folder:
        raise Refusal("--at needs --out with a folder: the predicted entries are written there")
    options: dict[str, Any] = {"nonnegative": nonnegative, "max_iter": max_iter, "ridge": ridge}

    def execute() -> Run:
        source, given = _read(file, array, mask, missing)
        named = source.labels if labels is None else read_mode_labels(labels, source.shape)
        run = Run(source, console, seed, options)
        _fit(run, given, rank)
        run.found = replace(run.found, mode_labels=named)
        run.more = _filled(run, at)
        return run

    with errors_in_one_line(), printing() as console:
        delivery.run(execute, _print)


def _read(
    path: Path, array: str | None, mask: str | None, missing: str | None
) -> tuple[Input, Any]:
    """What there is to say of the file, and what `lt.complete` takes."""
    if path.name.lower().endswith((".tns", ".tns.gz")) and path.is_file():
        if mask is not None or missing is not None or array is not None:
            raise Refusal(f"{path} has a line for every observed entry: leave out --array, --mask "
                          "and --missing")  # fmt: skip
        triple = read_tns_entries(path)
        pattern = lt.SparseTensor(triple[0], np.ones(len(triple[1])), triple[2])
        return Input(lt.SparseTensor(*triple), pattern, path, None, False), triple
    source = read_input(path, array, mask, missing)
    if source.is_sparse:
        return source, source.tensor
    tensor = source.tensor
    observed = np.ones(tensor.shape, bool) if source.mask is None else source.mask
    if tensor.dtype.kind in "fc":
        observed = observed & ~np.isnan(tensor)
    if observed.all():
        raise Refusal(f"{path} has no missing entry: mark them by NaN, --mask or --missing")
    return replace(source, mask=observed), tensor


def _fit(run: Run, given: Any, rank: int | str) -> None:
    source = run.source
    say(run.console, source.description)
    start = time.perf_counter()
    with announce_compiling(), WORDING.warnings(run.notes), progress_meter(run.console) as meter:
        show = meter.step("completing")
        with WORDING.errors():
            run.found = lt.complete(
                given,
                rank,
                mask=None if isinstance(given, tuple) else source.mask,
                random_state=run.seed,
                callback=show,
                **run.options,
            )
        run.selection = run.found.selection
        meter.step("certifying")
        run.certificate = run.found.certificate
    run.seconds = time.perf_counter() - start


def _filled(run: Run, at: Path | None) -> dict[str, Any]:
    """The completed array, where the file holds one, and the entries that were asked for."""
    source, model = run.source, run.found.tensor
    more: dict[str, Any] = {}
    if not source.is_sparse:
        more["completed"] = np.where(source.mask, source.tensor, model.to_dense())
    if at is not None:
        try:
            more["predicted"] = model.at(read_npy(at))
        except InvalidInputError as error:
            raise Refusal(f"--at={at}: {error}") from error
    return more


def _print(run: Run) -> None:
    found, shape = run.found, run.source.shape
    mask = run.source.mask
    seen = int(mask.nnz if run.source.is_sparse else np.count_nonzero(mask))
    error = found.held_out_error
    table = table_of("entries", "number", "relative error")
    table.add_row("observed, fitted", f"{seen:,}", f"{found.residual:.3g}")
    shown = "not measured" if error is None else f"{error:.3g}"
    table.add_row("left out of a fit", "5 % of these", shown)
    table.add_row("missing", f"{prod(shape) - seen:,}", "as those left out")
    run.console.print(table)
    print_components(run)
