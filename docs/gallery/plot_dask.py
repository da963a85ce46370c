"""
A Dask array, as it is
======================

`fit` takes a Dask array and answers with one: every worker adds up its blocks, and only sums travel. The result is that
of the same rows in memory.
"""

import dask.array
import numpy as np

import latensor as lt

sample = lt.datasets.make_spherical_mixture(20_000, 4, 4, separation=5, random_state=0)
rows = dask.array.from_array(sample.samples, chunks=(4000, 4))

model = lt.GaussianMixture(4, random_state=0).fit(rows)
labels = model.predict(rows)
print(labels)
print("sizes of the clusters:", np.bincount(labels.compute()))

here = lt.GaussianMixture(4, random_state=0).fit(sample.samples)
print("largest difference of means:", np.abs(model.means_ - here.means_).max())
figure = model.plot(sample.samples[:2000])
