"""Compression of networks on which none of its settings were chosen.

Run with `python -m benchmarks.nn_held_out [--first SEED] [--seeds N] [--only NAME] [--write]`, with
the data in the folder that LATENSOR_DATA names; it prints a Markdown table and writes its rows into
docs/benchmarks.md. A residual network with batch normalization on 5,000 images of MNIST (4,000 to
train), one-dimensional
convolutions on Japanese vowels (270 sequences to train), a perceptron with GELU on pendigits, and
linear layers on words of the BBC's news (what an embedding and its mean are). Adam, then
`lt.nn.compress` with `loss="cross_entropy"`, without fine-tuning. Latency is that of
`benchmarks.nn`.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import latensor as lt
from benchmarks.nn import KEEPS, Images, accuracy, latency, mnist, train
from benchmarks.tables import put_rows


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions with batch normalization, and what came in added."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inner, outer, 3, stride, 1, bias=False), nn.BatchNorm2d(outer), nn.ReLU(),
            nn.Conv2d(outer, outer, 3, 1, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        self.short: Any = nn.Identity()
        if stride > 1 or inner != outer:
            self.short = nn.Conv2d(inner, outer, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        """Activations of the block."""
        return torch.relu(self.body(x) + self.short(x))


def residual() -> Any:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        Block(16, 32, 2), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def along_time() -> Any:
    return nn.Sequential(
        nn.Conv1d(12, 64, 5, padding=2), nn.ReLU(), nn.Conv1d(64, 64, 5, padding=2), nn.ReLU(),
        nn.MaxPool1d(2), nn.Conv1d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(4),
        nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 9),
    )  # fmt: skip


def smooth() -> Any:
    return nn.Sequential(
        nn.Linear(16, 128), nn.GELU(), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 64),
        nn.GELU(), nn.Linear(64, 10),
    )  # fmt: skip


def words(n_words: int) -> Any:
    return nn.Sequential(
        nn.Linear(n_words, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 5)
    )


def vowels(folder: Path) -> Images:
    known = np.load(folder / "hmm_japanese_vowels" / "hmm_japanese_vowels.npz")
    parts = []
    for part in ("train", "test"):
        rows, lengths = known[f"{part}_x"], known[f"{part}_lengths"]
        padded = np.zeros((len(lengths), 12, 32), dtype=np.float32)
        for k, own in enumerate(np.split(rows, np.cumsum(lengths)[:-1])):
            padded[k, :, : len(own)] = own[:32].T
        parts.append((padded, known[f"{part}_y"].astype(int)))
    x = torch.tensor(np.concatenate([p[0] for p in parts]))
    y = torch.tensor(np.concatenate([p[1] for p in parts])).long()
    return Images(x, y - y.min(), len(parts[0][0]))


def pendigits(folder: Path) -> Images:
    known = np.load(folder / "gmm_pendigits" / "pendigits_train.npz")
    order = torch.randperm(len(known["y"]), generator=torch.Generator().manual_seed(0))
    x = torch.tensor(known["X"] / 100, dtype=torch.float32)[order]
    return Images(x, torch.tensor(known["y"]).long()[order], 5000)


def news(folder: Path) -> tuple[Images, int]:
    """Documents as fractions of their words, and how many words there are."""
    with gzip.open(folder / "bbc_news" / "corpus.tsv.gz", "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file]
    listed = (folder / "bbc_news" / "vocab.txt").read_text().split()
    number = {word: k for k, word in enumerate(listed)}
    classes = sorted({row[2] for row in rows})
    x = torch.zeros(len(rows), len(listed))
    for k, row in enumerate(rows):
        for word in row[0].split():
            x[k, number[word]] += 1
    x = 100 * x / x.sum(1, keepdim=True).clamp(min=1)
    y = torch.tensor([classes.index(row[2]) for row in rows])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    return Images(x[order], y[order], 1500), len(listed)


def networks() -> Iterator[tuple[str, Images, Callable[[], Any], int, int]]:
    """Name, data, network, epochs of training, inputs of calibration."""
    folder = Path(os.environ["LATENSOR_DATA"])
    documents, n_words = news(folder)
    images = mnist()
    yield "perceptron with GELU, pendigits", pendigits(folder), smooth, 15, 1000
    yield "1-D convolutions, Japanese vowels", vowels(folder), along_time, 40, 270
    yield "words, BBC news", documents, lambda: words(n_words), 6, 500
    if images is not None:
        yield "residual with batch normalization, MNIST", images, residual, 4, 1500


def rows(first: int, seeds: int, only: str) -> Iterator[str]:
    for name, data, make, epochs, n in networks():
        if only not in name:
            continue
        dense = []
        for seed in range(first, first + seeds):
            torch.manual_seed(seed)
            dense.append(train(make(), data, epochs, 1e-3, seed))
        for keep in KEEPS:
            found = []
            for model in dense:
                whole, start = accuracy(model, data), time.process_time()
                small = lt.nn.compress(model, keep, inputs=data.train[0][:n], loss="cross_entropy")
                spent = time.process_time() - start
                own = [whole, accuracy(small, data), small.report.keep]
                found.append([*own, *latency(small, model, data), spent])
            m = np.mean(found, axis=0)
            worst = max(row[0] - row[1] for row in found)
            yield (
                f"| {name}, {keep:g} | {m[0]:.1f} | {m[1]:.1f} [{worst:.1f}] | {m[2]:.3f} | "
                f"{m[3]:.2f}, {m[4]:.2f} | {m[5]:.1f} |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="", help="part of the name of a network")
    parser.add_argument("--write", action="store_true", help="put the table into the page")
    options = parser.parse_args()
    torch.set_num_threads(1)
    lines = []
    print(
        "| network, keep | dense | compressed [worst loss] | weights left | latency of dense, "
        "channels last | CPU s |\n|---|---|---|---|---|---|"
    )
    for row in rows(options.first, options.seeds, options.only):
        print(row, flush=True)
        lines.append(row)
    if options.write:
        put_rows("bench-nn-held-out", lines)


if __name__ == "__main__":
    main()
