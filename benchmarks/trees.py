"""Latent trees beside neighbour joining: Robinson-Foulds distance to the truth and CPU time.

    python -m benchmarks.trees [binary] [degrees] [--seeds 10] [--first 0] [--rows 0,2,..] [--write]

Neighbour joining (scikit-bio's where it is installed, ours otherwise) reads log-determinant
distances, and those of the rate matrix that ours are taken from; so do spectral neighbour joining
and interchanges. The last column goes on with interchanges by the likelihood under that rate
matrix, as `LatentTree` does. Columns are in random order, so that ties help nobody.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

try:
    from skbio import DistanceMatrix
    from skbio.tree import nj
except ImportError:
    nj = None

from benchmarks.tables import put
from latensor import LatentTree
from latensor.datasets import make_tree
from latensor.models.trees.affinity import correlation_affinity, fitted_lengths, logdet_affinity
from latensor.models.trees.joining import (
    balanced_interchange,
    neighbor_joining,
    spectral_neighbor_joining,
)
from latensor.models.trees.model import correlations_of
from latensor.models.trees.rate_search import interchange_under_rates
from latensor.models.trees.rates import common_rates
from latensor.models.trees.sums import PairTables
from latensor.moments.batch import Batch
from latensor.sources import robinson_foulds
from latensor.sources.newick import parse_newick

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
DEGREES = (
    ("star", 6, "hky"),
    ("star", 16, "hky"),
    ("star", 16, "gaussian"),
    ("multifurcating", 16, "hky"),
    ("multifurcating", 32, "general"),
    ("multifurcating", 16, "gaussian"),
    ("random", 16, "hky"),
    ("random", 32, "general"),
    ("random", 16, "gaussian"),
)


def joined(known: Any, X: Any = None) -> Any:
    """Neighbour joining, scikit-bio's where it is installed."""
    if nj is None:
        return neighbor_joining(known.distances)
    names = [str(i) for i in range(len(known.distances))]
    return parse_newick(str(nj(DistanceMatrix(known.distances, names))), names)[0]


def spectral(known: Any, X: Any = None) -> Any:
    """Spectral neighbour joining, then interchanges."""
    return balanced_interchange(spectral_neighbor_joining(known.values), known.distances)


def likelier(known: Any, X: Any) -> Any:
    """What LatentTree does: then interchanges by the likelihood, where there is a rate matrix."""
    tree = spectral(known)
    if known.rates is None:
        return tree
    tree = replace(tree, length=fitted_lengths(tree, known))
    return interchange_under_rates(tree, X, np.ones(len(X)), known.rates.matrix)[0]


# Columns: a method, and whether it reads log-determinants or what LatentTree reads.
METHODS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "NJ, log-det": (joined, False),
    "spectral NJ + interchanges, log-det": (spectral, False),
    "NJ, our distances": (joined, True),
    "the same, our distances": (spectral, True),
    "latensor": (likelier, True),
}


def affinities(X: Any, model: str, k: int) -> tuple[Any, Any]:
    """By log-determinants (or correlations), and what LatentTree reads."""
    if model == "gaussian":
        known = correlation_affinity(correlations_of(np.cov(X.T, bias=True)), len(X))
        return known, known
    units = Batch((X.astype(np.int16),), np.ones(len(X)), np.arange(len(X), dtype=np.uint64))
    pairs = PairTables(k).update(units).finalize()
    known = logdet_affinity(pairs, k)
    rates = common_rates(pairs, known)
    return known, known if rates is None else rates.affinity(known, pairs)


def binary(seeds: range, chosen: list[int]) -> Iterator[str]:
    """Topologies of binary trees."""
    yield "| tree, leaves, rows, model | tables s | " + " | ".join(METHODS) + " |"
    yield "|---|---|" + "---|" * len(METHODS)
    for shape, n, rows, model, k, gamma in (SETTINGS[place] for place in chosen):
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
        tables = []
        for seed in seeds:
            data = make_tree(
                rows, n, shape=shape, model=model, n_states=k, gamma=gamma, random_state=seed
            )
            start = time.process_time()
            known = affinities(data.X, model, k)
            tables.append(time.process_time() - start)
            X = data.X.astype(np.int16) if model != "gaussian" else data.X
            for name, (method, ours) in METHODS.items():
                start = time.process_time()
                tree = method(known[ours], X)
                seconds = time.process_time() - start
                found[name].append((robinson_foulds(tree, data.tree), seconds))
        cells = [
            f"{np.mean([f for f, _ in each]):.4f}, {np.median([s for _, s in each]):.2f} s"
            for each in found.values()
        ]
        rates = "" if gamma is None else f", gamma {gamma}"
        name = f"{shape} {n}, {rows}, {model}{'' if model == 'gaussian' else f' {k}'}{rates}"
        yield f"| {name} | {np.median(tables):.2f} | " + " | ".join(cells) + " |"


def degrees(seeds: range) -> Iterator[str]:
    """Trees with nodes of any degree: binary ones beside those collapsed at level .05."""
    yield (
        "| tree, leaves, rows, model | binary | collapsed | found exactly | true edges kept | "
        "edges too many | CPU s of both |"
    )
    yield "|---|---|---|---|---|---|---|"
    for shape, n, model in DEGREES:
        for rows in (500, 2000, 10000):
            found = []
            for seed in seeds:
                data = make_tree(rows, n, shape=shape, model=model, random_state=seed)
                trees, start = [], time.process_time()
                for level in (None, 0.05):
                    settings = {"refine": 0, "support": None, "collapse": level}
                    trees.append(LatentTree(**settings).fit(data.X).tree_)
                seconds = time.process_time() - start
                truth, kept = set(data.tree.splits()), set(trees[1].splits())
                each = [robinson_foulds(tree, data.tree) for tree in trees]
                share = len(truth & kept) / len(truth) if truth else np.nan
                found.append((*each, each[1] == 0, share, len(kept - truth), seconds))
            one, other, exact, share, wrong, seconds = np.array(found, dtype=float).T
            told = "" if np.isnan(share).any() else f"{100 * share.mean():.0f} %"
            yield (
                f"| {shape} {n}, {rows}, {model} | {one.mean():.3f} | {other.mean():.3f} | "
                f"{exact.sum():.0f} of {len(seeds)} | {told} | {wrong.sum():.0f} | "
                f"{np.median(seconds):.2f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["binary", "degrees"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--rows", default=",".join(map(str, range(len(SETTINGS)))))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [int(place) for place in options.rows.split(",")]
    seeds = range(options.first, options.first + options.seeds)
    tables = {"binary": lambda: binary(seeds, rows), "degrees": lambda: degrees(seeds)}
    for part in options.parts:
        lines = []
        for line in tables[part]():
            print(line, flush=True)
            lines.append(line)
        if options.write:
            put("bench-trees" if part == "binary" else "bench-trees-degrees", lines)


if __name__ == "__main__":
    main()
