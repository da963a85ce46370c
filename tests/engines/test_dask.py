"""Dask: the same partitions give the same bits as here, whatever the collection."""

import json
import os

import dask.array
import dask.bag
import dask.dataframe
import distributed
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

import latensor as lt
from engines.partition_cases import (
    CASES,
    MIXED,
    RESPONSES,
    SINGLE,
    SYMBOLS,
    TENSORS,
    VIEWS,
    WORDS,
    KillsOnce,
    Watching,
    fitted,
    whole,
)
from latensor.exceptions import InvalidInputError

pytestmark = pytest.mark.xdist_group("dask")


@pytest.fixture(scope="module")
def two_processes():
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            memory_limit="2GiB",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    "count", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 16))]
)
def test_partitions_give_the_bits_of_the_local_fit(name, count):
    here, there = fitted(name, count), fitted(name, count, engine="dask")
    assert np.array_equal(here, there)
    assert np.abs(here - whole(name)).max() < CASES[name][-1]


def mixture(X, **arguments):
    return lt.SphericalGaussianMixture(3, random_state=0).fit(X, **arguments)


def local(parts, model):
    return model.fit(lt.sources.partitions([[part] for part in parts]))


def test_arrays_frames_and_bags_of_rows():
    expected = local([MIXED[:300], MIXED[300:600], MIXED[600:]], mixture(MIXED)).means_
    blocks = dask.array.from_array(MIXED, chunks=(300, 3))
    frame = dask.dataframe.from_pandas(pd.DataFrame(MIXED), npartitions=3, sort=False)
    rows = dask.bag.from_sequence(list(MIXED), npartitions=3)
    # Rows of unknown number, in blocks of columns.
    unknown = blocks[dask.array.ones(900, chunks=300) > 0]
    for collection in (blocks, frame, rows, unknown):
        found = mixture(collection).means_
        assert np.abs(found - expected).max() < 1e-12
    named = lt.PCA(2).fit(
        dask.dataframe.from_pandas(pd.DataFrame(MIXED, columns=list("abcdefgh")), npartitions=2)
    )
    assert list(named.feature_names_in_) == list("abcdefgh")
    weights = np.random.default_rng(0).integers(0, 3, 900).astype(float)
    found = mixture(blocks, sample_weight=dask.array.from_array(weights, chunks=300)).means_
    assert np.abs(found - mixture(MIXED, sample_weight=weights).means_).max() < 1e-12


def test_targets_and_views_stand_side_by_side():
    x, y = (dask.array.from_array(part, chunks=(300, -1)) for part in np.split(MIXED, 2, axis=1))
    whole = lt.CCA(2).fit(*np.split(MIXED, 2, axis=1))
    assert np.abs(lt.CCA(2).fit(x, y).correlations_ - whole.correlations_).max() < 1e-10
    views = [dask.array.from_array(view, chunks=(300, -1)) for view in VIEWS]
    found = lt.MultiViewMixture(3, random_state=0).fit(views)
    whole = lt.MultiViewMixture(3, random_state=0).fit(VIEWS)
    assert np.abs(found.weights_ - whole.weights_).max() < 1e-10
    with pytest.raises(InvalidInputError, match=r"\[3, 2\] partitions"):
        lt.CCA(2).fit(x, y.rechunk((450, -1)))


def as_text(row):
    return " ".join(
        " ".join([WORDS[w]] * int(c)) for w, c in zip(row.indices, row.data, strict=True)
    )


def test_documents_as_counts_texts_and_counts_by_word():
    parts = [SINGLE[:500], SINGLE[500:]]

    def model():
        return lt.SingleTopic(3, random_state=0)

    expected = local(parts, model()).components_
    delayed = [
        dask.array.from_delayed(
            dask.delayed(part), part.shape, part.dtype, meta=scipy.sparse.csr_array((0, 0))
        )
        for part in parts
    ]
    assert np.array_equal(model().fit(dask.array.concatenate(delayed)).components_, expected)
    assert np.array_equal(
        model().fit(dask.bag.from_sequence(parts, npartitions=2)).components_, expected
    )
    rows = [SINGLE[[i]] for i in range(SINGLE.shape[0])]
    texts = [as_text(row) for row in rows]
    counted = [
        {WORDS[w]: int(c) for w, c in zip(row.indices, row.data, strict=True)} for row in rows
    ]
    found = model().fit(dask.bag.from_sequence(texts, npartitions=2))
    used = [WORDS.index(word) for word in found.vocabulary_]
    assert found.vocabulary_ == sorted(found.vocabulary_)
    again = model().fit(dask.bag.from_sequence(counted, npartitions=2))
    series = dask.dataframe.from_pandas(pd.DataFrame({"text": texts}), npartitions=2)
    for other in (again, model().fit(series["text"])):
        assert other.vocabulary_ == found.vocabulary_
        assert np.array_equal(other.components_, found.components_)
    whole = model().fit(SINGLE[:, used])
    assert np.abs(found.components_ - whole.components_).max() < 1e-6
    chosen = lt.sources.from_dask(series, text="text", max_features=20)
    assert model().fit(chosen).n_features_in_ == 20


