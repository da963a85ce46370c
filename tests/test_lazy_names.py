"""Names that load on first use: the function is never hidden by the module of its name."""

import subprocess
import sys

import pytest

import latensor as lt

PACKAGES = (
    "latensor",
    "latensor.decomposition",
    "latensor.diagnostics",
    "latensor.models",
    "latensor.sources",
    "latensor.tensors",
)


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
        ("LatentDirichletAllocation", ["latensor.decomposition.auto", "scipy.cluster"]),
        ("GaussianMixture", ["latensor.decomposition.auto", "latensor.sources.files"]),
    ],
)
def test_a_model_waits_for_nothing_that_it_does_not_need(model, modules):
    run(f"import sys, latensor; latensor.{model}\nassert not set({modules}) & set(sys.modules)")
