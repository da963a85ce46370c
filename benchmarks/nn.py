"""Compression of trained networks and layers beside plain truncation: accuracy, errors, latency.

Run with `python -m benchmarks.nn`; it prints Markdown tables. Networks on scikit-learn's digits
(1,300 to train, 497 to test, Adam): a perceptron 64-256-128-10, and three convolutions of 32, 64
and 64 channels with 64 hidden units. "plain" truncates every layer of 2,000 weights or more to
the same fraction of its weights by SVD or HOSVD. Latency is the best of twelve batches of 256, one
thread.
"""

from __future__ import annotations

import copy
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import latensor as lt

DIGITS = load_digits()
X = torch.tensor(DIGITS.images / 16, dtype=torch.float32)[:, None]
Y = torch.tensor(DIGITS.target)
ORDER = torch.randperm(len(Y), generator=torch.Generator().manual_seed(0))
TRAIN, TEST = ORDER[:1300], ORDER[1300:]
SEEDS = (0, 1)


def perceptron() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(),
        nn.Linear(128, 10),
    )  # fmt: skip


def convolutions() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def train(model: Any, epochs: int, rate: float, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    model.train()
    for _ in range(epochs):
        for batch in torch.randperm(1300, generator=generator).split(64):
            optimizer.zero_grad()
            rows = TRAIN[batch]
            torch.nn.functional.cross_entropy(model(X[rows]), Y[rows]).backward()
            optimizer.step()
    return model.eval()


def accuracy(model: Any) -> float:
    with torch.no_grad():
        return 100 * float((model.eval()(X[TEST]).argmax(1) == Y[TEST]).float().mean())


def latency(model: Any) -> float:
    x = X[torch.arange(256)]
    best = np.inf
    with torch.no_grad():
        for _ in range(12):
            start = time.process_time()
            model(x)
            best = min(best, time.process_time() - start)
    return best


def plain(model: Any, keep: float) -> Any:
    """Every layer truncated to the same fraction of its weights, by SVD or HOSVD."""
    small = copy.deepcopy(model)
    for name, layer in model.named_children():
        if getattr(layer, "weight", None) is None or layer.weight.numel() < 2000:
            continue
        if isinstance(layer, torch.nn.Linear):
            rank = max(1, int(keep * layer.weight.numel() / sum(layer.weight.shape)))
            found: Any = lt.nn.FactorizedLinear.from_dense(layer, rank)
        elif isinstance(layer, torch.nn.Conv2d) and layer.in_channels > 3:
            out, inner = layer.out_channels, layer.in_channels
            fraction = 1.0
            while fraction > 0.02:
                ranks = (max(1, int(fraction * out)), max(1, int(fraction * inner)))
                cost = ranks[0] * ranks[1] * 9 + ranks[0] * out + ranks[1] * inner
                if cost <= keep * layer.weight.numel():
                    break
                fraction -= 0.01
            found = lt.nn.FactorizedConv2d.from_dense(layer, ranks)
        else:
            continue
        setattr(small, name, found)
    return small.eval()


def compression_table() -> None:
    print(
        "| network, keep | dense | plain | latensor | after two epochs: dense, latensor "
        "| output error | latency of dense |"
    )
    print("|---|---|---|---|---|---|---|")
    settings = (("perceptron", perceptron, 20, 1300), ("convolutions", convolutions, 8, 512))
    for name, make, epochs, n_inputs in settings:
        networks = []
        for seed in SEEDS:
            torch.manual_seed(seed)
            networks.append(train(make(), epochs, 1e-3, seed))
        for keep in (0.25, 0.15, 0.10):
            rows = []
            for seed, model in zip(SEEDS, networks, strict=True):
                small = lt.nn.compress(model, keep, inputs=X[TRAIN][:n_inputs])
                ratio = latency(small) / latency(model)
                row = [accuracy(model), accuracy(plain(model, keep)), accuracy(small)]
                if keep == 0.10:
                    row.append(accuracy(train(copy.deepcopy(model), 2, 5e-4, seed)))
                    error = small.report.output_error
                    row += [accuracy(train(small, 2, 5e-4, seed)), error, ratio]
                else:
                    row += [np.nan, np.nan, small.report.output_error, ratio]
                rows.append(row)
            m = np.mean(rows, axis=0)
            tuned = f"{m[3]:.1f}, {m[4]:.1f}" if keep == 0.10 else ""
            print(
                f"| {name}, {keep:g} | {m[0]:.1f} | {m[1]:.1f} | {m[2]:.1f} | {tuned} | {m[5]:.3f} "
                f"| {m[6]:.2f} |",
                flush=True,
            )


def layer_table() -> None:
    """Forward and backward of single layers, beside the dense layer."""
    print("\n| layer | dense ms | latensor ms | tensorly-torch ms |")
    print("|---|---|---|---|")
    try:
        from tltorch import TRL
    except ImportError:
        TRL = None
    x = torch.randn(64, 64, 7, 7)
    cases = {
        "regression head (64, 7, 7) -> 10, Tucker (16, 3, 3, 10)": (
            torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3136, 10)),
            lt.nn.TensorRegression((64, 7, 7), 10, (16, 3, 3, 10)),
            None if TRL is None else TRL((64, 7, 7), (10,), rank=(16, 3, 3, 10)),
            x,
        ),
        "linear 1024 -> 1024, rank 51": (
            torch.nn.Linear(1024, 1024),
            lt.nn.FactorizedLinear(1024, 1024, 51),
            None,
            torch.randn(64, 1024),
        ),
    }
    for name, (dense, mine, peer, given) in cases.items():
        times = []
        for layer in (dense, mine, peer):
            if layer is None:
                times.append("not installed" if TRL is None else "")
                continue
            best = np.inf
            for _ in range(30):
                start = time.process_time()
                layer(given).square().sum().backward()
                best = min(best, time.process_time() - start)
            times.append(f"{1000 * best:.2f}")
        print(f"| {name} | {' | '.join(times)} |", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    layer_table()
    compression_table()
