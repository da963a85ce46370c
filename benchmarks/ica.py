"""ICA beside FastICA, Picard and oracles, Pearson's mixture beside scikit-learn: quality and time.

    python -m benchmarks.ica [quiet] [noisy] [faint] [large] [real] [heart] [pearson]
    python -m benchmarks.ica noisy --store ica.json --seeds 20 --first-seed 100
    python -m benchmarks.ica --store ica.json --render --write

Quality of an unmixing is its Amari distance to the planted mixing matrix (0 is perfect), that of
two Gaussians on a line the held-out log-likelihood per sample of EM started at the true
parameters, less that of the method ("gap"). Two oracles show what noise costs anybody: FastICA on
the same samples before the noise came to them, and our refinement told the covariance of the noise
and the signal, and started at the truth. Time is process CPU time, one thread each. Real data is
read from the folder that LATENSOR_DATA names, and skipped without it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from picard import picard
from sklearn.decomposition import FastICA
from sklearn.mixture import GaussianMixture

from benchmarks.gathered import Gathered, Run, command, median, number
from latensor.datasets.mixtures import MixtureSample
from latensor.datasets.sources_mixed import ICASample, make_ica, make_pearson
from latensor.models.ica import ICA
from latensor.models.ica.rotation import refine_rotation
from latensor.models.ica.sums import over_scores
from latensor.models.mixtures.pearson import PearsonMixture

BOTH = ("laplace", "uniform")
OURS, RAW = "latensor", "latensor refine=0"
CLEAN, KNOWN = "FastICA, no noise", "noise known"


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


def by_fast_ica(samples: Any, count: int, seed: int) -> Any:
    model = FastICA(count, whiten="unit-variance", max_iter=500, random_state=seed)
    return model.fit(samples).components_


def ours_of(count: int, seed: int, **more: Any) -> Any:
    return ICA(count, random_state=seed, n_jobs=1, **more)


def candidates(count: int, seed: int) -> dict[str, Callable[[Any], Any]]:
    """Functions from samples to an unmixing."""
    return {
        OURS: lambda x: ours_of(count, seed).fit(x).components_,
        RAW: lambda x: ours_of(count, seed, refine=0).fit(x).components_,
        "FastICA": lambda x: by_fast_ica(x, count, seed),
        "Picard": lambda x: by_picard(x, count, seed),
    }


def told(made: ICASample) -> Any:
    """Our refinement given the covariances of noise and signal, and started at the truth."""
    weighted = np.linalg.solve(made.noise_covariance, made.mixing)
    projection = weighted @ np.linalg.inv(made.mixing.T @ weighted)
    scores = (made.samples - made.samples.mean(axis=0)) @ projection
    noise = projection.T @ made.noise_covariance @ projection
    found = refine_rotation(over_scores(scores), noise, np.eye(len(noise)), max_iter=50)
    return found.unmixing.T @ projection.T


Drawn = tuple[Any, Any, ICASample | None]
Setting = tuple[str, int, Callable[[int], Drawn]]


def planted(d: int, k: int, n: int, sources: Any, noise: float = 0.0, kind: str = "") -> Setting:
    names = sources if isinstance(sources, str) else " and ".join(sources)
    title = f"{k} of {d}, n {n}, {names}" + (f", {kind} noise {noise:g}" if noise else "")

    def build(seed: int) -> Drawn:
        made = make_ica(
            n, d, k, sources=sources, noise=noise, noise_kind=kind or "isotropic", random_state=seed
        )
        return made.samples, made.mixing, made if noise else None

    return title, k, build


def distances(count: int, build: Callable[[int], Drawn], seed: int, only_ours: bool) -> Run:
    samples, mixing, made = build(seed)
    found: Run = {}
    for name, run in candidates(count, seed).items():
        if not only_ours or name in (OURS, RAW):
            seconds, unmixing = timed(lambda run=run: run(samples))
            found[name] = [amari(unmixing, mixing), seconds]
    if made is not None and not only_ours:
        clean = made.mean + made.sources @ made.mixing.T
        found[CLEAN] = [amari(by_fast_ica(clean, count, seed), mixing), float("nan")]
        found[KNOWN] = [amari(told(made), mixing), float("nan")]
    return found


def unmixing_table(
    name: str, settings: list[Setting], gathered: Gathered, seeds: Sequence[int], most: int = 10**9
) -> Iterator[str]:
    """Medians of the Amari distance in 1/1000, and what FastICA's is over that of the others."""
    oracles = name in ("noisy", "faint")
    first = f"| {name}: Amari distance in 1/1000 | seeds | ours | moments alone | FastICA | Picard "
    rest = "| CPU s ours, FastICA, Picard |"
    if oracles:
        first += f"| {CLEAN} | {KNOWN} | **FastICA / ours** | FastICA / oracles "
    else:
        first += "| **FastICA / ours** "
    yield first + rest
    yield "|---" * ((first + rest).count("|") - 1) + "|"
    for title, count, build in settings:
        for seed in seeds[:most]:
            gathered.measure(
                name,
                title,
                seed,
                lambda count=count, build=build, seed=seed: distances(
                    count, build, seed, gathered.ours
                ),
            )
        found = gathered.found(name, title)
        if not found:
            continue
        middle = {method: median(runs[:, 0]) for method, runs in found.items()}
        seconds = [number(median(found[m][:, 1])) for m in (OURS, "FastICA", "Picard")]
        shown = [OURS, RAW, "FastICA", "Picard", *((CLEAN, KNOWN) if oracles else ())]
        cells = [title, str(len(found[OURS])), *(number(1e3 * middle[m]) for m in shown)]
        cells.append(f"**{middle['FastICA'] / middle[OURS]:.2f}**")
        if oracles:
            cells.append(", ".join(number(middle["FastICA"] / middle[m]) for m in (CLEAN, KNOWN)))
        yield "| " + " | ".join([*cells, ", ".join(seconds)]) + " |"


