"""Networks with one hidden layer: exact moments, samples, sources, streams, bad input."""

import itertools
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import approx_fprime, linear_sum_assignment
from sklearn.utils.estimator_checks import parametrize_with_checks

import latensor as lt
from latensor.datasets import make_network
from latensor.estimation.model import Frame
from latensor.exceptions import InvalidInputError, NotIdentifiableError
from latensor.models.networks.activations import ACTIVATIONS
from latensor.models.networks.two_layer_family import NetworkFamily, NetworkState
from latensor.models.networks.two_layer_model import NetworkModel
from latensor.models.networks.two_layer_read_off import Replicates, subspace
from latensor.moments.batch import Batch
from latensor.moments.responses import JointCovariance
from latensor.moments.score_sums import Residual, ScoreMoments
from latensor.moments.sums import Grouped, Joint

PLANTED = make_network(3000, 6, 3, random_state=0)
FITTED = lt.TwoLayerNetwork(3, random_state=0).fit(PLANTED.X, PLANTED.y)
SHARED = ("sigmoid", "tanh", "relu", "softplus", "gelu", "erf")


def batch(*parts):
    count = len(parts[0])
    return Batch(parts, np.ones(count), np.arange(count, dtype=np.uint64))


def matched(truth, found):
    """Cosines of true hidden units with the found ones, and their order."""
    one, other = (w / np.linalg.norm(w, axis=1, keepdims=True) for w in (truth, found))
    cosines = np.abs(one @ other.T)
    order = linear_sum_assignment(-cosines)[1]
    return cosines[np.arange(len(order)), order], order


EXPECTED = {
    "check_sample_weight_equivalence_on_dense_data": "the check has fewer samples than weights"
}


