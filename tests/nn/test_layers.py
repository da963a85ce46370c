"""Layers: planted weights come back, maps and gradients are those of the dense layer."""

import copy
import io
import pickle
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.utils.parametrize import register_parametrization  # noqa: E402

import latensor as lt  # noqa: E402
from latensor.nn import parts  # noqa: E402

torch.set_num_threads(1)


def conv(n, **options):
    return {1: torch.nn.Conv1d, 2: torch.nn.Conv2d, 3: torch.nn.Conv3d}[n](
        4, 5, **{"kernel_size": 3, "padding": 1, **options}
    ).double()


def factorized(n):
    return {1: lt.nn.FactorizedConv1d, 2: lt.nn.FactorizedConv2d, 3: lt.nn.FactorizedConv3d}[n]


CONV_RANKS = [
    ((3, 2), "tucker"),
    ((None, 2), "tucker"),
    ((3, None), "tucker"),
    (4, "cp"),
    (3, "tt"),
]


def planned(layer, plan):
    """A head that takes one order of products whatever the number of samples."""
    layer._work = {plan: layer._work[plan]}
    return layer


def layers():
    """Layers with their input."""
    torch.manual_seed(0)
    yield lt.nn.FactorizedLinear(6, 5, 2).double(), torch.randn(7, 6).double()
    yield lt.nn.FactorizedLinear(6, 5, 5, bias=False).double(), torch.randn(2, 7, 6).double()
    for n in (1, 2, 3):
        for ranks, method in CONV_RANKS:
            layer = factorized(n)(4, 5, 3, ranks, method, padding=1, stride=2).double()
            yield layer, torch.randn(2, 4, *[6] * n).double()
    for ranks, method in (((2, 2, 3), "tucker"), ((2, 2), "tucker"), (3, "cp"), ((3, 2), "tt")):
        layer = lt.nn.TensorRegression((4, 5), 3, ranks, method).double()
        yield layer, torch.randn(7, 4, 5).double()
    for plan in ("whole", "joined", "modes"):
        layer = lt.nn.TensorRegression((4, 5, 3), 3, (2, 2, 2, 3)).double()
        yield planned(layer, plan), torch.randn(2, 7, 4, 5, 3).double()
    for ranks in ((1, 3, 2, 2), (4, 1, 2, 2)):  # either side of the core the larger
        layer = lt.nn.TensorRegression((4, 5, 3), 3, ranks).double()
        yield planned(layer, "whole"), torch.randn(7, 4, 5, 3).double()
    yield lt.nn.TensorRegression((9,), 4, (2, 3)).double(), torch.randn(7, 9).double()
    yield lt.nn.TensorContraction((4, 5), (2, 3), bias=True).double(), torch.randn(7, 4, 5).double()


CASES = list(layers())
NAMES = [f"{type(layer).__name__}-{i}" for i, (layer, _) in enumerate(CASES)]


def flat(layer, x):
    """What the dense layer of a layer is given."""
    n = len(getattr(layer, "in_shape", ()))
    return x.flatten(-n) if n else x


