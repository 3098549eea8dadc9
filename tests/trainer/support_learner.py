"""Small learners on one or several ranks, and batches for them that all ranks can make alike."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tests.trainer.support_ranks import Place
from trainer.base.arguments import make_config
from trainer.base.distributed import World
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.models.model import ModelShape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROWS = (40, 30, 20, 50, 25)
SHAPE = ModelShape(
    num_dense=3,
    num_embeddings={f"C{index + 1}": rows for index, rows in enumerate(ROWS)},
    embedding_dim=8,
    dense_arch_layer_sizes=(16, 8),
    over_arch_layer_sizes=(16, 1),
)


def make_world(place: Place) -> World:
    return World(
        rank=place.rank,
        size=place.world_size,
        local_rank=place.rank,
        local_size=place.world_size,
        device=torch.device("cpu"),
        group=place.group,
        control=place.group,
    )


def make_learner(place: Place, **settings: Any) -> Learner:
    sizes = {
        "embedding_dim": SHAPE.embedding_dim,
        "dense_arch_layer_sizes": SHAPE.dense_arch_layer_sizes,
        "over_arch_layer_sizes": SHAPE.over_arch_layer_sizes,
    }
    # The default epsilon depends on the batch of the configuration; the batches here are those of the tests.
    config = make_config({"threads": 1, "optimizer_eps": 1e-4, **sizes, **settings})
    shape = replace(
        SHAPE,
        interaction=config.interaction,
        dcn_num_layers=config.dcn_num_layers,
        dcn_low_rank_dim=config.dcn_low_rank_dim,
    )
    return Learner(config, shape, make_world(place), total_steps=100)


def make_batches(place: Place, sizes: Sequence[int]) -> Iterator[Batch]:
    """This rank's shares of global steps of the given sizes; labels follow the first two ids."""
    generator = torch.Generator().manual_seed(7)
    rows = torch.tensor(ROWS)
    for size in sizes:
        dense = torch.rand(size, SHAPE.num_dense, generator=generator)
        sparse = (torch.rand(len(ROWS), size, generator=generator) * rows[:, None]).int()
        labels = ((sparse[0] % 2) + (sparse[1] % 2) > 0).float()
        share = slice(size * place.rank // place.world_size, size * (place.rank + 1) // place.world_size)
        yield Batch(
            dense[share], sparse[:, share].contiguous(), labels[share], torch.arange(size)[share], size
        )


def train_losses(place: Place, learner: Learner, sizes: Sequence[int]) -> list[float]:
    """The loss of every step, over all ranks."""
    world = make_world(place)
    return [
        world.sum([float(step.loss)])[0] / world.size
        for step in learner.pipeline.steps(make_batches(place, sizes), 0)
    ]
