"""Corpora whose word moments are known exactly: all documents of three words, by probability."""

import itertools

import numpy as np
import scipy.optimize
import scipy.sparse
from scipy.special import gammaln


def fraction_moment(alpha, order):
    """E[h^(x)order] (k, ..., k) for h drawn from a Dirichlet distribution."""
    k, total = len(alpha), alpha.sum()
    moment = np.zeros((k,) * order)
    for place in itertools.product(range(k), repeat=order):
        times = np.bincount(place, minlength=k)
        moment[place] = np.exp(
            gammaln(total)
            - gammaln(total + order)
            + (gammaln(alpha + times) - gammaln(alpha)).sum()
        )
    return moment


def population(topics, fractions):
    """Every document of three words (n, V) and its probability (n,), given E[h^(x)3]."""
    triples = np.einsum("ijl,ia,jb,lc->abc", fractions, topics, topics, topics, optimize=True)
    n_words = topics.shape[1]
    documents, weights = [], []
    for words in itertools.combinations_with_replacement(range(n_words), 3):
        orders = len(set(itertools.permutations(words)))
        documents.append(np.bincount(words, minlength=n_words))
        weights.append(triples[words] * orders)
    return scipy.sparse.csr_array(np.array(documents, dtype=np.float64)), np.array(weights)


def topic_distance(found, truth):
    """L1 distances (k,) of matched topics, and which of `found` belongs to which of `truth`."""
    cost = np.abs(truth[:, None] - found[None]).sum(axis=2)
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    return cost[rows, columns], columns