def test_bags_of_sequences():
    sequences = np.split(SYMBOLS.X, np.cumsum(SYMBOLS.lengths)[:-1])
    bag = dask.bag.from_sequence(sequences, npartitions=3)
    found = lt.CategoricalHMM(3, random_state=0).fit(bag)
    whole = lt.CategoricalHMM(3, random_state=0).fit(SYMBOLS.X, SYMBOLS.lengths)
    assert np.abs(found.transmat_ - whole.transmat_).max() < 1e-5


def test_streams_of_collections():
    blocks = dask.array.from_array(MIXED, chunks=(300, 8))
    model = lt.SphericalGaussianMixture(3, random_state=0).partial_fit(blocks).partial_fit(blocks)
    expected = lt.SphericalGaussianMixture(3, random_state=0).partial_fit(np.vstack([MIXED] * 2))
    assert np.abs(model.means_ - expected.means_).max() < 1e-6
    interval = mixture(blocks).intervals(blocks, n_groups=20)["means"]
    assert (interval.low < interval.high).all()


def test_two_processes_give_the_same_bits_and_keep_nothing(two_processes):
    with two_processes.as_current():
        for name in ("spherical", "topics", "points"):
            assert np.array_equal(fitted(name, 4, engine="dask"), fitted(name, 4))
        seen = Watching()
        parts = lt.sources.partitions([[part] for part in np.split(MIXED, 4)], engine="dask")
        lt.PCA(2).fit(parts, callback=seen)
        assert [fraction for _, fraction in seen.partitions] == [0.5, 1.0] * len(seen.passes)
        two_processes.sync(lambda: __import__("asyncio").sleep(0.5))
        assert not any(two_processes.has_what().values())
    address = two_processes.scheduler.address.removeprefix("tcp://")
    assert np.array_equal(
        fitted("spherical", 4, engine=f"dask://{address}"), fitted("spherical", 4)
    )


def test_answers_of_collections_are_collections():
    model = mixture(MIXED)
    blocks = dask.array.from_array(MIXED, chunks=(400, 3))
    frame = dask.dataframe.from_pandas(pd.DataFrame(MIXED), npartitions=3, sort=False)
    for method in ("predict", "predict_proba", "score_samples"):
        expected = getattr(model, method)(MIXED)
        found = getattr(model, method)(blocks)
        assert isinstance(found, dask.array.Array)
        assert found.shape == expected.shape
        assert found.dtype == expected.dtype
        assert np.allclose(found.compute(), expected, rtol=1e-12)
        assert np.allclose(getattr(model, method)(frame).compute(), expected, rtol=1e-12)
        parts = lt.sources.partitions([[MIXED[:400]], [MIXED[400:]]])
        assert np.allclose(np.concatenate(list(getattr(model, method)(parts))), expected)
    labels = model.predict(dask.bag.from_sequence(list(MIXED), npartitions=3))
    assert np.array_equal(labels.compute(), model.predict(MIXED))
    scores = lt.PCA(2).fit(MIXED).transform(blocks)
    assert np.allclose(scores.compute(), lt.PCA(2).fit(MIXED).transform(MIXED))
    topics = lt.SingleTopic(3, random_state=0).fit(SINGLE)
    counts = dask.array.from_array(SINGLE.toarray(), chunks=(500, -1))
    assert np.allclose(topics.transform(counts).compute(), topics.transform(SINGLE), atol=1e-6)
    texts = [as_text(SINGLE[[i]]) for i in range(200)]
    bag = dask.bag.from_sequence(texts, npartitions=2)
    words = lt.SingleTopic(3, random_state=0).fit(bag)
    assert np.array(words.transform(bag).compute()).shape == (200, 3)
    x, y = (dask.array.from_array(part, chunks=(300, -1)) for part in np.split(MIXED, 2, axis=1))
    pairs = lt.CCA(2).fit(x, y)
    assert np.allclose(pairs.transform(x).compute(), pairs.transform(MIXED[:, :4]))
    with pytest.raises(InvalidInputError, match=r"expecting 8 features"):
        model.predict(blocks[:, :5]).compute()


def test_samples_that_are_tensors():
    X = dask.array.from_array(TENSORS, chunks=(200, 2, 3))
    y, labels = (
        dask.array.from_array(values, chunks=200)
        for values in (RESPONSES, (RESPONSES > 0).astype(int))
    )
    for model in (lt.CPRegressor(1), lt.TuckerRegressor((1, 1)), lt.CPPLS(1)):
        found = model.fit(X, y).predict(X)
        assert isinstance(found, dask.array.Array)
        whole = clone(model).fit(TENSORS, RESPONSES).predict(TENSORS)
        assert np.abs(found.compute() - whole).max() < 1e-8 * np.abs(whole).max()
    model = lt.CPClassifier(1, classes=(0, 1)).fit(X, labels)
    for method in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
        found = getattr(model, method)(X)
        assert isinstance(found, dask.array.Array)
        assert np.array_equal(found.compute(), getattr(model, method)(TENSORS))
    with pytest.raises(InvalidInputError, match="dim 3"):
        lt.PCA(1).fit(X)


