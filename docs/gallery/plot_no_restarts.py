"""
Mixtures without restarts
=========================

EM from random starts ends in different places; here, ten of scikit-learn's runs beside one fit from moments.
"""

import warnings

import numpy as np
from matplotlib.figure import Figure
from sklearn.mixture import GaussianMixture

import latensor as lt

sample = lt.datasets.make_spherical_mixture(2000, 20, 12, separation=5.0, random_state=3)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    peers = [
        GaussianMixture(
            12, covariance_type="spherical", init_params="random_from_data", random_state=seed
        )
        .fit(sample.samples)
        .score(sample.samples)
        for seed in range(10)
    ]
ours = lt.SphericalGaussianMixture(12, random_state=0).fit(sample.samples).score(sample.samples)
figure = Figure(figsize=(6, 3.2), layout="constrained")
axis = figure.subplots()
axis.plot(np.sort(peers), "o", label="EM from ten random starts")
axis.axhline(ours, color="C1", label="latensor, one fit")
axis.set_ylabel("log-likelihood per sample")
axis.set_xlabel("run, sorted")
axis.legend(frameon=False)
