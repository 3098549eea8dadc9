"""The reference for throughput: torchrec's golden_training loop, re-created with its own parts.

As in torchrec's examples/golden_training/train_dlrm.py: DLRMTrain over a meta-device
EmbeddingBagCollection, RowWiseAdagrad applied in backward, DistributedModelParallel with its default
plan, Adagrad for the rest, RandomRecDataset and TrainPipelineSparseDist. Only the sizes are given, and
the quantised communication is left out: in a world of one rank nothing is sent.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import distributed
from torchrec.datasets.criteo import DEFAULT_CAT_NAMES, DEFAULT_INT_NAMES
from torchrec.datasets.random import RandomRecDataset
from torchrec.distributed import TrainPipelineSparseDist
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.model_parallel import DistributedModelParallel
from torchrec.models.dlrm import DLRM, DLRMTrain
from torchrec.modules.embedding_configs import EmbeddingBagConfig
from torchrec.modules.embedding_modules import EmbeddingBagCollection
from torchrec.optim.apply_optimizer_in_backward import apply_optimizer_in_backward
from torchrec.optim.keyed import KeyedOptimizerWrapper
from torchrec.optim.optimizers import in_backward_optimizer_filter
from torchrec.optim.rowwise_adagrad import RowWiseAdagrad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.work import Work


def measure(work: Work) -> list[float]:
    """Seconds of each timed step."""
    seconds = []
    with open_pipeline(work) as step:
        for _ in range(work.warmup_steps + work.timed_steps):
            started = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - started)
    return seconds[work.warmup_steps :]


@contextmanager
def open_pipeline(work: Work) -> Iterator[Callable[[], object]]:
    """What does one step when called."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield make_step(work, torch.device("cpu"))
    distributed.destroy_process_group()


def make_step(work: Work, device: torch.device) -> Callable[[], object]:
    """Return what does one step when called; a process group must be there."""
    model = _make_model(work, device)
    optimizer = KeyedOptimizerWrapper(
        dict(in_backward_optimizer_filter(model.named_parameters())),
        lambda parameters: torch.optim.Adagrad(parameters, lr=work.learning_rate),
    )
    pipeline = TrainPipelineSparseDist(model, optimizer, device)
    batches = iter(
        RandomRecDataset(
            keys=DEFAULT_CAT_NAMES,
            batch_size=work.batch_size,
            hash_size=work.rows,
            ids_per_feature=1,
            num_dense=len(DEFAULT_INT_NAMES),
            manual_seed=0,
            num_generated_batches=work.batches_in_memory,
        )
    )
    return lambda: pipeline.progress(batches)


def _make_model(work: Work, device: torch.device) -> DistributedModelParallel:
    tables = [
        EmbeddingBagConfig(
            name=f"t_{feature}",
            embedding_dim=work.embedding_dim,
            num_embeddings=work.rows,
            feature_names=[feature],
        )
        for feature in DEFAULT_CAT_NAMES
    ]
    task = DLRMTrain(
        DLRM(
            embedding_bag_collection=EmbeddingBagCollection(tables=tables, device=torch.device("meta")),
            dense_in_features=len(DEFAULT_INT_NAMES),
            dense_arch_layer_sizes=list(work.dense_arch_layer_sizes),
            over_arch_layer_sizes=list(work.over_arch_layer_sizes),
            dense_device=device,
        )
    )
    apply_optimizer_in_backward(
        RowWiseAdagrad, task.model.sparse_arch.parameters(), {"lr": work.learning_rate}
    )
    return DistributedModelParallel(module=task, device=device, sharders=[EmbeddingBagCollectionSharder()])
