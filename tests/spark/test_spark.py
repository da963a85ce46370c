"""Spark: the same partitions give the same bits as here; frames of all kinds of columns."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import latensor as lt
from cli.dated_documents import records, table
from engines.partition_cases import (
    CASES,
    MIXED,
    NETWORK,
    SINGLE,
    SYMBOLS,
    WORDS,
    KillsOnce,
    Watching,
    fitted,
)
from latensor.cli import main
from latensor.exceptions import InvalidInputError
from latensor.moments.batch import Kind

# Every model once; the number of partitions goes round.
COUNTS = dict(zip(CASES, [16, 1, 4, 2, 1, 2, 4, 2, 1, 2, 2, 2, 3], strict=False))


@pytest.mark.parametrize("name", CASES)
def test_partitions_give_the_bits_of_the_local_fit(spark, name, monkeypatch):
    model, settings, *rest = CASES[name]
    if hasattr(model(), "refine"):
        settings = {**settings, "refine": 1}
        monkeypatch.setitem(CASES, name, (model, settings, *rest))
    count = COUNTS.get(name, 2)
    assert np.array_equal(fitted(name, count, engine="spark"), fitted(name, count))
    assert not spark.sparkContext._jsc.getPersistentRDDs()


def mixture(source):
    return lt.SphericalGaussianMixture(3, random_state=0, refine=2).fit(source)


@pytest.fixture(scope="module")
def frame(spark):
    from pyspark.ml.linalg import Vectors

    rows = [
        (
            Vectors.dense(row) if i % 2 else Vectors.sparse(8, dict(enumerate(row.tolist()))),
            Vectors.dense(row),
            row.tolist(),
            *row[:2].tolist(),
            float(i % 3),
        )
        for i, row in enumerate(MIXED)
    ]
    names = ["mixed", "dense", "listed", "a", "b", "weight"]
    return spark.createDataFrame(rows, names).repartition(3).persist()


def parts_of(frame, name):
    found = frame.select(name).rdd.glom().collect()
    return [np.array([np.asarray(list(row[0])) for row in part]) for part in found]


def test_vectors_lists_numbers_and_weights(frame):
    parts = parts_of(frame, "listed")
    expected = mixture(lt.sources.partitions([[part] for part in parts])).means_
    for name in ("mixed", "dense", "listed"):
        assert np.array_equal(mixture(lt.sources.from_spark(frame, name)).means_, expected)
    found = lt.PCA(1).fit(lt.sources.from_spark(frame, ["a", "b"]))
    assert np.abs(found.mean_ - MIXED[:, :2].mean(axis=0)).max() < 1e-12
    weighted = lt.sources.from_spark(frame, "dense", weight="weight")
    whole = lt.PCA(1).fit(MIXED, sample_weight=np.arange(900) % 3.0)
    assert np.abs(lt.PCA(1).fit(weighted).mean_ - whole.mean_).max() < 1e-12


def test_answers_are_frames(frame):
    model = mixture(MIXED)
    found = model.predict_proba(lt.sources.from_spark(frame, "mixed"))
    rows = found.collect()
    assert found.columns == ["predict_proba"]
    assert np.allclose(
        np.sort([r[0] for r in rows], axis=0), np.sort(model.predict_proba(MIXED), 0)
    )
    labels = model.predict(lt.sources.from_spark(frame, "listed")).collect()
    expected = model.predict(np.array([row["listed"] for row in labels]))
    assert [row["predict"] for row in labels] == expected.tolist()


def test_texts_counts_and_sequences(spark):
    rows = [SINGLE[[i]] for i in range(300)]
    texts = [
        " ".join(" ".join([WORDS[w]] * int(c)) for w, c in zip(r.indices, r.data, strict=True))
        for r in rows
    ]
    records = [
        (text, r.indices.tolist(), r.data.astype(int).tolist())
        for text, r in zip(texts, rows, strict=True)
    ]
    frame = spark.createDataFrame(records, ["text", "words", "counts"]).coalesce(2)
    model = lt.SingleTopic(3, random_state=0, refine=1)
    found = model.fit(lt.sources.from_spark(frame, text="text"))
    assert found.vocabulary_ == sorted(set(" ".join(texts).split()))
    counted = lt.sources.from_spark(frame, words="words", counts="counts", n_features=60)
    assert lt.SingleTopic(3, random_state=0, refine=1).fit(counted).n_documents_ == 300
    sequences = np.split(np.ravel(SYMBOLS.X), np.cumsum(SYMBOLS.lengths)[:-1])
    listed = spark.createDataFrame([(s.tolist(),) for s in sequences], ["symbols"]).coalesce(2)
    chain = lt.CategoricalHMM(3, random_state=0, refine=1)
    found = chain.fit(lt.sources.from_spark(listed, "symbols")).transmat_
    rows = [
        (float(number), place, int(symbol))
        for number, sequence in enumerate(sequences)
        for place, symbol in enumerate(sequence)
    ]
    long = spark.createDataFrame(rows, ["id", "place", "symbol"])
    source = lt.sources.from_spark(long, ["symbol"], sequence="id", order="place")
    other = lt.CategoricalHMM(3, random_state=0, refine=1).fit(source).transmat_
    assert np.abs(found - other).max() < 1e-3
    # Answers: a list for a list, a value for a row of a sequence that may stand in many batches.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 7)
    states = [chain.predict(np.asarray(s)[:, None]).tolist() for s in sequences]
    answers = chain.predict(lt.sources.from_spark(listed, "symbols")).collect()
    assert [row["predict"] for row in answers] == states
    by_row = chain.predict(source).collect()
    by_row.sort(key=lambda row: (row["id"], row["place"]))
    assert np.array_equal([row["predict"] for row in by_row], np.concatenate(states))
    chances = chain.predict_proba(lt.sources.from_spark(listed, "symbols")).first()
    expected = chain.predict_proba(np.asarray(chances["symbols"])[:, None])
    assert np.allclose(chances["predict_proba"], expected)
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_networks_as_vectors_and_as_edges_grouped_by_node(spark):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import functions as f

    network = NETWORK[:300, :300]
    n, edges = network.shape[0], network.tocoo()
    model = lt.MixedMembershipBlockModel(2, random_state=0, refine=1)
    whole = model.fit(network).membership_
    rows = [
        (i, Vectors.sparse(n, network[[i]].indices.tolist(), network[[i]].data.tolist()))
        for i in range(n)
    ]
    frame = spark.createDataFrame(rows, ["node", "features"]).coalesce(3)
    source = lt.sources.from_spark(frame, "features")
    assert np.abs(model.fit(source).membership_ - whole).max() < 1e-8
    answers = model.predict_proba(lt.sources.from_spark(frame, ["features"])).collect()
    found = np.array([row["predict_proba"] for row in answers])
    assert np.abs(found - model.predict_proba(network)).max() < 1e-12
    triples = zip(edges.row.tolist(), edges.col.tolist(), edges.data.tolist(), strict=True)
    listed = spark.createDataFrame(list(triples), ["node", "to", "weight"]).repartition(3)
    lists = f.collect_list("to").alias("to"), f.collect_list("weight").alias("weights")
    grouped = spark.range(n).withColumnRenamed("id", "node")
    grouped = grouped.join(listed.groupBy("node").agg(*lists), "node", "left").orderBy("node")
    source = lt.sources.from_spark(grouped.cache(), words="to", counts="weights", n_features=n)
    assert np.abs(model.fit(source).membership_ - whole).max() < 1e-8
    with pytest.raises(InvalidInputError, match="group the edges by their first node"):
        model.fit(lt.sources.from_spark(listed, ["node", "to"]))


class Slowly:
    """A partition that takes its time."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        time.sleep(1.0)
        yield self.rows


