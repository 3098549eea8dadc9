"""The C kernel of a ReLU's and a bias's gradient, beside torch's operations."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor

from trainer.models.dense_ops import FusedMLP
from trainer.native import relu

CPU = torch.device("cpu")
TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@pytest.fixture
def kernel() -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    assert relu.load_relu() is not None  # with a compiler, it compiles


def _random(*shape: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 3])
@TYPES
@pytest.mark.parametrize(("samples", "columns"), [(1, 1), (63, 5), (64, 64), (65, 33), (1000, 512), (0, 8)])
def test_the_kernel_computes_both_gradients(
    samples: int, columns: int, dtype: torch.dtype, threads: int, *, in_place: bool
) -> None:
    gradient = _random(samples, columns, seed=0, dtype=dtype)
    output = _random(samples, columns, seed=1, dtype=dtype).relu()
    given, before = gradient.clone(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert relu.takes(given, output)
        found, sums = relu.backward(given, output, in_place=in_place)
    finally:
        torch.set_num_threads(before)
    expected = torch.ops.aten.threshold_backward(gradient, output, 0)
    assert torch.equal(found, expected)
    assert sums.dtype == torch.float32
    torch.testing.assert_close(sums.double(), expected.double().sum(0), rtol=1e-5, atol=1e-5)
    if in_place:
        assert found.data_ptr() == given.data_ptr()
    else:
        assert torch.equal(given, gradient)


@pytest.mark.usefixtures("kernel")
@TYPES
def test_the_sum_does_not_depend_on_the_number_of_threads(dtype: torch.dtype) -> None:
    gradient, output = (_random(4_097, 40, seed=seed, dtype=dtype) for seed in (0, 1))
    results, before = [], torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        results.append(relu.backward(gradient, output, in_place=False)[1])
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


@pytest.mark.usefixtures("kernel")
def test_the_sum_of_many_samples_is_exact_to_a_few_roundings() -> None:
    gradient = torch.full((1 << 18, 3), 0.1)
    _, sums = relu.backward(gradient, torch.ones_like(gradient), in_place=False)
    exact = gradient.double().sum(0)
    assert float(((sums.double() - exact) / exact).abs().max()) < 1e-5  # 1e-3 if added one by one


@pytest.mark.usefixtures("kernel")
@TYPES
def test_rows_may_have_others_between_them(dtype: torch.dtype) -> None:
    wide, outputs = _random(70, 48, seed=0, dtype=dtype), _random(70, 40, seed=1, dtype=dtype)
    gradient, output = wide[:, 8:40], outputs[:, 4:36]
    expected = torch.ops.aten.threshold_backward(gradient, output, 0)
    rest = wide.clone()
    found, sums = relu.backward(gradient, output, in_place=False)
    assert torch.equal(found, expected)
    assert torch.equal(wide, rest)
    torch.testing.assert_close(sums, expected.sum(0, dtype=torch.float32))
    found, _ = relu.backward(gradient, output, in_place=True)
    assert torch.equal(wide[:, 8:40], expected)
    assert torch.equal(wide[:, :8], rest[:, :8])
    assert torch.equal(wide[:, 40:], rest[:, 40:])


@pytest.mark.usefixtures("kernel")
@TYPES
def test_what_is_no_number_is_as_with_torch(dtype: torch.dtype) -> None:
    odd = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, -1.0, 1.0, 1e-38], dtype=dtype)
    gradient, output = torch.cartesian_prod(odd, odd).t().contiguous().split(1)
    expected = torch.ops.aten.threshold_backward(gradient, output, 0)
    found, _ = relu.backward(gradient, output, in_place=False)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    same_sign = (found.signbit() == expected.signbit()) | found.isnan()
    assert bool(same_sign.all())


def test_other_types_and_layouts_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.ones(4, 6)
    assert not relu.takes(values.double(), values.double())
    assert not relu.takes(values.bfloat16(), values)
    assert not relu.takes(values.t(), values.t())
    assert not relu.takes(values.to("meta"), values.to("meta"))
    monkeypatch.setattr("trainer.native.relu.load_relu", lambda: None)
    assert not relu.takes(values, values)


@TYPES
@pytest.mark.parametrize("relu_last", [True, False])
def test_an_mlp_has_the_same_gradients_with_and_without_the_kernel(
    dtype: torch.dtype, *, relu_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    mlp = FusedMLP(20, (48, 32, 16), relu_last=relu_last, device=CPU)
    results = []
    for load in (relu.load_relu, lambda: None):
        monkeypatch.setattr("trainer.native.relu.load_relu", load)
        inputs = _random(130, 20, seed=2).requires_grad_()
        output = mlp(inputs, dtype=dtype)
        weights = _random(130, 16, seed=3, dtype=dtype)  # autograd may pass it to others
        before = weights.clone()
        gradients = torch.autograd.grad(output, [inputs, *mlp.parameters()], weights)
        assert torch.equal(weights, before)
        results.append(gradients)
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-5)
