"""Both spellings of a setting give the same command and checkpoint location with every launcher."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cloudrec.app.run.trainer_config import check_configuration, check_init_from
from cloudrec.errors import DataError, SpecError
from cloudrec.kubernetes.client.target import ClusterTarget
from cloudrec.launchers import launcher
from cloudrec.launchers.base.outputs import checkpoint_folder
from cloudrec.launchers.base.run_folder import RunFolder
from cloudrec.launchers.base.runspec import RunSpec
from cloudrec.launchers.kubernetes.workloads import workload_of
from cloudrec.launchers.slurm.script import job_script
from cloudrec.launchers.slurm.settings import SlurmSettings
from cloudrec_contract.settings import SettingsError, TrainerSettings

LAUNCHERS = ("local", "torchrun", "pytorchjob", "trainjob", "jobset", "rayjob", "ray", "slurm")
TARGET = ClusterTarget(kubeconfig="config", context="c", namespace="default", service_account="default")
MINE = "s3://mine/ckpt"
ASKED: dict[str, dict[str, Any]] = {
    "file": {"trainer_config": {"checkpoint_dir": MINE, "dataset_path": "s3://data/d", "batch_size": 8}},
    "flags": {"trainer_flags": ("--checkpoint_dir", MINE, "--dataset_path=s3://data/d", "--batch_size", "8")},
}
DASHED: dict[str, dict[str, Any]] = {
    "file": {"trainer_config": {"checkpoint-dir": MINE, "dataset-path": "s3://data/d", "batch-size": 8}},
    "flags": {"trainer_flags": ("--checkpoint-dir", MINE, "--dataset-path=s3://data/d", "--batch-size", "8")},
}


def _spec(engine: str, **asked: Any) -> RunSpec:
    on_kubernetes = engine not in ("local", "ray", "slurm")
    return RunSpec(
        name="run",
        created="2026-11-22T12:00:00+00:00",  # a job's id depends on it
        launcher=engine,
        nodes=1 if engine == "local" else 2,
        storage="" if engine in ("local", "slurm") else "s3://bucket/x",
        image="image@sha256:0" if on_kubernetes else "",
        target=TARGET if on_kubernetes else None,
        **asked,
    )


def _launched(spec: RunSpec, folder: Path) -> str:
    """The commands and files of the launch, as text."""
    run = RunFolder(path=folder)
    if spec.launcher == "slurm":  # its launcher calls Slurm's tools first
        return job_script(spec, SlurmSettings(), root="/shared", launch=1, gpus=0).text()
    plan = launcher(spec.launcher).dry_run(run, spec)
    return json.dumps([plan.command, dict(plan.environment), dict(plan.files), plan.objects], default=str)


def _settled(spec: RunSpec) -> RunSpec:
    """A run as `cloudrec train` creates it, with the trainer's resolved settings in spec.json."""
    spec = replace(spec, trainer_settings=check_configuration(spec))
    return RunSpec.from_json(spec.to_json())


@pytest.mark.parametrize("where", ["file", "flags"])
@pytest.mark.parametrize("engine", LAUNCHERS)
def test_both_spellings_give_the_same_command_and_the_same_checkpoint_location(
    engine: str, where: str, tmp_path: Path
) -> None:
    plain, dashed = _settled(_spec(engine, **ASKED[where])), _settled(_spec(engine, **DASHED[where]))
    launched = _launched(plain, tmp_path)
    assert _launched(dashed, tmp_path) == launched
    assert MINE in launched
    assert "checkpoint-dir" not in launched
    assert {each.checkpoints for each in (plain, dashed)} == {MINE}
    assert {each.trainer.dataset_path for each in (plain, dashed)} == {"s3://data/d"}
    assert {checkpoint_folder(RunFolder(path=tmp_path), each) for each in (plain, dashed)} == {None}


