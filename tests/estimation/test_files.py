"""Models, decompositions and checkpoints in files: old ones stay readable, bad ones are refused."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import latensor as lt
from latensor.array_files import write_arrays
from latensor.arrays import to_host
from latensor.decomposition import Status
from latensor.estimation import checkpoint
from latensor.estimation.checkpoint import Checkpoint
from latensor.estimation.files import saved_estimator
from latensor.estimation.run import Run
from latensor.exceptions import InvalidInputError
from latensor.value_files import read_value, write_value

# Written by the code of format version 1; they must stay readable for ever.
SAVED = Path(__file__).parent / "saved"
FIRST = {
    "topics-format-1.npz": lt.LatentDirichletAllocation,
    "single-topic-format-1.npz": lt.SingleTopic,
}


def test_topics_of_the_first_format():
    model = lt.load(SAVED / "topics-format-1.npz")
    assert type(model) is lt.LatentDirichletAllocation
    assert model.get_params()["refine"] == 5
    assert model.components_.dtype == np.float32
    np.testing.assert_allclose(
        model.components_[:, 0], [6.06537342e-01, 1.00588955e-01, 5.56759983e-02], rtol=1e-8
    )
    np.testing.assert_array_equal(
        model.alpha_, [0.3532942071348429, 0.35051864126824445, 0.3460451075270695]
    )
    np.testing.assert_array_equal(model.mixture_prior_, model.alpha_)
    assert model.vocabulary_ == [f"word{j}" for j in range(12)]
    assert (model.n_documents_, model.n_empty_documents_, model.n_iter_) == (400, 0, 5)
    assert model.status_ == "5 passes made"
    assert model.certificate_.eigenvalue_ratio == 12.411923019808613
    assert model.certificate_.refined
    np.testing.assert_allclose(model.transform(np.eye(12)[:4] * 9).sum(axis=1), 1, rtol=1e-5)


def test_fields_that_were_renamed_are_read_by_their_earlier_names():
    model = lt.load(SAVED / "topics-format-2.npz")
    assert model.certificate_.refined
    assert model.status_ == "3 passes made"


def test_single_topics_of_the_first_format():
    model = lt.load(SAVED / "single-topic-format-1.npz")
    assert type(model) is lt.SingleTopic
    assert model.vocabulary_ is None
    assert model.history_[-1] == 7.334817573865385
    np.testing.assert_allclose(
        model.weights_, [0.36590548942158685, 0.32432559357948293, 0.3097689169989301], rtol=1e-15
    )


@pytest.mark.parametrize("name", FIRST)
def test_saved_again_nothing_is_lost(tmp_path, name):
    model = FIRST[name].load(SAVED / name)
    again = FIRST[name].load(model.save(tmp_path / "new.npz"))
    assert vars(again).keys() == vars(model).keys()
    assert str(again.certificate_) == str(model.certificate_)
    for attribute, value in vars(model).items():
        if attribute != "certificate_":
            np.testing.assert_array_equal(vars(again)[attribute], value)
    other = next(cls for cls in FIRST.values() if cls is not type(model))
    with pytest.raises(InvalidInputError, match=f"holds a {type(model).__name__}, not a"):
        other.load(tmp_path / "new.npz")


def test_settings_without_a_plain_value_are_left_out(tmp_path):
    model = lt.load(SAVED / "topics-format-1.npz")
    model.set_params(callback=print, random_state=np.random.default_rng(0), init=model.components_)
    loaded = lt.load(model.save(tmp_path / "x.npz"))
    assert loaded.callback is None
    assert loaded.random_state is None
    np.testing.assert_array_equal(loaded.init, model.components_)


def rewritten(name, change):
    """A saved model with another description, as bytes."""
    with np.load(SAVED / name) as stored:
        arrays = {key: stored[key] for key in stored.files}
    description = json.loads(arrays.pop("description").tobytes())
    change(description, arrays)
    text = np.frombuffer(json.dumps(description).encode(), np.uint8)
    stream = io.BytesIO()
    write_arrays(stream, {"description": text, **arrays})
    return stream.getvalue()


CHANGES = {
    "model": lambda d, a: d.update(model="PCA"),
    "builtin": lambda d, a: d.update(model="__class__"),
    "model of no name": lambda d, a: d.update(model=[]),
    "parameters": lambda d, a: d["parameters"].update(other=3),
    "parameters in a list": lambda d, a: d.update(parameters=[1]),
    "version": lambda d, a: d.update(version=None),
    "version 7": lambda d, a: d.update(version=7),
    "no vocabulary": lambda d, a: d.pop("vocabulary"),
    "short vocabulary": lambda d, a: d.update(vocabulary=["a"]),
    "vocabulary of numbers": lambda d, a: d.update(vocabulary=list(range(12))),
    "words in words": lambda d, a: d.update(vocabulary="abcdefghijkl"),
    "counts": lambda d, a: d.update(n_documents="many"),
    "negative": lambda d, a: d.update(n_iter=-1),
    "status": lambda d, a: d.update(status={}),
    "certificate": lambda d, a: d.update(certificate={"__class__": 1}),
    "certificate of words": lambda d, a: d["certificate"].update(condition="high"),
    "certificate list": lambda d, a: d.update(certificate=[]),
    "no distances": lambda d, a: a.pop("split_half"),
    "distances": lambda d, a: a.update(split_half=np.zeros(7)),
    "no components": lambda d, a: a.pop("components"),
    "components": lambda d, a: a.update(components=np.zeros(3)),
    "integers": lambda d, a: a.update(components=np.ones((3, 12), int)),
    "words": lambda d, a: a.update(components=np.full((3, 12), "x")),
    "nan": lambda d, a: a.update(components=np.full((3, 12), np.nan)),
    "negative topics": lambda d, a: a.update(components=np.full((3, 12), -1.0)),
    "no weights": lambda d, a: a.pop("alpha"),
    "weights": lambda d, a: a.update(alpha=np.ones(4)),
    "history": lambda d, a: a.update(history=np.ones((2, 2))),
}


@pytest.mark.parametrize("case", CHANGES)
def test_models_that_were_tampered_with_are_refused(tmp_path, case):
    path = tmp_path / "x.npz"
    path.write_bytes(rewritten("topics-format-1.npz", CHANGES[case]))
    for load in (lt.load, lt.LatentDirichletAllocation.load):
        with pytest.raises(InvalidInputError, match=r"x\.npz' is not a saved"):
            load(path)


def test_names_of_arrays_reach_no_attribute(tmp_path):
    def change(description, arrays):
        arrays.update(transform=np.zeros(3), _lazy=np.zeros(3), __class__=np.zeros(3))

    path = tmp_path / "x.npz"
    path.write_bytes(rewritten("topics-format-1.npz", change))
    model = lt.load(path)
    assert vars(model).keys() == vars(lt.load(SAVED / "topics-format-1.npz")).keys()


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(FIRST)), st.booleans(), st.data())
def test_damaged_models_give_an_error_or_the_model(tmp_path_factory, name, is_first, data):
    folder = tmp_path_factory.mktemp("fuzz")
    whole = lt.load(SAVED / name)
    path = SAVED / name if is_first else whole.save(folder / "whole.npz")
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    (folder / "x").write_bytes(content)
    try:
        found = lt.load(folder / "x")
    except InvalidInputError:
        return
    np.testing.assert_array_equal(found.components_, whole.components_)


def planted():
    rng = np.random.default_rng(0)
    factors = [rng.random((d, 2)) for d in (4, 5, 3)]
    return lt.CPTensor(np.array([2.0, 1.0]), tuple(factors)).to_dense()


def same(loaded, found):
    assert repr(loaded) == repr(found)
    assert loaded.status is found.status
    assert loaded.residual == found.residual
    np.testing.assert_array_equal(loaded.history, found.history)
    np.testing.assert_array_equal(loaded[0], to_host(found[0]))
    for one, other in zip(loaded.factors, found.factors, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert type(one) is np.ndarray
            np.testing.assert_array_equal(one, to_host(other))


def test_decompositions_come_back_whole(tmp_path):
    for number, found in enumerate(
        [
            lt.decompose(planted(), 2, random_state=0),
            lt.decompose(planted() * (1 + 2j), 1, random_state=0),
            lt.decompose(planted().astype(np.float32), 1, random_state=0),
            lt.tucker(planted(), (2, 2, 2), random_state=0),
            lt.tucker(planted(), (2, 2), modes=(0, 1), random_state=0),
            lt.parafac2(list(planted()), 2, n_starts=2, max_iter=20, random_state=0),
        ]
    ):
        same(lt.load(found.save(tmp_path / f"{number}.npz")), found)


def test_trains_and_slices_come_back_whole(tmp_path):
    train = lt.tensor_train(planted(), ranks=2)
    loaded = lt.load(train.save(tmp_path / "train.npz"))
    assert repr(loaded) == repr(train)
    np.testing.assert_array_equal(loaded.to_dense(), train.to_dense())
    found = lt.parafac2([planted()[0], planted()[1][:4]], 2, n_starts=1, max_iter=5, random_state=0)
    loaded = lt.load(found.save(tmp_path / "slices.npz"))
    assert (loaded.n_starts, loaded.n_agreed) == (found.n_starts, found.n_agreed)
    for one, other in zip(loaded.slices(), found.slices(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_are_kept_and_data_are_not(tmp_path):
    rng = np.random.default_rng(0)
    mask = rng.random((4, 5, 3)) < 0.9
    sparse = lt.SparseTensor.from_dense(np.where(mask, planted(), 0.0))
    seen = lt.SparseTensor.from_dense(mask.astype(float))
    for tensor, observed in ((planted(), mask), (sparse, seen)):
        found = lt.decompose(tensor, 1, mask=observed, random_state=0)
        loaded = lt.load(found.save(tmp_path / "x.npz"))
        same(loaded, found)
        assert loaded.origin.masked
        assert loaded.origin.tensor is None
        dense = [
            m if isinstance(m, np.ndarray) else m.to_dense() for m in (mask, loaded.origin.mask)
        ]
        np.testing.assert_array_equal(*dense)
        assert found.origin.tensor is not None
        assert loaded.certificate.verdict
    assert lt.load(lt.decompose(planted(), 1).save(tmp_path / "x.npz")).origin.mask is None


def test_decompositions_of_every_library(tmp_path, library):
    factors = library.arrays(np.random.default_rng(0).random((3, 4, 2)))
    tensor = lt.CPTensor(library.array([2.0, 1.0]), factors)
    found = lt.Decomposition(tensor, 0.25, 3, Status.MAX_ITER, np.array([0.5, 0.3, 0.25]))
    same(lt.load(found.save(tmp_path / "x.npz")), found)


def test_symmetric_decompositions_stay_symmetric(tmp_path):
    factor = np.random.default_rng(0).random((4, 2))
    tensor = lt.CPTensor(np.ones(2), (factor,) * 3).to_dense()
    found = lt.decompose(tensor, 2, symmetric=True, random_state=0)
    loaded = lt.load(found.save(tmp_path / "x"))
    assert loaded.tensor.is_symmetric
    again = lt.decompose(tensor, 2, init=loaded, random_state=0)
    assert again.residual <= found.residual + 1e-12


@pytest.mark.parametrize(
    "value", [3, None, {"tensor": 1}, lt.CPTensor(None, [np.ones((2, 1))] * 3)]
)
def test_other_values_are_no_decompositions(tmp_path, value):
    path = write_value(tmp_path / "x", value, "decomposition")
    with pytest.raises(InvalidInputError, match="is not a saved model or decomposition: it holds"):
        lt.load(path)
    path = write_value(tmp_path / "x", value, "estimator")
    with pytest.raises(InvalidInputError, match="is not a saved model or decomposition"):
        lt.load(path)
    path = write_value(tmp_path / "x", value, "something new")
    with pytest.raises(InvalidInputError, match="holds a something new, not a model"):
        lt.load(path)


def test_parts_of_decompositions_are_checked(tmp_path):
    found = lt.decompose(planted(), 1, random_state=0)
    for name, value in [
        ("residual", "small"), ("n_iter", 2.5), ("status", "CONVERGED"), ("history", [1.0]),
        ("history", np.ones((2, 2))), ("tensor", np.eye(2)), ("history", np.array(["x"])),
    ]:  # fmt: skip
        fields = {
            f: getattr(found, f) for f in ("tensor", "residual", "n_iter", "status", "history")
        }
        changed = lt.Decomposition(**{**fields, name: value})
        with pytest.raises(InvalidInputError, match=f"its {name}"):
            lt.load(changed.save(tmp_path / "x"))


def test_only_classes_that_load_knows_are_saved(tmp_path):
    class Own(lt.SingleTopic):
        pass

    model = lt.load(SAVED / "single-topic-format-1.npz")
    own = Own()
    vars(own).update(vars(model))
    with pytest.raises(InvalidInputError, match="a Own cannot be saved"):
        own.save(tmp_path / "x")
    own.__class__.__name__ = "SingleTopic"
    with pytest.raises(TypeError, match="registered already"):
        saved_estimator(Own)


# ------------------------------------------------------------------ journals


FINGERPRINT = {"class": "PCA", "settings": {"n_components": 3}, "source": (100, np.arange(3))}


@pytest.fixture
def at_once(monkeypatch):
    """Everything is saved at once, however long that takes."""
    monkeypatch.setattr(checkpoint, "_SPARING", 0)


@pytest.mark.usefixtures("at_once")
def test_a_journal_gives_back_what_it_was_given(tmp_path):
    first = Checkpoint(tmp_path / "new" / "folder", FINGERPRINT)
    assert first.get("0001 moments") is None
    first.put("0001 moments", {"second": np.eye(3), "n": 7})
    again = Checkpoint(tmp_path / "new" / "folder", FINGERPRINT)
    assert again.get("0001 moments")["n"] == 7
    np.testing.assert_array_equal(again.get("0001 moments")["second"], np.eye(3))
    assert again.get("0002 moments") is None


def test_a_journal_of_another_fit_is_refused(tmp_path):
    Checkpoint(tmp_path, FINGERPRINT)
    for other in (
        {**FINGERPRINT, "class": "CCA"},
        {**FINGERPRINT, "source": (100, np.arange(4))},
        {**FINGERPRINT, "source": (100, np.arange(3.0))},
        {**FINGERPRINT, "more": 1},
    ):
        with pytest.raises(InvalidInputError, match="the checkpoint of another fit"):
            Checkpoint(tmp_path, other)
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match="cannot be made"):
        Checkpoint(tmp_path / "file", FINGERPRINT)
    (tmp_path / "fit.npz").write_bytes(b"PK")
    with pytest.raises(InvalidInputError, match="is not a saved checkpoint"):
        Checkpoint(tmp_path, FINGERPRINT)


class KilledError(Exception):
    pass


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("commit_every", [1, 3])
def test_a_run_that_is_killed_anywhere_ends_the_same(tmp_path, monkeypatch, commit_every):
    """A loop of folds after two others, ended after every single write of a file."""
    n_folds = 0

    def fit(journal):
        nonlocal n_folds
        number = 0

        def fold(name, value):
            nonlocal number, n_folds
            number += 1
            key = f"{number:04d} {name}"
            found = journal.get(key)
            if found is None:
                n_folds += 1
                found = np.full(2, value)
                journal.put(key, found)
            return found

        state = fold("survey", 1.0) + fold("moments", 2.0)
        found = journal.committed("em")
        number, step, state = (number, 0, state) if found is None else found
        while step < 7:
            state = state * 0.5 + fold("em", float(step) + state[0])
            step += 1
            if step % commit_every == 0:
                journal.commit("em", (number, step, state))
        return state + fold("last", state[0])

    expected = fit(Checkpoint(tmp_path / "alone", {}))
    alone = n_folds
    real = write_value

    def counted(*arguments):
        nonlocal left
        left -= 1
        if left < 0:
            raise KilledError
        return real(*arguments)

    monkeypatch.setattr("latensor.estimation.checkpoint.write_value", counted)
    n_folds, runs = 0, 0
    while True:
        left, runs = 1 if runs else 2, runs + 1
        try:
            found = fit(Checkpoint(tmp_path, FINGERPRINT))
        except KilledError:
            continue
        break
    np.testing.assert_array_equal(found, expected)
    assert runs > 8
    # Only the fold in work is lost by a kill.
    assert n_folds <= alone + runs
    left = 99
    n_folds = 0
    np.testing.assert_array_equal(fit(Checkpoint(tmp_path, FINGERPRINT)), expected)
    assert n_folds == 0
    # Messages of the loop that a later state replaces are gone: two before it and one after.
    assert len(list(tmp_path.glob("folds *.npz"))) <= 3 + 7 % commit_every
    assert read_value(tmp_path / "state em.npz").kind == "checkpoint"


class Again:
    """Rows in batches that can be gone over any number of times."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(np.array_split(self.rows, 5))


@pytest.mark.parametrize("name", ["SphericalGaussianMixture", "ICA"])
def test_a_fit_that_is_killed_goes_on_to_the_same_bits(tmp_path, monkeypatch, name):
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((3000, 3)) ** 3 + np.repeat([[0.0], [9.0]], 1500, axis=0)
    found = getattr(lt, name)(2, random_state=0).fit(Again(rows))
    n_folds, runs = [], 0

    def with_journal(*arguments, **options):
        if options.get("callback") is not None:
            options["journal"] = Checkpoint(tmp_path, FINGERPRINT)
        return Run(*arguments, **options)

    def count(fold, number):
        n_folds.append(number)
        if number > runs:
            raise KilledError

    monkeypatch.setattr("latensor.estimation.base.Run", with_journal)
    while True:
        runs += 1
        try:
            again = getattr(lt, name)(2, random_state=0).fit(Again(rows), callback=count)
        except KilledError:
            continue
        break
    assert runs > 2
    for attribute in ("means_", "components_", "weights_", "mixing_"):
        if hasattr(found, attribute):
            np.testing.assert_array_equal(getattr(again, attribute), getattr(found, attribute))
