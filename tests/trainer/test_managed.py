"""Managed collision: each id has its own row while there is room, and the same one on any ranks and plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchrec.sparse.jagged_tensor import KeyedJaggedTensor

from cloudrec_contract.features import parse
from tests.trainer.support_learner import make_world
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape
from trainer.tables.managed import ManagedIds, ManagedTable, Seen, fresh_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM = 50, 33, 8
SCHEMA = parse(
    {
        "label": "clicked",
        "dense": ["price"],
        "sparse": [
            {"name": "user", "encoding": "managed_collision", "buckets": 60, "table": "users"},
            "city",
            {
                "name": "friends",
                "kind": "multi_hot",
                "encoding": "managed_collision",
                "buckets": 60,
                "table": "users",
            },
            {"name": "tag", "encoding": "managed_collision", "buckets": 1000},
        ],
    }
)
ROWS = {"user": 60, "city": 9, "friends": 60, "tag": 1000}
SETTINGS: dict[str, Any] = {
    "model": "wide_deep",
    "optimizer_eps": 1e-4,
    "embedding_dim": DIM,
    "over_arch_layer_sizes": (12, 1),
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
    "learning_rate": 0.05,
    "dense_learning_rate": 0.005,
}
PLANS: dict[str, dict[str, Any]] = {
    "planner": {},
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "data_parallel": {"data_parallel": True},
    "column_wise": {"sharding_types": ("column_wise",)},
}


class _Slow:
    """The rules of the mapping by dictionaries, an id at a time."""

    def __init__(self, rows: int, eviction: str = "lfu") -> None:
        self.rows, self.eviction = rows, eviction
        self.row: dict[int, int] = {}
        self.count: dict[int, int] = {}
        self.last: dict[int, int] = {}

    def learn(self, ids: list[int], step: int) -> dict[int, int]:
        """Return the rows that other ids had, with their new ids."""
        counts = {each: ids.count(each) for each in set(ids) if each} if len(ids) < 500 else _counts(ids)
        for each in counts:
            if each in self.row:
                self.count[each] += counts[each]
                self.last[each] = step
        moved = {}
        for each in sorted((i for i in counts if i not in self.row), key=lambda i: (-counts[i], i)):
            row = 2 + len(self.row)
            if row >= self.rows:
                older = [i for i in self.row if self.last[i] < step]
                if not older:
                    continue
                first, second = (self.count, self.last) if self.eviction == "lfu" else (self.last, self.count)
                gone = min(older, key=lambda i: (first[i], second[i], self.row[i]))
                row = self.row.pop(gone)
                moved[row] = each
            self.row[each], self.count[each], self.last[each] = row, counts[each], step
        return moved

    def find(self, value: int) -> int:
        return 0 if value == 0 else self.row.get(value, 1)


def _counts(ids: list[int]) -> dict[int, int]:
    every, counts = np.unique(ids, return_counts=True)
    return dict(zip(every.tolist(), counts.tolist(), strict=True))


def _seen(ids: list[int]) -> Seen:
    every, counts = np.unique(np.array(ids, np.int64), return_counts=True)
    return Seen(every[every > 0], counts[every > 0])


@pytest.mark.parametrize("eviction", ["lfu", "lru"])
@pytest.mark.parametrize("rows", [3, 12, 50, 10_000])
def test_ids_get_and_lose_rows_by_the_rules(rows: int, eviction: str) -> None:
    random = np.random.default_rng(rows)
    fast, slow = ManagedTable(rows, eviction=eviction), _Slow(rows, eviction)
    names = random.integers(1, (1 << 63) - 1, 4 * rows)
    moved_rows = 0
    for step in range(1, 60):
        places = np.minimum(random.geometric(2 / rows, 40), len(names) - 1) + step % 3
        ids = [0, *names[places.clip(max=len(names) - 1)].tolist()]
        moved, wanted = fast.learn(_seen(ids), step), slow.learn(ids, step)
        assert dict(zip(moved.rows.tolist(), moved.ids.tolist(), strict=True)) == wanted
        moved_rows += len(wanted)
        found = fast.find(np.concatenate([[0], names]))
        assert found.tolist() == [slow.find(each) for each in (0, *names.tolist())]
    assert (moved_rows > 0) == (rows < 10_000)


@pytest.mark.parametrize("eviction", ["lfu", "lru"])
def test_the_first_rows_give_way_in_a_large_table_too(eviction: str) -> None:
    random = np.random.default_rng(2)
    fast, slow = ManagedTable(2_002, eviction=eviction), _Slow(2_002, eviction)
    names = random.integers(1, (1 << 63) - 1, 20_000)
    moved_rows = 0
    for step in range(1, 150):
        hot, others = random.integers(0, 1_000, 60), random.integers(0, len(names), 40)
        ids = names[np.concatenate([hot, others])].tolist()
        moved, wanted = fast.learn(_seen(ids), step), slow.learn(ids, step)
        assert dict(zip(moved.rows.tolist(), moved.ids.tolist(), strict=True)) == wanted
        moved_rows += len(wanted)
        if step == 100:
            fast.reindex()  # as after a resume
    assert moved_rows > 1_000
    assert fast.find(names).tolist() == [slow.find(each) for each in names.tolist()]


def test_ids_are_found_in_a_large_table_after_many_steps_and_after_a_resume() -> None:
    random = np.random.default_rng(1)
    table, slow = ManagedTable(30_002), _Slow(30_002)
    names = random.integers(1, (1 << 63) - 1, 30_000)
    for step in range(1, 11):  # the index is made several times
        ids = names[: 3_000 * step][random.integers(0, 3_000 * step, 4_000)].tolist()
        table.learn(_seen(ids), step)
        slow.learn(ids, step)
    wanted = [slow.find(each) for each in names.tolist()]
    assert table.find(names).tolist() == wanted
    other = ManagedTable(30_002)
    for mine, theirs in ((other.ids, table.ids), (other.counts, table.counts), (other.last, table.last)):
        mine.copy_(theirs)
    other.reindex()
    assert other.find(names).tolist() == wanted
    new = random.integers(1, (1 << 63) - 1, 100)
    for each in (table, other):
        each.learn(_seen(new.tolist()), 11)
    assert other.find(new).tolist() == table.find(new).tolist()


def test_rows_take_the_places_of_ids_and_keep_their_weights() -> None:
    managed = ManagedIds(["users"], {"users": 6, "city": 9}, {"user": "users", "city": "city"})
    managed.tables["users"].learn(_seen([70, 80]), 1)
    ids = KeyedJaggedTensor(
        keys=["user", "city"],
        values=torch.tensor([80, 0, 90, 5, 7]),
        lengths=torch.tensor([2, 1, 1, 1]),
        weights=torch.tensor([0.5, 2, 3, 1, 1]),
    )
    rows = managed.apply(ids)
    assert rows.values().tolist() == [3, 0, 1, 5, 7]
    assert rows.weights().tolist() == [0.5, 2, 3, 1, 1]
    assert rows.lengths().tolist() == [2, 1, 1, 1]
    assert ids.values().tolist() == [80, 0, 90, 5, 7], "the input stays as it is"


def test_a_step_with_more_ids_than_rows_leaves_the_rarest_unknown() -> None:
    table = ManagedTable(5)
    table.learn(_seen([9, 9, 8, 8, 8, 7, 5]), 1)
    assert table.find(np.array([8, 9, 5, 7, 0])).tolist() == [2, 3, 4, 1, 0]


def test_new_vectors_are_as_those_of_a_new_table_and_depend_on_the_id() -> None:
    ids = np.arange(1, 2_001)
    drawn = fresh_vectors("users", ids, (400, 16), seed=3, scale=2.0)
    assert drawn.abs().max() <= 0.1
    assert abs(float(drawn.mean())) < 0.002
    assert float(drawn.std()) == pytest.approx(0.1 / 3**0.5, rel=0.02)
    assert len(drawn.unique()) > 0.95 * drawn.numel()
    assert torch.equal(fresh_vectors("users", ids[5:7], (400, 16), seed=3, scale=2.0), drawn[5:7])
    for other in (
        fresh_vectors("tags", ids, (400, 16), seed=3, scale=2.0),
        fresh_vectors("users", ids, (400, 16), seed=4, scale=2.0),
    ):
        assert (other == drawn).float().mean() < 0.01


def _samples(step: int) -> tuple[Tensor, dict[str, list[list[int]]], Tensor]:
    random = np.random.default_rng(step)
    size = 1 if step == STEPS - 1 else BATCH
    names = np.random.default_rng(99).integers(1, (1 << 63) - 1, 400)
    counts = random.integers(0, 4, size)
    ids = {
        "user": [[0] if each == 1 else [int(names[each])] for each in random.geometric(0.03, size) % 400],
        "city": random.integers(0, 9, size)[:, None].tolist(),
        "friends": [names[random.geometric(0.05, n) % 400].tolist() for n in counts],
        "tag": names[random.integers(0, 400, size)][:, None].tolist(),
    }
    return torch.rand(size, 1, generator=torch.Generator().manual_seed(step)), ids, _labels(ids)


def _labels(ids: Mapping[str, list[list[int]]]) -> Tensor:
    return torch.tensor([float((user + 3 * city) % 5 > 2) for (user,), (city,) in _pairs(ids)])


def _pairs(ids: Mapping[str, list[list[int]]]) -> Iterator[tuple[list[int], list[int]]]:
    return zip(ids["user"], ids["city"], strict=True)


def _batch(place: Place, step: int) -> Batch:
    dense, ids, labels = _samples(step)
    size = len(labels)
    share = slice(size * place.rank // place.world_size, size * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int64),
        labels=labels[share],
        sample_ids=torch.arange(size)[share],
        global_size=size,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
    )


Trained = tuple[list[float], dict[str, Tensor], dict[str, Tensor], Tensor]


def _trained(place: Place, settings: dict[str, Any]) -> Trained:
    """The losses, the state before, the mapping after, and the scores of a step's samples."""
    config = make_config({**SETTINGS, **settings})
    world = make_world(place)
    learner = Learner(config, make_shape(config, ["price"], ROWS, (), SCHEMA), world, total_steps=STEPS)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    batches = (_batch(place, step) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    before = {name: entry.shards[0].tensor.clone() for name, entry in learner.managed.entries().items()}
    scores = torch.cat([each for each, _ in learner.score([_batch(place, 1000)])])
    after = {name: entry.shards[0].tensor for name, entry in learner.managed.entries().items()}
    assert all(torch.equal(before[name], after[name]) for name in before), "scoring must learn nothing"
    return losses, start, before, scores


class _Reference:
    """Plain torch over the slow mapping; only the first weights are the trainer's."""

    def __init__(self, start: Mapping[str, Tensor]) -> None:
        self.w = {k[6:]: v.clone().requires_grad_() for k, v in start.items() if k.startswith("dense/")}
        self.tables = {
            name.split("/")[1]: value.clone().requires_grad_()
            for name, value in start.items()
            if name.startswith("tables/") and name.endswith("/weight")
        }
        self.maps = {"users": _Slow(60), "tag": _Slow(1000)}
        self.moved = 0
        self.optimizers = [
            torch.optim.AdamW(self.w.values(), lr=0.005, eps=1e-4, weight_decay=0.0),
            torch.optim.Adagrad(self.tables.values(), lr=0.05, eps=1e-4),
        ]

    def logits(self, dense: Tensor, ids: Mapping[str, list[list[int]]]) -> Tensor:
        found = []
        for sample in range(len(dense)):
            rows = [self._sum(name, lists[sample]) for name, lists in ids.items()]
            hidden = torch.cat([dense[sample], *(row[:DIM] for row in rows)])
            hidden = (self.w["net.deep.0.weight"] @ hidden + self.w["net.deep.0.bias"]).clamp_min(0)
            deep = self.w["net.deep.2.weight"] @ hidden + self.w["net.deep.2.bias"]
            wide = self.w["net.wide.dense.weight"] @ dense[sample] + self.w["net.wide.dense.bias"]
            found.append((deep + wide)[0] + sum(row[DIM] for row in rows))
        return torch.stack(found)

    def _sum(self, name: str, ids: list[int]) -> Tensor:
        table = {"user": "users", "friends": "users"}.get(name, name)
        rows = [self.maps[table].find(each) for each in ids] if table in self.maps else ids
        return self.tables[table][torch.tensor(rows, dtype=torch.int64)].sum(0)

    def step(self, number: int) -> float:
        dense, ids, labels = _samples(number)
        for table, names in {"users": ("user", "friends"), "tag": ("tag",)}.items():
            seen = [each for name in names for row in ids[name] for each in row]
            for row, new in self.maps[table].learn(seen, number + 1).items():
                self.moved += 1
                weight = self.tables[table]
                with torch.no_grad():
                    shape = tuple(weight.shape)
                    weight[row] = fresh_vectors(table, np.array([new]), shape, seed=0, scale=1.0)[0]
                    self.optimizers[1].state[weight]["sum"][row] = 0
        loss = functional.binary_cross_entropy_with_logits(self.logits(dense, ids), labels)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())


