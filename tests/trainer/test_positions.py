"""Pooling by position: the losses equal those of an independent reference and of torchrec's own module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchrec.modules.feature_processor_ import PositionWeightedModule
from torchrec.sparse.jagged_tensor import JaggedTensor, KeyedTensor

from cloudrec_contract.features import SchemaError, parse
from tests.trainer.support_learner import make_world
from trainer.base.arguments import make_config
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape
from trainer.models.model import make_model
from trainer.models.positions import PositionPooling

if TYPE_CHECKING:
    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM, LENGTH = 50, 47, 8, 4  # an odd batch: ranks have different numbers of samples
DENSE = ("price", "age")
FEATURES: dict[str, Any] = {
    "label": "clicked",
    "dense": list(DENSE),
    "sparse": [
        {"name": "bought", "kind": "sequence", "max_length": LENGTH, "pooling": "position", "table": "shop"},
        {"name": "item", "table": "shop"},
        {"name": "items", "kind": "sequence", "max_length": 2, "pooling": "position"},
    ],
}
SCHEMA = parse(FEATURES)
ROWS = {"bought": 20, "item": 20, "items": 9}
TABLES = {"bought": "shop", "item": "shop", "items": "items_"}
LENGTHS = {"bought": LENGTH, "items": 2}
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
OWN = "tests.trainer.own_model:build"
PLANS: dict[str, dict[str, Any]] = {
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "column_wise": {"sharding_types": ("column_wise",)},
    "table_row_wise": {"sharding_types": ("table_row_wise",)},
    "grid_shard": {"sharding_types": ("grid_shard",)},
    "data_parallel": {"data_parallel": True},
}
Rows = dict[str, list[list[int]]]


def _samples(step: int) -> tuple[Tensor, Rows, Tensor]:
    """Dense values, each feature's ids by sample, and labels of a step; the first place decides the label."""
    generator = torch.Generator().manual_seed(step)
    dense = torch.rand(BATCH, len(DENSE), generator=generator)
    ids: Rows = {}
    for name, rows in ROWS.items():
        most = LENGTHS.get(name, 0)
        counts = torch.randint(0, most + 1, (BATCH,), generator=generator).tolist() if most else [1] * BATCH
        ids[name] = [torch.randint(0, rows, (n,), generator=generator).tolist() for n in counts]
    labels = torch.tensor([float(bool(row) and row[0] % 2) for row in ids["bought"]])
    return dense, ids, labels


