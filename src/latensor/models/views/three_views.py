"""Three views that are independent given the component, brought to one (monograph 4.3).

With C_ts the cross-covariance of views t and s and U_t their leading directions, the maps
L1 = C23 C13^-1 and L3 = C21 C31^-1, taken between the U_t, turn the conditional means of views 1
and 3 into those of view 2. There C21 C31^-1 C32 = sum_j w_j mu_2j mu_2j' is whitened, so that all
three mapped views have the same whitened conditional means.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from latensor.arrays.threads import one_blas_thread
from latensor.estimation.homogeneous import LEAST_EIGENVALUE, LEAST_SINGULAR, inverse_above

Cross = Mapping[tuple[int, int], Any]


@dataclass(frozen=True)
class ViewMaps:
    """Maps that give three views the same whitened conditional means.

    Attributes
    ----------
    maps : three (d_t, r) matrices A_t: y_t = A_t'(x_t - E x_t)
    values : (3, r), the singular values of C_12, C_13 and C_23 between the leading directions
    """

    maps: tuple[Any, Any, Any]
    values: Any

    @property
    def condition(self) -> float:
        """The worst ratio of the largest to the smallest singular value."""
        if self.values.shape[1] == 0:
            return 1.0
        smallest = self.values[:, -1].min()
        return (
            float((self.values[:, 0] / np.maximum(self.values[:, -1], 1e-300)).max())
            if (smallest > 0)
            else float("inf")
        )


def view_maps(cross: Cross, rank: int, exact: bool = False) -> ViewMaps:
    """The maps of three views from their cross-covariances.

    Parameters
    ----------
    cross : (t, s) -> C_ts (d_t, d_s) for t < s in 0, 1, 2
    rank : int, one less than the number of components
    exact : bool, True leaves small singular values as they are: for exact moments
    """

    def block(t: int, s: int) -> Any:
        return cross[t, s] if t < s else cross[s, t].T

    with one_blas_thread():
        frames = []
        for t in range(3):
            others = [s for s in range(3) if s != t]
            left = np.linalg.svd(np.hstack([block(t, s) for s in others]), full_matrices=False)[0]
            frames.append(left[:, :rank])
        inner = {
            (t, s): frames[t].T @ block(t, s) @ frames[s] for t, s in permutations(range(3), 2)
        }
        values = np.array(
            [np.linalg.svd(inner[pair], compute_uv=False) for pair in ((0, 1), (0, 2), (1, 2))]
        ).reshape(3, rank)
        fraction = 0.0 if exact else LEAST_SINGULAR
        first = inner[1, 2] @ inverse_above(inner[0, 2], fraction)[0]
        third = inner[1, 0] @ inverse_above(inner[2, 0], fraction)[0]
        second = third @ inner[2, 1]
        eigenvalues, vectors = np.linalg.eigh((second + second.T) / 2)
        if rank:
            magnitudes = np.abs(eigenvalues)
            least = 0.0 if exact else LEAST_EIGENVALUE
            eigenvalues = np.maximum(magnitudes, max(least * magnitudes.max(), 1e-300))
        whitening = vectors / np.sqrt(eigenvalues)
        maps = (
            frames[0] @ first.T @ whitening,
            frames[1] @ whitening,
            frames[2] @ third.T @ whitening,
        )
    return ViewMaps(maps, values)
