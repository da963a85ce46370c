"""CP and Tucker regression beside TensorLy: weights, R2 and process CPU time in one run.

Run with `python -m benchmarks.regression [planted] [pictures] [digits] [--first SEED] [--write]`;
it prints Markdown tables, and writes them into docs/benchmarks.md. Weights of planted rank with
standard normal factors, noise of 0.3 standard deviations of the signal, entries of X white or with
correlation rho between neighbours in every mode. TensorLy has no intercept: its targets are centred
for it. Its best is over four penalties and two random starts, chosen by the true weights; its time
is that of one fit. latensor is called once, with alpha="auto".
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeCV
from tensorly.regression import CPRegressor, TuckerRegressor
from threadpoolctl import threadpool_limits

import latensor as lt
from benchmarks.tables import put

PENALTIES = (1.0, 10.0, 100.0, 1000.0)
# Dimensions, rank or ranks, correlation, number of data sets.
SETTINGS: list[tuple[tuple[int, ...], Any, float, int]] = [
    ((20, 20), 3, 0.0, 40),
    ((20, 20), 3, 0.8, 40),
    ((20, 20), 5, 0.0, 40),
    ((20, 20), 5, 0.8, 40),
    ((30, 20, 10), 3, 0.0, 20),
    ((30, 20, 10), 3, 0.8, 20),
    ((20, 20), (3, 3), 0.0, 40),
    ((20, 20), (3, 3), 0.8, 40),
    ((30, 20, 10), (3, 3, 3), 0.0, 20),
]


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def correlated(rng: np.random.Generator, n: int, dims: tuple[int, ...], rho: float) -> Any:
    X = rng.standard_normal((n, *dims))
    if rho:
        for k, d in enumerate(dims):
            gaps = np.abs(np.subtract.outer(np.arange(d), np.arange(d)))
            root = np.linalg.cholesky(rho**gaps)
            X = np.moveaxis(np.tensordot(root, X, axes=(1, k + 1)), 0, k + 1)
    return np.ascontiguousarray(X)


def planted(dims: tuple[int, ...], rank: Any, rho: float, seed: int, n: int = 500) -> Any:
    rng = np.random.default_rng(seed)
    if isinstance(rank, tuple):
        factors = [rng.standard_normal((d, r)) for d, r in zip(dims, rank, strict=True)]
        W = lt.TuckerTensor(rng.standard_normal(rank), tuple(factors)).to_dense()
    else:
        factors = [rng.standard_normal((d, rank)) for d in dims]
        W = lt.CPTensor(np.ones(rank), tuple(factors)).to_dense()
    X, X_new = correlated(rng, n, dims, rho), correlated(rng, 1000, dims, rho)
    signal = X.reshape(n, -1) @ W.ravel()
    y = signal + 0.3 * signal.std() * rng.standard_normal(n) + 5
    return X, y, W, X_new, X_new.reshape(1000, -1) @ W.ravel()


def quality(found: Any, W: Any, X_new: Any, signal: Any) -> tuple[float, float]:
    missed = X_new.reshape(len(X_new), -1) @ (found - W).ravel()
    error = float(np.linalg.norm(found - W) / np.linalg.norm(W))
    return error, 1 - float(missed @ missed / (signal @ signal))


def middle(values: Any) -> str:
    return f"{np.median(values):.3f} [{np.max(values):.3f}]"


def planted_table(first: int) -> Iterator[str]:
    yield (
        "| weights, rho | RidgeCV | TensorLy, one fit | its best of 8 | latensor "
        "| not above, of | R2: best, latensor | seconds: TensorLy, latensor |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    for dims, rank, rho, n_seeds in SETTINGS:
        rows: dict[str, list[Any]] = {k: [] for k in ("ridge", "one", "best", "ours", "t", "t1")}
        for seed in range(first, first + n_seeds):
            X, y, W, X_new, signal = planted(dims, rank, rho, seed)
            flat = RidgeCV(np.logspace(-1, 5, 13)).fit(X.reshape(len(X), -1), y)
            rows["ridge"].append(quality(flat.coef_.reshape(dims), W, X_new, signal)[0])
            cls = TuckerRegressor if isinstance(rank, tuple) else CPRegressor
            given = list(rank) if isinstance(rank, tuple) else rank
            peers = []
            for penalty in PENALTIES:
                for start in (0, 1) if len(dims) == 2 or penalty == 10 else (0,):
                    peer = cls(given, reg_W=penalty, n_iter_max=100, verbose=0, random_state=start)
                    spent, peer = timed(lambda p=peer, X=X, y=y: p.fit(X, y - y.mean()))
                    peers.append((quality(peer.weight_tensor_, W, X_new, signal), spent))
            rows["one"].append(peers[0][0])
            rows["best"].append(min(q for q, _ in peers))
            rows["t"].append(np.median([t for _, t in peers]))
            ours = (lt.TuckerRegressor if isinstance(rank, tuple) else lt.CPRegressor)(rank)
            if seed == first:
                ours.fit(X, y)  # compiled kernels
            spent, ours = timed(lambda m=ours, X=X, y=y: m.fit(X, y))
            rows["ours"].append(quality(ours.coef_.to_dense(), W, X_new, signal))
            rows["t1"].append(spent)
        one, best, mine = (np.array(rows[k]) for k in ("one", "best", "ours"))
        shape = " x ".join(map(str, dims))
        yield (
            f"| {shape}, {rank}, {rho:g} | {middle(rows['ridge'])} | {middle(one[:, 0])} | "
            f"{middle(best[:, 0])} | {middle(mine[:, 0])} | "
            f"{np.sum(mine[:, 0] <= best[:, 0])}, {n_seeds} | {np.median(best[:, 1]):.3f}, "
            f"{np.median(mine[:, 1]):.3f} | {np.median(rows['t']):.2f}, "
            f"{np.median(rows['t1']):.3f} |"
        )


def picture(name: str, size: int) -> Any:
    W = np.zeros((size, size))
    middle_, arm = size // 2, max(size // 10, 1)
    if name == "cross":
        W[middle_ - arm : middle_ + arm, size // 5 : -size // 5] = 1
        W[size // 5 : -size // 5, middle_ - arm : middle_ + arm] = 1
        return W
    place = np.arange(size) - (size - 1) / 2
    return (np.add.outer(place**2, place**2) < (size / 3) ** 2).astype(float)


def picture_table(first: int) -> Iterator[str]:
    yield "| picture, n | rank | TensorLy, two starts | latensor | chosen rank, error | RidgeCV |"
    yield "|---|---|---|---|---|---|"
    for name, size, n in (("cross", 40, 500), ("disk", 40, 500), ("cross", 25, 1000)):
        W = picture(name, size)
        X = np.random.default_rng(first).standard_normal((n, size, size))
        y = X.reshape(n, -1) @ W.ravel()
        flat = RidgeCV(np.logspace(-6, 5, 23)).fit(X.reshape(n, -1), y).coef_.reshape(W.shape)
        auto = lt.CPRegressor("auto", max_rank=5).fit(X, y)
        for rank in (1, 2, 3, 5):
            peers = [
                CPRegressor(rank, reg_W=1, n_iter_max=100, verbose=0, random_state=s)
                .fit(X, y - y.mean())
                .weight_tensor_
                for s in (0, 1)
            ]
            mine = lt.CPRegressor(rank).fit(X, y).coef_.to_dense()
            errors = [np.linalg.norm(f - W) / np.linalg.norm(W) for f in (*peers, mine, flat)]
            chosen = np.linalg.norm(auto.coef_.to_dense() - W) / np.linalg.norm(W)
            tail = f"{auto.rank_}: {chosen:.4f} | {errors[3]:.4f}" if rank == 1 else " | "
            yield (
                f"| {name} {size} x {size}, {n} | {rank} | {errors[0]:.4f}, {errors[1]:.4f} | "
                f"{errors[2]:.4f} | {tail} |"
            )


def class_table(first: int) -> Iterator[str]:
    digits = load_digits()
    yield "| digits, n | scikit-learn | rank 1 | rank 2 | rank 3 | CP on +-1 |"
    yield "|---|---|---|---|---|---|"
    for pair in ((3, 8), (1, 8)):
        chosen = np.isin(digits.target, pair)
        X, y = digits.images[chosen] / 16, digits.target[chosen]
        for n in (100, 237):
            scores: list[list[float]] = []
            for seed in range(first, first + 3):
                order = np.random.default_rng(seed).permutation(len(y))
                a, b = order[:n], order[n:]
                plain = LogisticRegression(max_iter=1000).fit(X[a].reshape(n, -1), y[a])
                row = [plain.score(X[b].reshape(len(b), -1), y[b])]
                row += [lt.CPClassifier(r).fit(X[a], y[a]).score(X[b], y[b]) for r in (1, 2, 3)]
                signs = np.where(y == pair[1], 1.0, -1.0)
                peer = CPRegressor(2, reg_W=1, verbose=0, random_state=0).fit(X[a], signs[a])
                row.append(float((np.sign(peer.predict(X[b])) == signs[b]).mean()))
                scores.append(row)
            mean = " | ".join(f"{100 * s:.1f}" for s in np.mean(scores, axis=0))
            yield f"| {pair[0]} / {pair[1]}, {n} | {mean} |"


TABLES = {"planted": planted_table, "pictures": picture_table, "digits": class_table}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(TABLES))
    parser.add_argument("--first", type=int, default=0, help="the first seed of the data")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for part in options.parts:
            lines = []
            for line in TABLES[part](options.first):
                print(line, flush=True)
                lines.append(line)
            if options.write:
                put(f"bench-regression-{part}", ["", *lines, ""])


if __name__ == "__main__":
    main()
