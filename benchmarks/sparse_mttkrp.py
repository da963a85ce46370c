"""Mttkrp of all modes of a sparse tensor, as a sweep of ALS needs it, beside pyttb.

    python -m benchmarks.sparse_mttkrp           all tensors
    python -m benchmarks.sparse_mttkrp flights   those whose name begins so

The flights tensor is read from the folder that LATENSOR_DATA names; without it, a random tensor of
the same shape and with as many nonzeros stands in. Times are CPU seconds on one thread for
everybody, except where two threads are compared with one by the clock, which needs an idle machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.timing import milliseconds
from latensor.tensors.sparse import SparseTensor
from latensor.tensors.tns import read_tns

RANKS = [16, 32]
HEAD = (
    "| tensor | nonzeros | rank | set-up ms | latensor ms | pyttb ms | pyttb / latensor "
    "| two threads / one |"
)
FLIGHTS = "tensor_nycflights/day_hour_carrier_origin_dest.tns.gz"


def flights() -> SparseTensor:
    """Flights from New York in 2013 by day, hour, carrier, origin and destination."""
    folder = os.environ.get("LATENSOR_DATA")
    if folder and (Path(folder) / FLIGHTS).exists():
        return read_tns(Path(folder) / FLIGHTS)
    # Destinations and hours depend on carrier and origin, so that fibres are as long as there.
    rng = np.random.default_rng(0)
    routes = np.stack([rng.integers(0, d, 2900) for d in (24, 16, 3, 105)], axis=1)
    days = rng.integers(0, 365, 400_000)
    rows = np.column_stack([days, routes[rng.integers(0, len(routes), len(days))]])
    rows = np.unique(rows, axis=0)
    rows = rows[np.sort(rng.permutation(len(rows))[:330_813])]
    return SparseTensor(rows, np.ones(len(rows)), (365, 24, 16, 3, 105))


def uniform(shape: tuple[int, ...], nonzeros: int) -> SparseTensor:
    """Nonzeros at random places: the hardest case, where neighbours share next to nothing."""
    rng = np.random.default_rng(0)
    rows = np.stack([rng.integers(0, d, nonzeros) for d in shape], axis=1)
    return SparseTensor(rows, rng.random(nonzeros) + 0.1, shape)


TENSORS: dict[str, Callable[[], SparseTensor]] = {
    "flights, 365 x 24 x 16 x 3 x 105": flights,
    "uniform, 2000 x 1500 x 1000": lambda: uniform((2000, 1500, 1000), 1_000_000),
    "uniform, 500 x 400 x 300 x 200": lambda: uniform((500, 400, 300, 200), 2_000_000),
    "uniform, 5000 x 4000 x 3000": lambda: uniform((5000, 4000, 3000), 5_000_000),
}


def sweep(tensor: SparseTensor, factors: list[np.ndarray]) -> list[np.ndarray]:
    """One sweep as ALS does it: each factor is replaced as soon as its mttkrp is known."""
    run = tensor.sweep(factors)
    results = []
    for mode, factor in enumerate(factors):
        results.append(run.mttkrp(mode))
        run.replace(mode, factor)
    return results


def set_up(tensor: SparseTensor) -> float:
    """CPU seconds from unsorted coordinates to a tensor that has been contracted in all modes."""
    shuffled = np.random.default_rng(1).permutation(tensor.nnz)
    rows, values = tensor.coordinates[shuffled], tensor.values[shuffled]
    start = time.process_time()
    fresh = SparseTensor(rows, values, tensor.shape)
    sweep(fresh, [np.ones((d, 1)) for d in tensor.shape])
    return time.process_time() - start


def compare(tensor: SparseTensor, rank: int, repeats: int = 7) -> tuple[float, float, float]:
    """CPU seconds of ours and pyttb's sweep, and how many times faster two threads are."""
    import numba

    rng = np.random.default_rng(2)
    factors = [rng.random((d, rank)) for d in tensor.shape]
    theirs = tensor.to_pyttb()
    modes = range(tensor.order)
    answers = sweep(tensor, factors)
    start = time.process_time()
    expected = [theirs.mttkrp(factors, mode) for mode in modes]
    peer = time.process_time() - start
    for ours, other in zip(answers, expected, strict=True):
        assert np.allclose(ours, other, rtol=1e-9), "the answers differ"
    seconds = []
    clock: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(repeats):
        for threads in (1, 2):
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
            start, began = time.process_time(), time.perf_counter()
            sweep(tensor, factors)
            clock[threads].append(time.perf_counter() - began)
            if threads == 1:
                seconds.append(time.process_time() - start)
    numba.set_num_threads(1)
    # The quickest of a few runs, by the clock: other processes only ever add to it.
    return statistics.median(seconds), peer, min(clock[1]) / min(clock[2])


def first_use() -> tuple[float, float]:
    """Seconds of the first mttkrp in a new process: with an empty cache of kernels, and after."""
    script = (
        "import time, numpy as np; from latensor.tensors.sparse import SparseTensor; "
        "rng = np.random.default_rng(0); rows = rng.integers(0, 300, (200_000, 3)); "
        "values, factors = rng.random(200_000), [rng.random((300, 4))] * 3; "
        "start = time.process_time(); SparseTensor(rows, values).mttkrp(factors, 0); "
        "print(time.process_time() - start)"
    )
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"NUMBA_CACHE_DIR": folder}
        cold, *cached = (
            float(subprocess.check_output([sys.executable, "-c", script], env=environment))
            for _ in range(4)
        )
    return cold, statistics.median(cached)


def rows(prefix: str = "") -> Iterator[str]:
    """The table, line by line, and what the first use of the kernels costs."""
    import numba

    numba.set_num_threads(1)
    small = uniform((50, 60, 70), 120_000)
    set_up(small)
    compare(small, 2, repeats=1)
    yield HEAD
    yield "|---" * 8 + "|"
    for name, make in TENSORS.items():
        if not name.startswith(prefix):
            continue
        tensor = make()
        prepared = set_up(tensor)
        for rank in RANKS:
            ours, peer, speedup = compare(tensor, rank)
            yield (
                f"| {name} | {tensor.nnz:,} | {rank} | {milliseconds(prepared)} "
                f"| {milliseconds(ours)} | {milliseconds(peer)} | {peer / ours:.1f} "
                f"| {speedup:.2f} |"
            )
    cold, cached = first_use()
    yield ""
    yield f"First use of the kernels: {cold:.2f} s with an empty cache, {cached:.2f} s after."


if __name__ == "__main__":
    for row in rows(*sys.argv[1:2]):
        print(row, flush=True)
