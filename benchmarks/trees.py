"""Latent trees beside neighbour joining: Robinson-Foulds distance to the truth and CPU time.

    python -m benchmarks.trees [binary] [degrees] [supports] [--seeds 10] [--first 0]
        [--rows 0,2,..] [--write]

Neighbour joining (scikit-bio's where it is installed, ours otherwise) and spectral neighbour
joining with interchanges read log-determinant distances. `LatentTree` takes those of one rate
matrix where pairs agree with it, and goes on with interchanges by the likelihood under it. The
columns of the data are in random order, so that ties help nobody.
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
from latensor.models.trees.model import GaussianTreeModel, correlations_of
from latensor.models.trees.rate_search import interchange_under_rates
from latensor.models.trees.rates import common_rates
from latensor.models.trees.sums import PairTables
from latensor.moments.batch import Batch
from latensor.moments.row_sums import CovarianceSums
from latensor.sources import robinson_foulds
from latensor.sources.newick import parse_newick

# Shape, leaves, rows, model, states, gamma; what a prototype had on draws of its own (three to six
# a row) by neighbour joining, and by spectral neighbour joining with interchanges.
SETTINGS = (
    ("balanced", 128, 500, "hky", 4, None, 0.104, 0.059),
    ("balanced", 128, 5000, "hky", 4, None, 0.011, 0.003),
    ("caterpillar", 64, 2000, "jc", 2, None, 0.798, 0.000),
    ("caterpillar", 64, 2000, "general", 4, None, 0.798, 0.000),
    ("caterpillar", 64, 5000, "hky", 4, 0.5, 0.563, 0.005),
    ("caterpillar", 128, 500, "hky", 4, None, 0.928, 0.000),
    ("caterpillar", 128, 5000, "hky", 4, None, 0.904, 0.000),
    ("birth", 128, 500, "hky", 4, None, 0.107, 0.080),
    ("birth", 128, 5000, "hky", 4, None, 0.032, 0.024),
    ("coalescent", 16, 500, "jc", 4, None, 0.154, 0.128),
    ("coalescent", 64, 5000, "hky", 4, 0.5, 0.027, 0.016),
    ("coalescent", 128, 500, "hky", 4, None, 0.283, 0.253),
    ("coalescent", 128, 5000, "hky", 4, None, 0.056, 0.027),
    ("random", 128, 500, "hky", 4, None, 0.085, 0.021),
    ("random", 128, 2000, "general", 4, None, 0.024, 0.000),
    ("caterpillar", 64, 2000, "gaussian", 1, None, 0.831, 0.005),
    ("coalescent", 64, 2000, "gaussian", 1, None, 0.049, 0.027),
)
# Shape, leaves, rows, model of trees whose edges' support is compared with their truth.
SUPPORTS = (
    ("coalescent", 32, 500, "hky"),
    ("coalescent", 32, 1000, "hky"),
    ("birth", 64, 500, "hky"),
    ("coalescent", 32, 1000, "general"),
    ("coalescent", 32, 500, "gaussian"),
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
    """What LatentTree does: then interchanges by the likelihood, unless tables are general."""
    tree = spectral(known)
    if X.dtype.kind == "f":
        names = tuple(map(str, range(X.shape[1])))
        model = GaussianTreeModel("auto", "auto", None, None, names, "auto", 200, 1e-6)
        units = Batch((X,), np.ones(len(X)), np.arange(len(X), dtype=np.uint64))
        return model.likelier_tree(tree, CovarianceSums(X.mean(axis=0)).update(units), known)[0]
    if known.rates is None:
        return tree
    tree = replace(tree, length=fitted_lengths(tree, known))
    return interchange_under_rates(tree, X, np.ones(len(X)), known.rates.matrix)[0]


# Columns: a method, and whether it reads log-determinants or what LatentTree reads.
METHODS: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "NJ": (joined, False),
    "spectral NJ + interchanges": (spectral, False),
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
    """Topologies of binary trees: means and standard errors, and median CPU seconds of ours."""
    head = "| tree, leaves, rows, model | prototype: NJ | prototype | "
    yield head + " | ".join(METHODS) + " | CPU s |"
    yield "|---|---|---|" + "---|" * (len(METHODS) + 1)
    for shape, n, rows, model, k, gamma, *prototype in (SETTINGS[place] for place in chosen):
        found: dict[str, list[float]] = {name: [] for name in METHODS}
        seconds = []
        for seed in seeds:
            data = make_tree(
                rows, n, shape=shape, model=model, n_states=k, gamma=gamma, random_state=seed
            )
            start = time.process_time()
            known = affinities(data.X, model, k)
            tables = time.process_time() - start
            X = data.X.astype(np.int16) if model != "gaussian" else data.X
            for name, (method, ours) in METHODS.items():
                start = time.process_time()
                tree = method(known[ours], X)
                last = time.process_time() - start
                found[name].append(robinson_foulds(tree, data.tree))
            seconds.append(tables + last)
        error = np.sqrt(max(len(seeds) - 1, 1))
        cells = [f"{np.mean(each):.4f} ± {np.std(each) / error:.4f}" for each in found.values()]
        rates = "" if gamma is None else f", gamma {gamma}"
        name = f"{shape} {n}, {rows}, {model}{'' if model == 'gaussian' else f' {k}'}{rates}"
        before = " | ".join(f"{value:.3f}" for value in prototype)
        yield f"| {name} | {before} | " + " | ".join(cells) + f" | {np.median(seconds):.2f} |"


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


def judged_support(values: Any, right: Any) -> str:
    """Area under the curve, Brier score and edges of support .95, and how many of them are right.

    Of inner edges with their support; two edges of one support count as half ordered.
    """
    gaps = values[right][:, None] - values[~right][None]
    area = f"{((gaps > 0) + 0.5 * (gaps == 0)).mean():.3f}" if gaps.size else "-"
    sure = values >= 0.95
    found = f"{sure.sum()}: {right[sure].mean():.3f}" if sure.any() else "0"
    return f"{area}, {((values - right) ** 2).mean():.3f}, {found}"


def supports(seeds: range) -> Iterator[str]:
    """How far the support of inner edges can be believed."""
    kinds = {
        "local, distances": {"interchange": "distance"},
        "local": {},
        "... of edges that the likelihood made": {},
        "bootstrap": {"support": "bootstrap"},
    }
    yield "| tree, leaves, rows, model | edges, wrong | " + " | ".join(kinds) + " |"
    yield "|---|---|" + "---|" * len(kinds)
    for shape, n, rows, model in SUPPORTS:
        found: dict[str, list[tuple[float, bool]]] = {name: [] for name in kinds}
        for seed in seeds:
            data = make_tree(rows, n, shape=shape, model=model, random_state=seed)
            truth, before = set(data.tree.splits()), set()
            for name, settings in kinds.items():
                if name.startswith("..."):
                    continue
                tree = LatentTree(random_state=0, **settings).fit(data.X).tree_
                edges = {key: float(tree.support[v]) for key, v in tree.splits().items()}
                found[name] += [(value, key in truth) for key, value in edges.items()]
                if name == "local, distances":
                    before = set(edges)
                elif name == "local":
                    made = edges.keys() - before
                    found["... of edges that the likelihood made"] += [
                        (edges[key], key in truth) for key in made
                    ]
        cells = []
        for pairs in found.values():
            values, right = (
                (np.array(each) for each in zip(*pairs, strict=True))
                if pairs
                else (
                    np.zeros(0),
                    np.zeros(0, bool),
                )
            )
            cells.append(judged_support(values, right) if len(values) else "none")
        every = np.array([right for _, right in found["local"]])
        yield (
            f"| {shape} {n}, {rows}, {model} | {len(every)}, {(~every).sum()} | "
            + " | ".join(cells)
            + " |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["binary", "degrees", "supports"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--rows", default=",".join(map(str, range(len(SETTINGS)))))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = [int(place) for place in options.rows.split(",")]
    seeds = range(options.first, options.first + options.seeds)
    tables = {
        "binary": lambda: binary(seeds, rows),
        "degrees": lambda: degrees(seeds),
        "supports": lambda: supports(seeds),
    }
    for part in options.parts:
        lines = []
        for line in tables[part]():
            print(line, flush=True)
            lines.append(line)
        if options.write:
            put("bench-trees" if part == "binary" else f"bench-trees-{part}", lines)


if __name__ == "__main__":
    main()
