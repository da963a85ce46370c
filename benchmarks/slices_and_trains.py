"""PARAFAC2, tensor trains and constrained CP beside TensorLy: time, error, how often it is right.

    python -m benchmarks.slices_and_trains

Figures are process CPU seconds with one BLAS thread for everybody. PARAFAC2: 12 planted slices of
30 to 34 rows and 20 columns, five data sets per row, one fit each; TensorLy from random starts,
with tol 1e-8 and 500 iterations. A fit is right where its residual is within 1e-4 of the least that
anybody found on the same data. Trains and constrained CP: medians over three seeds.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import latensor as lt


def timed(function: Callable[[], Any], repeats: int = 1) -> tuple[Any, float]:
    """The result of a call and the least CPU seconds it took."""
    least = np.inf
    for _ in range(repeats):
        began = time.process_time()
        result = function()
        least = min(least, time.process_time() - began)
    return result, least


def planted_slices(seed: int, rank: int, noise: float) -> list[np.ndarray]:
    """Ragged slices of a PARAFAC2 model, with noise as a ratio of norms."""
    rng = np.random.default_rng([seed, rank])
    loadings, middle = rng.uniform(0.1, 1.1, (12, rank)), rng.standard_normal((rank, rank))
    columns = rng.standard_normal((20, rank))
    slices = []
    for row in loadings:
        basis = np.linalg.qr(rng.standard_normal((rng.integers(30, 35), rank)))[0]
        slices.append(basis @ (middle * row) @ columns.T)
    errors = [rng.standard_normal(x.shape) for x in slices]
    ratio = noise * total(slices) / total(errors)
    return [x + ratio * e for x, e in zip(slices, errors, strict=True)]


def total(slices: list[np.ndarray]) -> float:
    """The Frobenius norm of all slices."""
    return float(np.sqrt(sum((x**2).sum() for x in slices)))


def parafac2_rows() -> None:
    """One Markdown row per rank and noise."""
    from tensorly.decomposition import parafac2
    from tensorly.parafac2_tensor import parafac2_to_slices

    print("| components, noise | latensor: right, error, s | TensorLy: right, error, s |")
    print("|---|---|---|")
    for rank, noise in ((3, 0.1), (5, 0.1), (8, 0.1), (3, 0.5), (8, 0.5)):
        ours, theirs = [], []
        for seed in range(5):
            slices = planted_slices(seed, rank, noise)
            found, seconds = timed(partial(lt.parafac2, slices, rank, random_state=seed))
            ours.append((found.residual, seconds))
            peer, seconds = timed(
                partial(
                    parafac2,
                    slices,
                    rank,
                    init="random",
                    random_state=seed,
                    tol=1e-8,
                    n_iter_max=500,
                )
            )
            left = [x - y for x, y in zip(slices, parafac2_to_slices(peer), strict=True)]
            theirs.append((total(left) / total(slices), seconds))
        best = np.minimum(np.array(ours)[:, 0], np.array(theirs)[:, 0])
        cells = [f"{rank}, {noise:.0%}"]
        for fits in (np.array(ours), np.array(theirs)):
            right = int((fits[:, 0] <= best * (1 + 1e-4)).sum())
            error, seconds = np.median(fits, axis=0)
            cells.append(f"{right} of 5, {error:.5f}, {seconds:.2f}")
        print(f"| {' | '.join(cells)} |", flush=True)


def planted_train(seed: int, shape: tuple[int, ...], ranks: tuple[int, ...], noise: float) -> Any:
    """A tensor of given train ranks with noise as a ratio of norms; noise alone where infinite."""
    rng = np.random.default_rng([seed, *shape])
    errors = rng.standard_normal(shape)
    if np.isinf(noise):
        return errors
    bounds = (1, *ranks, 1)
    cores = [rng.standard_normal((bounds[m], d, bounds[m + 1])) for m, d in enumerate(shape)]
    signal = lt.TensorTrain(tuple(cores)).to_dense()
    return signal + noise * np.linalg.norm(signal) / np.linalg.norm(errors) * errors


def train_rows() -> None:
    """One Markdown row per shape."""
    import tensorly
    from tensorly.decomposition import tensor_train

    print("| tensor | ranks | latensor: error, s | TensorLy: error, s |")
    print("|---|---|---|---|")
    for shape, ranks, noise in (
        ((20,) * 5, (10, 20, 20, 10), np.inf),
        ((20,) * 5, (10, 20, 20, 10), 0.1),
        ((8,) * 7, (5,) * 6, np.inf),
        ((100, 200, 300), (5, 5), 0.1),
        ((400, 500, 40), (8, 8), 0.1),
    ):
        rows = []
        for seed in range(3):
            tensor = planted_train(seed, shape, ranks, noise)
            found, ours = timed(partial(lt.tensor_train, tensor, ranks), 2)
            peer, theirs = timed(partial(tensor_train, tensor, [1, *ranks, 1]), 2)
            left = np.linalg.norm(tensor - tensorly.tt_to_tensor(peer)) / np.linalg.norm(tensor)
            rows.append((found.residual, ours, left, theirs, theirs / ours))
        error, ours, left, theirs, ratio = np.median(np.array(rows), axis=0)
        kind = "noise" if np.isinf(noise) else f"noise {noise:.0%}"
        size = " x ".join(map(str, shape))
        print(
            f"| {size}, {kind} | {', '.join(map(str, ranks))} | {error:.6f}, {ours:.3f} | "
            f"{left:.6f}, {theirs:.3f} ({ratio:.3g}x) |",
            flush=True,
        )


def constrained_tensor(seed: int, simplex: bool) -> np.ndarray:
    """Three components: peaks, positive and increasing columns, noise of 10 %."""
    rng = np.random.default_rng(seed)
    place = np.arange(40)[:, None]
    peaks = np.exp(-0.5 * ((place - rng.uniform(8, 32, 3)) / rng.uniform(2, 8, 3)) ** 2)
    peaks = peaks / peaks.sum(axis=0) if simplex else peaks
    others = rng.random((30, 3)), np.sort(rng.random((20, 3)), axis=0)
    signal = lt.CPTensor(None, (peaks, *others)).to_dense()
    errors = rng.standard_normal(signal.shape)
    return signal + 0.1 * np.linalg.norm(signal) / np.linalg.norm(errors) * errors


def constrained_rows() -> None:
    """One Markdown row per constraint: errors, and time to TensorLy's own error."""
    import tensorly
    from tensorly.decomposition import constrained_parafac

    print("| constraint | latensor: error, s, violations | TensorLy: error, s | to its error |")
    print("|---|---|---|---|")
    for name, value, mode, theirs in (
        ("unimodal", lt.constraints.Unimodal(), 0, {"unimodality": {0: True}}),
        ("monotone", lt.constraints.Monotone(), 2, {"monotonicity": {2: True}}),
        ("simplex", lt.constraints.Simplex(), 0, {"simplex": {0: 1}}),
    ):
        rows = []
        for seed in range(3):
            tensor = constrained_tensor(seed, name == "simplex")
            fit = partial(lt.decompose, tensor, 3, constraints={mode: value})
            found, ours = timed(fit)
            peer, seconds = timed(
                partial(constrained_parafac, tensor, 3, init="random", random_state=seed, **theirs)
            )
            left = np.linalg.norm(tensor - tensorly.cp_to_tensor(peer)) / np.linalg.norm(tensor)
            reached, short = timed(partial(fit, target=float(left)), 2)
            columns = np.asarray(found.factors[mode]).T
            violations = sum(not value.holds(column) for column in columns)
            ratio = seconds / short if reached.residual <= left else np.nan
            rows.append((found.residual, ours, violations, left, seconds, ratio))
        error, ours, violations, left, seconds, ratio = np.median(np.array(rows), axis=0)
        print(
            f"| {name} | {error:.5f}, {ours:.3f}, {violations:.0f} | {left:.5f}, {seconds:.2f} | "
            f"{ratio:.3g}x |",
            flush=True,
        )


def main() -> None:
    """All three tables."""
    warnings.simplefilter("ignore")
    lt.parafac2(planted_slices(0, 2, 0.1), 2, random_state=0)
    parafac2_rows()
    print()
    train_rows()
    print()
    constrained_rows()


if __name__ == "__main__":
    main()
