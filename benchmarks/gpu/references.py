"""The references on the same card: torchrec's golden_training, and nn.EmbeddingBag with sparse gradients."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn

from benchmarks.embedding_bag_ddp import PlainDLRM
from benchmarks.golden import make_step

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.work import Work


@contextmanager
def golden(work: Work, *, precision: str) -> Iterator[Iterator[object]]:
    """Yield the steps of golden_training: its own code trains in fp32; tf32 only sets torch's switch."""
    with _alone(precision):
        step = make_step(work, torch.device("cuda", 0))
        yield (step() for _ in range(10**9))


@contextmanager
def plain(work: Work, *, precision: str) -> Iterator[Iterator[object]]:
    """Yield the steps of nn.EmbeddingBag(sparse) with autocast, on batches that are on the device already.

    Without DistributedDataParallel: nccl reduces no sparse gradients.
    """
    with _alone(precision):
        with torch.device("cuda"):
            model = PlainDLRM(work)
        optimizer = torch.optim.Adagrad(model.parameters(), lr=work.learning_rate)
        yield _plain_steps(work, model, optimizer, precision)


def _plain_steps(
    work: Work, model: nn.Module, optimizer: torch.optim.Optimizer, precision: str
) -> Iterator[object]:
    loss_of = nn.BCEWithLogitsLoss()
    made = [
        (
            torch.rand(work.batch_size, work.num_dense, device="cuda"),
            torch.randint(0, work.rows, (work.tables, work.batch_size), device="cuda"),
            torch.randint(0, 2, (work.batch_size,), device="cuda").float(),
        )
        for _ in range(work.batches_in_memory)
    ]
    while True:
        for dense, ids, labels in made:
            optimizer.zero_grad()
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(model(dense, ids).float(), labels)
            loss.backward()
            optimizer.step()
            yield loss


@contextmanager
def _alone(precision: str) -> Iterator[None]:
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.cuda.set_device(0)
    distributed.init_process_group("nccl", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        distributed.destroy_process_group()
        torch.cuda.empty_cache()
