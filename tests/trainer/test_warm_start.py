"""A run that begins with an earlier model: rows by value, layers by name, and what it refuses."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from torch.distributed import checkpoint as torch_checkpoint

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec_contract.features import parse
from tests.trainer.support_dataset import make_version_1, write_dataset
from tests.trainer.support_runs import PATIENCE_SECONDS, command, run_here, start
from trainer.base.errors import CheckpointError, ConfigError
from trainer.checkpoint.load.reading import open_committed
from trainer.commands import scoring
from trainer.commands.interchange import from_dcp
from trainer.serving.exported import write_export
from trainer.serving.scorer import read_checkpoint
from trainer.warm.source import CheckpointedModel

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

ROWS = 1_500
CITIES = 30
STILL = {
    "learning_rate": 1e-30,
    "dense_learning_rate": 1e-30,
    "num_iterations": 1,
}  # a step that moves nothing
SCHEMA: dict[str, Any] = {
    "label": "clicked",
    "dense": ["price", "age"],
    "sparse": [
        {"name": "city", "min_frequency": 1},
        {"name": "user", "min_frequency": 1},
        {"name": "zip", "encoding": "hash", "buckets": 40},
    ],
}


def _write_day(folder: Path, first_city: int, schema: dict[str, Any] = SCHEMA, *, seed: int = 0) -> Path:
    """Prepare a day on which the cities from a number on are visited."""
    random = np.random.default_rng(seed + first_city)
    city = random.integers(first_city, first_city + CITIES, ROWS)
    user, number, age = random.integers(0, 100, ROWS), random.integers(0, 900, ROWS), random.normal(size=ROWS)
    liked = np.cos(city) + 0.5 * age
    table = pa.table(
        {
            "clicked": random.random(ROWS) < 1 / (1 + np.exp(-liked)),
            "price": random.random(ROWS),
            "age": age,
            "city": [f"city {each}" for each in city],
            "user": user,
            "zip": [f"{each:05d}" for each in number],
        }
    )
    folder.mkdir(parents=True)
    parquet.write_table(table, folder / "rows.parquet")
    prepare(str(folder / "rows.parquet"), folder / "data", options=PrepareOptions(), schema=parse(schema))
    return folder / "data"


def _names(data: Path, table: str) -> list[str]:
    return ["<missing>", "<unknown>", *(data / "vocabulary" / f"{table}.jsonl").read_text().splitlines()]


def _tables(run: Path) -> dict[str, Tensor]:
    return dict(read_checkpoint(open_committed(str(run / "checkpoints"))).tables)


@pytest.fixture(scope="module")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two days, a third of whose cities differ."""
    folder = tmp_path_factory.mktemp("days")
    return _write_day(folder / "first", 0), _write_day(folder / "second", CITIES // 3)


@pytest.fixture(scope="module")
def earlier(days: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the first day, whose checkpoint has the changes since the initial tables alone."""
    run = tmp_path_factory.mktemp("earlier") / "run"
    assert run_here(days[0], run, num_epochs=2, checkpoint_mode="incremental").code == 0
    return run


def _check_rows(days: tuple[Path, Path], earlier: dict[str, Tensor], found: Path, cold: Path) -> None:
    """Rows have the earlier row of their value, or, if it is new, what they would have had anyway."""
    warm, fresh = _tables(found), _tables(cold)
    for table in ("city", "user"):
        old, new = (_names(day, table) for day in days)
        assert old != new
        for place, name in enumerate(new):
            expected = earlier[table][old.index(name)] if name in old else fresh[table][place]
            assert torch.equal(warm[table][place], expected), name
    assert torch.equal(warm["zip"], earlier["zip"])  # hashed by the same rule into as many ids
    assert {"<missing>", *_names(days[1], "city")} - {*_names(days[0], "city")}


def test_rows_are_found_by_their_value_and_new_values_are_drawn(
    days: tuple[Path, Path], earlier: Path, tmp_path: Path
) -> None:
    run_here(days[1], tmp_path / "cold", **STILL)
    outcome = run_here(days[1], tmp_path / "warm", **STILL, init_from=str(earlier / "checkpoints"))
    _check_rows(days, _tables(earlier), tmp_path / "warm", tmp_path / "cold")
    (begun,) = outcome.lines("start")
    old, new = (set(_names(day, "city")) | set(_names(day, "user")) for day in days)
    assert begun["init_rows"] == len(old & new) + 2 + 40  # two reserved ids more, of the second table
    assert begun["init_from"] == str(earlier / "checkpoints")


@pytest.mark.parametrize("kind", ["row_wise", "column_wise"])
def test_two_ranks_find_the_rows_of_their_parts(
    days: tuple[Path, Path], earlier: Path, tmp_path: Path, kind: str
) -> None:
    settings = {**STILL, "sharding_types": kind, "table_optimizer": "adagrad"}
    for name, more in (("cold", {}), ("warm", {"init_from": earlier / "checkpoints"})):
        words = command(days[1], tmp_path / name, ranks=2, **settings, **more)
        process = start(words, tmp_path / "log")
        assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
    _check_rows(days, _tables(earlier), tmp_path / "warm", tmp_path / "cold")


def test_an_export_is_a_source_as_well(days: tuple[Path, Path], earlier: Path, tmp_path: Path) -> None:
    write_export(read_checkpoint(open_committed(str(earlier / "checkpoints"))), tmp_path / "export")
    run_here(days[1], tmp_path / "cold", **STILL)
    run_here(days[1], tmp_path / "warm", **STILL, init_from=str(tmp_path / "export"))
    _check_rows(days, _tables(earlier), tmp_path / "warm", tmp_path / "cold")


def test_states_of_optimizers_are_taken_on_request(
    days: tuple[Path, Path], earlier: Path, tmp_path: Path
) -> None:
    source = str(earlier / "checkpoints")
    for flag in (False, True):
        run_here(days[1], tmp_path / str(flag), **STILL, init_from=source, init_optimizer=flag)
    old = CheckpointedModel(open_committed(source))
    with_states = CheckpointedModel(open_committed(str(tmp_path / "True" / "checkpoints")))
    without = CheckpointedModel(open_committed(str(tmp_path / "False" / "checkpoints")))
    name = "city 12"
    places = [_names(day, "city").index(f'"{name}"') for day in days]
    state = old.rows("city", "rowwise_adagrad", places[0], places[0] + 1)
    found, fresh = (
        each.rows("city", "rowwise_adagrad", places[1], places[1] + 1) for each in (with_states, without)
    )
    assert state > 0
    assert found >= state > fresh  # a step adds to both
    first = "dense_optimizer/top.layers.0.weight/exp_avg_sq"
    assert (with_states.whole(first) >= 0.9 * old.whole(first)).all()
    assert without.whole(first).sum() < 0.5 * old.whole(first).sum()


@pytest.mark.parametrize("interaction", ["dot", "dcn"])
def test_layers_follow_their_features_to_other_places(tmp_path: Path, interaction: str) -> None:
    shape = {"interaction": interaction, "dcn_low_rank_dim": 4}
    first = _write_day(tmp_path / "first", 0)
    run_here(first, tmp_path / "run", num_epochs=2, **shape)
    turned = {**SCHEMA, "dense": SCHEMA["dense"][::-1], "sparse": SCHEMA["sparse"][::-1]}
    second = _write_day(tmp_path / "second", 0, turned)
    run_here(second, tmp_path / "turned", **STILL, **shape, init_from=str(tmp_path / "run" / "checkpoints"))
    scores = []
    for run, data in (("run", first), ("turned", second)):
        trained = scoring.open_model(str(tmp_path / run / "checkpoints"), None, "none")
        out = tmp_path / f"{run}.npy"
        scoring.score_split(
            trained, dataset_path=str(data), split="test", batch_size=None, device_choice="cpu", out=out
        )
        scores.append(np.load(out))
    assert np.abs(scores[0] - scores[1]).max() < 1e-6
    assert scores[0].std() > 0.01


def test_a_feature_may_be_added_and_dropped(earlier: Path, tmp_path: Path) -> None:
    sparse = [*SCHEMA["sparse"][1:], {"name": "town", "column": "city", "min_frequency": 1}]
    data = _write_day(tmp_path / "other", 0, {**SCHEMA, "sparse": sparse})
    source = str(earlier / "checkpoints")
    run_here(data, tmp_path / "warm", **STILL, init_from=source)
    assert torch.equal(_tables(tmp_path / "warm")["user"], _tables(earlier)["user"])
    run_here(data, tmp_path / "named", **STILL, init_from=source, init_map={"tables/town": "tables/city"})
    assert torch.equal(_tables(tmp_path / "named")["town"], _tables(earlier)["city"])


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_managed_table_keeps_its_ids_and_grows(tmp_path: Path) -> None:
    def schema(rows: int) -> dict[str, Any]:
        managed = {"name": "user", "encoding": "managed_collision", "buckets": rows}
        return {**SCHEMA, "sparse": [SCHEMA["sparse"][0], managed]}

    run_here(_write_day(tmp_path / "first", 0, schema(60)), tmp_path / "run", num_epochs=1)
    source = str(tmp_path / "run" / "checkpoints")
    larger = _write_day(tmp_path / "second", 0, schema(80))
    run_here(larger, tmp_path / "warm", **STILL, init_from=source)
    old = read_checkpoint(open_committed(source))
    new = read_checkpoint(open_committed(str(tmp_path / "warm" / "checkpoints")))
    assert torch.equal(new.managed["user"][:60], old.managed["user"])
    assert torch.equal(new.tables["user"][:60], old.tables["user"])
    assert 0 < (new.managed["user"][60:] != 0).sum() <= 20  # the users of a step that had no row before
    torch_checkpoint.save({"x": torch.zeros(1)}, checkpoint_id=tmp_path / "dcp", no_dist=True)
    with pytest.raises(ConfigError, match="does not say which ids its rows have"):
        from_dcp(tmp_path / "dcp", source, str(tmp_path / "new"))


def test_a_managed_table_of_an_incremental_checkpoint_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    managed = {"name": "user", "encoding": "managed_collision", "buckets": 5_000}
    data = _write_day(tmp_path / "data", 0, {**SCHEMA, "sparse": [SCHEMA["sparse"][0], managed]})
    run_here(data, tmp_path / "run", num_epochs=1, checkpoint_mode="incremental")
    checkpoint = open_committed(str(tmp_path / "run" / "checkpoints"))
    wanted = read_checkpoint(checkpoint).managed["user"]
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(mode=True)  # new memory holds no zeros then
    try:
        assert torch.equal(CheckpointedModel(checkpoint).whole("managed/user/ids"), wanted)
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert 0 < (wanted != 0).sum() < 5_000


def test_ids_of_unknown_values_stay_where_there_are_as_many(tmp_path: Path) -> None:
    def schema(buckets: int) -> dict[str, Any]:
        return {**SCHEMA, "sparse": [{"name": "city", "min_frequency": 1, "unknown_buckets": buckets}]}

    first = _write_day(tmp_path / "first", 0, schema(4))
    run_here(first, tmp_path / "run", num_epochs=1)
    source = str(tmp_path / "run" / "checkpoints")
    old = _tables(tmp_path / "run")["city"]
    for buckets in (4, 6):
        data = _write_day(tmp_path / f"{buckets}", 0, schema(buckets), seed=5)
        run_here(data, tmp_path / f"warm-{buckets}", **STILL, init_from=source)
        new = _tables(tmp_path / f"warm-{buckets}")["city"]
        names = [(day / "vocabulary" / "city.jsonl").read_text().splitlines() for day in (first, data)]
        for place, name in enumerate(names[1]):
            assert torch.equal(new[1 + buckets + place], old[5 + names[0].index(name)])
        assert torch.equal(new[1:5], old[1:5]) == (buckets == 4)


def test_a_warm_run_resumes_to_the_digest_of_one_that_was_not_stopped(
    days: tuple[Path, Path], earlier: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    shutil.copytree(earlier / "checkpoints", source)
    settings: dict[str, Any] = {"lr_decay": "none", "deterministic": True, "init_from": str(source)}
    settings["checkpoint_mode"] = "incremental"  # but the first checkpoint must have all rows
    whole = run_here(days[1], tmp_path / "whole", num_iterations=20, **settings)
    run_here(days[1], tmp_path / "halves", num_iterations=9, **settings)
    shutil.rmtree(source)  # it is read once
    resumed = run_here(days[1], tmp_path / "halves", num_iterations=20, **settings)
    assert resumed.summary["model_digest"] == whole.summary["model_digest"]
    assert [line["init_from"] for line in resumed.lines("start")] == [str(source), None]


def _refusal(data: Path, run: Path, **settings: Any) -> str:
    with pytest.raises((ConfigError, CheckpointError)) as caught:
        run_here(data, run, **STILL, **settings)
    return str(caught.value)


def test_what_cannot_be_taken_is_refused(days: tuple[Path, Path], earlier: Path, tmp_path: Path) -> None:
    source, run = str(earlier / "checkpoints"), tmp_path / "run"
    assert "holds no committed checkpoint" in _refusal(days[1], run, init_from=str(tmp_path / "none"))
    assert "has no checkpoint of step 7" in _refusal(days[1], run, init_from=source, init_step=7)
    error = _refusal(days[1], run, init_from=source, init_map={"tables/town": "tables/city"})
    assert "init_map names tables/town, which this model has not; it has dense/bottom" in error
    error = _refusal(days[1], run, init_from=source, init_optimizer=True, table_optimizer="adagrad")
    assert "has no adagrad of city: it is an export, or had another table_optimizer than adagrad" in error
    write_dataset(tmp_path / "numbers")
    error = _refusal(tmp_path / "numbers", run, init_from=source)
    assert "has the rows of no table of this model (of C1: the earlier model has no table C1)" in error
    make_version_1(tmp_path / "numbers")
    error = _refusal(tmp_path / "numbers", run, init_from=source)
    assert "the encoding of this run's data is unknown" in error
    assert "set init_match to number" in error


def test_settings_of_a_warm_start_need_its_source(days: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="init_optimizer needs init_from, the earlier model"):
        run_here(days[1], tmp_path / "run", init_optimizer=True)


def test_rows_of_data_with_unknown_encodings_are_found_by_number(tmp_path: Path) -> None:
    write_dataset(tmp_path / "numbers")
    make_version_1(tmp_path / "numbers")
    run_here(tmp_path / "numbers", tmp_path / "first")
    settings = {"init_from": str(tmp_path / "first" / "checkpoints"), "init_match": "number"}
    run_here(tmp_path / "numbers", tmp_path / "second", **STILL, **settings)
    first, second = _tables(tmp_path / "first"), _tables(tmp_path / "second")
    assert all(torch.equal(first[table], second[table]) for table in first)


def test_a_damaged_earlier_model_is_refused_on_all_ranks(
    days: tuple[Path, Path], earlier: Path, tmp_path: Path
) -> None:
    shutil.copytree(earlier / "checkpoints", tmp_path / "source")
    for file in (tmp_path / "source").glob("step-*/*"):
        if file.suffix != ".json":
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 1
            file.write_bytes(data)
    words = command(days[1], tmp_path / "run", ranks=2, **STILL, init_from=tmp_path / "source")
    process: subprocess.Popen[bytes] = start(words, tmp_path / "log")
    assert process.wait(PATIENCE_SECONDS) != 0
    assert "no checkpoint can be trusted" in (tmp_path / "log").read_text()
