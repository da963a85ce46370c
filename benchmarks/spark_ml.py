"""Spark ML's LDA and GaussianMixture beside ours, at sizes at which they end.

python -m benchmarks.spark_ml [--documents N] [--rows N] [--write] needs pyspark and Java 17 or 21.
Topics are planted documents (V = 2,000, k = 10, 60 words each); quality is the perplexity of half
the words of other documents, given the rest, by one function for all, each under the best multiple
of its own alpha. CPU seconds are those of this process and of all that it started: Spark's include
the Java machine, from after the session has started and the frame has been cached.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402
import scipy.sparse  # noqa: E402

import latensor as lt  # noqa: E402
from benchmarks.tables import put  # noqa: E402
from latensor.models.topics.refinement import completion  # noqa: E402

WORDS, TOPICS = 2_000, 10
DIMENSIONS, COMPONENTS = 10, 5


def session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    builder = SparkSession.builder.master("local[2]").appName("latensor")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "2g",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(name, value)
    found = builder.getOrCreate()
    found.sparkContext.setLogLevel("OFF")
    return found


class Machine:
    """CPU seconds of this process and of the Java machine beside it."""

    def __init__(self, spark: Any) -> None:
        self._pid = int(spark.sparkContext._jvm.ProcessHandle.current().pid())

    def seconds(self) -> float:
        """So far."""
        mine = resource.getrusage(resource.RUSAGE_SELF)
        with open(f"/proc/{self._pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        ticks = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
        return mine.ru_utime + mine.ru_stime + ticks

    def timed(self, work: Callable[[], Any]) -> tuple[Any, float, float]:
        """What work gives, and its wall-clock and CPU seconds."""
        wall, cpu = time.perf_counter(), self.seconds()
        found = work()
        return found, time.perf_counter() - wall, self.seconds() - cpu


def perplexity(counts: Any, topics: Any, alpha: Any) -> float:
    """Under the best of several multiples of alpha."""
    return min(
        float(completion(counts, topics.astype(np.float32), factor * alpha).perplexity)
        for factor in (0.25, 0.5, 1, 2, 4, 8)
    )


def topics_table(spark: Any, n_documents: int) -> list[str]:
    from pyspark.ml.clustering import LDA
    from pyspark.ml.linalg import Vectors

    n_held_out = n_documents // 4
    source = lt.datasets.PlantedDocuments(
        n_documents + n_held_out, WORDS, TOPICS, length=60, random_state=0
    )
    counts = scipy.sparse.csr_array(scipy.sparse.vstack(list(source)))
    train, held_out = counts[:n_documents], counts[n_documents:]
    values = train.data.astype(float).tolist()
    rows = [
        (Vectors.sparse(WORDS, train.indices[a:b].tolist(), values[a:b]),)
        for a, b in itertools.pairwise(train.indptr)
    ]
    frame = spark.createDataFrame(rows, ["features"]).repartition(2).cache()
    frame.count()
    machine = Machine(spark)
    truth = perplexity(held_out, source.topics, source.alpha)
    lines = [
        f"{n_documents:,} documents, V = {WORDS:,}, k = {TOPICS}; perplexity of the planted topics "
        f"{truth:.1f}",
        "",
        "| topics | settings | CPU seconds | perplexity | above the planted |",
        "|---|---|---|---|---|",
    ]

    def add(name: str, settings: str, found: tuple[Any, float, float], score: float) -> None:
        above = 100 * (score / truth - 1)
        lines.append(f"| {name} | {settings} | {found[2]:.1f} | {score:.1f} | {above:.1f} % |")
        print(lines[-1], flush=True)

    # The first fit compiles.
    lt.LatentDirichletAllocation(TOPICS, random_state=0, n_jobs=2).fit(train[:500])
    ours = lt.LatentDirichletAllocation(TOPICS, random_state=0, n_jobs=2)
    found = machine.timed(lambda: ours.fit(train))
    add("latensor", "defaults", found, perplexity(held_out, ours.components_, ours.alpha_))
    for settings in (
        {"optimizer": "online", "maxIter": 20},
        {"optimizer": "online", "maxIter": 200, "subsamplingRate": 0.1},
        {"optimizer": "online", "maxIter": 100, "subsamplingRate": 0.1, "learningOffset": 10},
        {"optimizer": "em", "maxIter": 20},
        {"optimizer": "em", "maxIter": 100},
    ):
        model = LDA(k=TOPICS, seed=0, **settings)
        found = machine.timed(lambda model=model: model.fit(frame))
        topics = found[0].topicsMatrix().toArray().T
        topics = topics / topics.sum(axis=1, keepdims=True)
        alpha = np.asarray(found[0].estimatedDocConcentration())
        # Of `em` it is the prior plus one.
        alpha = alpha - 1 if settings["optimizer"] == "em" and alpha.min() > 1 else alpha
        told = ", ".join(f"{k}={v}" for k, v in settings.items())
        add("Spark ML", told, found, perplexity(held_out, topics + 1e-12, alpha))
    frame.unpersist()
    return lines


def mixtures_table(spark: Any, n_rows: int) -> list[str]:
    from pyspark.ml.clustering import GaussianMixture
    from pyspark.ml.linalg import Vectors

    planted = lt.datasets.make_spherical_mixture(
        n_rows, DIMENSIONS, COMPONENTS, separation=4, random_state=0
    )
    X = planted.samples
    frame = spark.createDataFrame([(Vectors.dense(row),) for row in X], ["features"])
    frame = frame.repartition(2).cache()
    frame.count()
    machine = Machine(spark)
    lines = [
        f"{n_rows:,} rows of {DIMENSIONS}, {COMPONENTS} spherical clusters four standard "
        "deviations apart",
        "",
        "| full covariances | settings | CPU seconds | log-likelihood per row |",
        "|---|---|---|---|",
    ]

    def add(name: str, settings: str, seconds: float, score: float) -> None:
        lines.append(f"| {name} | {settings} | {seconds:.1f} | {score:.4f} |")
        print(lines[-1], flush=True)

    lt.GaussianMixture(COMPONENTS, random_state=0, n_jobs=2).fit(X[:500])
    ours = lt.GaussianMixture(COMPONENTS, random_state=0, n_jobs=2)
    _, _, seconds = machine.timed(lambda: ours.fit(X))
    add("latensor", "defaults", seconds, float(ours.score(X)))
    best, total = -np.inf, 0.0
    for seed in range(3):
        model = GaussianMixture(k=COMPONENTS, maxIter=200, tol=1e-4, seed=seed)
        found, _, seconds = machine.timed(lambda model=model: model.fit(frame))
        total += seconds
        score = found.summary.logLikelihood / n_rows
        best = max(best, score)
        add("Spark ML", f"maxIter=200, tol=1e-4, seed {seed}", seconds, score)
    add("Spark ML", "best of 3 seeds", total, best)
    frame.unpersist()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=8_000)
    parser.add_argument("--rows", type=int, default=10_000)
    parser.add_argument("--write", action="store_true", help="put the tables into the docs")
    options = parser.parse_args()
    spark = session()
    lines = ["", *mixtures_table(spark, options.rows), ""]
    lines += [*topics_table(spark, options.documents), ""]
    spark.stop()
    if options.write:
        put("bench-spark-ml", lines)


if __name__ == "__main__":
    main()
