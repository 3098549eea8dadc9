"""Sequence models' losses equal those of an independent single-process reference, on all plans and ranks."""

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
from trainer.models.inputs import InputMaker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM, LENGTH, PAGES = 50, 49, 8, 6, 3  # ranks get different numbers of samples
FEATURES: dict[str, Any] = {
    "label": "clicked",
    "dense": ["price", "age"],
    "sparse": [
        "city",
        {"name": "item", "table": "items"},
        {"name": "bought", "kind": "sequence", "max_length": LENGTH, "table": "items"},
        {"name": "tags", "kind": "multi_hot", "pooling": "mean"},
        {"name": "category", "table": "categories", "dim": 4},
        {
            "name": "bought_categories",
            "kind": "sequence",
            "max_length": LENGTH,
            "table": "categories",
            "dim": 4,
        },
        {"name": "pages", "kind": "sequence", "max_length": PAGES},
    ],
}
SCHEMA = parse(FEATURES)
TASKS = {"clicked": 1.0, "bought_it": 2.0, "liked": 0.5}
SEVERAL = parse(
    {
        **{key: value for key, value in FEATURES.items() if key != "label"},
        "labels": [
            "clicked",
            {"name": "bought_it", "weight": 2},
            {"name": "liked", "weight": 0.5, "missing": "skip"},
        ],
    }
)
ROWS = {"city": 20, "item": 30, "bought": 30, "tags": 9, "category": 7, "bought_categories": 7, "pages": 12}
TABLES = {each.name: each.table for each in SCHEMA.sparse}
SETTINGS: dict[str, Any] = {
    "optimizer_eps": 1e-4,
    "embedding_dim": DIM,
    "over_arch_layer_sizes": (16, 12, 1),
    "attention_layer_sizes": (10, 6),
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
}
PLANS: dict[str, dict[str, Any]] = {
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "data_parallel": {"data_parallel": True},
    "column_wise": {"sharding_types": ("column_wise",)},
}
Lists = list[list[int]]


def _samples(step: int) -> tuple[Tensor, dict[str, Lists], Tensor]:
    """Dense values, each feature's ids by sample, and labels, of a step over all ranks."""
    generator = torch.Generator().manual_seed(step)
    dense = torch.rand(BATCH, 2, generator=generator)
    events = torch.randint(0, LENGTH + 1, (BATCH,), generator=generator)
    events[0] = 0
    lengths = dict.fromkeys(ROWS, torch.ones(BATCH, dtype=torch.int64))
    lengths |= {"bought": events, "bought_categories": events}
    lengths["tags"] = torch.randint(0, 4, (BATCH,), generator=generator)
    lengths["pages"] = torch.randint(0, PAGES + 1, (BATCH,), generator=generator)
    ids = {
        name: [torch.randint(0, rows, (int(n),), generator=generator).tolist() for n in lengths[name]]
        for name, rows in ROWS.items()
    }
    pairs = zip(ids["item"], ids["bought"], strict=True)
    return dense, ids, torch.tensor([float(item[0] % 3 in {each % 3 for each in row}) for item, row in pairs])


