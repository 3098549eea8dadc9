"""two_tower's losses equal those of an independent reference on any ranks and plans; recall@k is exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cloudrec_contract.features import parse
from tests.trainer.support_learner import make_world
from tests.trainer.support_ranks import Place
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.data.lists import ListArrays
from trainer.data.source import ArrayParts
from trainer.data.stream import ShardArrays
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape
from trainer.models.model import make_model
from trainer.retrieval.items import Items
from trainer.retrieval.negatives import NegativeSampler
from trainer.retrieval.recall import RecallMeter, named

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def _known_items() -> Items:
    """Twelve movies with their genres, of which ten are in training rows."""
    generator = np.random.default_rng(5)
    genres = [generator.integers(0, 6, size).tolist() for size in generator.integers(0, 4, 12)]
    seen = [[1, 2]] * 12
    lengths = np.array([[len(each) for each in genres], [len(each) for each in seen]])
    values = np.array([each for lists in (genres, seen) for row in lists for each in row], np.int32)
    ends = np.cumsum(lengths).reshape(2, -1)
    offsets = np.concatenate([np.array([[0], [ends[0, -1]]]), ends], axis=1)
    ids = np.arange(2, 14)
    arrays = ShardArrays(
        np.zeros(12, np.uint8),
        np.ones((12, 1), np.float32),
        np.stack([np.full(12, 3), ids]).astype(np.int32),
        ListArrays(offsets, values),
    )
    rows = ArrayParts("items", (arrays,), 1, (1, 1), (2, 3))
    return Items(1, ids, torch.zeros(15, dtype=torch.int64), COUNTS, rows, trained=10)


def _sampler(rank: int = 0, world_size: int = 1, *, count: int = 7, seed: int = 3) -> NegativeSampler:
    return NegativeSampler(
        _known_items(), SCHEMA.item, list(ROWS), count=count, seed=seed, rank=rank, world_size=world_size
    )


def _losses(
    place: Place, settings: dict[str, Any], *, weighted: bool = False
) -> tuple[list[float], dict[str, Tensor]]:
    config = make_config({**SETTINGS, **settings})
    world = make_world(place)
    learner = Learner(config, make_shape(config, ["age"], ROWS, (), SCHEMA), world, total_steps=STEPS)
    assert learner.kind.retrieval is not None
    learner.kind.retrieval.learn_counts(COUNTS)
    if config.num_negatives is not None:
        learner.make_input.negatives = _sampler(place.rank, place.world_size, count=config.num_negatives)
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


def _reference(
    start: Mapping[str, Tensor], *, weighted: bool = False, negatives: str = "in_batch"
) -> list[float]:
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
        drawn = _drawn(step) if negatives != "in_batch" else []
        total = torch.zeros(())
        for row in positive:
            own = ids["movie"][row][0]
            compared = positive if negatives != "uniform" else []
            others = [(ids["movie"][each][0], items[each]) for each in compared]
            for movie, genres in drawn:
                vectors = [tables["movies"][movie], _mean(tables["genres"][torch.tensor(genres).long()])]
                others.append((movie, _tower(w, "item_tower", torch.cat(vectors))))
            scores = [
                users[row] @ vector / TEMPERATURE - _log_chance(movie, negatives, len(positive), chance)
                for movie, vector in [(own, items[row]), *(each for each in others if each[0] != own)]
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


def _drawn(step: int) -> list[tuple[int, list[int]]]:
    """The ids and genres of a step's drawn movies."""
    arrays = _known_items().rows.arrays(0)
    assert arrays.lists is not None
    offsets, values, _ = arrays.lists
    return [
        (2 + at, values[offsets[0, at] : offsets[0, at + 1]].tolist())
        for at in _sampler().draw(step).tolist()
    ]


def _log_chance(movie: int, negatives: str, positive: int, chance: Tensor) -> Tensor:
    """The log of the chance that a movie is among those which a row's is compared with."""
    if negatives == "uniform":
        return torch.tensor(1 / 10).log()
    if negatives == "mixed":
        among_rows = COUNTS[movie] / COUNTS.sum() if COUNTS[movie] else torch.zeros(())
        return ((positive * among_rows + 7 / 10) / (positive + 7)).log()
    return chance[movie].log()


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


@pytest.mark.parametrize("negatives", ["uniform", "mixed"])
def test_losses_with_drawn_items_equal_those_of_the_reference(
    worlds: Worlds, expected: list[float], negatives: str
) -> None:
    settings = {"negatives": negatives, "num_negatives": 7}
    wanted = _reference(worlds.run(1, _losses, settings)[0][1], negatives=negatives)
    assert wanted != pytest.approx(expected, abs=1e-2)
    for world_size in (1, 2):
        for plan in (*PLANS.values(), {"pipeline": "sparse_dist"}):
            losses, _ = worlds.run(world_size, _losses, {**settings, **plan})[0]
            assert losses == pytest.approx(wanted, abs=1e-5), (world_size, plan)


def test_items_are_drawn_with_equal_chances_by_the_seed_and_the_step_alone() -> None:
    sampler = _sampler(count=7_000)
    drawn = sampler.draw(4)
    counts = np.bincount(drawn, minlength=12)
    assert counts[10:].tolist() == [0, 0], "items of no training row"
    assert abs(counts[:10] - 700).max() < 5 * 700**0.5
    assert np.array_equal(drawn, _sampler(1, 3, count=7_000).draw(4))
    for other in (sampler.draw(5), _sampler(count=7_000, seed=4).draw(4)):
        assert np.mean(drawn == other) < 0.15


def test_ranks_share_the_drawn_items_and_look_up_nothing_of_a_user() -> None:
    whole, drawn = _sampler().extend(_batch(Place(0, 1, None), 0, weighted=True), 4)
    size = _size(0)
    assert (len(whole), drawn.own, drawn.sizes, drawn.among) == (size + 7, 7, (7,), 10)
    assert whole.lengths is not None
    assert whole.weights is not None
    assert whole.lengths[[0, 3], size:].sum() == 0
    assert whole.weights[size:].sum() == 0
    found = []
    for rank in range(2):
        batch = _batch(Place(rank, 2, None), 0, weighted=True)
        part, share = _sampler(rank, 2).extend(batch, 4)
        assert share.sizes == (3, 4)
        assert torch.equal(share.ids, drawn.ids)
        assert part.lengths is not None
        before = int(part.lengths[0].sum())
        movies = part.sparse[before : before + int(part.lengths[1].sum())]
        found += movies[len(batch) :].tolist()
    assert found == drawn.ids.tolist()


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
