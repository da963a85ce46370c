"""
Peaks that are peaks
====================

With much noise, spectra found by least squares have side lobes. A constraint keeps every column unimodal.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

x = np.linspace(0, 1, 60)
spectra = np.exp(-0.5 * ((x[:, None] - [0.35, 0.6]) / 0.12) ** 2)
rng = np.random.default_rng(1)
truth = lt.CPTensor(None, [spectra, rng.random((6, 2)), rng.random((5, 2))])
tensor = truth.to_dense() + 0.25 * rng.standard_normal(truth.shape)
free = lt.decompose(tensor, 2, random_state=0)
held = lt.decompose(tensor, 2, constraints={0: lt.constraints.Unimodal()}, random_state=0)

figure = Figure(figsize=(8, 3), layout="constrained")
for axis, result, title in zip(
    figure.subplots(1, 2), (free, held), ("free", "unimodal"), strict=True
):
    axis.plot(x, result.factors[0])
    axis.set_title(f"{title}: agreement {lt.match(result, truth).score:.2f}", fontsize=10)
