"""Engines beside each other: time, bytes of a round, merging of many partitions, memory.

python -m benchmarks.engines [--documents N] [--refine N] [--engines local,dask] prints the tables
of docs/engines.md and docs/benchmarks.md. Documents are planted shard by shard into compressed
Parquet files (V = 20,000 words, k = 50 topics), so that no machine has to hold them; --messages
alone measures what travels.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import latensor as lt
from latensor.engines.tree import joined, total
from latensor.estimation.run import Counted
from latensor.models.graphs.nodes import Nodes
from latensor.models.graphs.sums import ExplainedEdges, PartSums
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums
from latensor.moments.word_core import WordCoreSums
from latensor.moments.word_power_sums import WordPowerSums
from latensor.moments.word_totals import WordTotalSums
from latensor.moments.word_triples import WordRows, WordTripleSums
from latensor.moments.words import WordPairSums
from latensor.refinement.family import Statistics

WORDS, TOPICS, LENGTH = 20_000, 50, 60
SHARD = 25_000


def planted_topics(rng: np.random.Generator, words: int = WORDS, topics: int = TOPICS) -> Any:
    weights = rng.gamma(0.05, size=(topics, words)) + 1e-9
    return weights / weights.sum(axis=1, keepdims=True)


def write_shard(path: Path, n_documents: int, seed: int, topics: Any) -> int:
    """One compressed file of documents of planted topics; the number of stored counts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(seed)
    edges = np.cumsum(topics, axis=1)
    mixtures = rng.dirichlet(np.full(len(topics), 0.1), n_documents)
    lengths = rng.poisson(LENGTH, n_documents) + 3
    owners = np.repeat(np.arange(n_documents), lengths)
    marks = rng.random(len(owners))
    # Documents one after the other on a line of unit lengths, cut by the fractions of their topics.
    cuts = np.arange(n_documents)[:, None] + np.cumsum(mixtures, axis=1)[:, :-1]
    chosen = np.searchsorted(cuts.ravel(), owners + marks) - owners * (len(topics) - 1)
    chosen = np.clip(chosen, 0, len(topics) - 1)
    tokens = np.empty(len(owners), np.int64)
    for topic in range(len(topics)):
        mine = chosen == topic
        tokens[mine] = np.searchsorted(edges[topic], rng.random(mine.sum()))
    tokens = np.minimum(tokens, topics.shape[1] - 1)
    pairs, counts = np.unique(owners * topics.shape[1] + tokens, return_counts=True)
    sizes = np.bincount(pairs // topics.shape[1], minlength=n_documents)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    table = pa.table(
        {
            "words": pa.ListArray.from_arrays(offsets, (pairs % topics.shape[1]).astype(np.int32)),
            "counts": pa.ListArray.from_arrays(offsets, counts.astype(np.uint16)),
        }
    )
    pq.write_table(table, path, compression="zstd", row_group_size=1 << 15)
    return len(pairs)


