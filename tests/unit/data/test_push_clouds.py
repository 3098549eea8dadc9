"""Claims about `data push` to buckets: each store proves what arrived, and passing failures are repeated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cloudrec.data import places
from cloudrec.data.push import PushPlan, carry_out, survey
from cloudrec.errors import StorageError
from tests.standins.faults import Fault
from tests.standins.servers import why_no_azurite
from tests.trainer.support_clouds import CLOUDS, CloudPlace, Clouds
from tests.unit.data.support_push import make_dataset

WRITES = {"PUT", "POST"}


@pytest.fixture(scope="module")
def clouds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clouds]:
    with ExitStack() as stack:
        yield Clouds(stack, tmp_path_factory.mktemp("clouds"))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dataset(tmp_path_factory.mktemp("data") / "prepared")


@pytest.fixture(params=CLOUDS)
def cloud(request: pytest.FixtureRequest, clouds: Clouds, monkeypatch: pytest.MonkeyPatch) -> CloudPlace:
    if request.param == "azure" and (why := why_no_azurite()):
        pytest.skip(why)
    place = clouds.start(request.param)
    for name, value in place.variables.items():
        monkeypatch.setenv(name, value)
    place.proxy.clear()
    return place


def push(source: Path, uri: str) -> tuple[PushPlan, int]:
    place = places.find(uri)
    plan, told = survey(source, place), [0]
    carry_out(plan, place, progress=lambda done, _total: told.append(done))
    return plan, told[-1]


def writes(cloud: CloudPlace, holding: str = "") -> int:
    return sum(request.method in WRITES and holding in request.path for request in cloud.proxy.requests)


def test_a_dataset_is_pushed_once_whatever_fails_in_passing(cloud: CloudPlace, dataset: Path) -> None:
    uri = cloud.new_uri()
    method = "POST" if cloud.cloud == "gcs" else "PUT"
    cloud.proxy.faults += [cloud.refusal(503, method=method, times=1), Fault("reset", method=method, skip=2)]
    plan, done = push(dataset, uri)
    assert done == plan.bytes
    place = places.find(uri)
    assert all(place.holds(file, dataset / file.path) for file in plan.send)
    assert place.read("dataset.json") == (dataset / "dataset.json").read_bytes()
    last = [request.path for request in cloud.proxy.requests if request.method in WRITES][-1]
    assert "dataset.json" in last or cloud.cloud == "gcs"  # its names are in the bodies
    cloud.proxy.clear()
    again, _ = push(dataset, uri)
    assert again.nothing_to_do
    assert writes(cloud) == 0


def test_what_was_changed_there_is_sent_again(cloud: CloudPlace, dataset: Path) -> None:
    uri = cloud.new_uri()
    plan, _ = push(dataset, uri)
    place = places.find(uri)
    damaged = min(plan.send, key=lambda file: file.bytes)
    place.write(damaged.path, b"z" * damaged.bytes)  # of the right size
    again, _ = push(dataset, uri)
    assert [file.path for file in again.send] == [damaged.path]
    assert place.holds(damaged, dataset / damaged.path)


def test_a_bucket_that_is_not_there_or_refuses_is_told(cloud: CloudPlace, dataset: Path) -> None:
    with pytest.raises(StorageError, match="its bucket is not there"):
        push(dataset, cloud.new_uri().replace("a-bucket", "no-such-bucket"))
    cloud.proxy.faults.append(cloud.refusal(403, times=99))
    with pytest.raises(StorageError, match="refused") as caught:
        push(dataset, cloud.new_uri())
    assert "permit you" in (caught.value.remedy or "")


def test_ctrl_c_ends_a_push_that_hangs_and_the_next_one_goes_on(
    clouds: Clouds, dataset: Path, tmp_path: Path
) -> None:
    cloud = clouds.start("s3")
    cloud.proxy.clear()
    cloud.proxy.faults.append(Fault("hang", method="PUT", holding="sparse", times=99))
    environment = {**os.environ, **cloud.variables, "CLOUDREC_HOME": str(tmp_path)}
    uri = cloud.new_uri()
    command = [sys.executable, "-m", "cloudrec", "data", "push", str(dataset), uri]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline and writes(cloud, "sparse") < 2:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=180)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    cloud.proxy.clear()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "1 files" in done.stderr
    assert "cloudrec train --dataset" in done.stdout
