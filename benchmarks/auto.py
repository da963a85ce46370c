"""`n_components="auto"`: how often the planted number is found, and what real sets get.

    python -m benchmarks.auto [topics] [mixtures] [hmm] [sources] [real]
    python -m benchmarks.auto topics --store auto.json --seeds 10
    python -m benchmarks.auto --store auto.json --render --write

Planted samples of known k: in how many of the seeds the number found is right, too large and too
small, and how many of the fits with it the model's own certificate calls stable. Samples without
structure are in each table: independent words, one Gaussian, rows without order, Gaussian sources.
Real data is read from the folder that LATENSOR_DATA names, and skipped without it; labels are given
beside the number, and are no truth. Time is process CPU time, one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import latensor as lt
from benchmarks.gathered import Gathered, Run, Table, command, median, number
from benchmarks.gaussian_mixtures import real_sets as mixture_sets
from benchmarks.hmm_data import bases, letters, vowels
from benchmarks.topics_corpora import CORPORA
from latensor import datasets

OURS = "auto"
VERDICTS = ("unstable", "uncertain", "stable")


@dataclass(frozen=True)
class Setting:
    """A planted sample: what it is, how many components it has, and what is fitted to it."""

    title: str
    count: int
    fit: Callable[[int], Any]


def chosen(fit: Callable[[int], Any], seed: int) -> Run:
    """The number found, the smallest and largest choice, the verdict and the seconds."""
    start = time.process_time()
    model = fit(seed)
    seconds = time.process_time() - start
    choices = model.selection_.choices
    number_found = model.selection_.n_components
    verdict = VERDICTS.index(model.certificate_.verdict)
    ends = [choices.get(name, number_found) for name in ("small", "large")]
    return {OURS: [float(number_found), *map(float, ends), float(verdict), seconds]}


# ---------------------------------------------------------------------- planted
def topics(n: int, v: int, k: int, what: str = "", **settings: Any) -> Setting:
    def fit(seed: int) -> Any:
        counts = datasets.make_topics(n, v, k, random_state=seed, **settings).counts
        return lt.LatentDirichletAllocation("auto", random_state=seed, n_jobs=1).fit(counts)

    return Setting(f"{n:,} documents, {v:,} words{what}", k, fit)


def unrelated_words(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    rates = 60 * rng.dirichlet(np.full(300, 0.5))
    counts = scipy.sparse.csr_array(rng.poisson(rates, (1000, 300)).astype(float))
    return lt.LatentDirichletAllocation("auto", random_state=seed, n_jobs=1).fit(counts)


TOPICS = (
    Setting("1,000 documents of independent words", 1, unrelated_words),
    topics(1000, 300, 1, ", one topic"),
    topics(1000, 300, 3),
    topics(3000, 500, 3, ", 30 tokens each", length=30.0),
    topics(2000, 500, 5),
    topics(2000, 500, 6, ", unequal", alpha=np.array([0.5, 0.3, 0.2, 0.1, 0.1, 0.05])),
    topics(2000, 500, 8, ", lengths lognormal", lengths="lognormal"),
    topics(3000, 800, 10, ", alpha0 0.5", alpha0=0.5),
    topics(4000, 1000, 20),
)


def mixture(
    n: int, d: int, k: int, kind: str, separation: float, weights: Any = None, what: str = ""
) -> Setting:
    """Means at random, at least `separation` standard deviations apart on average."""

    def fit(seed: int) -> Any:
        rng = np.random.default_rng(seed)
        means = rng.standard_normal((k, d))
        gaps = [np.linalg.norm(a - b) for i, a in enumerate(means) for b in means[:i]]
        means *= separation / (min(gaps) if gaps else 1.0)
        labels = rng.choice(k, n, p=weights)
        rows = rng.standard_normal((n, d))
        if kind == "diag":
            rows *= rng.uniform(0.5, 1.5, (k, d))[labels]
        elif kind == "full":
            turns = [np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(k)]
            shapes = [q * rng.uniform(0.5, 1.5, d) for q in turns]
            rows = np.einsum("nij,nj->ni", np.array(shapes)[labels], rows)
        model = lt.GaussianMixture("auto", covariance_type=kind, random_state=seed, n_jobs=1)
        return model.fit(rows + means[labels])

    gap = f", nearest {separation:g} apart" if k > 1 else ", one Gaussian"
    return Setting(f"{n:,} x {d}, {kind}{gap}{what}", k, fit)


MIXTURES = (
    mixture(1000, 4, 1, "full", 0.0),
    mixture(1000, 10, 1, "diag", 0.0),
    mixture(600, 4, 2, "full", 4.0),
    mixture(1000, 2, 3, "full", 5.0),
    mixture(1000, 8, 3, "diag", 4.0),
    mixture(1500, 5, 4, "spherical", 4.0),
    mixture(2000, 5, 5, "full", 5.0),
    mixture(2000, 10, 5, "diag", 4.0, (0.4, 0.3, 0.15, 0.1, 0.05), ", unequal"),
    mixture(3000, 6, 8, "spherical", 5.0),
)


def symbols(n: int, v: int, k: int, sequences: int = 1, **settings: Any) -> Setting:
    def fit(seed: int) -> Any:
        made = datasets.make_hmm(n, v, k, n_sequences=sequences, random_state=seed, **settings)
        return lt.CategoricalHMM("auto", random_state=seed, n_jobs=1).fit(made.X, made.lengths)

    return Setting(f"{k} states, {n:,} symbols of {v}, sequences: {sequences}", k, fit)


def points(n: int, d: int, k: int, sequences: int = 1, **settings: Any) -> Setting:
    def fit(seed: int) -> Any:
        made = datasets.make_gaussian_hmm(
            n, d, k, n_sequences=sequences, random_state=seed, **settings
        )
        return lt.GaussianHMM("auto", random_state=seed, n_jobs=1).fit(made.X, made.lengths)

    apart = settings.get("separation", 3.0)
    return Setting(f"{k} states, {n:,} x {d}, {apart:g} apart, sequences: {sequences}", k, fit)


def unordered(seed: int) -> Any:
    rows = np.random.default_rng(seed).standard_normal((3000, 2))
    return lt.GaussianHMM("auto", random_state=seed, n_jobs=1).fit(rows)


CHAINS = (
    Setting("3,000 x 2 Gaussian rows without order", 1, unordered),
    symbols(20_000, 8, 1),
    symbols(20_000, 8, 2, stay=0.8),
    symbols(50_000, 10, 3, stay=0.7),
    symbols(30_000, 10, 3, 100, stay=0.7),
    points(3000, 2, 2, stay=0.7),
    points(6000, 3, 3, 20, stay=0.7, separation=4.0),
    points(6000, 4, 4, stay=0.7, separation=5.0),
)


def mixed(n: int, d: int, k: int, sources: Any, noise: float = 0.0, kind: str = "") -> Setting:
    def fit(seed: int) -> Any:
        made = datasets.make_ica(
            n, d, k, sources=sources, noise=noise, noise_kind=kind or "isotropic", random_state=seed
        )
        return lt.ICA("auto", random_state=seed, n_jobs=1).fit(made.samples)

    names = sources if isinstance(sources, str) else " and ".join(sources)
    heard = f", {kind} noise {noise:g}" if noise else ", no noise"
    return Setting(f"{k} of {d}, n {n:,}, {names}{heard}", k, fit)


def gaussian_sources(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((5000, 5)) @ rng.standard_normal((5, 5))
    return lt.ICA("auto", random_state=seed, n_jobs=1).fit(rows)


def one_in_every_sensor(seed: int) -> Any:
    """Sources that are not mixed: their covariance is that of noise."""
    rows = np.random.default_rng(seed).laplace(size=(5000, 5)) * np.arange(1, 6)
    return lt.ICA("auto", random_state=seed, n_jobs=1).fit(rows)


def periodic_sources(seed: int) -> Any:
    """The three of scikit-learn's example, with phases at random."""
    rng, time_of = np.random.default_rng(seed), np.linspace(0, 8, 2000)
    waves = [np.sin(2 * time_of + rng.uniform(0, 6)), np.sin(3 * time_of + rng.uniform(0, 6))]
    sources = np.column_stack([waves[0], np.sign(waves[1]), 2 * ((time_of + rng.uniform()) % 1)])
    sources = sources + 0.2 * rng.standard_normal(sources.shape)
    rows = sources / sources.std(axis=0) @ rng.standard_normal((3, 3))
    return lt.ICA("auto", random_state=seed, n_jobs=1).fit(rows)


