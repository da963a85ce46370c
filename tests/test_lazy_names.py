"""Names that load on first use: the function is never hidden by the module of its name."""

import importlib
import subprocess
import sys

import pytest

import latensor as lt
from latensor.lazy import postponed

PACKAGES = (
    "latensor",
    "latensor.decomposition",
    "latensor.diagnostics",
    "latensor.models",
    "latensor.sources",
    "latensor.tensors",
)


# Half a second, of which a fit needs nothing: scikit-learn imports it for one function.
SLOW = "scipy.stats"


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_functions_are_not_hidden_by_modules_of_their_name():
    # Submodules first: importing one sets it as an attribute of its package.
    names = ("complete", "decompose", "parafac2", "tensor_pca", "tensor_train", "tucker")
    modules = ", ".join(f"latensor.decomposition.{name}" for name in names)
    code = f"import {modules}, latensor\n"
    code += "".join(f"assert latensor.{name}.__name__ == '{name}'\n" for name in names)
    code += "import latensor.sources.shards, latensor.sources.partitions\n"
    code += "assert callable(latensor.sources.shards) and callable(latensor.sources.partitions)"
    run(code)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_is_there(package):
    found = __import__(package, fromlist=["x"])
    assert all(getattr(found, name) is not None for name in found.__all__)
    assert set(found.__all__) <= set(dir(found))
    with pytest.raises(AttributeError, match="no_such_name"):
        found.no_such_name  # noqa: B018


def test_former_modules():
    from latensor.decomposition.gauss_newton import GaussNewton
    from latensor.decomposition.least_squares import AlternatingLeastSquares

    assert GaussNewton is lt.decomposition.GaussNewton
    assert AlternatingLeastSquares is lt.decomposition.AlternatingLeastSquares


@pytest.mark.parametrize(
    "model, modules",
    [
        ("LatentDirichletAllocation", ["latensor.decomposition.auto", "scipy.cluster", SLOW]),
        ("GaussianMixture", ["latensor.decomposition.auto", "latensor.sources.files", SLOW]),
    ],
)
def test_a_model_waits_for_nothing_that_it_does_not_need(model, modules):
    run(f"import sys, latensor; latensor.{model}\nassert not set({modules}) & set(sys.modules)")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that loads its submodule `late.part` on first use, as SciPy does."""
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "__init__.py").write_text(
        "import importlib\n"
        "def __getattr__(name):\n"
        "    if name == 'part': return importlib.import_module('late.part')\n"
        "    raise AttributeError(name)\n"
    )
    (tmp_path / "late" / "part.py").write_text("value = 7\n")
    (tmp_path / "binds.py").write_text("import late.part\ndef ask(): return late.part.value\n")
    (tmp_path / "takes.py").write_text("from late.part import value\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("late", "late.part", "binds", "takes"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("package")
def test_a_postponed_module_is_there_when_it_is_used():
    with postponed("late.part"):
        binds = importlib.import_module("binds")
    assert "late.part" not in sys.modules
    assert binds.ask() == 7
    assert importlib.import_module("late.part").value == 7
    with postponed("late.part"):  # what is loaded stays
        assert sys.modules["late.part"].value == 7


@pytest.mark.usefixtures("package")
def test_a_postponed_module_is_loaded_for_those_who_take_a_name_of_it():
    with postponed("late.part"):
        assert importlib.import_module("takes").value == 7
    assert sys.modules["late.part"].__file__.endswith("part.py")


@pytest.mark.usefixtures("package")
def test_an_error_within_the_block_leaves_no_placeholder():
    with pytest.raises(ModuleNotFoundError), postponed("late.part"):
        importlib.import_module("late.missing")
    assert "late.part" not in sys.modules
