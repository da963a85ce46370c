"""Compression of trained networks and layers beside plain truncation and tensorly-torch.

Run with `python -m benchmarks.nn [layers] [kernel] [networks] [errors] [--first SEED] [--only NAME]
[--write]`; it prints Markdown tables of accuracy, errors and latency, and writes their rows into
docs/benchmarks.md.
Networks on scikit-learn's digits (1,300 to train, 497 to test, Adam, five seeds): a perceptron
64-256-128-10, and three convolutions of 32, 64 and 64 channels with 64 hidden units. On 5,000
images of MNIST (4,000 to train, five seeds), read from the folder that LATENSOR_DATA names and
skipped without it: the same convolutions with 128 hidden units, pooled twice. "plain" truncates
every layer of 2,000 weights or more to the same fraction of its weights by SVD or HOSVD. Latency
is process CPU time of a batch of 256 in one thread, the best of twelve in turn with the dense
network's, as it is and with its kernels stored channels last. tensorly-torch is compared where it
is installed.
"""

from __future__ import annotations

import argparse
import copy
import functools
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import latensor as lt
from benchmarks.tables import put_rows
from latensor.nn.statistics import measure
from latensor.nn.truncation import truncated

KEEPS = (0.15, 0.10)


@dataclass(frozen=True)
class Images:
    """Pictures (n, 1, d, d) and labels, the first `n_train` of them to train."""

    x: Any
    y: Any
    n_train: int

    @property
    def train(self) -> Any:
        """Pictures and labels to train."""
        return self.x[: self.n_train], self.y[: self.n_train]

    @property
    def test(self) -> Any:
        """Pictures and labels to test."""
        return self.x[self.n_train :], self.y[self.n_train :]


def shuffled(images: Any, labels: Any, n_train: int) -> Images:
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(images, dtype=torch.float32)[:, None]
    return Images(x[order], torch.tensor(labels).long()[order], n_train)


def digits() -> Images:
    known = load_digits()
    return shuffled(known.images / 16, known.target, 1300)


def mnist() -> Images | None:
    folder = os.environ.get("LATENSOR_DATA")
    if folder is None:
        return None
    known = np.load(Path(folder) / "gmm_mnist5k" / "mnist5k.npz")
    return shuffled(known["images"] / 255, known["labels"], 4000)


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


def pooled_convolutions() -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def train(
    model: Any, images: Images, epochs: int, rate: float, seed: int, *, tuned: bool = False
) -> Any:
    """Adam in batches of 64; to fine-tune, batches of 32 and a rate that goes to zero."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), rate)
    x, y = images.train
    batches = [
        batch
        for _ in range(epochs)
        for batch in torch.randperm(len(y), generator=generator).split(32 if tuned else 64)
    ]
    end = 0.0 if tuned else 1.0
    decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, end, len(batches))
    model.train()
    for batch in batches:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x[batch]), y[batch]).backward()
        optimizer.step()
        decay.step()
    return model.eval()


def accuracy(model: Any, images: Images) -> float:
    x, y = images.test
    with torch.no_grad():
        return 100 * float((model.eval()(x).argmax(1) == y).float().mean())


def fastest(calls: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Best CPU seconds of each call, in turn."""
    best = dict.fromkeys(calls, np.inf)
    for _ in range(times):
        for name, call in calls.items():
            start = time.process_time()
            call()
            best[name] = min(best[name], time.process_time() - start)
    return best


def latency(small: Any, dense: Any, images: Images) -> tuple[float, float]:
    """Relative to the dense network as it is, and with its kernels stored channels last."""
    x, last = images.x[:256], copy.deepcopy(dense)
    for p in last.parameters():
        if p.ndim == 4:
            p.data = torch.empty_like(p.data, memory_format=torch.channels_last).copy_(p.data)
    calls = {"small": lambda: small(x), "dense": lambda: dense(x), "last": lambda: last(x)}
    with torch.no_grad():
        found = fastest(calls, 12)
    return found["small"] / found["dense"], found["small"] / found["last"]


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


@functools.cache
def networks(first: int, only: str) -> list[tuple[str, Images, list[Any], int, int]]:
    """Name, pictures, trained networks, number of inputs of calibration, and fine-tuning epochs."""
    trained = []
    small, large = digits(), mnist()
    settings: list[Any] = [
        ("perceptron", small, perceptron, 20, 1300, 5),
        ("convolutions", small, convolutions, 8, 512, 5),
    ]
    if large is not None:
        settings.append(("MNIST convolutions", large, pooled_convolutions, 3, 300, 5))
    for name, images, make, epochs, n_inputs, n_seeds in settings:
        if only not in name:
            continue
        found = []
        for seed in range(first, first + n_seeds):
            torch.manual_seed(seed)
            found.append(train(make(), images, epochs, 1e-3, seed))
        trained.append((name, images, found, n_inputs, 2))
    return trained


