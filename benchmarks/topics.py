"""Topics beside tomotopy, topica, scikit-learn and gensim: quality and CPU seconds.

    python -m benchmarks.topics                                   everything, three seeds
    python -m benchmarks.topics --corpora ap bbc --peers tomotopy
    python -m benchmarks.topics --store topics.json --reuse-peers only ours is run again
    python -m benchmarks.topics --store topics.json --render --write

Figures are process CPU seconds of `fit` on one thread, each method alone in a process. Runs
under two seconds are repeated, for the median of seven: the speed of shared machines changes from
one second to the next. Peers run at their defaults and with our priors (alpha 0.1, beta 0.05, not
optimized). Their numbers of iterations are chosen by completion perplexity of a tenth of the
training documents, held out for that, with the first seed; all seeds then use that number on all
training documents. See `topics_scores` for how quality is measured. Real text is read from the
folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402

from benchmarks.tables import put  # noqa: E402
from benchmarks.topics_corpora import CORPORA, Corpus, Documents  # noqa: E402
from benchmarks.topics_peers import METHODS, OURS, Found, Task  # noqa: E402
from benchmarks.topics_scores import (  # noqa: E402
    Completion,
    complete,
    expectation_maximization,
    matched_distance,
    npmi,
    tuned_perplexity,
)
from benchmarks.topics_table import ORACLES, render  # noqa: E402

ROOT = Path(__file__).parent.parent
PEERS = [name for name in METHODS if name != OURS]
Say = Callable[[str], None]
# Runs of so few seconds are repeated so many times, for the median time.
_SHORT, _SHORT_RUNS = 2.0, 7


def fit_apart(name: str, counts: Any, task: Task, limit: float, say: Say) -> list[Found]:
    """Run a method in a process of its own; what it found until `limit` seconds were over."""
    with tempfile.TemporaryDirectory(prefix="bench-topics-") as place:
        folder = Path(place)
        scipy.sparse.save_npz(folder / "counts.npz", counts, compressed=False)
        (folder / "task.json").write_text(json.dumps({"method": name, **asdict(task)}))
        command = [sys.executable, "-m", "benchmarks.topics_peers", place]
        environment = {**os.environ, "NUMBA_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, timeout=limit, capture_output=True, text=True
            )
            if done.returncode:
                say(f"{name}: failed, {done.stderr.strip().splitlines()[-1:]}")
        except subprocess.TimeoutExpired:
            say(f"{name}: stopped after {limit:g} s")
        found: list[Found] = []
        for setting in task.settings:
            file = folder / f"found-{setting}.npz"
            if file.exists():
                with np.load(file) as saved:
                    seconds = float(saved["seconds"])
                    found.append((setting, seconds, saved["topics"], saved["alpha"]))
        return found


def fit_often(
    name: str, counts: Any, task: Task, least: int, limit: float, say: Say
) -> list[Found]:
    """What a method found, with the median time of `least` runs, or of more short ones."""
    found = fit_apart(name, counts, task, limit, say)
    if not found:
        return []
    count = _SHORT_RUNS if found[-1][1] < _SHORT else least
    times = [found[-1][1]]
    for _ in range(1, count):
        again = fit_apart(name, counts, task, limit, say)
        times.extend(run[1] for run in again[-1:])
    setting, _, topics, alpha = found[-1]
    return [*found[:-1], (setting, statistics.median(times), topics, alpha)]


def scores(found: Found, documents: Documents, completion: Completion) -> dict[str, float]:
    setting, seconds, topics, alpha = found
    row = {"setting": setting, "seconds": seconds, **tuned_perplexity(topics, alpha, completion)}
    row["npmi"] = npmi(topics, documents.train)
    if documents.topics is not None:
        row["distance"] = matched_distance(documents.topics, topics)
    return row


def choose(
    name: str, corpus: Corpus, documents: Documents, seed: int, ours: bool, limit: float, say: Say
) -> dict[str, Any] | None:
    """The number of iterations with the lowest perplexity on held-out training documents."""
    order = np.random.default_rng([seed, 3]).permutation(documents.train.shape[0])
    cut = min(order.size // 10, 1000)
    inside = documents.train[np.sort(order[cut:])]
    outside = documents.train[np.sort(order[:cut])]
    completion = complete(inside, outside, seed, halves=False)
    task = Task(corpus.n_components, METHODS[name].settings, seed, ours)
    path = [
        scores(found, documents, completion) for found in fit_apart(name, inside, task, limit, say)
    ]
    if not path:
        return None
    best = min(path, key=lambda row: row["perplexity"])
    return {"setting": best["setting"], "path": path}


def measure_peer(
    method: str,
    corpus: Corpus,
    documents: Documents,
    completion: Completion,
    seed: int,
    stored: dict[str, Any],
    options: argparse.Namespace,
    say: Say,
) -> None:
    """Choose the setting of a peer if that is still to be done, then run it at that."""
    name, _, priors = method.partition("+")
    choices = stored.setdefault("choices", {})
    if method not in choices:
        first = options.seeds[0]
        basis = documents if seed == first else corpus.read(first)
        assert basis is not None
        choice = choose(name, corpus, basis, first, bool(priors), options.limit, say)
        if choice is None:
            return
        choices[method] = choice
        say(f"{corpus.name} {method}: chosen {choice['setting']}")
    known, setting = METHODS[name], choices[method]["setting"]
    settings = tuple(s for s in known.settings if s <= setting)
    task = Task(corpus.n_components, settings if known.resumes else (setting,), seed, bool(priors))
    path = [
        scores(found, documents, completion)
        for found in fit_often(name, documents.train, task, 1, options.limit, say)
    ]
    if path:
        row = {**path[-1], "path": path[:-1]}
        stored.setdefault("runs", {}).setdefault(str(seed), {})[method] = row


def measure(corpus: Corpus, stored: dict[str, Any], options: argparse.Namespace, say: Say) -> None:
    """All methods on one corpus; `save` after each."""
    methods = [
        name + priors
        for priors in ("+ours", "")
        for name in options.peers
        if (priors == "+ours") in options.priors
    ]
    for seed in options.seeds:
        documents = corpus.read(seed)
        if documents is None:
            say(f"{corpus.title}: skipped, set LATENSOR_DATA to the folder of its files")
            return
        completion = complete(documents.train, documents.test, seed)
        row = stored.setdefault("runs", {}).setdefault(str(seed), {})
        for oracle in ORACLES if documents.topics is not None else ():
            if not (options.reuse_peers and oracle in row):
                topics = expectation_maximization(
                    documents.train,
                    documents.topics,
                    documents.alpha,
                    leave_one_out=oracle == "truth_loo",
                )
                row[oracle] = scores((0, 0.0, topics, documents.alpha), documents, completion)
                options.save()
        for method in methods:
            if not (options.reuse_peers and method in row):
                measure_peer(method, corpus, documents, completion, seed, stored, options, say)
                say(f"{corpus.name} {seed} {method}: {brief(row.get(method))}")
                options.save()
        if options.ours:
            task = Task(corpus.n_components, (0,), seed, True)
            found = fit_often(OURS, documents.train, task, options.repeat, options.limit, say)
            if found:
                row[OURS] = scores(found[-1], documents, completion)
            say(f"{corpus.name} {seed} {OURS}: {brief(row.get(OURS))}")
            options.save()


def brief(row: dict[str, Any] | None) -> str:
    if row is None:
        return "nothing"
    return ", ".join(f"{key} {value:.5g}" for key, value in row.items() if key != "path")


def main(say: Say = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [corpus.name for corpus in CORPORA]
    parser.add_argument("--corpora", nargs="+", default=names, choices=names)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--priors", choices=("ours", "default", "both"), default="both")
    parser.add_argument("--no-ours", dest="ours", action="store_false", help="run peers only")
    parser.add_argument("--repeat", type=int, default=3, help="runs of ours, for the median time")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds a run may take")
    parser.add_argument("--store", type=Path, help="JSON file that gathers results of several runs")
    parser.add_argument(
        "--reuse-peers", action="store_true", help="run peers only where nothing is stored"
    )
    parser.add_argument("--render", action="store_true", help="only print what is stored")
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    options = parser.parse_args()
    options.priors = {"ours": (True,), "default": (False,), "both": (True, False)}[options.priors]
    rows: dict[str, dict[str, Any]] = {}
    if options.store and options.store.exists():
        rows = json.loads(options.store.read_text())

    def save() -> None:
        if options.store:
            fresh = options.store.with_suffix(".new")
            fresh.write_text(json.dumps(rows, indent=1))
            fresh.replace(options.store)

    options.save = save
    if not options.render:
        for corpus in CORPORA:
            if corpus.name in options.corpora:
                measure(
                    corpus,
                    rows.setdefault(corpus.name, {}),
                    options,
                    lambda text: print(text, file=sys.stderr, flush=True),
                )
    lines = render(rows)
    say("\n".join(lines))
    if options.write:
        put("bench-topics", ["", *lines, ""])


if __name__ == "__main__":
    main()
