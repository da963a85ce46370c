"""The figure that sums up the benchmarks is read off the tables of their page."""

import runpy
from pathlib import Path

import pytest

FIGURE = Path(__file__).parents[2] / "docs" / "images" / "benchmark_figure.py"


def test_every_area_is_found_in_its_table():
    found = runpy.run_path(str(FIGURE))["ratios"]()
    assert len(found) == 10
    assert all(len(values) >= 5 for values in found.values())
    assert all(0.05 < value < 5000 for values in found.values() for value in values)


def test_numbers_are_those_of_the_cells():
    module = runpy.run_path(str(FIGURE))
    assert module["_times"](["0.1, 73.3x", "0.0588 (2.86x)", "1.37e+03x", "none"]) == pytest.approx(
        [73.3, 2.86, 1370.0]
    )
