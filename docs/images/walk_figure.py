"""The figure and the numbers of docs/decompose_walk.md: `python docs/images/walk_figure.py`.

Calls the stages of `lt.decompose` one after the other, as `auto/pipeline.py` does, and plots the
relative residual after every iteration that a callback would see, by stage.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

import latensor as lt
from latensor.decomposition.auto.compress import compress_to_core
from latensor.decomposition.auto.converge import converge
from latensor.decomposition.auto.core import Task
from latensor.decomposition.auto.finish import finish
from latensor.decomposition.auto.initialize import initialize
from latensor.decomposition.auto.search import improved
from latensor.decomposition.optimize.iteration import Monitor
from latensor.decomposition.setup import as_problem, as_tensor
from latensor.decomposition.subspace.compression import compressed_shape

SHAPE, TRUE_RANK, RANK, CONGRUENCE, NOISE, SEED = (60, 50, 40), 8, 5, 0.7, 0.3, 0


def example() -> np.ndarray:
    """Eight components of congruence 0.7 and noise, to be fitted by five."""
    rng = np.random.default_rng(SEED)
    gram = np.full((TRUE_RANK, TRUE_RANK), CONGRUENCE) + (1 - CONGRUENCE) * np.eye(TRUE_RANK)
    root = np.linalg.cholesky(gram).T
    factors = [np.linalg.qr(rng.standard_normal((d, TRUE_RANK)))[0] @ root for d in SHAPE]
    signal = lt.CPTensor(rng.uniform(0.1, 1.0, TRUE_RANK), tuple(factors)).to_dense()
    noise = rng.standard_normal(SHAPE)
    return signal + noise * (NOISE * np.linalg.norm(signal) / np.linalg.norm(noise))


def stages() -> tuple[list[tuple[str, int, float]], list[float]]:
    """Name, last iteration and residual of every stage, and the residuals of all iterations."""
    data = as_tensor(example())
    problem = as_problem(data, RANK)
    monitor = Monitor(problem.squared_norm)
    task = Task(data, problem, RANK, np.random.default_rng(SEED), monitor, 1e-7, True)
    found: list[tuple[str, int, float]] = []

    def note(stage: str, loss: float) -> None:
        found.append((stage, len(monitor.history), monitor.relative(loss)))

    core = compress_to_core(task, compressed_shape(problem.shape, RANK))
    note("compress", 0.0)
    fit = initialize(core)
    note("initialize", fit.loss)
    fit = converge(core, fit)
    note("fit the core", fit.loss)
    fit = improved(core, fit, thorough=True)
    note("replace components", fit.loss)
    fit = finish(task, core, fit)
    note("finish", fit.loss)
    return found, monitor.history


def main() -> None:
    """Print the table of the stages and write the figure."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    found, history = stages()
    whole = lt.decompose(example(), RANK, random_state=SEED)
    for stage, end, residual in found:
        print(f"{stage:20s} iteration {end:3d}  {residual:.5f}")
    print(f"lt.decompose          {whole.residual:.5f} {whole.status.name}")
    figure, axes = plt.subplots(figsize=(7, 3))
    excess = np.array([found[1][2], *history]) / history[-1] - 1.0
    axes.semilogy(np.arange(len(excess) - 1), excess[:-1], "o-", color="black", markersize=3)
    begin = 0
    for stage, end, _ in found[2:]:
        if end > begin:
            axes.axvspan(begin, end, alpha=0.3 if stage == "replace components" else 0.12)
            axes.text(
                (begin + end) / 2,
                0.05,
                stage,
                ha="center",
                va="bottom",
                rotation=90,
                transform=axes.get_xaxis_transform(),
            )
        begin = end
    axes.set(xlabel="iteration", ylabel="residual above the last", xlim=(0, len(history)))
    figure.tight_layout()
    figure.savefig(Path(__file__).with_name("walk.png"), dpi=150)


if __name__ == "__main__":
    main()
