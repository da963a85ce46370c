"""Communities beside regularized spectral clustering and scikit-learn's: memberships and labels.

    python -m benchmarks.graphs [planted] [real] [--seeds 10] [--first 0] [--rows 0,2,..]
        [--write]

Planted networks: half the mean absolute difference of memberships after matching, and CPU seconds;
labels of the peers are memberships of one community. "The rest known" is what no estimate can beat:
medians of the posterior of a node's memberships, given those of all others and all rates. Real
networks: the adjusted Rand index of the
labels at the number of labelled groups, on the largest connected component, read from the folder
that LATENSOR_DATA names and skipped without it.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import eigsh
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.metrics import adjusted_rand_score

import latensor as lt
from benchmarks.tables import put

SETTINGS = (
    (2000, 5, 0.0, 40),
    (2000, 5, 0.5, 40),
    (2000, 5, 1.0, 100),
    (5000, 5, 0.5, 100),
    (5000, 10, 0.5, 100),
    (20000, 10, 0.5, 100),
)
NETWORKS = ("karate", "football", "polbooks", "polblogs", "adjnoun", "ukfaculty")
# Above this scikit-learn's takes a minute a network: it is run on so many, and on none above more.
MOST_NODES, FEW, FEWER_NODES = 2000, 2, 5000
# Draws of the prior, and nodes, from which the smallest possible error is estimated.
_DRAWS, _NODES = 20_000, 200


def regularized(adjacency: Any, k: int, seed: int = 0) -> Any:
    """Regularized spectral clustering (Qin and Rohe 2013)."""
    degrees = np.asarray(adjacency.sum(axis=1)).ravel()
    scale = 1 / np.sqrt(degrees + degrees.mean())
    matrix = scipy.sparse.csr_array(adjacency * scale[:, None] * scale[None])
    start = np.random.default_rng(seed).standard_normal(len(degrees))
    vectors = eigsh(matrix, k=k, which="LA", v0=start)[1]
    rows = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return KMeans(k, n_init=10, random_state=seed).fit_predict(rows)


def peer(adjacency: Any, k: int, seed: int = 0) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dense = adjacency.toarray() if adjacency.shape[0] < 1000 else adjacency
        if scipy.sparse.issparse(dense):
            dense = scipy.sparse.csr_matrix(dense)
        return SpectralClustering(k, affinity="precomputed", random_state=seed).fit_predict(dense)


def ours(adjacency: Any, k: int, seed: int = 0, alpha0: float = 0.5) -> Any:
    return lt.MixedMembershipBlockModel(k, alpha0=alpha0, random_state=seed).fit(adjacency)


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.process_time()
    return call(*arguments), time.process_time() - start


def error(found: Any, truth: Any) -> float:
    gaps = np.abs(found[:, :, None] - truth[:, None, :]).sum(axis=0)
    rows, columns = linear_sum_assignment(gaps)
    return float(np.abs(found[:, rows] - truth[:, columns]).sum(axis=1).mean() / 2)


def limit(data: Any, alpha0: float, seed: int) -> float:
    """The smallest expected error of a node's memberships, all others and all rates being known.

    Posterior medians of every membership, which need not sum to one, from draws of the prior.
    """
    rng, k = np.random.default_rng(seed), data.membership.shape[1]
    draws = rng.dirichlet(np.full(k, alpha0 / k), _DRAWS) if alpha0 else np.eye(k)
    rates = data.membership @ data.block
    logs = data.adjacency[:_NODES] @ np.log(np.maximum(draws @ rates.T, 1e-300)).T
    logs -= draws @ rates.sum(axis=0)
    chances = np.exp(logs - logs.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    total = 0.0
    for j in range(k):
        order = np.argsort(draws[:, j])
        passed = np.cumsum(chances[:, order], axis=1) >= 0.5
        medians = draws[order[np.argmax(passed, axis=1)], j]
        total += np.abs(medians - data.membership[:_NODES, j]).sum()
    return total / (2 * _NODES)


def planted(seeds: range, chosen: list[int]) -> Iterator[str]:
    yield (
        "| nodes, k, alpha0, degree | latensor | latensor, alpha0=0.5 | regularized spectral | "
        "scikit-learn | the rest known |"
    )
    yield "|---|---|---|---|---|---|"
    for n, k, alpha0, degree in (SETTINGS[place] for place in chosen):
        names = ("ours", "default", "regularized", "sklearn", "limit")
        cells: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        for seed in seeds:
            data = lt.datasets.make_block_model(
                n, k, alpha0=alpha0, degree=degree, random_state=seed
            )
            for name, given in (("ours", alpha0), ("default", 0.5)):
                if name == "default" and alpha0 == given:
                    cells[name].append(cells["ours"][-1])
                    continue
                model, seconds = timed(ours, data.adjacency, k, seed, given)
                cells[name].append((error(model.membership_, data.membership), seconds))
            peers = {"regularized": regularized}
            if n <= MOST_NODES or (n <= FEWER_NODES and seed < seeds[0] + FEW):
                peers["sklearn"] = peer
            if n <= MOST_NODES:
                cells["limit"].append((limit(data, alpha0, seed), 0.0))
            for name, call in peers.items():
                labels, seconds = timed(call, data.adjacency, k, seed)
                cells[name].append((error(np.eye(k)[labels], data.membership), seconds))
        shown = [
            f"{np.mean([e for e, _ in each]):.3f}"
            + ("" if name == "limit" else f", {np.median([s for _, s in each]):.1f} s")
            + ("" if len(each) == len(seeds) else f" ({len(each)})")
            if each
            else "not run"
            for name, each in cells.items()
        ]
        yield f"| {n}, {k}, {alpha0:g}, {degree} | " + " | ".join(shown) + " |"


def real_networks(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    for name in NETWORKS:
        place = folder / f"graph_{name}"
        with gzip.open(place / "edges.csv.gz", "rt") as stream:
            edges = np.array([line.split(",")[:2] for line in stream][1:], dtype=np.int64)
        words = (place / "labels.txt").read_text().strip().splitlines()
        labels = np.unique(words, return_inverse=True)[1]
        n = len(labels)
        matrix = scipy.sparse.csr_array((np.ones(len(edges)), edges.T), shape=(n, n))
        matrix = scipy.sparse.csr_array(((matrix + matrix.T) > 0).astype(float))
        pieces = connected_components(matrix)[1]
        keep = np.flatnonzero(pieces == np.bincount(pieces).argmax())
        yield name, matrix[keep][:, keep], labels[keep]


def real(folder: Path) -> Iterator[str]:
    yield "| network, nodes, k | latensor | start | regularized spectral | scikit-learn |"
    yield "|---|---|---|---|---|"
    for name, matrix, labels in real_networks(folder):
        k = len(np.unique(labels))
        model = ours(matrix, k)
        found = [model.labels_, regularized(matrix, k), peer(matrix, k)]
        scores = [f"{adjusted_rand_score(labels, each):.3f}" for each in found]
        yield (
            f"| {name}, {matrix.shape[0]}, {k} | {scores[0]} | {model.certificate_.method} | "
            f"{scores[1]} | {scores[2]} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=["planted", "real"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the first of the seeds")
    parser.add_argument("--rows", default=",".join(map(str, range(len(SETTINGS)))))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    data = os.environ.get("LATENSOR_DATA")
    seeds = range(options.first, options.first + options.seeds)
    rows = [int(place) for place in options.rows.split(",")]
    tables = {"planted": lambda: planted(seeds, rows)}
    if data:
        tables["real"] = lambda: real(Path(data))
    for part in options.parts:
        if part in tables:
            lines = []
            for line in tables[part]():
                print(line, flush=True)
                lines.append(line)
            if options.write:
                put(f"bench-graphs-{part}", lines)


if __name__ == "__main__":
    main()
