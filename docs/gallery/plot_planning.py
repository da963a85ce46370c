"""
How many samples are enough?
============================

`lt.plan` draws samples of several sizes from a fitted model, fits each, and shows how the errors fall.
"""

import latensor as lt

sample = lt.datasets.make_spherical_mixture(2000, 6, 3, random_state=0)
model = lt.SphericalGaussianMixture(3, random_state=0).fit(sample.samples)
found = lt.plan(model, n_samples=(300, 1000, 3000), target=0.05)
print(found)
figure = lt.plots.sample_sizes(found)
