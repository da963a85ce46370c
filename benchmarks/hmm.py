"""Hidden Markov models beside hmmlearn: likelihood of held-out rows and CPU time in one run.

    python -m benchmarks.hmm [planted] [large] [real]
    python -m benchmarks.hmm planted --store hmm.json --seeds 10 --first-seed 300
    python -m benchmarks.hmm --store hmm.json --render --write

The gap of a method is the held-out log-likelihood per row of Baum and Welch started at the true
parameters (the oracle) minus that of the method; a gap above 0.002 is a failure. hmmlearn runs its
faster implementation ("scaling"), 10 and 100 passes, and the best of ten starts by training
likelihood on the first LATENSOR_TEN_STARTS seeds (all, unless given). Real data is read from the
folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from hmmlearn import hmm

from benchmarks.gathered import Gathered, Run, command, median, number
from benchmarks.hmm_data import RealSet, real_sets
from latensor.datasets.sequences import make_gaussian_hmm, make_hmm
from latensor.models.hmm.categorical import CategoricalHMM
from latensor.models.hmm.gaussian import GaussianHMM
from latensor.moments.batch import Batch
from latensor.moments.ragged import Ragged
from latensor.refinement.em import em
from latensor.refinement.hmm import (
    CategoricalEmission,
    ChainFamily,
    GaussianEmission,
    HiddenChain,
)

FAILURE = 0.002
TEN_STARTS = int(os.environ.get("LATENSOR_TEN_STARTS", "1000000"))
METHODS = ("ours", "moments", "peer 10", "peer 100", "peer 100 x 10")


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
        emission = GaussianEmission.of(
            drawn.means, np.einsum("jaa->ja", drawn.covars), "diag", 1e-6
        )
    return drawn.X, drawn.lengths, HiddenChain(drawn.startprob, drawn.transmat, emission)


def oracle(setting: Setting, truth: HiddenChain, train: Any, test: Any, lengths: Any) -> float:
    """Held-out log-likelihood per row of an EM run that starts at the truth."""
    family = ChainFamily(truth.emission.design)
    parts = [
        family.prepare(_units(x[:, 0] if setting.kind == "symbols" else x, sizes))
        for x, sizes in zip((train, test), lengths, strict=True)
    ]
    fold = lambda start: start.update(parts[0])  # noqa: E731
    found = em(fold, family, truth, max_iter=300, tol=1e-8, prepared=True)
    return family.log_likelihood(found.state, parts[1]) / len(test)


def _units(rows: Any, lengths: Any) -> Batch:
    count = len(lengths)
    units = Ragged.of(np.ascontiguousarray(rows), lengths)
    return Batch((units,), np.ones(count), np.arange(count, dtype=np.uint64))


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


def candidates(setting: Setting, seed: int, many: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
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


def measure(setting: Setting, seed: int, many: bool, peers: bool) -> Run:
    """Gap and CPU seconds of every candidate; a method that refuses has an infinite gap."""
    X, sizes, truth = draw(setting, seed)
    half = setting.n_sequences
    cut = int(sizes[:half].sum())
    train, test, lengths = X[:cut], X[cut:], (sizes[:half], sizes[half:])
    best = oracle(setting, truth, train, test, lengths)
    found = {}
    for name, fit in candidates(setting, seed, many):
        if name.startswith("peer") and not peers:
            continue
        try:
            seconds, model = cpu(lambda fit=fit: fit(train, lengths[0]))
            found[name] = [best - model.score(test, lengths[1]) / len(test), seconds]
        except ValueError:
            found[name] = [np.inf, np.nan]
    return found


def planted_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield (
        "| planted: failures, worst gap in 1/1000, CPU s | seeds | ours | moments alone "
        "| hmmlearn 10 passes | 100 passes | best of 10 starts | hmmlearn 100 / ours, time |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for setting in SETTINGS:
        title = str(setting)
        for seed in seeds:
            gathered.measure(
                "planted",
                title,
                seed,
                lambda setting=setting, seed=seed: measure(
                    setting, seed, seed - seeds[0] < TEN_STARTS, not gathered.ours
                ),
            )
        found = gathered.found("planted", title)
        if not found:
            continue
        times = {name: median(runs[:, 1]) for name, runs in found.items()}
        ratio = number(times.get("peer 100", np.nan) / times["ours"])
        cells = [title, str(len(found["ours"]))]
        cells += [outcome(found[m]) if m in found else "" for m in METHODS]
        yield "| " + " | ".join([*cells, ratio]) + " |"


def outcome(runs: Any) -> str:
    """Failures of how many runs, worst gap, median time; and how many refused."""
    gaps = runs[np.isfinite(runs[:, 0]), 0]
    refused = f", {len(runs) - len(gaps)} refused" if len(gaps) < len(runs) else ""
    if not len(gaps):
        return "all refused"
    failures = int((gaps > FAILURE).sum())
    return f"{failures}/{len(gaps)}, {1e3 * gaps.max():.2f}, {median(runs[:, 1]):.2f}{refused}"


def large_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    """A million rows: moments alone and with ten passes, beside ten passes of hmmlearn."""
    yield "| n = 1e6, symbols, k 5, d 10 | gap | CPU s | times the moments |"
    yield "|---|---|---|---|"
    for seed in seeds[:1]:
        gathered.measure("large", "symbols", seed, lambda seed=seed: million(seed))
    rows = {name: runs[0] for name, runs in gathered.found("large", "symbols").items()}
    for name, (gap, seconds) in rows.items():
        base = next(iter(rows.values()))[1]
        yield f"| {name} | {gap:.5f} | {seconds:.3f} | {seconds / base:.1f} |"


def million(seed: int) -> Run:
    setting = Setting("symbols", 5, 10, 1_000_000, 0.5, 0.5)
    X, _, truth = draw(setting, seed)
    train, test = X[: setting.n], X[setting.n :]
    lengths = ([len(train)], [len(test)])
    best = oracle(setting, truth, train, test, lengths)
    found = {}
    for name, make, repeats in (
        ("ours, moments alone, views='lag'", lambda: ours("symbols", 5, 10, 0, "lag"), 5),
        ("ours, moments alone, both views", lambda: ours("symbols", 5, 10, 0), 5),
        ("ours, ten passes", lambda: ours("symbols", 5, 10, 10), 2),
        ("ours, auto", lambda: ours("symbols", 5, 10), 1),
        ("hmmlearn, ten passes, scaling", lambda: theirs("symbols", 5, 10, 10, 0), 1),
        ("hmmlearn, ten passes, log (default)", lambda: theirs("symbols", 5, 10, 10, 0, "log"), 1),
    ):
        runs = [cpu(lambda make=make: make().fit(train)) for _ in range(repeats)]
        gap = best - runs[0][1].score(test) / len(test)
        found[name] = [gap, min(seconds for seconds, _ in runs)]
    return found


def held_out(data: RealSet, k: int, seed: int, peers: bool) -> Run:
    """Log-likelihood per held-out row, CPU seconds and log-likelihood per training row."""
    found = {}
    models = {"ours": data.ours(k, seed)}
    if peers:
        models["peer 100"] = theirs(data.kind, k, data.n_symbols, 100, seed)
    for name, model in models.items():
        seconds, fitted = cpu(lambda model=model: model.fit(data.train, data.lengths))
        score = fitted.score(data.test, data.test_lengths) / len(data.test)
        found[name] = [score, seconds, fitted.score(data.train, data.lengths) / len(data.train)]
    return found


def real_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield (
        "| real: held-out log-likelihood per row | seeds | ours: median (range) "
        "| hmmlearn 100 passes: median (range) | ours, best by training | hmmlearn, best by "
        "training | CPU s ours, hmmlearn |"
    )
    yield "|---|---|---|---|---|---|---|"
    for data in real_sets():
        for k in data.states:
            title = f"{data.name}, k {k}"
            for seed in seeds:
                gathered.measure(
                    "real",
                    title,
                    seed,
                    lambda data=data, k=k, seed=seed: held_out(data, k, seed, not gathered.ours),
                )
            found = gathered.found("real", title)
            if not found:
                continue
            runs = [found[name] for name in ("ours", "peer 100")]
            cells = [title, str(len(runs[0]))]
            cells += [
                f"{median(r[:, 0]):.4f} ({r[:, 0].min():.4f} to {r[:, 0].max():.4f})" for r in runs
            ]
            cells += [f"{r[np.argmax(r[:, 2]), 0]:.4f}" for r in runs]
            cells.append(", ".join(number(median(r[:, 1]), ".1f") for r in runs))
            yield "| " + " | ".join(cells) + " |"


TABLES = {"planted": planted_table, "large": large_table, "real": real_table}


def warm_up() -> None:
    for setting in (SETTINGS[0], SETTINGS[8]._replace(n=2_000)):
        X, lengths, _ = draw(setting, 0)
        for refine in (0, "auto"):
            ours(setting.kind, setting.k, setting.d, refine).fit(X, lengths)


if __name__ == "__main__":
    assert __doc__ is not None
    command(__doc__.splitlines()[0], TABLES, "bench-hmm", warm_up)
