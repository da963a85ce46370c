"""Strings and folders of text files as documents."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import pandas as pd
import pytest

import latensor as lt

TEXTS = [
    "the cat sat on the mat with another cat",
    "dogs bark at cats and other dogs",
    "tensor methods learn topics from moments",
    "moments of words give tensors and topics",
] * 20


@pytest.fixture
def folder(tmp_path: Any) -> Any:
    (tmp_path / "deep").mkdir()
    (tmp_path / ".hidden.txt").write_text("hidden hidden hidden")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0")
    for number, text in enumerate(TEXTS):
        name = f"{number:03}.txt" if number % 2 else f"deep/{number:03}.md"
        (tmp_path / name).write_text(text)
    with gzip.open(tmp_path / "deep" / "zzz.txt.gz", "wt") as stream:
        stream.write("compressed cats and tensors")
    return tmp_path


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series])
def test_strings_are_documents(kind: Any) -> None:
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(kind(TEXTS))
    assert "cat" in model.vocabulary_
    assert "the" not in model.vocabulary_
    fractions = model.transform(kind(TEXTS[:4]))
    assert fractions.shape == (4, 2)
    assert np.isfinite(model.perplexity(kind(TEXTS)))


def test_strings_give_what_their_counts_give() -> None:
    source = lt.sources.as_text_source(TEXTS)
    [counts] = list(source)
    by_text = lt.SingleTopic(2, random_state=0).fit(TEXTS)
    by_counts = lt.SingleTopic(2, random_state=0).fit(counts)
    np.testing.assert_array_equal(by_text.components_, by_counts.components_)
    assert by_text.vocabulary_ == source.vocabulary


def test_a_saved_model_reads_strings(tmp_path: Any) -> None:
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(TEXTS)
    model.save(tmp_path / "model.npz")
    loaded = lt.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(loaded.transform(TEXTS[:3]), model.transform(TEXTS[:3]))


def test_words_that_a_model_does_not_know_are_left_out() -> None:
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(TEXTS)
    np.testing.assert_array_equal(
        model.transform(["cats zebra"]), model.transform(["cats unheard"])
    )


def test_what_are_no_texts_is_refused() -> None:
    with pytest.raises(lt.InvalidInputError, match=r"X\[1\] is a int"):
        lt.LatentDirichletAllocation(2).fit(["words of a text", 3])
    with pytest.raises(lt.InvalidInputError, match="no words"):
        lt.LatentDirichletAllocation(2).fit(["", "."])
    with pytest.raises(lt.InvalidInputError, match="read_documents"):
        lt.LatentDirichletAllocation(2).fit("one string")
    counted = lt.LatentDirichletAllocation(2, random_state=0).fit(
        lt.datasets.make_topics(50, 9, 2, random_state=0).counts
    )
    with pytest.raises(lt.InvalidInputError, match="without names"):
        counted.transform(["words of a text"])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("one text", "a list of texts"),
        ([], "no documents"),
        ([b"some bytes"], "decode"),
        ([["a", "list"], ["of", "words"]], "join"),
        (pd.DataFrame({"body": TEXTS}), "'body'"),
    ],
)
def test_texts_in_another_form_say_what_to_give(given: Any, said: str) -> None:
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(TEXTS)
    for call in (lt.LatentDirichletAllocation(2).fit, model.transform, model.perplexity):
        with pytest.raises(lt.InvalidInputError, match=said) as refusal:
            call(given)
        assert len(str(refusal.value)) < 200


def test_a_folder_is_a_document_a_file(folder: Any) -> None:
    source = lt.read_documents(folder)
    assert source.names == sorted(source.names)
    assert ".hidden.txt" not in source.names
    assert len(source.names) == len(TEXTS) + 1
    counts = np.vstack([batch.toarray() for batch in source])
    assert len(counts) == len(TEXTS) + 1
    last = len(TEXTS)
    number = source.names.index("deep/zzz.txt.gz")
    assert source.excerpts([number]) == {number: "compressed cats and tensors"}
    assert counts[number].sum() == 4
    assert last
    model = lt.LatentDirichletAllocation(2, random_state=0).fit(folder)
    assert "hidden" not in model.vocabulary_
    assert model.transform(folder).shape == (len(TEXTS) + 1, 2)
    np.testing.assert_array_equal(model.transform(str(folder)), model.transform(folder))


def test_folders_that_cannot_be_read(tmp_path: Any, folder: Any) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(lt.InvalidInputError, match="without text files"):
        lt.read_documents(empty)
    with pytest.raises(lt.InvalidInputError, match="folder"):
        lt.read_documents(folder, text_column="text")
    (folder / "bad.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(lt.InvalidInputError, match=r"bad\.txt is not UTF-8"):
        lt.read_documents(folder)
    (folder / "bad.txt").write_bytes(b"a\0b")
    with pytest.raises(lt.InvalidInputError, match="zero bytes"):
        lt.read_documents(folder)