class Stages:
    """A callback that adds up the time of each kind of pass and notes the peak memory so far.

    Parameters
    ----------
    seconds : CPU seconds so far of all processes
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self.rows: dict[str, list[float]] = {}
        self._seconds = seconds
        self._last = time.perf_counter(), seconds()

    def __call__(self, name: str, number: int) -> None:
        """Told after every pass."""
        row = self.rows.setdefault(name, [0, 0.0, 0.0, 0.0])
        now = time.perf_counter(), self._seconds()
        row[0] += 1
        row[1] += now[0] - self._last[0]
        row[2] += now[1] - self._last[1]
        row[3] = peak_memory()
        self._last = now

    def lines(self) -> list[str]:
        """A table."""
        found = [
            "| stage | passes | seconds | CPU seconds | peak so far, GiB |",
            "|---|---|---|---|---|",
        ]
        for name, (count, wall, cpu, peak) in self.rows.items():
            found.append(f"| {name} | {count} | {wall:.0f} | {cpu:.1f} | {peak:.2f} |")
        return found


def peak_memory() -> float:
    """The largest resident size that this process has had, in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def fit_shards(folder: Path, engine: str, refine: int | str) -> None:
    """One fit, told stage by stage; of Dask with two processes of one thread each."""
    client: Any = None
    if engine == "dask":
        import distributed

        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        )
        client = distributed.Client(cluster)

    def seconds() -> float:
        workers = client.run(time.process_time) if client is not None else {}
        return time.process_time() + sum(workers.values())

    def fit(files: Any, count: int, passes: int | str, **more: Any) -> Any:
        source = lt.sources.shards(
            files, words="words", counts="counts", n_features=WORDS, engine=engine
        )
        return lt.LatentDirichletAllocation(count, random_state=0, refine=passes).fit(
            source, **more
        )

    files = sorted(map(str, folder.glob("*.parquet")))
    # The first fit compiles, on every worker.
    fit(files[:2], 5, min(refine, 1) if isinstance(refine, int) else 1)
    stages = Stages(seconds)
    wall, cpu = time.perf_counter(), seconds()
    model = fit(files, TOPICS, refine, callback=stages)
    wall, cpu = time.perf_counter() - wall, seconds() - cpu
    here = f"{wall:.0f} s, {cpu:.0f} CPU seconds of all processes"
    if client is not None:
        peaks = ", ".join(f"{peak:.2f}" for peak in client.run(peak_memory).values())
        here += f", peaks of the workers {peaks} GiB"
    topics = planted_topics(np.random.default_rng(1))
    print(
        f"\n{engine}, refine={refine}: {here}, peak here {peak_memory():.2f} GiB, total variation "
        f"{recovered(model, topics):.4f}; {model.status_}\n"
    )
    print("\n".join(stages.lines()), flush=True)
    if client is not None:
        client.close()
        cluster.close()


def recovered(model: Any, topics: Any) -> float:
    """Mean total variation between planted topics and those found nearest to them."""
    from scipy.optimize import linear_sum_assignment

    gaps = np.array([np.abs(model.components_ - topic).sum(axis=1) / 2 for topic in topics])
    rows, columns = linear_sum_assignment(gaps)
    return float(gaps[rows, columns].mean())


def messages() -> None:
    """Bytes of one message, V = 50,000 words, k = 100 topics, d = 1,000 features."""
    rng = np.random.default_rng(0)
    words, count, features = 50_000, 100, 1_000
    import scipy.sparse

    rows = scipy.sparse.random_array((512, words), density=2e-3, rng=rng, format="csr")
    rows.data = np.ceil(rows.data * 3).astype(np.float32)
    rows = scipy.sparse.csr_array(rows.astype(np.float32))
    batch = DocumentBatch((rows,), np.ones(512), np.arange(512, dtype=np.uint64))
    points = Batch(
        (rng.standard_normal((2048, features)),), np.ones(2048), np.arange(2048, dtype=np.uint64)
    )
    basis = np.linalg.qr(rng.standard_normal((words, count + 30)))[0].astype(np.float32)
    narrow = basis[:, :count].astype(np.float64)
    frame = (np.ones(words), 100.0, True)
    drawn = WordRows.drawn(rng.uniform(1, 100, words), 1500, rng)
    state = TopicState(
        np.full((count, words), 1 / words, np.float32), *(np.full(count, 0.1) for _ in range(3))
    )
    cases = {
        "word totals": (WordTotalSums(words), batch),
        "subspace pass, r = 130": (WordPairSums(basis, *frame), batch),
        "last subspace pass, r = 130": (WordCoreSums(basis, *frame), batch),
        "third moment, r = 100": (WordTripleSums(narrow, *frame, rows=drawn), batch),
        "power step, r = 100": (WordPowerSums(narrow, *frame, rows=drawn), batch),
        "weights of topics, k = 100": (WordCoreSums(narrow, *frame), batch),
        "refinement pass, k = 100": (Statistics(MixedTopicsFamily(0.1, 0.01), state), batch),
        "covariance, d = 1,000": (CovarianceSums(np.zeros(features)), points),
        "third powers, r = 40": (
            ThirdPowerSums(np.zeros(features), np.eye(features)[:, :40], squares=False),
            points,
        ),
    }
    cases |= _of_networks()
    print("| message | bytes home | frame out | made ready (s) | merge (s) |")
    print("|---|---|---|---|---|")
    for name, (start, units) in cases.items():
        found = Counted(start).update(units)
        begin = time.process_time()
        message = found.message()
        ready = time.process_time() - begin
        home, out = len(pickle.dumps(message, 5)), len(pickle.dumps(found.empty(), 5))
        one, other = found.received(message), found.received(message)
        begin = time.process_time()
        one.merge(other)
        print(
            f"| {name} | {home / 1e6:.2f} MB | {out / 1e6:.2f} MB | "
            f"{ready:.3f} | {time.process_time() - begin:.3f} |"
        )


