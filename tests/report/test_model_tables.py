"""The rows of the table of what was found."""

import re

import numpy as np
import pytest

import latensor as lt
from latensor.plots.colours import checked_names
from latensor.report.model_tables import leading, rows_of


def test_entries_without_a_digit_to_show_are_left_out():
    assert leading([0.5, 1e-7, 0.0, -1.0], "abcd", 4) == "d: -1, a: 0.5"
    assert leading([0.0, 0.0], "ab") == "a: 0, b: 0"
    assert leading([np.nan, 1.0], "ab") == "b: 1, a: nan"
    assert leading(np.zeros(0), "") == ""


def test_names_that_end_differently_are_cut_in_the_middle():
    names = [f"species of the family {i}" for i in range(3)]
    assert checked_names(names, 3, "names", "") == [f"species … family {i}" for i in range(3)]
    assert checked_names(["temperature of the wall", "b"], 2, "names", "")[0].endswith("…")


def test_what_was_found_is_called_as_in_the_table(tmp_path):
    symbols = np.random.default_rng(0).integers(0, 5, 400)
    page = (lt.CategoricalHMM(2, random_state=0).fit(symbols)).report(tmp_path / "a.html", symbols)
    text = re.sub("<[^>]*>", " ", page.read_text())
    assert re.search(r"states\s+2\s+symbols\s+5", text)
    one = lt.PCA(1).fit(np.random.default_rng(0).standard_normal((30, 1)))
    text = re.sub("<[^>]*>", " ", one.report(tmp_path / "b.html").read_text())
    assert re.search(r"direction\s+1\s+feature\s+1", text)


def test_weights_of_a_regression_on_tensors_are_components():
    X = np.random.default_rng(0).standard_normal((80, 4, 3))
    head, rows = rows_of(lt.CPRegressor(1).fit(X, X[:, 1, 2]))
    assert head == ["component", "weight", "mode 0", "mode 1"]
    assert rows[0][2].startswith("1: ")
    assert rows[0][3].startswith("2: ")


@pytest.mark.parametrize("width", [50, 80, 200])
def test_features_that_have_no_room_are_counted(width):
    rows = lt.datasets.make_spherical_mixture(200, 9, 2, random_state=0).samples
    found = lt.SphericalGaussianMixture(2, refine=0, random_state=0).fit(rows)
    head, table = rows_of(found, width=width)
    shown = sum(title.startswith("mean") for title in head)
    assert all(len(row) == len(head) for row in table)
    if shown < 9:
        assert head[-1] == f"{9 - shown} more"
    assert shown < 9 or head[-1] == "mean 8"
