"""Noisy-or networks and mixtures of regressions beside EM from random starts, in one run.

Run with `python -m benchmarks.nonlinear [networks] [symptoms] [real] [regressions] [logistic]
[million] [--seeds N] [--rows 0,2,..] [--write]`; symptoms and real read the folder that
LATENSOR_DATA names, and are left out without it. No other library offers these models in Python:
the peers are EM from one and from ten random starts, with the same E and M steps as ours, and EM
from the truth, which no method that does not know it can rely on. Times are process CPU seconds.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment

import latensor as lt
from benchmarks.tables import put
from latensor.datasets.networks import NoisyOrSample, draw_noisy_or
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
from latensor.refinement.family import Statistics
from latensor.sources.shards import Source

# Features, causes, samples, mean prior; seeds, of which so many with one and with ten starts.
NETWORKS = (
    (50, 5, 10_000, 0.1, 10, 10, 10),
    (50, 5, 100_000, 0.1, 10, 10, 2),
    (50, 10, 100_000, 0.05, 10, 10, 1),
    (100, 10, 10_000, 0.05, 10, 10, 10),
    (100, 10, 100_000, 0.05, 10, 10, 1),
    (100, 20, 10_000, 0.05, 10, 1, 0),
    (100, 20, 100_000, 0.05, 2, 0, 0),
    (100, 10, 1_000_000, 0.05, 1, 0, 0),
)
# Features, regressions, samples, noise; seeds, of which so many with one and with ten starts.
REGRESSIONS = (
    (10, 3, 10_000, 0.2, 10, 10, 10),
    (20, 5, 10_000, 0.2, 10, 10, 10),
    (20, 8, 20_000, 0.1, 10, 10, 3),
    (20, 10, 30_000, 0.1, 20, 10, 3),
    (20, 15, 40_000, 0.05, 2, 1, 1),
)
# Features, logistic regressions of length 3, samples, seeds.
LOGISTIC = ((10, 3, 20_000, 10), (10, 3, 200_000, 3), (20, 3, 200_000, 3))
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


def network(planted: Any, k: int, seed: int, peers: bool, ten: bool) -> dict[str, Any]:
    n = len(planted.samples)
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
    if not peers:
        return answers
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


def regressions(
    d: int, k: int, n: int, noise: float, seed: int, peers: bool, ten: bool
) -> dict[str, Any]:
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
    if not peers:
        return answers
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
        *([("EM, 10 starts", starts)] if ten else []),
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
        few = "" if len(found) == len(runs) else f" ({len(found)})"
        cells.append(f"{error:.3f}, {100 * rate:.0f} %, {seconds:.1f} s{few}")
    return f"| {label} | {len(runs)} | " + " | ".join(cells) + " |"


def logistic(d: int, k: int, n: int, seed: int) -> dict[str, Any]:
    planted = lt.datasets.make_regressions(n, d, k, link="logit", scale=3, random_state=seed)
    model, seconds = timed(
        lambda: lt.MixtureOfRegressions(k, link="logit", random_state=0, n_jobs=1).fit(
            planted.X, planted.y
        )
    )
    gaps = np.linalg.norm(planted.coef[:, None] - model.coef_[None], axis=2)
    worst = gaps[linear_sum_assignment(gaps)].max() / 3
    return {"ours": (worst, float(worst < _DISTANCE), seconds)}


def million() -> Iterator[str]:
    """A million rows of 200 features, CSR, two threads: CPU and wall-clock seconds."""
    planted = lt.datasets.make_noisy_or(1_000_000, 200, 10, prior=0.05, random_state=0)
    rows, wall = scipy.sparse.csr_array(planted.samples.astype(np.float32)), time.perf_counter()
    model, seconds = timed(lambda: lt.NoisyOrNetwork(10, random_state=0, n_jobs=2).fit(rows))
    wall = time.perf_counter() - wall
    gaps = np.abs(planted.components[:, None] - model.components_[None]).sum(axis=2)
    error = gaps[linear_sum_assignment(gaps)].sum() / planted.components.sum()
    yield (
        f"A million rows of 200 features (10 causes, prior .05, CSR), two threads: L1 error "
        f"{error:.4f}, {seconds:.0f} s of CPU time, {wall:.0f} s of wall-clock time"
    )


def networks(chosen: Callable[[tuple[Any, ...]], Any], most: int) -> Iterator[str]:
    columns = ("moments", "ours", "EM, 1 start", "EM, 10 starts", "EM from the truth")
    head = "noisy-or: L1 error of the components, causes found, CPU s"
    yield f"| {head} | seeds | " + " | ".join(columns) + " |"
    yield "|---" * 7 + "|"
    for d, k, n, prior, seeds, peers, ten in chosen(NETWORKS):
        runs = [
            network(
                lt.datasets.make_noisy_or(n, d, k, prior=prior, random_state=seed),
                k,
                seed,
                seed < peers,
                seed < ten,
            )
            for seed in range(min(seeds, most))
        ]
        yield row(f"d {d}, k {k}, n {n:,}, prior {prior}", runs, columns)


def knowledge_base(folder: Path, n_causes: int = 20, n_features: int = 120) -> tuple[Any, ...]:
    """Prior, components and leak of the most frequent diseases of a table of ranked symptoms.

    The table has counts of diseases and ranks of their symptoms, no probabilities: priors are the
    counts, .05 on average, and a symptom follows with .9 at the first rank down to .2 at the last.
    """
    with open(folder / "disease_symptom_kb" / "disease_symptom.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    counts = {row["disease"]: float(row["count"] or 0) for row in rows}
    chosen = sorted(counts, key=lambda name: -counts[name])[:n_causes]
    shown = [[row["symptom"] for row in rows if row["disease"] == name] for name in chosen]
    linked = Counter(symptom for each in shown for symptom in each).most_common(n_features)
    place = {symptom: i for i, (symptom, _) in enumerate(linked)}
    components = np.zeros((n_causes, n_features))
    for j, each in enumerate(shown):
        for symptom, chance in zip(each, np.linspace(0.9, 0.2, len(each)), strict=True):
            if symptom in place:
                components[j, place[symptom]] = chance
    prior = np.array([counts[name] for name in chosen])
    return 0.05 * prior / prior.mean(), components, np.full(n_features, 0.01)


def symptoms(most: int) -> Iterator[str]:
    columns = ("moments", "ours", "EM, 1 start", "EM from the truth")
    head = "20 diseases, 120 symptoms: L1 error, causes found, CPU s"
    yield f"| {head} | seeds | " + " | ".join(columns) + " |"
    yield "|---" * 6 + "|"
    parameters = knowledge_base(Path(os.environ["LATENSOR_DATA"]))
    for n, seeds, peers in ((20_000, 3, 3), (200_000, 1, 0)):
        runs = []
        for seed in range(min(seeds, most)):
            drawn = draw_noisy_or(np.random.default_rng(seed), n, *parameters)
            planted = NoisyOrSample(*drawn, *parameters)
            runs.append(network(planted, 20, seed, seed < peers, False))
        yield row(f"{n:,} patients", runs, columns)


def real() -> Iterator[str]:
    """Held-out log-likelihood per row of binary data that nobody planted."""
    yield "| real data, held-out log-likelihood per row | ours | EM, four random starts |"
    yield "|---|---|---|"
    for name, k in (("nltcs", 3), ("nltcs", 6), ("plants", 6), ("jester", 6)):
        with np.load(Path(os.environ["LATENSOR_DATA"]) / f"binary_{name}" / f"{name}.npz") as data:
            train, test = (np.asarray(data[part], dtype=np.float64) for part in ("train", "test"))
        ours = lt.NoisyOrNetwork(k, random_state=0, n_jobs=1).fit(train).score(test)
        family, rng = NoisyOrFamily(), np.random.default_rng(0)
        fold, held_out = (fold_over(family, Kind.ROWS, rows) for rows in (train, test))
        few, found = RowSample(20_000).update(train, np.ones(len(train))), []
        for _ in range(4):
            reached = em(fold, family, drawn(few, k, rng), max_iter=200, tol=1e-5, prepared=True)
            found.append(held_out(Statistics(family, reached.state, True)).value)
        yield f"| {name}, k {k} | {ours:.3f} | " + ", ".join(f"{f:.3f}" for f in found) + " |"


def all_regressions(chosen: Callable[[tuple[Any, ...]], Any], most: int) -> Iterator[str]:
    columns = ("ours", "EM, 1 start", "EM, 10 starts", "EM from the truth")
    head = "regressions: largest error of a component, runs that found all, CPU s"
    yield f"| {head} | seeds | " + " | ".join(columns) + " |"
    yield "|---" * 6 + "|"
    for d, k, n, noise, seeds, peers, ten in chosen(REGRESSIONS):
        runs = [
            regressions(d, k, n, noise, seed, seed < peers, seed < ten)
            for seed in range(min(seeds, most))
        ]
        yield row(f"d {d}, k {k}, n {n:,}, noise {noise}", runs, columns)


def all_logistic(chosen: Callable[[tuple[Any, ...]], Any], most: int) -> Iterator[str]:
    yield "| logistic: largest relative error, runs that found all, CPU s | seeds | ours |"
    yield "|---|---|---|"
    for d, k, n, seeds in chosen(LOGISTIC):
        runs = [logistic(d, k, n, seed) for seed in range(min(seeds, most))]
        yield row(f"d {d}, k {k}, n {n:,}", runs, ("ours",))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parts = ["networks", "regressions", "logistic", "million"]
    if "LATENSOR_DATA" in os.environ:
        parts += ["symptoms", "real"]
    parser.add_argument("parts", nargs="*", default=parts)
    parser.add_argument("--seeds", type=int, default=20, help="at most so many of each row")
    parser.add_argument("--rows", help="numbers of the rows, such as 0,2; all by default")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")

    def chosen(settings: tuple[Any, ...]) -> Any:
        if options.rows is None:
            return settings
        return [settings[int(place)] for place in options.rows.split(",")]

    tables: dict[str, Callable[[], Iterator[str]]] = {
        "networks": lambda: networks(chosen, options.seeds),
        "regressions": lambda: all_regressions(chosen, options.seeds),
        "logistic": lambda: all_logistic(chosen, options.seeds),
        "million": million,
        "symptoms": lambda: symptoms(options.seeds),
        "real": real,
    }
    for part in options.parts:
        lines = []
        for line in tables[part]():
            print(line, flush=True)
            lines.append(line)
        if options.write:
            put(f"bench-nonlinear-{part}", lines)


if __name__ == "__main__":
    main()
