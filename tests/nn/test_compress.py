"""Compression of networks: outputs count, budgets hold, what cannot be compressed is named."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import latensor as lt  # noqa: E402
from latensor.nn.narrowing import hidden_units, narrow  # noqa: E402
from latensor.nn.refinement import _independent  # noqa: E402
from latensor.nn.statistics import measure, patches  # noqa: E402
from latensor.nn.truncation import Choice, spend, truncated  # noqa: E402

torch.set_num_threads(1)


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.ReLU(),
        torch.nn.Conv2d(12, 16, 3, stride=2, dilation=2, padding=1), torch.nn.ReLU(),
        torch.nn.Flatten(), torch.nn.Linear(144, 40), torch.nn.ReLU(), torch.nn.Linear(40, 10),
    )  # fmt: skip


def images(n=64, seed=1):
    """Smooth pictures: neighbouring entries are correlated, as those of photographs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3, 8, 8)).cumsum(axis=2).cumsum(axis=3)
    return torch.tensor(x / 4, dtype=torch.float32)


@pytest.mark.parametrize(
    "layer, shape",
    [
        (torch.nn.Linear(6, 5), (7, 6)),
        (torch.nn.Conv1d(3, 4, 3, stride=2, padding=1), (2, 3, 9)),
        (torch.nn.Conv2d(3, 4, (3, 2), dilation=(2, 1), padding="same"), (2, 3, 7, 6)),
        (torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), (2, 3, 7, 6)),
        (torch.nn.Conv3d(2, 3, 2), (2, 2, 4, 4, 4)),
    ],
)
def test_patches_times_weights_are_the_layer(layer, shape):
    x = torch.randn(shape)
    y = patches(layer, x) @ layer.weight.detach().flatten(1).double().T
    expected = layer(x) - layer.bias.reshape(-1, *[1] * (len(shape) - 2))
    channels_last = expected if len(shape) == 2 else expected.movedim(1, -1)
    torch.testing.assert_close(
        y, channels_last.detach().reshape(len(y), -1).double(), rtol=1e-4, atol=1e-5
    )


def test_outputs_are_truncated_better_than_weights():
    x, model = images(), network()
    names = ["2", "5"]
    known = measure(model, names, [x])
    inner = model[:2](x), model[:5](x)
    for name, ranks, given in zip(names, ((6, 4), 6), inner, strict=True):
        layer, own = model.get_submodule(name), known[name]
        W = layer.weight.detach().flatten(1).double()
        eye = torch.eye(len(W), dtype=torch.float64)
        best = truncated(layer, W, own.mean, own.covariance, eye, ranks)
        cls = lt.nn.FactorizedLinear if name == "5" else lt.nn.FactorizedConv2d
        plain = cls.from_dense(layer, ranks)
        with torch.no_grad():
            expected = layer(given)
            errors = [float((m(given) - expected).norm()) for m in (best, plain)]
        assert errors[0] < 0.7 * errors[1]


def test_layers_of_low_rank_come_back_exactly():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        lt.nn.FactorizedConv2d(12, 16, 3, (4, 3), padding=1).to_dense(), torch.nn.ReLU(),
        torch.nn.Flatten(), lt.nn.FactorizedLinear(256, 20, 3).to_dense(),
    ).double()  # fmt: skip
    x = torch.randn(80, 12, 4, 4).double()
    small = lt.nn.compress(model, error=1e-4, inputs=x)
    assert small.report.output_error < 1e-3
    assert small.report.keep < 0.4
    assert small.report.layers[1].ranks == 3


