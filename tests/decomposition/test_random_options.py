"""Random pairs of options on all kinds of tensors: residuals are true, fixed modes stay."""

import warnings

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition import Status, decompose
from latensor.decomposition.optimize.iteration import CONVERGED_STEPS
from latensor.decomposition.optimize.levenberg_marquardt import LevenbergMarquardt
from latensor.decomposition.optimize.masked import observe
from latensor.decomposition.optimize.normal_equations import FreeFactors
from latensor.decomposition.setup import as_problem, as_tensor, starting_factors

FIRST, CALLS, TOL = 15_000, 60, 1e-7
SHAPES = {
    "Unimodal": lt.constraints.Unimodal(),
    "Monotone": lt.constraints.Monotone(),
    "Smooth": lt.constraints.Smooth(1.0),
    "Sparse": lt.constraints.Sparse(0.1),
    "Simplex": lt.constraints.Simplex(),
    "Nonnegative": lt.constraints.Nonnegative(),
}
OPTIONS = ("ridge", "nonnegative", "constraints", "mask", "fixed_modes", "init", "sparsity")


def random_call(seed):
    """A tensor of some kind, its entries, the rank and two options of one call."""
    rng = np.random.default_rng(seed)
    order = int(rng.integers(2, 6))
    shape = tuple(int(d) for d in rng.integers(2, {2: 12, 3: 9, 4: 6, 5: 4}[order], order))
    rank = int(rng.integers(1, min(5, np.prod(shape) // max(shape) + 1)))
    factors = [rng.standard_normal((d, rank)) for d in shape]
    if rng.random() < 0.12:
        factors = [f + 1j * rng.standard_normal(f.shape) for f in factors]
    planted = lt.CPTensor(None, tuple(factors))
    array = planted.to_dense() + rng.choice([0.0, 0.1, 1.0]) * rng.standard_normal(shape)
    algorithm = str(rng.choice(["auto", "auto", "als", "gauss_newton"]))
    options = {"tol": TOL, "random_state": seed, "algorithm": algorithm}
    for name in rng.choice(OPTIONS, 2, replace=False):
        if name == "ridge":
            options[name] = float(rng.choice([1e-3, 0.1]))
        elif name == "nonnegative":
            options[name] = [True, (0,), (0, order - 1)][int(rng.integers(3))]
        elif name == "constraints":
            options[name] = {int(rng.integers(order)): SHAPES[str(rng.choice(list(SHAPES)))]}
        elif name == "mask":
            options[name] = rng.random(shape) < 0.9
        elif name == "sparsity":
            options[name] = 0.05
        else:
            drawn = [abs(rng.standard_normal((d, rank))).astype(array.dtype) for d in shape]
            options["init"] = np.ones(rank), drawn
            if name == "fixed_modes":
                options[name] = [int(rng.integers(order))]
    kind = "dense" if {"mask", "sparsity"} & set(options) else str(rng.choice(list(KINDS)))
    array = planted.to_dense() if kind == "factored" else array
    return KINDS[kind](array, planted), array, rank, options


KINDS = {
    "dense": lambda array, planted: array,
    "sparse": lambda array, planted: lt.SparseTensor.from_dense(array),
    "tucker": lambda array, planted: lt.TuckerTensor(array, (None,) * array.ndim),
    "train": lambda array, planted: lt.tensor_train(array, error=1e-14),
    "factored": lambda array, planted: planted,
}


def gain_of_further_steps(array, result, options):
    """The fraction of the loss that 50 Gauss-Newton steps over the free modes take off."""
    data, fixed = as_tensor(array), tuple(options.get("fixed_modes", ()))
    problem = as_problem(data) if "mask" not in options else observe(data, options["mask"])
    last = max(set(range(array.ndim)) - set(fixed))
    model = FreeFactors(problem, options.get("ridge", 0.0), fixed)
    walk = LevenbergMarquardt(model)
    rows = starting_factors(result, problem.shape, result.rank, last)
    point = walk.start(model.stack(rows))
    before = point.loss
    for _ in range(CONVERGED_STEPS):
        point = walk.step(point)
    return (before - point.loss) / before


@pytest.mark.parametrize("part", range(6))
def test_pairs_of_options_are_refused_in_words_or_true(part):
    for seed in range(FIRST + part, FIRST + CALLS, 6):
        tensor, array, rank, options = random_call(seed)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", lt.ConvergenceWarning)
                result = decompose(tensor, rank, **options)
        except (lt.InvalidInputError, lt.NotIdentifiableError):
            continue
        seen = options.get("mask", np.ones(array.shape, dtype=bool))
        model = np.asarray(result.tensor.to_dense())
        if "sparsity" in options:
            model = model + result.sparse.to_dense()
        recomputed = np.linalg.norm((array - model)[seen]) / np.linalg.norm(array[seen])
        assert result.residual == pytest.approx(recomputed, abs=1e-10), seed
        for mode in options.get("fixed_modes", ()):
            np.testing.assert_array_equal(result.factors[mode], options["init"][1][mode])
        proved = result.status is Status.CONVERGED and recomputed > 1e-6
        if proved and not {"sparsity", "constraints", "nonnegative"} & set(options):
            assert gain_of_further_steps(array, result, options) < CONVERGED_STEPS * TOL, seed
