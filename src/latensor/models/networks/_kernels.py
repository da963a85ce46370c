"""Numba kernels of noisy-or networks: interactions of three features, exactly."""

from __future__ import annotations

from math import log
from typing import Any

from latensor.arrays._kernels import compiled


@compiled()
def third_interactions(ratios: Any, variances: Any, skews: Any, out: Any) -> None:
    """What a network adds to -T_abc beyond sum_j s_j u_aj u_bj u_cj, for a < b < c, into out.

    Given a cause of variance v and third cumulant s, and u = F / (1 - prior F),
    T_abc = sum_j log[(1 + v (u_a u_b + u_a u_c + u_b u_c) - s u_a u_b u_c) / products of
    (1 + v u u') over the three pairs].
    """
    m, k = ratios.shape
    place = 0
    for c in range(m):
        for b in range(c):
            for a in range(b):
                ratio, leading = 1.0, 0.0
                for j in range(k):
                    v = variances[j]
                    x, y, z = ratios[a, j], ratios[b, j], ratios[c, j]
                    xy, xz, yz = v * x * y, v * x * z, v * y * z
                    cube = skews[j] * x * y * z
                    leading += cube
                    ratio *= (1 + xy + xz + yz - cube) / ((1 + xy) * (1 + xz) * (1 + yz))
                out[place] = -log(ratio) - leading
                place += 1
