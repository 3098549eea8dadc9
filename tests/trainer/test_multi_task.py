"""Models of several labels, and weights of samples: the losses equal those of an independent reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torchrec.sparse.jagged_tensor import KeyedTensor

from cloudrec_contract.features import parse
from tests.trainer.support_learner import make_world
from trainer.base.arguments import make_config
from trainer.base.errors import ConfigError
from trainer.data.batch import Batch
from trainer.loop.learner import Learner
from trainer.loop.setup import make_shape
from trainer.models.model import GlobalMeanLoss, make_model
from trainer.report.task_metrics import TaskMetrics

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds

STEPS, BATCH, DIM = 50, 47, 8  # an odd batch: ranks have different numbers of samples
DENSE = ("price", "age")
TASKS = {"clicked": 1.0, "liked": 0.5, "bought": 2.0}
SCHEMA = parse(
    {
        "labels": [
            "clicked",
            {"name": "liked", "weight": 0.5, "missing": "skip"},
            {"name": "bought", "weight": 2, "missing": "skip"},
        ],
        "weight": "importance",
        "dense": list(DENSE),
        "sparse": ["city", {"name": "tags", "kind": "multi_hot"}],
    }
)
ONE = parse(
    {
        "label": "clicked",
        "weight": "importance",
        "dense": list(DENSE),
        "sparse": SCHEMA.to_json()["sparse"],
    }
)
ROWS = {"city": 40, "tags": 20}
OWN = "tests.trainer.own_tasks:build"
OWN_SUM = "tests.trainer.own_tasks:with_summed_loss"
SETTINGS: dict[str, Any] = {
    "optimizer_eps": 1e-4,
    "embedding_dim": DIM,
    "dense_arch_layer_sizes": (16, DIM),
    "over_arch_layer_sizes": (16, 12, 10, 1),
    "num_experts": 3,
    "num_extraction_layers": 2,
    "threads": 1,
    "lr_decay": "none",
    "table_optimizer": "adagrad",
    "learning_rate": 0.05,
    "dense_learning_rate": 0.01,
}
PLANS: dict[str, dict[str, Any]] = {
    "table_wise": {"sharding_types": ("table_wise",)},
    "row_wise": {"sharding_types": ("row_wise",)},
    "data_parallel": {"data_parallel": True},
    "column_wise": {"sharding_types": ("column_wise",)},
}
Weights = dict[str, Tensor]


def _samples(step: int, *, tasks: int) -> tuple[Tensor, dict[str, list[list[int]]], Tensor, Tensor]:
    """Dense values, ids by feature and sample, labels [B] or [B, tasks], and weights of a step."""
    generator = torch.Generator().manual_seed(step)
    dense = torch.rand(BATCH, len(DENSE), generator=generator)
    city = torch.randint(0, ROWS["city"], (BATCH,), generator=generator)
    counts = torch.randint(0, 4, (BATCH,), generator=generator)
    tags = [torch.randint(0, ROWS["tags"], (int(n),), generator=generator).tolist() for n in counts]
    labels = torch.stack([city % 2, (city // 2) % 2, (dense[:, 0] > 0.5).long()], dim=1).float()
    labels[torch.rand(BATCH, generator=generator) < 0.4, 1] = -1
    labels[labels[:, 0] == 0, 2] = -1  # only who clicked can buy
    weights = torch.randint(0, 4, (BATCH,), generator=generator) / 2
    return dense, {"city": city[:, None].tolist(), "tags": tags}, labels if tasks else labels[:, 0], weights


def _batch(place: Place, step: int, *, tasks: int, weighted: bool) -> Batch:
    dense, ids, labels, weights = _samples(step, tasks=tasks)
    share = slice(BATCH * place.rank // place.world_size, BATCH * (place.rank + 1) // place.world_size)
    lists = [row for name in ROWS for row in ids[name][share]]
    return Batch(
        dense=dense[share],
        sparse=torch.tensor([each for row in lists for each in row], dtype=torch.int32),
        labels=labels[share],
        sample_ids=torch.arange(BATCH)[share],
        global_size=BATCH,
        lengths=torch.tensor([len(row) for row in lists], dtype=torch.int32).view(len(ROWS), -1),
        weights=weights[share] if weighted else None,
    )


def _losses(
    place: Place,
    settings: dict[str, Any],
    one_label: bool,  # noqa: FBT001 - as the worlds call it
    weighted: bool,  # noqa: FBT001 - as above
) -> tuple[list[float], Weights]:
    """The loss of every step over all ranks, and the whole state before the first, if this rank has it."""
    schema, world = ONE if one_label else SCHEMA, make_world(place)
    config = make_config({**SETTINGS, **settings})
    learner = Learner(config, make_shape(config, DENSE, ROWS, (), schema), world, total_steps=STEPS)
    start = {
        name: entry.shards[0].tensor.detach().clone()
        for name, entry in learner.state.items()
        if entry.shards and entry.shards[0].tensor.shape == entry.shape
    }
    tasks = len(schema.tasks)
    batches = (_batch(place, step, tasks=tasks, weighted=weighted) for step in range(STEPS))
    losses = [world.sum([float(step.loss)])[0] / world.size for step in learner.pipeline.steps(batches, 0)]
    return losses, start


def _expected(start: Weights, forward: Callable[..., Tensor], *, tasks: int, weighted: bool) -> list[float]:
    """The losses of plain torch: whole tables, autograd, torch's optimizers, sums written out."""
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
        dense, ids, labels, weights = _samples(step, tasks=tasks)
        vectors = {
            name: torch.stack([tables[name][torch.tensor(row, dtype=torch.int64)].sum(0) for row in rows])
            for name, rows in ids.items()
        }
        logits = forward(dense_weights, dense, vectors)
        factors = weights if weighted else torch.ones(BATCH)
        total = (factors * _bce(logits, labels)).sum() if not tasks else torch.zeros(())
        for place, task_weight in enumerate(TASKS.values() if tasks else ()):
            rows = [row for row in range(BATCH) if labels[row, place] >= 0]
            losses = _bce(logits[rows, place], labels[rows, place])
            total = total + (factors[rows] * task_weight * losses).sum()
        mean = total / BATCH
        for optimizer in optimizers:
            optimizer.zero_grad()
        mean.backward()
        for optimizer in optimizers:
            optimizer.step()
        found.append(float(mean.detach()))
    return found


