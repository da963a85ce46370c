"""Files as partitions: every format gives what its rows give in memory."""

import gzip
import json

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

import latensor as lt
from latensor.exceptions import InvalidInputError

ROWS = lt.datasets.make_spherical_mixture(600, 3, 2, separation=8, random_state=0).samples
NAMES = ["a", "b", "c"]
CHAIN = lt.datasets.make_gaussian_hmm(
    900, 1, 2, n_sequences=9, stay=0.7, means=[[0], [5]], random_state=1
)
TEXTS = [f"{'apple pear' if i % 2 else 'steel iron'} plain w{i % 3}" for i in range(300)]


def write(frame, folder, ending, parts=3):
    for number, chosen in enumerate(np.array_split(np.arange(len(frame)), parts)):
        part = frame.iloc[chosen]
        path = folder / f"{number}.{ending}"
        if ending == "parquet":
            part.to_parquet(path, row_group_size=70, compression="zstd")
        elif ending.startswith("jsonl"):
            compressed(path, part.to_json(orient="records", lines=True, double_precision=15))
        else:
            compressed(path, part.to_csv(index=False))
    return str(folder / f"*.{ending}")


def compressed(path, text):
    raw = text.encode()
    if path.suffix == ".gz":
        raw = gzip.compress(raw)
    elif path.suffix == ".zst":
        raw = pyarrow.compress(raw, "zstd", asbytes=True)
    path.write_bytes(raw)


@pytest.mark.parametrize(
    "ending", ["parquet", "jsonl", "jsonl.gz", "jsonl.zst", "csv", "csv.gz", "csv.zst"]
)
@pytest.mark.parametrize("engine", ["local", "dask"])
def test_rows_of_every_format(tmp_path, ending, engine):
    source = lt.sources.shards(
        write(pd.DataFrame(ROWS, columns=NAMES), tmp_path, ending), columns=NAMES, engine=engine
    )
    found = lt.SphericalGaussianMixture(2, random_state=0).fit(source)
    expected = lt.SphericalGaussianMixture(2, random_state=0).fit(ROWS)
    assert np.abs(found.means_ - expected.means_).max() < 1e-9
    everything = lt.PCA(1).fit(lt.sources.shards(str(tmp_path / f"*.{ending}")))
    assert everything.n_features_in_ == 3


def test_partitions_of_parquet_are_row_groups(tmp_path, monkeypatch):
    path = write(pd.DataFrame(ROWS, columns=NAMES), tmp_path, "parquet")
    assert lt.sources.shards(path).n_partitions == 3
    monkeypatch.setattr("latensor.sources.shard_files._ROWS", 100)
    found = lt.sources.shards(path)
    assert [part.groups for part in found.parts] == [(0, 1), (2,)] * 3
    assert np.abs(lt.PCA(1).fit(found).mean_ - ROWS.mean(axis=0)).max() < 1e-12


def test_columns_of_lists_weights_targets_and_views(tmp_path):
    weights = np.random.default_rng(0).integers(0, 3, 600)
    frame = pd.DataFrame({"features": list(ROWS), "weight": weights})
    source = lt.sources.shards(
        write(frame, tmp_path, "parquet"), columns="features", weight="weight"
    )
    found = lt.SphericalGaussianMixture(2, random_state=0).fit(source).means_
    expected = lt.SphericalGaussianMixture(2, random_state=0).fit(ROWS, sample_weight=weights)
    assert np.abs(found - expected.means_).max() < 1e-9
    path = write(pd.DataFrame(ROWS, columns=NAMES), tmp_path, "csv")
    pairs = lt.CCA(1).fit(lt.sources.shards(path, columns=["a"], target=["b", "c"]))
    assert pairs.correlations_ == pytest.approx(
        lt.CCA(1).fit(ROWS[:, :1], ROWS[:, 1:]).correlations_
    )
    views = lt.sources.shards(path, views=[["a"], ["b"], ["c"]])
    seen = lt.MultiViewMixture(2, random_state=0).fit(views)
    expected = lt.MultiViewMixture(2, random_state=0).fit(list(ROWS.T[:, :, None]))
    assert np.abs(seen.weights_ - expected.weights_).max() < 1e-9


@pytest.mark.parametrize("listed", [False, True])
def test_sequences(tmp_path, listed):
    sequences = np.split(CHAIN.X, np.cumsum(CHAIN.lengths)[:-1])
    if listed:
        frame = pd.DataFrame({"rows": [s.ravel().tolist() for s in sequences]})
        source = lt.sources.shards(write(frame, tmp_path, "jsonl", 2), columns="rows")
    else:
        names = np.repeat([f"s{i}" for i in range(9)], CHAIN.lengths)
        for number, chosen in enumerate((names < "s4", names >= "s4")):
            frame = pd.DataFrame({"x": CHAIN.X[chosen, 0], "id": names[chosen]})
            frame.to_parquet(tmp_path / f"{number}.parquet", row_group_size=70)
        source = lt.sources.shards(str(tmp_path / "*.parquet"), columns=["x"], sequence="id")
    found = lt.GaussianHMM(2, random_state=0).fit(source)
    expected = lt.GaussianHMM(2, random_state=0).fit(CHAIN.X, CHAIN.lengths)
    assert np.abs(found.means_ - expected.means_).max() < 1e-3


