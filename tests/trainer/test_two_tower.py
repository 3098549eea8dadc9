"""two_tower's losses equal those of an independent reference on any ranks and plans; recall@k is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from cloudrec_contract.features import parse
from tests.trainer.support_learner import make_world
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.data.source import ArrayParts
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape
from trainer.models.model import make_model
from trainer.retrieval.items import Items
from trainer.retrieval.recall import RecallMeter, named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM, TEMPERATURE = 50, 32, 8, 0.2
FEATURES: dict[str, Any] = {
    "label": "liked",
    "dense": ["age"],
    "sparse": [
        "user",
        {"name": "movie", "table": "movies"},
        {"name": "genres", "kind": "multi_hot", "pooling": "mean"},
        {"name": "seen", "kind": "sequence", "max_length": 4, "table": "movies"},
    ],
    "item": ["movie", "genres"],
}
SCHEMA = parse(FEATURES)
ROWS = {"user": 20, "movie": 15, "genres": 6, "seen": 15}
COUNTS = torch.arange(15) % 7
SETTINGS: dict[str, Any] = {
    "optimizer_eps": 1e-4,
    "model": "two_tower",
    "temperature": TEMPERATURE,
    "embedding_dim": DIM,
    "over_arch_layer_sizes": (16, 12, 1),
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
    "learning_rate": 0.02,
    "dense_learning_rate": 0.005,
}
PLANS: dict[str, dict[str, Any]] = {
    "planner": {},
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "data_parallel": {"data_parallel": True},
    "column_wise": {"sharding_types": ("column_wise",)},
}


def _size(step: int) -> int:
    return 1 if step == STEPS - 1 else BATCH - step % 4  # the last one leaves a rank without samples


def _samples(step: int) -> tuple[Tensor, dict[str, list[list[int]]], Tensor]:
    generator = torch.Generator().manual_seed(step)
    size = _size(step)
    lengths = dict.fromkeys(ROWS, torch.ones(size, dtype=torch.int64))
    lengths["genres"] = torch.randint(0, 3, (size,), generator=generator)
    lengths["seen"] = torch.randint(0, 5, (size,), generator=generator)
    ids = {
        name: [torch.randint(0, rows, (int(n),), generator=generator).tolist() for n in lengths[name]]
        for name, rows in ROWS.items()
    }
    labels = (torch.rand(size, generator=generator) < 0.7).float()
    labels[0] = 1.0
    return torch.rand(size, 1, generator=generator), ids, labels


def _weights(step: int) -> Tensor:
    """Factors of a step's samples; some are 0."""
    return torch.randint(0, 5, (_size(step),), generator=torch.Generator().manual_seed(1000 + step)) / 2