def _batch(place: Place, step: int) -> Batch:
    dense, ids, labels = _samples(step)
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
    place: Place, settings: dict[str, Any]
) -> tuple[list[float], dict[str, Tensor], dict[str, Tensor]]:
    """The loss of every step over all ranks, and this rank's whole tensors before and after."""
    world = make_world(place)
    config = make_config({**SETTINGS, **settings})
    learner = Learner(config, make_shape(config, DENSE, ROWS, (), SCHEMA), world, total_steps=STEPS)
    start = _whole(learner)
    batches = (_batch(place, step) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start, _whole(learner)


def _whole(learner: Learner) -> dict[str, Tensor]:
    return {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }


def _expected(start: dict[str, Tensor], model: str) -> tuple[list[float], Tensor]:
    """The losses of plain torch, and the weights of the places of `bought` at the end."""
    w = {
        name.removeprefix("dense/"): value.clone().requires_grad_()
        for name, value in start.items()
        if name.startswith("dense/")
    }
    tables = {name: start[f"tables/{name}/weight"].clone().requires_grad_() for name in ("shop", "items_")}
    optimizers = [
        torch.optim.AdamW(w.values(), lr=0.01, eps=1e-4, weight_decay=0.0),
        torch.optim.Adagrad(tables.values(), lr=0.05, eps=1e-4),
    ]
    found = []
    for step in range(STEPS):
        dense, ids, labels = _samples(step)
        vectors = {}
        for name, rows in ids.items():
            table = tables[TABLES[name]]
            sums = []
            for row in rows:
                total = torch.zeros(DIM)
                for place, each in enumerate(row):
                    factor = w[f"positions.of_{name}"][place] if name in LENGTHS else 1.0
                    total = total + factor * table[each]
                sums.append(total)
            vectors[name] = torch.stack(sums)
        logits = _dlrm(w, dense, vectors) if model == "dlrm" else _own(w, dense, vectors)
        each_loss = functional.softplus(logits) - labels * logits
        loss = (each_loss * (1 if model == "dlrm" else 1 + labels)).mean()  # as that model's own loss
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(float(loss.detach()))
    return found, w["positions.of_bought"].detach()


def _layers(w: dict[str, Tensor], prefix: str, values: Tensor, *, relu_last: bool) -> Tensor:
    numbers = sorted({int(name[len(prefix) :].split(".")[0]) for name in w if name.startswith(prefix)})
    for number in numbers:
        values = values @ w[f"{prefix}{number}.weight"].T + w[f"{prefix}{number}.bias"]
        if relu_last or number != numbers[-1]:
            values = values.clamp_min(0)
    return values


def _dlrm(w: dict[str, Tensor], dense: Tensor, vectors: dict[str, Tensor]) -> Tensor:
    every = [_layers(w, "bottom.layers.", dense, relu_last=True), *vectors.values()]
    pairs = [(every[i] * every[j]).sum(1) for i in range(len(every)) for j in range(i + 1, len(every))]
    return _layers(w, "top.layers.", torch.cat([every[0], torch.stack(pairs, 1)], 1), relu_last=False)[:, 0]


def _own(w: dict[str, Tensor], dense: Tensor, vectors: dict[str, Tensor]) -> Tensor:
    gates = 1 / (1 + (-(dense @ w["net.gate.weight"].T + w["net.gate.bias"])).exp())
    values = torch.cat(list(vectors.values()), 1) * gates
    apart = values - values.mean(1, keepdim=True)
    values = apart / (apart.square().mean(1, keepdim=True) + 1e-5).sqrt()
    values = values * w["net.norm.weight"] + w["net.norm.bias"]
    return (values @ w["net.top.weight"].T + w["net.top.bias"])[:, 0]


def _compare(worlds: Worlds, model: str, ranks: int, settings: dict[str, Any]) -> None:
    start = worlds.run(1, _losses, {"model": model})[0][1]
    losses, _, end = worlds.run(ranks, _losses, {"model": model, **settings})[0]
    expected, weights = _expected(start, model)
    assert losses == pytest.approx(expected, abs=1e-5)
    torch.testing.assert_close(end["dense/positions.of_bought"], weights, atol=1e-4, rtol=1e-4)
    assert torch.equal(start["dense/positions.of_bought"], torch.ones(LENGTH))
    assert weights[0] > weights[1:].max(), "the first place alone decides the label"


@pytest.mark.parametrize("model", ["dlrm", OWN])
@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_the_reference(worlds: Worlds, model: str, world_size: int) -> None:
    _compare(worlds, model, world_size, {})


@pytest.mark.parametrize("plan", PLANS)
def test_losses_are_the_same_under_every_plan(worlds: Worlds, plan: str) -> None:
    _compare(worlds, "dlrm", 2, PLANS[plan])


@pytest.mark.parametrize("model", ["dcn_v2", "deepfm", "wide_deep"])
def test_other_models_learn_with_it(worlds: Worlds, model: str) -> None:
    losses, start, end = worlds.run(1, _losses, {"model": model, "dcn_low_rank_dim": 8})[0]
    assert sum(losses[-10:]) < 0.95 * sum(losses[:10])
    assert not torch.equal(start["dense/positions.of_bought"], end["dense/positions.of_bought"])


def test_a_model_of_sequences_gets_their_sum_beside_its_histories() -> None:
    sparse = [*FEATURES["sparse"], {"name": "seen", "kind": "sequence", "max_length": 5, "table": "shop"}]
    config = make_config({**SETTINGS, "model": "din"})
    shape = make_shape(config, DENSE, {**ROWS, "seen": 20}, (), parse({**FEATURES, "sparse": sparse}))
    assert (shape.positions, shape.sequences) == (LENGTHS, {"seen": 5})
    net = make_model(config, shape, torch.device("cpu")).dense
    keys = list(shape.tables_of_keys)
    embedded = KeyedTensor(keys, [DIM] * len(keys), torch.randn(3, DIM * len(keys)))
    scores = net(torch.rand(3, len(DENSE)), embedded, {"seen": torch.tensor([0, 2, 5])})
    scores.sum().backward()
    assert scores.shape == (3,)
    assert net.get_parameter("positions.of_bought").grad.abs().min() > 0


def test_the_sums_are_those_of_torchrecs_module() -> None:
    pooling, theirs = PositionPooling({"f": LENGTH}, torch.device("cpu")), PositionWeightedModule(LENGTH)
    weights = torch.tensor([2.0, -1.0, 0.5, 3.0])
    with torch.no_grad():
        pooling.get_parameter("of_f").copy_(weights)
        theirs.position_weight.copy_(weights)
    vectors, lengths = torch.randn(7, DIM), torch.tensor([3, 0, 4])
    jagged = theirs(JaggedTensor(values=torch.arange(7), lengths=lengths))
    each = vectors * jagged.weights()[:, None]
    expected = torch.stack([part.sum(0) for part in each.split(lengths.tolist())])
    padded = torch.zeros(3, LENGTH, DIM)
    for row, part in enumerate(vectors.split(lengths.tolist())):
        padded[row, : len(part)] = part
    torch.testing.assert_close(pooling.pool("f", padded), expected)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "c", "pooling": "position"}, "c has pooling position but is single"),
        ({"name": "c", "kind": "multi_hot", "pooling": "position"}, "but is multi_hot; places are those of"),
        ({"name": "c", "kind": "sequence", "pooling": "mean"}, "c is a sequence and has pooling mean"),
    ],
)
def test_a_feature_without_places_is_refused(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse({"label": "y", "sparse": [entry]})
