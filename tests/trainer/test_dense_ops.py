from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from trainer.loop.setup import exact_on_cpus
from trainer.models.dense_ops import DotInteraction, FusedMLP

CPU = torch.device("cpu")


def _reference_interaction(bottom: Tensor, tables: Tensor) -> Tensor:
    vectors = torch.cat([bottom[:, None], tables], dim=1)
    count = vectors.shape[1]
    pairs = [(vectors[:, i] * vectors[:, j]).sum(1) for i in range(count) for j in range(i + 1, count)]
    return torch.cat([bottom, torch.stack(pairs, dim=1)], dim=1)


def _random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 3, 1, 2]])
def test_the_interaction_is_the_dot_product_of_every_pair_in_a_fixed_order(order: list[int]) -> None:
    bottom, tables = _random(6, 5), _random(6, 3, 5, seed=1)
    arrived = tables[:, [order.index(place) - 1 for place in (1, 2, 3)]]  # in the order of another plan
    got = DotInteraction.apply(bottom, arrived, *DotInteraction.make_indices(order, CPU))
    torch.testing.assert_close(got, _reference_interaction(bottom, tables))


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 3, 1]])
def test_the_gradient_of_the_interaction_is_correct(order: list[int]) -> None:
    bottom, tables = _random(4, 5).double(), _random(4, 3, 5, seed=1).double()
    bottom, tables = bottom.detach().requires_grad_(), tables.detach().requires_grad_()
    indices = DotInteraction.make_indices(order, CPU)
    got = DotInteraction.apply(bottom, tables, *indices)
    weights = torch.randn(got.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    (got * weights).sum().backward()
    vectors = tables[:, [place - 1 for place in order[1:]]].detach().requires_grad_()
    twin = bottom.detach().requires_grad_()
    (_reference_interaction(twin, vectors) * weights).sum().backward()
    torch.testing.assert_close(bottom.grad, twin.grad, rtol=1e-5, atol=1e-6)
    assert tables.grad is not None
    torch.testing.assert_close(
        tables.grad[:, [place - 1 for place in order[1:]]], vectors.grad, rtol=1e-5, atol=1e-6
    )


def _twin(mlp: FusedMLP, *, relu_last: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for layer in mlp.layers:
        linear = nn.Linear(layer.in_features, layer.out_features)
        linear.load_state_dict(layer.state_dict())
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*(layers if relu_last else layers[:-1]))


@pytest.mark.parametrize("relu_last", [True, False])
def test_the_mlp_and_its_gradients_equal_those_of_plain_layers(*, relu_last: bool) -> None:
    torch.manual_seed(0)
    mlp = FusedMLP(7, (12, 5, 3), relu_last=relu_last, device=CPU)
    twin = _twin(mlp, relu_last=relu_last)
    inputs, others = _random(9, 7), _random(9, 7)
    mlp(inputs, dtype=torch.float32).square().sum().backward()
    twin(others).square().sum().backward()
    torch.testing.assert_close(inputs.grad, others.grad)
    for ours, theirs in zip(mlp.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_bf16_keeps_weights_and_gradients_in_fp32_with_close_results() -> None:
    torch.manual_seed(0)
    mlp = FusedMLP(64, (128, 32, 1), relu_last=False, device=CPU)
    inputs = _random(256, 64)
    exact, rounded = mlp(inputs, dtype=torch.float32), mlp(inputs, dtype=torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), exact, rtol=0.02, atol=0.02)
    rounded.float().sum().backward()
    assert {parameter.grad.dtype for parameter in mlp.parameters()} == {torch.float32}


def test_fp32_matrix_products_have_fp32_accuracy() -> None:
    torch.set_float32_matmul_precision(exact_on_cpus())
    try:
        left, right = _random(300, 500).detach(), _random(500, 200, seed=1).detach()
        mlp = FusedMLP(500, (200,), relu_last=False, device=CPU)
        error = (mlp(left, dtype=torch.float32).detach().double() - _exact(left, mlp)).abs().max()
        product = (left @ right).double() - left.double() @ right.double()
        assert max(float(error), float(product.abs().max())) < 1e-3
    finally:
        torch.set_float32_matmul_precision("highest")


def _exact(inputs: Tensor, mlp: FusedMLP) -> Tensor:
    (layer,) = mlp.layers
    return (inputs.double() @ layer.weight.double().t() + layer.bias.double()).detach()


def test_layers_have_the_requested_sizes() -> None:
    mlp = FusedMLP(13, (32, 16), relu_last=True, device=CPU)
    shapes = [tuple(layer.weight.shape) for layer in mlp.layers]
    assert shapes == [(narrow, wide) for wide, narrow in pairwise([13, 32, 16])]
