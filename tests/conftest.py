"""Every array library the tests know, as fixtures; a library that is not installed is skipped."""

import gc
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# JAX reads this once, on import: without it every float64 array would silently become float32.
os.environ.setdefault("JAX_ENABLE_X64", "1")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Thousands of small programs are compiled once and run once: optimizing them is not worth it, and
# neither is dividing them among threads.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    " --xla_cpu_parallel_codegen_split_count=1",
)

import numpy as np
import pytest

LIBRARIES = ("numpy", "torch", "jax")
DTYPES = ("float32", "float64", "complex64", "complex128")
# Parametrizations of a test that JAX sees: each takes nearly a second, for compiling, and the
# arithmetic of the others is that of NumPy and PyTorch.
MOST_OF_JAX = 4
# Where scikit-learn's checks of an estimator all run in `make test`.
CONTRACTS = {
    "test_gaussian_mixture.py",
    "test_pca.py",
    "test_single_topic.py",
    "test_tensor_regressors.py",
}

# Marks of the first, the second and all further parametrizations, by the word in slow_tests.txt.
MARKS = {
    "": (None, "slow", "slow"),
    "few": (None, "slow", "long"),
    "all": ("slow", "slow", "slow"),
    "late": ("slow", "long", "long"),
    "long": ("long", "long", "long"),
}


@dataclass(frozen=True)
class Library:
    """An array library: how a NumPy array enters it and comes back."""

    name: str
    module: Any

    def array(self, values, dtype=None):
        host = np.array(values, dtype=dtype)
        if self.name == "numpy":
            return host
        return self.module.asarray(host)

    def arrays(self, many, dtype=None):
        return [self.array(values, dtype) for values in many]

    def owns(self, value) -> bool:
        from latensor.arrays import is_array, library_name

        return is_array(value) and library_name(value) == self.name

    def host(self, value):
        """`value` on the host, after making sure that it belongs to this library."""
        from latensor.arrays import to_host

        assert self.owns(value) or (self.name == "numpy" and np.isscalar(value)), type(value)
        return to_host(value) if not np.isscalar(value) else value


def pytest_generate_tests(metafunc):
    """Run a test that asks for `library`, `dtype` or both on all of them.

    JAX compiles every shape and dtype anew, which is nearly all the time its tests take: beside
    both it sees one real and one complex dtype, one single and one double.
    """
    names = metafunc.fixturenames
    marks = metafunc.definition.iter_markers("parametrize")
    own_dtype = any("dtype" in str(mark.args[0]) for mark in marks)
    if "library" in names and "dtype" in names and not own_dtype:
        pairs = [
            (library, dtype)
            for library in LIBRARIES
            for dtype in (DTYPES if library != "jax" else ("float32", "complex128"))
        ]
        metafunc.parametrize(("library", "dtype"), pairs, indirect=["library"])
    elif "library" in names:
        metafunc.parametrize("library", LIBRARIES, indirect=True)
    elif "dtype" in names and not own_dtype:
        metafunc.parametrize("dtype", DTYPES)


@pytest.fixture
def library(request) -> Library:
    module = {"numpy": "numpy", "torch": "torch", "jax": "jax.numpy"}[request.param]
    try:
        return Library(request.param, importlib.import_module(module))
    except ImportError:
        pytest.skip(f"{request.param} is not installed")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260101)


def pytest_collection_finish(session):
    """Keep the garbage collector from going over what was imported, again and again.

    PyTorch, JAX and scikit-learn make up nearly all objects of the process, and stay: a tenth of
    the time of all tests went into looking at them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(config, items):
    """Mark as slow all but the first of what takes long, and as long what few changes can break.

    slow_tests.txt names the tests and says how. Of the others, JAX, which compiles every shape and
    dtype anew, is slow in its second parametrization and long from its third on. Estimators share
    a base: the first of each file in CONTRACTS meets all of scikit-learn's checks in `make test`,
    the others one; every class does in `make test-slow`, and other settings of it in
    `make test-long`.
    """
    _thin_out_jax(config, items)
    lines = (Path(__file__).parent / "slow_tests.txt").read_text().splitlines()
    listed = dict(line.partition(" ")[::2] for line in lines if not line.startswith("#"))
    root, cases, classes = Path(__file__).parents[1], {}, {}
    for item in items:
        name = item.path.relative_to(root).as_posix()
        if isinstance(item, pytest.Function):
            name += f"::{item.originalname}"
        call = getattr(item, "callspec", None)
        guest = next((name for name in ("torch", "jax") if name in getattr(call, "id", "")), None)
        how, kind, case = listed.get(name), name, item.nodeid
        if how is None and call is not None and {"estimator", "check"} <= call.params.keys():
            settings = repr(call.params["estimator"])
            case = settings if item.path.name in CONTRACTS else case
            known = classes.setdefault((name, type(call.params["estimator"])), settings)
            how = "" if settings == known else "long"
        elif how is None and guest != "jax":
            continue
        # Other libraries have a first parametrization of their own.
        if guest is not None and how in (None, "few"):
            kind, how = f"{name} {guest}", "late" if how == "few" else "few"
        seen = cases.setdefault(kind, [])
        if case not in seen:
            seen.append(case)
        mark = MARKS[how][min(seen.index(case), 2)]
        if mark is not None:
            item.add_marker(mark)


def _thin_out_jax(config, items):
    """Leave of every test at most MOST_OF_JAX parametrizations with JAX, evenly chosen."""
    tests = {}
    for item in items:
        if "jax" in getattr(getattr(item, "callspec", None), "id", "").split("-"):
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    dropped = set()
    for found in tests.values():
        kept = np.linspace(0, len(found) - 1, MOST_OF_JAX).round().astype(int).tolist()
        if len(found) > MOST_OF_JAX:
            dropped |= {id(item) for i, item in enumerate(found) if i not in kept}
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
        items[:] = [item for item in items if id(item) not in dropped]
