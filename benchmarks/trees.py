"""Latent trees beside neighbour joining: Robinson-Foulds distance to the truth and CPU time.

    python -m benchmarks.trees [--seeds 3] [--write]

Neighbour joining, a plain version of its own, reads the same log-determinant distances. Columns are
in random order, so that ties help nobody.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.tables import put
from latensor.datasets import make_tree
from latensor.models.trees.affinity import correlation_affinity, logdet_affinity
from latensor.models.trees.joining import (
    balanced_interchange,
    neighbor_joining,
    spectral_neighbor_joining,
)
from latensor.models.trees.model import correlations_of
from latensor.models.trees.sums import PairTables
from latensor.moments.batch import Batch
from latensor.sources import robinson_foulds

# Shape, leaves, rows, model, states, gamma.
SETTINGS = (
    ("balanced", 128, 500, "hky", 4, None),
    ("balanced", 128, 5000, "hky", 4, None),
    ("caterpillar", 64, 2000, "jc", 2, None),
    ("caterpillar", 64, 2000, "general", 4, None),
    ("caterpillar", 64, 5000, "hky", 4, 0.5),
    ("caterpillar", 128, 500, "hky", 4, None),
    ("caterpillar", 128, 5000, "hky", 4, None),
    ("birth", 128, 500, "hky", 4, None),
    ("birth", 128, 5000, "hky", 4, None),
    ("coalescent", 16, 500, "jc", 4, None),
    ("coalescent", 64, 5000, "hky", 4, 0.5),
    ("coalescent", 128, 500, "hky", 4, None),
    ("coalescent", 128, 5000, "hky", 4, None),
    ("random", 128, 500, "hky", 4, None),
    ("random", 128, 2000, "general", 4, None),
    ("caterpillar", 64, 2000, "gaussian", 1, None),
    ("coalescent", 64, 2000, "gaussian", 1, None),
)
METHODS: dict[str, Callable[[Any], Any]] = {
    "NJ": lambda a: neighbor_joining(a.distances),
    "NJ + interchanges": lambda a: balanced_interchange(neighbor_joining(a.distances), a.distances),
    "spectral NJ": lambda a: spectral_neighbor_joining(a.values),
    "latensor": lambda a: balanced_interchange(spectral_neighbor_joining(a.values), a.distances),
}


def affinity(X: Any, model: str, k: int) -> Any:
    if model == "gaussian":
        return correlation_affinity(correlations_of(np.cov(X.T, bias=True)), len(X))
    units = Batch((X.astype(np.int16),), np.ones(len(X)), np.arange(len(X), dtype=np.uint64))
    return logdet_affinity(PairTables(k).update(units).finalize(), k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    lines = [
        "| tree, leaves, rows, model | tables s | " + " | ".join(METHODS) + " |",
        "|---|---|" + "---|" * len(METHODS),
    ]
    for shape, n, rows, model, k, gamma in SETTINGS:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
        tables = []
        for seed in range(options.seeds):
            data = make_tree(
                rows, n, shape=shape, model=model, n_states=k, gamma=gamma, random_state=seed
            )
            start = time.process_time()
            known = affinity(data.X, model, k)
            tables.append(time.process_time() - start)
            for name, method in METHODS.items():
                start = time.process_time()
                tree = method(known)
                seconds = time.process_time() - start
                found[name].append((robinson_foulds(tree, data.tree), seconds))
        cells = [
            f"{np.mean([f for f, _ in each]):.3f}, {np.median([s for _, s in each]):.2f} s"
            for each in found.values()
        ]
        rates = "" if gamma is None else f", gamma {gamma}"
        name = f"{shape} {n}, {rows}, {model}{'' if model == 'gaussian' else f' {k}'}{rates}"
        lines.append(f"| {name} | {np.median(tables):.2f} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    if options.write:
        put("bench-trees", lines)


if __name__ == "__main__":
    main()
