"""ICA beside FastICA and Picard, Pearson's mixture beside scikit-learn: quality and time, one run.

Run with `python -m benchmarks.ica [quiet] [noisy] [large] [real] [pearson]`; it prints Markdown
tables. Quality of an unmixing is its Amari distance to the planted mixing matrix (0 is perfect),
that of two Gaussians on a line the held-out log-likelihood per sample of EM started at the true
parameters, less that of the method ("gap"). Time is process CPU time, one thread each. Real data
is read from the folder that LATENSOR_DATA names.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from picard import picard
from sklearn.decomposition import FastICA
from sklearn.mixture import GaussianMixture
from threadpoolctl import threadpool_limits

from latensor.datasets.mixtures import MixtureSample
from latensor.datasets.sources_mixed import make_ica, make_pearson
from latensor.models.ica import ICA
from latensor.models.pearson import PearsonMixture

SEEDS = tuple(range(int(os.environ.get("LATENSOR_SEEDS", "10"))))
BOTH = ("laplace", "uniform")


def timed(run: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = run()
    return time.process_time() - start, result


def amari(unmixing: Any, mixing: Any) -> float:
    """0 where every row of the unmixing gives one source, at most 1."""
    gains = np.abs(unmixing @ mixing)
    count = len(gains)
    rows = (gains / gains.max(axis=1, keepdims=True)).sum()
    columns = (gains / gains.max(axis=0, keepdims=True)).sum()
    return float(rows + columns - 2 * count) / (2 * count * (count - 1))


def by_picard(samples: Any, count: int, seed: int) -> Any:
    """The unmixing (k, d) of Picard-O, the variant for sources above and below a Gaussian."""
    few = count < samples.shape[1]
    whitening, rotation, _ = picard(
        samples.T,
        n_components=count if few else None,
        ortho=True,
        extended=True,
        max_iter=500,
        random_state=seed,
    )
    return rotation @ whitening


def rivals(count: int, seed: int, **more: Any) -> dict[str, Callable[[Any], Any]]:
    """Functions from samples to an unmixing."""
    return {
        "latensor": lambda x: ICA(count, random_state=seed, n_jobs=1, **more).fit(x).components_,
        "latensor refine=0": lambda x: (
            ICA(count, random_state=seed, n_jobs=1, refine=0, **more).fit(x).components_
        ),
        "FastICA": lambda x: (
            FastICA(count, whiten="unit-variance", max_iter=500, random_state=seed)
            .fit(x)
            .components_
        ),
        "Picard": lambda x: by_picard(x, count, seed),
    }


Setting = tuple[str, int, Callable[[int], tuple[Any, Any]]]


def planted(d: int, k: int, n: int, sources: Any, noise: float = 0.0, kind: str = "") -> Setting:
    names = sources if isinstance(sources, str) else " and ".join(sources)
    title = f"{k} of {d}, n {n}, {names}" + (f", {kind} noise {noise:g}" if noise else "")

    def build(seed: int) -> tuple[Any, Any]:
        made = make_ica(
            n, d, k, sources=sources, noise=noise, noise_kind=kind or "isotropic", random_state=seed
        )
        return made.samples, made.mixing

    return title, k, build


def table(settings: list[Setting], seeds: tuple[int, ...], **more: Any) -> Iterator[str]:
    yield "| setting | method | Amari distance (median) | times ours | CPU s (median) | its ratio |"
    yield "|---|---|---|---|---|---|"
    for title, count, build in settings:
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in seeds:
            samples, mixing = build(seed)
            for name, run in rivals(count, seed, **more).items():
                seconds, unmixing = timed(lambda run=run, samples=samples: run(samples))
                found.setdefault(name, []).append((amari(unmixing, mixing), seconds))
        medians = {name: np.median(results, axis=0) for name, results in found.items()}
        ours = medians["latensor"]
        for name, (distance, seconds) in medians.items():
            yield (
                f"| {title} | {name} | {distance:.4f} | {distance / ours[0]:.2f} "
                f"| {seconds:.2f} | {seconds / ours[1]:.2f} |"
            )


def quiet_table() -> Iterator[str]:
    kinds: list[tuple[int, int, Any]] = [
        (5, 20_000, "laplace"),
        (5, 20_000, "uniform"),
        (5, 20_000, BOTH),
        (5, 2_000, BOTH),
        (10, 20_000, (*BOTH, "student")),
        (10, 20_000, "student"),
        (20, 20_000, "laplace"),
        (6, 20_000, ("exponential", "uniform")),
        (30, 50_000, BOTH),
    ]
    return table([planted(k, k, n, sources) for k, n, sources in kinds], SEEDS)


def noisy_table() -> Iterator[str]:
    settings = [
        planted(d, k, n, BOTH, noise, kind)
        for k, d, n, noise, kind in [
            (5, 10, 100_000, 0.7, "isotropic"),
            (5, 10, 100_000, 0.7, "diagonal"),
            (5, 10, 20_000, 0.5, "isotropic"),
            (5, 10, 20_000, 0.5, "diagonal"),
            (5, 10, 20_000, 0.5, "full"),
            (5, 10, 100_000, 0.5, "full"),
            (5, 10, 5_000, 0.5, "isotropic"),
            (5, 20, 20_000, 0.7, "diagonal"),
            (5, 20, 20_000, 1.0, "isotropic"),
            (10, 20, 20_000, 0.5, "isotropic"),
            (10, 20, 20_000, 0.7, "diagonal"),
            (10, 20, 100_000, 0.7, "isotropic"),
            (5, 5, 20_000, 0.2, "isotropic"),
            (10, 10, 50_000, 0.3, "isotropic"),
            (5, 5, 20_000, 0.5, "isotropic"),
        ]
    ]
    return table(settings, SEEDS)


def large_table() -> Iterator[str]:
    settings = [planted(10, 10, 1_000_000, BOTH), planted(20, 10, 1_000_000, BOTH, 0.5, "diagonal")]
    return table(settings, SEEDS[:2])


def data_folder() -> Path:
    if "LATENSOR_DATA" not in os.environ:
        raise SystemExit("set LATENSOR_DATA to the folder of the data sets")
    return Path(os.environ["LATENSOR_DATA"])


def real_table() -> Iterator[str]:
    path = data_folder() / "ica_audio_sources" / "ica_audio_sources.npz"
    sources = np.load(path, allow_pickle=False)["sources"].T.astype(float)
    sources = (sources - sources.mean(axis=0)) / sources.std(axis=0)

    def audio(d: int, noise: float) -> Setting:
        def build(seed: int) -> tuple[Any, Any]:
            rng = np.random.default_rng(seed)
            mixing = rng.standard_normal((d, 5)) / np.sqrt(5)
            return sources @ mixing.T + noise * rng.standard_normal((len(sources), d)), mixing

        return f"audio, 5 of {d}, noise {noise:g}", 5, build

    settings = [audio(d, noise) for d in (5, 10) for noise in (0.0, 0.1, 0.3, 0.7)]
    yield from table(settings, SEEDS[:5])
    yield ""
    yield from heart_table()


def heart_table() -> Iterator[str]:
    """No truth is known: how far the unmixings of two halves of the recording are apart."""
    path = data_folder() / "ica_foetal_ecg" / "foetal_ecg.npz"
    channels = np.load(path, allow_pickle=False)["channels"]
    halves = channels[:1250], channels[1250:]
    yield "| foetal ECG, 8 channels | method | Amari distance of two halves | CPU s |"
    yield "|---|---|---|---|"
    for count in (4, 8):
        for name, run in rivals(count, 0).items():
            seconds, unmixings = timed(lambda run=run: [run(half) for half in halves])
            distance = amari(unmixings[0], np.linalg.pinv(unmixings[1]))
            yield f"| {count} sources | {name} | {distance:.3f} | {seconds:.2f} |"


def oracle(made: MixtureSample) -> Any:
    """EM started at the truth, to convergence."""
    return GaussianMixture(
        2,
        covariance_type="spherical",
        tol=1e-9,
        max_iter=5_000,
        weights_init=made.weights,
        means_init=made.means,
        precisions_init=1 / made.variances,
    ).fit(made.samples)


def pearson_table() -> Iterator[str]:
    yield "| setting, 20 sets each | method | gap within 1e-3 | worst gap | CPU s (median) |"
    yield "|---|---|---|---|---|"
    for separation, n in ((1.0, 10_000), (2.0, 1_000)):
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(20):
            made = make_pearson(n, separation=separation, random_state=seed)
            fresh, _ = made.draw(20_000, random_state=1000 + seed)
            best = oracle(made).score(fresh)
            methods: dict[str, Any] = {"latensor": PearsonMixture(random_state=seed, n_jobs=1)}
            for n_init in (1, 10):
                methods[f"sklearn n_init {n_init}"] = GaussianMixture(
                    2, covariance_type="spherical", n_init=n_init, random_state=seed
                )
            for name, model in methods.items():
                seconds, fitted = timed(lambda model=model, made=made: model.fit(made.samples))
                found.setdefault(name, []).append((best - fitted.score(fresh), seconds))
        for name, results in found.items():
            gaps, seconds = np.array(results).T
            yield (
                f"| separation {separation:g}, n {n} | {name} | {(gaps <= 1e-3).sum()} of 20 "
                f"| {gaps.max():.1e} | {np.median(seconds):.3f} |"
            )


TABLES = {
    "quiet": quiet_table,
    "noisy": noisy_table,
    "large": large_table,
    "real": real_table,
    "pearson": pearson_table,
}


def main() -> None:
    chosen = sys.argv[1:] or list(TABLES)
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        # The first calls compile: not part of any method's time.
        samples = make_ica(2000, 4, 3, noise=0.1, random_state=0).samples
        for run in rivals(3, 0).values():
            run(samples)
        PearsonMixture().fit(make_pearson(200, random_state=0).samples)
        for name in chosen:
            for line in TABLES[name]():
                print(line, flush=True)
            print(flush=True)


if __name__ == "__main__":
    main()
