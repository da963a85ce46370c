"""
Mixtures with missing values
============================

A third of all entries is gone. The fit uses what is there, exactly, and fills in what it expects.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

sample = lt.datasets.make_spherical_mixture(800, 4, 3, random_state=0)
holes = np.random.default_rng(0).random(sample.samples.shape) < 1 / 3
seen = np.where(holes, np.nan, sample.samples)
model = lt.GaussianMixture(3, covariance_type="diag", random_state=0).fit(seen)
filled = model.impute(seen)

figure = Figure(figsize=(5, 4), layout="constrained")
axis = figure.subplots()
axis.scatter(sample.samples[holes], filled[holes], s=5, alpha=0.5)
axis.set_xlabel("what was there")
axis.set_ylabel("what is expected in its place")
