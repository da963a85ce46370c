"""
Separate mixed signals
======================

Three sources reach five sensors, mixed and with noise. Independent components find out how many there are, bring them
back, and say how much noise each has.
"""

import numpy as np

import latensor as lt

time = np.linspace(0, 100, 4000)
rng = np.random.default_rng(0)
sources = np.column_stack(
    [np.sign(np.sin(3 * time)), 2 * (time % 1) - 1, rng.laplace(size=4000) / 1.4]
)
mixed = sources @ rng.standard_normal((3, 5)) + 0.1 * rng.standard_normal((4000, 5))
model = lt.ICA("auto", random_state=0).fit(mixed)
print(model.certificate_)
figure = model.plot(mixed)
