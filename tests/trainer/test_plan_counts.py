"""`cloudrec plan` counts the layers of every model as torch does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode
from torchrec.sparse.jagged_tensor import KeyedTensor

from cloudrec.planning.fit.layers import HistorySize, LayerSizes, dense_work, table_width
from trainer.base.config import MODELS
from trainer.models import dense_ops
from trainer.models.kernels import pairs
from trainer.models.model import DenseArch, ModelShape
from trainer.models.protocol import ModelInputs, Sequence, SequenceSize
from trainer.models.registry import find_factory
from trainer.models.registry import table_width as width_in_tables

BATCH = 16
DIM = 32
LENGTH = 20
NAMES = tuple(f"C{number}" for number in range(8))
HIDDEN = (64, 48, 40)
PLAIN = LayerSizes(num_dense=13, vectors=[DIM] * 8, bottom=(64, DIM), top=(*HIDDEN, 1), cross_rank=24)


def _of_dlrm(interaction: str) -> tuple[int, int]:
    """Return parameters, and operations of a sample forward and backward."""
    shape = ModelShape(
        num_dense=13,
        num_embeddings=dict.fromkeys(NAMES, 10),
        embedding_dim=DIM,
        dense_arch_layer_sizes=(64, DIM),
        over_arch_layer_sizes=(*HIDDEN, 1),
        interaction=interaction,
        dcn_low_rank_dim=24,
    )
    arch = DenseArch(shape, dtype=torch.float32, device=torch.device("cpu"))
    values = torch.rand(BATCH, DIM * 8, requires_grad=True)
    embedded = KeyedTensor(list(NAMES), [DIM] * 8, values)
    dense = torch.rand(BATCH, 13, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        arch(dense, embedded).sum().backward()
    return sum(each.numel() for each in arch.parameters()), counter.get_total_flops() // BATCH


def _of_factory(model: str, *, tasks: int = 1, sequences: bool = False) -> tuple[int, int]:
    """Return the same for a model of the protocol; with sequences, the first feature has a history."""
    factory = find_factory(model)
    assert factory is not None
    width = width_in_tables(factory, DIM, model)
    size = {"history": SequenceSize(LENGTH, width)} if sequences else {}
    inputs = ModelInputs(
        dense=tuple(f"I{number}" for number in range(13)),
        sparse=dict.fromkeys(NAMES, width),
        hidden=HIDDEN,
        cross_layers=3,
        cross_rank=24,
        tasks=tuple(f"t{number}" for number in range(tasks)),
        sequences=size,
        tables={**{name: name for name in NAMES}, "history": "C0"},
        item=("C0", "C1"),
    )
    net = factory(inputs)
    dense = torch.rand(BATCH, 13, requires_grad=True)
    vectors: dict[str, Tensor | Sequence] = {
        name: torch.rand(BATCH, width, requires_grad=True) for name in NAMES
    }
    if sequences:
        lengths = torch.full((BATCH,), LENGTH)
        vectors["history"] = Sequence(torch.rand(BATCH, LENGTH, width, requires_grad=True), lengths)
    with FlopCounterMode(display=False) as counter:
        net(dense, vectors).sum().backward()
    return sum(each.numel() for each in net.parameters()), counter.get_total_flops() // BATCH


def test_every_model_is_counted() -> None:
    counted = {"dlrm", "dcn_v2", "deepfm", "wide_deep", "two_tower", "mmoe", "ple", "din", "hstu"}
    assert set(MODELS) == counted


@pytest.mark.parametrize("interaction", ["dot", "dcn"])
def test_the_layers_of_a_dlrm(interaction: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch counts neither oneDNN's products nor those of the kernels, but columns of zeros.
    monkeypatch.setattr(dense_ops, "_has_fused_linear", lambda _dtype: False)
    monkeypatch.setattr(pairs, "fits", lambda _bottom, _tables: False)
    monkeypatch.setattr(dense_ops, "aligned", lambda width, _values: width)
    params, flops = _of_dlrm(interaction)
    found = dense_work("dcn_v2" if interaction == "dcn" else "dlrm", PLAIN)
    assert found.params == params
    assert found.flops == pytest.approx(flops, rel=0.01)


@pytest.mark.parametrize("model", ["deepfm", "wide_deep"])
def test_the_layers_of_models_with_own_columns(model: str) -> None:
    params, flops = _of_factory(model)
    found = dense_work(model, PLAIN)
    assert found.params == params
    assert found.flops == pytest.approx(flops, rel=0.01)
    assert table_width(model, DIM) == width_in_tables(find_factory(model), DIM, model)


@pytest.mark.parametrize("model", ["mmoe", "ple"])
@pytest.mark.parametrize("tasks", [2, 3])
def test_the_layers_of_models_of_several_tasks(model: str, tasks: int) -> None:
    params, flops = _of_factory(model, tasks=tasks)
    found = dense_work(model, LayerSizes(num_dense=13, vectors=[DIM] * 8, top=(*HIDDEN, 1), tasks=tasks))
    assert found.params == params
    assert found.flops == pytest.approx(flops, rel=0.01)


@pytest.mark.parametrize("model", ["din", "hstu"])
@pytest.mark.parametrize("tasks", [1, 2])
def test_the_layers_of_models_of_sequences(model: str, tasks: int) -> None:
    params, flops = _of_factory(model, tasks=tasks, sequences=True)
    sizes = LayerSizes(
        num_dense=13,
        vectors=[DIM] * 8,
        top=(*HIDDEN, 1),
        tasks=tasks,
        histories=[HistorySize(length=LENGTH, width=DIM)],
    )
    found = dense_work(model, sizes)
    assert found.params == params
    assert found.flops == pytest.approx(flops, rel=0.01)


def test_the_layers_of_two_towers() -> None:
    params, flops = _of_factory("two_tower")
    sizes = LayerSizes(num_dense=13, vectors=[DIM] * 8, top=(*HIDDEN, 1), item_width=2 * DIM)
    found = dense_work("two_tower", sizes)
    assert found.params == params
    assert found.flops == pytest.approx(flops, rel=0.01)
    users, items = (torch.rand(BATCH, HIDDEN[-1], requires_grad=True) for _ in range(2))
    with FlopCounterMode(display=False) as counter:
        (users @ items.T).sum().backward()
    compared = found.step_flops(BATCH, 1) - BATCH * found.flops
    assert compared == counter.get_total_flops()
