"""Overcomplete tensors, completion, tensor PCA, robust PCA and moments never formed.

    python -m benchmarks.hard                    # all tables
    python -m benchmarks.hard online large       # some of them

Figures are medians over seeds of process CPU seconds with one BLAS thread for everybody. A
component counts as found within 1e-6 rad; seeds in which all were found are counted. TensorLy has
its robust PCA at the right weight (2 / sqrt(n): it counts the nuclear norm once per mode) and 100
iterations, and its CP (parafac from an SVD start, 200 sweeps, 2000 with a mask).
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import numpy as np  # noqa: E402

import latensor as lt  # noqa: E402
from benchmarks.tables import put  # noqa: E402
from latensor.decomposition import (  # noqa: E402
    Foobi,
    StochasticLeastSquares,
    SubspacePower,
    Tensorization,
)


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """The result of a call and the CPU seconds it took."""
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def components(dimension: int, rank: int, correlation: float, seed: int) -> tuple[Any, Any]:
    """Unit vectors of a mean correlation, and weights from 0.5 to 2."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((dimension, rank))
    vectors /= np.linalg.norm(vectors, axis=0)
    common = rng.standard_normal(dimension)
    common /= np.linalg.norm(common)
    vectors = np.sqrt(correlation) * common[:, None] + np.sqrt(1 - correlation) * vectors
    return vectors / np.linalg.norm(vectors, axis=0), rng.uniform(0.5, 2.0, rank)


def fraction_found(vectors: Any, factor: Any) -> float:
    """The fraction of the vectors that columns of a factor meet."""
    units = factor / np.maximum(np.linalg.norm(factor, axis=0), 1e-300)
    cosines = np.minimum(np.abs(vectors.T @ units).max(axis=1), 1.0)
    return float(np.mean(np.sqrt(1 - cosines**2) < 1e-6))


def overcomplete(seeds: int = 20, few: int = 5) -> list[str]:
    """Order 4 to 6 by the algebraic methods, `lt.decompose` and TensorLy's ALS.

    Foobi has `few` seeds where it takes seconds.
    """
    from tensorly.decomposition import parafac

    lines = [
        "| order, d, k, correlation | SubspacePower | Foobi | Tensorization | `lt.decompose` "
        "| TensorLy ALS, one seed |",
        "|---|---|---|---|---|---|",
    ]
    # Random components at the limit of the method, correlated ones up to .33 d^2.
    cases = [(4, 6, 15, 0.0), (4, 8, 26, 0.0), (4, 10, 41, 0.0), (4, 12, 59, 0.0),
             (4, 15, 92, 0.0), (4, 20, 163, 0.0), (5, 6, 21, 0.0), (6, 6, 21, 0.0),
             (5, 10, 55, 0.0), (4, 10, 33, 0.5), (4, 10, 33, 0.8), (4, 12, 30, 0.8),
             (4, 15, 75, 0.5), (4, 15, 75, 0.8), (4, 20, 132, 0.5), (4, 20, 132, 0.8)]  # fmt: skip
    for order, dimension, rank, correlation in cases:
        cells: dict[str, list[tuple[float, float]]] = {}
        peer = ""
        for seed in range(seeds):
            vectors, weights = components(dimension, rank, correlation, seed)
            tensor = lt.CPTensor(weights, (vectors,) * order).to_dense()
            calls: dict[str, Callable[[], Any]] = {
                "auto": lambda t=tensor, k=rank: lt.decompose(t, k, symmetric=True)
            }
            algorithms = [Tensorization()] if order > 4 else [SubspacePower()]
            if order == 4 and rank <= 100 and (rank < 60 or seed < few):
                algorithms.append(Foobi())
            for one in algorithms:
                rng = np.random.default_rng(seed)
                calls[type(one).__name__] = lambda a=one, t=tensor, k=rank, r=rng: a(t, k, r)
            for name, call in calls.items():
                found, seconds = timed(call)
                fraction = fraction_found(vectors, np.asarray(found.factors[0]))
                cells.setdefault(name, []).append((fraction, seconds))
            if seed == 0 and order == 4 and not correlation:
                found, seconds = timed(
                    lambda t=tensor, k=rank: parafac(t, k, init="svd", n_iter_max=200, tol=1e-10)
                )
                fraction = fraction_found(vectors, np.asarray(found.factors[0]))
                peer = f"{fraction:.2f} of components, {seconds:.1f} s"
        shown = [
            f"{sum(s == 1.0 for s, _ in cells[n])}/{len(cells[n])}, "
            f"{np.median([t for _, t in cells[n]]):.2f} s, at most "
            f"{max(t for _, t in cells[n]):.2f}"
            if n in cells
            else ""
            for n in ("SubspacePower", "Foobi", "Tensorization", "auto")
        ]
        row = f"{order}, {dimension}, {rank}, {correlation}"
        lines.append(f"| {row} | {' | '.join(shown)} | {peer} |")
        print(lines[-1], flush=True)
    return lines