def test_budgets_and_the_report():
    x, model = images(), network()
    before = [p.clone() for p in model.parameters()]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, torch.zeros(64)), 20)
    errors = []
    for keep in (0.6, 0.3, 0.15):
        small = lt.nn.compress(model, keep, inputs=loader)
        weights = sum(p.numel() for p in small.parameters() if p.ndim > 1)
        assert weights <= keep * sum(p.numel() for p in model.parameters() if p.ndim > 1)
        errors.append(small.report.output_error)
    assert errors == sorted(errors)
    assert errors[0] < 0.06
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    fast = lt.nn.compress(model, keep_operations=0.7, inputs=x)
    assert fast.report.keep_operations <= 0.7
    with pytest.raises(lt.InvalidInputError, match="is below"):
        lt.nn.compress(model, keep_operations=0.4, inputs=x)
    report = str(small.report)
    for word in ("fewer than 500 weights", "tucker", "svd", "outputs off by"):
        assert word in report
    left = small.report.plot().get_axes()[0]
    assert left.get_xlim()[0] < min(layer.n_weights for layer in small.report.layers)
    assert not any(label.get_text() for label in left.get_xticklabels(minor=True))
    again = lt.nn.compress(model, 0.15, inputs=loader)
    assert torch.equal(again(x), small(x))
    small.train()
    small(x).square().sum().backward()
    assert all(p.grad is not None for p in small.parameters())
    by_cp = lt.nn.compress(model, 0.3, inputs=x, method="cp")
    assert "cp" in [layer.method for layer in by_cp.report.layers]


def test_error_is_about_what_was_allowed():
    x, model = images(), network()
    for error in (0.3, 0.05):
        found = lt.nn.compress(model, error=error, inputs=x).report
        assert error / 6 < found.output_error < 2 * error


def test_what_cannot_be_compressed_is_named():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.again = torch.nn.Linear(64, 64)
            self.grouped = torch.nn.Conv1d(64, 64, 3, groups=2)
            self.left = torch.nn.Linear(64, 64)
            self.last = torch.nn.Linear(64, 64)

        def forward(self, x):
            x = self.again(self.again(x))
            x = self.grouped(x[..., None].expand(-1, -1, 3))[..., 0]
            return self.last(self.left(x))

    torch.manual_seed(0)
    small = lt.nn.compress(Twice(), 0.9, inputs=torch.randn(200, 64), skip=["left"])
    reasons = {layer.name: layer.reason for layer in small.report.layers}
    assert reasons["again"] == "used more than once"
    assert reasons["grouped"] == "groups=2"
    assert reasons["left"] == "skipped"
    assert small.report.layers[-1].method == "svd"


