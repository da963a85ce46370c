"""The pictures of pages `image`, `decompose`, `fit` and `robust`: `python docs/images/make.py`."""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_sample_image

import latensor as lt
from latensor.plots import components, density, images, rank_evidence, save

HERE = Path(__file__).parent


def photograph():
    """A photograph, CP of rank 50, and Tucker of the same number of parameters."""
    original = load_sample_image("china.jpg").astype(float)
    shape = original.shape
    cp = lt.decompose(original, 50, random_state=0)
    tucker = lt.tucker(original, 44, modes=(0, 1), random_state=0)
    kept = {
        "CP of rank 50": (cp, 50 * (sum(shape) + 1)),
        "Tucker 44 x 44 x 3": (tucker, 44 * 44 * 3 + 44 * (shape[0] + shape[1])),
    }
    pictures = {f"original, {original.size:,} numbers": original}
    for form, (found, numbers) in kept.items():
        title = f"{form}, {numbers:,} numbers, error {found.residual:.3f}"
        pictures[title] = found.tensor.to_dense()
    coarse = lt.decompose(original, 15, random_state=0)
    numbers = 15 * (sum(shape) + 1)
    title = f"CP of rank 15, {numbers:,} numbers, error {coarse.residual:.3f}"
    pictures[title] = coarse.tensor.to_dense()
    save(images(pictures), HERE / "photograph.jpg", dpi=90)


def spectra():
    """The spectra of docs/decompose.md."""
    emission, excitation = np.linspace(250.0, 450.0, 101), np.linspace(240.0, 300.0, 61)

    def peaks(x, centres, widths):
        return np.exp(-0.5 * ((x[:, None] - centres) / widths) ** 2)

    amounts = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.4, 0.5], [0.3, 0.3, 0.4]])
    factors = [
        amounts,
        peaks(emission, [355, 305, 285], [25, 18, 15]),
        peaks(excitation, [277, 274, 258], [14, 12, 10]),
    ]
    truth = lt.CPTensor(None, factors)
    tensor = truth.to_dense() + 0.02 * np.random.default_rng(0).standard_normal(truth.shape)
    found = lt.decompose(tensor, 3, random_state=0)
    labels = {1: emission, 2: excitation}
    names = ["sample", "emission (nm)", "excitation (nm)"]
    save(components(found, labels=labels, names=names), HERE / "components.png", dpi=80)
    save(rank_evidence(lt.select_rank(tensor, random_state=0)), HERE / "rank.png", dpi=80)


def crabs():
    """The crabs of docs/fit.md."""
    counts = [1, 3, 5, 2, 7, 10, 13, 19, 20, 25, 40, 31, 60, 62, 54]
    counts += [74, 84, 86, 96, 85, 75, 47, 43, 24, 19, 9, 5, 0, 1]
    classes = np.arange(1, 30)
    model = lt.PearsonMixture(refine=0, random_state=0).fit(classes, sample_weight=counts)
    save(density(model, classes, sample_weight=counts, name="class"), HERE / "crabs.png", dpi=80)


def video():
    """The video of docs/robust.md: one frame, its background, what moves."""
    rows, columns, frames = 36, 48, 60
    y, x = np.mgrid[0:rows, 0:columns]
    scene = 0.5 + 0.2 * np.sin(x / 7) + 0.2 * np.cos(y / 5)
    light = 0.8 + 0.2 * np.sin(np.arange(frames) / 9)
    film = scene[:, :, None] * light
    for t in range(frames):
        film[12:20, 3 + 2 * t // 3 : 9 + 2 * t // 3, t] = 1.0
    film = film + 0.01 * np.random.default_rng(0).standard_normal(film.shape)
    found = lt.robust_pca(film.reshape(-1, frames), 1)
    shown = 30
    background = found.low_rank.to_dense().reshape(film.shape)[:, :, shown]
    moving = found.sparse.to_dense().reshape(film.shape)[:, :, shown]
    pictures = {
        f"frame {shown} of {frames}": film[:, :, shown],
        "low rank: the background": background,
        "sparse: what moves": moving,
        "pixels that move": (moving != 0).astype(float),
    }
    save(images(pictures), HERE / "robust_pca.png", dpi=60)


def completion():
    """The film of docs/completion.md: one frame as observed, completed, and as it is."""
    y, x, t = np.mgrid[0:36, 0:48, 0:60]
    light = 0.8 + 0.2 * np.sin(t / 9)
    film = light * (0.5 + 0.2 * np.sin(x / 7) + 0.2 * np.cos(y / 5)) + 0.2 * np.sin(x / 4 - t / 5)
    seen = np.random.default_rng(0).random(film.shape) < 0.05
    found = lt.complete(np.where(seen, film, np.nan), 4).tensor.to_dense()
    shown = 30
    pictures = {
        f"frame {shown} of 60, 5 % observed": np.where(seen, film, 0.0)[:, :, shown],
        "completed": found[:, :, shown],
        "as it is": film[:, :, shown],
    }
    save(images(pictures), HERE / "completion.png", dpi=60)


if __name__ == "__main__":
    photograph()
    spectra()
    crabs()
    video()
    completion()
