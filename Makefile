# The two commands a newcomer needs are `make demo` and `make test`; each sets up its own
# environment in .venv from nothing but Python and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Modules are compiled when they are imported, which most of what is installed never is.
# They are kept then, whatever the shell says: a process that finds none compiles a thousand, three seconds.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(BIN)/python -m pip --disable-pip-version-check --quiet install --no-compile

.PHONY: demo test test-slow test-long test-spark lint format docs clean help bench-algebra bench-cp bench-tucker \
	bench-slices bench-matrices bench-regression bench-nn bench-nonlinear bench-topics bench-topics-stream \
	bench-mixtures bench-graphs bench-trees bench-hard bench-engines bench-spark-ml bench-quick bench-auto coverage
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[plots]"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[dev]"
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-docs: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[plots,docs]"
	@touch $@

demo: $(VENV)/.installed-demo  ## See latensor at work
	$(BIN)/latensor demo

# Two workers with one BLAS thread each: threads of BLAS that wait for a busy core spin. A file is
# tested by one worker: what it fits once and what JAX and Numba compile for it is not done twice. Pages,
# each one long test, come first, so that no worker waits for one at the end.
PYTEST := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -q --durations=150 --durations-min=1

test: $(VENV)/.installed-dev  ## Run the tests, the examples in README and docs included
	$(PYTEST) -m "not slow and not long"

test-slow: $(VENV)/.installed-dev  ## Run further seeds, shapes and libraries of what takes long
	$(PYTEST) -m "slow and not long"

test-long: $(VENV)/.installed-dev  ## Run what is left out by both, before a release
	$(PYTEST) -m long

test-spark: $(VENV)/.installed-dev  ## Run the tests of Spark; installs pyspark and, with apt, a JRE
	VENV=$(VENV) .ci/spark

lint: $(VENV)/.installed-dev  ## ruff, ruff format, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	@! git grep -nE '^(<<<<<<<|>>>>>>>) ' -- . || (echo "conflicts are left in these lines" && false)

format: $(VENV)/.installed-dev  ## Rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-docs  ## Build the documentation into docs/_build/html
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# One folder after the other, so that no process holds all libraries; compiled kernels cannot be traced.
COVERED := $(filter-out __pycache__,$(notdir $(patsubst %/,%,$(wildcard tests/*/))))

coverage: $(VENV)/.installed-dev  ## Lines that the quick tests reach, all folders; ten minutes
	rm -f .coverage .coverage.*
	for folder in $(COVERED); do \
		$(BIN)/coverage run --parallel-mode --source=latensor -m pytest -q -m "not slow and not long" tests/$$folder || exit 1; \
	done
	$(BIN)/coverage combine -q
	$(BIN)/coverage report --omit='*/_kernels.py' --skip-covered

bench-quick: $(VENV)/.installed-dev  ## Whether anything got slower, in five minutes
	$(BIN)/python -m benchmarks.quick

bench-algebra: $(VENV)/.installed-dev  ## Dense and sparse mttkrp beside TensorLy and pyttb
	$(BIN)/python -m benchmarks.algebra

bench-cp: $(VENV)/.installed-dev  ## CP beside TensorLy and pyttb: time to the peer's own error
	$(BIN)/python -m benchmarks.cp

bench-tucker: $(VENV)/.installed-dev  ## Tucker beside TensorLy and pyttb
	$(BIN)/python -m benchmarks.tucker

bench-slices: $(VENV)/.installed-dev  ## PARAFAC2 and tensor trains beside TensorLy
	$(BIN)/python -m benchmarks.slices_and_trains

bench-hard: $(VENV)/.installed-dev  ## Overcomplete tensors, tensor PCA and robust PCA beside TensorLy
	$(BIN)/python -m benchmarks.hard

bench-matrices: $(VENV)/.installed-dev  ## PCA and CCA beside scikit-learn
	$(BIN)/python -m benchmarks.matrices

bench-regression: $(VENV)/.installed-dev  ## CP and Tucker regression beside TensorLy and scikit-learn
	$(BIN)/python -m benchmarks.regression --write

bench-nn: $(VENV)/.installed-dev  ## Compressed networks and layers beside dense ones
	$(BIN)/python -m benchmarks.nn --write

$(VENV)/.installed-bench-topics: pyproject.toml | $(BIN)/python
	$(INSTALL) -e ".[bench-topics]"
	@touch $@

bench-topics: $(VENV)/.installed-bench-topics  ## Topics beside tomotopy, topica, scikit-learn and gensim
	$(BIN)/python -m benchmarks.topics

bench-topics-stream: $(VENV)/.installed-demo  ## A million documents from disk
	$(BIN)/python -m benchmarks.topics_stream

bench-engines: $(VENV)/.installed-dev  ## Local threads, Dask and many partitions: time, bytes and memory
	$(BIN)/python -m benchmarks.engines

bench-spark-ml: $(VENV)/.installed-dev  ## Spark ML's LDA and GaussianMixture beside ours; needs pyspark and Java
	$(BIN)/python -m benchmarks.spark_ml --write

bench-nonlinear: $(VENV)/.installed-dev  ## Noisy-or, regressions and neural networks beside random starts
	$(BIN)/python -m benchmarks.nonlinear --seeds 20 --write
	$(BIN)/python -m benchmarks.two_layer --seeds 20 --write

bench-mixtures: $(VENV)/.installed-dev  ## Mixtures, chains and components beside scikit-learn, hmmlearn, picard
	$(INSTALL) -e ".[bench-mixtures]"
	$(BIN)/python -m benchmarks.mixtures
	$(BIN)/python -m benchmarks.gaussian_mixtures
	$(BIN)/python -m benchmarks.hmm
	$(BIN)/python -m benchmarks.ica

bench-auto: $(VENV)/.installed-dev  ## How often n_components="auto" finds the planted number, and real sets
	$(INSTALL) -e ".[bench-mixtures]"
	$(BIN)/python -m benchmarks.auto

bench-graphs: $(VENV)/.installed-dev  ## Communities beside regularized spectral clustering and scikit-learn
	$(BIN)/python -m benchmarks.graphs --write

bench-trees: $(VENV)/.installed-dev  ## Latent trees beside neighbour joining
	$(BIN)/python -m benchmarks.trees --first 50 --write

clean:  ## Remove everything that the other commands made
	rm -rf $(VENV) docs/_build demo-output .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
