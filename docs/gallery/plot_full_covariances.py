"""
Clusters of any shape
=====================

The irises, without their names: three elliptical clusters in four dimensions.
"""

from sklearn.datasets import load_iris

import latensor as lt

iris = load_iris()
model = lt.GaussianMixture(3, random_state=0).fit(iris.data)
print(model.summary())
figure = model.plot(iris.data, names=[name.removesuffix(" (cm)") for name in iris.feature_names])
