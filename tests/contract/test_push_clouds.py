"""`data push` to buckets: each upload is verified, and transient failures are retried."""

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

from cloudrec.data.prepare.options import PrepareOptions
from cloudrec.data.prepare.prepare import prepare
from cloudrec.data.push import PushPlan, carry_out, survey, upload_of
from cloudrec.data.stores import open_store
from cloudrec.errors import StorageError
from tests.standins.faults import Fault
from tests.standins.servers import why_no_azurite
from tests.trainer.support_clouds import CLOUDS, CloudPlace, Clouds
from tests.unit.data.support_push import make_dataset
from tests.unit.data.support_rows import good_text

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
    store = open_store(uri)
    plan, told = survey(source, store), [0]
    carry_out(plan, store, progress=lambda done, _total: told.append(done))
    return plan, told[-1]


def writes(cloud: CloudPlace, holding: str = "") -> int:
    return sum(request.method in WRITES and holding in request.path for request in cloud.proxy.requests)


def test_a_dataset_is_pushed_once_despite_transient_failures(cloud: CloudPlace, dataset: Path) -> None:
    uri = cloud.new_uri()
    method = "POST" if cloud.cloud == "gcs" else "PUT"
    cloud.proxy.faults += [cloud.refusal(503, method=method, times=1), Fault("reset", method=method, skip=2)]
    plan, done = push(dataset, uri)
    assert done == plan.bytes
    store = open_store(uri)
    assert all(store.holds(file.path, upload_of(dataset, file)) for file in plan.send)
    assert store.read("dataset.json") == (dataset / "dataset.json").read_bytes()
    last = [request.path for request in cloud.proxy.requests if request.method in WRITES][-1]
    assert "dataset.json" in last or cloud.cloud == "gcs"  # the request bodies contain the names
    cloud.proxy.clear()
    again, _ = push(dataset, uri)
    assert again.nothing_to_do
    assert writes(cloud) == 0


def test_a_remote_file_that_changed_is_uploaded_again(cloud: CloudPlace, dataset: Path) -> None:
    uri = cloud.new_uri()
    plan, _ = push(dataset, uri)
    store = open_store(uri)
    damaged = min(plan.send, key=lambda file: file.bytes)
    store.put(damaged.path, b"z" * damaged.bytes)  # of the right size
    again, _ = push(dataset, uri)
    assert [file.path for file in again.send] == [damaged.path]
    assert store.holds(damaged.path, upload_of(dataset, damaged))


def test_data_is_prepared_like_a_dataset_in_a_bucket(cloud: CloudPlace, tmp_path: Path) -> None:
    uri = cloud.new_uri()
    (tmp_path / "rows.tsv").write_bytes(good_text(200))
    (tmp_path / "more.tsv").write_bytes(good_text(200, seed=1, codes=30))
    prepare(str(tmp_path / "rows.tsv"), tmp_path / "prepared")
    push(tmp_path / "prepared", uri)
    like = [PrepareOptions(like=where) for where in (uri, str(tmp_path / "prepared"))]
    one, two = (prepare(str(tmp_path / "more.tsv"), tmp_path / f"{n}", options=o) for n, o in enumerate(like))
    assert (one.digest, one.encoding_digest) == (two.digest, two.encoding_digest)


def test_a_missing_or_denied_bucket_is_reported(cloud: CloudPlace, dataset: Path) -> None:
    with pytest.raises(StorageError, match="its bucket is not there"):
        push(dataset, cloud.new_uri().replace("a-bucket", "no-such-bucket"))
    cloud.proxy.faults.append(cloud.refusal(403, times=99))
    with pytest.raises(StorageError, match="refused") as caught:
        push(dataset, cloud.new_uri())
    assert "permission to list" in (caught.value.remedy or "")


def test_ctrl_c_ends_a_hanging_push_and_the_next_push_continues(
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
    assert "cloudrec train --dataset" in done.stderr  # the next step
