"""PCA and CCA beside scikit-learn: process CPU time and quality in one run, one BLAS thread.

Run with `python -m benchmarks.matrices`; it prints two Markdown tables. Quality is measured
against the exact solution in double precision: for PCA the fraction of the variance that the
components miss, relative to the best possible (0 is optimal), for CCA the sum of the canonical
correlations of the scores.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse
from sklearn import cross_decomposition, decomposition
from threadpoolctl import threadpool_limits

from latensor.models.matrices.cca import CCA
from latensor.models.matrices.pca import PCA

SEEDS = (0, 1, 2)


def measure(run: Callable[[], Any]) -> tuple[float, Any]:
    """Process CPU seconds (the best of two runs, unless one is long) and the result."""
    best = np.inf
    for _ in range(2):
        start = time.process_time()
        result = run()
        best = min(best, time.process_time() - start)
        if best > 2:
            break
    return best, result


def spiked(
    rng: np.random.Generator, n_samples: int, n_features: int, rank: int, noise: float
) -> Any:
    scales = np.linspace(3.0, 1.0, rank)
    axes = np.linalg.qr(rng.standard_normal((n_features, rank)))[0]
    scores = rng.standard_normal((n_samples, rank)) * scales
    return 1.0 + scores @ axes.T + noise * rng.standard_normal((n_samples, n_features))


def documents(rng: np.random.Generator, n_samples: int, n_features: int, rank: int) -> Any:
    topics = rng.dirichlet(np.full(n_features, 0.02), rank)
    mixture = rng.dirichlet(np.full(rank, 0.1), n_samples)
    lengths = rng.poisson(100, n_samples)
    chosen = np.array([rng.multinomial(n, p) for n, p in zip(lengths, mixture, strict=True)])
    words = np.concatenate(
        [
            rng.choice(n_features, size=count, p=topics[topic])
            for topic, count in enumerate(chosen.sum(axis=0))
        ]
    )
    owners = np.concatenate([np.repeat(np.arange(n_samples), chosen[:, t]) for t in range(rank)])
    data = np.ones(len(words))
    return scipy.sparse.csr_array((data, (owners, words)), shape=(n_samples, n_features))


def missed_variance(data: Any, components: Any, best: float) -> float:
    """How much less variance orthonormal components explain than the best, relative to it."""
    mean = data.mean(axis=0)
    basis = np.linalg.qr(np.asarray(components, dtype=float).T)[0]
    scores = data @ basis - mean @ basis
    return 1 - float((scores**2).sum()) / scores.shape[0] / best


def best_variance(data: Any, rank: int) -> float:
    if scipy.sparse.issparse(data):
        exact = PCA(rank, random_state=0).fit(data)
        return float(exact.explained_variance_.sum()) * (data.shape[0] - 1) / data.shape[0]
    centered = data - data.mean(axis=0)
    values = np.linalg.svd(centered, compute_uv=False)[:rank]
    return float((values**2).sum()) / data.shape[0]


def stream(model: Any, data: Any, size: int) -> Any:
    for start in range(0, data.shape[0], size):
        model.partial_fit(data[start : start + size])
    model.components_  # noqa: B018  (ours is lazy: ask, so that both have done all the work)
    return model


def principal_problems() -> Iterator[tuple[str, Callable[[np.random.Generator], Any], int]]:
    yield "dense 20000 x 100, k 10", lambda rng: spiked(rng, 20_000, 100, 10, 0.5), 10
    yield "dense 3000 x 1000, k 10", lambda rng: spiked(rng, 3_000, 1_000, 10, 0.5), 10
    yield "dense 1000 x 5000, k 20", lambda rng: spiked(rng, 1_000, 5_000, 20, 0.5), 20
    yield "dense 3000 x 2000, k 10", lambda rng: spiked(rng, 3_000, 2_000, 10, 0.3), 10
    yield "pure noise 3000 x 1000, k 10", lambda rng: rng.standard_normal((3_000, 1_000)), 10
    yield "sparse 5000 x 10000, k 20", lambda rng: documents(rng, 5_000, 10_000, 20), 20


def principal_candidates(sparse: bool, rank: int, shape: tuple[int, int]) -> dict[str, Any]:
    candidates = {
        "latensor": lambda data: PCA(rank, random_state=0).fit(data),
        "sklearn auto": lambda data: decomposition.PCA(rank, random_state=0).fit(data),
    }
    if sparse:
        candidates["sklearn TruncatedSVD (not centred)"] = lambda data: decomposition.TruncatedSVD(
            rank, random_state=0
        ).fit(data)
        return candidates
    candidates["sklearn full"] = lambda data: decomposition.PCA(rank, svd_solver="full").fit(data)
    candidates["sklearn randomized"] = lambda data: decomposition.PCA(
        rank, svd_solver="randomized", random_state=0
    ).fit(data)
    if shape[1] <= 1000:
        candidates["latensor partial_fit"] = lambda data: stream(PCA(rank), data, 500)
        candidates["sklearn IncrementalPCA"] = lambda data: stream(
            decomposition.IncrementalPCA(rank), data, 500
        )
    return candidates


def principal_table() -> Iterator[str]:
    yield from [
        "| PCA problem | method | CPU s (median) | times ours | variance missed (worst) |",
        "|---|---|---|---|---|",
    ]
    for title, build, rank in principal_problems():
        times: dict[str, list[float]] = {}
        missed: dict[str, list[float]] = {}
        for seed in SEEDS:
            data = build(np.random.default_rng(seed))
            best = best_variance(data, rank)
            for name, fit in principal_candidates(
                scipy.sparse.issparse(data), rank, data.shape
            ).items():
                seconds, model = measure(lambda fit=fit, data=data: fit(data))
                times.setdefault(name, []).append(seconds)
                missed.setdefault(name, []).append(missed_variance(data, model.components_, best))
        ours = np.median(times["latensor"])
        yield from [
            f"| {title} | {name} | {np.median(spent):.3f} | {np.median(spent) / ours:.1f} "
            f"| {max(max(missed[name]), 0.0):.1e} |"
            for name, spent in times.items()
        ]


def two_views(rng: np.random.Generator, n_samples: int, sizes: tuple[int, int], rank: int) -> Any:
    shared = rng.standard_normal((n_samples, rank)) * np.linspace(1.5, 0.7, rank)
    return [
        shared @ rng.standard_normal((rank, size)) / np.sqrt(rank)
        + rng.standard_normal((n_samples, size)) @ rng.standard_normal((size, size)) / np.sqrt(size)
        for size in sizes
    ]


def correlation_table() -> Iterator[str]:
    yield from [
        "| CCA problem | method | CPU s (median) | times ours | sum of correlations (median) |",
        "|---|---|---|---|---|",
    ]
    problems = [
        ("5000 x (50, 40), k 5", 5_000, (50, 40), 5),
        ("10000 x (80, 80), k 5", 10_000, (80, 80), 5),
        ("3000 x (300, 200), k 5", 3_000, (300, 200), 5),
    ]
    for title, n_samples, sizes, rank in problems:
        times: dict[str, list[float]] = {}
        sums: dict[str, list[float]] = {}
        for seed in SEEDS:
            x, y = two_views(np.random.default_rng(seed), n_samples, sizes, rank)
            candidates = {
                "latensor": CCA(rank),
                "sklearn defaults": cross_decomposition.CCA(rank),
                "sklearn to convergence": cross_decomposition.CCA(rank, max_iter=2000, tol=1e-10),
            }
            for name, model in candidates.items():
                seconds, fitted = measure(lambda model=model, x=x, y=y: model.fit(x, y))
                scores = fitted.transform(x, y)
                correlations = [
                    abs(np.corrcoef(a, b)[0, 1])
                    for a, b in zip(*(s.T for s in scores), strict=True)
                ]
                times.setdefault(name, []).append(seconds)
                sums.setdefault(name, []).append(float(np.sum(correlations)))
        ours = np.median(times["latensor"])
        yield from [
            f"| {title} | {name} | {np.median(spent):.3f} | {np.median(spent) / ours:.1f} "
            f"| {np.median(sums[name]):.6f} |"
            for name, spent in times.items()
        ]


def main() -> None:
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for line in itertools.chain(principal_table(), [""], correlation_table()):
            print(line, flush=True)


if __name__ == "__main__":
    main()
