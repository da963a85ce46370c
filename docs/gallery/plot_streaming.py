"""
Streams that merge
==================

Two workers see half of the data each, in batches. Their sums add up: the merged model is that of all data.
"""

import numpy as np

import latensor as lt

sample = lt.datasets.make_spherical_mixture(6000, 5, 3, random_state=0)
first, second = (lt.SphericalGaussianMixture(3, random_state=0) for _ in range(2))
for batch in np.array_split(sample.samples[:3000], 5):
    first.partial_fit(batch)
for batch in np.array_split(sample.samples[3000:], 7):
    second.partial_fit(batch)
merged = first.merge(second)
whole = lt.SphericalGaussianMixture(3, random_state=0).fit(sample.samples)
print("largest difference of means:", np.abs(merged.means_ - whole.means_).max())
figure = merged.plot(sample.samples)