def _of_networks() -> dict[str, tuple[Any, Batch]]:
    """10,000 of 100,000 nodes, k = 10 communities."""
    import scipy.sparse

    n, own, k = 100_000, 10_000, 10
    edges = scipy.sparse.random_array((own, n), density=20 / n, rng=np.random.default_rng(1))
    rows = scipy.sparse.csr_array(edges)
    units = Batch((rows,), np.ones(own), np.arange(own, dtype=np.uint64))
    part, weights, block = np.zeros(n, dtype=np.int64), np.ones((n, k)), np.ones((k, k))
    found: dict[str, tuple[Any, Batch]] = {}
    for name, directed in (("", False), (", directed", True)):
        nodes = Nodes(n, np.array([0]), directed)
        found[f"views of nodes, q = 15{name}"] = PartSums(nodes, part, 3, np.ones((n, 15))), units
        found[f"step of communities, k = 10{name}"] = ExplainedEdges(nodes, weights, block), units
    return found


def many_partitions(count: int = 1000) -> None:
    """Merging a thousand messages of a subspace pass, as a tree."""
    rng = np.random.default_rng(0)
    features = 200
    rows = rng.standard_normal((64, features))
    start = CovarianceSums(np.zeros(features))
    weights = np.ones(64)
    leaf = start.update(Batch((rows,), weights, np.arange(64, dtype=np.uint64)))
    begin = time.process_time()
    nodes = joined({(0, number): leaf} for number in range(count))
    total(nodes, count, start)
    print(
        f"\n{count} messages of {features}^2 numbers merged in {time.process_time() - begin:.2f} s"
    )


def write_shards(folder: Path, n_documents: int) -> None:
    """Planted documents, a file for every 25,000; files that are there already are kept."""
    topics = planted_topics(np.random.default_rng(1))
    begin, stored = time.perf_counter(), 0
    for number in range(-(-n_documents // SHARD)):
        path = folder / f"{number:05d}.parquet"
        if not path.exists():
            stored += write_shard(path, min(SHARD, n_documents - number * SHARD), number, topics)
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(
        f"\n{n_documents:,} documents, {stored:,} counts written, {size / 1e6:.0f} MB, "
        f"{time.perf_counter() - begin:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--refine", default="1", help="passes, or auto")
    parser.add_argument("--messages", action="store_true", help="measure what travels alone")
    parser.add_argument("--engines", default="local,dask")
    parser.add_argument(
        "--folder", type=Path, help="where the files go and stay; temporary without"
    )
    parser.add_argument("--fit", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    refine = "auto" if options.refine == "auto" else int(options.refine)
    if options.fit:
        fit_shards(Path(options.fit[0]), options.fit[1], refine)
        return
    messages()
    many_partitions()
    if options.messages:
        return
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        write_shards(folder, options.documents)
        for engine in options.engines.split(","):
            # In a process of its own, whose peak is that of the fit.
            command = [sys.executable, "-m", "benchmarks.engines", "--refine", options.refine]
            subprocess.run([*command, "--fit", str(folder), engine], check=True)


if __name__ == "__main__":
    main()
