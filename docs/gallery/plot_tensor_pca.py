"""
One direction in noise: where it can be found
=============================================

Tensor PCA: a spike of strength tau in a symmetric tensor of noise. Below about d^(3/4) nothing fast finds it, and
`detected` says so.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

d, rng = 40, np.random.default_rng(0)
strengths = np.array([0.4, 0.7, 1.0, 1.5, 2.0])
overlaps, detected = [], []
for strength in strengths:
    trials = []
    for _ in range(4):
        vector = np.linalg.qr(rng.standard_normal((d, 1)))[0][:, 0]
        noise = lt.symmetrize(rng.standard_normal((d, d, d)))
        found = lt.tensor_pca(strength * d**0.75 * lt.outer([vector] * 3) + noise, random_state=0)
        trials.append((abs(found.vector @ vector), found.detected))
    overlaps.append([overlap for overlap, _ in trials])
    detected.append(np.mean([is_there for _, is_there in trials]))

figure = Figure(figsize=(6, 3.4), layout="constrained")
axis = figure.subplots()
axis.plot(strengths, overlaps, "o", color="C0", alpha=0.6)
axis.plot(strengths, detected, color="C1", label="detected")
axis.set_xlabel("strength / d^(3/4)")
axis.set_ylabel("overlap with the truth")
axis.legend(frameon=False)
