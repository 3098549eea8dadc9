from __future__ import annotations

import shutil
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from trainer.loop.setup import exact_on_cpus
from trainer.models.dense_ops import DotInteraction, FusedMLP, aligned, interaction, pair_indices
from trainer.models.kernels import pairs
from trainer.native.pairs import load_pairs

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
    torch.testing.assert_close(got[:, :11], _reference_interaction(bottom, tables))
    assert got.shape == (6, 16)  # a line of the cache
    assert not got[:, 11:].any()


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 3, 1]])
def test_the_gradient_of_the_interaction_is_correct(order: list[int]) -> None:
    bottom, tables = _random(4, 5).double(), _random(4, 3, 5, seed=1).double()
    bottom, tables = bottom.detach().requires_grad_(), tables.detach().requires_grad_()
    indices = DotInteraction.make_indices(order, CPU)
    got = DotInteraction.apply(bottom, tables, *indices)[:, :11]
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


@pytest.fixture
def kernels() -> None:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("no C compiler")
    assert load_pairs() is not None  # with a compiler, they compile


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("vectors", "dim"), [(27, 64), (2, 1), (5, 24), (33, 128), (130, 40)])
def test_the_kernels_compute_the_pairs_and_their_gradients(
    vectors: int, dim: int, dtype: torch.dtype, threads: int
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        _compare_with_operations(vectors, dim, dtype)
    finally:
        torch.set_num_threads(before)


def _compare_with_operations(vectors: int, dim: int, dtype: torch.dtype) -> None:
    bottom = _random(37, dim).detach().to(dtype).requires_grad_()
    tables = _random(37, vectors - 1, dim, seed=1)
    order = [0, *(torch.randperm(vectors - 1, generator=torch.Generator().manual_seed(3)) + 1).tolist()]
    assert pairs.fits(bottom, tables)
    found = interaction(bottom, tables, pair_indices(order, CPU))
    exact_bottom = bottom.detach().double().requires_grad_()
    exact_tables = tables.detach().to(dtype).double().requires_grad_()
    exact = DotInteraction.apply(exact_bottom, exact_tables, *DotInteraction.make_indices(order, CPU))
    width = dim + vectors * (vectors - 1) // 2
    assert found.shape == (37, aligned(width, bottom))
    assert not found[:, width:].any()
    tolerance = (2 if dtype == torch.bfloat16 else 8) * torch.finfo(dtype).eps * dim**0.5
    torch.testing.assert_close(found[:, :width].double(), exact[:, :width], rtol=tolerance, atol=tolerance)
    gradient = _random(*found.shape, seed=4).detach().to(dtype)
    found.backward(gradient)
    exact[:, :width].backward(gradient[:, :width].double())
    assert bottom.grad is not None
    assert tables.grad is not None
    assert (bottom.grad.dtype, tables.grad.dtype) == (dtype, torch.float32)
    tolerance *= vectors**0.5
    torch.testing.assert_close(bottom.grad.double(), exact_bottom.grad, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(tables.grad.double(), exact_tables.grad, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("places", [slice(None, None, 2), slice(2)], ids=["vectors", "samples"])
def test_the_kernels_take_vectors_and_gradients_wherever_they_lie_in_memory(places: slice) -> None:
    indices = pair_indices([0, 2, 1], CPU)
    bottom, tables = _random(6, 8), _random(6, 2, 8, seed=1)
    apart = [
        torch.cat([bottom, bottom], dim=1)[:, 4:12].detach(),  # rows with something between them
        torch.cat([tables, tables], dim=1)[:, places].detach(),  # with something between them
    ]
    together = [each.contiguous() for each in apart]
    results = []
    for inputs in (apart, together):
        bottom, tables = (each.requires_grad_() for each in inputs)
        found = interaction(bottom, tables, indices)
        gradient = torch.arange(6.0 * 16).view(16, 6).t()  # columns, not rows
        results.append([found, *torch.autograd.grad(found, inputs, gradient)])
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.usefixtures("kernels")
def test_the_result_of_the_kernels_does_not_depend_on_the_number_of_threads() -> None:
    results, before = [], torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        bottom, tables = _random(33, 64), _random(33, 26, 64, seed=1)
        found = interaction(bottom, tables, pair_indices(list(range(27)), CPU))
        found.square().sum().backward()
        results.append([found, bottom.grad, tables.grad])
    torch.set_num_threads(before)
    torch.testing.assert_close(*results, rtol=0, atol=0)


@pytest.mark.parametrize("kernel", [True, False])
@pytest.mark.parametrize("samples", [0, 1])
def test_the_interaction_takes_a_batch_of_few_samples(
    samples: int, *, kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairs, "fits", lambda _bottom, _tables: kernel and load_pairs() is not None)
    bottom, tables = torch.randn(samples, 8, requires_grad=True), torch.randn(samples, 3, 8)
    found = interaction(bottom, tables, pair_indices([0, 1, 2, 3], CPU))
    found.sum().backward()
    assert found.shape == (samples, 16)


@pytest.mark.usefixtures("kernels")
def test_vectors_of_tables_are_rounded_to_bf16_as_by_operations() -> None:
    bottom = torch.tensor([[1.0, -1.0]], dtype=torch.bfloat16)
    tables = torch.tensor([[[1.0 + 2**-8, 1.0]]])  # the first one is rounded to 1
    found = interaction(bottom, tables, pair_indices([0, 1], CPU))
    assert found[0, 2] == 0


@pytest.mark.usefixtures("kernels")
def test_infinities_and_what_is_no_number_stay_so_in_bf16() -> None:
    bottom = torch.tensor([[torch.inf], [torch.nan], [-torch.inf], [3.0e38]], dtype=torch.bfloat16)
    tables = torch.tensor([1.0, 1.0, 1.0, 3.4e38]).view(4, 1, 1)  # the last one is rounded to infinity
    found = interaction(bottom, tables, pair_indices([0, 1], CPU))[:, 1]
    assert [torch.inf, -torch.inf, torch.inf] == [found[0], found[2], found[3]]
    assert found[1].isnan()


def test_other_types_and_machines_without_a_compiler_use_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    bottom, tables = torch.randn(4, 8), torch.randn(4, 3, 8)
    assert not pairs.fits(bottom.half(), tables)
    assert not pairs.fits(bottom, tables.bfloat16())
    monkeypatch.setattr("trainer.native.pairs.load_pairs", lambda: None)
    assert not pairs.fits(bottom, tables)
    found = interaction(bottom, tables, pair_indices([0, 1, 2, 3], CPU))
    torch.testing.assert_close(found[:, :14], _reference_interaction(bottom, tables))


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
