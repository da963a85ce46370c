"""
Hidden states of text: vowels and consonants
============================================

A hidden Markov model of letters, told nothing but two states, comes near to vowels and consonants.
"""

import inspect
import re

import numpy as np

import latensor as lt

text = inspect.getdoc(np.einsum) + inspect.getdoc(np.linalg) + inspect.getdoc(np.histogram)
letters = re.sub("[^a-z]+", " ", text.lower())
alphabet = sorted(set(letters))
symbols = np.array([alphabet.index(letter) for letter in letters])[:, None]
model = lt.CategoricalHMM(2, random_state=0).fit(symbols)
for state in range(2):
    ratio = model.emissionprob_[state] / model.emissionprob_.sum(axis=0)
    print(state, "".join(letter for letter, r in zip(alphabet, ratio, strict=True) if r > 0.5))
figure = model.plot(symbols[:400], names=alphabet)