@pytest.mark.parametrize("layer, x", CASES, ids=NAMES)
def test_the_map_and_its_gradients_are_those_of_the_dense_layer(layer, x):
    dense = layer.to_dense()
    assert type(dense) in (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    x = x.clone().requires_grad_()
    y, again = layer(x), x.detach().clone().requires_grad_()
    z = dense(flat(layer, again))
    torch.testing.assert_close(y.reshape(z.shape), z, rtol=1e-10, atol=1e-10)
    y.square().sum().backward()
    z.square().sum().backward()
    torch.testing.assert_close(x.grad, again.grad, rtol=1e-6, atol=1e-9)
    # The chain rule through the reconstruction.
    if hasattr(layer, "weight"):
        names = [n for n, p in layer.named_parameters() if n != "bias"]
        parameters = [dict(layer.named_parameters())[n] for n in names]
        grads = [p.grad.clone() for p in parameters]
        expected = torch.autograd.grad(layer.weight, parameters, dense.weight.grad)
        for one, other in zip(grads, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-9)
    if layer.bias is not None:
        torch.testing.assert_close(layer.bias.grad.flatten(), dense.bias.grad)


@pytest.mark.parametrize("layer, x", CASES, ids=NAMES)
def test_state_copies_and_pickles(layer, x):
    expected = layer(x)
    other = copy.deepcopy(layer)
    for parameter in other.parameters():
        torch.nn.init.zeros_(parameter)
    stored = io.BytesIO()
    torch.save(layer.state_dict(), stored)
    stored.seek(0)
    other.load_state_dict(torch.load(stored, weights_only=True))
    assert torch.equal(other(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), expected)
    assert repr(layer)


@pytest.mark.parametrize("layer, x", CASES, ids=NAMES)
def test_mixed_precision_and_other_dtypes(layer, x):
    expected, single = layer(x).detach(), copy.deepcopy(layer).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = single(x.float())
        found.float().sum().backward()
    half = copy.deepcopy(layer).bfloat16()(x.bfloat16())
    assert half.dtype == torch.bfloat16
    eps = torch.finfo(torch.bfloat16).eps
    for y in (found, half):  # a few products, each rounded
        assert float((y.detach().double() - expected).norm() / expected.norm()) < 8 * eps


@pytest.mark.parametrize("plan", ["whole", "joined", "modes"])
def test_heads_have_gradients_of_every_sample(plan):
    head, x = lt.nn.TensorRegression((4, 5, 3), 3, (2, 2, 2, 3)).double(), torch.randn(6, 4, 5, 3)
    planned(head, plan)
    x, known = x.double(), dict(head.named_parameters())

    def loss(values, rows):
        return torch.func.functional_call(head, values, (rows,)).square().sum()

    each = torch.func.vmap(torch.func.grad(lambda v, row: loss(v, row[None])), (None, 0))(known, x)
    for name, whole in torch.func.grad(loss)(known, x).items():
        torch.testing.assert_close(each[name].sum(0), whole)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("ranks, method", CONV_RANKS)
def test_planted_kernels_come_back_exactly(n, ranks, method):
    torch.manual_seed(1)
    planted = factorized(n)(4, 5, 3, ranks, method, padding=1).double()
    dense = planted.to_dense()
    found = factorized(n).from_dense(dense, ranks, method)
    torch.testing.assert_close(found.weight, dense.weight, rtol=1e-6, atol=1e-7)
    x = torch.randn(2, 4, *[6] * n).double()
    torch.testing.assert_close(found(x), dense(x), rtol=1e-6, atol=1e-7)


def test_planted_matrices_tables_and_heads_come_back_exactly():
    torch.manual_seed(2)
    dense = lt.nn.FactorizedLinear(8, 6, 2).double().to_dense()
    found = lt.nn.FactorizedLinear.from_dense(dense, 2)
    torch.testing.assert_close(found.weight, dense.weight)
    table = lt.nn.FactorizedEmbedding(20, 6, 3, padding_idx=1).double().to_dense()
    assert not table.weight[1].any()
    small = lt.nn.FactorizedEmbedding.from_dense(table, 3)
    index = torch.tensor([[3, 1], [0, 19]])
    torch.testing.assert_close(small(index), table(index))
    small(index).sum().backward()
    assert not small.entries.grad[1].any()
    for ranks, method in (((2, 2, 3), "tucker"), (2, "cp"), ((3, 2), "tt")):
        head = lt.nn.TensorRegression((4, 5), 3, ranks, method).double().to_dense()
        again = lt.nn.TensorRegression.from_dense(head, (4, 5), ranks, method)
        torch.testing.assert_close(again.weight, head.weight, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("method, ranks", [("tucker", (2, 2)), ("cp", 3), ("tt", 2)])
@pytest.mark.parametrize(
    "options",
    [
        {"dilation": 2, "stride": (2, 1), "padding": (2, 1)},
        {"padding": "same", "kernel_size": (2, 3)},
        {"padding_mode": "reflect", "padding": 1},
        {"padding_mode": "circular", "padding": (1, 2), "bias": False},
    ],
)
def test_every_setting_of_the_dense_layer_is_kept(method, ranks, options):
    torch.manual_seed(0)
    small = lt.nn.FactorizedConv2d.from_dense(conv(2, **options), ranks, method)
    dense, x = small.to_dense(), torch.randn(2, 4, 7, 8).double()
    for name in ("stride", "padding", "dilation", "padding_mode"):
        assert getattr(dense, name) == getattr(conv(2, **options), name)
    torch.testing.assert_close(small(x), dense(x), rtol=1e-8, atol=1e-9)


def test_starting_values_have_the_variance_of_dense_layers():
    torch.manual_seed(0)
    for layer, fan_in in (
        (lt.nn.FactorizedLinear(200, 300, 40), 200),
        (lt.nn.FactorizedConv2d(40, 50, 3, (20, 20)), 360),
        (lt.nn.FactorizedConv2d(40, 50, 3, 60, "cp"), 360),
        (lt.nn.TensorRegression((16, 8, 8), 20, (8, 6, 6, 10)), 1024),
    ):
        found = []
        for _ in range(20):
            layer.reset_parameters()
            found.append(float(layer.weight.detach().var()))
        assert np.mean(found) == pytest.approx(parts.standard_variance(fan_in), rel=0.3)


def test_component_dropout_is_unbiased_and_off_in_evaluation():
    torch.manual_seed(0)
    for layer, x in (
        (lt.nn.FactorizedLinear(6, 5, 4, dropout=0.5), torch.randn(3, 6)),
        (lt.nn.FactorizedConv2d(4, 5, 3, 6, "cp", dropout=0.5), torch.randn(1, 4, 4, 4)),
        (lt.nn.TensorRegression((4, 5), 3, (3, 3), dropout=0.3), torch.randn(3, 4, 5)),
    ):
        with torch.no_grad():
            mean = torch.stack([layer(x) for _ in range(4000)]).mean(0)
            layer.eval()
            expected = layer(x)
        assert torch.equal(layer(x), expected)
        assert float((mean - expected).abs().max()) < 0.1 * float(expected.abs().max()) + 0.02


def test_export_and_compile():
    layer, x = lt.nn.FactorizedConv2d(4, 5, 3, (3, 2), padding=1), torch.randn(2, 4, 6, 6)
    model = torch.nn.Sequential(
        layer,
        lt.nn.TensorContraction((5, 6, 6), (4, 5, 5)),
        lt.nn.TensorRegression((4, 5, 5), 6, (2, 2, 2)),
        lt.nn.FactorizedLinear(6, 3, 2),
    )
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))
    compiled = torch.compile(model, backend="aot_eager")
    torch.testing.assert_close(compiled(x), model(x))
    batch = {0: torch.export.Dim("batch")}
    exported = torch.export.export(model, (x,), dynamic_shapes=(batch,)).module()
    torch.testing.assert_close(exported(x.repeat(3, 1, 1, 1)), model(x.repeat(3, 1, 1, 1)))


