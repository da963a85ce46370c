"""A million planted documents streamed from disk: memory and time of every stage.

    python -m benchmarks.topics_stream
    python -m benchmarks.topics_stream --documents 100000

A UCI bag-of-words file is written to a temporary folder, then a fresh process reads it with
`read_documents`, learns the topics and reports the time of every stage and its peak memory. The
time of only reading the file once stands beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from benchmarks.tables import put  # noqa: E402
from benchmarks.topics_scores import matched_distance  # noqa: E402
from latensor.datasets import PlantedDocuments, write_bag_of_words  # noqa: E402

ROOT = Path(__file__).parent.parent
Say = Callable[[str], None]


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def peak_memory() -> float:
    """The largest resident size that this process has had, in GiB."""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size / 2**30 if sys.platform == "darwin" else size / 2**20


class Stages:
    """A callback that adds up the time of each stage of a fit and notes the peak memory so far.

    Time is counted for the stage that reports at its end; a stage that never reports, like the
    decomposition of a small tensor, is part of the one after it.
    """

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}
        self.last = now()

    def __call__(self, stage: str, fraction: float = 1.0) -> None:
        """Told after every batch of a stage."""
        row = self.rows.setdefault(stage, {"seconds": 0.0, "cpu": 0.0, "memory": 0.0})
        wall, cpu = now()
        row["seconds"] += wall - self.last[0]
        row["cpu"] += cpu - self.last[1]
        row["memory"] = peak_memory()
        self.last = wall, cpu


def learn(path: Path, result: Path, n_components: int) -> None:
    """In a fresh process: read, fit, and write what was found and what it took."""
    from latensor.models import LatentDirichletAllocation
    from latensor.sources import read_documents

    stages = Stages()
    for _ in read_documents(path):
        pass
    stages("reading alone, for comparison")
    model = LatentDirichletAllocation(
        n_components=n_components, random_state=0, n_jobs=-1, callback=stages
    )
    began = now()
    model.fit(read_documents(path))
    stages("after the last batch")
    ended = now()
    np.savez(result.with_suffix(".npz"), topics=model.components_, alpha=model.alpha_)
    total = {"seconds": ended[0] - began[0], "cpu": ended[1] - began[1], "memory": peak_memory()}
    result.write_text(json.dumps({"stages": stages.rows, "total": total}))


def table(report: dict[str, Any]) -> list[str]:
    lines = ["| stage | seconds | CPU seconds | peak so far, GiB |", "|---|---|---|---|"]
    for name, row in [*report["stages"].items(), ("**fit**", report["total"])]:
        lines.append(f"| {name} | {row['seconds']:.1f} | {row['cpu']:.1f} | {row['memory']:.2f} |")
    return lines


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    source = PlantedDocuments(
        options.documents,
        options.words,
        options.topics,
        length=options.length,
        random_state=options.seed,
    )
    path, result = folder / "docword.txt", folder / "report.json"
    began = time.perf_counter()
    write_bag_of_words(path, source)
    writing = time.perf_counter() - began
    command = [sys.executable, "-m", "benchmarks.topics_stream", "--topics", str(options.topics)]
    subprocess.run([*command, "--learn", str(path), str(result)], cwd=ROOT, check=True)
    report = json.loads(result.read_text())
    with np.load(result.with_suffix(".npz")) as found:
        distance = matched_distance(source.topics, found["topics"])
        alpha0 = float(found["alpha"].sum())
    size = path.stat().st_size / 2**30
    return [
        f"{options.documents:,} documents of about {options.length:g} words, V = "
        f"{options.words:,}, k = {options.topics}; a file of {size:.2f} GiB, written in "
        f"{writing:.0f} s. Matched L1 to the truth {distance:.3f}, sum of alpha {alpha0:.2f} "
        f"(true {source.alpha.sum():g}).",
        "",
        *table(report),
    ]


def main(say: Say = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument("--length", type=float, default=100.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the file goes; temporary without")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    parser.add_argument("--learn", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.learn:
        learn(*options.learn, options.topics)
        return
    with tempfile.TemporaryDirectory(prefix="bench-stream-", dir=options.folder) as place:
        lines = run(options, Path(place))
    say("\n".join(lines))
    if options.write:
        put("bench-topics-stream", ["", *lines, ""])


if __name__ == "__main__":
    main()
