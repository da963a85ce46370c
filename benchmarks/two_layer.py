"""Networks with one hidden layer beside MLPRegressor and L-BFGS from random starts, in one run.

    python -m benchmarks.two_layer [--seeds 20] [--store runs.json] [--again] [--write]

L-BFGS is the one of our refinement, on all features, from weights drawn as scikit-learn draws them.
Times are process CPU seconds; errors and times of a row are medians over its seeds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neural_network import MLPRegressor

import latensor as lt
from benchmarks.gathered import Gathered, Run, command, median
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
# Seeds of ours, and of the peers; of ten starts so many where samples are few, and one of more.
_SEEDS, _PEERS, _TEN, _AFFORDABLE = 20, 10, 10, 20_000


def judged(planted: Any, components: Any, predicted: Any, seconds: float) -> list[float]:
    """Relative squared error to the outputs without noise, units found, all found, seconds."""
    one, other = (
        w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-300)
        for w in (planted.components, components)
    )
    cosines = np.abs(one @ other.T)
    found = cosines[linear_sum_assignment(-cosines)] > _COSINE
    gaps = predicted - planted.mean[:, 0]
    error = float((gaps**2).mean() / planted.mean.var())
    return [error, float(found.mean()), float(found.all()), seconds]


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


def our_network(planted: Any, activation: str) -> Run:
    found, k = {}, len(planted.components)
    for name, refine in (("moments", 0), ("ours", "auto")):
        model = lt.TwoLayerNetwork(
            k, activation=activation, refine=refine, random_state=0, n_jobs=1
        )
        try:
            _, seconds = timed(lambda model=model: model.fit(planted.X, planted.y))
        except lt.NotIdentifiableError:
            continue
        found[name] = judged(planted, model.components_, model.predict(planted.X), seconds)
    return found


def descents(planted: Any, activation: str, count: int, seed: int) -> Run:
    (components, predicted), seconds = timed(
        lambda: random_starts(planted, activation, count, seed)
    )
    name = "L-BFGS, 1 start" if count == 1 else f"L-BFGS, {count} starts"
    return {name: judged(planted, components, predicted, seconds)}


def perceptron(planted: Any, activation: str, seed: int) -> Run:
    peer = MLPRegressor(
        hidden_layer_sizes=(len(planted.components),),
        activation="logistic" if activation == "sigmoid" else activation,
        early_stopping=False,
        max_iter=1000,
        random_state=seed,
    )
    _, seconds = timed(lambda: peer.fit(planted.X, planted.y))
    return {"MLPRegressor": judged(planted, peer.coefs_[0].T, peer.predict(planted.X), seconds)}


def planted_networks(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    head = "relative squared error, units found, runs that found all, CPU s"
    yield f"| {head} | " + " | ".join(_COLUMNS) + " |"
    yield "|---" * 6 + "|"
    for activation, d, k, n in SETTINGS:
        title = f"{activation}, d {d}, k {k}, n {n:,}"
        for place, seed in enumerate(seeds[:_SEEDS]):

            def made(settings: Any = (n, d, k), kind: str = activation, seed: int = seed) -> Any:
                return lt.datasets.make_network(*settings, activation=kind, random_state=seed)

            gathered.measure(
                "planted",
                title,
                seed,
                lambda made=made, kind=activation: our_network(made(), kind),
            )
            if place >= _PEERS or gathered.ours:
                continue
            gathered.measure(
                "one start",
                title,
                seed,
                lambda made=made, kind=activation, seed=seed: {
                    **descents(made(), kind, 1, seed),
                    **perceptron(made(), kind, seed),
                },
            )
            if place < (_TEN if n <= _AFFORDABLE else 1):
                gathered.measure(
                    "ten starts",
                    title,
                    seed,
                    lambda made=made, kind=activation, seed=seed: descents(made(), kind, 10, seed),
                )
        yield from row(gathered, title)


def row(gathered: Gathered, title: str) -> Iterator[str]:
    found: dict[str, Any] = {}
    for table in ("planted", "one start", "ten starts"):
        found |= gathered.found(table, title)
    if not found:
        return
    cells = []
    for column in _COLUMNS:
        if column not in found:
            cells.append("not run")
            continue
        errors, units, whole, seconds = found[column].T
        cells.append(
            f"{median(errors):.1e}, {100 * np.mean(units):.0f} %, "
            f"{sum(whole):.0f} of {len(whole)}, {median(seconds):.1f} s"
        )
    yield f"| {title} | " + " | ".join(cells) + " |"


def warm_up() -> None:
    our_network(lt.datasets.make_network(5000, 4, 2, random_state=0), "sigmoid")


if __name__ == "__main__":
    command(__doc__ or "", {"planted": planted_networks}, {"planted": "bench-two-layer"}, warm_up)
