"""The Triton kernels of the interaction, and the dense part with them, on a real GPU."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchrec.sparse.jagged_tensor import KeyedTensor

from trainer.models.dense_ops import DotInteraction, aligned, interaction, pair_indices
from trainer.models.kernels import pairs
from trainer.models.model import DenseArch, ModelShape, initialise_dense

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")

GPU = torch.device("cuda")
CPU = torch.device("cpu")


def _random(*shape: int, seed: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(GPU, dtype)


@pytest.mark.parametrize("vectors", [27, 5, 16, 64])
@pytest.mark.parametrize("dim", [128, 24])
@pytest.mark.parametrize("types", [(torch.bfloat16, torch.bfloat16), (torch.float16, torch.float32)], ids=str)
def test_the_kernels_compute_the_pairs_and_their_gradients(
    vectors: int, dim: int, types: tuple[torch.dtype, torch.dtype]
) -> None:
    dtype, of_tables = types
    bottom = _random(301, dim, seed=1, dtype=dtype).requires_grad_()
    tables = _random(301, vectors - 1, dim, seed=2, dtype=of_tables).requires_grad_()
    order = [0, *(torch.randperm(vectors - 1, generator=torch.Generator().manual_seed(3)) + 1).tolist()]
    assert pairs.fits(bottom, tables)
    found = interaction(bottom, tables, pair_indices(order, GPU))
    exact_bottom = bottom.detach().double().cpu().requires_grad_()
    exact_tables = tables.detach().to(dtype).double().cpu().requires_grad_()
    exact = DotInteraction.apply(exact_bottom, exact_tables, *DotInteraction.make_indices(order, CPU))
    width = exact.shape[1]
    assert found.shape == (301, aligned(width, bottom))
    assert not found[:, width:].any()
    tolerance = 2 * torch.finfo(dtype).eps * dim**0.5
    torch.testing.assert_close(found[:, :width].double().cpu(), exact, rtol=tolerance, atol=tolerance)
    gradient = _random(*found.shape, seed=4, dtype=dtype)
    found.backward(gradient)
    exact.backward(gradient[:, :width].double().cpu())
    assert bottom.grad is not None
    assert tables.grad is not None
    assert (bottom.grad.dtype, tables.grad.dtype) == types
    tolerance *= vectors**0.5
    torch.testing.assert_close(bottom.grad.double().cpu(), exact_bottom.grad, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(tables.grad.double().cpu(), exact_tables.grad, rtol=tolerance, atol=tolerance)


def test_a_batch_of_no_sample_is_none() -> None:
    bottom, tables = (torch.empty(0, *shape, device=GPU, dtype=torch.bfloat16) for shape in ((8,), (3, 8)))
    assert interaction(bottom, tables, pair_indices([0, 1, 2, 3], GPU)).shape == (0, 16)


SHAPE = ModelShape(
    num_dense=13,
    num_embeddings={f"C{index}": 10 for index in range(1, 10)},
    embedding_dim=32,
    dense_arch_layer_sizes=(48, 32),
    over_arch_layer_sizes=(64, 40, 1),
)


def _gradients(device: torch.device, dtype: torch.dtype, compiled: str) -> tuple[Tensor, dict[str, Tensor]]:
    dense = DenseArch(SHAPE, dtype=dtype, device=device, compiled=compiled)  # type: ignore[arg-type]
    initialise_dense(dense, 5)
    generator = torch.Generator().manual_seed(6)
    inputs = torch.rand(200, 13, generator=generator).to(device)
    vectors = torch.randn(200, 9 * 32, generator=generator)
    vectors = vectors.to(device, dtype).requires_grad_()
    logits = dense(inputs, KeyedTensor(list(SHAPE.features), [32] * 9, vectors))
    logits.square().mean().backward()
    found = {name: each.grad for name, each in dense.named_parameters()} | {"tables": vectors.grad}
    return logits.detach().double().cpu(), {name: each.double().cpu() for name, each in found.items()}


@pytest.mark.parametrize("compiled", ["off", "on"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 0.03), (torch.float16, 0.01)], ids=str
)
def test_the_dense_part_has_the_values_and_gradients_of_the_cpu(
    dtype: torch.dtype, tolerance: float, compiled: str
) -> None:
    torch._dynamo.reset()
    exact_logits, exact = _gradients(CPU, torch.float32, "off")
    logits, found = _gradients(GPU, dtype, compiled)
    torch.testing.assert_close(logits, exact_logits, rtol=0, atol=tolerance * float(exact_logits.abs().max()))
    for name, gradient in exact.items():
        error = float((found[name] - gradient).norm() / gradient.norm())
        assert error < 2 * tolerance, (name, error)
