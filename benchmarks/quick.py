"""Did anything get slower? A few minutes: `make bench-quick`, or `python -m benchmarks.quick`.

Every task takes CPU time on one thread. It is divided by a yardstick, plain NumPy and Python work
of about the same mixture that is timed in the same process, in turn with the tasks, so that a slow
or busy machine slows both. The ratio is compared with the one in `quick_reference.json`. `--write`
measures the reference anew: after a change that is meant to cost what it costs, and, as other
processors share their time otherwise, before a change on a machine of another kind.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

import latensor as lt  # noqa: E402

REFERENCE = Path(__file__).with_name("quick_reference.json")
# Slower by more than this is reported. Two runs of the same code after the reference, on a machine
# whose cores were shared, gave .77 to 1.03 times it.
TOLERANCE = 1.5
ROUNDS = 7
# CPU seconds that a timing takes at least: the clock of processes is coarse.
_LEAST = 0.15


def yardstick() -> float:
    """CPU seconds of work that no change of latensor changes."""
    rng = np.random.default_rng(0)
    square, long = rng.normal(size=(300, 300)), rng.normal(size=400_000)
    began = process_time()
    for _ in range(8):
        square = square @ square
        square /= np.abs(square).max()
    np.sort(long)
    np.exp(-long * long).sum()
    total = 0
    for i in range(200_000):
        total += i & 3
    return process_time() - began


def tasks() -> dict[str, Callable[[], Any]]:
    """What is timed: one task for each area, each well below a second."""
    rng = np.random.default_rng(1)
    factors = [rng.normal(size=(d, 8)) for d in (60, 50, 40)]
    dense = lt.CPTensor(np.ones(8), factors).to_dense() + 0.5 * rng.normal(size=(60, 50, 40))
    coordinates = rng.integers(0, (300, 250, 200), size=(60_000, 3))
    sparse = lt.SparseTensor(coordinates, rng.random(60_000), (300, 250, 200))
    matrices = [rng.normal(size=(d, 16)) for d in sparse.shape]
    documents = lt.datasets.make_topics(3000, 800, 10, random_state=0).counts
    clusters = lt.datasets.make_spherical_mixture(4000, 10, 6, random_state=0).samples
    chain = lt.datasets.make_hmm(20_000, 8, 4, random_state=0)
    mixed = lt.datasets.make_ica(8000, 6, 5, random_state=0).samples
    rows = rng.normal(size=(4000, 60))
    pictures, target = rng.normal(size=(300, 12, 12)), rng.normal(size=300)
    observed = rng.random(dense.shape) < 0.3
    return {
        "decompose, dense": lambda: lt.decompose(dense, 8, random_state=0),
        "decompose, observed entries": lambda: lt.decompose(
            dense, 4, mask=observed, random_state=0
        ),
        "mttkrp, sparse": lambda: [lt.mttkrp(sparse, matrices, mode) for mode in range(3)],
        "Tucker": lambda: lt.tucker(dense, 8, random_state=0),
        "topics": lambda: lt.LatentDirichletAllocation(10, random_state=0).fit(documents),
        "Gaussian mixture": lambda: lt.GaussianMixture(6, random_state=0).fit(clusters),
        "spherical mixture": lambda: lt.SphericalGaussianMixture(6, random_state=0).fit(clusters),
        "hidden Markov model": lambda: lt.CategoricalHMM(4, random_state=0).fit(
            chain.X, chain.lengths
        ),
        "independent components": lambda: lt.ICA(5, random_state=0).fit(mixed),
        "PCA": lambda: lt.PCA(10).fit(rows),
        "CP regression": lambda: lt.CPRegressor(2).fit(pictures, target),
    }


def _repeats(task: Callable[[], Any]) -> int:
    """How often a task is run to take `_LEAST` seconds; the first run, which compiles, is free."""
    task()
    began = process_time()
    task()
    return max(1, round(_LEAST / max(process_time() - began, 1e-4)))


def measured(seconds: float) -> dict[str, float]:
    """The median ratio of every task to the yardstick, tasks and yardstick in turn."""
    found: dict[str, list[float]] = {}
    todo = tasks()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        repeats = {name: _repeats(task) for name, task in todo.items()}
        began = process_time()
        for number in range(ROUNDS):
            for name, task in todo.items():
                unit = yardstick()
                start = process_time()
                for _ in range(repeats[name]):
                    task()
                taken = (process_time() - start) / repeats[name]
                unit = (unit + yardstick()) / 2
                found.setdefault(name, []).append(taken / unit)
            if process_time() - began > seconds and number >= 2:
                break
    return {name: median(values) for name, values in found.items()}


def main() -> int:
    """Print the table; 1 if something got slower."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--write", action="store_true", help="store what was measured")
    parser.add_argument("--seconds", type=float, default=200.0, help="CPU seconds at most")
    options = parser.parse_args()
    found = measured(options.seconds)
    if options.write:
        rounded = {name: float(f"{value:.4g}") for name, value in found.items()}
        REFERENCE.write_text(json.dumps(rounded, indent=2) + "\n")
        print(f"written: {REFERENCE.name}")
        return 0
    known = json.loads(REFERENCE.read_text())
    slower = []
    print(f"{'task':32}{'yardsticks':>12}{'reference':>12}{'times':>8}")
    for name, value in found.items():
        before = known.get(name)
        times = float("nan") if before is None else value / before
        print(f"{name:32}{value:12.3g}{before or float('nan'):12.3g}{times:8.2f}")
        if times > TOLERANCE:
            slower.append(name)
    if slower:
        print(f"slower by more than {TOLERANCE}: {', '.join(slower)}")
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
