"""Tucker decompositions beside TensorLy and pyttb: time and error.

    python -m benchmarks.tucker                three seeds
    python -m benchmarks.tucker --seeds 1      one seed

Figures are process CPU seconds with one BLAS thread for everybody, medians over seeds; errors are
computed entry by entry from what each library returns. Two tables: decompositions with
orthonormal factors, and nonnegative ones. Images are read from the folder that LATENSOR_DATA
names, and left out without it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import latensor as lt
from latensor.decomposition.tucker import tucker


@dataclass(frozen=True)
class Problem:
    """A tensor to be decomposed, made from a seed, and its ranks."""

    name: str
    ranks: tuple[int, ...]
    make: Callable[[int], np.ndarray | None]


def planted(
    shape: tuple[int, ...], rank: int, noise: float, nonnegative: bool = False
) -> Callable[[int], np.ndarray]:
    """A maker of tensors of multilinear rank `rank` with noise, the ratio of the norms."""

    def make(seed: int) -> np.ndarray:
        rng = np.random.default_rng([seed, *shape, rank])

        def draw(*size: int) -> np.ndarray:
            if nonnegative:
                return rng.random(size) * (rng.random(size) < 0.5)
            return rng.standard_normal(size)

        core = draw(*(min(rank, d) for d in shape))
        factors = tuple(draw(d, min(rank, d)) for d in shape)
        signal = lt.TuckerTensor(core, factors).to_dense()
        disturbance = rng.standard_normal(shape)
        signal = signal + disturbance * (
            noise * np.linalg.norm(signal) / np.linalg.norm(disturbance)
        )
        return np.maximum(signal, 0.0) if nonnegative else signal

    return make


def image(path: str) -> Callable[[int], np.ndarray | None]:
    """A maker that reads an image below the folder named by LATENSOR_DATA; None without it."""

    def make(seed: int) -> np.ndarray | None:
        file = Path(os.environ.get("LATENSOR_DATA", "")) / path
        if "LATENSOR_DATA" not in os.environ or not file.exists():
            return None
        from PIL import Image

        return np.asarray(Image.open(file))[..., :3].astype(np.float64)

    return make


PROBLEMS = [
    Problem("20^3, exact", (4,) * 3, planted((20,) * 3, 4, 0.0)),
    Problem("100^3, noise 10 %", (10,) * 3, planted((100,) * 3, 10, 0.1)),
    Problem("100^3, noise 300 %", (10,) * 3, planted((100,) * 3, 10, 3.0)),
    Problem("200^3, 20 of 40 directions", (20,) * 3, planted((200,) * 3, 40, 0.1)),
    Problem("60^4, noise 50 %", (5,) * 4, planted((60,) * 4, 5, 0.5)),
    Problem("512 x 3 x 3 x 512, noise 50 %", (4, 3, 3, 4), planted((512, 3, 3, 512), 4, 0.5)),
    Problem("1000 x 200 x 20, noise 10 %", (10,) * 3, planted((1000, 200, 20), 10, 0.1)),
    Problem("raccoon 768 x 1024 x 3", (50, 50, 3), image("images/raccoon_face_768x1024.png")),
    Problem("chelsea 300 x 451 x 3", (50, 50, 3), image("images/chelsea.png")),
]
NONNEGATIVE = [
    Problem("30 x 25 x 20, exact", (3,) * 3, planted((30, 25, 20), 3, 0.0, True)),
    Problem("60^3, noise 5 %", (5,) * 3, planted((60,) * 3, 5, 0.05, True)),
    Problem("100^3, noise 30 %", (6,) * 3, planted((100,) * 3, 6, 0.3, True)),
]


def ours(tensor: np.ndarray, ranks: tuple[int, ...], seed: int, **settings: Any) -> Any:
    return tucker(tensor, ranks, random_state=seed, **settings)


def tensorly(tensor: np.ndarray, ranks: tuple[int, ...], seed: int) -> Any:
    from tensorly.decomposition import tucker as theirs

    return theirs(tensor, list(ranks), random_state=seed)


def tensorly_nonnegative(tensor: np.ndarray, ranks: tuple[int, ...], seed: int) -> Any:
    from tensorly.decomposition import non_negative_tucker_hals

    return non_negative_tucker_hals(tensor, list(ranks), random_state=seed)


def pyttb_hosvd(tensor: np.ndarray, ranks: tuple[int, ...], seed: int) -> Any:
    import pyttb

    found = pyttb.hosvd(pyttb.tensor(tensor), 1e-8, verbosity=0, ranks=np.array(ranks))
    return found.core.data, found.factor_matrices


def pyttb_als(tensor: np.ndarray, ranks: tuple[int, ...], seed: int) -> Any:
    import pyttb

    np.random.seed(seed)  # noqa: NPY002 - the only way to seed pyttb
    found = pyttb.tucker_als(pyttb.tensor(tensor), np.array(ranks), printitn=0)[0]
    return found.core.data, found.factor_matrices


ORTHOGONAL = {
    "latensor auto": ours,
    "latensor sequential": lambda t, r, s: ours(t, r, s, method="sequential"),
    "TensorLy tucker": tensorly,
    "pyttb tucker_als": pyttb_als,
    "pyttb hosvd": pyttb_hosvd,
}
PARTS = {
    "latensor nonnegative": lambda t, r, s: ours(t, r, s, nonnegative=True),
    "TensorLy HALS": tensorly_nonnegative,
}


def run(method: Callable[..., Any], problem: Problem, seed: int) -> tuple[float, float] | None:
    """CPU seconds (the least of three short runs) and error; NaN where a library raises."""
    tensor = problem.make(seed)
    if tensor is None:
        return None
    best, spent = np.inf, 0.0
    try:
        for _ in range(3):
            began = time.process_time()
            with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
                warnings.simplefilter("ignore")
                core, factors = method(tensor, problem.ranks, seed)
            seconds = time.process_time() - began
            best, spent = min(best, seconds), spent + seconds
            if spent > 2.0:
                break
    except Exception:
        return float("nan"), float("nan")
    model = lt.TuckerTensor(np.asarray(core), tuple(np.asarray(f) for f in factors)).to_dense()
    return best, float(np.linalg.norm(tensor - model) / np.linalg.norm(tensor))


def table(problems: list[Problem], methods: dict[str, Any], seeds: list[int]) -> Iterator[str]:
    """Rows of one Markdown table: error, seconds, and for the peers how many times ours."""
    first = next(iter(methods))
    yield f"| tensor | core | {' | '.join(f'{name}: error, s' for name in methods)} |"
    yield "|---" * (2 + len(methods)) + "|"
    small = Problem("", (2, 2, 2), planted((6, 5, 4), 2, 0.1, True))
    for method in methods.values():  # imports and first calls stay out of the measurements
        run(method, small, 0)
    ratios: dict[str, list[float]] = {name: [] for name in methods}
    for problem in problems:
        cells = [problem.name, " x ".join(map(str, problem.ranks))]
        base = np.nan
        for name, method in methods.items():
            found = [run(method, problem, seed) for seed in seeds]
            if found[0] is None:
                break
            seconds, error = np.median(np.array(found, dtype=float), axis=0)
            base = seconds if name == first else base
            ratios[name].append(seconds / base)
            times = "" if name == first else f" ({seconds / base:.3g}x)"
            cells.append(f"{error:.5g}, {seconds:.4f}{times}")
        else:
            yield f"| {' | '.join(cells)} |"
    medians = [f"{np.nanmedian(r):.3g}x ({np.nanmin(r):.2g}x)" for r in ratios.values() if r]
    yield f"| **median (smallest)** | | {' | '.join(medians)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    for line in table(PROBLEMS, ORTHOGONAL, options.seeds):
        print(line, flush=True)
    print()
    for line in table(NONNEGATIVE, PARTS, options.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
