"""Communities beside regularized spectral clustering and scikit-learn's: memberships and labels.

    python -m benchmarks.graphs [planted] [real] [--seeds 10] [--write]

Planted networks: half the mean absolute difference of memberships after matching, and CPU seconds;
labels of the peers are memberships of one community. Real networks: the adjusted Rand index of the
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
# scikit-learn's takes minutes above this.
MOST_NODES = 2000


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


def ours(adjacency: Any, k: int, seed: int = 0) -> Any:
    return lt.MixedMembershipBlockModel(k, random_state=seed).fit(adjacency)


def timed(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    start = time.process_time()
    return call(*arguments), time.process_time() - start


def error(found: Any, truth: Any) -> float:
    gaps = np.abs(found[:, :, None] - truth[:, None, :]).sum(axis=0)
    rows, columns = linear_sum_assignment(gaps)
    return float(np.abs(found[:, rows] - truth[:, columns]).sum(axis=1).mean() / 2)


def planted(n_seeds: int) -> Iterator[str]:
    yield "| nodes, k, alpha0, degree | latensor | regularized spectral | scikit-learn |"
    yield "|---|---|---|---|"
    for n, k, alpha0, degree in SETTINGS:
        cells: dict[str, list[tuple[float, float]]] = {"ours": [], "regularized": [], "sklearn": []}
        for seed in range(n_seeds):
            data = lt.datasets.make_block_model(
                n, k, alpha0=alpha0, degree=degree, random_state=seed
            )
            model, seconds = timed(ours, data.adjacency, k, seed)
            cells["ours"].append((error(model.membership_, data.membership), seconds))
            peers = {"regularized": regularized}
            if n <= MOST_NODES:
                peers["sklearn"] = peer
            for name, call in peers.items():
                labels, seconds = timed(call, data.adjacency, k, seed)
                cells[name].append((error(np.eye(k)[labels], data.membership), seconds))
        shown = [
            f"{np.mean([e for e, _ in each]):.3f}, {np.median([s for _, s in each]):.1f} s"
            if each
            else "not run"
            for each in cells.values()
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
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    data = os.environ.get("LATENSOR_DATA")
    tables = {"planted": lambda: planted(options.seeds)}
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
