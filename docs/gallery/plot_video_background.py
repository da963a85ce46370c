"""
Background and motion
=====================

Robust PCA separates frames of a video into what stays (low rank) and what moves (sparse), whatever the size of the
moving part's values.
"""

import numpy as np

import latensor as lt

rng = np.random.default_rng(0)
scene = np.outer(np.linspace(80, 180, 48), np.ones(64)) + 20 * np.sin(np.arange(64) / 5)
light = 1 + 0.1 * np.sin(np.arange(40) / 6)
video = scene[None] * light[:, None, None]
for frame in range(40):
    video[frame, 18:28, frame : frame + 10] = 250
found = lt.robust_pca(video.reshape(40, -1), rank=1)
background = found.low_rank.to_dense().reshape(video.shape)
moving = np.abs(video - background)
figure = lt.plots.images(
    {"frame 20": video[20], "background": background[20], "motion": moving[20]}
)
