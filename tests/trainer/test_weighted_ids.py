"""Ids with weights: the losses equal those of an independent reference, under every plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from cloudrec_contract.features import parse
from tests.trainer.support_learner import make_world
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM = 50, 47, 8  # an odd batch: ranks have different numbers of samples
DENSE = ("price", "age")
FEATURES: dict[str, Any] = {
    "label": "clicked",
    "dense": list(DENSE),
    "sparse": [
        "city",
        {"name": "tags", "kind": "multi_hot", "weights": "tag_scores"},
        {"name": "words", "kind": "multi_hot", "weights": "word_scores", "pooling": "mean"},
        {"name": "pages", "kind": "multi_hot", "pooling": "mean"},
    ],
}
SCHEMA = parse(FEATURES)
ROWS = {"city": 40, "tags": 20, "words": 15, "pages": 12}
MEANS = ("words", "pages")
SETTINGS: dict[str, Any] = {
    "optimizer_eps": 1e-4,
    "embedding_dim": DIM,
    "dense_arch_layer_sizes": (16, DIM),
    "over_arch_layer_sizes": (16, 12, 1),
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
    "learning_rate": 0.05,
    "dense_learning_rate": 0.01,
}
PLANS: dict[str, dict[str, Any]] = {
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "column_wise": {"sharding_types": ("column_wise",)},
    "table_row_wise": {"sharding_types": ("table_row_wise",)},
    "grid_shard": {"sharding_types": ("grid_shard",)},
    "data_parallel": {"data_parallel": True},
}
Rows = dict[str, list[list[Any]]]  # of each feature


def _samples(step: int) -> tuple[Tensor, Rows, Rows, Tensor]:
    """Dense values, ids and weights by feature and sample, and labels of a step."""
    generator = torch.Generator().manual_seed(step)
    dense = torch.rand(BATCH, len(DENSE), generator=generator)
    ids: Rows = {}
    weights: Rows = {}
    for name, rows in ROWS.items():
        counts = torch.randint(0, 4, (BATCH,), generator=generator)
        if name == "city":
            counts = torch.ones_like(counts)
        ids[name] = [torch.randint(0, rows, (int(n),), generator=generator).tolist() for n in counts]
        weights[name] = [[1.0] * int(n) for n in counts]
        if name in ("tags", "words"):
            drawn = [torch.randn(int(n), generator=generator) for n in counts]
            weights[name] = [(each if name == "tags" else each.clamp_min(0)).tolist() for each in drawn]
    labels = torch.tensor([sum(row) > 0 for row in weights["tags"]]).float()
    return dense, ids, weights, labels


def _batch(place: Place, step: int) -> Batch:
    dense, ids, weights, labels = _samples(step)
    share = slice(BATCH * place.rank // place.world_size, BATCH * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int32),
        labels=labels[share],
        sample_ids=torch.arange(BATCH)[share],
        global_size=BATCH,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
        id_weights=torch.tensor([each for name in ROWS for row in weights[name][share] for each in row]),
    )


def _losses(place: Place, settings: dict[str, Any]) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of every step over all ranks, and the whole state before the first, if this rank has it."""
    world = make_world(place)
    config = make_config({**SETTINGS, **settings})
    learner = Learner(config, make_shape(config, DENSE, ROWS, (), SCHEMA), world, total_steps=STEPS)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    batches = (_batch(place, step) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start


def _expected(start: dict[str, Tensor]) -> list[float]:
    """The losses of plain torch: whole tables, autograd, and the sums of each row written out."""
    dense_weights = {
        name.removeprefix("dense/"): value.clone().requires_grad_()
        for name, value in start.items()
        if name.startswith("dense/")
    }
    tables = {name: start[f"tables/{name}/weight"].clone().requires_grad_() for name in ROWS}
    optimizers = [
        torch.optim.AdamW(dense_weights.values(), lr=0.01, eps=1e-4, weight_decay=0.0),
        torch.optim.Adagrad(tables.values(), lr=0.05, eps=1e-4),
    ]
    found = []
    for step in range(STEPS):
        dense, ids, weights, labels = _samples(step)
        vectors = []
        for name, table in tables.items():
            rows = []
            for of_row, by in zip(ids[name], weights[name], strict=True):
                total = torch.zeros(DIM)
                for each, weight in zip(of_row, by, strict=True):
                    total = total + weight * table[each]
                if name in MEANS:
                    total = total / sum(by) if sum(by) > 0 else torch.zeros(DIM)
                rows.append(total)
            vectors.append(torch.stack(rows))
        logits = _dlrm(dense_weights, dense, vectors)
        loss = (functional.softplus(logits) - labels * logits).mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(float(loss.detach()))
    return found


def _layers(w: dict[str, Tensor], prefix: str, values: Tensor, *, relu_last: bool) -> Tensor:
    numbers = sorted({int(name[len(prefix) :].split(".")[0]) for name in w if name.startswith(prefix)})
    for number in numbers:
        values = values @ w[f"{prefix}{number}.weight"].T + w[f"{prefix}{number}.bias"]
        if relu_last or number != numbers[-1]:
            values = values.clamp_min(0)
    return values


def _dlrm(w: dict[str, Tensor], dense: Tensor, vectors: list[Tensor]) -> Tensor:
    every = [_layers(w, "bottom.layers.", dense, relu_last=True), *vectors]
    pairs = [(every[i] * every[j]).sum(1) for i in range(len(every)) for j in range(i + 1, len(every))]
    return _layers(w, "top.layers.", torch.cat([every[0], torch.stack(pairs, 1)], 1), relu_last=False)[:, 0]


@pytest.fixture(scope="module")
def expected(worlds: Worlds) -> list[float]:
    return _expected(worlds.run(1, _losses, {})[0][1])


@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_the_reference(worlds: Worlds, world_size: int, expected: list[float]) -> None:
    losses = worlds.run(world_size, _losses, {})[0][0]
    assert losses == pytest.approx(expected, abs=1e-5)
    assert sum(losses[-10:]) < 0.9 * sum(losses[:10]), "it must learn"


@pytest.mark.parametrize("plan", PLANS)
def test_losses_are_the_same_under_every_plan(worlds: Worlds, plan: str, expected: list[float]) -> None:
    assert worlds.run(2, _losses, PLANS[plan])[0][0] == pytest.approx(expected, abs=1e-5)


def test_optimizers_that_fbgemm_lacks_on_cpus_are_refused(worlds: Worlds) -> None:
    assert "which fbgemm has for GPUs only" in worlds.run(1, _refused, {"table_optimizer": "adam"})[0]


def _refused(place: Place, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        _losses(place, settings)
    return str(caught.value)
