"""A fit that is ended at any moment goes on where it was, and ends with the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import latensor as lt
from engines.partition_cases import CASES, value_of
from latensor.estimation import checkpoint
from latensor.exceptions import InvalidInputError
from latensor.refinement import em

ROWS = lt.datasets.make_spherical_mixture(3000, 4, 3, separation=4, random_state=0).samples


def mixture(**settings):
    return lt.SphericalGaussianMixture(**{"n_components": 3, "random_state": 0, **settings})


@pytest.mark.parametrize(
    "name",
    ["mixture", "topics", *(pytest.param(n, marks=pytest.mark.slow) for n in ("single", "chain"))],
)
def test_killed_by_the_system(tmp_path, name):
    script = Path(__file__).with_name("killed_fits.py")
    command = [sys.executable, str(script), name, str(tmp_path), "1", "3"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout)["same"]


class InterruptionError(Exception):
    pass


class Fragile:
    """Batches that end in an error once so many have been read."""

    def __init__(self, batches, limit):
        self.batches, self.left = batches, limit

    def __iter__(self):
        for batch in self.batches:
            if self.left == 0:
                raise InterruptionError
            self.left -= 1
            yield batch


@pytest.mark.parametrize("name", CASES)
def test_every_model_goes_on_where_it_was(tmp_path, name, monkeypatch):
    monkeypatch.setattr(checkpoint, "_FIRST_COST", 0.0)
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    model, settings, parts, _, attribute, _ = CASES[name]
    if "random_state" in model().get_params():
        settings = {**settings, "random_state": 0}
    given = parts(2)
    expected = value_of(model(**settings).fit(lt.sources.partitions(given)), attribute)

    def fit(limit):
        second = Fragile(given[1], limit)
        source = lt.sources.partitions([given[0], second])
        return value_of(model(**settings).fit(source, checkpoint=tmp_path), attribute), second.left

    for limit in range(2, 9):
        try:
            found, _ = fit(limit)
        except InterruptionError:
            continue
        assert np.array_equal(found, expected)
        break
    else:
        found, left = fit(1000)
        assert np.array_equal(found, expected)
    # All folds are known now: only the first units are looked at.
    found, left = fit(1000)
    assert np.array_equal(found, expected)
    assert left >= 998


def test_the_checkpoint_of_another_fit_is_refused(tmp_path):
    mixture().fit(ROWS, checkpoint=tmp_path)
    mixture(n_jobs=2).fit(ROWS, checkpoint=tmp_path)
    for model, rows in (
        (mixture(n_components=2), ROWS),
        (mixture(random_state=1), ROWS),
        (mixture(), ROWS[:-1]),
        (mixture(), ROWS + 1e-9),
        (lt.DiagonalGaussianMixture(3, random_state=0), ROWS),
    ):
        with pytest.raises(InvalidInputError, match="checkpoint of another fit"):
            model.fit(rows, checkpoint=tmp_path)
    for state in (None, np.random.default_rng(0)):
        with pytest.raises(InvalidInputError, match="needs an integer random_state"):
            mixture(random_state=state).fit(ROWS, checkpoint=tmp_path / "other")


def test_another_version_is_refused(tmp_path, monkeypatch):
    mixture().fit(ROWS, checkpoint=tmp_path)
    monkeypatch.setattr(np, "__version__", "1.0")
    with pytest.raises(InvalidInputError, match="another version"):
        mixture().fit(ROWS, checkpoint=tmp_path)


def test_saving_takes_a_fiftieth_of_the_time(tmp_path, monkeypatch):
    clock = [0.0]
    spent = [0.0]

    def slow(path, value, kind):
        clock[0] += 0.3
        spent[0] += 0.3
        return path

    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    found = checkpoint.Checkpoint(tmp_path, {})
    monkeypatch.setattr(checkpoint, "write_value", slow)
    for number in range(1, 2000):
        clock[0] += 0.1
        found.put(f"{number:04d} fold", number)
    assert 0 < spent[0] <= 0.021 * clock[0]


def test_a_save_waits_for_the_time_that_its_bytes_need(tmp_path, monkeypatch):
    """The first sums may be large: 10 MB at 50 MB/s are due after 13 s, not after half a second."""
    clock, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    found = checkpoint.Checkpoint(tmp_path, {})
    monkeypatch.setattr(checkpoint, "write_value", lambda *given: written.append(clock[0]))
    large = np.zeros(10_000_000 // 8)
    for number in range(1, 30):
        clock[0] += 0.5
        found.put(f"{number:04d} fold", large if number == 1 else number)
        part = found.part(f"{number:04d} fold")
        if part.is_due:
            part.save({"done": number})
    assert 12.8 < written[0] <= 14


def test_files_hold_no_code(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    mixture().fit([ROWS[:1500], ROWS[1500:]], checkpoint=tmp_path)
    files = list(tmp_path.glob("*.npz"))
    assert len(files) >= 2
    for path in files:
        with np.load(path, allow_pickle=False) as arrays:
            assert all(arrays[name].dtype.kind in "biufSU" for name in arrays)


@pytest.mark.parametrize("model", [lt.LatentDirichletAllocation, lt.SingleTopic])
def test_a_folder_does_not_grow_with_the_passes(tmp_path, monkeypatch, model):
    """Tables of topics are as large as the model: only the last state of a loop is kept."""
    monkeypatch.setattr(checkpoint, "_FIRST_COST", 0.0)
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    counts = lt.datasets.make_single_topic(600, 300, 3, random_state=0).counts
    parts = lt.sources.partitions([[counts[:300]], [counts[300:]]])
    sizes = []
    for passes in (2, 9):
        folder = tmp_path / str(passes)
        fitted = model(3, random_state=0, refine=passes).fit(parts, checkpoint=folder)
        sizes.append(sum(path.stat().st_size for path in folder.iterdir()))
        again = model(3, random_state=0, refine=passes).fit(parts, checkpoint=folder)
        assert np.array_equal(again.components_, fitted.components_)
        plain = model(3, random_state=0, refine=passes).fit(parts)
        assert np.array_equal(plain.components_, fitted.components_)
    assert sizes[1] < 1.05 * sizes[0]


@pytest.mark.parametrize("rounds", [20, 1])
def test_em_over_all_data_goes_on_where_it_was(tmp_path, monkeypatch, rounds):
    """Rounds of corrected EM, and the passes over all data that follow where these do not end."""
    monkeypatch.setattr(checkpoint, "_FIRST_COST", 0.0)
    monkeypatch.setattr(checkpoint, "_SPARING", 0)
    monkeypatch.setattr(lt.SphericalGaussianMixture, "_row_limit", 300)
    monkeypatch.setattr(em, "_ROUNDS", rounds)
    X = lt.datasets.make_spherical_mixture(3000, 4, 3, separation=2.5, random_state=0).samples
    expected = mixture(tol=1e-12).fit([X[:1500], X[1500:]])
    for limit in range(1, 60):
        fragile = Fragile([X[:1500], X[1500:]], 2 * limit + 1)
        try:
            found = mixture(tol=1e-12).fit(fragile, checkpoint=tmp_path)
        except InterruptionError:
            continue
        break
    assert limit > 3
    assert np.array_equal(found.means_, expected.means_)
    assert found.n_iter_ == expected.n_iter_
    assert len(list(tmp_path.glob("folds *.npz"))) < limit


def test_a_checkpoint_changes_no_bit(tmp_path):
    """Data in memory are not sent anywhere: their sums are kept as they are."""
    counts = lt.datasets.make_single_topic(600, 300, 3, random_state=0).counts
    for refine in (0, 2):
        model = lt.LatentDirichletAllocation(3, random_state=0, refine=refine)
        plain = model.fit(counts).components_
        kept = model.fit(counts, checkpoint=tmp_path / str(refine)).components_
        assert np.array_equal(kept, plain)
