"""The problems on which CP decompositions are compared: planted tensors and measured ones.

Names say what a problem is: shape, rank k, collinearity c of the factor columns, noise n as the
ratio of norms. "gauss" has unit Gaussian columns and unit weights; "w" has weights 1 to 1e-3.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Problem:
    """A tensor to be decomposed, made from a seed."""

    name: str
    group: str
    rank: int
    make: Callable[[int], Any]


def congruent_matrix(rng: np.random.Generator, d: int, k: int, congruence: float) -> np.ndarray:
    """Unit columns whose pairwise inner products all equal `congruence`."""
    orthogonal = np.linalg.qr(rng.standard_normal((d, k)))[0]
    return (
        orthogonal
        @ np.linalg.cholesky(np.full((k, k), congruence) + (1 - congruence) * np.eye(k)).T
    )


def planted(
    shape: tuple[int, ...],
    k: int,
    congruence: float | None,
    noise: float,
    weights: str = "uniform",
) -> Callable[[int], np.ndarray]:
    """A maker of tensors with `k` planted components and Gaussian noise."""

    def make(seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed, *shape, k])
        if congruence is None:
            factors = [rng.standard_normal((d, k)) for d in shape]
            factors = [f / np.linalg.norm(f, axis=0) for f in factors]
        else:
            factors = [congruent_matrix(rng, d, k, congruence) for d in shape]
        scale = {
            "uniform": rng.uniform(0.1, 1.0, k),
            "ones": np.ones(k),
            "decades": np.geomspace(1.0, 1e-3, k),
        }[weights]
        left = factors[0] * scale
        for factor in factors[1:-1]:
            left = (left[:, None, :] * factor[None, :, :]).reshape(-1, k)
        signal = (left @ factors[-1].T).reshape(shape)
        if noise:
            disturbance = rng.standard_normal(shape)
            signal += disturbance * (noise * np.linalg.norm(signal) / np.linalg.norm(disturbance))
        return signal

    return make


def measured(read: Callable[[Path], Any], path: str) -> Callable[[int], Any]:
    """A maker that reads a file below the folder named by LATENSOR_DATA; None without it."""

    def make(seed: int) -> Any:
        folder = os.environ.get("LATENSOR_DATA")
        if not folder or not (Path(folder) / path).exists():
            return None
        tensor = read(Path(folder) / path)
        if isinstance(tensor, np.ndarray):
            return np.ascontiguousarray(tensor, dtype=np.float64)
        return tensor

    return make


def _array(key: str) -> Callable[[Path], np.ndarray]:
    return lambda path: np.load(path)[key]


def _samson(path: Path) -> np.ndarray:
    return np.load(path)["Y"].T.reshape(95, 95, 156)


def _sparse(path: Path) -> Any:
    from latensor.tensors import read_tns

    return read_tns(path)


def _image(path: Path) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(path))[..., :3]


def _structureless(shape: tuple[int, ...], count: int) -> Callable[[int], Any]:
    """A maker of sparse tensors whose entries are random, at random places."""

    def make(seed: int) -> Any:
        from latensor.tensors import SparseTensor

        rng = np.random.default_rng([seed, *shape, count])
        coordinates = rng.integers(0, shape, size=(count, len(shape)))
        return SparseTensor(coordinates, rng.random(count), shape)

    return make


PROBLEMS = [
    Problem("100^3 k5 c.5 n1%", "dense", 5, planted((100,) * 3, 5, 0.5, 0.01)),
    Problem("100^3 k10 c.9 n1%", "dense", 10, planted((100,) * 3, 10, 0.9, 0.01)),
    Problem("100^3 k10 c.9 n0", "dense", 10, planted((100,) * 3, 10, 0.9, 0.0)),
    Problem("100^3 k20 c.5 n10%", "dense", 20, planted((100,) * 3, 20, 0.5, 0.1)),
    Problem("100^3 k20 c0 n50%", "dense", 20, planted((100,) * 3, 20, 0.0, 0.5)),
    Problem(
        "100^3 k20 gauss w1..1e-3 n1%",
        "dense",
        20,
        planted((100,) * 3, 20, None, 0.01, "decades"),
    ),
    Problem("100^3 k80 gauss n10%", "dense", 80, planted((100,) * 3, 80, None, 0.1, "ones")),
    Problem("100^3 k80 c.5 n1%", "dense", 80, planted((100,) * 3, 80, 0.5, 0.01)),
    Problem("200^3 k20 c.9 n1%", "big", 20, planted((200,) * 3, 20, 0.9, 0.01)),
    Problem("200^3 k20 c.9 n10%", "big", 20, planted((200,) * 3, 20, 0.9, 0.1)),
    Problem("200^3 k20 c.5 n50%", "big", 20, planted((200,) * 3, 20, 0.5, 0.5)),
    Problem("300^3 k10 c.5 n10%", "big", 10, planted((300,) * 3, 10, 0.5, 0.1)),
    Problem("300^3 k50 c.5 n10%", "big", 50, planted((300,) * 3, 50, 0.5, 0.1)),
    Problem("500x400x50 k15 c.5 n10%", "big", 15, planted((500, 400, 50), 15, 0.5, 0.1)),
    Problem("500x400x50 k10 c.9 n1%", "big", 10, planted((500, 400, 50), 10, 0.9, 0.01)),
    Problem("60^4 k10 c.5 n10%", "big", 10, planted((60,) * 4, 10, 0.5, 0.1)),
    Problem("60^4 k5 c.9 n1%", "big", 5, planted((60,) * 4, 5, 0.9, 0.01)),
    Problem("100^3 fit 10 of 20", "over", 10, planted((100,) * 3, 20, 0.5, 0.1)),
    Problem("50^3 fit 10 of 5 n1%", "over", 10, planted((50,) * 3, 5, 0.5, 0.01)),
    Problem("30^3 k45 gauss n0", "over", 45, planted((30,) * 3, 45, None, 0.0, "ones")),
    Problem("30^3 k45 gauss n1%", "over", 45, planted((30,) * 3, 45, None, 0.01, "ones")),
    Problem("amino k3", "real", 3, measured(_array("tensor"), "amino_fluorescence/amino.npz")),
    Problem(
        "kinetic k5", "real", 5, measured(_array("tensor"), "kinetic_fluorescence/kinetic.npz")
    ),
    Problem("samson k10", "real", 10, measured(_samson, "samson_hyperspectral/samson.npz")),
    Problem("pines k16", "real", 16, measured(_array("cube"), "indian_pines/indian_pines.npz")),
    Problem("raccoon k20", "real", 20, measured(_image, "images/raccoon_face_768x1024.png")),
    Problem("chelsea k30", "real", 30, measured(_image, "images/chelsea.png")),
    Problem(
        "carphone k20", "real", 20, measured(_array("video"), "video_carphone/video_carphone.npz")
    ),
    Problem(
        "enron k10 (sparse)",
        "sparse",
        10,
        measured(_sparse, "enron_email/enron_sender_recipient_week.tns.gz"),
    ),
    Problem("kinships k20 (sparse)", "sparse", 20, measured(_sparse, "kinships/train.tns.gz")),
    Problem(
        "nycflights k10 (sparse)",
        "sparse",
        10,
        measured(_sparse, "tensor_nycflights/day_hour_carrier_origin_dest.tns.gz"),
    ),
    Problem("million random (sparse)", "sparse", 16, _structureless((2000, 1500, 1000), 10**6)),
]