def noisy(seeds: int = 20) -> list[str]:
    """Components in small noise, where the error should be linear in it, and in noise of .05."""
    lines = [
        "| order 4: d, k, noise | `symmetric=True` | general | SubspacePower | Foobi |",
        "|---|---|---|---|---|",
    ]
    for dimension, rank, noise in ((8, 14, 1e-6), (8, 14, 1e-4), (8, 14, 1e-2), (10, 35, 0.05)):
        cells: list[list[float]] = [[], [], [], []]
        for seed in range(seeds):
            vectors, weights = components(dimension, rank, 0.0, seed)
            tensor = lt.CPTensor(weights, (vectors,) * 4).to_dense()
            rng = np.random.default_rng(seed)
            disturbed = lt.symmetrize(rng.standard_normal(tensor.shape))
            tensor = tensor + noise * np.linalg.norm(tensor) / np.linalg.norm(disturbed) * disturbed
            found = (
                lt.decompose(tensor, rank, symmetric=True),
                lt.decompose(tensor, rank),
                SubspacePower()(tensor, rank, rng),
                Foobi()(tensor, rank, rng),
            )
            for cell, one in zip(cells, found, strict=True):
                factor = np.asarray(one.factors[0])
                factor = factor / np.maximum(np.linalg.norm(factor, axis=0), 1e-300)
                cosines = np.minimum(np.abs(vectors.T @ factor).max(axis=1), 1.0)
                close = float(np.mean(cosines > 0.95))
                cell.append(close if noise == 0.05 else float(np.sqrt(1 - cosines**2).max()))
        of = "{:.3f} of components" if noise == 0.05 else "angle {:.1e}"
        shown = [of.format(np.mean(c) if noise == 0.05 else np.median(c)) for c in cells]
        lines.append(f"| {dimension}, {rank}, {noise:g} | {' | '.join(shown)} |")
        print(lines[-1], flush=True)
    return lines


def spikes() -> list[str]:
    """Overlap with the spike against its height over d^(3/4)."""
    heights = (0.25, 0.5, 0.75, 1.0, 1.5)
    lines = [
        "| overlap at height / d^(3/4) | " + " | ".join(str(h) for h in heights) + " | seconds |",
        "|---" * (len(heights) + 2) + "|",
    ]
    for dimension, seeds in ((50, 5), (100, 5), (200, 2), (300, 1)):
        cells, seconds = [], []
        for height in heights:
            overlaps, detected = [], 0
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                v = rng.standard_normal(dimension)
                v /= np.linalg.norm(v)
                tensor = height * dimension**0.75 * lt.outer(v, v, v)
                tensor += rng.standard_normal(tensor.shape)
                found, spent = timed(lambda t=tensor: lt.tensor_pca(t))
                overlaps.append(abs(float(found.vector @ v)))
                detected += found.detected
                seconds.append(spent)
            cells.append(f"{np.median(overlaps):.2f} ({detected}/{seeds})")
        lines.append(f"| d = {dimension} | {' | '.join(cells)} | {np.median(seconds):.2f} |")
        print(lines[-1], flush=True)
    return lines


