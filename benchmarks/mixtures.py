"""Gaussian mixtures beside scikit-learn and beside EM started at the truth, in one run.

Run with `python -m benchmarks.mixtures [planted] [large] [real] [views]`; it prints Markdown
tables. "Gap" is the held-out log-likelihood per sample of EM started at the true parameters, less
that of the method; a run fails if it is above 0.01. Time is process CPU time, one thread each.
Real data is read from the folder that LATENSOR_DATA names.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from latensor.datasets.mixtures import (
    MixtureSample,
    make_diagonal_mixture,
    make_multi_view,
    make_spherical_mixture,
)
from latensor.exceptions import NotIdentifiableError
from latensor.models.diagonal_mixture import DiagonalGaussianMixture
from latensor.models.multi_view_mixture import MultiViewMixture
from latensor.models.spherical_mixture import SphericalGaussianMixture

SEEDS = tuple(range(int(os.environ.get("LATENSOR_SEEDS", "10"))))
FAILED = 0.01


def timed(run: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    start = time.process_time()
    result = run(*arguments)
    return time.process_time() - start, result


def oracle(planted: MixtureSample, kind: str) -> Any:
    """EM started at the truth, to convergence."""
    peer = GaussianMixture(
        len(planted.weights),
        covariance_type=kind,
        tol=1e-7,
        max_iter=1000,
        weights_init=planted.weights,
        means_init=planted.means,
        precisions_init=1 / planted.variances,
    )
    return peer.fit(planted.samples)


def peer_of(count: int, kind: str, seed: int, n_init: int) -> Any:
    return GaussianMixture(count, covariance_type=kind, n_init=n_init, random_state=seed)


Setting = tuple[str, Callable[[int], MixtureSample], str, tuple[int, ...]]


def spherical(k: int, d: int, n: int, sep: float, rank: int | None = None) -> Setting:
    title = f"spherical k {k}, d {d}, n {n}, sep {sep:g}" + (
        f", affine rank {rank}" if rank else ""
    )
    return (
        title,
        lambda seed: make_spherical_mixture(
            n, d, k, separation=sep, affine_rank=rank, random_state=seed
        ),
        "spherical",
        (1, 10) if k <= 20 else (1,),
    )


def diagonal(k: int, d: int, n: int, sep: float) -> Setting:
    return (
        f"diagonal k {k}, d {d}, n {n}, sep {sep:g}",
        lambda seed: make_diagonal_mixture(n, d, k, separation=sep, random_state=seed),
        "diag",
        (1, 10) if k <= 10 else (1,),
    )


def settings() -> list[Setting]:
    return [
        spherical(10, 20, 10_000, 4),
        spherical(10, 50, 20_000, 2.5),
        spherical(20, 30, 20_000, 5),
        spherical(20, 50, 2_000, 5),
        spherical(30, 50, 20_000, 6),
        spherical(20, 50, 20_000, 4, 10),
        spherical(8, 20, 10_000, 4, 3),
        spherical(10, 5, 10_000, 4),
        spherical(20, 10, 20_000, 4),
        spherical(20, 2, 20_000, 4),
        spherical(50, 60, 20_000, 6),
        diagonal(5, 30, 2_000, 4),
        diagonal(10, 30, 20_000, 4),
        diagonal(20, 100, 20_000, 6),
        diagonal(5, 8, 20_000, 4),
        diagonal(10, 14, 20_000, 5),
    ]


def ours_of(kind: str, count: int, seed: int, **more: Any) -> Any:
    model = SphericalGaussianMixture if kind == "spherical" else DiagonalGaussianMixture
    return model(count, random_state=seed, n_jobs=1, **more)


def planted_table() -> Iterator[str]:
    yield "| setting | method | fails | median gap | worst gap | CPU s (median) | times ours |"
    yield "|---|---|---|---|---|---|---|"
    for title, build, kind, n_inits in settings():
        gaps: dict[str, list[float]] = {}
        times: dict[str, list[float]] = {}
        for seed in SEEDS:
            planted = build(seed)
            held_out = planted.draw(20_000, seed + 1000)[0]
            best = oracle(planted, kind).score(held_out)
            count = len(planted.weights)
            rivals = {"latensor": ours_of(kind, count, seed)}
            for n_init in n_inits:
                if n_init == 1 or seed < 5:
                    rivals[f"sklearn n_init {n_init}"] = peer_of(count, kind, seed, n_init)
            for name, model in rivals.items():
                seconds, fitted = timed(model.fit, planted.samples)
                gaps.setdefault(name, []).append(best - fitted.score(held_out))
                times.setdefault(name, []).append(seconds)
        yield from rows(title, gaps, times)


def rows(title: str, gaps: dict[str, list[float]], times: dict[str, list[float]]) -> Iterator[str]:
    first = float(np.median(next(iter(times.values()))))
    for name, found in gaps.items():
        seconds = float(np.median(times[name]))
        fails = sum(gap > FAILED for gap in found)
        yield (
            f"| {title} | {name} | {fails}/{len(found)} | {np.median(found):.4f} "
            f"| {max(found):.4f} | {seconds:.2f} | {seconds / first:.1f} |"
        )


def large_table() -> Iterator[str]:
    yield "| n = 1,000,000 | method | gap | CPU s | times ours |"
    yield "|---|---|---|---|---|"
    for k, d, sep in ((10, 20, 4.0), (5, 10, 4.0)):
        planted = make_spherical_mixture(1_000_000, d, k, separation=sep, random_state=0)
        held_out = planted.draw(20_000, 1000)[0]
        best = oracle(planted, "spherical").score(held_out)
        ours_of("spherical", k, 0).fit(planted.samples[:5000])
        rivals = {
            "latensor": ours_of("spherical", k, 0),
            "latensor refine=0": ours_of("spherical", k, 0, refine=0),
            "sklearn n_init 1": peer_of(k, "spherical", 0, 1),
        }
        ours = None
        for name, model in rivals.items():
            seconds, fitted = timed(model.fit, planted.samples)
            ours = ours or seconds
            gap = best - fitted.score(held_out)
            yield (
                f"| k {k}, d {d}, sep {sep:g} | {name} | {gap:.4f} | {seconds:.2f} "
                f"| {seconds / ours:.1f} |"
            )


def data_folder() -> Path:
    folder = os.environ.get("LATENSOR_DATA")
    if not folder:
        raise SystemExit("set LATENSOR_DATA to the folder of the real data sets")
    return Path(folder)


def real_sets() -> Iterator[tuple[str, Any, Any, int]]:
    folder = data_folder()
    pen = np.load(folder / "gmm_pendigits" / "pendigits_train.npz", allow_pickle=False)
    yield "pendigits, k 10", pen["X"].astype(float), pen["y"], 10
    mnist = np.load(folder / "gmm_mnist5k" / "mnist5k.npz", allow_pickle=False)
    images = mnist["images"].reshape(len(mnist["labels"]), -1) / 255
    scores = PCA(40, random_state=0).fit_transform(images)
    yield "MNIST 5k, PCA 40, k 10", scores, mnist["labels"], 10
    for name, count, labelled in (
        ("GvHD_control", 8, False),
        ("GvHD_pos", 8, False),
        ("banknote", 2, True),
        ("diabetes", 3, True),
        ("thyroid", 3, True),
    ):
        table = np.genfromtxt(
            folder / "gmm_mclust_sets" / f"{name}.csv", delimiter=",", skip_header=1, dtype=str
        )
        table = np.char.strip(table, '"')
        numeric = [c for c in range(table.shape[1]) if _is_numeric(table[:, c])]
        text = [c for c in range(table.shape[1]) if c not in numeric]
        values = table[:, numeric].astype(float)
        # A running index or a mclust row name is no feature.
        values = values[:, [not np.array_equal(v, np.arange(1, len(v) + 1)) for v in values.T]]
        values = (values - values.mean(axis=0)) / values.std(axis=0)
        labels = table[:, text[-1]] if labelled and text else None
        yield f"{name}, k {count}", values, labels, count


def _is_numeric(column: Any) -> bool:
    try:
        column.astype(float)
    except ValueError:
        return False
    return True


def real_table() -> Iterator[str]:
    yield "| data | covariance | method | held-out log-likelihood (median, range) | ARI | CPU s |"
    yield "|---|---|---|---|---|---|"
    for title, samples, labels, count in real_sets():
        for kind in ("spherical", "diag"):
            found: dict[str, list[tuple[float, float, float]]] = {}
            for seed in SEEDS[:5]:
                order = np.random.default_rng(seed).permutation(len(samples))
                train, test = order[: 3 * len(order) // 4], order[3 * len(order) // 4 :]
                rivals = {
                    "latensor": ours_of(kind, count, seed),
                    "sklearn n_init 1": peer_of(count, kind, seed, 1),
                    "sklearn n_init 10": peer_of(count, kind, seed, 10),
                }
                for name, model in rivals.items():
                    seconds, fitted = timed(model.fit, samples[train])
                    ari = np.nan
                    if labels is not None:
                        ari = adjusted_rand_score(labels[test], fitted.predict(samples[test]))
                    found.setdefault(name, []).append((fitted.score(samples[test]), ari, seconds))
            for name, results in found.items():
                scores, aris, seconds = (np.array(column) for column in zip(*results, strict=True))
                yield (
                    f"| {title} | {kind} | {name} | {np.median(scores):.3f} ({scores.min():.3f} .. "
                    f"{scores.max():.3f}) | {np.median(aris):.2f} | {np.median(seconds):.2f} |"
                )


def real_views() -> Iterator[tuple[str, list[Any], Any, int]]:
    folder = data_folder()
    mfeat = np.load(folder / "cca_mfeat" / "mfeat.npz", allow_pickle=False)
    views = [_standardized(mfeat[name]) for name in ("fac", "fou", "kar")]
    yield "mfeat (fac, fou, kar), k 10", views, mfeat["y"], 10
    tcga = np.load(folder / "multiview_breast_tcga" / "breast_tcga.npz", allow_pickle=False)
    views = [_standardized(tcga[name]) for name in ("mirna", "mrna", "protein")]
    yield "TCGA breast, k 3", views, tcga["subtype"], 3


def _standardized(view: Any) -> Any:
    values = np.asarray(view, dtype=float)
    deviations = values.std(axis=0)
    return (values - values.mean(axis=0)) / np.where(deviations > 0, deviations, 1.0)


def views_table() -> Iterator[str]:
    yield "| views | method | ARI (median, range) | CPU s |"
    yield "|---|---|---|---|"
    planted = [
        (
            f"planted {kind} (30, 20, 40), k 6, n 5000",
            make_multi_view(5000, (30, 20, 40), 6, kind=kind, separation=3, random_state=0),
        )
        for kind in ("gaussian", "categorical")
    ]
    sets = [(title, sample.views, sample.labels, 6) for title, sample in planted]
    for title, views, labels, count in [*sets, *real_views()]:
        joined = np.hstack(views)
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in SEEDS[:5]:
            rivals = {
                "latensor": (MultiViewMixture(count, random_state=seed, n_jobs=1), views),
                "latensor refine=0": (
                    MultiViewMixture(count, refine=0, random_state=seed, n_jobs=1),
                    views,
                ),
                "sklearn diag n_init 1": (peer_of(count, "diag", seed, 1), joined),
                "sklearn diag n_init 10": (peer_of(count, "diag", seed, 10), joined),
            }
            for name, (model, data) in rivals.items():
                try:
                    seconds, predicted = timed(model.fit_predict, data)
                except NotIdentifiableError:
                    continue
                found.setdefault(name, []).append((adjusted_rand_score(labels, predicted), seconds))
        for name, results in found.items():
            aris, seconds = (np.array(column) for column in zip(*results, strict=True))
            yield (
                f"| {title} | {name} | {np.median(aris):.2f} ({aris.min():.2f} .. "
                f"{aris.max():.2f}) | {np.median(seconds):.2f} |"
            )


TABLES = {"planted": planted_table, "large": large_table, "real": real_table, "views": views_table}


def main() -> None:
    chosen = sys.argv[1:] or list(TABLES)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        for name in chosen:
            for line in TABLES[name]():
                print(line, flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()
