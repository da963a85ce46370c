"""Runs of a benchmark, gathered over several calls of the command and rendered as tables."""

from __future__ import annotations

import argparse
import json
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.tables import put

# What a method reached and the CPU seconds it took; NaN seconds where it refused.
Run = dict[str, list[float]]


class Gathered:
    """Runs by table, setting and seed: measured once, kept in a JSON file if there is one."""

    def __init__(self, paths: Sequence[Path], only: str, measuring: bool, ours: bool) -> None:
        self.path = paths[0] if paths else None
        self.only, self.measuring, self.ours = only, measuring, ours
        self.rows: dict[str, Run] = {}
        for path in reversed(paths):
            if path.exists():
                self.rows.update(json.loads(path.read_text()))

    def measure(self, table: str, title: str, seed: int, run: Callable[[], Run]) -> None:
        """Run a setting with one seed unless that is stored.

        Where only ours is run again, what `run` returns is put over what is stored.
        """
        key = f"{table} | {title} | {seed}"
        if not self.measuring or self.only not in title or (key in self.rows) != self.ours:
            return
        self.rows[key] = {**self.rows.get(key, {}), **run()}
        if self.path is not None:
            fresh = self.path.with_suffix(".new")
            fresh.write_text(json.dumps(self.rows, indent=0))
            fresh.replace(self.path)

    def found(self, table: str, title: str) -> dict[str, Any]:
        """For every method the results (runs, numbers) of all seeds of a setting."""
        runs = [row for key, row in self.rows.items() if key.startswith(f"{table} | {title} | ")]
        names = dict.fromkeys(name for run in runs for name in run)
        return {name: np.array([run[name] for run in runs if name in run]) for name in names}


Table = Callable[[Gathered, Sequence[int]], Iterator[str]]


def median(values: Any) -> float:
    known = [float(value) for value in values if np.isfinite(value)]
    return statistics.median(known) if known else float("nan")


def number(value: float, form: str = ".2f") -> str:
    return format(value, form) if np.isfinite(value) else "-"


def command(
    description: str,
    tables: Mapping[str, Table],
    marker: str | Mapping[str, str],
    warm_up: Callable[[], object],
) -> None:
    """Measure what is asked for and print it; with --write all tables go into the docs.

    They stand between one pair of markers, or each between its own.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("tables", nargs="*", help=f"of {', '.join(tables)}; all by default")
    parser.add_argument("--seeds", type=int, default=10, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", default="", help="part of the name of the settings to run")
    parser.add_argument(
        "--store", type=Path, nargs="+", default=[], help="JSON files: runs go to the first"
    )
    parser.add_argument("--again", action="store_true", help="run ours again for what is stored")
    parser.add_argument("--render", action="store_true", help="only print what is stored")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    options = parser.parse_args()
    for name in options.tables:
        if name not in tables:
            raise SystemExit(f"there is no table {name!r}: choose of {', '.join(tables)}")
    gathered = Gathered(options.store, options.only, not options.render, options.again)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    chosen = options.tables or list(tables)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        if gathered.measuring:
            # The first calls compile: not part of any method's time.
            warm_up()
        for name in chosen:
            for line in tables[name](gathered, seeds):
                print(line, flush=True)
            print(flush=True)
        if options.write:
            gathered.measuring = False
            if isinstance(marker, str):
                put(marker, ["", *_rendered(gathered, tables)])
                return
            for name, own in marker.items():
                lines = [line for line in _rendered(gathered, {name: tables[name]}) if line]
                if lines:
                    put(own, lines)


def _rendered(gathered: Gathered, tables: Mapping[str, Table]) -> Iterator[str]:
    for table in tables.values():
        lines = list(table(gathered, ()))
        # A table of a header alone has no runs.
        if len(lines) > 2:
            yield from [*lines, ""]
