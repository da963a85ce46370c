"""Planted Gaussian mixtures with full and tied covariances: the settings of the comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Planted:
    """A mixture with full covariances (k, d, d), to draw rows from."""

    weights: Any
    means: Any
    covariances: Any

    def draw(self, n_rows: int, seed: int) -> Any:
        """Rows (n, d)."""
        rng = np.random.default_rng(seed)
        labels = rng.choice(len(self.weights), n_rows, p=self.weights)
        lower = np.linalg.cholesky(self.covariances)
        noise = rng.standard_normal((n_rows, self.means.shape[1]))
        return self.means[labels] + np.einsum("nab,nb->na", lower[labels], noise)


@dataclass(frozen=True)
class Setting:
    """A way to plant mixtures: k components in d dimensions.

    `separation` is the median distance of a mean to the nearest other one in average deviations,
    `ratio` that of the extreme eigenvalues of each covariance, log-uniform between.
    """

    name: str
    width: int
    count: int
    n_rows: int
    separation: float = 4.0
    ratio: float = 10.0
    kind: str = "general"

    def plant(self, seed: int) -> Planted:
        """The mixture of a seed."""
        rng = np.random.default_rng([seed, self.width, self.count, self.n_rows])
        d, k = self.width, self.count
        weights = rng.uniform(0.5, 1.5, k)
        covariances = np.stack([_covariance(rng, d, self.ratio) for _ in range(k)])
        means = rng.standard_normal((k, d))
        if self.kind == "nested":
            # One place, scales apart by a factor of three each.
            scales = 3.0 ** np.arange(k)
            covariances = covariances * (scales**2)[:, None, None]
            means = means * 0.1
        elif self.kind == "pancakes":
            # Parallel thin clusters, apart along their narrow axis only.
            axis = np.linalg.qr(rng.standard_normal((d, 1)))[0][:, 0]
            narrow = 0.05
            flat = np.eye(d) - (1 - narrow**2) * np.outer(axis, axis)
            covariances = np.stack([flat] * k)
            return Planted(
                weights / weights.sum(),
                np.outer(np.arange(k) * narrow * self.separation, axis),
                covariances,
            )
        else:
            means = _spread(means, self.separation, covariances)
        if self.kind == "rare":
            weights = np.array([0.01, *rng.uniform(0.5, 1.5, k - 1)])
            weights[1:] *= 0.99 / weights[1:].sum()
        elif self.kind == "geometric":
            weights = 0.62 ** np.arange(k)
        elif self.kind == "tied":
            covariances = np.stack([_covariance(rng, d, self.ratio)] * k)
            means = _spread(rng.standard_normal((k, d)), self.separation, covariances)
        return Planted(weights / weights.sum(), means, covariances)


def _covariance(rng: np.random.Generator, width: int, ratio: float) -> Any:
    values = np.exp(rng.uniform(-np.log(ratio) / 2, np.log(ratio) / 2, width))
    frame = np.linalg.qr(rng.standard_normal((width, width)))[0]
    return (frame * values) @ frame.T


def _spread(means: Any, separation: float, covariances: Any) -> Any:
    if len(means) == 1:
        return means
    deviation = np.sqrt(np.einsum("jaa->j", covariances).mean() / means.shape[1])
    gaps = np.sqrt(((means[:, None] - means[None]) ** 2).sum(axis=2))
    np.fill_diagonal(gaps, np.inf)
    return means * (separation * deviation / np.median(gaps.min(axis=1)))


FULL = [
    Setting("d2k2s2", 2, 2, 2000, 2),
    Setting("d2k5s3", 2, 5, 4000, 3),
    Setting("d2k10s4", 2, 10, 6000, 4),
    Setting("d2k30s4", 2, 30, 9000, 4),
    Setting("d5k2s1", 5, 2, 4000, 1),
    Setting("d5k5s1.5", 5, 5, 6000, 1.5),
    Setting("d5k5s3", 5, 5, 4000, 3),
    Setting("d5k10s4c50", 5, 10, 5000, 4, 50),
    Setting("d5k20s5", 5, 20, 8000, 5),
    Setting("d10k3s2", 10, 3, 4000, 2),
    Setting("d10k10s4", 10, 10, 6000, 4),
    Setting("d10k30s6", 10, 30, 9000, 6),
    Setting("d20k5s4", 20, 5, 6000, 4),
    Setting("d20k10s5", 20, 10, 6000, 5),
    Setting("d50k5s6", 50, 5, 6000, 6),
    Setting("nested d2k3", 2, 3, 6000, kind="nested"),
    Setting("nested d5k2", 5, 2, 4000, kind="nested"),
    Setting("nested d10k3", 10, 3, 6000, kind="nested"),
    Setting("1 % weight d5k5", 5, 5, 6000, 4, kind="rare"),
    Setting("geometric d10k10", 10, 10, 8000, 4, kind="geometric"),
    Setting("pancakes d10k4", 10, 4, 5000, 6, kind="pancakes"),
    Setting("close d2k10s2", 2, 10, 6000, 2),
    Setting("close d5k15s2.5", 5, 15, 6000, 2.5),
    Setting("close d10k15s3", 10, 15, 8000, 3),
]
TIED = [
    Setting(f"tied d{d}k{k}s{s:g}c{c}", d, k, 4000, s, c, "tied")
    for d, k, s, c in ((5, 3, 3, 100), (5, 5, 4, 100), (8, 5, 3, 1000), (10, 10, 4, 100))
]
