"""`latensor decompose`: from a file to components, a certificate and figures."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

import latensor as lt
from latensor.cli.compiling import announce_compiling
from latensor.cli.console import printing
from latensor.cli.files import Input, read_input
from latensor.cli.findings import WORDING, Delivery, Run, print_components, print_tucker, say
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
from latensor.cli.progress import Meter, progress_meter
from latensor.cli.refusal import Refusal, errors_in_one_line
from latensor.cli.saving import SUMMARY

ARRAYS = "decomposition.npz"

_EPILOG = """\b
Examples:
  latensor decompose spectra.npy                      choose the rank, print a certificate
  latensor decompose spectra.npz --array x --rank 3   an array of an archive
  latensor decompose mails.tns.gz --rank 10 --nonnegative --out found
  latensor decompose photo.jpg --tucker 50,50,3       a core of 50 x 50 x 3
  latensor decompose spectra.npy --tucker 0.99        as small as holds 99 % of the energy
  latensor decompose gaps.npy --rank 2 --missing nan  fit only what was measured
  latensor decompose spectra.npy --labels modes.csv --title Spectra --out page.html
"""


def read_rank(context: Any, parameter: Any, value: str | None) -> int | str | None:
    """`--rank`: a whole number, or auto."""
    if value is None or value == "auto":
        return value
    try:
        return int(value)
    except ValueError:
        raise Refusal(f"--rank={value} must be a whole number, or auto") from None


def _read_ranks(
    context: Any, parameter: Any, value: str | None
) -> tuple[int | float | None, ...] | None:
    if value is None:
        return None
    return tuple(_read_entry(word.strip(), value) for word in value.split(","))


def _read_entry(word: str, value: str) -> int | float | None:
    if word == "-":
        return None
    try:
        return int(word) if word.isdigit() else float(word)
    except ValueError:
        raise Refusal(
            f"--tucker={value} must be numbers between commas, one per mode (- keeps a mode "
            "whole), or one fraction of the energy such as 0.99"
        ) from None


@click.command(epilog=_EPILOG)
@click.argument("file", type=Source())
@click.option(
    "--rank",
    callback=read_rank,
    metavar="K|auto",
    help="Number of components; auto, the default, chooses it and shows why.",
)
@click.option(
    "--tucker",
    callback=_read_ranks,
    metavar="R1,R2,...|FRACTION",
    help="Tucker form in place of components: the size of its core, one number per mode (- keeps "
    "a mode whole) or one for all; or the fraction of the energy to hold, as 0.99.",
)
@nonnegative_option
@click.option(
    "--ridge",
    metavar="X",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Penalty on the components, for those that cancel each other; with --rank.",
)
@max_iter_option
@click.option(
    "--tol",
    metavar="X",
    type=click.FloatRange(min=0),
    help="The fit has converged when further steps lower the residual by less.",
)
@array_option
@mask_option
@click.option(
    "--missing",
    metavar="NAME",
    help="The opposite of --mask: True is missing; nan stands for all NaN entries.",
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
def decompose(
    file: Path,
    rank: int | str | None,
    tucker: tuple[int | float | None, ...] | None,
    nonnegative: bool,
    ridge: float,
    max_iter: int | None,
    tol: float | None,
    array: str | None,
    mask: str | None,
    missing: str | None,
    labels: Path | None,
    seed: int,
    title: str | None,
    out: Path | None,
) -> None:
    """Decompose the tensor in FILE and say how far to trust the result.

    FILE is .npy, .npz, .tns, .tns.gz or an image. Without --out nothing is written.
    """
    if tucker is not None and rank is not None:
        raise Refusal("--rank and --tucker exclude each other: give one of them")
    if tucker is not None and ridge:
        raise Refusal("--ridge goes with --rank, not with --tucker")
    inputs = [file, *(Path(name) for name in (mask, missing, labels) if name is not None)]
    delivery = Delivery("latensor decompose", ARRAYS, out, title, inputs)
    options: dict[str, Any] = {"nonnegative": nonnegative, "max_iter": max_iter, "tol": tol}
    if tucker is None:
        options["ridge"] = ridge

    def execute() -> Run:
        source = read_input(file, array, mask, missing)
        named = source.labels if labels is None else read_mode_labels(labels, source.shape)
        run = _execute(Run(source, console, seed, options), rank, tucker)
        run.found = replace(run.found, mode_labels=named)
        return run

    show = print_components if tucker is None else print_tucker
    with errors_in_one_line(), printing() as console:
        delivery.run(execute, show)


def _execute(
    run: Run, rank: int | str | None, tucker: tuple[int | float | None, ...] | None
) -> Run:
    """Decompose what was read."""
    say(run.console, run.source.description)
    start = time.perf_counter()
    # Only sparse tensors have kernels to compile.
    telling = announce_compiling() if run.source.is_sparse else nullcontext()
    with telling, WORDING.warnings(run.notes), progress_meter(run.console) as meter:
        try:
            with WORDING.errors():
                if tucker is None:
                    _fit_components(run, rank, meter)
                else:
                    _fit_tucker(run, tucker, meter)
        except Refusal as error:
            raise _with_advice(error, run.source) from error
    run.seconds = time.perf_counter() - start
    return run


def _with_advice(error: Exception, source: Input) -> Exception:
    """The error, with the option that helps against NaN."""
    tensor = source.tensor
    if source.mask is None and not source.is_sparse and tensor.dtype.kind in "fc":
        missing = int(np.isnan(tensor).sum())
        if missing:
            return Refusal(f"{error}; --missing nan leaves out the {missing} NaN")
    return error


def _fit_components(run: Run, rank: int | str | None, meter: Meter) -> None:
    source = run.source
    tensor = source.tensor
    if rank is None or isinstance(rank, str):
        meter.step("choosing the rank")

        def tried(row: Any) -> None:
            meter.step(f"choosing the rank, {row.rank} tried")

        run.selection = lt.select_rank(
            tensor, mask=source.mask, random_state=run.seed, callback=tried
        )
        count = max(int(run.selection.rank), 1)
        if run.selection.rank == 0:
            run.notes.append("One component was fitted all the same; take it for noise.")
    else:
        count = rank
    show = meter.step(f"CP of rank {count}")
    run.found = lt.decompose(
        tensor,
        count,
        mask=source.mask,
        random_state=run.seed,
        callback=show,
        **run.options,
    )
    meter.step("certifying")
    run.certificate = lt.certify(run.found, tensor, mask=source.mask)


def _fit_tucker(run: Run, ranks: tuple[int | float | None, ...], meter: Meter) -> None:
    source = run.source
    kept = [mode for mode, entry in enumerate(ranks) if entry is not None]
    asked: Any = [ranks[mode] for mode in kept] if len(ranks) > 1 else ranks[0]
    if not kept:
        raise Refusal("--tucker keeps every mode whole: give a number for at least one")
    if len(ranks) > 1 and len(ranks) != len(source.shape):
        raise Refusal(
            f"--tucker has {len(ranks)} entries, but the tensor has {len(source.shape)} modes: "
            "give one per mode (- keeps it whole), or one for all"
        )
    show: Callable[[Any], None] | None = meter.step(f"Tucker of {asked}")
    whole = all(isinstance(entry, int) for entry in ranks if entry is not None)
    run.found = lt.tucker(
        source.tensor,
        asked,
        modes=kept if len(kept) < len(ranks) else None,
        mask=source.mask,
        random_state=run.seed,
        # Fractions of the energy are met without iterating, and there is nothing to show.
        callback=show if whole else None,
        **run.options,
    )
