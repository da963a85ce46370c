"""
Hidden causes of symptoms
=========================

A noisy-or network: diseases turn symptoms on. From patients' symptoms alone, which diseases are there, and what does one
patient have?
"""

import latensor as lt

sample = lt.datasets.make_noisy_or(20000, 24, 4, random_state=0)
model = lt.NoisyOrNetwork(4, random_state=0).fit(sample.samples)
patient = sample.samples[[7]]
print("causes of the patient:", model.predict_proba(patient).round(2))
figure = model.plot()