def _losses(
    place: Place, settings: dict[str, Any], *, weighted: bool = False
) -> tuple[list[float], dict[str, Tensor]]:
    config = make_config({**SETTINGS, **settings})
    world = make_world(place)
    learner = Learner(config, make_shape(config, ["age"], ROWS, (), SCHEMA), world, total_steps=STEPS)
    assert learner.kind.retrieval is not None
    learner.kind.retrieval.learn_counts(COUNTS)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    batches = (_batch(place, step, weighted=weighted) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start


def _weighted_losses(place: Place, settings: dict[str, Any]) -> list[float]:
    return _losses(place, settings, weighted=True)[0]


def _batch(place: Place, step: int, *, weighted: bool) -> Batch:
    dense, ids, labels = _samples(step)
    size = _size(step)
    share = slice(size * place.rank // place.world_size, size * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int32),
        labels=labels[share],
        sample_ids=torch.arange(size)[share],
        global_size=size,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
        weights=_weights(step)[share] if weighted else None,
    )


def _tower(w: Mapping[str, Tensor], name: str, values: Tensor) -> Tensor:
    hidden = (w[f"net.{name}.0.weight"] @ values + w[f"net.{name}.0.bias"]).clamp_min(0)
    vector = w[f"net.{name}.2.weight"] @ hidden + w[f"net.{name}.2.bias"]
    return vector / vector.norm()


def _mean(rows: Tensor) -> Tensor:
    return rows.mean(0) if len(rows) else torch.zeros(rows.shape[1])


def _reference(start: Mapping[str, Tensor], *, weighted: bool = False) -> list[float]:
    """The losses by plain torch, one pair of a row and an item after the other."""
    w = {name[6:]: value.clone().requires_grad_() for name, value in start.items() if name[:6] == "dense/"}
    tables = {
        name.split("/")[1]: value.clone().requires_grad_()
        for name, value in start.items()
        if name.startswith("tables/") and name.endswith("/weight")
    }
    optimizers = [
        torch.optim.AdamW(w.values(), lr=0.005, eps=1e-4, weight_decay=0.0),
        torch.optim.Adagrad(tables.values(), lr=0.02, eps=1e-4),
    ]
    chance = COUNTS.clamp_min(1) / COUNTS.sum()
    losses = []
    for step in range(STEPS):
        dense, ids, labels = _samples(step)
        users, items = [], []
        for row in range(_size(step)):
            rows = {name: torch.tensor(lists[row], dtype=torch.int64) for name, lists in ids.items()}
            seen = _mean(tables["movies"][rows["seen"]])
            movie, genres = tables["movies"][rows["movie"]][0], _mean(tables["genres"][rows["genres"]])
            user = torch.cat([dense[row], tables["user"][rows["user"]][0], seen])
            users.append(_tower(w, "user_tower", user))
            items.append(_tower(w, "item_tower", torch.cat([movie, genres])))
        positive = [row for row in range(_size(step)) if labels[row] == 1]
        total = torch.zeros(())
        for row in positive:
            own = ids["movie"][row][0]
            others = [each for each in positive if ids["movie"][each][0] != own]
            scores = [
                users[row] @ items[each] / TEMPERATURE - chance[ids["movie"][each][0]].log()
                for each in [row, *others]
            ]
            factor = float(_weights(step)[row]) if weighted else 1.0
            total = total - factor * torch.log_softmax(torch.stack(scores), dim=0)[0]
        loss = total / len(positive)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(float(loss.detach()))
    return losses


@pytest.fixture(scope="module")
def expected(worlds: Worlds) -> list[float]:
    return _reference(worlds.run(1, _losses, {})[0][1])


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_the_reference(
    worlds: Worlds, expected: list[float], world_size: int, plan: str
) -> None:
    losses, _ = worlds.run(world_size, _losses, PLANS[plan])[0]
    assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("world_size", [1, 2])
def test_the_weights_of_samples_are_factors_on_their_losses(
    worlds: Worlds, expected: list[float], world_size: int
) -> None:
    weighted = _reference(worlds.run(1, _losses, {})[0][1], weighted=True)
    assert weighted != pytest.approx(expected, abs=1e-2)
    assert worlds.run(world_size, _weighted_losses, {})[0] == pytest.approx(weighted, abs=1e-5)


def _items(count: int, known: list[int]) -> Items:
    places = torch.full((count,), -1)
    places[known] = torch.arange(len(known))
    nothing = ArrayParts("items", (), 0, ())
    return Items(0, torch.tensor(known).numpy(), places, torch.zeros(count), nothing)


def test_recall_counts_ties_against_the_item_and_unknown_items_as_not_found() -> None:
    meter = RecallMeter(_items(6, [2, 3, 4, 5]), (1, 2, 3))
    vectors = torch.tensor([[1.0, 0], [1, 0], [0.5, 0], [0, 1]])
    users = torch.tensor([[1.0, 0], [1, 0], [0, 1], [1, 0], [1, 0]])
    meter.update(users, torch.tensor([2, 4, 5, 1, 3]), torch.tensor([1.0, 1, 1, 1, 0]))
    # Item 2 ties with 3, so it is second; 4 is third, 5 first; 1 is unknown; the last row is not positive.
    assert meter.hits(vectors) == [1.0, 2.0, 3.0, 4.0]
    assert named((1, 2, 3), meter.hits(vectors)) == {
        "recall_at_1": 0.25,
        "recall_at_2": 0.5,
        "recall_at_3": 0.75,
    }


@pytest.mark.parametrize(
    ("features", "settings", "message"),
    [
        ({"item": []}, {}, "needs to know which features"),
        ({"item": ["movie", "genres"], "sparse": FEATURES["sparse"][1:3], "dense": []}, {}, "no feature of"),
        ({}, {"over_arch_layer_sizes": (1,)}, "needs a layer"),
    ],
)
def test_a_model_that_cannot_be_is_refused(
    features: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    schema = parse({**FEATURES, **features})
    config = make_config({**SETTINGS, **settings})
    rows = {each.name: 15 for each in schema.sparse}
    shape = make_shape(config, [each.name for each in schema.dense], rows, (), schema)
    with pytest.raises(ConfigError, match=message):
        make_model(config, shape, torch.device("cpu"))
