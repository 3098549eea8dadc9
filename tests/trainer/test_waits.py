"""A step never waits for a GPU: nothing in it brings a value, or a size that depends on one, to the host.

There is no GPU here, so the operations are counted for which a host waits on a GPU's machine. Not counted
are those on tensors that are in the host's memory there, too, such as fbgemm's counter of steps.
tests/gpu/test_syncs.py has torch itself watch a real GPU.
"""

from __future__ import annotations

import traceback
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.support_learner import make_batches, make_learner
from tests.trainer.support_ranks import Place
from tests.trainer.support_worlds import Worlds
from trainer.base.arguments import make_config
from trainer.base.row_stamps import Intervals, RowStamps
from trainer.tables.kernels import table_pieces
from trainer.tables.optim import DenseUpdate, LossScaler
from trainer.tables.replicas import ReplicaOptimizer
from trainer.tables.row_rules import KINDS, make_states, update_rows, update_where

WAITING = {"_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal"}
READING = {"tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__"}
IN_HOST_MEMORY = (  # on a GPU's machine, too
    "iter_cpu",
    "feature_dims.cpu()",
    "int(self.collected_steps)",
    "_get_value(step_t)",  # the step numbers of optimizers that are not fused
)
OF_KERNEL = "_execution_engine.run_backward"  # no Python: the kernel that fbgemm has for replicas on CPUs
NO_ORIGIN = ("test_waits.py", "_compile.py", "eval_frame.py")
STEPS = 6


class _Found:
    def __init__(self) -> None:
        self.places: list[str] = []

    def add(self, name: str) -> None:
        frames = [each for each in traceback.extract_stack() if not each.filename.endswith(NO_ORIGIN)]
        lines = [frame.line or "" for frame in frames]
        if any(part in line for part in IN_HOST_MEMORY for line in lines) or OF_KERNEL in lines[-1]:
            return
        self.places.append(f"{name}: {lines[-3:]}")


class _Operations(TorchDispatchMode):
    def __init__(self, found: _Found) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = [each for each in (args[1] if name == "index" else ()) if each is not None]
        if name in WAITING or any(mask.dtype == torch.bool for mask in masks):
            self.found.add(name)
        return func(*args, **(kwargs or {}))


class _Functions(TorchFunctionMode):
    """torch reads a list of a CPU tensor without an operation."""

    def __init__(self, found: _Found) -> None:
        super().__init__()
        self.found = found

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in READING:
            self.found.add(func.__name__)
        return func(*args, **(kwargs or {}))


def _waits(place: Place, settings: dict[str, Any], *, as_on_gpu: bool) -> list[str]:
    """What two steps wait for, after some others."""
    learner = make_learner(place, table_kernel="fbgemm", checkpoint_mode="incremental", **settings)
    learner.optimizers.dense.replicas.by_mask = as_on_gpu
    steps = learner.pipeline.steps(make_batches(place, [64] * STEPS), 0)
    for _ in range(STEPS - 2):
        next(steps)
    found = _Found()
    with _Operations(found), _Functions(found):
        for _ in range(2):
            next(steps)
    return found.places


@pytest.mark.parametrize(
    "settings",
    [
        {"sharding_types": ("table_wise",)},
        {"data_parallel": True},
        {"sharding_types": ("table_wise",), "precision": "fp16"},
        {"sharding_types": ("table_wise",), "gradient_clip_norm": 0.1, "dense_optimizer": "adagrad"},
        {"sharding_types": ("table_wise",), "gradient_accumulation_steps": 2, "dense_optimizer": "sgd"},
        {"data_parallel": True, "gradient_accumulation_steps": 2, "precision": "fp16"},
    ],
    ids=str,
)
# fbgemm's operation for replicated tables on CPUs; not ours, and not on GPUs.
@pytest.mark.filterwarnings("ignore:fbgemm..dense_embedding_codegen_lookup_function:UserWarning")
def test_a_step_waits_for_nothing(worlds: Worlds, settings: dict[str, Any]) -> None:
    assert worlds.run(1, _waits_as_on_gpu, settings)[0] == []


def _waits_as_on_gpu(place: Place, settings: dict[str, Any]) -> list[str]:
    return _waits(place, settings, as_on_gpu=True)


def _waits_as_on_cpu(place: Place, settings: dict[str, Any]) -> list[str]:
    return _waits(place, settings, as_on_gpu=False)


def test_the_count_notices_a_wait(worlds: Worlds) -> None:
    found = worlds.run(1, _waits_as_on_cpu, {"data_parallel": True})[0]  # lists the rows that have a gradient
    assert any(place.startswith("nonzero") for place in found)


