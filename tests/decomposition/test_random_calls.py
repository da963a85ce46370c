"""Two hundred random calls: what a result says of itself is what it is."""

import warnings

import numpy as np
import pytest

import latensor as lt
from latensor.decomposition import Status, decompose
from latensor.decomposition.optimize.iteration import CONVERGED_STEPS

from .test_truth import gain_of_further_steps

FIRST, CALLS, TOL = 10_000, 200, 1e-7


def random_call(seed):
    """A tensor of some kind, its entries, the rank and options of one call."""
    rng = np.random.default_rng(seed)
    order = int(rng.integers(2, 6))
    shape = tuple(int(d) for d in rng.integers(2, {2: 12, 3: 9, 4: 6, 5: 4}[order], order))
    rank = int(rng.integers(1, min(5, np.prod(shape) // max(shape) + 1)))
    array = lt.CPTensor(None, tuple(rng.standard_normal((d, rank)) for d in shape)).to_dense()
    array = array + rng.choice([0.0, 0.1, 1.0]) * rng.standard_normal(shape)
    options = {"tol": TOL, "random_state": seed}
    if rng.random() < 0.3:
        options["ridge"] = float(rng.choice([1e-3, 0.1]))
    if rng.random() < 0.3:
        signed = [True, (0,), (0, order - 1)]
        options["nonnegative"] = signed[int(rng.integers(3))]
    if rng.random() < 0.2:
        options["algorithm"] = "als"
    kind = ["dense", "sparse", "tucker"][int(rng.integers(3))]
    if kind == "dense" and rng.random() < 0.15:
        mask = rng.random(shape) < 0.9
        corner = tuple(int(i) for i in rng.integers(0, shape))
        for mode in range(order):  # every slice is seen
            mask[tuple(slice(None) if m == mode else corner[m] for m in range(order))] = True
        options["mask"] = mask
    tensor = {
        "dense": lambda: array,
        "sparse": lambda: lt.SparseTensor.from_dense(array),
        "tucker": lambda: lt.TuckerTensor(array, (None,) * order),
    }[kind]()
    return tensor, array, rank, options


@pytest.mark.parametrize("part", range(20))
def test_residuals_and_statuses_are_true(part):
    for seed in range(part, CALLS, 20):
        tensor, array, rank, options = random_call(seed + FIRST)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", lt.ConvergenceWarning)
                result = decompose(tensor, rank, **options)
        except lt.NotIdentifiableError:
            assert "mask" in options
            continue
        seen = options.get("mask", np.ones(array.shape, dtype=bool))
        rest = (array - np.asarray(result.tensor.to_dense()))[seen]
        recomputed = np.linalg.norm(rest) / np.linalg.norm(array[seen])
        assert result.residual == pytest.approx(recomputed, abs=1e-10), seed
        if result.status is Status.CONVERGED and recomputed > 1e-6:
            held = {name: options.get(name) for name in ("mask", "ridge", "nonnegative")}
            held = {name: value for name, value in held.items() if value is not None}
            gain = gain_of_further_steps(array, result, **held)
            assert gain < CONVERGED_STEPS * TOL, (seed, gain)
