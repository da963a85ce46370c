"""CP decompositions beside TensorLy and pyttb: time to the peer's own final error.

    python -m benchmarks.cp                       every problem, three seeds
    python -m benchmarks.cp --group real --quick  one seed of one group
    python -m benchmarks.cp "100^3 k5" --store cp.json
    python -m benchmarks.cp --store cp.json --peers-only
    python -m benchmarks.cp --store cp.json --reuse-peers
    python -m benchmarks.cp --store cp.json --render --write

One BLAS thread for everybody. Every run is timed by both clocks at once, process CPU time and
seconds by the wall clock, and each has a table. Each peer runs once per seed; its final error,
computed explicitly, becomes the `target` of our run, and the ratio of the two times is the figure.
Our complete run, without a target, stands beside it with its error. A long list can be run in
pieces: `--store` gathers them in one file, and `--reuse-peers` spares the hours that the peers take
when only our own code has changed; `--peers-only` spends these hours beforehand. Measured data are
read from the folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402

from benchmarks.cp_problems import PROBLEMS, Problem  # noqa: E402
from benchmarks.tables import put  # noqa: E402
from latensor.decomposition import decompose  # noqa: E402
from latensor.tensors import CPTensor  # noqa: E402

CLOCKS = {"seconds": time.process_time, "wall": time.perf_counter}
Times = dict[str, float]
PEERS = {
    "tl_svd": "TensorLy, svd start",
    "tl_rnd": "TensorLy, random start",
    "ttb": "pyttb, defaults",
    "ttb8": "pyttb, stoptol 1e-8",
}


def timed(call: Callable[[], Any]) -> tuple[Any, Times]:
    """What a call returns, and what it took by every clock."""
    began = {name: clock() for name, clock in CLOCKS.items()}
    result = call()
    return result, {name: clock() - began[name] for name, clock in CLOCKS.items()}


def relative_error(tensor: Any, weights: np.ndarray, factors: list[np.ndarray]) -> float:
    """Frobenius norm of the residual relative to that of the tensor.

    Entry by entry for dense arrays, from inner products for sparse tensors.
    """
    if not isinstance(tensor, np.ndarray):
        model = CPTensor(weights, tuple(np.ascontiguousarray(f) for f in factors))
        total = float(tensor.norm()) ** 2
        image = tensor.mttkrp(list(model.factors), 0)
        inner = float(np.sum(weights * np.sum(model.factors[0] * image, axis=0)))
        loss = total - 2 * inner + float(model.norm()) ** 2
        return float(np.sqrt(max(loss, 0.0) / total))
    left = factors[0] * weights
    for factor in factors[1:-1]:
        left = (left[:, None, :] * factor[None, :, :]).reshape(-1, left.shape[1])
    residual = tensor.reshape(left.shape[0], -1) - left @ factors[-1].T
    return float(np.linalg.norm(residual) / np.linalg.norm(tensor))


def run_peer(peer: str, tensor: Any, rank: int, seed: int) -> tuple[Times, float]:
    """Times and final error of a peer; NaN where it raises or has no sparse tensors."""
    cannot = dict.fromkeys(CLOCKS, float("nan")), float("nan")
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if peer.startswith("tl"):
                if not isinstance(tensor, np.ndarray):
                    return cannot
                from tensorly.decomposition import parafac

                start = "svd" if peer == "tl_svd" else "random"
                (weights, factors), times = timed(
                    lambda: parafac(tensor, rank, init=start, random_state=seed)
                )
            else:
                import pyttb

                settings = {"stoptol": 1e-8} if peer == "ttb8" else {}
                dense = isinstance(tensor, np.ndarray)
                wrapped = pyttb.tensor(tensor) if dense else tensor.to_pyttb()
                np.random.seed(seed)  # noqa: NPY002 - the only way to seed pyttb
                (model, _, _), times = timed(
                    lambda: pyttb.cp_als(wrapped, rank, printitn=0, **settings)
                )
                weights, factors = model.weights, model.factor_matrices
        return times, relative_error(tensor, np.asarray(weights), [np.asarray(f) for f in factors])
    except Exception:
        return cannot


def run_ours(
    tensor: Any, rank: int, seed: int, target: float | None = None, repeat: int = 3
) -> tuple[Times, float]:
    """Times, the medians of a few runs, and error."""
    found: list[Times] = []
    for _ in range(repeat):
        result, times = timed(lambda: decompose(tensor, rank, target=target, random_state=seed))
        found.append(times)
        if sum(t["seconds"] for t in found) > 3.0:
            break
    weights, factors = result
    medians = {name: statistics.median(t[name] for t in found) for name in CLOCKS}
    return medians, relative_error(tensor, weights, list(factors))


def measure(
    problem: Problem, seed: int, peers: list[str], known: dict[str, float]
) -> dict[str, float] | None:
    """One row: our time and error, and for every peer time, error and our time to that error.

    Peers whose time and error are `known` are not run again.
    """
    tensor = problem.make(seed)
    if tensor is None:
        return None
    row: dict[str, float] = {}
    times, row["error"] = run_ours(tensor, problem.rank, seed)
    row.update(times)
    for peer in peers:
        if f"{peer}.error" not in known:
            known = known | measure_peers(problem, seed, [peer], known)
        row.update({key: value for key, value in known.items() if key.startswith(f"{peer}.")})
        error = row[f"{peer}.error"]
        if np.isfinite(error):
            # An error that rounding alone separates from the peer's counts as reached.
            target = max(error * (1 + 1e-9), 1e-13)
            times, reached = run_ours(tensor, problem.rank, seed, target)
            met = reached <= target * (1 + 1e-9)
            for name, taken in times.items():
                row[f"{peer}.ours.{name}"] = taken if met else float("nan")
    return row


def measure_peers(
    problem: Problem, seed: int, peers: list[str], known: dict[str, float]
) -> dict[str, float]:
    """Time and error of every peer that is not yet `known`, for a later `measure`."""
    peers = [peer for peer in peers if f"{peer}.error" not in known]
    tensor = problem.make(seed)
    row: dict[str, float] = {}
    for peer in peers if tensor is not None else []:
        times, row[f"{peer}.error"] = run_peer(peer, tensor, problem.rank, seed)
        row.update({f"{peer}.{name}": taken for name, taken in times.items()})
    return row


def warm_up() -> None:
    """Let imports and first-call costs fall outside the measurements."""
    tensor = np.random.default_rng(0).standard_normal((8, 7, 6))
    run_ours(tensor, 2, 0)
    for peer in PEERS:
        run_peer(peer, tensor, 2, 0)


def render(rows: dict[str, dict[str, dict[str, float]]], clock: str) -> str:
    """The results by one clock as a Markdown table with medians."""
    rows = {
        name: {seed: row for seed, row in seeds.items() if "seconds" in row}
        for name, seeds in rows.items()
    }
    names = [problem.name for problem in PROBLEMS if rows.get(problem.name)]
    lines = [
        "| problem | ours, s | ours, error | "
        + " | ".join(f"{title}: error, times faster" for title in PEERS.values())
        + " |",
        "|---" * (3 + len(PEERS)) + "|",
    ]
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    worst = -np.inf
    for name in names:
        seeds = list(rows[name].values())
        cells = [
            name,
            f"{np.median([row[clock] for row in seeds]):.3f}",
            f"{np.median([row['error'] for row in seeds]):.6g}",
        ]
        for row in seeds:
            best = np.nanmin([row.get(f"{p}.error", np.nan) for p in PEERS] + [np.inf])
            if np.isfinite(best):
                worst = max(worst, (row["error"] - max(best, 1e-8)) / max(best, 1e-8))
        for peer in PEERS:
            have = [row for row in seeds if f"{peer}.error" in row]
            errors = [row[f"{peer}.error"] for row in have]
            if not have:
                cells.append("not run")
            elif not np.isfinite(errors).any():
                cells.append("cannot")
            else:
                ours = f"{peer}.ours.{clock}"
                ratio = [row[f"{peer}.{clock}"] / row.get(ours, np.nan) for row in have]
                missed = int(np.isnan(ratio).sum())
                middle = float(np.nanmedian(ratio)) if missed < len(ratio) else float("nan")
                ratios[peer].append(middle)
                note = f" ({missed} of {len(ratio)} missed)" if missed else ""
                cells.append(f"{np.nanmedian(errors):.6g}, {middle:.3g}x{note}")
        lines.append("| " + " | ".join(cells) + " |")
    medians = {p: (np.nanmedian(r), np.nanmin(r)) for p, r in ratios.items() if r}
    lines.append(
        "| **median (smallest)** | | | "
        + " | ".join(
            f"**{medians[p][0]:.3g}x** ({medians[p][1]:.2g}x)" if p in medians else ""
            for p in PEERS
        )
        + " |"
    )
    lines += ["", f"Largest excess of our error over the best peer's: {worst:.1e} (relative)."]
    return "\n".join(lines)


def main(say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problems", nargs="*", help="beginnings of problem names; all without")
    parser.add_argument("--group", action="append", help="dense, big, over, real or sparse")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--store", type=Path, help="JSON file that gathers results of several runs")
    parser.add_argument(
        "--reuse-peers", action="store_true", help="run peers only where nothing is stored"
    )
    parser.add_argument("--only-known", action="store_true", help="run no peer at all")
    parser.add_argument(
        "--peers-only", action="store_true", help="run peers where nothing is stored, not ours"
    )
    parser.add_argument("--render", action="store_true", help="only print what is stored")
    parser.add_argument("--write", action="store_true", help="put the table into the docs")
    options = parser.parse_args()
    rows: dict[str, dict[str, dict[str, float]]] = {}
    if options.store and options.store.exists():
        rows = json.loads(options.store.read_text())
    if not options.render:
        warm_up()
        for problem in PROBLEMS:
            wanted = not options.problems or any(
                problem.name.startswith(p) for p in options.problems
            )
            if not wanted or (options.group and problem.group not in options.group):
                continue
            for seed in options.seeds[:1] if options.quick else options.seeds:
                stored = rows.get(problem.name, {}).get(str(seed), {})
                known = stored if options.reuse_peers or options.peers_only else {}
                peers = [
                    p for p in options.peers if not options.only_known or f"{p}.error" in known
                ]
                if options.only_known and not peers:
                    continue
                run = measure_peers if options.peers_only else measure
                row = run(problem, seed, peers, known)
                if not row:
                    say(f"{problem.name}: skipped, set LATENSOR_DATA to the folder of its file")
                    break
                rows.setdefault(problem.name, {}).setdefault(str(seed), {}).update(row)
                sys.stderr.write(f"{problem.name} seed {seed}: {row}\n")
                if options.store:
                    options.store.write_text(json.dumps(rows, indent=1))
    for clock, mark in (("seconds", "bench-cp"), ("wall", "bench-cp-wall")):
        table = render(rows, clock)
        say(table)
        if options.write:
            put(mark, ["", table, ""])


if __name__ == "__main__":
    main()
