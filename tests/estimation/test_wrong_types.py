"""What is no table of numbers: one kind of error from every estimator, which names the argument."""

import numpy as np
import pytest

import latensor as lt

ESTIMATORS = {
    "mixture": lambda X: lt.GaussianMixture(2).fit(X),
    "product": lambda X: lt.ProductMixture(2).fit(X),
    "pca": lambda X: lt.PCA(1).fit(X),
    "hmm": lambda X: lt.GaussianHMM(2).fit(X),
    "ica": lambda X: lt.ICA(2).fit(X),
    "noisy or": lambda X: lt.NoisyOrNetwork(2).fit(X),
    "regressor": lambda X: lt.CPRegressor(1).fit(X, np.zeros(3)),
    "network": lambda X: lt.TwoLayerNetwork(1).fit(X, np.zeros(3)),
    "tree": lambda X: lt.LatentTree().fit(X),
    "topics": lambda X: lt.LatentDirichletAllocation(2).fit(X),
    "communities": lambda X: lt.MixedMembershipBlockModel(2).fit(X),
}
WRONG = {
    "a mapping": {"a": [1.0, 2.0]},
    "a set": {1.0, 2.0},
    "nothing": None,
    "objects": np.array([[object(), 1.0], [2.0, 3.0]], dtype=object),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_what_is_no_table_is_refused(name, wrong):
    with pytest.raises(lt.InvalidInputError) as caught:
        ESTIMATORS[name](WRONG[wrong])
    assert "X" in str(caught.value) or "adjacency" in str(caught.value)


def test_dates_are_no_numbers():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.date_range("2020", periods=5), "b": range(5)})
    with pytest.raises(lt.InvalidInputError, match="no numbers"):
        lt.GaussianMixture(2).fit(frame)


def test_text_targets_of_a_regressor_lead_to_what_takes_them():
    X = np.random.default_rng(0).standard_normal((20, 3, 2))
    labels = np.array(["a", "b"] * 10)
    with pytest.raises(lt.InvalidInputError, match="CPClassifier"):
        lt.CPRegressor(1).fit(X, labels)
    with pytest.raises(lt.InvalidInputError, match="logit"):
        lt.MixtureOfRegressions(2).fit(X.reshape(20, -1), labels)
