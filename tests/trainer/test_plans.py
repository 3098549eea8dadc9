from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_learner import SHAPE, make_learner, make_world, train_losses
from tests.trainer.support_runs import run_here
from trainer.base.errors import ConfigError
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.format.commit import encode_commit, parse_commit
from trainer.sharding.digest import model_digest
from trainer.sharding.planfile import MODULE, to_document
from trainer.sharding.topology import this_world

if TYPE_CHECKING:
    from pathlib import Path

    from tests.trainer.support_ranks import Place
    from tests.trainer.support_worlds import Worlds
    from trainer.loop.learner import Learner

from trainer.sharding.sharding import KINDS

SMOOTH = {
    "dense_optimizer": "sgd",
    "table_optimizer": "adagrad",  # row-wise sums depend on where rows are cut
    "dense_learning_rate": 0.05,
    "learning_rate": 0.05,
}
UNEVEN = ([64] * 9 + [1]) * 10
MIXED = {
    f"C{index + 1}": {"sharding_types": [kind]}
    for index, kind in enumerate(["row_wise", "column_wise", "data_parallel", "table_row_wise", "table_wise"])
}


def _sharded(kind: str) -> dict[str, Any]:
    return {**SMOOTH, "sharding_types": [kind]}


def _kinds(learner: Learner) -> set[str]:
    return {parameter.sharding_type for parameter in learner.plan.plan[MODULE].values()}


def _losses(place: Place, settings: dict[str, Any], sizes: list[int]) -> tuple[list[float], set[str]]:
    learner = make_learner(place, **settings)
    return train_losses(place, learner, sizes), _kinds(learner)


def _saved(place: Place, settings: dict[str, Any], folder: Path) -> str:
    learner = make_learner(place, **settings)
    train_losses(place, learner, [64] * 5)
    with _checkpointer(place, folder) as checkpointer:
        checkpointer.save(5, learner.state, {}, {})
    return model_digest(learner.state, place.group)


def _loaded(place: Place, settings: dict[str, Any], folder: Path) -> tuple[str, list[float]]:
    learner = make_learner(place, **settings)
    with _checkpointer(place, folder) as checkpointer, learner.filling() as state:
        checkpointer.load(5, state)
    return model_digest(learner.state, place.group), train_losses(place, learner, [64] * 5)


def _checkpointer(place: Place, folder: Path) -> Checkpointer:
    return Checkpointer(str(folder), keep=1, rank=place.rank, world_size=place.world_size, group=place.group)


def _config_error(place: Place, settings: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        make_learner(place, **settings)
    return str(caught.value)


def _document(place: Place, settings: dict[str, Any]) -> dict[str, Any]:
    learner = make_learner(place, **settings)
    return to_document(learner.plan, SHAPE, this_world(learner.config, make_world(place)))


@pytest.fixture(scope="module")
def alone(worlds: Worlds) -> list[float]:
    """The losses of a single rank."""
    losses, _ = worlds.run(1, _losses, SMOOTH, UNEVEN)[0]
    return losses


@pytest.mark.parametrize("kind", KINDS)
def test_every_sharding_type_gives_the_losses_of_one_rank(
    worlds: Worlds, alone: list[float], kind: str
) -> None:
    losses, kinds = worlds.run(2, _losses, _sharded(kind), UNEVEN)[0]
    assert kinds == {kind}
    assert losses == pytest.approx(alone, abs=1e-5)
    assert alone[-2] < 0.9 * alone[0]


def test_four_ranks_with_a_type_for_each_table_give_the_losses_of_one(
    worlds: Worlds, alone: list[float]
) -> None:
    losses, kinds = worlds.run(4, _losses, {**SMOOTH, "table_constraints": MIXED}, UNEVEN)[0]
    assert kinds == {"row_wise", "column_wise", "data_parallel", "table_row_wise", "table_wise"}
    assert losses == pytest.approx(alone, abs=1e-5)


def test_data_parallel_replicates_every_table_and_learns_equally(worlds: Worlds, alone: list[float]) -> None:
    losses, kinds = worlds.run(2, _losses, {**SMOOTH, "data_parallel": True}, UNEVEN)[0]
    assert kinds == {"data_parallel"}
    assert losses == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("row_wise", "data_parallel"),
        ("data_parallel", "column_wise"),
        ("column_wise", "table_wise"),
        ("table_wise", "row_wise"),
        ("row_wise", "table_column_wise"),
        ("table_column_wise", "row_wise"),
    ],
)
def test_a_checkpoint_can_be_loaded_with_another_plan_and_world_size(
    worlds: Worlds, tmp_path: Path, before: str, after: str
) -> None:
    saved = worlds.run(2, _saved, _sharded(before), tmp_path)[0]
    loaded, losses = worlds.run(3, _loaded, _sharded(after), tmp_path)[0]
    assert loaded == saved
    _, expected = worlds.run(1, _loaded, _sharded("table_wise"), tmp_path)[0]
    assert losses == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["column_wise", "table_column_wise", "grid_shard"])
