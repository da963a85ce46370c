"""
Topics over time
================

A corpus in which one topic comes up and another goes: fractions by year, with their standard errors.
"""

import numpy as np
from matplotlib.figure import Figure

import latensor as lt

rng = np.random.default_rng(0)
topics = lt.datasets.make_topics(10, 300, 3, random_state=0).topics
years = np.sort(rng.integers(2000, 2020, 1500))
rise = (years - 2000) / 20
mixtures = np.array([rng.dirichlet([0.2 + r, 0.6, 1.2 - r]) for r in rise])
counts = np.array([rng.multinomial(80, mixture @ topics) for mixture in mixtures])
model = lt.LatentDirichletAllocation(3, random_state=0).fit(counts)
found = model.topics_over_time(counts, years, n_bins=10)

figure = Figure(figsize=(7, 3.6), layout="constrained")
axis = figure.subplots()
for topic in range(3):
    axis.errorbar(
        found.labels,
        found.fractions[:, topic],
        2 * found.errors[:, topic],
        label=f"topic {topic}",
        capsize=2,
    )
axis.set_xlabel("year")
axis.locator_params(axis="x", integer=True)
axis.set_ylabel("fraction of words, two standard errors")
axis.legend(frameon=False)
