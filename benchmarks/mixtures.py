"""Gaussian mixtures beside scikit-learn and beside EM started at the truth, in one run.

    python -m benchmarks.mixtures [planted] [large] [real] [views]
    python -m benchmarks.mixtures planted --store mixtures.json --seeds 10 --first-seed 300
    python -m benchmarks.mixtures --store mixtures.json --render --write

"Gap" is the held-out log-likelihood per sample of EM started at the true parameters, less that of
the method; a run fails if it is above 0.01. Time is process CPU time, one thread each. Real data
is read from the folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from benchmarks.gathered import Gathered, Run, command, median, number
from latensor.datasets.mixtures import (
    MixtureSample,
    make_diagonal_mixture,
    make_multi_view,
    make_spherical_mixture,
)
from latensor.exceptions import NotIdentifiableError
from latensor.models.mixtures.diagonal import DiagonalGaussianMixture
from latensor.models.mixtures.spherical import SphericalGaussianMixture
from latensor.models.views.multi_view import MultiViewMixture

OURS, RAW = "latensor", "latensor refine=0"
ONE, TEN = "sklearn n_init 1", "sklearn n_init 10"
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


Setting = tuple[str, Callable[[int], MixtureSample], str]


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
    )


def diagonal(k: int, d: int, n: int, sep: float) -> Setting:
    return (
        f"diagonal k {k}, d {d}, n {n}, sep {sep:g}",
        lambda seed: make_diagonal_mixture(n, d, k, separation=sep, random_state=seed),
        "diag",
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


def planted_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield (
        f"| planted: failures, worst gap, CPU s | {OURS} | {ONE} | {TEN} "
        "| times ours: one start, ten |"
    )
    yield "|---|---|---|---|---|"
    for title, build, kind in settings():
        for seed in seeds:
            gathered.measure(
                "planted",
                title,
                seed,
                lambda build=build, kind=kind, seed=seed: gaps(
                    build, kind, seed, [] if gathered.ours else [1, 10]
                ),
            )
        found = gathered.found("planted", title)
        if found:
            times = [median(found[m][:, 1]) if m in found else np.nan for m in (OURS, ONE, TEN)]
            cells = [outcome(found[m]) if m in found else "" for m in (OURS, ONE, TEN)]
            ratios = ", ".join(number(t / times[0], ".1f") for t in times[1:])
            yield "| " + " | ".join([title, *cells, ratios]) + " |"


def gaps(build: Callable[[int], MixtureSample], kind: str, seed: int, n_inits: list[int]) -> Run:
    planted = build(seed)
    held_out = planted.draw(20_000, seed + 1000)[0]
    best = oracle(planted, kind).score(held_out)
    count = len(planted.weights)
    candidates = {OURS: ours_of(kind, count, seed)}
    for n_init in n_inits:
        candidates[f"sklearn n_init {n_init}"] = peer_of(count, kind, seed, n_init)
    found = {}
    for name, model in candidates.items():
        seconds, fitted = timed(model.fit, planted.samples)
        found[name] = [best - fitted.score(held_out), seconds]
    return found


def outcome(runs: Any) -> str:
    fails = int((runs[:, 0] > FAILED).sum())
    return f"{fails}/{len(runs)}, {runs[:, 0].max():.4f}, {median(runs[:, 1]):.2f}"


def large_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield f"| n = 1,000,000: gap, CPU s | {OURS} | {RAW} | {ONE} |"
    yield "|---|---|---|---|"
    for k, d, sep in ((10, 20, 4.0), (5, 10, 4.0)):
        title = f"k {k}, d {d}, sep {sep:g}"
        for seed in seeds[:1]:
            gathered.measure(
                "large", title, seed, lambda k=k, d=d, sep=sep, seed=seed: million(k, d, sep, seed)
            )
        found = gathered.found("large", title)
        if found:
            cells = [f"{r[0, 0]:.4f}, {r[0, 1]:.2f}" for r in (found[m] for m in (OURS, RAW, ONE))]
            yield "| " + " | ".join([title, *cells]) + " |"


def million(k: int, d: int, sep: float, seed: int) -> Run:
    planted = make_spherical_mixture(1_000_000, d, k, separation=sep, random_state=seed)
    held_out = planted.draw(20_000, seed + 1000)[0]
    best = oracle(planted, "spherical").score(held_out)
    candidates = {
        OURS: ours_of("spherical", k, seed),
        RAW: ours_of("spherical", k, seed, refine=0),
        ONE: peer_of(k, "spherical", seed, 1),
    }
    found = {}
    for name, model in candidates.items():
        seconds, fitted = timed(model.fit, planted.samples)
        found[name] = [best - fitted.score(held_out), seconds]
    return found


def data_folder() -> Path | None:
    folder = os.environ.get("LATENSOR_DATA")
    return Path(folder) if folder else None


def real_sets() -> Iterator[tuple[str, Any, Any, int]]:
    folder = data_folder()
    if folder is None:
        return
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


def real_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield (
        "| real: held-out log-likelihood, median (range) of 5 splits; ARI; CPU s | covariance "
        f"| {OURS} | {ONE} | {TEN} |"
    )
    yield "|---|---|---|---|---|"
    for title, samples, labels, count in real_sets():
        for kind in ("spherical", "diag"):
            key = f"{title}, {kind}"
            for seed in seeds[:5]:
                gathered.measure(
                    "real",
                    key,
                    seed,
                    lambda x=samples, y=labels, count=count, kind=kind, seed=seed: splits(
                        x, y, count, kind, seed
                    ),
                )
            found = gathered.found("real", key)
            if found:
                cells = [
                    f"{median(r[:, 0]):.3f} ({r[:, 0].min():.3f} to {r[:, 0].max():.3f}); "
                    f"{number(median(r[:, 2]))}; {median(r[:, 1]):.2f}"
                    for r in (found[m] for m in (OURS, ONE, TEN))
                ]
                yield "| " + " | ".join([title, kind, *cells]) + " |"


def splits(samples: Any, labels: Any, count: int, kind: str, seed: int) -> Run:
    """Held-out log-likelihood, CPU seconds and adjusted Rand index on a random quarter."""
    order = np.random.default_rng(seed).permutation(len(samples))
    train, test = order[: 3 * len(order) // 4], order[3 * len(order) // 4 :]
    candidates = {
        OURS: ours_of(kind, count, seed),
        ONE: peer_of(count, kind, seed, 1),
        TEN: peer_of(count, kind, seed, 10),
    }
    found = {}
    for name, model in candidates.items():
        seconds, fitted = timed(model.fit, samples[train])
        ari = float("nan")
        if labels is not None:
            ari = adjusted_rand_score(labels[test], fitted.predict(samples[test]))
        found[name] = [fitted.score(samples[test]), seconds, ari]
    return found


def real_views() -> Iterator[tuple[str, list[Any], Any, int]]:
    folder = data_folder()
    if folder is None:
        return
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


def views_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    names = (OURS, RAW, f"{ONE}, diag", f"{TEN}, diag")
    yield "| views: ARI, median (range); CPU s | " + " | ".join(names) + " |"
    yield "|---|---|---|---|---|"
    planted = [
        (
            f"planted {kind} (30, 20, 40), k 6, n 5000",
            make_multi_view(5000, (30, 20, 40), 6, kind=kind, separation=3, random_state=0),
        )
        for kind in ("gaussian", "categorical")
    ]
    sets = [(title, sample.views, sample.labels, 6) for title, sample in planted]
    for title, views, labels, count in [*sets, *real_views()]:
        for seed in seeds[:5]:
            gathered.measure(
                "views",
                title,
                seed,
                lambda views=views, labels=labels, count=count, seed=seed: agreements(
                    views, labels, count, seed
                ),
            )
        found = gathered.found("views", title)
        if found:
            cells = [
                f"{median(r[:, 0]):.2f} ({r[:, 0].min():.2f} to {r[:, 0].max():.2f}); "
                f"{median(r[:, 1]):.2f}"
                if r is not None
                else "refused"
                for r in (found.get(m) for m in names)
            ]
            yield "| " + " | ".join([title, *cells]) + " |"


def agreements(views: list[Any], labels: Any, count: int, seed: int) -> Run:
    joined = np.hstack(views)
    candidates = {
        OURS: (MultiViewMixture(count, random_state=seed, n_jobs=1), views),
        RAW: (MultiViewMixture(count, refine=0, random_state=seed, n_jobs=1), views),
        f"{ONE}, diag": (peer_of(count, "diag", seed, 1), joined),
        f"{TEN}, diag": (peer_of(count, "diag", seed, 10), joined),
    }
    found = {}
    for name, (model, data) in candidates.items():
        try:
            seconds, predicted = timed(model.fit_predict, data)
        except NotIdentifiableError:
            continue
        found[name] = [adjusted_rand_score(labels, predicted), seconds]
    return found


TABLES = {"planted": planted_table, "large": large_table, "real": real_table, "views": views_table}


def warm_up() -> None:
    for make, kind in ((make_spherical_mixture, "spherical"), (make_diagonal_mixture, "diag")):
        ours_of(kind, 3, 0).fit(make(1000, 10, 3, random_state=0).samples)
    ours_of("spherical", 4, 0).fit(make_spherical_mixture(1000, 2, 4, random_state=0).samples)
    MultiViewMixture(2).fit(make_multi_view(500, (5, 5, 5), 2, random_state=0).views)


if __name__ == "__main__":
    assert __doc__ is not None
    command(__doc__.splitlines()[0], TABLES, "bench-mixtures", warm_up)
