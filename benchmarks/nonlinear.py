"""Noisy-or networks and mixtures of regressions beside EM from random starts, in one run.

Run with `python -m benchmarks.nonlinear [--seeds N] [--small]`; it writes its table into
docs/benchmarks.md. No other library offers these models in Python: the peers are EM from one and
from ten random starts, with the same E and M steps as ours, and EM from the truth, which no method
that does not know it can rely on. Times are process CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import latensor as lt
from benchmarks.tables import put
from latensor.engines import LocalEngine
from latensor.models.networks.noisy_or_family import NoisyOrFamily
from latensor.models.networks.noisy_or_model import drawn
from latensor.models.networks.noisy_or_read_off import NoisyOrState
from latensor.models.regression.mixture_family import (
    RegressionMixtureFamily,
    RegressionMixtureState,
)
from latensor.moments.batch import Batch, Kind
from latensor.moments.rows import RowSample
from latensor.refinement.em import Reached, em
from latensor.sources.shards import Source

# Features, causes, samples, mean prior; whether ten starts are affordable.
NETWORKS = (
    (50, 5, 10_000, 0.1, True),
    (50, 10, 20_000, 0.05, True),
    (100, 10, 10_000, 0.05, True),
    (50, 5, 100_000, 0.1, False),
    (100, 10, 100_000, 0.05, False),
)
# Features, regressions, samples, noise.
REGRESSIONS = (
    (10, 3, 10_000, 0.2),
    (20, 5, 10_000, 0.2),
    (20, 8, 20_000, 0.1),
    (20, 10, 30_000, 0.1),
)
# A cause or a regression is found if nothing but noise is between it and the truth.
_COSINE, _DISTANCE = 0.95, 0.2


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def fold_over(family: Any, kind: Kind, *parts: Any) -> Any:
    count = len(parts[0])
    units = Batch(parts, np.ones(count), np.arange(count, dtype=np.uint64))
    blocks = [family.prepare(block) for block in units.blocks(kind.block)]
    source, engine = Source(kind, (blocks,), blocked=True), LocalEngine(1)
    return lambda start: engine.fold(source, start)


def best(fold: Any, family: Any, starts: list[Any], tol: float) -> Reached[Any]:
    found = [em(fold, family, s, max_iter=200, tol=tol, prepared=True) for s in starts]
    return max(found, key=lambda reached: reached.log_likelihood)


def network(d: int, k: int, n: int, prior: float, seed: int, ten: bool) -> dict[str, Any]:
    planted = lt.datasets.make_noisy_or(n, d, k, prior=prior, random_state=seed)
    truth = planted.components
    family = NoisyOrFamily()

    def judged(components: Any, seconds: float) -> tuple[float, float, float]:
        gaps = np.abs(truth[:, None] - components[None]).sum(axis=2)
        order = linear_sum_assignment(gaps)[1]
        found = components[order]
        lengths = np.linalg.norm(truth, axis=1) * np.linalg.norm(found, axis=1)
        cosines = (truth * found).sum(axis=1) / np.maximum(lengths, 1e-300)
        return np.abs(truth - found).sum() / truth.sum(), (cosines > _COSINE).mean(), seconds

    answers = {}
    for name, refine in (("moments", 0), ("ours", "auto")):
        model, seconds = timed(
            lambda refine=refine: lt.NoisyOrNetwork(k, refine=refine, random_state=0, n_jobs=1).fit(
                planted.samples
            )
        )
        answers[name] = judged(model.components_, seconds)
    fold = fold_over(family, Kind.ROWS, planted.samples)
    rng = np.random.default_rng(seed)
    few = RowSample(20_000).update(planted.samples, np.ones(n))
    starts = [drawn(few, k, rng) for _ in range(10 if ten else 1)]
    inside = NoisyOrState(planted.prior, np.clip(truth, 1e-4, 1), planted.leak)
    trials = {"EM, 1 start": starts[:1], "EM from the truth": [inside]}
    if ten:
        trials["EM, 10 starts"] = starts
    for name, tried in trials.items():
        reached, seconds = timed(lambda tried=tried: best(fold, family, tried, 1e-5))
        answers[name] = judged(reached.state.components, seconds)
    return answers


def regressions(d: int, k: int, n: int, noise: float, seed: int) -> dict[str, Any]:
    planted = lt.datasets.make_regressions(n, d, k, noise=noise, random_state=seed)
    target = np.array([planted.y.mean(), planted.y.std()])
    family = RegressionMixtureFamily(np.zeros(d), np.eye(d), "identity", 1e-6, target)

    def judged(coef: Any, seconds: float) -> tuple[float, float, float]:
        gaps = np.linalg.norm(planted.coef[:, None] - coef[None], axis=2)
        rows, columns = linear_sum_assignment(gaps)
        worst = gaps[rows, columns].max()
        return worst, float(worst < _DISTANCE), seconds

    model, seconds = timed(
        lambda: lt.MixtureOfRegressions(k, random_state=0, n_jobs=1).fit(planted.X, planted.y)
    )
    answers = {"ours": judged(model.coef_, seconds)}
    fold = fold_over(family, Kind.TARGETED, planted.X, planted.y[:, None])
    rng = np.random.default_rng(seed)
    starts = []
    for _ in range(10):
        slopes = rng.standard_normal((k, d)) / np.sqrt(d)
        coefficients = np.column_stack([np.zeros(k), slopes])
        starts.append(RegressionMixtureState(np.full(k, 1 / k), coefficients, np.full(k, 0.3)))
    true = np.column_stack([planted.intercept, planted.coef]) / target[1]
    variance = np.full(k, (noise / target[1]) ** 2)
    for name, tried in (
        ("EM, 1 start", starts[:1]),
        ("EM, 10 starts", starts),
        ("EM from the truth", [RegressionMixtureState(planted.weights, true, variance)]),
    ):
        reached, seconds = timed(lambda tried=tried: best(fold, family, tried, 1e-6))
        answers[name] = judged(reached.state.coefficients[:, 1:] * target[1], seconds)
    return answers


def row(label: str, runs: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    cells = []
    for column in columns:
        found = [run[column] for run in runs if column in run]
        if not found:
            cells.append("not run")
            continue
        error, rate, seconds = (statistics.median(values) for values in zip(*found, strict=True))
        rate = statistics.mean(values[1] for values in found)
        cells.append(f"{error:.3f}, {100 * rate:.0f} %, {seconds:.1f} s")
    return f"| {label} | {len(runs)} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="at most 20,000 samples")
    arguments = parser.parse_args()
    most = 20_000 if arguments.small else np.inf
    few = max(1, arguments.seeds // 5)
    columns: tuple[str, ...] = ("moments", "ours", "EM, 1 start", "EM, 10 starts",
                                "EM from the truth")  # fmt: skip
    head = "noisy-or: L1 error of the components, causes found, CPU s"
    lines = [f"| {head} | seeds | " + " | ".join(columns) + " |", "|---" * 7 + "|"]
    for d, k, n, prior, ten in NETWORKS:
        if n > most:
            continue
        seeds = arguments.seeds if n <= 20_000 else few
        runs = [network(d, k, n, prior, seed, ten) for seed in range(seeds)]
        lines.append(row(f"d {d}, k {k}, n {n:,}, prior {prior}", runs, columns))
        print(lines[-1], flush=True)
    columns = ("ours", "EM, 1 start", "EM, 10 starts", "EM from the truth")
    head = "regressions: largest error of a component, runs that found all, CPU s"
    lines += ["", f"| {head} | seeds | " + " | ".join(columns) + " |", "|---" * 6 + "|"]
    for d, k, n, noise in REGRESSIONS:
        runs = [regressions(d, k, n, noise, seed) for seed in range(arguments.seeds)]
        lines.append(row(f"d {d}, k {k}, n {n:,}, noise {noise}", runs, columns))
        print(lines[-1], flush=True)
    put("bench-nonlinear", lines)


if __name__ == "__main__":
    main()
