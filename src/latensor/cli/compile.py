"""`latensor compile`: compile all kernels now, so that no first fit waits for it."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from latensor.cli.console import printing
from latensor.cli.progress import progress_meter

_EPILOG = """\b
Kernels are compiled on first use, once for a machine and a version, and kept on disk. In an image,
or for workers that share a folder, compile them beforehand:
  latensor compile
  NUMBA_CACHE_DIR=/shared/folder latensor compile      workers need the same variable
"""


@click.command("compile", epilog=_EPILOG)
def compile() -> None:
    """Compile all kernels now, for images and clusters, by small fits of everything."""
    from latensor.arrays._kernels import compilations

    count, began = 0, time.perf_counter()

    def tell() -> None:
        nonlocal count
        count += 1

    with printing() as console:
        with compilations(tell), warnings.catch_warnings():
            # The fits are too small to be good.
            warnings.simplefilter("ignore")
            with progress_meter(console, len(_FITS)) as meter:
                for name, fit in _FITS.items():
                    meter.step(f"compiling: {name}")
                    fit()
                    meter.done()
        seconds = time.perf_counter() - began
        if count:
            console.print(f"{count} kernels compiled in {seconds:.0f} s, and kept on disk.")
        else:
            console.print("Everything was compiled already.")


def _topics() -> None:
    import latensor as lt

    counts = lt.datasets.make_topics(300, 60, 3, random_state=0).counts
    for X in (counts, counts.astype(np.float32)):
        model = lt.LatentDirichletAllocation(3, random_state=0).fit(X)
        model.transform(X)
        model.perplexity(X)
        lt.SingleTopic(3, random_state=0).fit(X).predict_proba(X)
    lt.LatentDirichletAllocation("auto", random_state=0).fit(counts)
    # More words than a matrix of pairs is kept for, more products than SciPy is asked for, and
    # documents that stay in their files.
    many = lt.datasets.make_topics(3000, 3000, 3, random_state=0).counts
    for X in (many, many.astype(np.float32)):
        lt.LatentDirichletAllocation(3, random_state=0).fit(X)
        lt.SingleTopic(3, random_state=0).fit(X)
    many = many[:300]
    with tempfile.TemporaryDirectory() as folder:
        lines = [" ".join(f"word{j}" for j in row.indices) for row in many]
        for name, part in (("one", lines[:150]), ("two", lines[150:])):
            (Path(folder) / f"{name}.txt").write_text("\n".join(part))
        files = lt.sources.shards(f"{folder}/*.txt")
        lt.LatentDirichletAllocation(3, random_state=0).fit(files)


def _mixtures() -> None:
    import latensor as lt

    rows = lt.datasets.make_spherical_mixture(300, 6, 3, random_state=0).samples
    missing = np.where(np.random.default_rng(0).random(rows.shape) < 0.1, np.nan, rows)
    for kind in ("full", "tied", "diag", "spherical"):
        for X in (rows, missing):
            mixture = lt.GaussianMixture(3, covariance_type=kind, random_state=0).fit(X)
            mixture.predict_proba(X)
            mixture.score(X)
    views = lt.datasets.make_multi_view(300, (5, 5, 5), 3, random_state=0).views
    lt.MultiViewMixture(3, random_state=0).fit(views)
    lt.ICA(3, random_state=0).fit(lt.datasets.make_ica(300, 3, 3, random_state=0).samples)


def _chains() -> None:
    import latensor as lt

    # One that is gone over at once, and one that is long enough to be cut.
    for length in (600, 40_000):
        symbols = lt.datasets.make_hmm(length, 6, 3, random_state=0).X
        categorical = lt.CategoricalHMM(3, random_state=0).fit(symbols)
        categorical.predict(symbols)
        categorical.score(symbols)
    rows = lt.datasets.make_gaussian_hmm(600, 4, 3, random_state=0).X
    missing = np.where(np.random.default_rng(0).random(rows.shape) < 0.1, np.nan, rows)
    for kind in ("full", "tied", "diag", "spherical"):
        for X in (rows, missing):
            chain = lt.GaussianHMM(3, covariance_type=kind, random_state=0).fit(X)
            chain.predict(X)
            chain.score(X)


def _tensors() -> None:
    import latensor as lt

    rng = np.random.default_rng(0)
    for order in (3, 4):
        tensor = lt.CPTensor(None, tuple(rng.random((8, 2)) for _ in range(order))).to_dense()
        sparse = lt.SparseTensor.from_dense(np.where(rng.random(tensor.shape) < 0.2, tensor, 0.0))
        for X in (tensor, sparse):
            lt.decompose(X, 2, random_state=0)
            lt.decompose(X, 2, nonnegative=True, random_state=0)
            lt.tucker(X, 2, random_state=0)
        lt.decompose(tensor, 2, mask=rng.random(tensor.shape) < 0.8, random_state=0)
    unimodal = {0: lt.constraints.Unimodal()}
    lt.decompose(tensor, 2, constraints=unimodal, random_state=0)
    # Enough entries to be sorted and read by kernels.
    places, values = rng.integers(0, 1000, (100_000, 3)), rng.random(100_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tensor.tns"
        lt.write_tns(lt.SparseTensor(places, values, (1000,) * 3), path)
        lt.read_tns(path)


def _networks() -> None:
    import latensor as lt

    lt.NoisyOrNetwork(2, random_state=0).fit(
        lt.datasets.make_noisy_or(400, 12, 2, random_state=0).samples
    )
    graph = lt.datasets.make_block_model(2000, 2, random_state=0).adjacency
    lt.MixedMembershipBlockModel(2, random_state=0).fit(graph)
    lt.LatentTree(random_state=0).fit(lt.datasets.make_tree(300, 8, random_state=0).X)


_FITS: dict[str, Callable[[], Any]] = {
    "topics": _topics,
    "mixtures, views and components": _mixtures,
    "hidden Markov models": _chains,
    "tensors": _tensors,
    "networks, communities and trees": _networks,
}
