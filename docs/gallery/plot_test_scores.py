"""
Why tensors: test scores
========================

Two abilities explain the scores of students in subjects. A matrix of scores does not say which abilities: every
rotation explains it as well. Scores in several *formats* do.
"""

import numpy as np

import latensor as lt

rng = np.random.default_rng(0)
students, subjects, formats = rng.random((60, 2)), rng.random((8, 2)), rng.random((3, 2))
truth = lt.CPTensor(None, [students, subjects, formats])
scores = truth.to_dense()

# %%
# The matrix of one format has rank two, and its singular vectors are orthogonal, as abilities are not. The tensor has
# only one decomposition into two components: theirs.
found = lt.decompose(scores, 2, random_state=0)
print(f"agreement with the truth: {lt.match(found, truth).score:.6f}")
figure = found.plot(names=["student", "subject", "format"])
