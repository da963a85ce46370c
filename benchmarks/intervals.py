"""Whether 95 % intervals of mixtures hold the truth in 95 of 100 data sets, and how wide they are.

    python -m benchmarks.intervals [--sets 100] [--only spherical ...]

Every data set of a design is drawn anew. Coverage is the fraction of parameters whose interval
holds the truth; width is the mean half-width over 1.96 times the standard deviation of the
estimates over the data sets, the median over parameters of each kind. "raw" is refine=0.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import latensor as lt
from latensor.exceptions import NotIdentifiableError

Drawn = tuple[Any, dict[str, Any]]


def _planted(seed: int, k: int, d: int, separation: float, spread: str) -> tuple[Any, Any, Any]:
    """Weights, means and variances: the same for every data set of a design."""
    rng = np.random.default_rng(seed)
    weights = np.linspace(1.5, 1.0, k)
    directions = np.linalg.qr(rng.standard_normal((max(d, k), max(d, k))))[0][:k, :d]
    shape = (k,) if spread == "spherical" else (k, d)
    means = separation / np.sqrt(2) * directions
    return weights / weights.sum(), means, rng.uniform(0.7, 1.3, shape)


def gaussian(k: int, d: int, n: int, separation: float, spread: str) -> Callable[[int], Drawn]:
    weights, means, variances = _planted(0, k, d, separation, spread)
    deviations = np.sqrt(variances.reshape(k, -1))

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        labels = rng.choice(k, n, p=weights)
        rows = means[labels] + rng.standard_normal((n, d)) * deviations[labels]
        return rows, {"weights": weights, "means": means, "covariances": variances}

    return draw


def line(n: int) -> Callable[[int], Drawn]:
    weights, means, variances = np.array([0.6, 0.4]), np.array([[0.0], [3.5]]), np.array([1.0, 0.6])

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        labels = rng.choice(2, n, p=weights)
        rows = means[labels] + rng.standard_normal((n, 1)) * np.sqrt(variances[labels])[:, None]
        return rows, {"weights": weights, "means": means, "covariances": variances}

    return draw


def views(n: int, kind: str) -> Callable[[int], Drawn]:
    rng = np.random.default_rng(0)
    k, sizes = 3, (4, 5, 4)
    weights = np.array([0.45, 0.32, 0.23])
    if kind == "gaussian":
        means = [1.4 * np.linalg.qr(rng.standard_normal((d, d)))[0][:k] for d in sizes]
        variances = [rng.uniform(0.7, 1.3, (k, d)) for d in sizes]
    else:
        means = [0.1 / d + 0.9 * np.eye(d)[:k] * 0.75 + 0.9 * 0.25 / d for d in sizes]
        means = [m / m.sum(axis=1, keepdims=True) for m in means]
        variances = [m * (1 - m) for m in means]

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        labels = rng.choice(k, n, p=weights)
        if kind == "gaussian":
            seen = [
                m[labels] + rng.standard_normal((n, m.shape[1])) * np.sqrt(v[labels])
                for m, v in zip(means, variances, strict=True)
            ]
        else:
            bounds = [np.cumsum(m, axis=1)[labels] for m in means]
            seen = [np.eye(b.shape[1])[(rng.random((n, 1)) > b).sum(axis=1)] for b in bounds]
        truth = {"weights": weights, "means": np.hstack(means), "variances": np.hstack(variances)}
        return seen, truth

    return draw


DESIGNS: dict[str, tuple[Any, Callable[[int], Drawn], bool]] = {
    "spherical": (lt.SphericalGaussianMixture, gaussian(3, 4, 4000, 2.5, "spherical"), True),
    "diagonal": (lt.DiagonalGaussianMixture, gaussian(3, 9, 4000, 3.5, "diagonal"), True),
    "product": (lt.ProductMixture, gaussian(3, 9, 8000, 3.5, "diagonal"), False),
    "views, gaussian": (lt.MultiViewMixture, views(4000, "gaussian"), True),
    "views, categorical": (lt.MultiViewMixture, views(8000, "categorical"), True),
    "pearson": (lt.PearsonMixture, line(8000), True),
}


def joined(value: Any) -> Any:
    return np.hstack(value) if isinstance(value, list) else value


def measure(name: str, refine: Any, n_sets: int) -> dict[str, tuple[float, float]]:
    """Coverage and relative width by parameter, and over all of them."""
    model_class, draw, refines = DESIGNS[name]
    inside: dict[str, list[Any]] = {}
    estimates: dict[str, list[Any]] = {}
    widths: dict[str, list[Any]] = {}
    for seed in range(n_sets):
        data, truth = draw(seed)
        more = {"refine": refine} if refines else {}
        if name != "pearson":
            more["n_components"] = len(truth["weights"])
        try:
            model = model_class(random_state=0, **more).fit(data)
            ends = model.intervals(data)
        except NotIdentifiableError:
            continue
        gaps = ((truth["means"][:, None] - joined(model.means_)[None]) ** 2).sum(axis=2)
        order = linear_sum_assignment(gaps)[1]
        for parameter, value in truth.items():
            low, high = joined(ends[parameter].low)[order], joined(ends[parameter].high)[order]
            inside.setdefault(parameter, []).append((low <= value) & (value <= high))
            widths.setdefault(parameter, []).append((high - low) / 2)
            found = joined(getattr(model, f"{parameter}_"))[order]
            estimates.setdefault(parameter, []).append(found)
    found = {}
    for parameter, held in inside.items():
        spread = 1.96 * np.std(estimates[parameter], axis=0, ddof=1)
        ratio = np.mean(widths[parameter], axis=0) / spread
        found[parameter] = float(np.mean(held)), float(np.median(ratio))
    every = np.concatenate([np.stack(h).reshape(len(h), -1) for h in inside.values()], axis=1)
    found["all"] = float(every.mean()), float(np.median([f[1] for f in found.values()]))
    found["sets"] = float(len(every)), float("nan")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--only", nargs="*", default=None)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| design | fit | data sets | all | weights | means | variances | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in DESIGNS if options.only is None else options.only:
        for refine in (0, "auto") if DESIGNS[name][2] else (0,):
            start = time.process_time()
            found = measure(name, refine, options.sets)
            seconds = time.process_time() - start
            third = "variances" if "variances" in found else "covariances"
            cells = [
                f"{100 * found[p][0]:.1f} %, {found[p][1]:.2f}"
                for p in ("all", "weights", "means", third)
            ]
            fit = "raw" if refine == 0 else "refined"
            row = [name, fit, f"{found['sets'][0]:.0f}", *cells, f"{seconds:.0f}"]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
