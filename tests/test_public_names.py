"""The public names: what the lazy table promises, type checkers and `dir` see too."""

import ast
from importlib import resources

import pytest

import latensor


def test_the_stub_names_what_the_table_names():
    stub = ast.parse((resources.files("latensor") / "__init__.pyi").read_text())
    found = {
        (node.module.removeprefix("latensor."), alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != "latensor"
        for alias in node.names
    }
    expected = {(home, name) for home, names in latensor._HOMES.items() for name in names}
    assert found == expected
    packages = {
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module == "latensor"
        for alias in node.names
    }
    assert packages == set(latensor._HOMES)


def test_warnings_reach_callers_without_a_name():
    # As code that is run by exec, or a doctest, has none.
    exec("from latensor.exceptions import warn_caller", scope := {})
    with pytest.warns(UserWarning, match="to somebody"):
        exec("warn_caller('to somebody', UserWarning)", scope)
