"""Engines beside each other: time, bytes of a round, merging of many partitions, memory.

python -m benchmarks.engines [--documents N] prints the tables of docs/engines.md. Documents are
planted shard by shard into compressed Parquet files (V = 20,000 words, k = 50 topics), so that no
machine has to hold them; --messages alone measures what travels.
"""

from __future__ import annotations

import argparse
import pickle
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import latensor as lt
from latensor.engines.tree import joined, total
from latensor.estimation.run import Counted
from latensor.models.topics.families import MixedTopicsFamily, TopicState
from latensor.moments.batch import Batch
from latensor.moments.documents import DocumentBatch
from latensor.moments.row_sums import CovarianceSums, ThirdPowerSums
from latensor.moments.word_totals import WordTotalSums
from latensor.moments.word_triples import WordTripleSums
from latensor.moments.words import WordPairSums
from latensor.refinement.family import Statistics

WORDS, TOPICS, LENGTH = 20_000, 50, 60


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
    # Documents one after the other on a line of unit lengths, cut by the shares of their topics.
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


def fit_shards(folder: Path, engine: str, refine: int) -> tuple[Any, float, float]:
    source = lt.sources.shards(
        str(folder / "*.parquet"),
        words="words",
        counts="counts",
        n_features=WORDS,
        engine=engine,
    )
    model = lt.LatentDirichletAllocation(TOPICS, random_state=0, refine=refine)
    wall, work = time.perf_counter(), time.process_time()
    model.fit(source)
    return model, time.perf_counter() - wall, time.process_time() - work


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
    scale = np.ones(words)
    narrow = basis[:, :count].copy()
    state = TopicState(*(np.full(s, 1 / words) for s in ((count, words), count, count, count)))
    cases = {
        "word totals": (WordTotalSums(words), batch),
        "subspace pass, r = 130": (WordPairSums(basis, scale, 100.0), batch),
        "third moment, r = 100": (WordTripleSums(narrow, scale, 100.0), batch),
        "refinement pass, k = 100": (Statistics(MixedTopicsFamily(0.1, 0.01), state), batch),
        "covariance, d = 1,000": (CovarianceSums(np.zeros(features)), points),
        "third powers, r = 40": (
            ThirdPowerSums(np.zeros(features), np.eye(features)[:, :40], squares=False),
            points,
        ),
    }
    print("| message | bytes home | frame out | merge (s) |\n|---|---|---|---|")
    for name, (start, units) in cases.items():
        found = Counted(start).update(units)
        message = found.message()
        home, out = len(pickle.dumps(message, 5)), len(pickle.dumps(found.empty(), 5))
        one, other = found.received(message), found.received(message)
        begin = time.process_time()
        one.merge(other)
        print(
            f"| {name} | {home / 1e6:.2f} MB | {out / 1e6:.2f} MB | "
            f"{time.process_time() - begin:.3f} |"
        )


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--refine", type=int, default=5)
    parser.add_argument("--messages", action="store_true")
    parser.add_argument("--engines", default="local,dask")
    options = parser.parse_args()
    messages()
    many_partitions()
    if options.messages:
        return
    topics = planted_topics(np.random.default_rng(1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = options.documents // options.shards
        begin = time.perf_counter()
        stored = sum(
            write_shard(folder / f"{i:04d}.parquet", each, i, topics) for i in range(options.shards)
        )
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(
            f"\n{each * options.shards:,} documents, {stored:,} counts, {size / 1e6:.0f} MB in "
            f"{options.shards} files, written in {time.perf_counter() - begin:.0f} s"
        )
        print("| engine | wall (s) | CPU here (s) | total variation | peak memory |")
        print("|---|---|---|---|---|")
        for engine in options.engines.split(","):
            model, wall, work = fit_shards(folder, engine, options.refine)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(
                f"| {engine} | {wall:.0f} | {work:.0f} | {recovered(model, topics):.4f} | "
                f"{peak:.0f} MB |"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
