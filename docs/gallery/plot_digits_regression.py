"""
Regression from pictures
========================

How dark is a digit's upper half? CP regression predicts from pictures as they are, with few weights.
"""

from sklearn.datasets import load_digits

import latensor as lt

pictures = load_digits().images / 16
target = pictures[:, :4].sum(axis=(1, 2)) - pictures[:, 4:].sum(axis=(1, 2))
model = lt.CPRegressor(2).fit(pictures[:1200], target[:1200])
print(f"R2 on pictures not seen: {model.score(pictures[1200:], target[1200:]):.3f}")
figure = model.plot(pictures[1200:], target[1200:])