@pytest.fixture(scope="module")
def expected(worlds: Worlds) -> tuple[list[float], _Reference]:
    reference = _Reference(worlds.run(1, _trained, {})[0][1])
    return [reference.step(step) for step in range(STEPS)], reference


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_and_rows_equal_those_of_the_reference(
    worlds: Worlds, expected: tuple[list[float], _Reference], world_size: int, plan: str
) -> None:
    losses, reference = expected
    assert reference.moved > 100, "ids must lose their rows"
    results = worlds.run(world_size, _trained, PLANS[plan])
    assert results[0][0] == pytest.approx(losses, abs=1e-5)
    for _, _, mapping, _ in results:
        for table, slow in reference.maps.items():
            ids = mapping[f"managed/{table}/ids"]
            assert {int(each): row for row, each in enumerate(ids) if each} == slow.row
    dense, ids_of_step, _ = _samples(1000)
    scores = torch.cat([each for _, _, _, each in results])
    torch.testing.assert_close(scores, reference.logits(dense, ids_of_step).detach(), atol=1e-4, rtol=0.0)


def _refused(place: Place, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        _trained(place, settings)
    return str(caught.value)


def test_a_pipeline_that_looks_ahead_is_refused(worlds: Worlds) -> None:
    message = worlds.run(1, _refused, {"pipeline": "sparse_dist"})[0]
    assert "whose rows each step may change; take auto or plain" in message


def test_a_table_without_a_row_for_an_id_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the table users has 2 rows.* needs at least 3"):
        ManagedIds(["users"], {"users": 2}, {"user": "users"})