def test_the_norm_of_a_loss_is_its_curvature_in_the_outputs():
    """Of a linear network, F is the mean over inputs of I, diag(p) - pp', or g g'."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4))
    x, labels = torch.randn(4000, 6), torch.randint(0, 4, (4000,))
    with torch.no_grad():
        chances = torch.softmax(model(x), 1).double()
    curvature = torch.diag_embed(chances) - chances[:, :, None] * chances[:, None, :]
    gradients = chances - torch.nn.functional.one_hot(labels, 4)
    expected = {
        None: torch.eye(4, dtype=torch.float64),
        "cross_entropy": curvature.mean(0),
        "labels": gradients.T @ gradients / 4000,
    }

    def loss(outputs, labels):
        return torch.nn.functional.cross_entropy(outputs, labels, reduction="sum")

    for name, F in expected.items():
        batches = [x[:1500], x[1500:]]
        given = {"loss": name}
        if name == "labels":
            given = {"loss": loss, "labels": [labels[:1500], labels[1500:]]}
        found = measure(model, ["0"], batches, **given)["0"].sensitivity
        # Directions are drawn: entries have a standard deviation of at most 4000^-1/2.
        torch.testing.assert_close(found, F, rtol=0, atol=1e-6 if name == "labels" else 0.08)


@pytest.mark.parametrize("loss", [None, "cross_entropy", torch.nn.functional.cross_entropy])
def test_refinement_brings_outputs_closer_and_leaves_skipped_layers(loss):
    x, model = images(), network()
    labels = model(x).argmax(1)
    loader = [(x[:40], labels[:40]), (x[40:], labels[40:])]
    model[0].weight.requires_grad_(False)

    def error(small):
        with torch.no_grad():
            y, z = model(x), small(x)
            if loss != "cross_entropy":
                return float((z - y).square().sum())
            logs = (torch.log_softmax(v, 1) for v in (z, y))
            return float(torch.nn.functional.kl_div(*logs, log_target=True, reduction="sum"))

    settings = {"keep": 0.3, "inputs": loader, "loss": loss, "skip": ["7"]}
    rough, fine = (lt.nn.compress(model, **settings, refine=steps) for steps in (0, 15))
    assert error(fine) < 0.8 * error(rough)
    assert torch.equal(fine[7].weight, model[7].weight)
    assert torch.equal(fine[0].weight, model[0].weight)
    assert all(p.grad is None for p in fine.parameters())
    assert not fine[0].weight.requires_grad


def test_a_budget_is_spent_on_the_layers_that_need_it():
    lists = {
        "a": [Choice(1, 1, 10.0, 1), Choice(2, 2, 1.0, 2), Choice(None, 4, 0.0, 4)],
        "b": [Choice(1, 1, 0.1, 1), Choice(None, 4, 0.0, 4)],
    }
    cost = lambda c: c.n_weights  # noqa: E731
    assert {n: c.ranks for n, c in spend(lists, 3, cost).items()} == {"a": 2, "b": 1}
    assert {n: c.ranks for n, c in spend(lists, 5, cost).items()} == {"a": None, "b": 1}
    assert {n: c.ranks for n, c in spend(lists, 8, cost).items()} == {"a": None, "b": None}


@pytest.mark.parametrize(
    "change, match",
    [
        ({"inputs": []}, "yields nothing"),
        ({"inputs": 3}, "loader"),
        ({"inputs": ["text"]}, "yields str"),
        ({"keep": 0.001}, "raise keep"),
        ({"keep": 1.5}, "below 1"),
        ({"keep": None}, "give one of"),
        ({"error": 0.1}, "give one of"),
        ({"method": "hosvd"}, "method"),
        ({"skip": ["nowhere"]}, "nowhere"),
        ({"model": torch.nn.ReLU()}, "no layer"),
        ({"model": 3}, "torch.nn.Module"),
        ({"loss": "hinge"}, "loss='hinge'"),
        ({"loss": torch.nn.functional.cross_entropy}, "yields no labels"),
        ({"loss": lambda y, t: y, "inputs": [(images(8), torch.zeros(8))]}, "one number"),
        ({"loss": "cross_entropy", "error": 0.1, "keep": None}, "error is that of the outputs"),
        ({"loss": "cross_entropy", "model": network()[:3]}, "classes"),
        ({"refine": -1}, "refine=-1"),
        ({"inputs": images(8)}, "8 inputs cannot span the 40 .* layer '5': give at least 41"),
    ],
)
def test_bad_input(change, match):
    given = {"model": network(), "keep": 0.5, "inputs": images(48), **change}
    with pytest.raises(lt.InvalidInputError, match=match):
        lt.nn.compress(given.pop("model"), given.pop("keep"), **given)


class Viewing(torch.nn.Module):
    """A network that takes activations for contiguous."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(1, 8, 3, padding=1)
        self.convolve = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.pool, self.head = torch.nn.MaxPool2d(2), torch.nn.Linear(64, 3)

    def forward(self, x):
        x = self.pool(self.convolve(self.first(x)).relu())
        return self.head(x.view(len(x), -1))


def test_kernels_are_stored_channels_last_where_the_network_takes_that():
    torch.manual_seed(0)
    x = torch.randn(40, 1, 4, 4)
    viewing = Viewing().eval()
    plain = torch.nn.Sequential(
        viewing.first, viewing.convolve, torch.nn.ReLU(), viewing.pool, torch.nn.Flatten(),
        viewing.head,
    )  # fmt: skip
    for model, is_last in ((plain, True), (viewing, False)):
        small = lt.nn.compress(model, 0.5, inputs=x, refine=0)
        first, second = (small[0], small[1]) if is_last else (small.first, small.convolve)
        for found in (first(x), second(first(x))):
            assert found.is_contiguous(memory_format=torch.channels_last) == is_last
        outputs = small(x)
        again = copy.deepcopy(small)
        for p in again.parameters():
            p.data = torch.empty_like(p.data, memory_format=torch.contiguous_format).copy_(p.data)
        torch.testing.assert_close(outputs, again(x))