@pytest.mark.parametrize("kind", KINDS)
def test_the_update_by_a_mask_has_the_bits_of_the_update_of_rows(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    rows, masked = (torch.rand(50, 8, generator=torch.Generator().manual_seed(1)) for _ in range(2))
    masked[7] = rows[7] = -0.0  # untouched: adding 0 would change its sign
    states, twins = make_states(kind, rows), make_states(kind, masked)
    for step in range(1, 5):
        gradient = torch.randn(50, 8, generator=generator)
        gradient[torch.rand(50, generator=generator) < 0.5] = 0
        gradient[7] = 0
        touched = gradient.any(dim=1)
        named = {"learning_rate": 0.05, "eps": 1e-4, "steps": step}
        which = touched.nonzero().view(-1)
        update_rows(kind, rows, states, which, gradient[which], **named)
        update_where(kind, masked, twins, touched, gradient, **named)
        assert torch.equal(rows.view(torch.int32), masked.view(torch.int32))
        assert all(torch.equal(*pair) for pair in zip(states, twins, strict=True))


def test_stamps_by_a_mask_are_those_of_the_rows_and_reach_the_watcher() -> None:
    seen: list[list[int]] = []
    intervals = Intervals()
    stamps = RowStamps(intervals.add(6, torch.device("cpu")), intervals)
    touched = torch.tensor([True, False, False, True, False, False])
    intervals.now = 3
    stamps.touch_where(touched)
    assert stamps.values.tolist() == [3, 0, 0, 3, 0, 0]
    intervals.watcher = lambda _values, rows: seen.append(rows.tolist())
    stamps.touch_where(touched.flip(0))
    assert (stamps.values.tolist(), seen) == ([3, 0, 3, 3, 0, 3], [[2, 5]])


def _tables_after(place: Place, settings: dict[str, Any]) -> list[list[torch.Tensor]]:
    found = []
    for by_mask in (False, True):
        learner = make_learner(place, data_parallel=True, **settings)
        learner.optimizers.dense.replicas.by_mask = by_mask
        for _ in learner.pipeline.steps(make_batches(place, [64, 64, 31]), 0):
            pass
        found.append([piece.weight.clone() for piece in table_pieces(learner.model)])
    return found


@pytest.mark.filterwarnings("ignore:fbgemm..dense_embedding_codegen_lookup_function:UserWarning")
@pytest.mark.parametrize("optimizer", ["rowwise_adagrad", "adam"])
def test_replicated_tables_learn_alike_by_mask(worlds: Worlds, optimizer: str) -> None:
    rows, masked = worlds.run(1, _tables_after, {"table_optimizer": optimizer})[0]
    assert len(rows) == 5
    assert all(torch.equal(*pair) for pair in zip(rows, masked, strict=True))


def _update(every: int, optimizer: torch.optim.Optimizer) -> DenseUpdate:
    config = make_config(
        {"precision": "fp16", "gradient_accumulation_steps": every, "gradient_clip_norm": 1.0}
    )
    replicas = ReplicaOptimizer([], kind="sgd", learning_rate=0.1, eps=1e-4)
    return DenseUpdate(optimizer, replicas, LossScaler(active=True, device=torch.device("cpu")), config)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (torch.optim.SGD, {"fused": True}),
        (torch.optim.AdamW, {"fused": True}),
        (torch.optim.Adagrad, {"fused": True}),
        (torch.optim.Adagrad, {}),  # as on GPUs, where torch 2.11 has no fused one
    ],
    ids=str,
)
def test_an_overflow_changes_no_weight_and_is_not_waited_for(kind: Any, settings: dict[str, Any]) -> None:
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 6))
    update = _update(1, kind([weight], lr=0.1, weight_decay=0.0, **settings))
    found = _Found()
    for scale, is_good in ((1.0, True), (float("inf"), False), (float("nan"), False), (1.0, True)):
        before, size = weight.detach().clone(), float(update.scaler.scale)
        weight.grad = torch.full((6,), scale) * size
        with _Operations(found), _Functions(found):
            update.step()
        assert torch.equal(weight, before) is not is_good
        assert torch.isfinite(weight).all()
        assert float(update.scaler.scale) == (size if is_good else size / 2)
    assert found.places == []


def test_a_step_that_overflows_adds_nothing_to_those_that_are_accumulated() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    update = _update(2, torch.optim.SGD([weight], lr=1.0, fused=True))
    moves = []
    for values in ((0.2, float("inf")), (float("nan"), float("inf")), (0.2, 0.4)):
        before = weight.detach().clone()
        for value in values:
            weight.grad = torch.full((3,), value) * update.scaler.scale
            update.step()
        moves.append(float((before - weight.detach())[0]))
    assert moves == pytest.approx([0.1, 0.0, 0.3])