@pytest.mark.parametrize("ranks", [(1, 2, 2, 2), (3, 1, 2, 2)])
@pytest.mark.parametrize("plan", ["whole", "joined", "modes"])
def test_heads_have_second_derivatives(plan, ranks):
    torch.manual_seed(0)
    layer = lt.nn.TensorRegression((3, 2, 2), 3, ranks).double()
    planned(layer, plan)
    names = [name for name, _ in layer.named_parameters()]

    def call(x, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    given = [torch.randn(2, 3, 2, 2).double(), *(p.detach() for p in layer.parameters())]
    assert torch.autograd.gradgradcheck(call, [v.requires_grad_() for v in given])


class Doubled(torch.nn.Module):
    """A parametrization, whose values are stored by column."""

    def forward(self, values):
        return (2 * values.t().contiguous()).t()


@pytest.mark.parametrize("shape", [(4, 5), (4, 3, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("plan", ["whole", "joined", "modes"])
def test_heads_take_any_leading_dimensions(plan, shape):
    torch.manual_seed(0)
    layer = lt.nn.TensorRegression(shape, 3, 2).double()
    planned(layer, plan)
    twice = copy.deepcopy(layer)
    register_parametrization(twice.factors, str(len(shape) - 1), Doubled())
    for lead in ((), (0,), (2, 3)):
        x = torch.randn(*lead, *shape).double()
        torch.testing.assert_close(layer(x), layer.to_dense()(x.flatten(-len(shape))))
        torch.testing.assert_close(twice(x) - layer.bias, 2 * (layer(x) - layer.bias))


def test_heads_choose_the_cheapest_order_of_products():
    """As measured: one product where few directions of outputs are left, else factors first."""
    plans = {
        ((64, 7, 7), 10, (16, 3, 3, 10), 64): "whole",
        ((64, 7, 7), 10, (16, 3, 3, 10), 16): "joined",  # weights are not formed for few samples
        ((64, 7, 7), 100, (16, 3, 3, 10), 64): "whole",
        ((512, 7, 7), 1000, (64, 3, 3, 200), 64): "joined",
        ((64, 56, 56), 1000, (16, 28, 28, 100), 64): "modes",
    }
    for (shape, outputs, ranks, n_samples), plan in plans.items():
        with torch.device("meta"):
            assert lt.nn.TensorRegression(shape, outputs, ranks)._plan(n_samples) == plan


def test_importing_latensor_imports_no_torch():
    code = "import sys, latensor; dir(latensor); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda: lt.nn.FactorizedLinear(4, 3, 4), "exceeds 3"),
        (lambda: lt.nn.FactorizedLinear(4, 3, 0), "at least 1"),
        (lambda: lt.nn.FactorizedLinear(4, 3, 2, dropout=1), "dropout"),
        (lambda: lt.nn.FactorizedLinear.from_dense(conv(1), 2), "torch.nn.Linear"),
        (lambda: lt.nn.FactorizedConv2d(4, 5, 3, (6, 2)), "exceeds 5"),
        (lambda: lt.nn.FactorizedConv2d(4, 5, 3, 2), "R_out, R_in"),
        (lambda: lt.nn.FactorizedConv2d(4, 5, 3, 2, "hosvd"), "method"),
        (lambda: lt.nn.FactorizedConv2d(4, 5, (3, 3, 3), (2, 2)), "kernel_size"),
        (lambda: lt.nn.FactorizedConv2d.from_dense(conv(1), (2, 2)), "Conv2d"),
        (
            lambda: lt.nn.FactorizedConv2d.from_dense(
                torch.nn.Conv2d(4, 4, 3, groups=2), (2, 2)
            ),
            "groups=2",
        ),
        (lambda: lt.nn.TensorRegression((4, 5), 3, (5, 2)), "exceeds 4"),
        (lambda: lt.nn.TensorRegression((4, 5), 3, (2, 2, 2, 2)), "one per mode"),
        (lambda: lt.nn.TensorContraction((4, 5), (2,)), "one dimension"),
        (lambda: lt.nn.FactorizedLinear(4, 3, 2)(torch.ones(2, 5)), r"\(4,\), got shape \(2, 5\)"),
        (lambda: lt.nn.FactorizedConv2d(4, 5, 3, (2, 2))(torch.ones(2, 5, 6, 6)), "channels"),
        (lambda: lt.nn.TensorRegression((4, 5), 3, (2, 2))(torch.ones(2, 5, 4)), "last dimensions"),
        (
            lambda: lt.nn.FactorizedLinear(4, 3, 2, device="meta")(torch.ones(2, 4)),
            "device meta but its input on cpu",
        ),
    ],
)  # fmt: skip
def test_bad_input(call, match):
    with pytest.raises(lt.InvalidInputError, match=match):
        call()


def test_devices_of_the_caller():
    """The same code on whatever device exists."""
    found = [d for d in ("cuda", "mps") if getattr(torch.backends, d, None) and getattr(
        torch, d).is_available()]  # fmt: skip
    for device in [*found, "cpu"]:
        layer = lt.nn.FactorizedConv2d.from_dense(torch.nn.Conv2d(4, 5, 3).to(device), (3, 2))
        assert layer(torch.ones(1, 4, 5, 5, device=device)).device.type == device
    assert np.isfinite(layer.weight.detach().cpu().numpy()).all()


def test_a_contraction_makes_no_mode_larger():
    with pytest.raises(lt.InvalidInputError, match=r"out_shape\[1\]=4 of TensorContr"):
        lt.nn.TensorContraction((5, 3), (2, 4))
