"""Noisy-or networks and mixtures of regressions beside EM from random starts, in one run.

    python -m benchmarks.nonlinear [networks] [symptoms] [real] [regressions] [logistic] [million]
        [--seeds 20] [--first-seed 0] [--store runs.json] [--again] [--write]

symptoms and real read the folder that LATENSOR_DATA names, and are left out without it. No other
library offers these models in Python: the peers are EM from one and from ten random starts, with
the same E and M steps as ours, and EM from the truth, which no method that does not know it can
rely on. Times are process CPU seconds; errors and times of a row are medians over its seeds.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from scipy.optimize import linear_sum_assignment

import latensor as lt
from benchmarks.gathered import Gathered, Run, command, median
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
    (50, 5, 100_000, 0.1, 10, 10, 10),
    (50, 10, 100_000, 0.05, 10, 10, 2),
    (100, 10, 10_000, 0.05, 10, 10, 10),
    (100, 10, 100_000, 0.05, 10, 10, 3),
    (100, 20, 10_000, 0.05, 10, 10, 3),
    (100, 20, 100_000, 0.05, 10, 10, 1),
    (100, 10, 1_000_000, 0.05, 1, 0, 0),
)
# Patients; seeds, of which so many with one and with ten starts.
SYMPTOMS = ((20_000, 10, 3, 0), (200_000, 2, 1, 0))
# Data, causes.
REAL = (
    ("nltcs", 3),
    ("nltcs", 6),
    ("plants", 6),
    ("jester", 6),
    ("mushrooms", 6),
)
# Features, regressions, samples, noise; seeds, of which so many with one and with ten starts.
REGRESSIONS = (
    (10, 3, 10_000, 0.2, 10, 10, 10),
    (20, 5, 10_000, 0.2, 10, 10, 3),
    (20, 8, 20_000, 0.1, 10, 10, 1),
    (20, 10, 30_000, 0.1, 20, 10, 1),
    (20, 15, 40_000, 0.05, 10, 10, 1),
)
# Features, logistic regressions of length 3, samples, seeds.
LOGISTIC = ((10, 3, 20_000, 10), (10, 3, 200_000, 10), (20, 3, 200_000, 10))
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


def measured(
    gathered: Gathered,
    table: str,
    title: str,
    seed: int,
    ours: Callable[[], Run],
    *peers: tuple[str, bool, Callable[[], Run]],
) -> None:
    """Run ours, and the peers that are wanted, unless they are stored."""
    gathered.measure(table, title, seed, ours)
    for name, wanted, run in peers:
        if wanted and not gathered.ours:
            gathered.measure(f"{table}, {name}", title, seed, run)


def row(gathered: Gathered, table: str, title: str, columns: Sequence[str]) -> Iterator[str]:
    """Medians of errors and seconds, and the mean of what was found; nothing without a run."""
    found: dict[str, Any] = {}
    for name in (table, *(f"{table}, {peer}" for peer in ("one start", "ten starts"))):
        found |= gathered.found(name, title)
    if "ours" not in found:
        return
    cells, count = [], len(found["ours"])
    for column in columns:
        if column not in found:
            cells.append("not run")
            continue
        errors, rates, seconds = found[column].T
        few = "" if len(errors) == count else f" ({len(errors)})"
        cells.append(
            f"{median(errors):.3f}, {100 * np.mean(rates):.0f} %, {median(seconds):.1f} s{few}"
        )
    yield f"| {title} | {count} | " + " | ".join(cells) + " |"


def judged_network(truth: Any, components: Any, seconds: float) -> list[float]:
    gaps = np.abs(truth[:, None] - components[None]).sum(axis=2)
    found = components[linear_sum_assignment(gaps)[1]]
    lengths = np.linalg.norm(truth, axis=1) * np.linalg.norm(found, axis=1)
    cosines = (truth * found).sum(axis=1) / np.maximum(lengths, 1e-300)
    error = np.abs(truth - found).sum() / truth.sum()
    return [float(error), float((cosines > _COSINE).mean()), seconds]


def our_network(planted: Any) -> Run:
    found = {}
    for name, refine in (("moments", 0), ("ours", "auto")):
        model = lt.NoisyOrNetwork(len(planted.components), refine=refine, random_state=0, n_jobs=1)
        _, seconds = timed(lambda model=model: model.fit(planted.samples))
        found[name] = judged_network(planted.components, model.components_, seconds)
    return found


def random_network(planted: Any, seed: int, count: int) -> Run:
    """EM from random starts; with a single one, from the truth too."""
    family, k = NoisyOrFamily(), len(planted.components)
    fold = fold_over(family, Kind.ROWS, planted.samples)
    rng = np.random.default_rng(seed)
    few = RowSample(20_000).update(planted.samples, np.ones(len(planted.samples)))
    starts = [drawn(few, k, rng) for _ in range(count)]
    inside = NoisyOrState(planted.prior, np.clip(planted.components, 1e-4, 1), planted.leak)
    trials = {f"EM, {count} starts": starts}
    if count == 1:
        trials = {"EM, 1 start": starts, "EM from the truth": [inside]}
    found = {}
    for name, tried in trials.items():
        reached, seconds = timed(lambda tried=tried: best(fold, family, tried, 1e-5))
        found[name] = judged_network(planted.components, reached.state.components, seconds)
    return found


NETWORK_COLUMNS = ("moments", "ours", "EM, 1 start", "EM, 10 starts", "EM from the truth")


def networks(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    head = "noisy-or: L1 error of the components, causes found, CPU s"
    yield f"| {head} | seeds | " + " | ".join(NETWORK_COLUMNS) + " |"
    yield "|---" * 7 + "|"
    for d, k, n, prior, most, peers, ten in NETWORKS:
        title = f"d {d}, k {k}, n {n:,}, prior {prior}"
        for seed in seeds[:most]:

            def made(settings: Any = (n, d, k), prior: float = prior, seed: int = seed) -> Any:
                return lt.datasets.make_noisy_or(*settings, prior=prior, random_state=seed)

            measured(
                gathered,
                "networks",
                title,
                seed,
                lambda made=made: our_network(made()),
                (
                    "one start",
                    seed - seeds[0] < peers,
                    lambda made=made, seed=seed: random_network(made(), seed, 1),
                ),
                (
                    "ten starts",
                    seed - seeds[0] < ten,
                    lambda made=made, seed=seed: random_network(made(), seed, 10),
                ),
            )
        yield from row(gathered, "networks", title, NETWORK_COLUMNS)


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


def symptoms(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    head = "20 diseases, 120 symptoms: L1 error, causes found, CPU s"
    yield f"| {head} | seeds | " + " | ".join(NETWORK_COLUMNS) + " |"
    yield "|---" * 7 + "|"
    for n, most, peers, ten in SYMPTOMS:
        title = f"{n:,} patients"
        for seed in seeds[:most]:

            def made(n: int = n, seed: int = seed) -> NoisyOrSample:
                parameters = knowledge_base(Path(os.environ["LATENSOR_DATA"]))
                return NoisyOrSample(
                    *draw_noisy_or(np.random.default_rng(seed), n, *parameters), *parameters
                )

            measured(
                gathered,
                "symptoms",
                title,
                seed,
                lambda made=made: our_network(made()),
                (
                    "one start",
                    seed - seeds[0] < peers,
                    lambda made=made, seed=seed: random_network(made(), seed, 1),
                ),
                (
                    "ten starts",
                    seed - seeds[0] < ten,
                    lambda made=made, seed=seed: random_network(made(), seed, 10),
                ),
            )
        yield from row(gathered, "symptoms", title, NETWORK_COLUMNS)


def held_out(name: str, k: int) -> Run:
    """Log-likelihood per row of binary data that nobody planted, and seconds."""
    with np.load(Path(os.environ["LATENSOR_DATA"]) / f"binary_{name}" / f"{name}.npz") as data:
        train, test = (np.asarray(data[part], dtype=np.float64) for part in ("train", "test"))
    model = lt.NoisyOrNetwork(k, random_state=0, n_jobs=1)
    _, seconds = timed(lambda: model.fit(train))
    found = {"ours": [model.score(test), seconds]}
    family, rng = NoisyOrFamily(), np.random.default_rng(0)
    fold, other = (fold_over(family, Kind.ROWS, rows) for rows in (train, test))
    few = RowSample(20_000).update(train, np.ones(len(train)))
    for number in range(4):
        start = drawn(few, k, rng)
        reached, seconds = timed(
            lambda start=start: em(fold, family, start, max_iter=200, tol=1e-5, prepared=True)
        )
        value = other(Statistics(family, reached.state, True)).value
        found[f"start {number}"] = [float(value), seconds]
    return found


def real(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield "| real data, held-out log-likelihood per row | ours | EM, four random starts | CPU s |"
    yield "|---|---|---|---|"
    for name, k in REAL:
        title = f"{name}, k {k}"
        gathered.measure("real", title, 0, lambda name=name, k=k: held_out(name, k))
        found = {name: runs[0] for name, runs in gathered.found("real", title).items()}
        if found:
            ours, *others = found.values()
            yield (
                f"| {title} | {ours[0]:.3f} | " + ", ".join(f"{each[0]:.3f}" for each in others)
                + f" | {ours[1]:.1f}, {sum(each[1] for each in others):.1f} |"
            )  # fmt: skip


def planted_regressions(d: int, k: int, n: int, noise: float, seed: int) -> Any:
    return lt.datasets.make_regressions(n, d, k, noise=noise, random_state=seed)


def judged_regressions(truth: Any, coef: Any, seconds: float) -> list[float]:
    gaps = np.linalg.norm(truth[:, None] - coef[None], axis=2)
    worst = float(gaps[linear_sum_assignment(gaps)].max())
    return [worst, float(worst < _DISTANCE), seconds]


def our_regressions(planted: Any) -> Run:
    model = lt.MixtureOfRegressions(len(planted.coef), random_state=0, n_jobs=1)
    _, seconds = timed(lambda: model.fit(planted.X, planted.y))
    return {"ours": judged_regressions(planted.coef, model.coef_, seconds)}


def random_regressions(planted: Any, noise: float, seed: int, count: int) -> Run:
    """EM from random starts; with a single one, from the truth too."""
    k, d = planted.coef.shape
    target = np.array([planted.y.mean(), planted.y.std()])
    family = RegressionMixtureFamily(np.zeros(d), np.eye(d), "identity", 1e-6, target)
    fold = fold_over(family, Kind.TARGETED, planted.X, planted.y[:, None])
    rng = np.random.default_rng(seed)
    starts = []
    for _ in range(count):
        slopes = rng.standard_normal((k, d)) / np.sqrt(d)
        coefficients = np.column_stack([np.zeros(k), slopes])
        starts.append(RegressionMixtureState(np.full(k, 1 / k), coefficients, np.full(k, 0.3)))
    trials = {f"EM, {count} starts": starts}
    if count == 1:
        true = np.column_stack([planted.intercept, planted.coef]) / target[1]
        variance = np.full(k, (noise / target[1]) ** 2)
        inside = RegressionMixtureState(planted.weights, true, variance)
        trials = {"EM, 1 start": starts, "EM from the truth": [inside]}
    found = {}
    for name, tried in trials.items():
        reached, seconds = timed(lambda tried=tried: best(fold, family, tried, 1e-6))
        coef = reached.state.coefficients[:, 1:] * target[1]
        found[name] = judged_regressions(planted.coef, coef, seconds)
    return found


def regressions(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    columns = ("ours", "EM, 1 start", "EM, 10 starts", "EM from the truth")
    head = "regressions: largest error of a component, runs that found all, CPU s"
    yield f"| {head} | seeds | " + " | ".join(columns) + " |"
    yield "|---" * 6 + "|"
    for d, k, n, noise, most, peers, ten in REGRESSIONS:
        title = f"d {d}, k {k}, n {n:,}, noise {noise}"
        for seed in seeds[:most]:

            def made(settings: Any = (d, k, n, noise), seed: int = seed) -> Any:
                return planted_regressions(*settings, seed)

            def random_runs(made: Any, count: int, noise: float = noise, seed: int = seed) -> Run:
                return random_regressions(made(), noise, seed, count)

            measured(
                gathered,
                "regressions",
                title,
                seed,
                lambda made=made: our_regressions(made()),
                (
                    "one start",
                    seed - seeds[0] < peers,
                    lambda made=made, runs=random_runs: runs(made, 1),
                ),
                (
                    "ten starts",
                    seed - seeds[0] < ten,
                    lambda made=made, runs=random_runs: runs(made, 10),
                ),
            )
        yield from row(gathered, "regressions", title, columns)


def one_logistic(d: int, k: int, n: int, seed: int) -> Run:
    planted = lt.datasets.make_regressions(n, d, k, link="logit", scale=3, random_state=seed)
    model = lt.MixtureOfRegressions(k, link="logit", random_state=0, n_jobs=1)
    _, seconds = timed(lambda: model.fit(planted.X, planted.y))
    gaps = np.linalg.norm(planted.coef[:, None] - model.coef_[None], axis=2)
    worst = float(gaps[linear_sum_assignment(gaps)].max()) / 3
    return {"ours": [worst, float(worst < _DISTANCE), seconds]}


def logistic(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield "| logistic: largest relative error, runs that found all, CPU s | seeds | ours |"
    yield "|---|---|---|"
    for d, k, n, most in LOGISTIC:
        title = f"d {d}, k {k}, n {n:,}"
        for seed in seeds[:most]:
            gathered.measure(
                "logistic",
                title,
                seed,
                lambda given=(d, k, n, seed): one_logistic(*given),
            )
        yield from row(gathered, "logistic", title, ("ours",))


def one_million(seed: int) -> Run:
    """A million rows of 200 features, CSR, two threads: error, CPU and wall-clock seconds."""
    planted = lt.datasets.make_noisy_or(1_000_000, 200, 10, prior=0.05, random_state=seed)
    rows, wall = scipy.sparse.csr_array(planted.samples.astype(np.float32)), time.perf_counter()
    model, seconds = timed(lambda: lt.NoisyOrNetwork(10, random_state=0, n_jobs=2).fit(rows))
    wall = time.perf_counter() - wall
    error = judged_network(planted.components, model.components_, seconds)[0]
    return {"ours": [error, seconds, wall]}


def million(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield "| rows, features, causes, prior (CSR, two threads) | L1 error | CPU s | wall-clock s |"
    yield "|---|---|---|---|"
    title = "1,000,000, 200, 10, .05"
    for seed in seeds[:1]:
        gathered.measure("million", title, seed, lambda seed=seed: one_million(seed))
    for found in gathered.found("million", title).values():
        error, seconds, wall = (median(values) for values in found.T)
        yield f"| {title} | {error:.4f} | {seconds:.0f} | {wall:.0f} |"


TABLES = {
    "networks": networks,
    "regressions": regressions,
    "logistic": logistic,
    "million": million,
    "symptoms": symptoms,
    "real": real,
}


def warm_up() -> None:
    our_network(lt.datasets.make_noisy_or(5000, 20, 2, random_state=0))
    our_regressions(planted_regressions(3, 2, 500, 0.1, 0))


if __name__ == "__main__":
    if "LATENSOR_DATA" not in os.environ:
        sys.stderr.write("LATENSOR_DATA is not set: symptoms and real are left out\n")
        TABLES = {name: TABLES[name] for name in TABLES if name not in ("symptoms", "real")}
    command(__doc__ or "", TABLES, {name: f"bench-nonlinear-{name}" for name in TABLES}, warm_up)