@pytest.mark.parametrize("engine", ["local", "dask"])
@pytest.mark.parametrize("ending", ["jsonl.gz", "parquet", "csv", "txt"])
def test_texts(tmp_path, ending, engine):
    if ending == "txt":
        for number in range(3):
            (tmp_path / f"{number}.txt").write_text(
                "\n".join(TEXTS[number * 100 : number * 100 + 100])
            )
        path, chosen = str(tmp_path / "*.txt"), {}
    else:
        path, chosen = write(pd.DataFrame({"body": TEXTS}), tmp_path, ending), {"text": "body"}
    source = lt.sources.shards(path, engine=engine, stop_words=["plain"], min_df=2, **chosen)
    found = lt.SingleTopic(2, random_state=0).fit(source)
    assert found.vocabulary_ == ["apple", "iron", "pear", "steel", "w0", "w1", "w2"]
    assert found.n_documents_ == 300
    top = {frozenset(found.vocabulary_[i] for i in row.argsort()[-2:]) for row in found.components_}
    assert top == {frozenset({"apple", "pear"}), frozenset({"steel", "iron"})}


def test_counts_in_two_columns_of_lists(tmp_path):
    counts = lt.datasets.make_single_topic(600, 40, 2, random_state=0).counts
    rows = [counts[[i]] for i in range(600)]
    frame = pd.DataFrame(
        {"words": [r.indices for r in rows], "counts": [r.data.astype(np.uint16) for r in rows]}
    )
    path = write(frame, tmp_path, "parquet")
    source = lt.sources.shards(path, words="words", counts="counts", n_features=40)
    found = lt.SingleTopic(2, random_state=0).fit(source)
    expected = lt.SingleTopic(2, random_state=0).fit(counts)
    assert np.abs(found.components_ - expected.components_).max() < 1e-6
    with pytest.raises(InvalidInputError, match=r"holds word 39, but n_features=30 \(.*parquet"):
        lt.SingleTopic(2).fit(
            lt.sources.shards(path, words="words", counts="counts", n_features=30)
        )


def test_what_is_wrong_is_told_with_the_file(tmp_path):
    with pytest.raises(InvalidInputError, match="matches no file"):
        lt.sources.shards(str(tmp_path / "*.parquet"))
    (tmp_path / "x.what").write_text("1")
    with pytest.raises(InvalidInputError, match="cannot be told from its name"):
        lt.sources.shards(str(tmp_path / "x.what"))
    with pytest.raises(InvalidInputError, match="engine='ray' must be"):
        lt.sources.shards(str(tmp_path / "x.what"), format="csv", engine="ray")
    path = write(pd.DataFrame(ROWS, columns=NAMES), tmp_path, "parquet")
    with pytest.raises(InvalidInputError, match="no column 'd'; it has 'a', 'b', 'c'"):
        lt.sources.shards(path, columns=["d"])
    source = lt.sources.shards(path)
    pd.DataFrame(ROWS[:9], columns=NAMES).to_parquet(tmp_path / "0.parquet")
    with pytest.raises(InvalidInputError, match="has changed"):
        lt.PCA(1).fit(source)
    broken = pd.DataFrame(ROWS, columns=NAMES)
    broken.loc[500, "b"] = np.nan
    with pytest.raises(InvalidInputError, match=r"NaN.*2\.csv\)"):
        lt.PCA(1).fit(lt.sources.shards(write(broken, tmp_path, "csv")))
    lines = tmp_path / "bad.jsonl"
    lines.write_text(json.dumps({"a": 1.0}) + "\nnot json\n")
    with pytest.raises(InvalidInputError, match=r"line 2 of .* is not JSON"):
        lt.PCA(1).fit(lt.sources.shards(str(lines)))
    words = tmp_path / "words.csv"
    words.write_text("a,b\n1,x\n2,y\n")
    with pytest.raises(InvalidInputError, match=r"column 'b' holds .*words\.csv"):
        lt.PCA(1).fit(lt.sources.shards(str(words)))
    words.write_text("a,id\n1,x\n2,y\n3,x\n")
    with pytest.raises(InvalidInputError, match="do not stand together"):
        lt.GaussianHMM(1).fit(lt.sources.shards(str(words), columns=["a"], sequence="id"))