BOTH = ("laplace", "uniform")
SOURCES = (
    # One is kept where none is found: a model without components has nothing to transform to.
    Setting("5 Gaussian sources of 5", 1, gaussian_sources),
    Setting("5 of 5, n 5,000, laplace, not mixed", 5, one_in_every_sensor),
    Setting("3 of 3, n 2,000, sine, square and sawtooth", 3, periodic_sources),
    mixed(5000, 3, 3, BOTH),
    mixed(5000, 6, 6, "laplace"),
    mixed(5000, 8, 3, BOTH, 0.3, "isotropic"),
    mixed(10_000, 10, 5, "laplace", 0.3, "isotropic"),
    mixed(10_000, 8, 3, BOTH, 0.3, "diagonal"),
)


def planted_table(name: str, settings: Sequence[Setting]) -> Table:
    """In how many seeds the number is right, too large, too small; and what certificates say."""

    def table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
        yield f"| {name} | k | seeds | right | too many | too few | stable | CPU s |"
        yield "|---|---|---|---|---|---|---|---|"
        total, right = 0, 0
        for setting in settings:
            for seed in seeds:
                gathered.measure(
                    name, setting.title, seed, lambda s=setting, seed=seed: chosen(s.fit, seed)
                )
            found = gathered.found(name, setting.title).get(OURS)
            if found is None:
                continue
            gaps = found[:, 0] - setting.count
            total, right = total + len(gaps), right + int((gaps == 0).sum())
            yield (
                f"| {setting.title} | {setting.count} | {len(gaps)} | {(gaps == 0).sum()} "
                f"| {(gaps > 0).sum()} | {(gaps < 0).sum()} | {(found[:, 3] == 2).sum()} "
                f"| {number(median(found[:, 4]), '.1f')} |"
            )
        if total:
            yield f"| **all** | | {total} | **{right} ({100 * right / total:.0f} %)** | | | | |"

    return table


