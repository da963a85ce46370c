"""
Topics of documentation
=======================

The docstrings of NumPy and SciPy are documents. What are they about?
"""

import inspect

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.signal
import scipy.sparse
import scipy.stats

import latensor as lt

modules = [
    np,
    np.linalg,
    np.random,
    scipy.linalg,
    scipy.optimize,
    scipy.signal,
    scipy.sparse,
    scipy.stats,
]
texts = sorted(
    {
        text
        for module in modules
        for name, member in inspect.getmembers(module)
        if not name.startswith("_") and len(text := inspect.getdoc(member) or "") > 400
    }
)
model = lt.LatentDirichletAllocation(8, random_state=0).fit(texts)
for number, words in enumerate(model.top_words(8)):
    print(number, " ".join(words))

# %%
# Which topic is a question about?
print(model.find("a random variable with a probability density", n_topics=2))
figure = model.plot()