def test_a_column_wise_plan_is_refused_for_optimizers_with_row_state(
    worlds: Worlds, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(worlds.run(2, _document, _sharded(kind))[0]))
    for error in worlds.run(2, _config_error, {"sharding_plan": str(file)}):
        assert f"C1 is cut by columns ({kind}) into 2 pieces, which splits rows" in error
        assert "plan.json cannot be used" in error
        assert "set table_optimizer to adagrad" in error


@pytest.mark.parametrize(
    "kind", ["row_wise", "column_wise", "table_column_wise", "data_parallel", "table_wise"]
)
def test_a_saved_plan_can_be_forced(worlds: Worlds, tmp_path: Path, kind: str) -> None:
    document = worlds.run(2, _document, _sharded(kind))[0]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(document))
    settings = {**SMOOTH, "sharding_plan": str(file)}
    assert worlds.run(2, _document, settings)[1] == document
    losses, kinds = worlds.run(2, _losses, settings, [64] * 3)[0]
    assert kinds == {kind}
    assert losses == pytest.approx(worlds.run(2, _losses, _sharded(kind), [64] * 3)[0][0], abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"world_size": 4}, "it was made for world_size 4, but this run has 2"),
        ({"embedding_dim": 16}, "it was made for embedding_dim 16, but this run has 8"),
        ({"format": "other"}, "is no sharding plan"),
        ({"tables": {}}, "the model has a table C1, which the plan has not"),
    ],
)
def test_a_plan_for_another_model_or_world_is_refused_on_every_rank(
    worlds: Worlds, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    document = worlds.run(2, _document, _sharded("table_wise"))[0]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({**document, **change}))
    for error in worlds.run(2, _config_error, {"sharding_plan": str(file)}):
        assert message in error


def _shard(first: int, rows: int) -> dict[str, object]:
    return {"rows": [first, rows], "columns": [0, 8], "rank": 0}


def test_a_plan_with_a_wrong_table_size_or_a_missing_shard_is_refused(worlds: Worlds, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    for change, message in (
        ({"rows": 41}, "it has 41 rows for C1, but the model's table has 40"),
        ({"shards": []}, "its shards of C1 hold 0 elements, but the table has 320"),
        ({"compute_kernel": "fused_uvm"}, "C1 has the kernel fused_uvm, which needs a GPU"),
        ({"compute_kernel": "fast"}, "C1 is table_wise with the kernel fast; the types are table_wise, row_"),
        ({"ranks": [2]}, "it puts a shard of C1 on rank 2; ranks are 0 to 1"),
        ({"shards": 2 * [_shard(0, 20)]}, "its shards of C1 overlap"),
        ({"shards": [_shard(0, 30), _shard(20, 10)]}, "its shards of C1 overlap"),
    ):
        document = worlds.run(2, _document, _sharded("table_wise"))[0]
        document["tables"]["C1"] |= change
        file.write_text(json.dumps(document))
        assert message in worlds.run(2, _config_error, {"sharding_plan": str(file)})[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ddr_cap_gb": 1e-6}, "the tables do not fit: with their optimizer state they need"),
        ({"table_constraints": {"C9": {}}}, "table_constraints names C9, but the model's tables are C1, C2"),
        ({"compute_kernels": ["fused_uvm"]}, "nothing is left to choose from for C1"),
        ({"planner": "dynamic_programming"}, "planner is dynamic_programming, which divides GPU memory"),
        (
            {"table_optimizer": "adam", "embedding_weight_precision": "fp16"},
            "table_optimizer is adam, which fbgemm has for GPUs only, and C1 is sharded",
        ),
        (
            {"data_parallel": True, "embedding_weight_precision": "fp16"},
            "embedding_weight_precision is fp16, but C1 is data_parallel",
        ),
    ],
)
def test_an_impossible_plan_is_refused_on_every_rank_with_a_remedy(
    worlds: Worlds, settings: dict[str, Any], message: str
) -> None:
    for error in worlds.run(2, _config_error, settings):
        assert message in error


