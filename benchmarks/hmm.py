"""Hidden Markov models beside hmmlearn: likelihood of held-out rows and CPU time in one run.

Run with `python -m benchmarks.hmm planted|large|real`; it prints Markdown tables. The gap of a
method is the held-out log-likelihood per row of Baum and Welch started at the true parameters
(the oracle) minus that of the method; a gap above 0.002 is a failure. hmmlearn runs its faster
implementation ("scaling"), 10 and 100 passes, and the best of ten starts by training likelihood.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hmmlearn import hmm
from threadpoolctl import threadpool_limits

from benchmarks.hmm_data import real_sets
from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.models.categorical_hmm import CategoricalHMM
from latensor.models.gaussian_hmm import GaussianHMM
from latensor.refinement.hmm import (
    CategoricalEmission,
    GaussianEmission,
    HiddenChain,
    Sequences,
    climb,
    total_likelihood,
)

FAILURE = 0.002


class Setting(NamedTuple):
    """A planted problem: `spread` is the Dirichlet parameter of symbols or the separation."""

    kind: str
    k: int
    d: int
    n: int
    stay: float
    spread: float
    n_sequences: int = 1

    def __str__(self) -> str:
        many = f", {self.n_sequences} sequences" if self.n_sequences > 1 else ""
        return f"{self.kind} k {self.k}, d {self.d}, n {self.n:.0e}, stay {self.stay}{many}"


SETTINGS = (
    Setting("symbols", 2, 4, 10_000, 0.5, 1.0),
    Setting("symbols", 3, 6, 100_000, 0.5, 1.0),
    Setting("symbols", 5, 50, 100_000, 0.5, 0.5),
    Setting("symbols", 5, 10, 100_000, 0.95, 0.5),
    Setting("symbols", 5, 10, 100_000, 0.5, 0.5, 5_000),
    Setting("symbols", 3, 10, 50_000, 0.98, 10.0),
    Setting("symbols", 10, 20, 100_000, 0.5, 0.5),
    Setting("symbols", 10, 100, 200_000, 0.5, 0.5),
    Setting("points", 3, 1, 20_000, 0.5, 2.0),
    Setting("points", 5, 1, 20_000, 0.5, 2.0),
    Setting("points", 4, 2, 20_000, 0.5, 3.0),
    Setting("points", 5, 5, 20_000, 0.5, 3.0),
    Setting("points", 5, 5, 20_000, 0.9, 3.0),
    Setting("points", 10, 5, 20_000, 0.5, 3.0),
    Setting("points", 10, 20, 20_000, 0.5, 4.0),
)


def cpu(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def draw(setting: Setting, seed: int) -> tuple[Any, Any, Any]:
    """Twice the rows asked for, all their lengths, and the truth as a chain."""
    sizes = (2 * setting.n, setting.d, setting.k)
    shared = {
        "stay": setting.stay,
        "n_sequences": 2 * setting.n_sequences,
        "random_state": seed,
    }
    if setting.kind == "symbols":
        drawn = make_hmm(*sizes, concentration=setting.spread, **shared)
        emission: Any = CategoricalEmission(drawn.emissionprob)
    else:
        drawn = make_gaussian_hmm(*sizes, separation=setting.spread, **shared)
        emission = GaussianEmission(drawn.means, np.einsum("jaa->ja", drawn.covars), "diag", 1e-6)
    return drawn.X, drawn.lengths, HiddenChain(drawn.startprob, drawn.transmat, emission)


def oracle(setting: Setting, truth: HiddenChain, train: Any, test: Any, lengths: Any) -> float:
    """Held-out log-likelihood per row of a climb that starts at the truth."""
    rows = [x[:, 0] if setting.kind == "symbols" else x for x in (train, test)]
    first, second = Sequences.of(lengths[0]), Sequences.of(lengths[1])
    options = {"max_iter": 300, "tol": 1e-8, "accelerate": True, "n_threads": 1}
    found = climb(truth, rows[0], first, **options)
    return total_likelihood(found.chain, rows[1], second, 1) / len(test)


def ours(kind: str, k: int, d: int, refine: int | str = "auto", views: str = "auto") -> Any:
    settings = {"refine": refine, "views": views, "random_state": 0, "n_jobs": 1}
    if kind == "symbols":
        return CategoricalHMM(k, n_features=d, **settings)
    return GaussianHMM(k, **settings)


def theirs(kind: str, k: int, d: int, passes: int, seed: int, mode: str = "scaling") -> Any:
    settings = {"n_iter": passes, "random_state": seed, "implementation": mode}
    if kind == "symbols":
        return hmm.CategoricalHMM(k, n_features=d, **settings)
    return hmm.GaussianHMM(k, "diag", **settings)


def rivals(setting: Setting, seed: int, many: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    kind, k, d = setting.kind, setting.k, setting.d
    yield "ours", lambda *data: ours(kind, k, d).fit(*data)
    yield "moments", lambda *data: ours(kind, k, d, 0).fit(*data)
    yield "peer 10", lambda *data: theirs(kind, k, d, 10, seed).fit(*data)
    yield "peer 100", lambda *data: theirs(kind, k, d, 100, seed).fit(*data)
    if many:
        yield (
            "peer 100 x 10",
            lambda *data: max(
                (theirs(kind, k, d, 100, seed + 1000 * i).fit(*data) for i in range(10)),
                key=lambda model: model.score(*data),
            ),
        )


def measure(setting: Setting, seed: int, many: bool, peers: bool) -> dict[str, tuple[float, float]]:
    """Gap and CPU seconds of every rival; a method that refuses has an infinite gap."""
    X, sizes, truth = draw(setting, seed)
    half = setting.n_sequences
    cut = int(sizes[:half].sum())
    train, test, lengths = X[:cut], X[cut:], (sizes[:half], sizes[half:])
    best = oracle(setting, truth, train, test, lengths)
    found = {}
    for name, fit in rivals(setting, seed, many):
        if name.startswith("peer") and not peers:
            continue
        try:
            seconds, model = cpu(lambda fit=fit: fit(train, lengths[0]))
            found[name] = (best - model.score(test, lengths[1]) / len(test), seconds)
        except ValueError:
            found[name] = (np.inf, np.nan)
    return found


def planted_table(
    seeds: range, many: int, store: Path | None, chosen: str, refresh: bool
) -> Iterator[str]:
    rows: dict[str, dict[str, Any]] = {}
    if store is not None and store.exists():
        rows = json.loads(store.read_text())
    for setting, seed in itertools.product(SETTINGS, seeds):
        key = f"{setting} | {seed}"
        if chosen not in str(setting) or (key in rows) != refresh:
            continue
        rows[key] = {**rows.get(key, {}), **measure(setting, seed, seed < many, not refresh)}
        if store is not None:
            store.write_text(json.dumps(rows))
    yield "| setting | method | median gap | worst | failures | CPU s | times ours |"
    yield "|---|---|---|---|---|---|---|"
    for setting in SETTINGS:
        runs = [rows[key] for key in rows if key.startswith(f"{setting} |")]
        if not runs:
            continue
        base = statistics.median(run["ours"][1] for run in runs)
        for name in ("ours", "moments", "peer 10", "peer 100", "peer 100 x 10"):
            found = [run[name] for run in runs if name in run]
            if not found:
                continue
            gaps = [gap for gap, _ in found]
            finite = [gap for gap in gaps if np.isfinite(gap)]
            spent = [seconds for gap, seconds in found if np.isfinite(gap)]
            refused = f" ({len(gaps) - len(finite)} refused)" if len(finite) < len(gaps) else ""
            middle = f"{statistics.median(finite):.5f} | {max(finite):.5f}" if finite else "- | -"
            seconds = statistics.median(spent) if spent else np.nan
            failures = sum(gap > FAILURE for gap in finite)
            yield (
                f"| {setting} | {name} | {middle} | {failures}/{len(finite)}{refused} "
                f"| {seconds:.2f} | {seconds / base:.2f} |"
            )


def large_table() -> Iterator[str]:
    """A million rows: moments alone and with ten passes, beside ten passes of hmmlearn."""
    yield "| n = 1e6, symbols, k 5, d 10 | gap | CPU s | times the moments |"
    yield "|---|---|---|---|"
    setting = Setting("symbols", 5, 10, 1_000_000, 0.5, 0.5)
    X, _, truth = draw(setting, 0)
    train, test = X[: setting.n], X[setting.n :]
    lengths = ([len(train)], [len(test)])
    best = oracle(setting, truth, train, test, lengths)
    ours("symbols", 5, 10, 1).fit(train[:1000])
    rows = []
    for name, make, repeats in (
        ("ours, moments alone, views='lag'", lambda: ours("symbols", 5, 10, 0, "lag"), 5),
        ("ours, moments alone, both views", lambda: ours("symbols", 5, 10, 0), 5),
        ("ours, ten passes", lambda: ours("symbols", 5, 10, 10), 2),
        ("ours, auto", lambda: ours("symbols", 5, 10), 1),
        ("hmmlearn, ten passes, scaling", lambda: theirs("symbols", 5, 10, 10, 0), 2),
        ("hmmlearn, ten passes, log (default)", lambda: theirs("symbols", 5, 10, 10, 0, "log"), 1),
    ):
        runs = [cpu(lambda make=make: make().fit(train)) for _ in range(repeats)]
        gap = best - runs[0][1].score(test) / len(test)
        rows.append((name, gap, min(seconds for seconds, _ in runs)))
    for name, gap, seconds in rows:
        yield f"| {name} | {gap:.5f} | {seconds:.3f} | {seconds / rows[0][2]:.1f} |"


def real_table(n_seeds: int) -> Iterator[str]:
    yield (
        "| real set | ours, held out | CPU s | hmmlearn 100, median | best by training | range "
        "| CPU s each |"
    )
    yield "|---|---|---|---|---|---|---|"
    for data in real_sets():
        for k in data.states:
            seconds, model = cpu(lambda k=k, data=data: data.ours(k).fit(data.train, data.lengths))
            score = model.score(data.test, data.test_lengths) / len(data.test)
            runs = []
            for seed in range(n_seeds):
                spent, peer = cpu(
                    lambda k=k, seed=seed, data=data: theirs(
                        data.kind, k, data.n_symbols, 100, seed
                    ).fit(data.train, data.lengths)
                )
                runs.append(
                    (
                        peer.score(data.train, data.lengths),
                        peer.score(data.test, data.test_lengths) / len(data.test),
                        spent,
                    )
                )
            held_out = [run[1] for run in runs]
            yield (
                f"| {data.name}, k {k} | {score:.4f} | {seconds:.1f} "
                f"| {statistics.median(held_out):.4f} | {max(runs)[1]:.4f} "
                f"| {min(held_out):.4f} to {max(held_out):.4f} "
                f"| {statistics.median(run[2] for run in runs):.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("planted", "large", "real"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--ten-starts", type=int, default=10, help="seeds to run ten starts on")
    parser.add_argument("--peer-seeds", type=int, default=10, help="starts on real sets")
    parser.add_argument("--only", default="", help="part of the name of the settings to run")
    parser.add_argument("--store", type=Path, help="JSON file that gathers results of several runs")
    parser.add_argument(
        "--refresh", action="store_true", help="run ours again for what is stored, not the peers"
    )
    options = parser.parse_args()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        tables = {
            "planted": lambda: planted_table(
                range(options.seeds),
                options.ten_starts,
                options.store,
                options.only,
                options.refresh,
            ),
            "large": large_table,
            "real": lambda: real_table(options.peer_seeds),
        }
        for line in tables[options.what]():
            print(line, flush=True)


if __name__ == "__main__":
    main()
