"""Checkpoints in object stores."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest

from tests.standins.faults import Fault, Kind, SeededFaults
from tests.trainer.support_dataset import write_dataset
from tests.trainer.support_runs import run_here
from tests.trainer.support_state import global_tensors, same_bits, whole, zeros_like
from trainer.base.errors import CheckpointError, TrainerError
from trainer.checkpoint import Checkpointer
from trainer.checkpoint.save.saves import SavingOptions
from trainer.checkpoint.store.owner import FencedError
from trainer.commands import predict

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.trainer.support_clouds import CloudPlace


def _open(uri: str, *, in_background: bool = False) -> Checkpointer:
    options = SavingOptions(in_background=in_background)
    return Checkpointer(uri, keep=2, rank=0, world_size=1, options=options)


@pytest.mark.parametrize(
    "in_background",
    [pytest.param(False, marks=pytest.mark.soak), True],
    ids=["at once", "in the background"],
)
def test_the_newest_checkpoints_are_kept_and_come_back_bit_for_bit(
    cloud: CloudPlace, *, in_background: bool
) -> None:
    uri = cloud.new_uri()
    with _open(uri, in_background=in_background) as checkpointer:
        for step in (1, 2, 3):
            checkpointer.save(step, whole(global_tensors(step)), {"at": step}, {})
    state = whole(zeros_like(global_tensors()))
    with _open(uri) as checkpointer:
        assert checkpointer.steps() == (2, 3)
        assert checkpointer.newest() == 3
        assert checkpointer.load(3, state) == {"at": 3}
    assert same_bits(state, whole(global_tensors(3)))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "small"
    write_dataset(path, train_rows=1000, test_rows=300, num_dense=3, num_sparse=3)
    return path


def test_a_run_that_resumes_from_a_bucket_ends_like_an_unbroken_one_and_is_scored_from_there(
    enter_cloud: Callable[[str], CloudPlace],
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cloud = enter_cloud("s3")
    settings = {"deterministic": True, "checkpoint_interval": 10, "lr_decay": "none"}
    whole_run = run_here(dataset, tmp_path / "whole", **settings)
    settings["checkpoint_dir"] = uri = cloud.new_uri()
    for steps in (13, None):
        parts = run_here(dataset, tmp_path / "parts", **settings, num_iterations=steps)
    assert [line["resumed_from"] for line in parts.lines("start")] == [None, 13]
    for name in ("model_digest", "samples_digest", "auc"):
        assert parts.summary[name] == whole_run.summary[name]
    assert not (tmp_path / "parts" / "checkpoints").exists()
    capsys.readouterr()
    assert predict.main(["--checkpoint", uri, "--dataset_path", str(dataset)]) == 0
    assert json.loads(capsys.readouterr().out)["auc"] == pytest.approx(whole_run.summary["auc"], abs=1e-6)


@pytest.mark.parametrize("kind", ["reset", "lose"])
def test_a_commit_whose_answer_is_lost_is_committed_once(cloud: CloudPlace, kind: str) -> None:
    method, holding = ("POST", "ifGenerationMatch=0") if cloud.cloud == "gcs" else ("PUT", "commit")
    with _open(cloud.new_uri()) as checkpointer:
        fault = Fault("lose" if kind == "lose" else "reset", method=method, holding=holding)
        fault.skip = 1 if cloud.cloud == "gcs" else 0  # the rank's manifest is created first
        cloud.proxy.faults.append(fault)
        checkpointer.save(1, whole(global_tensors(1)), {}, {})
        assert fault.times == 0
        assert checkpointer.newest() == 1


# A page of HTML with 200 for a write that had no effect is left out: to a client it looks like success.
# So are flipped bits: TLS ends such a connection (RFC 8446, 5.2), and without TLS a shard that is a part of
# what a rank wrote is read without its checksum, which covers the whole. Other tests damage what is stored.
_WIRE: tuple[Kind, ...] = ("answer", "reset", "lose", "truncate", "drip", "twice")


def _through_faults(cloud: CloudPlace, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Save and load through failing requests, as runs that start again do; each load is right or refused."""
    uri = cloud.new_uri()
    with SeededFaults(cloud.proxy.upstream_port, seed=seed, percent=8, kinds=_WIRE) as faults:
        print(f"CLOUDREC_FAULTS_SEED={faults.seed}")
        for name, value in cloud.variables.items():
            monkeypatch.setenv(name, value.replace(f":{cloud.proxy.port}", f":{faults.port}"))
        for step in (1, 2, 3, 4):
            for _ in range(5):
                try:
                    with _open(uri) as checkpointer:
                        if step not in checkpointer.steps():
                            checkpointer.save(step, whole(global_tensors(step)), {"at": step}, {})
                        state = whole(zeros_like(global_tensors()))
                        assert checkpointer.load(step, state) == {"at": step}
                        assert same_bits(state, whole(global_tensors(step))), faults.struck
                        break
                except TrainerError as error:
                    print(f"step {step}: {error}")
            else:
                raise AssertionError(f"step {step} is not saved after 5 attempts: {faults.struck}")
        assert faults.struck
    for name, value in cloud.variables.items():
        monkeypatch.setenv(name, value)
    state = whole(zeros_like(global_tensors()))
    with _open(uri) as checkpointer:
        assert checkpointer.newest() == 4
        assert checkpointer.load(4, state) == {"at": 4}
    assert same_bits(state, whole(global_tensors(4)))


def test_checkpoints_through_a_faulty_wire_come_back_bit_for_bit(
    cloud: CloudPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    _through_faults(cloud, monkeypatch, seed=1)


@pytest.mark.soak
def test_checkpoints_through_many_faulty_wires_come_back_bit_for_bit(
    cloud: CloudPlace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(30):
        _through_faults(cloud, monkeypatch, seed=secrets.randbelow(1_000_000))


def test_a_store_that_refuses_to_write_leaves_what_was_committed(cloud: CloudPlace) -> None:
    with _open(cloud.new_uri()) as checkpointer:
        checkpointer.save(1, whole(global_tensors(1)), {}, {})
        for method in ("PUT", "POST"):
            cloud.proxy.faults.append(cloud.refusal(403, method=method, times=100))
        with pytest.raises(CheckpointError, match="give this process's identity the permission"):
            checkpointer.save(2, whole(global_tensors(2)), {}, {})
        cloud.proxy.clear()
        assert checkpointer.newest() == 1


def test_a_run_that_another_took_over_from_stops_and_harms_nothing(cloud: CloudPlace) -> None:
    uri = cloud.new_uri()
    older = _open(uri)
    older.save(1, whole(global_tensors(1)), {}, {})
    with older, _open(uri) as newer:
        newer.save(2, whole(global_tensors(2)), {}, {})
        with pytest.raises(FencedError, match="another run"):
            older.save(3, whole(global_tensors(3)), {}, {})
        assert newer.newest() == 2
        assert newer.steps() == (1, 2)