def test_a_run_saves_its_plan_and_another_run_uses_it(tmp_path: Path) -> None:
    dataset = tmp_path / "data"
    write_dataset(dataset, train_rows=100)
    first = run_here(dataset, tmp_path / "first", sharding_types=["row_wise"])
    plan = tmp_path / "first" / "sharding_plan.json"
    assert {entry["sharding_type"] for entry in json.loads(plan.read_text())["tables"].values()} == {
        "row_wise"
    }
    second = run_here(dataset, tmp_path / "second", sharding_plan=str(plan))
    assert (tmp_path / "second" / "sharding_plan.json").read_text() == plan.read_text()
    assert second.summary["model_digest"] == first.summary["model_digest"]


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_resumed_run_uses_the_plan_of_its_checkpoint(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    by_variable: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    dataset = tmp_path / "data"
    write_dataset(dataset, train_rows=100)
    run_here(dataset, tmp_path / "run", sharding_types=["row_wise"])
    made = (tmp_path / "run" / "sharding_plan.json").read_text()
    settings: dict[str, Any] = {"sharding_types": ["table_wise"], "num_epochs": 2}
    if by_variable:
        monkeypatch.setenv("FORCE_LOAD_SHARDING_PLAN", "1")
    else:
        settings["sharding_plan"] = "checkpoint"
    run_here(dataset, tmp_path / "run", **settings)
    assert (tmp_path / "run" / "sharding_plan.json").read_text() == made
    monkeypatch.delenv("FORCE_LOAD_SHARDING_PLAN", raising=False)
    run_here(dataset, tmp_path / "run", sharding_types=["table_wise"], num_epochs=3)
    assert '"table_wise"' in (tmp_path / "run" / "sharding_plan.json").read_text()


def test_a_first_attempt_with_the_plan_of_its_checkpoint_makes_a_new_one(tmp_path: Path) -> None:
    write_dataset(tmp_path / "data", train_rows=100)
    run_here(tmp_path / "data", tmp_path / "run", sharding_types=["row_wise"], sharding_plan="checkpoint")
    assert '"row_wise"' in (tmp_path / "run" / "sharding_plan.json").read_text()


def test_a_checkpoint_without_a_plan_is_refused_with_the_remedy(tmp_path: Path) -> None:
    dataset = tmp_path / "data"
    write_dataset(dataset, train_rows=100)
    run_here(dataset, tmp_path / "run")
    (commit,) = (tmp_path / "run" / "checkpoints").glob("*/commit-*.json")
    parsed = parse_commit(commit.name, commit.read_bytes())
    extra = {key: value for key, value in parsed.extra.items() if key != "sharding_plan"}
    commit.write_bytes(encode_commit(replace(parsed, extra=extra)))
    with pytest.raises(ConfigError, match=r"has no sharding plan.*leave out sharding_plan checkpoint"):
        run_here(dataset, tmp_path / "run", num_epochs=2, sharding_plan="checkpoint")
