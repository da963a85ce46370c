"""The figure that sums up docs/benchmarks.md: `python docs/images/benchmark_figure.py`.

Every point is a row of a table there: the CPU time of the other library over ours on the same
data. What the rows are, and how good the answers are beside it, the tables say.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
PAGE = HERE.parent / "benchmarks.md"
_NUMBER = r"\d+(?:\.\d+)?(?:e[+-]?\d+)?"


def tables() -> list[tuple[list[str], list[list[str]]]]:
    """All tables of the page: heads and rows of cells."""
    found = []
    for block in re.findall(r"(?:^\|.*\n)+", PAGE.read_text(encoding="utf-8"), re.MULTILINE):
        head, _, *rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in block.splitlines()
        ]
        found.append((head, [row for row in rows if not row[0].strip("*").startswith("median")]))
    return found


def ratios() -> dict[str, list[float]]:
    """By area, the time of the other library over ours in every row."""
    found: dict[str, list[float]] = {}
    for heads, rows in tables():
        first = heads[0]
        if "faster of these / latensor" in heads:
            found["mttkrp, dense (TensorLy, pyttb)"] = _column(
                heads, rows, "faster of these / latensor"
            )
        elif "pyttb / latensor" in heads:
            found["mttkrp, sparse (pyttb)"] = _column(heads, rows, "pyttb / latensor")
        elif first == "problem" and "ours, s" in heads and "TensorLy, svd start" in heads[3]:
            area = "CP, to the other's error (TensorLy, pyttb)"
            found.setdefault(area, []).extend(
                min(_times(row[3:])) for row in rows if _times(row[3:])
            )
        elif first == "tensor" and "latensor auto: error, s" in heads:
            found["Tucker (TensorLy, pyttb ALS)"] = [min(_times(row[4:6])) for row in rows]
        elif first == "tensor" and heads[1] == "ranks":
            found["tensor trains (TensorLy)"] = [min(_times(row[3:])) for row in rows]
        elif first == "corpus (k)":
            found["topics (tomotopy, topica)"] = _column(heads, rows, "times faster")
        elif first.startswith("planted: failures, worst gap, CPU s"):
            pairs = [row[-1].split(",")[1] for row in rows]
            found["mixtures (scikit-learn, ten starts)"] = [float(pair) for pair in pairs]
        elif heads[-1] == "hmmlearn 100 / ours, time":
            found["hidden Markov models (hmmlearn)"] = _column(heads, rows, heads[-1])
        elif heads[-1] == "seconds: TensorLy, latensor":
            pairs = [row[-1].split(",") for row in rows]
            found["tensor regression (TensorLy)"] = [float(a) / float(b) for a, b in pairs]
        elif first.startswith(("quiet: Amari", "noisy: Amari")):
            area = "independent components (FastICA)"
            pairs = [row[-1].split(",") for row in rows]
            # Times are given to a hundredth of a second.
            times = [(float(b), float(a)) for a, b, _ in pairs if float(b) >= 0.02]
            found.setdefault(area, []).extend(b / a for b, a in times)
    return found


def _column(heads: list[str], rows: list[list[str]], name: str) -> list[float]:
    at = heads.index(name)
    return [
        float(row[at].strip("*x")) for row in rows if re.fullmatch(_NUMBER, row[at].strip("*x"))
    ]


def _times(cells: list[str]) -> list[float]:
    """Numbers that stand before an x: how many times ours."""
    return [float(number) for cell in cells for number in re.findall(rf"({_NUMBER})x", cell)]


def medians() -> dict[str, float]:
    """The median ratio of every area."""
    return {area: median(values) for area, values in ratios().items()}


def draw() -> None:
    """Write the figure."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    found = dict(sorted(ratios().items(), key=lambda item: median(item[1])))
    figure, axis = plt.subplots(figsize=(8.0, 0.42 * len(found) + 1.1), layout="constrained")
    for place, values in enumerate(found.values()):
        axis.plot(values, [place] * len(values), "o", color="#1c5d99", alpha=0.35, ms=5, mew=0)
        axis.plot([median(values)] * 2, [place - 0.32, place + 0.32], color="#1c2127", lw=2)
        text = f"{median(values):.2g}" if median(values) < 10 else f"{median(values):.0f}"
        axis.text(
            0.985, place, f"×{text}", ha="right", va="center", transform=axis.get_yaxis_transform()
        )
    axis.axvline(1.0, color="#8a5a00", lw=1, ls="--")
    axis.set_xscale("log")
    axis.set_xlim(0.1, 3000)
    axis.set_yticks(range(len(found)), list(found))
    axis.set_xlabel("CPU time of the other library / ours; the bar is the median")
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(axis="y", length=0)
    figure.savefig(HERE / "benchmarks.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    draw()
    print(", ".join(f"{area} {value:.2g}" for area, value in medians().items()))
