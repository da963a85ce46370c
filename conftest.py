"""Tests and pages that need a library of the extras are skipped where it is not installed."""

import importlib.util
import re

import pytest

# Libraries of the extras, without which an installed wheel is tested too, and those of tests alone.
EXTRAS = {
    "plots": ("matplotlib", "PIL"),
    "parquet": ("pyarrow",),
    "dask": ("dask", "distributed"),
    "torch": ("torch",),
    "jax": ("jax",),
    "tests": ("pandas", "pyttb", "sparse", "sphinx_gallery", "tensorly"),
}
MISSING = {
    extra: [name for name in names if importlib.util.find_spec(name) is None]
    for extra, names in EXTRAS.items()
}
MISSING = {extra: names for extra, names in MISSING.items() if names}
NAMED = re.compile(
    rf"No module named '({'|'.join(name for names in MISSING.values() for name in names)})\b"
    rf"|install '?latensor\[({'|'.join(MISSING)})\]"
)


def pytest_runtest_setup(item):
    """Skip what is marked to need libraries that are not installed."""
    for mark in item.iter_markers("needs"):
        for name in mark.args:
            if any(name in names for names in MISSING.values()):
                pytest.skip(f"{name} is not installed")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip modules and pages that import what is not installed."""
    return _skipped_without_extras((yield), collector.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Skip tests and examples that end because a library is not installed."""
    return _skipped_without_extras((yield), item.path)


def _skipped_without_extras(report, path):
    named = NAMED.search(report.longreprtext) if report.failed and MISSING else None
    if named is not None:
        name = named[1] or MISSING[named[2]][0]
        report.outcome = "skipped"
        report.longrepr = (str(path), 0, f"Skipped: {name} is not installed")
    return report
