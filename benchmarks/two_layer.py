"""Networks with one hidden layer beside MLPRegressor and L-BFGS from random starts, in one run.

Run with `python -m benchmarks.two_layer [--seeds N] [--peers M] [--rows 0,2,..] [--no-write]`; it
writes its table into docs/benchmarks.md. L-BFGS is the one of our refinement, on all features, from
weights drawn as scikit-learn draws them. Times are process CPU seconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neural_network import MLPRegressor

import latensor as lt
from benchmarks.tables import put
from latensor.engines import LocalEngine
from latensor.models.networks.two_layer_family import NetworkFamily, NetworkState
from latensor.models.networks.two_layer_model import descended
from latensor.moments.batch import Batch, Kind
from latensor.sources.shards import Source

# Activation, features, hidden units, samples; noise of .1 standard deviations of the outputs.
SETTINGS = (
    ("sigmoid", 10, 4, 10_000),
    ("sigmoid", 50, 5, 20_000),
    ("tanh", 20, 5, 50_000),
    ("relu", 20, 5, 100_000),
    ("sigmoid", 20, 5, 100_000),
    ("sigmoid", 40, 10, 100_000),
)
# A hidden unit is found if its direction has this cosine to the truth.
_COSINE = 0.95
_COLUMNS = ("moments", "ours", "L-BFGS, 1 start", "L-BFGS, 10 starts", "MLPRegressor")
# Samples up to which ten starts are affordable for every seed; of more, for the first one.
_AFFORDABLE = 20_000


def judged(planted: Any, components: Any, predicted: Any, seconds: float) -> tuple[float, ...]:
    """Relative squared error to the outputs without noise, units found, all found, seconds."""
    one, other = (
        w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-300)
        for w in (planted.components, components)
    )
    cosines = np.abs(one @ other.T)
    found = cosines[linear_sum_assignment(-cosines)] > _COSINE
    gaps = predicted - planted.mean[:, 0]
    error = float((gaps**2).mean() / planted.mean.var())
    return error, float(found.mean()), float(found.all()), seconds


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    return call(), time.process_time() - start


def random_starts(planted: Any, activation: str, count: int, seed: int) -> Any:
    """The best of several runs of L-BFGS from random weights."""
    n, d = planted.X.shape
    k = len(planted.components)
    target = np.array([[planted.y.mean()], [planted.y.std()]])
    family = NetworkFamily(np.zeros(d), np.eye(d), target, activation, "squared", 1e-4)
    units = Batch((planted.X, planted.y[:, None]), np.ones(n), np.arange(n, dtype=np.uint64))
    blocks = [family.prepare(block) for block in units.blocks(Kind.TARGETED.block)]
    source, engine = Source(Kind.TARGETED, (blocks,), blocked=True), LocalEngine(1)
    rng, best = np.random.default_rng(seed), None
    for _ in range(count):
        bounds = [np.sqrt(factor / (a + b)) for factor, a, b in ((6, d, k), (6, k, 1))]
        state = NetworkState(
            rng.uniform(-bounds[0], bounds[0], (k, d)),
            rng.uniform(-bounds[0], bounds[0], k),
            rng.uniform(-bounds[1], bounds[1], (1, k)),
            np.zeros(1),
        )
        reached = descended(lambda start: engine.fold(source, start), family, state, 1000, 1e-6)
        best = reached if best is None or reached.loss < best.loss else best
    assert best is not None
    outputs = family.outputs(best.state, family.prepare(units).parts[0])
    return best.state.hidden, target[0, 0] + target[1, 0] * outputs[:, 0]


def run(setting: tuple[str, int, int, int], seed: int, peers: bool) -> dict[str, Any]:
    activation, d, k, n = setting
    planted = lt.datasets.make_network(n, d, k, activation=activation, random_state=seed)
    answers = {}
    for name, refine in (("moments", 0), ("ours", "auto")):
        model = lt.TwoLayerNetwork(
            k, activation=activation, refine=refine, random_state=0, n_jobs=1
        )
        try:
            _, seconds = timed(lambda model=model: model.fit(planted.X, planted.y))
        except lt.NotIdentifiableError:
            continue
        answers[name] = judged(planted, model.components_, model.predict(planted.X), seconds)
    if not peers:
        return answers
    for name, count in (("L-BFGS, 1 start", 1), ("L-BFGS, 10 starts", 10)):
        if count == 1 or n <= _AFFORDABLE or seed == 0:
            call = lambda count=count: random_starts(planted, activation, count, seed)  # noqa: E731
            (components, predicted), seconds = timed(call)
            answers[name] = judged(planted, components, predicted, seconds)
    peer = MLPRegressor(
        hidden_layer_sizes=(k,),
        activation="logistic" if activation == "sigmoid" else activation,
        early_stopping=False,
        max_iter=1000,
        random_state=seed,
    )
    _, seconds = timed(lambda: peer.fit(planted.X, planted.y))
    answers["MLPRegressor"] = judged(planted, peer.coefs_[0].T, peer.predict(planted.X), seconds)
    return answers


def row(setting: tuple[str, int, int, int], runs: list[dict[str, Any]]) -> str:
    activation, d, k, n = setting
    cells = []
    for column in _COLUMNS:
        found = [answers[column] for answers in runs if column in answers]
        if not found:
            cells.append("not run")
            continue
        errors, units, whole, seconds = zip(*found, strict=True)
        cells.append(
            f"{statistics.median(errors):.1e}, {100 * statistics.mean(units):.0f} %, "
            f"{sum(whole):.0f} of {len(found)}, {statistics.median(seconds):.1f} s"
        )
    return f"| {activation}, d {d}, k {k}, n {n:,} | " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--peers", type=int, default=10, help="seeds that the peers run too")
    parser.add_argument("--rows", default=",".join(map(str, range(len(SETTINGS)))))
    parser.add_argument("--no-write", action="store_true", help="print the rows only")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    head = "relative squared error, units found, runs that found all, CPU s"
    lines = [f"| {head} | " + " | ".join(_COLUMNS) + " |", "|---" * 6 + "|"]
    for place in map(int, arguments.rows.split(",")):
        setting = SETTINGS[place]
        runs = [run(setting, seed, seed < arguments.peers) for seed in range(arguments.seeds)]
        lines.append(row(setting, runs))
        print(lines[-1], flush=True)
    if not arguments.no_write:
        put("bench-two-layer", lines)


if __name__ == "__main__":
    main()
