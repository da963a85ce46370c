"""
Complete a picture
==================

A smooth picture of which a quarter of the entries is left. `held_out_error` says what to expect of the others.
"""

import numpy as np

import latensor as lt

x = np.linspace(-1, 1, 90)
waves = [np.outer(np.cos(a * x), np.exp(-b * x**2)) for a, b in ((2, 1), (5, 3), (8, 0.5))]
picture = np.stack(
    [sum(w * s for w, s in zip(waves, shades, strict=True)) for shades in np.eye(3) + 0.3], axis=2
)
picture = (picture - picture.min()) / np.ptp(picture) * 255
mask = np.random.default_rng(0).random(picture.shape) < 0.25
found = lt.complete(picture, 4, mask=mask, random_state=0)
print(f"error expected {found.held_out_error:.2g}, status {found.status.name}")
figure = lt.plots.images(
    {
        "what is left": np.where(mask, picture, 255),
        "completed": found.tensor.to_dense(),
        "original": picture,
    }
)
