"""Leader election: one pod at a time writes the run's files, and each leader continues its predecessor's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudrec.agent.lease import leader
from cloudrec.agent.settings import PodSettings
from cloudrec.agent.upload.uploader import Keeper
from cloudrec.errors import StorageError
from cloudrec.home import make_private
from cloudrec.launchers.base.results_store import Place, open_place
from tests.contract.kubernetes.support_store import bucket


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return open_place(f"file://{tmp_path}/results")


def _pod(tmp_path: Path, name: str, launch: int = 1) -> PodSettings:
    settings = PodSettings(run="r", launch=launch, pod=name, work=tmp_path / name)
    make_private(settings.folder.logs)
    return settings


def _keep(settings: PodSettings, place: Place, *, within_s: float = 10.0) -> list[str]:
    """Copy a pod's files, as at its end."""
    said: list[str] = []
    keeper = Keeper(settings.folder, place, pod=settings.pod, say=said.append)
    keeper.start()
    keeper.finish(within_s=within_s)
    return said


def test_a_new_leader_continues_the_metrics_of_its_predecessor(tmp_path: Path, place: Place) -> None:
    first, second = _pod(tmp_path, "a"), _pod(tmp_path, "b")
    assert leader.take(place, first).attempt == 0
    first.folder.metrics_file.write_text("one\n")
    (first.folder.path / "tensorboard").mkdir()
    (first.folder.path / "tensorboard/events.1").write_bytes(b"board")
    assert _keep(first, place) == []

    assert leader.take(place, second).attempt == 1
    assert second.folder.metrics_file.read_text() == "one\n"
    assert (second.folder.path / "tensorboard/events.1").read_bytes() == b"board"


def test_a_name_that_leads_out_of_the_run_folder_is_not_restored(tmp_path: Path) -> None:
    with bucket(tmp_path) as (files, environment):
        place = open_place("s3://bucket/runs/r", environment)
        for key in ("tensorboard/../../escaped", "tensorboard/..", "tensorboard/events.1"):
            files.call_s3("put_object", Bucket="bucket", Key=f"runs/r/{key}", Body=b"x")
        pod = _pod(tmp_path, "a")
        leader.restore(place, pod.folder)
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"events.1", "log"}
    assert (pod.folder.path / "tensorboard/events.1").read_bytes() == b"x"


def test_a_late_pod_does_not_overwrite_files_of_a_newer_pod(tmp_path: Path, place: Place) -> None:
    first, second = _pod(tmp_path, "a"), _pod(tmp_path, "b")
    leader.take(place, first)
    leader.take(place, second)
    second.folder.metrics_file.write_text("one\ntwo\n")
    second.folder.summary_file.write_text('{"status": "finished"}')
    _keep(second, place)
    first.folder.metrics_file.write_text("old\n")
    first.folder.rank_log(0).write_text("last words\n")
    _keep(first, place)
    assert place.read("metrics.jsonl") == b"one\ntwo\n"
    assert place.read("pods/a/rank-0.log") == b"last words\n"


def test_a_reelected_leader_keeps_its_own_newer_files(tmp_path: Path, place: Place) -> None:
    pod = _pod(tmp_path, "a")
    leader.take(place, pod)
    pod.folder.metrics_file.write_text("one\n")
    _keep(pod, place)
    pod.folder.metrics_file.write_text("one\nnot kept yet\n")
    leader.take(place, pod)
    assert pod.folder.metrics_file.read_text() == "one\nnot kept yet\n"


def test_two_pods_never_hold_one_lease(tmp_path: Path, place: Place) -> None:
    claims = [leader.take(place, _pod(tmp_path, name)) for name in "abc"]
    assert [claim.number for claim in claims] == [1, 2, 3]
    assert [leader.is_newest(place, claim) for claim in claims] == [False, False, True]
    assert not place.create(claims[0].name, b"another")


def test_a_pod_of_an_earlier_launch_cannot_lead(tmp_path: Path, place: Place) -> None:
    claim = leader.take(place, _pod(tmp_path, "new", launch=2))
    assert (claim.number, claim.attempt) == (1, 0)
    with pytest.raises(StorageError, match="launch 2 of 'r' has begun, and this is launch 1"):
        leader.take(place, _pod(tmp_path, "old", launch=1))


def test_only_the_current_launch_can_finish_a_run(tmp_path: Path, place: Place) -> None:
    pod = _pod(tmp_path, "a")
    place.write("summary.json", b'{"status": "finished"}')
    assert not leader.is_finished(place, launch=1)
    leader.take(place, pod)
    assert leader.is_finished(place, launch=1)
    assert not leader.is_finished(place, launch=2)
    place.write("summary.json", json.dumps({"status": "stopped"}).encode())
    assert not leader.is_finished(place, launch=1)


def test_a_failing_store_is_reported_once_and_does_not_end_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    pod = _pod(tmp_path, "a")
    pod.folder.ledger.append("started", launch=1)
    said = _keep(pod, open_place(f"file://{tmp_path}/file"), within_s=0.5)
    assert len(said) == 1
    assert said[0].startswith("warning: files are not uploaded for now: ")


def test_the_pod_settings_are_read_from_the_environment(tmp_path: Path) -> None:
    environment = {"POD_NAME": "r-1", "POD_UID": "u", "CLOUDREC_WORK": str(tmp_path), "CLOUDREC_LAUNCH": "2"}
    environment["CLOUDREC_AGAIN_CODE"] = "203"
    settings = PodSettings.from_environment({**environment, "CLOUDREC_ALLOW_TCP": "1", "CLOUDREC_GPUS": ""})
    wanted = PodSettings(pod="r-1-u", work=tmp_path, launch=2, allow_tcp=True, again_code=203)
    assert settings == replace(wanted)
