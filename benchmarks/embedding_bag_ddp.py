"""The reference that most people write first: nn.EmbeddingBag with sparse gradients, under DDP.

One module a table, Linear and ReLU layers, dot products of all pairs by one bmm, Adagrad for dense and
sparse gradients alike, DistributedDataParallel over gloo; no torchrec and no fbgemm.
"""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.work import Work


class PlainDLRM(nn.Module):
    """(dense [B, num_dense], ids [F, B]) -> logits [B]."""

    def __init__(self, work: Work) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(work.rows, work.embedding_dim, mode="sum", sparse=True)
            for _ in range(work.tables)
        )
        pairs = (work.tables + 1) * work.tables // 2
        self.bottom = _mlp((work.num_dense, *work.dense_arch_layer_sizes), relu_last=True)
        self.top = _mlp((work.embedding_dim + pairs, *work.over_arch_layer_sizes), relu_last=False)
        self.register_buffer("pairs", torch.triu_indices(work.tables + 1, work.tables + 1, offset=1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        """Logits [B]."""
        bottom = self.bottom(dense)
        embedded = [table(feature[:, None]) for table, feature in zip(self.tables, ids, strict=True)]
        stacked = torch.stack([bottom, *embedded], dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        crossed = torch.cat([bottom, products[:, self.pairs[0], self.pairs[1]]], dim=1)
        logits: Tensor = self.top(crossed).view(-1)
        return logits


def measure(work: Work) -> list[float]:
    """Seconds of each timed step."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(PlainDLRM(work))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=work.learning_rate)
    loss_of = nn.BCEWithLogitsLoss()
    generator = torch.Generator().manual_seed(0)
    batches = [
        (
            torch.rand(work.batch_size, work.num_dense, generator=generator),
            torch.randint(0, work.rows, (work.tables, work.batch_size), generator=generator),
            torch.randint(0, 2, (work.batch_size,), generator=generator).float(),
        )
        for _ in range(work.batches_in_memory)
    ]
    seconds = []
    for step in range(work.warmup_steps + work.timed_steps):
        dense, ids, labels = batches[step % len(batches)]
        started = time.perf_counter()
        optimizer.zero_grad()
        loss_of(model(dense, ids), labels).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - started)
    distributed.destroy_process_group()
    return seconds[work.warmup_steps :]


def _mlp(sizes: Sequence[int], *, relu_last: bool) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, narrow in pairwise(sizes):
        layers += [nn.Linear(wide, narrow), nn.ReLU()]
    return nn.Sequential(*(layers if relu_last else layers[:-1]))
