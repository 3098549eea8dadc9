"""Each model's losses equal those of an independent single-process reference, on one rank and on several."""

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
    from collections.abc import Callable, Mapping

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM = 50, 48, 8
DENSE = ("price", "age", "visits")
SCHEMA = parse(
    {
        "label": "clicked",
        "dense": list(DENSE),
        "sparse": [
            "city",
            {"name": "user", "table": "people"},
            {"name": "friends", "table": "people", "kind": "multi_hot"},
            {"name": "tags", "kind": "multi_hot", "pooling": "mean"},
        ],
    }
)
ROWS = {"city": 40, "user": 60, "friends": 60, "tags": 20}
OWN = "tests.trainer.own_model:build"
SETTINGS: dict[str, Any] = {
    "embedding_dim": DIM,
    "dense_arch_layer_sizes": (16, DIM),
    "over_arch_layer_sizes": (16, 12, 1),
    "dcn_num_layers": 2,
    "dcn_low_rank_dim": 4,
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
    "optimizer_eps": 1e-4,
    "learning_rate": 0.05,
    "dense_learning_rate": 0.01,
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
    dense = torch.rand(BATCH, len(DENSE), generator=generator)
    ids: dict[str, Lists] = {}
    for name, rows in ROWS.items():
        lengths = torch.ones(BATCH, dtype=torch.int64)
        if name in ("friends", "tags"):
            lengths = torch.randint(0, 4, (BATCH,), generator=generator)
        ids[name] = [torch.randint(0, rows, (int(n),), generator=generator).tolist() for n in lengths]
    odd = torch.tensor(
        [(row[0] % 2) ^ (len(tags) % 2) for row, tags in zip(ids["city"], ids["tags"], strict=True)]
    )
    return dense, ids, odd.float()


def _learner(place: Place, settings: dict[str, Any], features: dict[str, Any]) -> Learner:
    config = make_config({**SETTINGS, **settings})
    schema = SCHEMA if not features else parse({**SCHEMA.to_json(), **features})
    shape = make_shape(config, [each.name for each in schema.dense], ROWS, (), schema)
    return Learner(config, shape, make_world(place), total_steps=STEPS)


def _batch(place: Place, step: int, *, has_dense: bool = True) -> Batch:
    dense, ids, labels = _samples(step)
    share = slice(BATCH * place.rank // place.world_size, BATCH * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share] if has_dense else dense[share, :0],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int32),
        labels=labels[share],
        sample_ids=torch.arange(BATCH)[share],
        global_size=BATCH,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
    )


def _losses(
    place: Place, settings: dict[str, Any], features: dict[str, Any]
) -> tuple[list[float], dict[str, Tensor]]:
    """The loss of every step over all ranks, and the whole state before the first, if this rank has it."""
    learner, world = _learner(place, settings, features), make_world(place)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    batches = (_batch(place, step, has_dense="dense" not in features) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start


class _Reference:
    """Plain torch: whole tables, autograd, torch's optimizers; only the first weights are the trainer's."""

    def __init__(self, start: Mapping[str, Tensor], forward: Callable[..., Tensor], *, rate: float) -> None:
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
        self.forward = forward
        self.optimizers = [
            torch.optim.AdamW(self.weights.values(), lr=0.01, eps=1e-4, weight_decay=0.0),
            torch.optim.Adagrad(self.tables.values(), lr=rate, eps=1e-4),
        ]

    def step(self, number: int, *, has_dense: bool) -> float:
        dense, ids, labels = _samples(number)
        vectors = {}
        for name, lists in ids.items():
            table = self.tables["people" if name in ("user", "friends") else name]
            sums = [table[torch.tensor(row, dtype=torch.int64)].sum(dim=0) for row in lists]
            if name == "tags":
                sums = [each / max(len(row), 1) for each, row in zip(sums, lists, strict=True)]
            vectors[name] = torch.stack(sums)
        logits = self.forward(self.weights, dense if has_dense else dense[:, :0], vectors)
        losses = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
        if self.forward is _own:
            losses = losses * (1 + labels)
        loss = losses.mean()
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return float(loss.detach())


def _layers(w: Mapping[str, Tensor], prefix: str, values: Tensor, *, relu_last: bool) -> Tensor:
    numbers = sorted({int(name[len(prefix) :].split(".")[0]) for name in w if name.startswith(prefix)})
    for number in numbers:
        values = values @ w[f"{prefix}{number}.weight"].T + w[f"{prefix}{number}.bias"]
        if relu_last or number != numbers[-1]:
            values = values.clamp_min(0)
    return values


def _dlrm(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    every = [_layers(w, "bottom.layers.", dense, relu_last=True), *vectors.values()]
    pairs = [(every[i] * every[j]).sum(1) for i in range(len(every)) for j in range(i + 1, len(every))]
    return _layers(w, "top.layers.", torch.cat([every[0], torch.stack(pairs, 1)], 1), relu_last=False)[:, 0]


def _dcn(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    first = torch.cat([_layers(w, "bottom.layers.", dense, relu_last=True), *vectors.values()], 1)
    crossed = first
    for layer in range(2):
        change = crossed @ w[f"crosses.narrow.{layer}.weight"].T @ w[f"crosses.widen.{layer}.weight"].T
        crossed = first * (change + w[f"crosses.widen.{layer}.bias"]) + crossed
    return _layers(w, "top.layers.", crossed, relu_last=False)[:, 0]


def _wide(w: Mapping[str, Tensor], prefix: str, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    own = torch.stack([rows[:, -4] for rows in vectors.values()], 1).sum(1)
    if not dense.shape[1]:
        return own + w[f"{prefix}.bias"]
    return own + (dense @ w[f"{prefix}.dense.weight"].T)[:, 0] + w[f"{prefix}.dense.bias"]


def _deep(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    inputs = torch.cat([dense, *(rows[:, :-4] for rows in vectors.values())], 1)
    return _layers(w, "net.deep.", inputs, relu_last=False)[:, 0]


def _wide_deep(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    return _wide(w, "net.wide", dense, vectors) + _deep(w, dense, vectors)


def _deepfm(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    rows = [each[:, :-4] for each in vectors.values()]
    pairs = torch.stack([(a * b).sum(1) for i, a in enumerate(rows) for b in rows[i + 1 :]], 1).sum(1)
    return _wide(w, "net.linear", dense, vectors) + pairs + _deep(w, dense, vectors)


def _own(w: Mapping[str, Tensor], dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    gate = torch.sigmoid(dense @ w["net.gate.weight"].T + w["net.gate.bias"])
    gated = torch.cat(list(vectors.values()), 1) * gate
    centred = gated - gated.mean(1, keepdim=True)
    scaled = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    normed = scaled * w["net.norm.weight"] + w["net.norm.bias"]
    return (normed @ w["net.top.weight"].T + w["net.top.bias"])[:, 0]


MODELS = {"dlrm": _dlrm, "dcn_v2": _dcn, "deepfm": _deepfm, "wide_deep": _wide_deep, OWN: _own}


def _compare(
    worlds: Worlds, model: str, ranks: int, settings: dict[str, Any], features: dict[str, Any]
) -> list[float]:
    """Train on ranks and by the reference; return the losses, which must be equal."""
    _, start = worlds.run(1, _losses, {"model": model}, features)[0]
    losses, _ = worlds.run(ranks, _losses, {"model": model, **settings}, features)[0]
    reference = _Reference(start, MODELS[model], rate=0.05)
    expected = [reference.step(step, has_dense="dense" not in features) for step in range(STEPS)]
    assert losses == pytest.approx(expected, abs=1e-5)
    return losses


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_the_reference(worlds: Worlds, model: str, world_size: int) -> None:
    losses = _compare(worlds, model, world_size, {}, {})
    if model != "dcn_v2":  # whose tables have hardly moved by then
        assert sum(losses[-10:]) < sum(losses[:10]), "it must learn"


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", ["deepfm", OWN])
def test_losses_are_the_same_under_every_plan(worlds: Worlds, model: str, plan: str) -> None:
    _compare(worlds, model, 2, PLANS[plan], {})


@pytest.mark.parametrize("model", ["deepfm", "wide_deep"])
def test_data_may_have_no_dense_feature(worlds: Worlds, model: str) -> None:
    _compare(worlds, model, 2, {}, {"dense": []})


@pytest.mark.parametrize("model", ["wide_deep", OWN])
def test_tables_may_have_different_widths(worlds: Worlds, model: str) -> None:
    sparse = [{**each, "dim": 12} if each["name"] == "tags" else each for each in SCHEMA.to_json()["sparse"]]
    _compare(worlds, model, 2, {}, {"sparse": sparse})


def _shape(**settings: Any) -> None:
    features = settings.pop("features", {})
    schema = parse({**SCHEMA.to_json(), **features})
    config = make_config({**SETTINGS, **settings})
    shape = make_shape(config, [each.name for each in schema.dense], ROWS, (), schema)
    from trainer.models.model import make_model  # noqa: PLC0415 - as the trainer does after its checks

    make_model(config, shape, torch.device("cpu"))


WIDE_TAGS = [{**each, "dim": 12} if each["name"] == "tags" else each for each in SCHEMA.to_json()["sparse"]]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "deepfn"}, "model is 'deepfn'.*did you mean deepfm"),
        ({"model": "no_such_module:build"}, "No module named 'no_such_module'"),
        ({"model": "tests.trainer.own_model:absent"}, "has no attribute 'absent'"),
        ({"model": "tests.trainer.own_model:no_module"}, "returned a str, not a torch.nn.Module"),
        ({"model": "tests.trainer.own_model:with_batch_norm"}, "has the buffer.*LayerNorm for BatchNorm"),
        ({"model": "deepfm", "interaction": "dcn"}, "interaction is dcn, which only dlrm and dcn_v2 have"),
        ({"features": {"dense": []}}, "no dense features.*--model deepfm or wide_deep"),
        ({"features": {"sparse": WIDE_TAGS}}, "tags has dim 12 in the feature schema and embedding_dim is 8"),
        (
            {"model": "deepfm", "features": {"sparse": WIDE_TAGS}},
            "deepfm multiplies vectors of equal dimensions",
        ),
    ],
)
def test_a_model_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _shape(**settings)


def _wrong_shape(place: Place) -> str:
    with pytest.raises(ConfigError) as raised:
        _losses(place, {"model": "tests.trainer.own_model:of_wrong_shape"}, {})
    return str(raised.value)


def test_a_model_that_returns_something_else_is_refused(worlds: Worlds) -> None:
    assert "its forward returned [48, 2] for 48 samples" in worlds.run(1, _wrong_shape)[0]


def test_column_wise_with_one_sum_a_row_is_refused() -> None:
    with pytest.raises(ConfigError, match="trains another model"):
        make_config({**SETTINGS, "table_optimizer": "rowwise_adagrad", "sharding_types": ("column_wise",)})