@parametrize_with_checks(
    [lt.TwoLayerNetwork(1, n_init=1, max_iter=20)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_the_estimator_contract(estimator, check):
    check(estimator)


@parametrize_with_checks(
    [lt.TwoLayerClassifier(2, n_init=1, max_iter=50)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_the_contract_of_classifiers(estimator, check):
    check(estimator)


def exact_moments(hidden, bias, output, activation):
    scale = np.linalg.norm(hidden, axis=1)
    unit = hidden / scale[:, None]
    c = ACTIVATIONS[activation].hermite(scale, bias, 3)
    first = np.einsum("ka,qk->aq", unit, output * c[1])
    second = np.einsum("ka,kb,qk->abq", unit, unit, output * c[2])
    return first, second, np.einsum("ka,kb,kc,qk->abcq", unit, unit, unit, output * c[3])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("outputs", [1, 2])
def test_exact_moments_give_the_parameters_back(seed, outputs):
    rng = np.random.default_rng(seed)
    activation, d, k = SHARED[seed % 4], 7, (1, 2, 3, 5)[seed // 4 % 4]
    hidden = rng.standard_normal((k, d))
    hidden *= rng.uniform(1, 3, (k, 1)) / np.linalg.norm(hidden, axis=1, keepdims=True)
    bias = rng.uniform(0.3, 1.2, k) * rng.choice([-1, 1], k)
    output = rng.uniform(0.5, 1.5, (outputs, k)) * rng.choice([-1, 1], (outputs, k))
    first, second, third = exact_moments(hidden, bias, output, activation)
    basis = subspace([Replicates(second, (second, second))], k).basis
    target = np.stack([np.zeros(outputs), np.ones(outputs)])
    residual = Residual(np.zeros(d), np.eye(d), target, first)
    covariance = np.eye(d + outputs)
    covariance[:d, d:] = first
    inside = np.einsum("abcq,ai,bj,ck->ijkq", third, basis, basis, basis)

    def halves(order, moment, basis):
        sums = ScoreMoments(residual, order, basis, None, np.eye(d),
                            sums={"weight": 1.0, "moment": moment})  # fmt: skip
        return Grouped((sums, sums), 0)

    moments = Joint(
        {
            "covariance": JointCovariance(
                np.zeros(d + outputs),
                sums={"weight": 1.0, "units": 1e12, "first": np.zeros(d + outputs),
                      "second": covariance},
            ),
            "squares": halves(2, second, np.eye(d)),
            "cubes": halves(3, inside, basis),
        }
    )  # fmt: skip
    frame = Frame({"residual": residual, "rank": d, "basis": basis})
    model = NetworkModel(k, activation, "squared", d, outputs, "gaussian", 0.0, 1, 100)
    state = model.read_off(frame, moments, np.random.default_rng(0)).state
    cosines, order = matched(hidden, state.hidden)
    found = state.permuted(order)
    signs = np.sign((found.hidden * hidden).sum(axis=1))
    if activation == "relu":
        # Scales go into the output layer.
        one, other = np.linalg.norm(hidden, axis=1), np.linalg.norm(found.hidden, axis=1)
        assert np.abs(found.output * other - output * one).max() < 1e-8
        assert np.abs(found.bias / other - bias / one).max() < 1e-8
        assert cosines.min() > 1 - 1e-12
        assert (signs > 0).all()
        return
    if ACTIVATIONS[activation].twice_centre is None:
        assert (signs > 0).all()
    assert np.abs(found.hidden * signs[:, None] - hidden).max() < 1e-8
    assert np.abs(found.bias * signs - bias).max() < 1e-8
    assert np.abs(found.output * signs - output).max() < 1e-8


@pytest.mark.parametrize("name", SHARED)
def test_activations_have_their_derivatives_and_hermite_coefficients(name):
    kind, rng = ACTIVATIONS[name], np.random.default_rng(0)
    u = rng.standard_normal(50) * 2
    step = 1e-6
    numeric = (kind.value(u + step) - kind.value(u - step)) / (2 * step)
    assert np.abs(kind.derivative(u, kind.value(u)) - numeric).max() < 1e-8
    # Sums of f(s t + b) He_m(t) on a grid whose kink is a grid point.
    s, b = 1.5, 0.75
    t = np.linspace(-10.5, 9.5, 400_001)
    density = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi) * (t[1] - t[0])
    values = kind.value(s * t + b) * density
    polynomials = [np.ones_like(t), t, t**2 - 1, t**3 - 3 * t]
    expected = [values @ p for p in polynomials]
    assert np.abs(kind.hermite(s, b, 3) - expected).max() < 1e-9
    if kind.twice_centre is not None:
        assert np.abs(kind.value(u) + kind.value(-u) - kind.twice_centre).max() < 1e-15


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("loss, outputs", [("squared", 2), ("log", 1), ("log", 3)])
def test_gradients_are_those_of_the_likelihood(name, loss, outputs):
    rng = np.random.default_rng(0)
    target = np.stack([np.zeros(outputs), np.ones(outputs)])
    family = NetworkFamily(np.zeros(4), np.eye(4), target, name, loss, 0.3)
    y = rng.standard_normal((30, outputs))
    if loss == "log":
        y = (np.eye(outputs)[rng.integers(0, outputs, 30)] if outputs > 1 else y > 0).astype(float)
    units = Batch((rng.standard_normal((30, 4)), y), rng.uniform(0.5, 2, 30), np.arange(30))
    state = NetworkState(
        rng.standard_normal((3, 4)), rng.standard_normal(3), rng.standard_normal((outputs, 3)),
        rng.standard_normal(outputs),
    )  # fmt: skip

    def value(vector):
        at = family.unpack(vector, state)
        return family.expect(at, units)["log_likelihood"] + family.log_prior(at)

    found = family.expect(state, units)["gradient"] + family.prior_gradient(state)
    numeric = approx_fprime(family.pack(state), value, 1e-7)
    assert np.abs(found - numeric).max() < 2e-4


def test_residuals_change_variances_and_not_means():
    planted = make_network(100_000, 4, 2, random_state=3)
    y = planted.y[:, None]
    target = np.array([[y.mean()], [y.std()]])
    rng = np.random.default_rng(0)
    form = rng.standard_normal((4, 4, 1))
    plain = Residual(np.zeros(4), np.eye(4), target, np.zeros((4, 1)))
    other = Residual(
        np.zeros(4), np.eye(4), target, rng.standard_normal((4, 1)), form + form.transpose(1, 0, 2)
    )
    basis = np.eye(4)[:, :2]
    scores = lt.scores.GaussianScores(np.zeros(4), np.eye(4))
    found = [
        ScoreMoments(r, 3, basis, s, np.eye(4)).update(batch(planted.X, y)).finalize()
        for r, s in ((plain, None), (plain, scores), (other, None))
    ]
    assert np.abs(found[0] - found[1]).max() < 1e-12
    assert np.abs(found[0] - found[2]).max() < 0.2  # 3 standard deviations of 11 / sqrt(100,000)
    assert np.abs(found[0] - found[2]).max() > 0


@pytest.mark.parametrize("activation", ["sigmoid", "relu", "tanh"])
def test_planted_units_are_found_and_errors_fall_with_samples(activation):
    errors = []
    for count in (4000, 64_000):
        planted = make_network(count, 8, 3, activation=activation, random_state=1)
        model = lt.TwoLayerNetwork(3, activation=activation, random_state=0)
        model.fit(planted.X, planted.y)
        cosines, _ = matched(planted.components, model.components_)
        assert cosines.min() > 0.99
        gaps = (model.predict(planted.X) - planted.mean[:, 0]) / planted.mean.std()
        errors.append(np.sqrt((gaps**2).mean()))
    assert model.certificate_.verdict == "stable"
    # Sixteen times the samples, a quarter of the error.
    assert 0.15 < errors[1] / errors[0] < 0.4


def test_several_outputs_share_their_hidden_units():
    planted = make_network(8000, 8, 4, n_outputs=2, random_state=2)
    model = lt.TwoLayerNetwork(4, random_state=0).fit(planted.X, planted.y)
    assert matched(planted.components, model.components_)[0].min() > 0.99
    assert model.predict(planted.X).shape == (8000, 2)
    assert [c.shape for c in model.coefs_] == [(8, 4), (4, 2)]
    assert [b.shape for b in model.intercepts_] == [(4,), (2,)]
    assert model.score(planted.X, planted.y) > 0.98
    one = lt.TwoLayerNetwork(4, random_state=0).fit(planted.X, planted.y[:, :1])
    assert one.predict(planted.X).shape == (8000,)


def test_attributes_are_those_of_the_peer():
    from sklearn.neural_network import MLPRegressor

    peer = MLPRegressor(hidden_layer_sizes=(3,), activation="logistic", max_iter=1)
    with pytest.warns(Warning, match="[Mm]aximum"):
        peer.fit(PLANTED.X, PLANTED.y)
    peer.coefs_, peer.intercepts_ = FITTED.coefs_, FITTED.intercepts_
    assert np.abs(peer.predict(PLANTED.X) - FITTED.predict(PLANTED.X)).max() < 1e-12
    residual = FITTED.predict(PLANTED.X) - PLANTED.y
    assert FITTED.loss_ == pytest.approx(0.5 * (residual**2).mean(), rel=1e-9)
    assert np.array_equal(FITTED.coefs_[0].T, FITTED.components_)
    assert FITTED.certificate_.fit == pytest.approx(FITTED.score(PLANTED.X, PLANTED.y), abs=1e-9)


def test_units_have_a_fixed_order_and_sign():
    largest = np.abs(FITTED.components_).argmax(axis=1)
    assert (FITTED.components_[np.arange(3), largest] > 0).all()
    again = lt.TwoLayerNetwork(3, random_state=5).fit(PLANTED.X, PLANTED.y)
    assert np.abs(again.components_ - FITTED.components_).max() < 1e-2


def test_scales_and_shifts_of_features_and_target_do_not_matter():
    scale, shift = np.array([1e-6, 1, 1e5, 3, 1, 1e-3]), np.arange(6.0)
    turned = lt.TwoLayerNetwork(3, random_state=0).fit(
        PLANTED.X * scale + shift, 1e8 * PLANTED.y + 5
    )
    cosines = matched(FITTED.components_, turned.components_ * scale)[0]
    assert cosines.min() > 0.9999
    assert turned.certificate_.rank == 6
    gaps = (turned.predict(PLANTED.X * scale + shift) - 5) / 1e8 - FITTED.predict(PLANTED.X)
    assert np.abs(gaps).max() < 1e-3


def test_float32_torch_and_frames():
    import torch

    model = lt.TwoLayerNetwork(3, n_init=1, random_state=0)
    single = model.fit(PLANTED.X.astype(np.float32), PLANTED.y)
    assert single.components_.dtype == np.float32
    assert single.predict(PLANTED.X.astype(np.float32)).dtype == np.float32
    assert np.abs(single.components_ - FITTED.components_).max() < 1e-2
    found = FITTED.predict(torch.as_tensor(PLANTED.X))
    assert isinstance(found, torch.Tensor)
    assert np.array_equal(found.numpy(), FITTED.predict(PLANTED.X))
    frame = pd.DataFrame(PLANTED.X, columns=list("abcdef"))
    named = model.fit(frame, pd.Series(PLANTED.y))
    assert list(named.feature_names_in_) == list("abcdef")
    assert np.abs(named.components_ - FITTED.components_).max() < 1e-2
    assert "unit 0" in named.summary()
    assert "stable" in named.summary()


def test_sources_are_their_rows_and_threads_change_nothing():
    edges = [0, 700, 710, 3000]
    batches = [(PLANTED.X[a:b], PLANTED.y[a:b]) for a, b in itertools.pairwise(edges)]
    found = lt.TwoLayerNetwork(3, random_state=0, n_jobs=2).fit(batches)
    assert np.array_equal(found.components_, FITTED.components_)
    weights = np.random.default_rng(0).integers(0, 3, 3000)
    heavy = lt.TwoLayerNetwork(3, refine=0, random_state=0).fit(
        [(*pair, weights[a:b]) for pair, a, b in zip(batches, edges, edges[1:], strict=False)]
    )
    many = lt.TwoLayerNetwork(3, refine=0, random_state=0).fit(
        PLANTED.X, PLANTED.y, sample_weight=weights
    )
    assert np.abs(heavy.components_ - many.components_).max() < 1e-10


def test_a_long_source_is_refined_by_all_its_rows():
    class Short(lt.TwoLayerNetwork):
        _row_limit = 600

    planted = make_network(24_000, 6, 3, random_state=4)
    found = Short(3, random_state=0)
    # The sample is never below what starts are compared on.
    found.__class__.__name__ = "TwoLayerNetwork"
    model = found.fit(planted.X, planted.y)
    whole = lt.TwoLayerNetwork(3, random_state=0).fit(planted.X, planted.y)
    assert model.converged_
    assert np.abs(model.components_ - whole.components_).max() < 2e-2
    assert model.loss_ == pytest.approx(whole.loss_, rel=1e-4)


def test_streams_merge_and_are_refined():
    planted = make_network(30_000, 6, 3, random_state=5)
    parts = [slice(0, 22_000), slice(22_000, 26_000), slice(26_000, None)]
    stream = lt.TwoLayerNetwork(3, random_state=0).partial_fit(
        planted.X[parts[0]], planted.y[parts[0]]
    )
    worker = stream.spawn().partial_fit(planted.X[parts[1]], planted.y[parts[1]])
    stream.partial_fit(planted.X[parts[2]], planted.y[parts[2]]).merge(worker)
    whole = lt.TwoLayerNetwork(3, random_state=0).fit(planted.X, planted.y)
    assert np.abs(stream.components_ - whole.components_).max() < 0.02
    few = [lt.TwoLayerNetwork(3, random_state=0) for _ in range(2)]
    few[0].partial_fit(PLANTED.X[:1000], PLANTED.y[:1000])
    few[1].partial_fit(PLANTED.X[1000:], PLANTED.y[1000:])
    assert np.abs(few[0].merge(few[1]).components_ - FITTED.components_).max() < 1e-6


def test_files_and_pickles_answer_as_before(tmp_path):
    FITTED.save(tmp_path / "network.npz")
    for copy in (lt.load(tmp_path / "network.npz"), pickle.loads(pickle.dumps(FITTED))):
        assert np.array_equal(copy.predict(PLANTED.X), FITTED.predict(PLANTED.X))
        assert str(copy.certificate_) == str(FITTED.certificate_)
    goes_on = lt.load(FITTED.save(tmp_path / "more.npz", resumable=True))
    goes_on.partial_fit(PLANTED.X[:500], PLANTED.y[:500])
    assert np.abs(goes_on.components_ - FITTED.components_).max() < 0.2
    scores = lt.scores.of_gaussian(PLANTED.X)
    model = lt.TwoLayerNetwork(3, scores=scores, random_state=0).fit(PLANTED.X, PLANTED.y)
    loaded = lt.load(model.save(tmp_path / "scores.npz"))
    assert np.array_equal(loaded.scores.mean, scores.mean)


def test_intervals_hold_the_fit_and_mostly_the_truth():
    planted = make_network(4000, 4, 2, random_state=6)
    model = lt.TwoLayerNetwork(2, random_state=0).fit(planted.X, planted.y)
    found = model.intervals(planted.X, planted.y, n_resamples=100)["components"]
    assert ((found.low <= model.components_) & (model.components_ <= found.high)).all()
    _, order = matched(model.components_, planted.components)
    truth = planted.components[order]
    truth = truth * np.sign((truth * model.components_).sum(axis=1))[:, None]
    inside = (found.low <= truth) & (truth <= found.high)
    assert inside.mean() >= 0.75  # of 8 weights at 95 %, three outside have a chance of 0.6 %


@pytest.mark.parametrize("scores", ["mixture", "matching"])
def test_score_functions_of_the_features(scores):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 20_000)
    X = rng.standard_normal((20_000, 3)) * 0.7 + np.array([[-1.5, 0, 0], [1.5, 0.5, 0]])[labels]
    hidden, bias = np.array([[1.5, 1.5, 0.0], [0.0, 1.5, -1.5]]), np.array([0.8, -0.6])
    y = np.tanh(X @ hidden.T + bias) @ [1.0, -0.8] + 0.05 * rng.standard_normal(20_000)
    moments = lt.TwoLayerNetwork(2, activation="tanh", scores=scores, refine=0, random_state=0)
    cosines = matched(hidden, moments.fit(X, y).components_)[0]
    assert cosines.min() > (0.95 if scores == "mixture" else 0.7)
    assert moments.certificate_.scores == scores
    known = lt.scores.MixtureScores(
        [0.5, 0.5], [[-1.5, 0, 0], [1.5, 0.5, 0]], [0.49 * np.eye(3)] * 2
    )
    exact = lt.TwoLayerNetwork(2, activation="tanh", scores=known, refine=0, random_state=0)
    assert matched(hidden, exact.fit(X, y).components_)[0].min() > 0.97
    refined = lt.TwoLayerNetwork(2, activation="tanh", scores=known, random_state=0).fit(X, y)
    assert matched(hidden, refined.components_)[0].min() > 0.999


# ---------------------------------------------------------------------- what moments do not see
@pytest.mark.parametrize("activation, order", [("tanh", 2), ("relu", 3)])
def test_moments_that_vanish_are_told_and_the_units_found_all_the_same(activation, order):
    planted = make_network(20_000, 6, 3, activation=activation, bias=0.0, random_state=0)
    model = lt.TwoLayerNetwork(3, activation=activation, random_state=0)
    model.fit(planted.X, planted.y)
    assert model.certificate_.vanishing == (order,)
    assert f"Order {order} vanishes" in " ".join(str(model.certificate_).split())
    assert matched(planted.components, model.components_)[0].min() > 0.99
    moments = lt.TwoLayerNetwork(3, activation=activation, refine=0, random_state=0)
    if activation == "relu":
        with pytest.raises(NotIdentifiableError, match=r"third moment .* standard deviations"):
            moments.fit(planted.X, planted.y)
    else:
        found = moments.fit(planted.X, planted.y)
        assert matched(planted.components, found.components_)[0].min() > 0.9


def test_noise_and_lines_show_no_hidden_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 4))
    for y in (rng.standard_normal(2000), X @ [1.0, 2.0, 0.0, 0.0] + rng.standard_normal(2000)):
        with pytest.warns(UserWarning, match="neither the second nor the third moment"):
            model = lt.TwoLayerNetwork(2, random_state=0, max_iter=300).fit(X, y)
        assert model.certificate_.vanishing == (2, 3)
        assert model.certificate_.verdict == "unstable"


@pytest.mark.slow
def test_how_often_noise_is_taken_for_a_moment():
    deviations = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X, y = rng.standard_normal((500, 5)), rng.standard_normal(500)
        with pytest.warns(UserWarning, match="neither"):
            model = lt.TwoLayerNetwork(2, random_state=0, n_init=1, refine=1).fit(X, y)
        found = model.certificate_
        deviations += [found.second_deviations, found.third_deviations]
    # 40 draws of about a standard normal, above 3 with probability 0.1 % each.
    assert np.mean(np.array(deviations) > 3) <= 0.05
    assert 0.6 < np.std(deviations) < 1.4


def test_units_that_moments_do_not_see_are_told():
    planted = make_network(20_000, 6, 2, random_state=0)
    found = lt.TwoLayerNetwork(4, random_state=0, n_init=2).fit(planted.X, planted.y)
    assert found.certificate_.n_seen < 4
    assert "of 4 directions (spectrum 1, " in " ".join(str(found.certificate_).split())


@pytest.mark.parametrize("d, k, n, seed", [(10, 4, 10_000, 303), (50, 5, 20_000, 414)])
def test_starts_are_compared_among_all_directions(d, k, n, seed):
    # What was best inside the subspace of the moments went on outside of it to an optimum in which
    # two units stood for two others, and was called stable.
    planted = lt.datasets.make_network(n, d, k, activation="sigmoid", random_state=seed)
    model = lt.TwoLayerNetwork(k, random_state=0, n_jobs=1).fit(planted.X, planted.y)
    gaps = model.predict(planted.X) - planted.mean[:, 0]
    assert (gaps**2).mean() < 2e-4 * planted.mean.var()


def test_more_units_than_features_and_collinear_ones():
    planted = make_network(5000, 2, 3, random_state=1)
    found = lt.TwoLayerNetwork(3, random_state=0).fit(planted.X, planted.y)
    assert "exceed the 2 directions of X" in " ".join(str(found.certificate_).split())
    assert found.score(planted.X, planted.y) > 0.98
    with pytest.raises(NotIdentifiableError, match="exceed the 2 directions"):
        lt.TwoLayerNetwork(3, refine=0, random_state=0).fit(planted.X, planted.y)
    twice = np.column_stack([PLANTED.X, PLANTED.X[:, 0], np.ones(3000)])
    model = lt.TwoLayerNetwork(3, random_state=0).fit(twice, PLANTED.y)
    assert "6 of 8 directions (column 7 does not vary)" in " ".join(str(model.certificate_).split())
    assert np.abs(model.predict(twice) - FITTED.predict(PLANTED.X)).max() < 1e-2
    with pytest.raises(InvalidInputError, match="not collinear"):
        lt.TwoLayerNetwork(3, scores="mixture").fit(twice, PLANTED.y)


@pytest.mark.parametrize(
    "settings, data, message",
    [
        ({"n_components": 0}, (PLANTED.X, PLANTED.y), "n_components=0"),
        ({"n_components": 2.5}, (PLANTED.X, PLANTED.y), "n_components=2.5"),
        ({"activation": "swish"}, (PLANTED.X, PLANTED.y), "activation='swish'"),
        ({"scores": "normal"}, (PLANTED.X, PLANTED.y), "scores='normal'"),
        ({"alpha": -1}, (PLANTED.X, PLANTED.y), "alpha=-1"),
        ({"n_components": 5}, (PLANTED.X[:20], PLANTED.y[:20]), "30 weights, X has 20 samples"),
        ({}, (PLANTED.X, PLANTED.y[:-1]), "every row needs a target"),
        ({}, (PLANTED.X, np.full(3000, np.nan)), "NaN"),
        ({}, (PLANTED.X, np.full(3000, "a")), "for classes take TwoLayerClassifier"),
        ({}, (PLANTED.X, None), "requires y"),
        ({"scores": lt.scores.GaussianScores([0.0], [[1.0]])}, (PLANTED.X, PLANTED.y), "1 feature"),
    ],
)  # fmt: skip
def test_what_cannot_be_fitted_is_told(settings, data, message):
    with pytest.raises(ValueError, match=message):
        lt.TwoLayerNetwork(**{"n_components": 2, **settings}).fit(*data)


def test_a_target_that_does_not_vary_is_predicted():
    with pytest.warns(UserWarning, match="neither"):
        model = lt.TwoLayerNetwork(2, random_state=0).fit(PLANTED.X, np.full(3000, 7.0))
    assert np.abs(model.predict(PLANTED.X) - 7).max() < 1e-6


# ---------------------------------------------------------------------- classes
def test_classes_are_told_apart_and_units_found():
    planted = make_network(20_000, 5, 2, target="binary", random_state=0)
    model = lt.TwoLayerClassifier(2, random_state=0).fit(planted.X, planted.y)
    assert matched(planted.components, model.components_)[0].min() > 0.95
    odds = 4 * (planted.mean - planted.mean.mean(axis=0))[:, 0]
    assert np.corrcoef(odds, model.decision_function(planted.X))[0, 1] > 0.99
    proba = model.predict_proba(planted.X)
    assert np.abs(proba.sum(axis=1) - 1).max() < 1e-12
    assert np.abs(np.exp(model.predict_log_proba(planted.X)) - proba).max() < 1e-12
    lost = -np.log(proba[np.arange(20_000), planted.y.astype(int)]).mean()
    assert model.loss_ == pytest.approx(lost, rel=1e-9)
    # The same zeros and ones as numbers: probabilities by least squares.
    plain = lt.TwoLayerNetwork(2, random_state=0).fit(planted.X, planted.y)
    assert np.corrcoef(plain.predict(planted.X), proba[:, 1])[0, 1] > 0.95


def test_labels_of_any_kind_sources_and_files(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((800, 4))
    codes = (np.abs(X[:, 0]) > 0.8).astype(int) + (X[:, 1] * X[:, 0] > 0.5)
    names = np.array(["low", "middle", "top"])
    settings = {"activation": "tanh", "n_init": 1, "refine": 60, "random_state": 0}
    model = lt.TwoLayerClassifier(4, **settings).fit(X, names[codes])
    assert model.score(X, names[codes]) > 0.8
    assert model.coefs_[1].shape == (4, 3)
    loaded = lt.load(model.save(tmp_path / "classes.npz"))
    assert np.array_equal(loaded.predict(X), model.predict(X))
    numbered = lt.TwoLayerClassifier(4, **settings).fit(X, codes * 10)
    assert np.array_equal(numbered.predict(X), 10 * np.searchsorted(names, model.predict(X)))
    batches = [(X[:300], codes[:300] * 10), (X[300:], codes[300:] * 10)]
    source = lt.TwoLayerClassifier(4, classes=[0, 10, 20], **settings)
    assert np.array_equal(source.fit(batches).predict(X), numbered.predict(X))
    with pytest.raises(InvalidInputError, match="give all labels as classes"):
        lt.TwoLayerClassifier(2).fit(batches)
    with pytest.raises(InvalidInputError, match="the label 20, which is none of the 2 classes"):
        lt.TwoLayerClassifier(2, classes=[0, 10]).fit(X, codes * 10)
    with pytest.raises(InvalidInputError, match="'top', which is none"):
        lt.TwoLayerClassifier(2, classes=["low", "middle"]).fit(X, names[codes])
    with pytest.raises(InvalidInputError, match="at least 2 classes"):
        lt.TwoLayerClassifier(2).fit(X, np.zeros(800))


# ---------------------------------------------------------------------- PyTorch
@pytest.mark.parametrize("layer", ["Sigmoid", "ReLU", "GELU"])
def test_modules_start_from_the_network(layer):
    import torch

    module = torch.nn.Sequential(
        torch.nn.Linear(6, 3), getattr(torch.nn, layer)(), torch.nn.Linear(3, 1)
    ).double()
    X, y = PLANTED.X[:150], PLANTED.y[:150]
    assert lt.nn.initialize(module, X, y, refine=5) is module
    found = module(torch.as_tensor(X)).detach().numpy()[:, 0]
    name = layer.lower()
    model = lt.TwoLayerNetwork(3, activation=name, refine=5, random_state=0)
    assert np.abs(found - model.fit(X, y).predict(X)).max() < 1e-8


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_modules_of_classes(outputs):
    import torch

    X, y = PLANTED.X[:300], PLANTED.y[:300]
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6][: max(1, outputs - 1)]))
    module = torch.nn.Sequential(
        torch.nn.Linear(6, 3), torch.nn.Sigmoid(), torch.nn.Linear(3, outputs)
    )
    lt.nn.initialize(module, X, labels, task="classification", refine=30)
    logits = module(torch.as_tensor(X, dtype=torch.float32)).detach().numpy()
    guess = (logits[:, 0] > 0).astype(int) if outputs == 1 else logits.argmax(axis=1)
    assert (guess == labels).mean() > 0.8


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda nn: nn.Linear(6, 1), r"nn.Sequential\(Linear, activation, Linear\), got Linear"),
        (lambda nn: nn.Sequential(nn.Linear(6, 3), nn.Linear(3, 1)), "got Linear -> Linear"),
        (lambda nn: nn.Sequential(nn.Linear(6, 3, bias=False), nn.Tanh(), nn.Linear(3, 1)), "bias"),
        (lambda nn: nn.Sequential(nn.Linear(6, 3), nn.SiLU(), nn.Linear(3, 1)), "SiLU"),
        (lambda nn: nn.Sequential(nn.Linear(5, 3), nn.Tanh(), nn.Linear(3, 1)), "takes 5 features"),
    ],
)  # fmt: skip
def test_modules_that_cannot_be_started(make, message):
    import torch

    with pytest.raises(InvalidInputError, match=message):
        lt.nn.initialize(make(torch.nn), PLANTED.X, PLANTED.y)
    module = torch.nn.Sequential(torch.nn.Linear(6, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1))
    with pytest.raises(InvalidInputError, match="task='labels'"):
        lt.nn.initialize(module, PLANTED.X, PLANTED.y, task="labels")


@pytest.mark.parametrize("seed", range(3))
def test_moments_alone_are_not_called_stable(seed):
    data = make_network(900, 3, 2, activation="tanh", random_state=seed)
    model = lt.TwoLayerNetwork(2, refine=0, random_state=0).fit(data.X, data.y)
    assert model.certificate_.verdict != "stable"
