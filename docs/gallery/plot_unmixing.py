"""
Separate mixed signals
======================

Three sources reach three sensors, mixed and with noise. Independent components bring them back, and say how much noise
each has.
"""

import numpy as np

import latensor as lt

time = np.linspace(0, 8, 4000)
rng = np.random.default_rng(0)
sources = np.column_stack(
    [np.sign(np.sin(3 * time)), 2 * (time % 1) - 1, rng.laplace(size=4000) / 1.4]
)
mixed = sources @ rng.standard_normal((3, 3)) + 0.05 * rng.standard_normal((4000, 3))
model = lt.ICA(3, random_state=0).fit(mixed)
print(model.certificate_)
figure = model.plot(mixed)