def _bce(logit: Tensor, label: Tensor) -> Tensor:
    return functional.softplus(logit) - label * logit


def _layers(w: Weights, prefix: str, values: Tensor, *, relu_last: bool) -> Tensor:
    numbers = sorted({int(name[len(prefix) :].split(".")[0]) for name in w if name.startswith(prefix)})
    for number in numbers:
        values = values @ w[f"{prefix}{number}.weight"].T + w[f"{prefix}{number}.bias"]
        if relu_last or number != numbers[-1]:
            values = values.clamp_min(0)
    return values


def _gated(w: Weights, gate: str, inputs: Tensor, outputs: list[Tensor]) -> Tensor:
    scores = (inputs @ w[f"{gate}.scores.weight"].T).exp()
    shares = scores / scores.sum(1, keepdim=True)
    return torch.stack([shares[:, [place]] * each for place, each in enumerate(outputs)]).sum(0)


def _mmoe(w: Weights, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    inputs = torch.cat([dense, *vectors.values()], 1)
    outputs = [_layers(w, f"net.experts.{number}.", inputs, relu_last=True) for number in range(3)]
    mixed = [_gated(w, f"net.gates.{task}", inputs, outputs) for task in range(len(TASKS))]
    return torch.cat(
        [_layers(w, f"net.towers.{task}.", each, relu_last=False) for task, each in enumerate(mixed)], 1
    )


def _ple(w: Weights, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    shared = torch.cat([dense, *vectors.values()], 1)
    own = [shared] * len(TASKS)
    for layer in range(2):
        start = f"net.layers.{layer}"
        common = [_layers(w, f"{start}.shared.{e}.", shared, relu_last=True) for e in range(3)]
        each = [
            [_layers(w, f"{start}.own.{task}.{e}.", inputs, relu_last=True) for e in range(3)]
            for task, inputs in enumerate(own)
        ]
        if layer == 0:
            flat = [output for outputs in each for output in outputs]
            shared_next = _gated(w, f"{start}.shared_gate", shared, flat + common)
        own = [
            _gated(w, f"{start}.gates.{task}", inputs, each[task] + common) for task, inputs in enumerate(own)
        ]
        shared = shared_next
    return torch.cat(
        [_layers(w, f"net.towers.{task}.", inputs, relu_last=False) for task, inputs in enumerate(own)], 1
    )


def _own(w: Weights, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    return torch.cat([dense, *vectors.values()], 1) @ w["net.top.weight"].T + w["net.top.bias"]


def _dlrm(w: Weights, dense: Tensor, vectors: Mapping[str, Tensor]) -> Tensor:
    every = [_layers(w, "bottom.layers.", dense, relu_last=True), *vectors.values()]
    pairs = [(every[i] * every[j]).sum(1) for i in range(len(every)) for j in range(i + 1, len(every))]
    return _layers(w, "top.layers.", torch.cat([every[0], torch.stack(pairs, 1)], 1), relu_last=False)[:, 0]


MODELS = {"mmoe": _mmoe, "ple": _ple, OWN: _own, OWN_SUM: _own}


def _compare(
    worlds: Worlds,
    model: str,
    ranks: int,
    settings: dict[str, Any],
    *,
    one_label: bool = False,
    weighted: bool = True,
) -> list[float]:
    """Train on ranks and by the reference; return the losses, which must be equal."""
    _, start = worlds.run(1, _losses, {"model": model}, one_label, weighted)[0]
    losses, _ = worlds.run(ranks, _losses, {"model": model, **settings}, one_label, weighted)[0]
    forward = _dlrm if one_label else MODELS[model]
    expected = _expected(start, forward, tasks=0 if one_label else len(TASKS), weighted=weighted)
    assert losses == pytest.approx(expected, abs=1e-5)
    return losses


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("world_size", [1, 2])
def test_losses_equal_those_of_the_reference(worlds: Worlds, model: str, world_size: int) -> None:
    losses = _compare(worlds, model, world_size, {})
    assert sum(losses[-10:]) < sum(losses[:10]), "it must learn"


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("model", ["mmoe", "ple"])
def test_losses_are_the_same_under_every_plan(worlds: Worlds, model: str, plan: str) -> None:
    _compare(worlds, model, 2, PLANS[plan])


@pytest.mark.parametrize("world_size", [1, 2])
def test_samples_of_one_label_have_weights(worlds: Worlds, world_size: int) -> None:
    weighted = _compare(worlds, "dlrm", world_size, {}, one_label=True)
    assert weighted != _compare(worlds, "dlrm", world_size, {}, one_label=True, weighted=False)


def _scores(**settings: Any) -> Tensor:
    config = make_config({**SETTINGS, **settings})
    torch.manual_seed(0)
    made = make_model(config, make_shape(config, DENSE, ROWS, (), SCHEMA), torch.device("cpu"))
    vectors = {name: torch.randn(5, DIM) for name in ROWS}
    scores: Tensor = made.dense.net(torch.rand(5, len(DENSE)), vectors)
    return scores


@pytest.mark.parametrize("model", ["mmoe", "ple"])
def test_settings_decide_the_size_of_the_model(model: str) -> None:
    sizes = []
    for settings in ({}, {"num_experts": 5}, {"num_extraction_layers": 1}, {"over_arch_layer_sizes": (9, 1)}):
        config = make_config({**SETTINGS, "model": model, **settings})
        made = make_model(config, make_shape(config, DENSE, ROWS, (), SCHEMA), torch.device("meta"))
        sizes.append(sum(each.numel() for each in made.dense.parameters()))
    first, experts, layers, small = sizes
    assert experts > first
    assert (layers < first) == (model == "ple")
    assert small < first
    assert _scores(model=model).shape == (5, len(TASKS))


@pytest.mark.parametrize("model", ["dlrm", "dcn_v2", "deepfm", "wide_deep"])
def test_models_of_one_label_refuse_several(model: str) -> None:
    config = make_config({**SETTINGS, "model": model})
    with pytest.raises(
        ConfigError, match=r"has 3 labels \(clicked, liked, bought\); take --model mmoe or ple"
    ):
        make_shape(config, DENSE, ROWS, (), SCHEMA)


@pytest.mark.parametrize("model", ["mmoe", "ple"])
def test_experts_need_a_layer(model: str) -> None:
    with pytest.raises(ConfigError, match=f"the experts of model {model} have no layer"):
        _scores(model=model, over_arch_layer_sizes=(1,))


def test_samples_without_a_label_do_not_change_the_loss_of_its_task() -> None:
    config = make_config({**SETTINGS, "model": "mmoe"})
    model = make_model(config, make_shape(config, DENSE, ROWS, (), SCHEMA), torch.device("cpu"))
    dense, _, labels, _ = _samples(0, tasks=len(TASKS))
    vectors = torch.randn(BATCH, DIM * len(ROWS), generator=torch.Generator().manual_seed(1))
    absent = labels[:, 1] < 0
    alone = torch.full_like(labels, -1)
    alone[:, 1] = labels[:, 1]  # the loss of this task
    found = []
    for changed in (False, True):
        if changed:
            dense, vectors = dense.clone(), vectors.clone()
            dense[absent] += 3
            vectors[absent] *= -2
        model.zero_grad()
        logits = model.dense(dense, KeyedTensor(list(ROWS), [DIM, DIM], vectors))
        loss = GlobalMeanLoss(model.dense.losses)(logits, alone, torch.tensor(1 / BATCH), BATCH)
        loss.backward()
        metrics = TaskMetrics(tuple(TASKS))
        metrics.update(logits, labels)
        gradients = [each.grad for each in model.dense.parameters() if each.grad is not None]
        found.append((loss.detach(), gradients, metrics.compute()["tasks"]))
    (loss, gradients, before), (changed_loss, changed_gradients, after) = found
    assert 0 < absent.sum() < BATCH
    torch.testing.assert_close(changed_loss, loss, rtol=1e-6, atol=0)
    for one, other in zip(gradients, changed_gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-8)
    assert after["liked"] == pytest.approx(before["liked"], rel=1e-6)
    assert after["liked"]["samples"] == BATCH - int(absent.sum())
    assert after["clicked"] != before["clicked"], "the rows are those of another task, too"


def test_metrics_of_several_labels_are_means_beside_those_of_each() -> None:
    logits = torch.tensor([[2.0, 1.0], [-1.0, 0.5], [0.5, -2.0], [1.0, 1.5]])
    labels = torch.tensor([[1.0, 0.0], [0.0, -1.0], [1.0, -1.0], [0.0, 1.0]])
    metrics = TaskMetrics(("a", "b"))
    metrics.update(logits[:1], labels[:1])
    metrics.update(logits[1:], labels[1:])
    found = metrics.compute()
    assert (found["tasks"]["a"]["auc"], found["tasks"]["b"]["auc"], found["auc"]) == (0.75, 1.0, 0.875)
    assert (found["samples"], found["tasks"]["b"]["samples"], found["positives"]) == (6, 2, 3)
    expected = functional.binary_cross_entropy_with_logits(logits[[0, 3], 1], labels[[0, 3], 1])
    assert found["tasks"]["b"]["logloss"] == pytest.approx(float(expected), rel=1e-6)
    metrics = TaskMetrics(("a", "b"))
    metrics.update(logits, torch.where(torch.tensor([True, False]), labels, -1.0))
    assert metrics.compute()["auc"] is None, "a task without labels has no AUC, so there is no mean"


def _refused(place: Place, model: str) -> str:
    with pytest.raises(ConfigError) as raised:
        _losses(place, {"model": model}, one_label=False, weighted=False)
    return str(raised.value)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (
            "of_one_score",
            "returned [47] for 47 samples with the labels clicked, liked, bought; it must return one logit",
        ),
        ("with_a_loss_of_tasks", "its loss returned [3] for labels [47, 3]; it must return a loss for each"),
    ],
)
def test_a_model_that_returns_something_else_is_refused(worlds: Worlds, factory: str, message: str) -> None:
    assert message in worlds.run(1, _refused, f"tests.trainer.own_tasks:{factory}")[0]
