"""The rows of the table of what was found."""

import numpy as np
import pytest

import latensor as lt
from latensor.report.model_tables import leading, rows_of


def test_entries_without_a_digit_to_show_are_left_out():
    assert leading([0.5, 1e-7, 0.0, -1.0], "abcd", 4) == "d: -1, a: 0.5"
    assert leading([0.0, 0.0], "ab") == "a: 0, b: 0"
    assert leading([np.nan, 1.0], "ab") == "b: 1, a: nan"
    assert leading(np.zeros(0), "") == ""


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