def quiet_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    kinds: list[tuple[int, int, Any]] = [
        (5, 20_000, "laplace"),
        (5, 20_000, "uniform"),
        (5, 20_000, BOTH),
        (5, 2_000, BOTH),
        (5, 20_000, "student"),
        (5, 2_000, "student"),
        (10, 20_000, (*BOTH, "student")),
        (10, 20_000, "student"),
        (20, 20_000, "laplace"),
        (6, 20_000, ("exponential", "uniform")),
        (30, 50_000, BOTH),
    ]
    settings = [planted(k, k, n, sources) for k, n, sources in kinds]
    yield from unmixing_table("quiet", settings, gathered, seeds)


def noisy_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    settings = [
        planted(d, k, n, BOTH, noise, kind)
        for k, d, n, noise, kind in [
            (5, 10, 20_000, 0.5, "isotropic"),
            (5, 10, 20_000, 0.5, "diagonal"),
            (5, 10, 20_000, 0.5, "full"),
            (5, 10, 100_000, 0.7, "isotropic"),
            (5, 10, 100_000, 0.7, "diagonal"),
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
    yield from unmixing_table("noisy", settings, gathered, seeds)


def faint_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    """Noise of 0.3 of the signal, where sampling error is most of what is left."""
    settings = [
        planted(d, 5, n, sources, 0.3, kind)
        for d, n, sources, kind in [
            (10, 20_000, BOTH, "isotropic"),
            (10, 20_000, BOTH, "diagonal"),
            (10, 20_000, BOTH, "full"),
            (10, 20_000, "laplace", "isotropic"),
            (10, 20_000, "uniform", "isotropic"),
            (10, 20_000, "student", "isotropic"),
            (10, 20_000, (*BOTH, "student"), "isotropic"),
            (20, 20_000, BOTH, "isotropic"),
            (10, 100_000, BOTH, "isotropic"),
            (20, 100_000, BOTH, "isotropic"),
        ]
    ]
    yield from unmixing_table("faint", settings, gathered, seeds)


def large_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    settings = [planted(10, 10, 1_000_000, BOTH), planted(20, 10, 1_000_000, BOTH, 0.5, "diagonal")]
    yield from unmixing_table("large", settings, gathered, seeds, 2)


def data_folder() -> Path | None:
    folder = os.environ.get("LATENSOR_DATA")
    return Path(folder) if folder else None


def audio(d: int, noise: float) -> Setting:
    def build(seed: int) -> Drawn:
        folder = data_folder()
        assert folder is not None
        path = folder / "ica_audio_sources" / "ica_audio_sources.npz"
        sources = np.load(path, allow_pickle=False)["sources"].T.astype(float)
        sources = (sources - sources.mean(axis=0)) / sources.std(axis=0)
        rng = np.random.default_rng(seed)
        mixing = rng.standard_normal((d, 5)) / np.sqrt(5)
        return sources @ mixing.T + noise * rng.standard_normal((len(sources), d)), mixing, None

    return f"audio, 5 of {d}, noise {noise:g}", 5, build


def real_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    settings = [audio(d, noise) for d in (5, 10) for noise in (0.0, 0.1, 0.3, 0.7)]
    measured = seeds if data_folder() is not None else ()
    yield from unmixing_table("real", settings, gathered, measured, 5)


def heart_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    """No truth is known: how far the unmixings of two halves of the recording are apart."""
    yield "| foetal ECG, 8 channels: Amari distance of two halves | ours | FastICA | Picard |"
    yield "|---|---|---|---|"
    folder = data_folder()
    for count in (4, 8):
        title = f"{count} sources"

        def halves(count: int = count) -> Run:
            assert folder is not None
            path = folder / "ica_foetal_ecg" / "foetal_ecg.npz"
            channels = np.load(path, allow_pickle=False)["channels"]
            found = {}
            for name, run in candidates(count, 0).items():
                parts = (channels[:1250], channels[1250:])
                seconds, (one, two) = timed(lambda run=run, parts=parts: [run(x) for x in parts])
                found[name] = [amari(one, np.linalg.pinv(two)), seconds]
            return found

        if folder is not None:
            for seed in seeds[:1]:
                gathered.measure("heart", title, seed, halves)
        found = gathered.found("heart", title)
        if found:
            cells = [number(median(found[m][:, 0]), ".3f") for m in (OURS, "FastICA", "Picard")]
            yield f"| {title} | " + " | ".join(cells) + " |"


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


def pearson_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    names = (OURS, "sklearn n_init 1", "sklearn n_init 10")
    yield "| two Gaussians on a line: gap within 1e-3, worst, CPU s | " + " | ".join(names) + " |"
    yield "|---|---|---|---|"
    for separation, n in ((1.0, 10_000), (2.0, 1_000)):
        title = f"separation {separation:g}, n {n}"
        for seed in seeds:
            gathered.measure(
                "pearson",
                title,
                seed,
                lambda n=n, separation=separation, seed=seed: pearson_gaps(n, separation, seed),
            )
        found = gathered.found("pearson", title)
        if found:
            cells = [
                f"{int((found[m][:, 0] <= 1e-3).sum())} of {len(found[m])}, "
                f"{found[m][:, 0].max():.1e}, {median(found[m][:, 1]):.3f}"
                for m in names
            ]
            yield f"| {title} | " + " | ".join(cells) + " |"


def pearson_gaps(n: int, separation: float, seed: int) -> Run:
    made = make_pearson(n, separation=separation, random_state=seed)
    fresh, _ = made.draw(20_000, random_state=1000 + seed)
    best = oracle(made).score(fresh)
    methods: dict[str, Any] = {OURS: PearsonMixture(random_state=seed, n_jobs=1)}
    for n_init in (1, 10):
        methods[f"sklearn n_init {n_init}"] = GaussianMixture(
            2, covariance_type="spherical", n_init=n_init, random_state=seed
        )
    found = {}
    for name, model in methods.items():
        seconds, fitted = timed(lambda model=model: model.fit(made.samples))
        found[name] = [best - fitted.score(fresh), seconds]
    return found


TABLES = {
    "quiet": quiet_table,
    "noisy": noisy_table,
    "faint": faint_table,
    "large": large_table,
    "real": real_table,
    "heart": heart_table,
    "pearson": pearson_table,
}


def warm_up() -> None:
    samples = make_ica(2000, 4, 3, noise=0.1, random_state=0).samples
    for run in candidates(3, 0).values():
        run(samples)
    PearsonMixture().fit(make_pearson(200, random_state=0).samples)


if __name__ == "__main__":
    assert __doc__ is not None
    command(__doc__.splitlines()[0], TABLES, "bench-ica", warm_up)