@pytest.mark.parametrize("engine", LAUNCHERS)
def test_checkpoints_are_in_the_run_folder_by_default(engine: str, tmp_path: Path) -> None:
    spec = _settled(_spec(engine, trainer_config={"batch_size": 8}))
    expected = {"local": "", "slurm": "/shared/runs/run/checkpoints"}
    place = expected.get(engine, "s3://bucket/x/runs/run/checkpoints")
    assert place in _launched(spec, tmp_path)
    if engine not in expected:
        assert spec.checkpoints == place
    on_disk = checkpoint_folder(RunFolder(path=tmp_path), spec)
    assert on_disk == (tmp_path / "checkpoints" if engine in expected else None)


@pytest.mark.parametrize(
    "flags", [("--dataset_path", "a", "--dataset-path", "s3://b/c"), ("--dataset-path=s3://b/c",)]
)
def test_pods_stage_the_dataset_that_the_trainer_uses(flags: tuple[str, ...]) -> None:
    spec = _spec("torchrun", trainer_flags=flags, trainer_config={"dataset-path": "s3://from/file"})
    assert workload_of(spec, launch=1, owner="ann").dataset == "s3://b/c"


def test_the_arguments_of_another_program_are_passed_unchanged() -> None:
    flags, config = ("--checkpoint-dir", "/x", "--My-Flag=1"), {"a-b": 1}
    spec = RunSpec(name="a", trainer_command=("my-trainer",), trainer_flags=flags, trainer_config=config)
    assert (spec.trainer_flags, spec.trainer_config) == (flags, config)
    assert check_configuration(spec) is None
    assert spec.trainer.checkpoint_dir == "/x"
    assert spec.trainer.values["a_b"] == 1


def test_the_settings_of_a_spec_of_an_older_version_are_the_requested_ones() -> None:
    spec = _spec("ray", trainer_config={"checkpoint-dir": MINE})
    document = json.loads(spec.to_json())
    del document["trainer_settings"]
    document["trainer_config"] = {"checkpoint-dir": MINE}
    old = RunSpec.from_json(json.dumps(document))
    assert old.trainer_settings is None
    assert old.checkpoints == MINE


def test_resolved_settings_are_stored_with_defaults_and_unknown_keys() -> None:
    spec = _settled(_spec("local", trainer_config={"batch-size": 8}))
    assert spec.trainer.values["batch_size"] == 8
    assert "learning_rate" in spec.trainer.values
    assert spec.trainer.samples_a_step(ranks=4) == 32
    document = json.loads(spec.to_json())
    document["trainer_settings"]["of_a_newer_version"] = [1]
    assert RunSpec.from_json(json.dumps(document)).trainer.values["of_a_newer_version"] == [1]


@pytest.mark.parametrize(
    ("kept", "message"),
    [("[]", "holds a list"), ('{"checkpoint_dir": 3}', "checkpoint_dir is 3"), ('"x"', "holds a str")],
)
def test_damaged_settings_are_reported_by_name(kept: str, message: str) -> None:
    document = json.loads(_spec("local").to_json())
    document["trainer_settings"] = json.loads(kept)
    with pytest.raises(DataError, match=f"trainer_settings.*{message}"):
        RunSpec.from_json(json.dumps(document))


@pytest.mark.parametrize(("text", "message"), [("nothing", "not JSON"), ("[1]", "holds a list")])
def test_settings_that_are_not_an_object_are_refused(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        TrainerSettings.from_json(text)


def test_an_invalid_trainer_configuration_is_an_error_before_any_change() -> None:
    with pytest.raises(SpecError, match="the trainer refuses its configuration: unknown flag --nonsense"):
        check_configuration(_spec("local", trainer_flags=("--nonsense", "1")))


def test_an_earlier_model_must_be_where_the_nodes_can_read_it(tmp_path: Path) -> None:
    def refused(engine: str, path: str) -> str:
        spec = _spec(engine, trainer_flags=("--init_from", path))
        with pytest.raises(DataError) as caught:
            check_init_from(spec, launcher(engine))
        return str(caught.value)

    assert "there is no model at" in refused("local", str(tmp_path / "none"))
    assert "is on this machine, where the nodes" in refused("torchrun", str(tmp_path))
    for engine, path in (("local", str(tmp_path)), ("local", "s3://b/r"), ("torchrun", "s3://b/r")):
        check_init_from(_spec(engine, trainer_flags=("--init_from", path)), launcher(engine))
