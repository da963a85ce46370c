"""
Profiles that move: PARAFAC2
============================

Chromatograms whose peaks shift from sample to sample fit no CP form. PARAFAC2 lets one mode differ in every slice.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

rng = np.random.default_rng(0)
spectra = np.exp(-0.5 * ((np.linspace(0, 1, 30)[:, None] - [0.3, 0.7]) / 0.1) ** 2)
slices, profiles = [], []
for shift in rng.uniform(-0.1, 0.1, 8):
    times = np.linspace(0, 1, 50)[:, None]
    profiles.append(np.exp(-0.5 * ((times - [0.35 + shift, 0.6 + shift]) / 0.08) ** 2))
    slices.append(profiles[-1] * rng.uniform(0.5, 1.5, 2) @ spectra.T)
found = lt.parafac2(slices, 2, random_state=0)
print(f"residual {found.residual:.1e}")

figure = Figure(figsize=(7, 3), layout="constrained")
left, right = figure.subplots(1, 2)
left.plot(slices[0].sum(axis=1), color="C0")
left.plot(slices[1].sum(axis=1), color="C1")
left.set_title("two samples, shifted", fontsize=10)
right.plot(np.abs(found.tensor.evolving_factors()[0]), color="C0")
right.plot(np.abs(found.tensor.evolving_factors()[1]), color="C1")
right.set_title("profiles found in them", fontsize=10)