def _labels_of_tasks(step: int) -> Tensor:
    """The labels [B, tasks] of a step; some rows lack the last one."""
    dense, ids, clicked = _samples(step)
    bought_it = torch.tensor([float(len(row) > LENGTH // 2) for row in ids["bought"]])
    liked = (dense[:, 0] > dense[:, 1]).float()
    liked[torch.rand(BATCH, generator=torch.Generator().manual_seed(1000 + step)) < 0.4] = -1
    return torch.stack([clicked, bought_it, liked], dim=1)


def _learner(place: Place, settings: dict[str, Any], *, several: bool = False) -> Learner:
    dense_rate, rate = _rates(settings["model"], several=several)
    config = make_config({**SETTINGS, "dense_learning_rate": dense_rate, "learning_rate": rate, **settings})
    shape = make_shape(config, ["price", "age"], ROWS, (), SEVERAL if several else SCHEMA)
    return Learner(config, shape, make_world(place), total_steps=STEPS)


def _batch(place: Place, step: int, *, several: bool = False) -> Batch:
    dense, ids, labels = _samples(step)
    labels = _labels_of_tasks(step) if several else labels
    share = slice(BATCH * place.rank // place.world_size, BATCH * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int32),
        labels=labels[share],
        sample_ids=torch.arange(BATCH)[share],
        global_size=BATCH,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
    )


def _losses(
    place: Place, settings: dict[str, Any], *, several: bool = False
) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of every step over all ranks, and the whole state before the first, if this rank has it."""
    learner, world = _learner(place, settings, several=several), make_world(place)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    batches = (_batch(place, step, several=several) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start


def _losses_of_several(place: Place, settings: dict[str, Any]) -> tuple[list[float], dict[str, Tensor]]:
    return _losses(place, settings, several=True)


class _Reference:
    """Plain torch, one sample after the other; only the first weights are the trainer's."""

    def __init__(self, start: Mapping[str, Tensor], model: str, *, several: bool = False) -> None:
        self.several = several
        self.weights = {
            name.removeprefix("dense/"): value.clone().requires_grad_()
            for name, value in start.items()
            if name.startswith("dense/")
        }
        self.tables = {
            name.split("/")[1]: value.clone().requires_grad_()
            for name, value in start.items()
            if name.startswith("tables/") and name.endswith("/weight")
        }
        self.model, self.inputs = model, MODELS[model]
        dense_rate, rate = _rates(model, several=several)
        self.optimizers = [
            torch.optim.AdamW(self.weights.values(), lr=dense_rate, eps=1e-4, weight_decay=0.0),
            torch.optim.Adagrad(self.tables.values(), lr=rate, eps=1e-4),
        ]

    def step(self, number: int) -> float:
        dense, ids, labels = _samples(number)
        logits = []
        for sample in range(BATCH):
            rows = {
                name: self.tables[TABLES[name].replace("items", "items_")][
                    torch.tensor(lists[sample], dtype=torch.int64)
                ]
                for name, lists in ids.items()
            }
            logits.append(self._logits(dense[sample], rows))
        if self.several:
            loss = _loss_of_tasks(logits, _labels_of_tasks(number))
        else:
            loss = functional.binary_cross_entropy_with_logits(torch.stack(logits), labels)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())

    def _logits(self, dense: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
        inputs = self.inputs(self.weights, dense, rows)
        if not self.several:
            return self._top("net.top.", inputs)
        # Each task has its own network behind the histories.
        return torch.stack([self._top(f"net.top.{place}.", inputs) for place in range(len(TASKS))])

    def _top(self, prefix: str, inputs: Tensor) -> Tensor:
        return _layers(self.weights, prefix, inputs, learned=self.model == "din")


def _loss_of_tasks(logits: list[Tensor], labels: Tensor) -> Tensor:
    """The mean over the samples of the weighted sum of a sample's known labels."""
    total = torch.zeros(())
    for scores, known in zip(logits, labels.tolist(), strict=True):
        for score, label, weight in zip(scores, known, TASKS.values(), strict=True):
            if label >= 0:
                chance = torch.sigmoid(score)
                total = total - weight * (chance if label else 1 - chance).log()
    return total / BATCH


def _average(rows: Tensor) -> Tensor:
    return rows.mean(0) if len(rows) else torch.zeros(rows.shape[1])


def _known(dense: Tensor, rows: Mapping[str, Tensor]) -> list[Tensor]:
    plain = [rows["city"][0], rows["item"][0], _average(rows["tags"]), rows["category"][0]]
    return [dense, *plain, _average(rows["pages"])]


def _layers(w: Mapping[str, Tensor], prefix: str, values: Tensor, *, learned: bool) -> Tensor:
    numbers = sorted({int(name[len(prefix) :].split(".")[0]) for name in w if name.startswith(prefix)})
    for number in numbers:
        weight = w[f"{prefix}{number}.weight"]
        if weight.dim() == 1:  # of PReLU
            values = torch.where(values > 0, values, values * weight)
        else:
            values = weight @ values + w[f"{prefix}{number}.bias"]
            if not learned and number != numbers[-1]:
                values = values.clamp_min(0)
    return values[0]


def _din(w: Mapping[str, Tensor], dense: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
    candidate = torch.cat([rows["item"][0], rows["category"][0]])
    interest = torch.zeros(DIM + 4)
    for item, category in zip(rows["bought"], rows["bought_categories"], strict=True):
        event = torch.cat([item, category])
        both = torch.cat([candidate, event, candidate - event, candidate * event])
        interest = interest + _layers(w, "net.interests.0.weigh.", both, learned=True) * event
    return torch.cat([*_known(dense, rows), interest])


def _norm(w: Mapping[str, Tensor], name: str, values: Tensor) -> Tensor:
    centred = values - values.mean()
    return centred / (centred.square().mean() + 1e-5).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]


def _silu(values: Tensor) -> Tensor:
    return values * torch.sigmoid(values)


def _hstu(w: Mapping[str, Tensor], dense: Tensor, rows: Mapping[str, Tensor]) -> Tensor:
    candidate = torch.cat([rows["item"][0], rows["category"][0]])
    bought = zip(rows["bought"], rows["bought_categories"], strict=True)
    events = [torch.cat([item, category]) for item, category in bought] + [candidate]
    width, heads = DIM + 4, 2
    part = width // heads
    for layer in range(2):
        name = f"net.stacks.0.{layer}"
        projected = [
            _silu(w[f"{name}.project.weight"] @ _norm(w, f"{name}.norm", each) + w[f"{name}.project.bias"])
            for each in events
        ]
        after = []
        for place, each in enumerate(events):
            gate, _, query, _ = projected[place].split(width)
            pieces = []
            for head in range(heads):
                cut = slice(head * part, (head + 1) * part)
                total = torch.zeros(part)
                for earlier in range(place + 1):
                    _, value, _, key = projected[earlier].split(width)
                    bias = w[f"{name}.bias"][place - earlier, head]
                    total = total + _silu(query[cut] @ key[cut] + bias) / (LENGTH + 1) * value[cut]
                pieces.append(total)
            gated = _norm(w, f"{name}.norm_out", torch.cat(pieces)) * gate
            after.append(each + w[f"{name}.out.weight"] @ gated + w[f"{name}.out.bias"])
        events = after
    return torch.cat([*_known(dense, rows), events[-1]])


# What the last network of a model gets.
MODELS = {"din": _din, "hstu": _hstu}
RATES = {"din": (0.01, 0.05), "hstu": (0.002, 0.01)}  # dense and tables: larger ones magnify rounding


def _rates(model: str, *, several: bool) -> tuple[float, float]:
    """Lower ones for several labels, whose loss is a larger sum."""
    dense, tables = RATES[model]
    return (dense / 4, tables / 4) if several else (dense, tables)


@pytest.fixture(scope="module")
def expected(worlds: Worlds) -> Callable[..., list[float]]:
    """The reference's losses of a model."""
    known: dict[tuple[str, bool], list[float]] = {}

    def find(model: str, *, several: bool = False) -> list[float]:
        if (model, several) not in known:
            function = _losses_of_several if several else _losses
            reference = _Reference(worlds.run(1, function, {"model": model})[0][1], model, several=several)
            known[model, several] = [reference.step(step) for step in range(STEPS)]
        return known[model, several]

    return find


@pytest.mark.parametrize("settings", [{}, *PLANS.values()], ids=["planner", *PLANS])
@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_losses_equal_those_of_the_reference(
    worlds: Worlds,
    expected: Callable[..., list[float]],
    model: str,
    world_size: int,
    settings: dict[str, Any],
) -> None:
    losses, _ = worlds.run(world_size, _losses, {"model": model, **settings})[0]
    assert losses == pytest.approx(expected(model), abs=1e-5)
    assert sum(losses[-10:]) < sum(losses[:10]), "it must learn"


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("model", MODELS)
def test_losses_of_several_labels_equal_those_of_the_reference(
    worlds: Worlds, expected: Callable[..., list[float]], model: str, world_size: int
) -> None:
    losses, _ = worlds.run(world_size, _losses_of_several, {"model": model})[0]
    assert losses == pytest.approx(expected(model, several=True), abs=1e-5)


def _last_values_only(place: Place) -> tuple[Tensor, Tensor]:
    """The scores of a long history, and of its last values."""
    learner = _learner(place, {"model": "hstu"})
    whole = _batch(place, 0)
    rows = {name: [[1]] for name in ROWS}
    scores = []
    for bought in ([9, 8, 7, 1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]):
        lists = [*({**rows, "bought": [bought], "bought_categories": [[1] * len(bought)]}).values()]
        batch = Batch(
            dense=whole.dense[:1],
            sparse=torch.tensor([each for (row,) in lists for each in row], dtype=torch.int32),
            labels=whole.labels[:1],
            sample_ids=torch.arange(1),
            global_size=1,
            lengths=torch.tensor([len(row) for (row,) in lists], dtype=torch.int32)[:, None],
        )
        scores.append(next(iter(learner.score([batch])))[0])
    return scores[0], scores[1]


def test_a_longer_history_counts_by_its_newest_values(worlds: Worlds) -> None:
    long, short = worlds.run(1, _last_values_only)[0]
    assert torch.equal(long, short)


def test_places_of_a_sequence_keep_their_order() -> None:
    maker = InputMaker(["city", "bought"], 1, sequences={"bought": 3})
    batch = Batch(
        dense=torch.zeros(2, 0),
        sparse=torch.tensor([10, 20, 1, 2, 3], dtype=torch.int32),
        labels=torch.zeros(2),
        sample_ids=torch.arange(2),
        global_size=2,
        lengths=torch.tensor([[1, 1], [2, 1]], dtype=torch.int32),
    )
    made = maker(batch).sparse.to_dict()
    assert {key: value.to_dense() for key, value in made.items()}.keys() == {
        "city", "bought#0", "bought#1", "bought#2"
    }  # fmt: skip
    assert [each.tolist() for each in made["bought#0"].to_dense()] == [[1], [3]]
    assert [each.tolist() for each in made["bought#1"].to_dense()] == [[2], []]
    assert [each.tolist() for each in made["bought#2"].to_dense()] == [[], []]


@pytest.mark.parametrize(
    ("settings", "sparse", "message"),
    [
        ({"model": "din"}, ["item", {"name": "bought", "kind": "sequence"}], "no feature shares its table"),
        ({"model": "din"}, ["item"], "no feature shares its table"),
        ({"model": "hstu", "attention_num_heads": 5}, FEATURES["sparse"], "take a divisor"),
    ],
)
def test_a_model_that_cannot_be_is_refused(settings: dict[str, Any], sparse: list[Any], message: str) -> None:
    from trainer.models.model import make_model  # noqa: PLC0415 - as the trainer does after its checks

    schema = parse({**FEATURES, "sparse": sparse})
    config = make_config({**SETTINGS, **settings})
    shape = make_shape(config, ["price", "age"], {each.name: 10 for each in schema.sparse}, (), schema)
    with pytest.raises(ConfigError, match=message):
        make_model(config, shape, torch.device("cpu"))


def _pooled(place: Place, model: str) -> list[float]:
    narrow = [{**each, "dim": DIM} if isinstance(each, dict) else each for each in FEATURES["sparse"]]
    config = make_config({**SETTINGS, "dense_arch_layer_sizes": (16, DIM), "model": model})
    shape = make_shape(config, ["price", "age"], ROWS, (), parse({**FEATURES, "sparse": narrow}))
    assert not shape.sequences
    assert set(shape.mean_pooled) == {"bought", "bought_categories", "pages", "tags"}
    learner = Learner(config, shape, make_world(place), total_steps=STEPS)
    batches = (_batch(place, step) for step in range(STEPS))
    return [float(step.loss) for step in learner.pipeline.steps(batches, 0)]


@pytest.mark.parametrize("model", ["dlrm", "deepfm"])
def test_other_models_take_the_mean_of_a_sequence(worlds: Worlds, model: str) -> None:
    losses = worlds.run(1, _pooled, model)[0]
    assert sum(losses[-10:]) < sum(losses[:10])