# ---------------------------------------------------------------------- real
def _sequences(read: Callable[[Path], Any]) -> Callable[[Path], Any]:
    def fit(folder: Path) -> Any:
        data = read(folder)
        model = data.ours(2).set_params(n_components="auto")
        return model.fit(data.train, data.lengths)

    return fit


def _rows(name: str) -> Callable[[Path], Any]:
    def fit(folder: Path) -> Any:
        file = folder / "gmm_mclust_sets" / f"{name}.csv"
        if file.exists():
            table = np.genfromtxt(file, delimiter=",", skip_header=1)
            rows = table[:, np.isfinite(table).all(axis=0)]
        else:
            rows = next(rows for title, _, rows in mixture_sets() if title == name)
        return lt.GaussianMixture("auto", random_state=0, n_jobs=1).fit(rows)

    return fit


def _channels(folder: Path) -> Any:
    rows = np.load(folder / "ica_foetal_ecg/foetal_ecg.npz", allow_pickle=False)["channels"]
    return lt.ICA("auto", random_state=0, n_jobs=1).fit(rows)


def _audio(folder: Path) -> Any:
    sources = np.load(folder / "ica_audio_sources/ica_audio_sources.npz", allow_pickle=False)
    signals = sources["sources"].T.astype(float)
    signals = (signals - signals.mean(axis=0)) / signals.std(axis=0)
    rng = np.random.default_rng(0)
    mixing = rng.standard_normal((8, 5)) / np.sqrt(5)
    heard = signals @ mixing.T + 0.1 * rng.standard_normal((len(signals), 8))
    return lt.ICA("auto", random_state=0, n_jobs=1).fit(heard)


def _corpus(name: str) -> Callable[[Path], Any]:
    corpus = next(c for c in CORPORA if c.name == name)

    def fit(folder: Path) -> Any:
        documents = corpus.read(0)
        assert documents is not None
        model = lt.LatentDirichletAllocation("auto", random_state=0, n_jobs=1)
        return model.fit(documents.train)

    return fit


REAL: tuple[tuple[str, str, Callable[[Path], Any]], ...] = (
    ("BBC news, training part", "5", _corpus("bbc")),
    ("DBLP titles, training part", "4", _corpus("dblp")),
    ("Reuters", "-", _corpus("reuters")),
    ("AP", "-", _corpus("ap")),
    ("20 newsgroups, training part", "20", _corpus("newsgroups")),
    ("banknote", "2", _rows("banknote")),
    ("thyroid", "3", _rows("thyroid")),
    ("diabetes", "3", _rows("diabetes")),
    ("pen digits", "10", _rows("pendigits")),
    ("MNIST, 5,000 digits, 20 principal components", "10", _rows("mnist5k, 20 PCs")),
    ("King James letters", "-", _sequences(letters)),
    ("phage lambda", "-", _sequences(bases)),
    ("Japanese vowels", "9", _sequences(vowels)),
    ("foetal ECG, 8 channels", "-", _channels),
    ("5 audio clips in 8 channels, noise 0.1", "5", _audio),
)


def real_table(gathered: Gathered, seeds: Sequence[int]) -> Iterator[str]:
    yield "| real set | labels | found | small, large | verdict of its certificate | CPU s |"
    yield "|---|---|---|---|---|---|"
    root = os.environ.get("LATENSOR_DATA")
    for title, labels, fit in REAL:
        if root is not None and len(seeds):
            gathered.measure("real", title, 0, lambda fit=fit: chosen(lambda _: fit(Path(root)), 0))
        found = gathered.found("real", title).get(OURS)
        if found is not None:
            n, small, large, verdict, seconds = found[0]
            yield (
                f"| {title} | {labels} | {n:.0f} | {small:.0f}, {large:.0f} "
                f"| {VERDICTS[int(verdict)]} | {seconds:.1f} |"
            )


def main() -> None:
    tables: dict[str, Table] = {
        "topics": planted_table("topics", TOPICS),
        "mixtures": planted_table("mixtures", MIXTURES),
        "hmm": planted_table("hidden Markov models", CHAINS),
        "sources": planted_table("sources", SOURCES),
        "real": real_table,
    }
    command(__doc__, tables, "bench-auto", lambda: None)


if __name__ == "__main__":
    main()
