"""
How many components?
====================

`n_components="auto"` takes the largest number that two halves of the data agree on; `selection_` shows the others.
"""

import latensor as lt

sample = lt.datasets.make_spherical_mixture(1500, 4, 5, separation=5.0, random_state=0)
model = lt.GaussianMixture("auto", covariance_type="spherical", random_state=0).fit(sample.samples)
print(model.selection_)
figure = model.plot(sample.samples)
