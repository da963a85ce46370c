"""Gaussian mixtures with full and tied covariances beside scikit-learn and the oracle.

    python -m benchmarks.gaussian_mixtures [full] [tied] [missing] [real]
    python -m benchmarks.gaussian_mixtures full --store gmm.json --seeds 2 --first-seed 900

"Gap" is the held-out log-likelihood per row (5,000 fresh rows) of EM started at the truth, less
that of the method; a run fails if it is above 0.01. "Tight" continues scikit-learn's ten starts
with tol=1e-6, which separates early stopping from wrong optima. Time is process CPU time, one
thread. Real data is read from the folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.mixture import GaussianMixture as Peer

from benchmarks.gathered import Gathered, Run, command, median, number
from benchmarks.gaussian_mixture_data import FULL, TIED, Setting
from latensor.models.mixtures.gaussian import GaussianMixture

OURS, ONE, TEN, TIGHT = "latensor", "sklearn n_init 1", "sklearn n_init 10", "tight"
FAILED = 0.01
HELD_OUT = 5000


def timed(model: Any, rows: Any) -> tuple[float, Any]:
    start = time.process_time()
    fitted = model.fit(rows)
    return time.process_time() - start, fitted


def oracle(setting: Setting, kind: str, seed: int) -> tuple[Any, Any, float]:
    """Rows, held-out rows and the held-out likelihood of EM started at the truth."""
    planted = setting.plant(seed)
    rows, held_out = planted.draw(setting.n_rows, seed + 10), planted.draw(HELD_OUT, seed + 99_999)
    matrices = planted.covariances[0] if kind == "tied" else planted.covariances
    peer = Peer(
        setting.count,
        covariance_type=kind,
        tol=1e-7,
        max_iter=1000,
        weights_init=planted.weights,
        means_init=planted.means,
        precisions_init=np.linalg.inv(matrices),
    )
    return rows, held_out, peer.fit(rows).score(held_out)


def gaps(setting: Setting, kind: str, seed: int, ours_only: bool) -> Run:
    rows, held_out, best = oracle(setting, kind, seed)
    count = setting.count
    model = GaussianMixture(count, covariance_type=kind, random_state=seed, n_jobs=1)
    seconds, fitted = timed(model, rows)
    found = {OURS: [best - fitted.score(held_out), seconds]}
    if ours_only:
        return found
    for name, n_init in ((ONE, 1), (TEN, 10)):
        peer = Peer(count, covariance_type=kind, n_init=n_init, random_state=seed)
        seconds, peer = timed(peer, rows)
        found[name] = [best - peer.score(held_out), seconds]
    last = Peer(
        count,
        covariance_type=kind,
        tol=1e-6,
        max_iter=1000,
        weights_init=peer.weights_,
        means_init=peer.means_,
        precisions_init=peer.precisions_,
    )
    more, last = timed(last, rows)
    found[TIGHT] = [best - last.score(held_out), seconds + more]
    return found


def table(kind: str, settings: Sequence[Setting]) -> Any:
    names = (OURS, ONE, TEN, TIGHT)

    def lines(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
        yield f"| {kind} covariances: failed, CPU s | " + " | ".join(names) + " |"
        yield "|---|" + "---|" * len(names)
        totals = {name: [0, 0, 0.0] for name in names}
        for setting in settings:
            for seed in seeds:
                gathered.measure(
                    kind,
                    setting.name,
                    seed,
                    lambda s=setting, seed=seed: gaps(s, kind, seed, gathered.ours),
                )
            found = gathered.found(kind, setting.name)
            if not found:
                continue
            cells = []
            for name in names:
                values = found[name]
                failed = int((values[:, 0] > FAILED).sum())
                cells.append(f"{failed}/{len(values)}, {number(values[:, 1].mean())}")
                totals[name][0] += failed
                totals[name][1] += len(values)
                totals[name][2] += float(values[:, 1].mean())
            yield f"| {setting.name} (n {setting.n_rows}) | " + " | ".join(cells) + " |"
        if totals[OURS][1]:
            cells = [f"**{a}/{b}, {number(t, '.1f')}**" for a, b, t in totals.values()]
            yield "| all: failed, sum of mean times | " + " | ".join(cells) + " |"

    return lines


def missing_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield "| d, k, n, missing | EM from the truth: gap | latensor | difference, worst | CPU s |"
    yield "|---|---|---|---|---|"
    for d, k, n in ((5, 3, 2000), (8, 5, 3000)):
        for fraction in (0.1, 0.3, 0.5):
            title = f"{d}, {k}, {n}, {100 * fraction:g} %"
            setting = Setting("missing", d, k, n, 4)
            for seed in seeds:
                gathered.measure(
                    "missing",
                    title,
                    seed,
                    lambda s=setting, fraction=fraction, seed=seed: unobserved(s, fraction, seed),
                )
            found = gathered.found("missing", title)
            if found:
                truth, ours = found["truth"][:, 0], found[OURS][:, 0]
                yield (
                    f"| {title} | {number(median(truth), '.4f')} | {number(median(ours), '.4f')} | "
                    f"{number(median(ours - truth), '.4f')}, {number(max(ours - truth), '.4f')} | "
                    f"{number(found[OURS][:, 1].mean())} |"
                )


def unobserved(setting: Setting, fraction: float, seed: int) -> Run:
    rows, held_out, best = oracle(setting, "full", seed)
    planted = setting.plant(seed)
    hidden = np.random.default_rng(seed).random(rows.shape) < fraction
    rows = np.where(hidden, np.nan, rows)
    truth = GaussianMixture(
        setting.count,
        weights_init=planted.weights,
        means_init=planted.means,
        precisions_init=np.linalg.inv(planted.covariances),
        max_iter=1000,
        n_jobs=1,
    )
    seconds, ours = timed(GaussianMixture(setting.count, random_state=seed, n_jobs=1), rows)
    return {
        "truth": [best - truth.fit(rows).score(held_out), 0.0],
        OURS: [best - ours.score(held_out), seconds],
    }


def real_sets() -> Iterator[tuple[str, int, Any]]:
    root = os.environ.get("LATENSOR_DATA")
    if root is None:
        return
    folder = Path(root)
    digits = np.load(folder / "gmm_pendigits" / "pendigits_train.npz")
    pen = digits[next(name for name in digits.files if digits[name].ndim == 2)].astype(float)
    pen = pen + np.random.default_rng(0).uniform(-0.5, 0.5, pen.shape)
    images = np.load(folder / "gmm_mnist5k" / "mnist5k.npz")
    pixels = images[next(name for name in images.files if images[name].ndim > 1)]
    mnist = PCA(20, random_state=0).fit_transform(pixels.reshape(len(pixels), -1).astype(float))
    sets = folder / "gmm_mclust_sets"
    gvhd = np.loadtxt(sets / "GvHD_pos.csv", delimiter=",", skiprows=1)
    yield from [("pendigits", 10, pen), ("pendigits", 20, pen), ("mnist5k, 20 PCs", 10, mnist)]
    yield from [("GvHD positive", 6, gvhd), ("GvHD positive", 12, gvhd)]


def real_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield f"| real data, k: log-likelihood training / held-out, CPU s | {OURS} | {ONE} | {TEN} |"
    yield "|---|---|---|---|"
    for name, count, rows in real_sets() if gathered.measuring else ():
        for seed in seeds[:3]:
            gathered.measure(
                "real", f"{name}, {count}", seed, lambda r=rows, k=count, s=seed: split(r, k, s)
            )
    titles = dict.fromkeys(
        key.split(" | ")[1] for key in gathered.rows if key.startswith("real | ")
    )
    for title in titles:
        found = gathered.found("real", title)
        cells = [
            f"{number(median(found[m][:, 0]), '.3f')} / {number(median(found[m][:, 2]), '.3f')}, "
            f"{number(median(found[m][:, 1]))}"
            for m in (OURS, ONE, TEN)
        ]
        yield f"| {title} | " + " | ".join(cells) + " |"


def split(rows: Any, count: int, seed: int) -> Run:
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    edge = int(0.8 * len(rows))
    train, held_out = rows[order[:edge]], rows[order[edge:]]
    mean, scale = train.mean(axis=0), train.std(axis=0)
    train, held_out = (train - mean) / scale, (held_out - mean) / scale
    found = {}
    for name, model in {
        OURS: GaussianMixture(count, random_state=seed, n_jobs=1),
        ONE: Peer(count, random_state=seed),
        TEN: Peer(count, n_init=10, random_state=seed),
    }.items():
        seconds, fitted = timed(model, train)
        found[name] = [fitted.score(train), seconds, fitted.score(held_out)]
    return found


def warm_up() -> None:
    rng = np.random.default_rng(0)
    # Three components in ten features have a start from moments, which compiles more.
    for width, count, kind in ((2, 2, "full"), (6, 2, "full"), (10, 3, "full"), (6, 5, "tied")):
        rows = rng.standard_normal((200, width))
        GaussianMixture(count, covariance_type=kind).fit(rows)
        rows[0, 0] = np.nan
        GaussianMixture(2, covariance_type=kind).fit(rows)


TABLES = {
    "full": table("full", FULL),
    "tied": table("tied", TIED),
    "missing": missing_table,
    "real": real_table,
}

if __name__ == "__main__":
    command(str(__doc__).splitlines()[0], TABLES, "bench-gaussian-mixtures", warm_up)