def test_layers_that_cannot_be_factorized_are_named_and_left_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.ConvTranspose2d(3, 4, 3), torch.nn.Flatten(), torch.nn.Linear(64, 40)
    )
    small = lt.nn.compress(model, 0.5, inputs=torch.randn(60, 3, 2, 2), refine=0)
    last = small.report.layers[-1]
    assert (last.name, last.method, last.n_weights) == ("0", "dense", 108)
    assert "ConvTranspose2d is not factorized" in str(small.report)
    assert torch.equal(small[0].weight, model[0].weight)
    with pytest.raises(lt.InvalidInputError, match="0: ConvTranspose2d is not factorized"):
        lt.nn.compress(model[:1], 0.5, inputs=torch.randn(6, 3, 2, 2))
    with pytest.raises(lt.InvalidInputError, match="compressed: none has weights"):
        lt.nn.compress(torch.nn.Sequential(torch.nn.ReLU()), 0.5, inputs=torch.randn(6, 3))


def test_one_name_may_be_skipped_by_itself():
    small = lt.nn.compress(network(), 0.9, inputs=torch.randn(64, 3, 8, 8), skip="5", refine=0)
    assert {layer.name: layer.reason for layer in small.report.layers}["5"] == "skipped"


def units_network(seed=0):
    """Every hidden unit twice, behind activations, pooling, normalization and flattening."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.BatchNorm2d(12), torch.nn.ReLU(),
        torch.nn.Sequential(torch.nn.Conv2d(12, 16, 3, padding=1), torch.nn.MaxPool2d(2)),
        torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(256, 20), torch.nn.Tanh(),
        torch.nn.Linear(20, 5, bias=False),
    ).double()  # fmt: skip
    for first, norm in ((model[0], model[1]), (model[3][0], None), (model[6], None)):
        for values in [first.weight, first.bias, *([] if norm is None else norm.parameters())]:
            values.data[1::2] = values.data[::2]
    return model.eval()


def test_units_that_others_predict_are_left_out_without_an_error():
    model, x = units_network(), images().double()
    names = ["0", "3.0", "6", "8"]
    found = hidden_units(model, set(names), x[:1])
    assert [(h.first, h.last, h.n_units, h.area) for h in found] == [
        ("0", "3.0", 12, 9), ("3.0", "6", 16, 16), ("6", "8", 20, 1),
    ]  # fmt: skip
    known = measure(model, names, [x])
    small, rows = narrow(model, names, known, 0.27, by_weights=True, example=x[:1])
    assert {name: len(units) for name, units in rows.items()} == {"0": 6, "3.0": 8, "6": 10}
    # Of two equal units one stays; the ridge shrinks what predicts the other a little.
    with torch.no_grad():
        y, z = model(x), small(x)
    assert float((z - y).norm() / (y - y.mean(0)).norm()) < 1e-2
    assert small[1].num_features == 6
    assert small[8].bias is not None
    report = lt.nn.compress(model, 0.3, inputs=x).report
    assert report.output_error < 0.05
    assert (
        report.output_error
        < lt.nn.compress(model, 0.3, inputs=x, method="low_rank").report.output_error
    )


def test_a_network_with_fewer_units_meets_its_budgets():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(30, 60), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(60, 50),
        torch.nn.ReLU(), torch.nn.Linear(50, 10),
    )  # fmt: skip
    x = torch.randn(400, 4) @ torch.randn(4, 30) + 0.1 * torch.randn(400, 30)
    for budget in ("keep", "keep_operations"):
        small = lt.nn.compress(model, **{budget: 0.2}, inputs=x)
        assert small.report.keep_operations <= 0.2
        assert small[0].out_features + small[3].out_features < 60 + 50
        assert small.report.layers[0].n_weights < 0.5 * 30 * 60
    before, after = model[3], small[3]
    assert before.weight.shape == (50, 60)
    small.train()
    small(x).square().sum().backward()
    assert all(p.grad is not None for p in small.parameters())
    assert after.training
    again = copy.deepcopy(small).eval()
    assert torch.equal(again(x), small.eval()(x))
    low = lt.nn.compress(model, 0.2, inputs=x, method="low_rank")
    assert {layer.method for layer in low.report.layers} <= {"dense", "svd"}


def test_units_that_never_change_are_left_out():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(30, 40), torch.nn.ReLU(), torch.nn.Linear(40, 30), torch.nn.ReLU(),
        torch.nn.Linear(30, 20),
    )  # fmt: skip
    x = torch.randn(200, 30)
    for dead in (slice(None, 20), slice(None)):
        model[0].bias.data[dead] = -100.0
        small = lt.nn.compress(model, 0.3, inputs=x, refine=0)
        assert torch.isfinite(small(x)).all()
    torch.testing.assert_close(small(x), model(x))


class Residual(torch.nn.Module):
    """Layers of a Sequential that are called one by one, with a sum around each."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(24, 24) for _ in range(3)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