def compressed_rows(
    name: str, images: Images, dense: list[Any], n: int, epochs: int
) -> Iterator[str]:
    inputs = images.train[0][:n]
    large = name.startswith("MNIST")  # one budget, one norm: it takes a minute a network
    for keep in KEEPS[1:] if large else KEEPS:
        rows = []
        for seed, model in enumerate(dense):
            whole = accuracy(model, images)
            rough = lt.nn.compress(model, keep, inputs=inputs, refine=0)
            start = time.process_time()
            small = lt.nn.compress(model, keep, inputs=inputs, loss="cross_entropy")
            spent = time.process_time() - start
            outputs = rough if large else lt.nn.compress(model, keep, inputs=inputs)
            row = [whole, accuracy(plain(model, keep), images), accuracy(rough, images)]
            row += [accuracy(outputs, images), accuracy(small, images)]
            row += [*latency(small, model, images), spent, np.nan, np.nan]
            if keep == KEEPS[-1]:
                again = [copy.deepcopy(model), small]
                row[-2:] = [
                    accuracy(train(m, images, epochs, 2e-3, seed, tuned=True), images)
                    for m in again
                ]
            rows.append(row)
        m = np.mean(rows, axis=0)
        worst = max(row[0] - row[4] for row in rows)
        tuned = f"{m[8]:.1f}, {m[9]:.1f}" if keep == KEEPS[-1] else ""
        outputs_only = "" if large else f"{m[3]:.1f}"
        yield (
            f"| {name}, {keep:g} | {m[0]:.1f} | {m[1]:.1f} | {m[2]:.1f} | {outputs_only} | "
            f"{m[4]:.1f} [{worst:.1f}] | {tuned} | {m[5]:.2f}, {m[6]:.2f} | {m[7]:.1f} |"
        )


def error_rows(name: str, images: Images, dense: list[Any], n: int) -> Iterator[str]:
    """Output errors of each layer, on original inputs that were not used for calibration."""
    inputs, x = images.train[0][:n], images.test[0]
    for keep in KEEPS:
        rows = []
        for model in dense:
            small = plain(model, keep)
            changed = [
                k
                for k, (a, b) in enumerate(zip(model, small, strict=True))
                if type(a) is not type(b)
            ]
            known = measure(model, [str(k) for k in changed], [inputs])
            for k in changed:
                layer, own = model[k], known[str(k)]
                ranks = small[k].rank if isinstance(layer, torch.nn.Linear) else small[k].ranks
                W = layer.weight.detach().flatten(1).double()
                eye = torch.eye(len(W), dtype=torch.float64)
                best = truncated(layer, W, own.mean, own.covariance, eye, ranks)
                with torch.no_grad():
                    given = model[:k](x)
                    y = layer(given)
                    errors = [float((f(given) - y).norm() / y.norm()) for f in (small[k], best)]
                rows.append((k, *errors))
        layers = sorted({row[0] for row in rows})
        means = [np.mean([row[1:] for row in rows if row[0] == k], axis=0) for k in layers]
        gain = max(row[2] / row[1] for row in rows)
        pairs = [", ".join(f"{mean[j]:.3f}" for mean in means) for j in (0, 1)]
        yield f"| {name}, {keep:g} | {pairs[0]} | {pairs[1]} | {gain:.2f} |"


def layer_table(*_: Any) -> Iterator[str]:
    """Forward and backward of single layers, beside the dense layer and tensorly-torch's."""
    yield (
        "| layer | batch | dense ms | latensor ms | tensorly-torch ms | latensor / tensorly-torch |"
    )
    yield "|---|---|---|---|---|---|"
    try:
        from tltorch import TRL
    except ImportError:
        TRL = None
    heads: list[Any] = [
        ((64, 7, 7), 10, (16, 3, 3, 10), (1, 16, 64, 256)),
        ((64, 7, 7), 100, (16, 3, 3, 10), (64,)),
        ((256, 7, 7), 100, (32, 3, 3, 20), (64,)),
        ((512, 7, 7), 1000, (64, 3, 3, 200), (64,)),
    ]
    cases: list[Any] = []
    for shape, outputs, ranks, batches in heads:
        layers = {
            "dense": torch.nn.Sequential(
                torch.nn.Flatten(), torch.nn.Linear(int(np.prod(shape)), outputs)
            ),
            "latensor": lt.nn.TensorRegression(shape, outputs, ranks),
        }
        if TRL is not None:
            layers["peer"] = TRL(shape, (outputs,), rank=ranks, factorization="tucker", bias=True)
        name = f"regression head {shape} -> {outputs}, Tucker {ranks}"
        cases += [(name, layers, torch.randn(n, *shape)) for n in batches]
    layers = {
        "dense": torch.nn.Linear(1024, 1024),
        "latensor": lt.nn.FactorizedLinear(1024, 1024, 51),
    }
    cases.append(("linear 1024 -> 1024, rank 51", layers, torch.randn(64, 1024)))
    for name, layers, given in cases:
        found = steps(layers, given, 400 if "1000" not in name else 7)
        times = [f"{1000 * found[k]:.2f}" if k in found else "" for k in ("dense", "latensor")]
        ratio = f"{found['latensor'] / found['peer']:.2f}" if "peer" in found else ""
        times.append(f"{1000 * found['peer']:.2f}" if "peer" in found else "")
        yield f"| {name} | {len(given)} | {' | '.join(times)} | {ratio} |"