def test_a_worker_that_dies_changes_no_bit(two_processes, tmp_path):
    parts = [MIXED[:300], MIXED[300:600], MIXED[600:]]
    flag = tmp_path / "killed"
    killing = [[parts[0]], [parts[1]], KillsOnce(parts[2], str(flag), os.getpid())]
    with two_processes.as_current():
        found = mixture(lt.sources.partitions(killing, engine="dask")).means_
    assert flag.exists()
    expected = mixture(lt.sources.partitions([[p] for p in parts])).means_
    assert np.array_equal(found, expected)


class TestWhatIsRefused:
    def test_partitions_that_do_not_belong_together(self):
        narrow = dask.bag.from_sequence([MIXED[:300], MIXED[300:, :5]], npartitions=2)
        with pytest.raises(InvalidInputError, match=r"expecting 8 features.*\(partition 1\)"):
            mixture(narrow)
        broken = MIXED.copy()
        broken[700, 3] = np.nan
        with pytest.raises(InvalidInputError, match=r"NaN.*\(partition 2\)"):
            mixture(dask.array.from_array(broken, chunks=(300, 8)))
        with pytest.raises(InvalidInputError, match=r"text|numbers"):
            mixture(dask.bag.from_sequence(["some", "text"], npartitions=1))
        with pytest.raises(InvalidInputError, match="at least one"):
            mixture(dask.array.from_array(MIXED[:0].reshape(0, 8), chunks=(1, 8)))
        frame = dask.dataframe.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}), npartitions=1)
        with pytest.raises(InvalidInputError, match="no column 'b'"):
            lt.PCA(1).fit(lt.sources.from_dask(frame, columns=["b"]))

    def test_nothing_is_left_on_the_cluster(self, two_processes):
        broken = [MIXED[:300], MIXED[300:600], MIXED[600:] * np.nan]
        with two_processes.as_current():
            for last in (broken[2], MIXED[600:, :5], MIXED[600:].astype(str), MIXED[600:] + 1j):
                parts = lt.sources.partitions([[p] for p in (*broken[:2], last)], engine="dask")
                with pytest.raises(InvalidInputError, match=r"\(partition 2\)"):
                    mixture(parts)
            two_processes.sync(lambda: __import__("asyncio").sleep(0.5))
            assert not any(two_processes.has_what().values())

    def test_empty_partitions_and_other_dtypes_are_fine(self):
        parts = [MIXED[:0], MIXED[:300].astype(np.float32), MIXED[300:], MIXED[:0]]
        bag = dask.bag.from_sequence(parts, npartitions=4)
        assert np.abs(mixture(bag).means_ - mixture(MIXED).means_).max() < 1e-5

    def test_a_client_that_is_gone(self, monkeypatch):
        cluster = distributed.LocalCluster(
            n_workers=1, processes=False, dashboard_address="127.0.0.1:0"
        )
        client = distributed.Client(cluster, set_as_default=False)
        source = lt.sources.partitions([[MIXED]], engine="dask")
        with client.as_current():
            from latensor.engines import engine_of

            engine = engine_of(source)
        client.close()
        cluster.close()
        from latensor.moments.batch import Kind
        from latensor.moments.unit_sample import Sample
        from latensor.sources.rows import RowReader

        with pytest.raises(InvalidInputError, match=r"client is closed.*call fit again"):
            engine.fold(source.source(Kind.ROWS, RowReader(8, "Test"), None), Sample(10, 0))
        monkeypatch.setattr("latensor.engines.dask._PATIENCE", 0.5)
        with pytest.raises(InvalidInputError, match="no scheduler answers"):
            mixture(lt.sources.partitions([[MIXED]], engine="dask://127.0.0.1:1"))

    @pytest.mark.slow
    def test_a_worker_without_latensor(self, tmp_path):
        blocking = tmp_path / "blocking.py"
        blocking.write_text(
            "import sys\n"
            "class Blocked:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.partition('.')[0] == 'latensor':\n"
            "            raise ModuleNotFoundError(\"No module named 'latensor'\")\n"
            "sys.meta_path.insert(0, Blocked())\n"
        )
        with (
            distributed.LocalCluster(
                n_workers=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                preload=[str(blocking)],
            ) as cluster,
            distributed.Client(cluster, set_as_default=False) as client,
            client.as_current(),
        ):
            with pytest.raises(InvalidInputError, match=r"1 of 1 Dask workers cannot import"):
                mixture(dask.array.from_array(MIXED, chunks=(300, 8)))
            assert not any(client.has_what().values())

    def test_a_worker_without_what_latensor_needs(self):
        from latensor.engines.dask import DaskEngine

        error = ModuleNotFoundError("No module named 'numba'")
        assert "install the same version" in str(DaskEngine()._explained(error))


def test_importing_latensor_imports_no_framework():
    import subprocess
    import sys

    code = (
        "import sys, latensor as lt, numpy as np; lt.PCA(1).fit(np.eye(3));"
        "print(json.dumps([n for n in ('dask', 'pyspark', 'distributed') if n in sys.modules]))"
    )
    found = subprocess.run(
        [sys.executable, "-c", "import json;" + code], capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout) == []