def test_partitions_are_told_as_they_are_done(spark):
    spark.sparkContext.setJobGroup("mine", "what I do")
    seen = Watching()
    # A block each: what is looked at before the first pass is one partition, not all of them.
    rows = np.resize(MIXED, (6 * Kind.ROWS.block, MIXED.shape[1]))
    parts = lt.sources.partitions([Slowly(part) for part in np.split(rows, 6)], engine="spark")
    lt.PCA(2).fit(parts, callback=seen)
    first = [fraction for name, fraction in seen.partitions if name == seen.partitions[0][0]]
    assert first == sorted(set(first))
    assert first[-1] == 1.0
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
    assert spark.sparkContext.getLocalProperty("spark.job.description") == "what I do"
    # Five partitions of a second each, two at once.
    assert len(first) > 1


def test_a_task_that_dies_changes_no_bit(spark, tmp_path):
    flag = tmp_path / "killed"
    parts = [[MIXED[:300]], KillsOnce(MIXED[300:], str(flag), os.getpid())]
    found = mixture(lt.sources.partitions(parts, engine="spark")).means_
    assert flag.exists()
    assert np.array_equal(
        found, mixture(lt.sources.partitions([[MIXED[:300]], [MIXED[300:]]])).means_
    )


def test_an_executor_that_dies_changes_no_bit(tmp_path):
    """In a process of its own: a session has one kind of cluster."""
    script = Path(__file__).with_name("killed_executor.py")
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path),
    }
    command = [sys.executable, str(script), str(tmp_path / "killed")]
    found = subprocess.run(
        command,
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert json.loads(found.stdout.splitlines()[-1]) == {"killed": True, "same": True}


def test_what_is_refused(spark, frame):
    with pytest.raises(InvalidInputError, match="no column 'features'; it has 'mixed'"):
        lt.sources.from_spark(frame, "features")
    with pytest.raises(InvalidInputError, match="say which columns are meant"):
        mixture(frame)
    kept = len(spark.sparkContext._jsc.getPersistentRDDs())
    broken = MIXED.copy()
    broken[700, 3] = np.nan
    parts = [[broken[:300]], [broken[300:600]], [broken[600:]]]
    with pytest.raises(InvalidInputError, match=r"NaN.*\(partition 2\)"):
        mixture(lt.sources.partitions(parts, engine="spark"))
    assert len(spark.sparkContext._jsc.getPersistentRDDs()) == kept
    texts = spark.createDataFrame([("a text",)], ["text"])
    with pytest.raises(InvalidInputError, match="not numbers"):
        mixture(lt.sources.from_spark(texts))


def test_what_spark_lacks_is_said(monkeypatch):
    from latensor.engines import spark as engine

    missing = RuntimeError("... ModuleNotFoundError: No module named 'latensor'")
    assert sys.executable in str(engine.explained(missing))
    assert "PYSPARK_PYTHON" in str(engine.explained(RuntimeError("[PYTHON_VERSION_MISMATCH] ...")))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(engine.shutil, "which", lambda name: None)
    sql = pytest.importorskip("pyspark.sql")
    monkeypatch.setattr(sql.SparkSession, "getActiveSession", classmethod(lambda cls: None))
    with pytest.raises(InvalidInputError, match=r"Java 17 or 21.*JAVA_HOME"):
        engine.SparkEngine()


def test_topics_by_date_and_group_are_those_of_the_local_engine(spark, tmp_path):
    rows = records()
    for number in range(3):
        lines = (json.dumps(row) + "\n" for row in rows[number::3])
        (tmp_path / f"{number}.jsonl").write_text("".join(lines))
    tables = []
    for engine in ("local", "spark"):
        out = tmp_path / f"{engine}.html"
        options = ("--topics", "3", "--date", "day", "--group", "party", "--engine", engine)
        command = ["topics", str(tmp_path / "*.jsonl"), *options, "--out", str(out)]
        result = CliRunner().invoke(main, command)
        assert result.exit_code == 0, result.output
        tables.append([table(out.read_text(), kind) for kind in ("time", "group")])
    assert tables[0] == tables[1]
