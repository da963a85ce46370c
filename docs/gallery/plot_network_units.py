"""
Hidden units of a network
=========================

A network of two layers made the targets. Moments with score functions find its hidden units; no random start does the
work.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

sample = lt.datasets.make_network(6000, 8, 4, random_state=0)
model = lt.TwoLayerNetwork(4, random_state=0).fit(sample.X, sample.y)
found = model.coefs_[0] / np.linalg.norm(model.coefs_[0], axis=0)
truth = sample.components / np.linalg.norm(sample.components, axis=1, keepdims=True)

figure = Figure(figsize=(4.4, 3.8), layout="constrained")
axis = figure.subplots()
image = axis.imshow(np.abs(truth @ found), cmap="Blues", vmin=0, vmax=1)
axis.set_xlabel("unit found")
axis.set_ylabel("true unit")
figure.colorbar(image, label="absolute cosine of the weights")