def test_units_that_something_else_uses_stay():
    torch.manual_seed(0)
    x = torch.randn(100, 24)
    assert not hidden_units(Residual(), {"layers.0", "layers.1", "layers.2"}, x)
    small = lt.nn.compress(Residual(), 0.4, inputs=x)
    assert "units" not in [layer.method for layer in small.report.layers]
    linear, functions = torch.nn.Linear(24, 24), [torch.nn.Softmax(1), torch.nn.LayerNorm(24)]
    for between in functions:
        model = torch.nn.Sequential(linear, between, torch.nn.Linear(24, 3))
        assert not hidden_units(model, {"0", "2"}, x)
    pooled = torch.nn.Sequential(linear, torch.nn.MaxPool1d(2), torch.nn.Linear(12, 3))
    assert not hidden_units(pooled, {"0", "2"}, x)


def twins(*layers):
    """Make every second unit of layers equal to the one before it."""
    for layer in layers:
        for values in layer.parameters():
            values.data[1::2] = values.data[::2]


def test_units_that_are_twins_all_go_however_large_the_budget():
    """Half of the units write the others: the network has an exact form of 1,440 weights."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 40), torch.nn.Linear(40, 40), torch.nn.Linear(40, 20)]
    twins(*layers[:2])
    model = torch.nn.Sequential(
        layers[0], torch.nn.ReLU(), layers[1], torch.nn.ReLU(), layers[2]
    ).double()
    x = torch.randn(300, 32).double()
    for keep in (0.8, 0.5, 0.4):
        small = lt.nn.compress(model, keep, inputs=x, refine=0)
        assert small.report.output_error < 1e-3
        assert small.report.keep < 0.42


def test_modules_that_are_used_twice_stand_between_layers():
    torch.manual_seed(0)
    for shared, width in ((torch.nn.Softmax(1), 24), (torch.nn.LayerNorm(24), 24)):
        model = torch.nn.Sequential(
            torch.nn.Linear(24, 24), shared, torch.nn.Linear(24, width), shared,
            torch.nn.Linear(width, 30),
        )  # fmt: skip
        assert not hidden_units(model, {"0", "2", "4"}, torch.randn(5, 24))
    norm = torch.nn.BatchNorm2d(16)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(4, 16, 3), norm, torch.nn.Conv2d(16, 16, 3), norm, torch.nn.Conv2d(16, 8, 3)
    ).eval()
    x = torch.randn(20, 4, 9, 9)
    assert not hidden_units(model, {"0", "2", "4"}, x)
    assert lt.nn.compress(model, 0.5, inputs=x, refine=0)(x).shape == (20, 8, 3, 3)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_layers_whose_weights_are_computed_are_left_alone(name):
    torch.manual_seed(0)
    wrap = getattr(torch.nn.utils.parametrizations, name)
    model = torch.nn.Sequential(
        wrap(torch.nn.Linear(30, 30)), torch.nn.ReLU(), torch.nn.Linear(30, 30), torch.nn.ReLU(),
        torch.nn.Linear(30, 20),
    ).eval()  # fmt: skip
    x = torch.randn(200, 30)
    small = lt.nn.compress(model, 0.8, inputs=x, refine=2)
    reasons = {layer.name: layer.reason for layer in small.report.layers}
    assert "remove their parametrization" in reasons["0"]
    assert torch.equal(small[0](x), model[0](x))
    with pytest.raises(lt.InvalidInputError, match="remove their parametrization"):
        lt.nn.compress(model[:1], 0.8, inputs=x)


class ByWeights(torch.nn.Module):
    """Uses the weights of its first layer again, by a function."""

    def __init__(self):
        super().__init__()
        layers = [torch.nn.Linear(24, 30), torch.nn.ReLU(), torch.nn.Linear(30, 24)]
        self.net = torch.nn.Sequential(*layers)
        twins(layers[0])

    def forward(self, x):
        return self.net(x) + torch.nn.functional.linear(x, self.net[0].weight) @ torch.ones(30, 1)


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def test_networks_that_fewer_units_would_break_keep_them():
    torch.manual_seed(0)
    x = torch.randn(200, 24)
    small = lt.nn.compress(ByWeights(), 0.6, inputs=x, refine=2)
    assert "units" not in [layer.method for layer in small.report.layers]
    model = torch.nn.Sequential(Doubled(24, 30), torch.nn.ReLU(), torch.nn.Linear(30, 24))
    small = lt.nn.compress(model, 0.9, inputs=x, refine=2)
    assert {layer.name: layer.reason for layer in small.report.layers}[
        "0"
    ] == "Doubled has its own forward"
    assert torch.equal(small[0].weight, model[0].weight)


def test_nothing_of_the_caller_changes_and_frozen_layers_stay_frozen():
    model, x = network().train(), images()
    for p in model[2].parameters():
        p.requires_grad_(False)
    state = torch.get_rng_state()
    for settings in ({"keep": 0.4}, {"keep": 0.4, "method": "cp"}):
        small = lt.nn.compress(model, **settings, inputs=x, refine=2)
        assert {layer.name: layer.method for layer in small.report.layers}["2"] != "dense"
        assert not any(p.requires_grad for p in small[2].parameters())
        assert all(p.requires_grad for p in small[7].parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert all(module.training for module in model.modules())


def test_a_budget_below_an_embedding_names_it():
    model = torch.nn.Sequential(
        torch.nn.Embedding(2000, 16), torch.nn.Flatten(), torch.nn.Linear(64, 32), torch.nn.ReLU(),
        torch.nn.Linear(32, 3),
    )  # fmt: skip
    with pytest.raises(
        lt.InvalidInputError, match=r"32,096 of them in layers left alone \(Embedding"
    ):
        lt.nn.compress(model, 0.1, inputs=torch.randint(2000, (50, 4)))


def perceptron(outputs=10):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(40, 60), torch.nn.ReLU(), torch.nn.Linear(60, 50), torch.nn.ReLU(),
        torch.nn.Linear(50, outputs),
    )  # fmt: skip


def rows(n=150, seed=2):
    return torch.randn(n, 40, generator=torch.Generator().manual_seed(seed))


def reasons_of(small):
    return {layer.name: layer.reason for layer in small.report.layers}


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("squeezed", [False, True])
def test_outputs_of_a_regression_are_kept_not_their_differences(outputs, squeezed):
    """No mean over outputs is removed: of one output nothing would be left to keep."""
    model, x = perceptron(outputs), rows(400)
    with torch.no_grad():
        model[4].weight[:] = model[4].weight[:1]  # two outputs that are always the same
    if squeezed and outputs == 1:
        model.append(torch.nn.Flatten(0))
    small = lt.nn.compress(model, 0.5, inputs=x)
    with torch.no_grad():
        y, z = model(x), small(x)
    error = float((z - y).norm() / (y - y.mean(0)).norm())
    assert error < 0.2
    assert abs(error - small.report.output_error) < 1e-4
    assert small.report.keep > 0.2


class Aliased(torch.nn.Module):
    """Layers that stand under two names, and are called by the second."""

    def __init__(self, kind):
        super().__init__()
        self.first, self.last = torch.nn.Linear(40, 60), torch.nn.Linear(60, 30)
        self.order = kind([self.first, self.last])

    def forward(self, x):
        for layer in self.order:
            x = layer(x).relu()
        return x


def test_layers_of_two_names_are_replaced_under_both():
    torch.manual_seed(0)
    model, x = Aliased(torch.nn.ModuleList), rows()
    small = lt.nn.compress(model, 0.5, inputs=x)
    assert small.order[0] is small.first
    assert small.order[1] is small.last
    assert small.report.keep < 0.55
    assert not torch.equal(small(x), model(x))
    with pytest.raises(lt.InvalidInputError, match="called by another reference than its name"):
        lt.nn.compress(Aliased(list), 0.5, inputs=x)  # a list, which nothing replaces
    alone = lt.nn.compress(torch.nn.Linear(40, 40), 0.4, inputs=x)
    assert isinstance(alone, lt.nn.FactorizedLinear)
    assert alone.report.keep < 0.45


class Odd(torch.nn.Module):
    """Ways to call layers that no replacement could follow."""

    def __init__(self):
        super().__init__()
        self.no_gradient, self.detached = torch.nn.Linear(40, 40), torch.nn.Linear(40, 40)
        self.by_keyword, self.hooked = torch.nn.Linear(40, 40), torch.nn.Linear(40, 40)
        self.unused, self.plain = torch.nn.Linear(40, 40), torch.nn.Linear(40, 40)
        self.hooked.register_forward_hook(lambda module, given, output: 2 * output)
        self.watched, self.complex = (
            torch.nn.Linear(40, 40),
            torch.nn.Linear(40, 40, dtype=torch.cfloat),
        )
        self.watched.register_full_backward_hook(lambda module, given, output: None)

    def forward(self, x):
        with torch.no_grad():
            x = self.no_gradient(x).relu()
        x = self.detached(x).relu().detach()
        x = self.hooked(self.by_keyword(input=x).relu())
        x = self.complex(torch.complex(x, x)).abs()
        return self.plain(self.watched(x).relu())


def test_layers_that_no_replacement_could_follow_are_named():
    torch.manual_seed(0)
    model, x = Odd(), rows()
    small = lt.nn.compress(model, 0.95, inputs=x, refine=3)
    assert reasons_of(small) == {
        "no_gradient": "outputs have no gradient by it",
        "detached": "outputs have no gradient by it",
        "by_keyword": "called by keyword",
        "hooked": "has hooks",
        "watched": "has hooks",
        "complex": "complex weights",
        "unused": "not used on these inputs",
        "plain": "",
    }
    assert [layer.name for layer in small.report.layers if layer.method == "svd"] == ["plain"]
    assert torch.equal(small.hooked(x), model.hooked(x))


def test_biases_that_are_computed_are_left_alone_and_models_that_cannot_be_copied_refused():
    from torch.nn.utils import parametrize, prune

    model, x = perceptron(), rows()
    parametrize.register_parametrization(model[0], "bias", torch.nn.Tanh())
    small = lt.nn.compress(model, 0.8, inputs=x, refine=0)
    assert "remove their parametrization" in reasons_of(small)["0"]
    pruned = perceptron()
    prune.l1_unstructured(pruned[2], "weight", 0.5)
    normed = perceptron().append(torch.nn.utils.spectral_norm(torch.nn.Linear(10, 80)))
    for refused in (pruned, normed):
        refused(x)
        with pytest.raises(lt.InvalidInputError, match="cannot be copied"):
            lt.nn.compress(refused, 0.5, inputs=x)


def test_models_from_compile_and_inference_mode():
    model, x = perceptron(), rows()
    expected = lt.nn.compress(model, 0.4, inputs=x, refine=3)(x)
    compiled = torch.compile(model, backend="eager")
    small = lt.nn.compress(compiled, 0.4, inputs=x, refine=3)
    assert type(small) is torch.nn.Sequential
    torch.testing.assert_close(small(x), expected)
    with torch.inference_mode():
        frozen = copy.deepcopy(model).requires_grad_(False)
        small = lt.nn.compress(frozen, 0.4, inputs=x.clone(), refine=3)
    torch.testing.assert_close(small(x), expected)
    assert not any(p.requires_grad for p in small.parameters())


def test_activations_in_place_change_nothing():
    x = images()
    found = []
    for in_place in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.ReLU(in_place),
            torch.nn.Conv2d(12, 16, 3), torch.nn.ReLU(in_place), torch.nn.Flatten(),
            torch.nn.Linear(576, 10),
        ).requires_grad_(False)  # fmt: skip
        small = lt.nn.compress(model, 0.3, inputs=x, refine=3)
        found.append((small(x), [layer.output_error for layer in small.report.layers]))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert found[0][1] == pytest.approx(found[1][1])


def test_kernels_that_came_channels_last_are_refined():
    x = images().to(memory_format=torch.channels_last)
    model = network().to(memory_format=torch.channels_last)
    small = lt.nn.compress(model, 0.9, inputs=x, refine=3, method="low_rank")
    assert "nothing gained" in reasons_of(small).values()


def test_a_frozen_network_of_integers_is_measured():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(50, 8), torch.nn.Flatten(), torch.nn.Linear(40, 60), torch.nn.ReLU(),
        torch.nn.Linear(60, 10),
    ).requires_grad_(False)  # fmt: skip
    small = lt.nn.compress(model, 0.6, inputs=torch.randint(50, (200, 5)))
    assert small.report.output_error < 0.5


def test_normalization_by_the_batch_takes_its_inputs_together():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 60), torch.nn.BatchNorm1d(60, track_running_stats=False),
        torch.nn.ReLU(), torch.nn.Linear(60, 10),
    )  # fmt: skip
    assert lt.nn.compress(model, 0.5, inputs=rows(), refine=3).report.keep < 0.55


class Returns(torch.nn.Module):
    def __init__(self, what):
        super().__init__()
        self.net, self.what = perceptron(), what

    def forward(self, x):
        return self.what(self.net(x))


@pytest.mark.parametrize(
    "model, x, match",
    [
        (perceptron(), torch.randn(9, 41), r"inputs of shape \(2, 41\)"),
        (perceptron(), torch.randn(9, 40).double(), "torch.float64"),
        (perceptron().to("meta"), torch.randn(9, 40), "device meta"),
        (Returns(lambda y: {"logits": y}), torch.randn(9, 40), "one tensor .* got dict"),
        (Returns(lambda y: (y, y)), torch.randn(9, 40), "one tensor .* got tuple"),
        (Returns(lambda y: y.sum()), torch.randn(9, 40), "a row for each input"),
        (Returns(torch.fft.fft), torch.randn(9, 40), "real outputs, got torch.complex64"),
        (perceptron(), [{"x": torch.randn(9, 40)}], "yields dict"),
        (perceptron(), torch.ones(9, 40), "all the same"),
        (perceptron(), torch.randn(1, 40), "all the same"),
    ],
)
def test_networks_and_inputs_that_do_not_fit_each_other(model, x, match):
    with pytest.raises(lt.InvalidInputError, match=match):
        lt.nn.compress(model, 0.5, inputs=x)


def test_many_inputs_are_refined_in_batches():
    """What was learned holds on other inputs; batches of any sizes, the same twice."""
    model, x = perceptron(), rows(1500)
    with torch.no_grad():
        y, others = model(rows(500, seed=3)), rows(500, seed=3)
    loader = [x[:700], x[700:710], x[710:]]
    rough, fine, again = (
        lt.nn.compress(model, 0.2, inputs=loader, refine=steps) for steps in (0, 40, 40)
    )
    with torch.no_grad():
        errors = [float((each(others) - y).norm()) for each in (rough, fine)]
    assert errors[1] < 0.98 * errors[0]
    assert torch.equal(again(others), fine(others))
    assert all(p.grad is None for p in fine.parameters())


def test_outputs_that_depend_on_the_batch_are_refined_over_all_inputs():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(40, 60), torch.nn.BatchNorm1d(60, track_running_stats=False),
        torch.nn.ReLU(), torch.nn.Linear(60, 10),
    )  # fmt: skip
    x = rows(1200).cumsum(0)
    assert not _independent(model.eval(), x)
    rough, fine = (lt.nn.compress(model, 0.3, inputs=x, refine=steps) for steps in (0, 10))
    assert fine.report.output_error < rough.report.output_error


def test_entries_that_are_no_numbers_are_named():
    x = torch.randn(60, 4)
    model = torch.nn.Sequential(torch.nn.Linear(4, 200), torch.nn.ReLU(), torch.nn.Linear(200, 3))
    with pytest.raises(lt.InvalidInputError, match="inputs holds NaN"):
        lt.nn.compress(model, 0.5, inputs=torch.where(x > 1, torch.nan, x))
    with pytest.raises(lt.InvalidInputError, match="give a generator of tensors"):
        lt.nn.compress(model, 0.5, inputs=[{"x": x}])
    with torch.no_grad():
        model[2].weight[0, 0] = torch.inf
    with pytest.raises(lt.InvalidInputError, match=r"parameter '2.weight' of model"):
        lt.nn.compress(model, 0.5, inputs=x)
