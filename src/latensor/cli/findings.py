"""What `latensor decompose` and `complete` say: on the terminal, in files and in figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import latensor as lt
from latensor.cli.console import visible
from latensor.cli.files import Input
from latensor.cli.options import typed
from latensor.cli.refusal import Refusal
from latensor.cli.saving import SUMMARY, Output, output_folder
from latensor.cli.wording import Wording
from latensor.report import Reproduction, write_model_report
from latensor.report.topic_page import installed_versions
from latensor.whole_files import check_outputs

FIGURES = ("components.png", "history.png", "rank.png", "image.png")
WORDING = Wording(
    {
        r"with lt\.match\b": "(--seed)",
        r"by lt\.match\b": "by their vectors",
        r"see what lt\.select_rank finds": "see what --rank auto finds",
        r"lt\.select_rank\b": "--rank auto",
        r"fit with ridge or nonnegative=True": "fit with --ridge or --nonnegative",
        r"a ridge\b": "--ridge",
        r"Pass it as `init` to go on": "Raise --max-iter",
        r"mask=": "--mask=",
        r"max_iter\b": "--max-iter",
        r"rank\b(?==)": "--rank",
        r"(?<=lower )rank\b": "--rank",
    }
)
_ENDINGS = {
    "CONVERGED": "converged",
    "TARGET_REACHED": "the residual is as small as asked for",
    "UNCONFIRMED": "not confirmed by entries left out of the fit",
    "MAX_ITER": "ended before it converged; raise --max-iter",
    "STOPPED": "stopped",
}
# Components that are listed one by one.
MOST_LISTED = 20
_ABOUT_TUCKER = """
A Tucker form compresses; it does not explain. The subspace of each mode is determined by the data,
but the directions in it may be rotated if the core is rotated back. For components that can be
interpreted one by one, use --rank."""


@dataclass
class Run:
    """One run of a command: what was read, what was found, and what there is to say.

    Attributes
    ----------
    options : dict, arguments of `lt.decompose`, `lt.tucker` or `lt.complete`
    more : dict, arrays to write beside the components
    """

    source: Input
    console: Console
    seed: int
    options: dict[str, Any]
    notes: list[str] = field(default_factory=list)
    selection: Any = None
    certificate: Any = None
    found: Any = None
    seconds: float = 0.0
    more: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Delivery:
    """Where a command puts what it found: a folder, a page, or the terminal alone.

    Attributes
    ----------
    command, arrays : its name, and that of its file of arrays
    out : folder, page or None
    title : of the page
    inputs : files that it reads, which no output may replace
    """

    command: str
    arrays: str
    out: Path | None
    title: str | None
    inputs: Sequence[Path]

    def __post_init__(self) -> None:
        if self.title is not None and not self._is_page:
            raise Refusal("--title is for a page: give --out page.html")

    @property
    def is_folder(self) -> bool:
        """Whether files of arrays are written."""
        return self.out is not None and not self._is_page

    @property
    def _is_page(self) -> bool:
        return self.out is not None and self.out.suffix.lower() in (".html", ".htm")

    def run(self, execute: Callable[[], Run], show: Callable[[Run], None]) -> None:
        """Check the places first, execute, write, and then print."""
        if self.out is None:
            show(execute())
            return
        if self._is_page:
            check_outputs({"--out": self.out}, self.inputs)
            run = execute()
            how = Reproduction(
                command=typed(click.get_current_context()),
                versions=installed_versions(),
                seconds={"fit": run.seconds},
            )
            title = self.title or self.inputs[0].name
            write_model_report(run.found, self.out, title=title, reproduction=how)
            show(run)
            say(run.console, f"The page is in {self.out}")
            return
        names = (self.arrays, SUMMARY, *FIGURES)
        with output_folder(self.out, self.command, frozenset(names), self.inputs) as output:
            run = execute()
            save(run, output, self.command, self.arrays)
        show(run)
        written = ", ".join(name for name in names if name in output.names)
        say(run.console, f"Saved in {self.out}: {written}")


def say(console: Console, text: str) -> None:
    """A line as it is: no mark-up, no colours, no breaks."""
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def table_of(*titles: str) -> Table:
    """A table of numbers."""
    table = Table()
    for title in titles:
        table.add_column(Text(title), justify="right")
    return table


def print_components(run: Run) -> None:
    """Print the components, how well they fit, and the certificate."""
    console, found = run.console, run.found
    if run.selection is not None:
        say(console, f"\n{WORDING(run.selection)}\n")
    order = len(found.factors)
    names = [visible(name) for name in mode_names(found)] if order < 7 else []
    table = table_of("component", "weight", *(f"peak in {name}" for name in names))
    weights = np.asarray(found.weights)
    for j in range(min(found.rank, MOST_LISTED)):
        peaks = [Text(_peak(found, mode, j)) for mode in range(len(names))]
        table.add_row(str(j), _number(weights[j]), *peaks)
    console.print(table)
    if found.rank > MOST_LISTED:
        rest = np.abs(weights[MOST_LISTED:])
        line = f"and {len(rest)} more, with weights from {_number(rest.max())}"
        say(console, f"{line} to {_number(rest.min())}")
    parameters = found.rank * (sum(run.source.shape) + 1)
    _print_fit(run, f"CP of rank {found.rank}", parameters)
    for note in run.notes:
        say(console, f"Note: {note}")
    say(console, f"\n{WORDING(run.certificate)}")


def mode_names(found: Any) -> list[str]:
    """What the modes are called; "mode 2" of one without a name."""
    labels = found.mode_labels or [None] * len(found.factors)
    return [
        own.name if own is not None and own.name else f"mode {mode}"
        for mode, own in enumerate(labels)
    ]


def _peak(found: Any, mode: int, component: int) -> str:
    """The index of the largest entry, by its label if it has one."""
    index = int(np.argmax(np.abs(np.asarray(found.factors[mode])[:, component])))
    values = None if found.mode_labels is None else found.mode_labels[mode].values
    return str(index) if values is None else visible(str(values[index]))


def print_tucker(run: Run) -> None:
    """Print what each mode keeps and how well the form fits."""
    console, found = run.console, run.found
    table = table_of("mode", "size", "kept", "energy in the first", "in the last")
    core = np.abs(np.asarray(found.core)).astype(float)
    core = core / (core.max() or 1.0)  # squares of very large entries leave the range
    names = [visible(name).removeprefix("mode ") for name in mode_names(found)]
    for mode, (size, kept) in enumerate(zip(run.source.shape, core.shape, strict=True)):
        others = tuple(m for m in range(core.ndim) if m != mode)
        energy = (core**2).sum(axis=others)
        fractions = 100 * energy / (energy.sum() or 1.0)
        first, last = f"{fractions[0]:.4g} %", f"{fractions[-1]:.4g} %"
        if found.factors[mode] is None:
            first = last = "-"
        table.add_row(Text(names[mode]), str(size), str(kept), first, last)
    console.print(table)
    _print_fit(run, f"Tucker of core {_by(core.shape)}", _tucker_size(found))
    for note in run.notes:
        say(console, f"Note: {note}")
    say(console, _ABOUT_TUCKER)


def _print_fit(run: Run, form: str, parameters: int) -> None:
    found, shape = run.found, run.source.shape
    entries = prod(shape)
    size = f"{parameters:,} numbers for {entries:,} entries"
    if parameters < entries:
        ratio = entries / parameters
        size += f", {ratio:,.0f} times fewer" if ratio >= 100 else f", {ratio:.3g} times fewer"
    say(run.console, f"{form}: {size}")
    say(run.console, _how_near(found))
    if not found.n_iter:
        say(run.console, f"Computed at once, in {run.seconds:.2f} s")
        return
    count = f"{found.n_iter} iteration" + ("" if found.n_iter == 1 else "s")
    say(run.console, f"{count}, {run.seconds:.2f} s; {_ENDINGS[found.status.name]}")


def _how_near(found: Any) -> str:
    residual = float(found.residual)
    sizes = found.core if hasattr(found, "core") else found.weights
    if not residual and not np.any(np.asarray(sizes)):
        return "No signal: the tensor is zero, and there is no energy to explain"
    explained = f"{100 * max(1 - residual**2, 0.0):.6g} % of the energy"
    return f"Relative residual {residual:.4g} (fit {1 - residual:.4f}, {explained})"


def _tucker_size(found: Any) -> int:
    return int(prod(found.core.shape) + sum(prod(f.shape) for f in found.factors if f is not None))


def _by(shape: tuple[int, ...]) -> str:
    return " x ".join(str(d) for d in shape)


def _number(value: Any) -> str:
    if np.iscomplexobj(value):
        return f"{complex(value):.4g}"
    return f"{float(value):,.1f}" if 1e3 <= abs(value) < 1e7 else f"{float(value):.5g}"


def save(run: Run, output: Output, command: str, name: str) -> None:
    """Write the arrays of a run into the file `name`, its summary and its figures."""
    found = run.found
    is_cp = hasattr(found, "weights")
    factors = {
        f"factor_{mode}": np.asarray(factor)
        for mode, factor in enumerate(found.factors)
        if factor is not None
    }
    first = {"weights": found.weights} if is_cp else {"core": found.core}
    labels = {
        f"labels_{mode}": own.values
        for mode, own in enumerate(found.mode_labels or ())
        if own.values is not None
    }
    arrays = {**first, **factors, **labels, **run.more}
    output.arrays(name, {key: np.asarray(value) for key, value in arrays.items()})
    try:
        _draw(run, output)
    except ImportError:
        run.notes.append("figures need matplotlib: pip install 'latensor[plots]'")
    source = run.source
    content: dict[str, Any] = {
        "version": lt.__version__,
        "source": {
            "path": str(source.path),
            "array": source.array,
            "shape": list(source.shape),
            "dtype": str(source.tensor.dtype),
            "nonzeros": source.tensor.nnz if source.is_sparse else None,
            "masked": source.mask is not None,
        },
        "kind": "cp" if is_cp else "tucker",
        **run.options,
        "seed": run.seed,
        "modes": mode_names(found),
        "ranks": [found.rank] if is_cp else list(found.core.shape),
        "weights": np.asarray(found.weights) if is_cp else None,
        "residual": float(found.residual),
        "fit": 1.0 - float(found.residual),
        "held_out_error": getattr(found, "held_out_error", None),
        "status": found.status.name,
        "iterations": found.n_iter,
        "history": found.history,
        "seconds": run.seconds,
        "certificate": None if run.certificate is None else run.certificate.to_dict(),
        "rank_selection": None if run.selection is None else run.selection.to_dict(),
        "notes": run.notes,
    }
    output.summary(command, content)


def _draw(run: Run, output: Output) -> None:
    from latensor import plots
    from latensor.plots.figures import draw

    found = run.found
    draw(plots.components(found), output.open("components.png"))
    if len(found.history) > 1:
        draw(plots.residual_history(found), output.open("history.png"))
    if run.selection is not None:
        draw(plots.rank_evidence(run.selection), output.open("rank.png"))
    if run.source.is_image:
        model = found.tensor.to_dense()
        form = "CP" if hasattr(found, "weights") else "Tucker"
        kept = _tucker_size(found) if form == "Tucker" else found.rank * (sum(model.shape) + 1)
        mask, shown = run.source.mask, run.source.tensor
        title = f"original, {model.size:,} numbers"
        if mask is not None:
            shown, title = np.where(mask, shown, 0), f"{np.count_nonzero(mask):,} observed numbers"
        pictures = {title: shown, f"{form}, {kept:,} numbers": model}
        draw(plots.images(pictures), output.open("image.png"))
