"""Mttkrp of all modes of a dense tensor, as a sweep of ALS needs it, beside TensorLy and pyttb."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import numpy as np

import latensor as lt
from benchmarks.timing import in_turn, milliseconds

SHAPES = [(100,) * 3, (300,) * 3, (60,) * 4]
RANKS = [10, 50]
HEAD = (
    "| tensor | rank | latensor ms | TensorLy ms | pyttb mttkrp ms | faster of these / latensor "
    "| pyttb mttkrps ms | mttkrps / latensor |"
)


def sweep(tensor: np.ndarray, factors: list[np.ndarray]) -> list[np.ndarray]:
    """One sweep as ALS does it: each factor is replaced as soon as its mttkrp is known."""
    run = lt.sweep(tensor, factors)
    results = []
    for mode, factor in enumerate(factors):
        results.append(run.mttkrp(mode))
        run.replace(mode, factor)
    return results


def rows() -> Iterator[str]:
    import pyttb
    from tensorly.tenalg import unfolding_dot_khatri_rao

    yield HEAD
    yield "|---" * 8 + "|"
    ratios, shared_ratios = [], []
    for shape in SHAPES:
        rng = np.random.default_rng(0)
        tensor = rng.standard_normal(shape)
        # pyttb keeps tensors in column-major order: it gets its own copy in the layout it likes.
        theirs = pyttb.tensor(np.asfortranarray(tensor))
        for rank in RANKS:
            factors = [rng.standard_normal((d, rank)) for d in shape]
            columns = [np.asfortranarray(factor) for factor in factors]
            modes = range(len(shape))
            methods = {
                "latensor": lambda: sweep(tensor, factors),  # noqa: B023
                "TensorLy": lambda: [
                    unfolding_dot_khatri_rao(tensor, (None, factors), m)  # noqa: B023
                    for m in modes  # noqa: B023
                ],
                "pyttb": lambda: [theirs.mttkrp(columns, m) for m in modes],  # noqa: B023
                # Shares work between modes as we do, but with one set of factors for all of
                # them: a sweep of ALS, which replaces factors on its way, cannot use it.
                "pyttb mttkrps": lambda: theirs.mttkrps(columns),  # noqa: B023
            }
            answers = {name: call() for name, call in methods.items()}
            for name, answer in answers.items():
                for ours, other in zip(answers["latensor"], answer, strict=True):
                    assert np.allclose(ours, other, rtol=1e-9, atol=1e-9 * np.abs(ours).max()), name
            times = in_turn(methods)
            ratio = min(times["TensorLy"], times["pyttb"]) / times["latensor"]
            shared = times["pyttb mttkrps"] / times["latensor"]
            ratios.append(ratio)
            shared_ratios.append(shared)
            yield (
                f"| {' x '.join(map(str, shape))} | {rank} | {milliseconds(times['latensor'])} "
                f"| {milliseconds(times['TensorLy'])} | {milliseconds(times['pyttb'])} "
                f"| {ratio:.2f} | {milliseconds(times['pyttb mttkrps'])} | {shared:.2f} |"
            )
    yield (
        f"| median | | | | | {statistics.median(ratios):.2f} "
        f"| | {statistics.median(shared_ratios):.2f} |"
    )


if __name__ == "__main__":
    for row in rows():
        print(row, flush=True)