def gross_errors(seeds: int = 10) -> list[str]:
    """Robust PCA of 500 x 500 matrices of rank 5 and of 60^3 tensors."""
    from tensorly.decomposition import robust_pca

    lines = [
        "| | errors of both signs | of one sign |",
        "|---|---|---|",
    ]
    settings = [(fraction, 0.0, 0.0) for fraction in (0.05, 0.1, 0.2, 0.25, 0.3, 0.35)]
    settings += [(fraction, 0.0, 0.3) for fraction in (0.1, 0.2, 0.35)]
    settings += [(fraction, 0.1, 0.0) for fraction in (0.1, 0.35)]
    for fraction, noise, missing in settings:
        cells = []
        for kind in ("both", "one"):
            outcomes = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                low = rng.standard_normal((500, 5)) @ rng.standard_normal((5, 500))
                data = _spoiled(low, fraction, kind, noise, rng)
                mask = rng.random(low.shape) >= missing if missing else None
                found, spent = timed(lambda x=data, m=mask: lt.robust_pca(x, 5, mask=m))
                outcomes.append((_error(found.low_rank.to_dense(), low), spent, found.status.name))
            cells.append(_told(outcomes, 0.05 if noise else 1e-8))
        lines.append(f"| {_setting(fraction, noise, missing)} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    for rank in (3, 5):
        cells = []
        for kind in ("both", "one"):
            outcomes = []
            for seed in range(seeds):
                rng = np.random.default_rng(seed)
                factors = [rng.standard_normal((60, rank)) for _ in range(3)]
                low = lt.TuckerTensor(rng.standard_normal((rank,) * 3), factors).to_dense()
                data = _spoiled(low, 0.1, kind, 0.0, rng)
                found, spent = timed(lambda x=data, r=rank: lt.robust_pca(x, r))
                outcomes.append((_error(found.low_rank.to_dense(), low), spent, found.status.name))
            cells.append(_told(outcomes, 1e-8))
        lines.append(f"| 60^3, Tucker ranks {rank}, 10% | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    for fraction, noise, missing in ((0.1, 0.0, 0.0), (0.35, 0.0, 0.3), (0.35, 0.1, 0.0)):
        cells = []
        for kind in ("both", "one"):
            rng = np.random.default_rng(0)
            low = rng.standard_normal((500, 5)) @ rng.standard_normal((5, 500))
            data = _spoiled(low, fraction, kind, noise, rng)
            mask = (rng.random(low.shape) >= missing).astype(float) if missing else None
            (part, _), spent = timed(
                lambda x=data, m=mask: robust_pca(x, m, reg_E=2 / np.sqrt(500), n_iter_max=100)
            )
            cells.append(f"{_error(np.asarray(part), low):.0e}, {spent:.1f} s")
        setting = _setting(fraction, noise, missing)
        lines.append(f"| TensorLy, {setting}, one seed | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def small(seeds: int = 2) -> list[str]:
    """Robust PCA of small matrices with up to 48 % errors: what is right, and what is called so."""
    lines = [
        "| | matrices | right | CONVERGED | wrong and CONVERGED | seconds in all |",
        "|---|---|---|---|---|---|",
    ]
    fractions = (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.48)
    kinds = ("both", "one", "columns", "exponential")
    cases = [(n, r, given) for n, r in ((60, 5), (120, 3)) for given in (r, r + 1, None)]
    for size, rank, given in cases:
        outcomes, began = [], time.process_time()
        for kind, fraction, noise, seed in product(kinds, fractions, (0.0, 0.1), range(seeds)):
            rng = np.random.default_rng(seed)
            low = rng.standard_normal((size, rank)) @ rng.standard_normal((rank, size))
            data, clean = _small(low, fraction, kind, noise, rng)
            found = lt.robust_pca(data, given)
            bar = max(1e-8, 3 * noise * float(np.sqrt(rank * (2 * size - rank) / clean)))
            right = _error(found.low_rank.to_dense(), low) < bar
            outcomes.append((right, found.status.name == "CONVERGED"))
        called = sum(c for _, c in outcomes)
        false = sum(c and not r for r, c in outcomes)
        told = {rank: "", None: " not given"}.get(given, f", {given} given")
        name = f"{size} x {size}, rank {rank}{told}"
        lines.append(
            f"| {name} | {len(outcomes)} | {sum(r for r, _ in outcomes)} | {called} | {false} "
            f"| {time.process_time() - began:.0f} |"
        )
        print(lines[-1], flush=True)
    return lines


def _small(
    low: Any, fraction: float, kind: str, noise: float, rng: np.random.Generator
) -> tuple[Any, int]:
    """Errors of four kinds, and the number of entries without one."""
    size = 10 * np.abs(low).mean()
    wrong = rng.uniform(0, 2 * fraction, low.shape[1]) if kind == "columns" else fraction
    hit = rng.random(low.shape) < wrong
    drawn = {
        "both": rng.uniform(-size, size, low.shape),
        "exponential": rng.exponential(size, low.shape),
    }.get(kind, np.full(low.shape, size))
    data = low + np.where(hit, drawn, 0.0) + noise * low.std() * rng.standard_normal(low.shape)
    return data, int((~hit).sum())


def _setting(fraction: float, noise: float, missing: float) -> str:
    extra = f", {missing:.0%} missing" if missing else ""
    return f"{fraction:.0%}{extra}" + (f", noise {noise:.0%}" if noise else "")


def _told(outcomes: list[tuple[float, float, str]], bar: float) -> str:
    """How many were right, the largest error, the median time, and whether one was told wrong."""
    errors, seconds, names = zip(*outcomes, strict=True)
    right = sum(e < bar for e in errors)
    false = sum(e >= bar and n == "CONVERGED" for e, n in zip(errors, names, strict=True))
    told = f", {false} wrong and CONVERGED" if false else ""
    spent = f"{np.median(seconds):.2f} s, at most {max(seconds):.2f}"
    return f"{right}/{len(errors)}, {max(errors):.0e}, {spent}{told}"


def completion() -> list[str]:
    """How often a tensor is recovered, against the number of entries over d^1.5 k."""
    from tensorly.decomposition import parafac

    ratios = (1.0, 1.5, 2.0, 2.5, 3.0)
    lines = [
        "| entries / (d^1.5 k) | " + " | ".join(str(r) for r in ratios) + " |",
        "|---" * (len(ratios) + 1) + "|",
    ]
    for dimension, rank in ((50, 3), (50, 5), (100, 5)):
        ours, peers = [], []
        for ratio in ratios:
            exact, silent, seconds, peer = 0, 0, [], ""
            seeds = 20 if ratio == 2.5 else 5
            for seed in range(seeds):
                truth, coordinates = _observed(dimension, rank, ratio, seed)
                triple = (coordinates, truth.at(coordinates), truth.shape)
                try:
                    found, spent = timed(lambda t=triple, k=rank: lt.complete(t, k))
                except lt.NotIdentifiableError:
                    continue
                seconds.append(spent)
                whole = truth.to_dense()
                right = _error(found.tensor.to_dense(), whole) < 1e-6
                exact += right
                silent += not right and found.status.name == "CONVERGED"
                if seed == 0 and dimension == 50:
                    mask = np.zeros(truth.shape)
                    mask[tuple(coordinates.T)] = 1.0
                    other, spent = timed(
                        lambda x=whole * mask, m=mask, k=rank: parafac(
                            x, k, mask=m, init="svd", n_iter_max=2000, tol=1e-8
                        )
                    )
                    peer = f"error {_error(other.to_tensor(), whole):.2f}, {spent:.0f} s"
            told = f", {silent} silent" if silent else ""
            ours.append(
                f"{exact}/{seeds}, {np.median(seconds):.1f} s{told}" if seconds else "refused"
            )
            peers.append(peer)
        lines.append(f"| d = {dimension}, k = {rank}: `lt.complete` | {' | '.join(ours)} |")
        print(lines[-1], flush=True)
        if dimension == 50:
            lines.append(f"| TensorLy, one seed | {' | '.join(peers)} |")
            print(lines[-1], flush=True)
    return lines


def recovery() -> list[str]:
    """Completion in the settings with a bar: unequal norms, small tensors, a large one."""
    cases = [("100^3, k = 5, 2.5 d^1.5 k entries, norms in ratio 3", (100,) * 3, 5, 12500, 3.0, 20)]
    shape = (15, 16, 17)
    cases += [(f"15 x 16 x 17, k = 3, {p} % observed", shape, 3, 4080 * p // 100, 1.0, 10)
              for p in (20, 15, 12)]  # fmt: skip
    count = int(2.5 * 1000**1.5 * 5)
    cases += [("1000^3, k = 5, 2.5 d^1.5 k entries", (1000,) * 3, 5, count, 1.0, 1)]
    lines = ["| | recovered | wrong and CONVERGED | seconds |", "|---|---|---|---|"]
    for name, shape, rank, count, ratio, seeds in cases:
        exact, silent, seconds = 0, 0, []
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            factors = [rng.standard_normal((d, rank)) for d in shape]
            truth = lt.CPTensor(np.geomspace(1.0, ratio, rank), factors)
            chosen = rng.choice(np.prod(shape), count, replace=False)
            coordinates = np.stack(np.unravel_index(chosen, shape), axis=1)
            triple = (coordinates, truth.at(coordinates), shape)
            found, spent = timed(lambda t=triple, k=rank: lt.complete(t, k, random_state=0))
            places = rng.integers(0, shape, (10000, 3))
            right = _error(found.tensor.at(places), truth.at(places)) < 1e-6
            exact += right
            silent += not right and found.status.name == "CONVERGED"
            seconds.append(spent)
        lines.append(f"| {name} | {exact}/{seeds} | {silent} | {np.median(seconds):.1f} |")
        print(lines[-1], flush=True)
    return lines


def _observed(dimension: int, rank: int, ratio: float, seed: int) -> tuple[lt.CPTensor, Any]:
    rng = np.random.default_rng(seed)
    shape = (dimension,) * 3
    truth = lt.CPTensor(np.ones(rank), [rng.standard_normal((dimension, rank)) for _ in shape])
    chosen = rng.choice(dimension**3, int(ratio * dimension**1.5 * rank), replace=False)
    return truth, np.stack(np.unravel_index(chosen, shape), axis=1)


def _spoiled(low: Any, fraction: float, kind: str, noise: float, rng: np.random.Generator) -> Any:
    size = 10 * np.abs(low).mean()
    drawn = rng.uniform(-size, size, low.shape) if kind == "both" else np.full(low.shape, size)
    data = low + np.where(rng.random(low.shape) < fraction, drawn, 0.0)
    return data + noise * low.std() * rng.standard_normal(low.shape)


def _error(found: Any, truth: Any) -> float:
    return float(np.linalg.norm(found - truth) / np.linalg.norm(truth))


def large(seeds: int = 3) -> list[str]:
    """Many components: order 3 of three factors and of one, order 4."""
    lines = [
        "| order, d, k | all found | seconds, median and largest | largest residual |",
        "|---|---|---|---|",
    ]
    cases = [("3, three factors", 100, 1000), ("3, one factor", 100, 500),
             ("3, one factor", 60, 210), ("4, one factor", 40, 600)]  # fmt: skip
    for name, dimension, rank in cases:
        order, one, right, seconds, residuals = int(name[0]), "one" in name, 0, [], []
        for seed in range(seeds):
            drawn = [components(dimension, rank, 0.0, seed + 1000 * m)[0] for m in range(order)]
            weights = np.random.default_rng(seed).uniform(0.5, 2.0, rank)
            factors = (drawn[0],) * order if one else tuple(drawn)
            tensor = lt.CPTensor(weights, factors).to_dense()
            found, spent = timed(
                lambda t=tensor, k=rank, s=one: lt.decompose(t, k, symmetric=s or None)
            )
            right += fraction_found(factors[0], np.asarray(found.factors[0])) == 1.0
            seconds.append(spent)
            residuals.append(found.residual)
        lines.append(
            f"| {name}, {dimension}, {rank} | {right}/{seeds} "
            f"| {np.median(seconds):.1f}, {max(seconds):.1f} | {max(residuals):.0e} |"
        )
        print(lines[-1], flush=True)
    return lines


def online(samples: int = 20000, rank: int = 20) -> list[str]:
    """Three views straight from their samples, beside the moment tensor formed first."""
    lines = [
        "| d | formed, then `lt.decompose` | samples in memory | batches of 1,000 "
        "| 5,000 samples, then a stream |",
        "|---|---|---|---|---|",
    ]
    for dimension in (100, 300, 1000):
        rng = np.random.default_rng(0)
        means = [rng.standard_normal((dimension, rank)) for _ in range(3)]
        labels = rng.integers(rank, size=samples)
        views = tuple(m.T[labels] + rng.standard_normal((samples, dimension)) for m in means)
        batches = [tuple(v[i : i + 1000] for v in views) for i in range(0, samples, 1000)]
        calls: list[Callable[[], Any]] = [
            lambda v=views: lt.decompose(lt.MomentTensor(v).to_dense(), rank),
            lambda v=views: lt.decompose(lt.MomentTensor(v), rank),
            lambda b=batches: lt.decompose(lt.MomentTensor(b), rank),
            lambda b=batches: _streamed(b, rank),
        ]
        if dimension > 100:
            calls[0] = lambda: None
        cells = []
        for call in calls:
            found, spent = timed(call)
            cells.append("" if found is None else f"{_sine(means, found):.3f}, {spent:.1f} s")
        lines.append(f"| {dimension} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def _streamed(batches: list[Any], rank: int) -> Any:
    start = lt.decompose(lt.MomentTensor(batches[:5]), rank)
    fit = StochasticLeastSquares(start.tensor, 5000)
    for batch in batches[5:]:
        fit = fit.update(batch)
    return fit.tensor


def _sine(means: list[Any], found: Any) -> float:
    """The sine of the largest angle between a mean and the nearest column."""
    squares = []
    for mean, factor in zip(means, found.factors, strict=True):
        cosines = np.abs((mean / np.linalg.norm(mean, axis=0)).T @ np.asarray(factor))
        squares.append(1 - np.minimum(cosines.max(axis=1), 1.0) ** 2)
    return float(np.sqrt(np.max(squares)))


TABLES: dict[str, Callable[[], list[str]]] = {
    "errors": gross_errors,
    "small": small,
    "spikes": spikes,
    "completion": completion,
    "recovery": recovery,
    "overcomplete": overcomplete,
    "noisy": noisy,
    "large": large,
    "online": online,
}


def main() -> None:
    """Run all tables, or those that are named, and write them."""
    warnings.simplefilter("ignore")
    for name in sys.argv[1:] or TABLES:
        put(f"bench-hard-{name}", ["", *TABLES[name](), ""])


if __name__ == "__main__":
    main()
