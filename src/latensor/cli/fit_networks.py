"""Networks and trees at the command line: how they are read, what is printed and written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import IO, Any

import numpy as np

from latensor.cli.fit_input import Data, Reading, read_incomplete, whole_table
from latensor.cli.fit_tables import listed
from latensor.cli.refusal import Refusal
from latensor.cli.saving import write_columns

_FASTA = (".fasta", ".fa", ".fna", ".faa", ".fas")


def read_edges(reading: Reading) -> Data:
    """Edges (m, 2), or (m, 3) with weights, or the rows of an adjacency."""
    table, columns = whole_table(replace(reading, weights=None))
    code: tuple[str, ...]
    if len(columns) not in (2, 3):
        if reading.weights is not None:
            raise Refusal("--weights is for edges, one in a row: the file holds an adjacency")
        rows = table.numbers(columns)
        code = ("import numpy as np", f"X = {table.code(columns)}")
        return Data((rows,), len(rows), f"an adjacency of {len(rows):,} nodes", (), code, "X")
    weighted = [c for c in columns if table.names[c] == reading.weights]
    if reading.weights is not None and not weighted:
        known = listed([table.names[c] for c in columns])
        raise Refusal(f"--weights={reading.weights}: {reading.file} has the columns {known}")
    ends = [c for c in columns if c not in weighted][:2]
    weighted = weighted or [c for c in columns if c not in ends]
    words = [table.words(c) for c in ends]
    names: tuple[str, ...] = ()
    if any(column.dtype.kind not in "biuf" for column in words):
        text = np.stack([column.astype(str) for column in words], axis=1)
        found, numbers = np.unique(text, return_inverse=True)
        names = tuple(map(str, found))
        edges = numbers.reshape(-1, 2).astype(np.float64)
        parts = ", ".join(table.code([c], words=True) for c in ends)
        lines = [
            f"edges = np.unique(np.stack([{parts}], 1), return_inverse=True)[1].reshape(-1, 2)"
        ]
    else:
        edges = table.numbers(ends)
        lines = [f"edges = {table.code(ends)}"]
    if weighted:
        edges = np.column_stack([edges, table.numbers(weighted)])
        lines.append(f"edges = np.column_stack([edges, {table.code(weighted)}])")
    shape = f"{len(edges):,} edges{' with weights' if weighted else ''}"
    code = ("import numpy as np", *lines)
    return Data((edges,), len(edges), shape, names, code, "edges")


def read_leaves(reading: Reading) -> Data:
    """Leaves in columns, or aligned sequences of a FASTA file."""
    name = reading.file.name.lower().removesuffix(".gz")
    if not name.endswith(_FASTA):
        return read_incomplete(reading)
    if reading.columns or reading.array or reading.weights or reading.transpose:
        raise Refusal("--columns, --array, --weights and --transpose are not for FASTA files")
    from latensor.sources import read_alignment

    if not reading.file.is_file():
        raise Refusal(f"{reading.file} is no file")
    found = read_alignment(reading.file)
    sites, count = found.X.shape
    shape = f"{count} sequences of {sites:,} sites, symbols {found.alphabet}"
    code = (
        "from latensor.sources import read_alignment",
        f"X = read_alignment({str(reading.file)!r}).X",
    )
    return Data((found.X,), sites, shape, tuple(found.names), code, "X")


def _named(data: Data, count: int) -> Sequence[str]:
    return data.names if len(data.names) == count else [str(i) for i in range(count)]


def write_memberships(stream: IO[bytes], model: Any, data: Data) -> None:
    """A line for every node: its community and all memberships."""
    columns = {"node": _named(data, len(model.membership_)), "community": model.labels_}
    fractions = {f"membership {j}": column for j, column in enumerate(model.membership_.T)}
    write_columns(stream, columns | fractions)


def write_newick(stream: IO[bytes], model: Any, data: Data) -> None:
    """The tree with lengths and support."""
    text = model.newick(_named(data, model.tree_.n_observed), support=True, root="midpoint")
    stream.write((text + "\n").encode("utf-8"))
