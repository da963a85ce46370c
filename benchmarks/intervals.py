"""Whether 95 % intervals hold the truth in 95 of 100 data sets, and how wide they are.

    python -m benchmarks.intervals [--sets 100] [--first 0] [--only spherical ...] [--fits raw]

Every data set of a design is drawn anew. Coverage is the fraction of parameters whose interval
holds the truth; width is the mean half-width over 1.96 times the standard deviation of the
estimates over the data sets, the median over parameters of each kind; "±" is the standard error of
the fraction over data sets. Of hidden Markov models,
transitions stand under "weights" and emission probabilities under "means", where the words of
topics, coefficients of regressions, columns of mixings, effects of causes and directions stand too.
Canonical correlations stand under "weights", variances of principal components under "variances".
"raw" is refine=0. Entries of the truth that are NaN are not asked.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

import latensor as lt
from latensor.datasets.sequences import draw_states, draw_symbols, stationary_distribution
from latensor.exceptions import NotIdentifiableError

Drawn = tuple[Any, dict[str, Any]]
# Parameters of a model that components are told apart by, and the columns of the table.
MATCHED_BY = ("means", "emissionprob", "components", "coef", "mixing", "x_loadings")
COLUMNS = (
    ("all",),
    ("weights", "transmat", "prior", "correlations"),
    MATCHED_BY,
    ("variances", "covariances", "leak", "explained_variance"),
)
# A column for every component, and of either sign; principal directions are rows.
COLUMNWISE = ("mixing", "x_weights", "y_weights", "x_loadings", "y_loadings")
SIGNED = (*COLUMNWISE, "components")


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


def ellipses(kind: str, n: int = 3000) -> Callable[[int], Drawn]:
    """Three components in the plane with full or tied covariances."""
    rng = np.random.default_rng(5)
    means = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 5.0]])
    roots = np.eye(2) + 0.4 * rng.standard_normal((1 if kind == "tied" else 3, 2, 2))
    covariances = roots @ roots.transpose(0, 2, 1)
    weights = np.array([0.4, 0.35, 0.25])

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        labels = rng.choice(3, n, p=weights)
        noise = rng.standard_normal((n, 2))
        rows = means[labels] + np.einsum("nab,nb->na", roots[labels % len(roots)], noise)
        found = covariances[0] if kind == "tied" else covariances
        return rows, {"weights": weights, "means": means, "covariances": found}

    return draw


def chain(n: int, kind: str) -> Callable[[int], Drawn]:
    """Sixty sequences of three states that emit points or symbols."""
    transmat = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.6]])
    start = stationary_distribution(transmat)
    means = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    deviations = np.array([[1.0, 0.7], [0.8, 1.2], [1.0, 1.0]])
    symbols = np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1], [0.05, 0.05, 0.3, 0.6]])

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        lengths = [n // 60] * 60
        states = draw_states(rng, start, transmat, lengths)
        if kind == "points":
            rows = means[states] + deviations[states] * rng.standard_normal((n, 2))
            truth = {"transmat": transmat, "means": means, "covariances": deviations**2}
            return (rows, lengths), truth
        rows = draw_symbols(rng, symbols, states)[:, None]
        return (rows, lengths), {"transmat": transmat, "emissionprob": symbols}

    return draw


def documents(n: int, mixed: bool) -> Callable[[int], Drawn]:
    """Documents of 60 words, 50 in the vocabulary, of four topics or of one topic each."""
    k, vocabulary, length = 4, 50, 60
    topics = np.random.default_rng(0).dirichlet(np.full(vocabulary, 0.3), k)
    topics = 0.9 * topics + 0.1 / vocabulary
    weights = np.linspace(0.5, 0.2, k)

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        if mixed:
            words = rng.dirichlet(weights, n) @ topics
            return rng.multinomial(length, words), {"components": topics}
        labels = rng.choice(k, n, p=weights / weights.sum())
        return rng.multinomial(length, topics[labels]), {"components": topics}

    return draw


def sources(n: int, noise: float) -> Callable[[int], Drawn]:
    """Three sources of uniform and Laplace numbers in six sensors."""
    mixing = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0][:, :3] * 2

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        uniform = rng.uniform(-np.sqrt(3), np.sqrt(3), (n, 1))
        seen = np.hstack([uniform, rng.laplace(0, np.sqrt(0.5), (n, 2))])
        rows = seen @ mixing.T + noise * rng.standard_normal((n, 6))
        return rows, {"mixing": mixing.T}

    return draw


def regressions(n: int) -> Callable[[int], Drawn]:
    """Two lines in four features."""
    coef = np.array([[1.0, -1.0, 0.5, 0.0], [-1.0, 0.5, 1.0, 0.5]])
    weights, variances = np.array([0.6, 0.4]), np.array([0.25, 0.16])

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        features, labels = rng.standard_normal((n, 4)), rng.choice(2, n, p=weights)
        noise = np.sqrt(variances[labels]) * rng.standard_normal(n)
        target = (features * coef[labels]).sum(axis=1) + noise
        return (features, target), {"weights": weights, "coef": coef, "variances": variances}

    return draw


def causes(n: int) -> Callable[[int], Drawn]:
    """Three causes, each of which acts on six of twelve symptoms."""
    rng = np.random.default_rng(0)
    acts = np.array([np.roll(np.arange(12) < 6, 4 * j) for j in range(3)])
    effects = np.where(acts, rng.uniform(0.4, 0.9, (3, 12)), 0.0)
    prior, leak = np.array([0.3, 0.25, 0.2]), np.full(12, 0.05)

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        active = rng.random((n, 3)) < prior
        silent = (1 - leak) * np.exp(active @ np.log1p(-effects))
        rows = (rng.random((n, 12)) > silent).astype(float)
        known = {"prior": prior, "components": np.where(acts, effects, np.nan), "leak": leak}
        return rows, known

    return draw


def principal(n: int) -> Callable[[int], Drawn]:
    """Three directions of six features, of variances 9, 5 and 2.5 beside 1, 0.8 and 0.6."""
    rng = np.random.default_rng(0)
    directions = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    variances, mean = np.array([9.0, 5.0, 2.5, 1.0, 0.8, 0.6]), rng.standard_normal(6)
    known = {"components": directions[:3], "mean": mean, "explained_variance": variances[:3]}

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        return rng.standard_normal((n, 6)) * np.sqrt(variances) @ directions + mean, known

    return draw


def canonical(n: int) -> Callable[[int], Drawn]:
    """Views of five and four features with correlations 0.9 and 0.6 beside 0.3 and 0."""
    rng = np.random.default_rng(0)
    mixings = [rng.standard_normal((d, d)) for d in (5, 4)]
    correlations = np.array([0.9, 0.6, 0.3, 0.0])
    known = {"correlations": correlations[:2]}
    for view, mixing in zip("xy", mixings, strict=True):
        known[f"{view}_weights"] = np.linalg.inv(mixing)[:2]
        known[f"{view}_loadings"] = mixing.T[:2]

    def draw(seed: int) -> Drawn:
        rng = np.random.default_rng(1000 + seed)
        x, rest = rng.standard_normal((n, 5)), rng.standard_normal((n, 4))
        y = correlations * x[:, :4] + np.sqrt(1 - correlations**2) * rest
        return (x @ mixings[0].T, y @ mixings[1].T), known

    return draw


DESIGNS: dict[str, tuple[Any, Callable[[int], Drawn], bool]] = {
    "spherical": (lt.SphericalGaussianMixture, gaussian(3, 4, 4000, 2.5, "spherical"), True),
    "diagonal": (lt.DiagonalGaussianMixture, gaussian(3, 9, 4000, 3.5, "diagonal"), True),
    "product": (lt.ProductMixture, gaussian(3, 9, 8000, 3.5, "diagonal"), False),
    "views, gaussian": (lt.MultiViewMixture, views(4000, "gaussian"), True),
    "views, categorical": (lt.MultiViewMixture, views(8000, "categorical"), True),
    "pearson": (lt.PearsonMixture, line(8000), True),
    "mixture, full": (
        partial(lt.GaussianMixture, covariance_type="full"),
        ellipses("full"),
        None,
    ),
    "mixture, tied": (
        partial(lt.GaussianMixture, covariance_type="tied"),
        ellipses("tied"),
        None,
    ),
    "HMM, points": (lt.GaussianHMM, chain(6000, "points"), True),
    "HMM, symbols": (lt.CategoricalHMM, chain(12_000, "symbols"), True),
    "single topics": (lt.SingleTopic, documents(2000, False), True),
    "topics": (lt.LatentDirichletAllocation, documents(2000, True), True),
    "sources": (lt.ICA, sources(4000, 0.3), True),
    "regressions": (lt.MixtureOfRegressions, regressions(3000), True),
    "regressions, n 30,000": (lt.MixtureOfRegressions, regressions(30_000), True),
    "noisy-or": (lt.NoisyOrNetwork, causes(8000), True),
    "PCA": (lt.PCA, principal(2000), False),
    "CCA": (lt.CCA, canonical(2000), False),
}


def joined(value: Any) -> Any:
    return np.hstack(value) if isinstance(value, list) else np.asarray(value)


def shown(name: str, value: Any, signs: Any = None) -> Any:
    """A parameter with a row for every component, with the signs (k,) of the truth."""
    value = joined(value)
    if name in COLUMNWISE:
        value = value.T
    return value if signs is None or name not in SIGNED else value * signs[:, None]


def measure(name: str, refine: Any, seeds: range) -> dict[str, tuple[float, float]]:
    """Coverage and relative width by parameter, and over all of them."""
    model_class, draw, refines = DESIGNS[name]
    # Of the same seed two designs would draw the same labels, and be off together.
    apart = 10**6 * list(DESIGNS).index(name)
    inside: dict[str, list[Any]] = {}
    estimates: dict[str, list[Any]] = {}
    widths: dict[str, list[Any]] = {}
    for seed in seeds:
        data, truth = draw(apart + seed)
        more = {"refine": refine} if refines else {}
        by = next(each for each in MATCHED_BY if each in truth)
        if name != "pearson":
            more["n_components"] = len(truth[by])
        data = data if isinstance(data, tuple) else (data,)
        try:
            model = model_class(random_state=0, **more).fit(*data)
            ends = model.intervals(*data)
        except NotIdentifiableError:
            continue
        estimate, signs = shown(by, getattr(model, f"{by}_")), None
        if by in SIGNED:
            inner = np.nan_to_num(truth[by]) @ estimate.T
            signs = np.sign(inner[np.abs(inner).argmax(axis=0), np.arange(len(estimate))])
            estimate = estimate * signs[:, None]
        matched = linear_sum_assignment(
            np.nansum((truth[by][:, None] - estimate[None]) ** 2, axis=2)
        )[1]
        for parameter, value in truth.items():
            order: Any = matched
            if parameter == "transmat":
                order = np.ix_(matched, matched)
            elif np.shape(value)[:1] != np.shape(truth[by])[:1]:
                order = slice(None)
            ordered = [
                shown(parameter, each, signs)[order][~np.isnan(value)]
                for each in (
                    ends[parameter].low,
                    ends[parameter].high,
                    getattr(model, f"{parameter}_"),
                )
            ]
            (low, high), asked = np.sort(ordered[:2], axis=0), value[~np.isnan(value)]
            inside.setdefault(parameter, []).append((low <= asked) & (asked <= high))
            widths.setdefault(parameter, []).append((high - low) / 2)
            estimates.setdefault(parameter, []).append(ordered[2])
    found = {}
    for parameter, held in inside.items():
        spread = 1.96 * np.std(estimates[parameter], axis=0, ddof=1)
        ratio = np.mean(widths[parameter], axis=0) / spread
        found[parameter] = float(np.mean(held)), float(np.median(ratio))
    every = np.concatenate([np.stack(h).reshape(len(h), -1) for h in inside.values()], axis=1)
    found["all"] = float(every.mean()), float(np.median([f[1] for f in found.values()]))
    error = every.mean(axis=1).std(ddof=1) / np.sqrt(len(every))
    found["sets"] = float(len(every)), float(error)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=100)
    parser.add_argument("--first", type=int, default=0, help="seed of the first data set")
    parser.add_argument("--only", nargs="*", default=None)
    parser.add_argument("--fits", nargs="*", default=("raw", "refined"))
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print("| design | fit | data sets | all | weights | means | variances | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for name in DESIGNS if options.only is None else options.only:
        refines = DESIGNS[name][2]
        for refine in (0, "auto") if refines else (0,) if refines is False else ("auto",):
            fit = "raw" if refine == 0 else "refined"
            if fit not in options.fits:
                continue
            start = time.process_time()
            found = measure(name, refine, range(options.first, options.first + options.sets))
            seconds = time.process_time() - start
            each = [next((found[p] for p in names if p in found), None) for names in COLUMNS]
            cells = ["" if c is None else f"{100 * c[0]:.1f} %, {c[1]:.2f}" for c in each]
            cells[0] = cells[0].replace(" %", f" ± {100 * found['sets'][1]:.1f} %")
            row = [name, fit, f"{found['sets'][0]:.0f}", *cells, f"{seconds:.0f}"]
            print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
