"""
Several regressions in one sample
=================================

Two groups follow two laws, and nobody wrote down who belongs to which.
"""

import latensor as lt

sample = lt.datasets.make_regressions(1500, 4, 2, random_state=1)
model = lt.MixtureOfRegressions(2, random_state=0).fit(sample.X, sample.y)
print(model.summary())
figure = model.plot(sample.X, sample.y)