def steps(layers: dict[str, Any], x: Any, times: int) -> dict[str, float]:
    """Median CPU seconds of forward and backward, gradients cleared before each, in mixed order."""
    spent: dict[str, list[float]] = {name: [] for name in layers}
    rng = np.random.default_rng(0)
    for _ in range(times):
        for name in rng.permutation(list(layers)):
            layers[name].zero_grad()
            start = time.process_time()
            layers[name](x).square().sum().backward()
            spent[name].append(time.process_time() - start)
    return {name: float(np.median(values)) for name, values in spent.items()}


def peak_memory() -> float:
    """GiB that this process has had at most (Linux; `ru_maxrss` is inherited from the parent)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 2**20 for line in lines if line.startswith("VmHWM:"))


def kernel(who: str) -> None:
    """CP of rank 16 of a kernel (1024, 512, 3, 3, 3): planted rank 32, as much noise as signal."""
    generator = torch.Generator().manual_seed(0)
    sizes = (1024, 512, 3, 3, 3)
    factors = [torch.randn(d, 32, generator=generator) for d in sizes]
    W = torch.einsum("ar,br,cr,dr,er->abcde", *factors)
    W = W / W.norm()
    W += torch.randn(W.shape, generator=generator) * W.std()
    before = peak_memory()
    start = time.process_time()
    if who == "latensor":
        found = lt.decompose(W, 16).tensor.to_dense()
    else:
        import tensorly
        from tensorly.decomposition import parafac

        tensorly.set_backend("pytorch")
        fitted = parafac(W, 16, init=who, n_iter_max=100, tol=1e-6, random_state=0)
        found = tensorly.cp_to_tensor(fitted)
    spent = time.process_time() - start
    peak = peak_memory()
    name = "latensor" if who == "latensor" else f"TensorLy, init={who}"
    error = float((W - found).norm() / W.norm())
    print(f"| {name} | {error:.4f} | {spent:.1f} | {peak:.2f} ({before:.2f} before) |", flush=True)


def kernel_table(*_: Any) -> Iterator[str]:
    """Each in a process of its own, for its peak of memory."""
    yield "| CP of rank 16, kernel (1024, 512, 3, 3, 3) | error | CPU s | peak GiB |"
    yield "|---|---|---|---|"
    for who in ("latensor", "random", "svd"):
        command = [sys.executable, "-m", "benchmarks.nn", "--kernel", who]
        yield subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def network_table(first: int, only: str) -> Iterator[str]:
    """Compressed networks before and after fine-tuning."""
    yield (
        "| network, keep | dense | plain | `refine=0` | outputs | cross-entropy [worst loss] "
        "| after two epochs: dense, latensor | latency of dense, channels last | CPU s |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, images, dense, n, epochs in networks(first, only):
        yield from compressed_rows(name, images, dense, n, epochs)


def error_table(first: int, only: str) -> Iterator[str]:
    """Output errors by layer, at equal ranks."""
    yield "| network, keep | plain, by layer | latensor, by layer | largest ratio |"
    yield "|---|---|---|---|"
    for name, images, dense, n, _ in networks(first, only):
        yield from error_rows(name, images, dense, n)


TABLES = {
    "layers": layer_table,
    "kernel": kernel_table,
    "networks": network_table,
    "errors": error_table,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(TABLES))
    parser.add_argument("--first", type=int, default=0, help="the first of five seeds")
    parser.add_argument("--only", default="", help="part of the name of a network")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kernel", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if options.kernel:
        kernel(options.kernel)
        return
    for part in options.parts:
        lines = []
        for line in TABLES[part](options.first, options.only):
            print(line, flush=True)
            lines.append(line)
        if options.write:
            put_rows(f"bench-nn-{part}", lines)


if __name__ == "__main__":
    main()
