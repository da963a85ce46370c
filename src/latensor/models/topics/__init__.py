"""Topic models: each estimator with its moments, read-off, refinement and number of topics.

What users meet: `latent_dirichlet` and `single_topic`, on `estimator`, `inference` and
`exploration` (with `intervals` of time). How topics are found: `model` and `dirichlet_model`
over folds, the subspace of the words (`subspace`), the read-off (`read_off`, of many topics
`power_steps`), the likelihoods (`families`) and their passes (`refinement/`), and the number of
topics (`count`, with `bursts`).
"""
