"""A cloud is added by the files of docs/add-a-cloud.md alone: no other file of the packages changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.contract.support_guides import follow
from tests.e2e.support_bench import SMALL
from tests.trainer.support_dataset import write_dataset

ROOT = Path(__file__).parents[2]
SAME = ("samples_seen", "samples_digest", "model_digest", "auc", "logloss")
PACKAGES = ("cloudrec", "cloudrec_contract", "trainer", "templates")
READ = """
import json
from cloudrec.image import work
from cloudrec.image.records import BuiltImage
from cloudrec.kubernetes.addons.table import addon_of
from cloudrec.kubernetes.client.target import pod_security
from cloudrec.providers.base.facts import image_targets
from cloudrec.providers.kubernetes.nodes.nodes import pool_of
from cloudrec.providers.kubernetes.settings import KubernetesSettings
from cloudrec.transport import profile_of
settings = KubernetesSettings(storage="acme://bucket/runs")
have = {"nvidia.com/gpu": "8", "acme.example/rdma": "8", "cpu": "8", "memory": "64Gi"}
ready = [{"type": "Ready", "status": "True"}]
node = {
    "metadata": {"name": "n"},
    "spec": {"providerID": "acme://1"},
    "status": {"conditions": ready, "allocatable": have},
}
pool = pool_of([node], settings)
print(json.dumps({
    "fabric": pool.fabric,
    "cards": pool.resources.get("acme.example/rdma"),
    "notices": [pool.notices, pool.notice_s],
    "profile": dict(profile_of(pool.fabric, "r1").environment).get("NCCL_NET"),
    "security": pod_security(pool.fabric),
    "addon": addon_of("acme-device-plugin").version,
    "image": "acme" in image_targets(),
}))
"""


NOTICE = """
import time
from trainer.preempt import StopFlag, open_watches
with open_watches(["acme"], {}) as watches:
    flag, end = StopFlag(watches), time.monotonic() + 60
    while not flag.requested and time.monotonic() < end:
        time.sleep(0.1)
    print(f"{flag.notice.source}: {flag.notice.reason}")
"""


STORE = """
from cloudrec.data import stores
from cloudrec.launchers.base.results_store import open_place
from trainer.checkpoint.store.base import open_store
open_store("acme://bucket/runs/r/checkpoints").create("step", b"a checkpoint")
print(open_place("acme://bucket/runs/r").read("checkpoints/step").decode())
print(stores.read(stores.open_store("acme://bucket/runs"), "r/checkpoints/step").decode())
"""


class AcmeServer(ThreadingHTTPServer):
    """Acme's metadata service."""

    seconds_left = ""


class _Handler(BaseHTTPRequestHandler):
    server: AcmeServer

    def do_GET(self) -> None:
        body = self.server.seconds_left.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay silent."""


@pytest.fixture
def metadata() -> Iterator[AcmeServer]:
    with AcmeServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def environment(tmp_path: Path, metadata: AcmeServer) -> dict[str, str]:
    tree = tmp_path / "tree"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    before = {path for path in tree.rglob("*") if path.is_file()}
    follow("add-a-cloud.md", tree)
    added = [path.relative_to(tree) for path in tree.rglob("*") if path.is_file() and path not in before]
    assert all("acme" in str(path) for path in added)
    (tmp_path / "cloud").mkdir()
    return {
        **os.environ,
        "PYTHONPATH": str(tree),
        "CLOUDREC_HOME": str(tmp_path / "home"),
        "ACME_CLOUD": str(tmp_path / "cloud"),
        "ACME_METADATA": f"127.0.0.1:{metadata.server_port}",
    }


def run(environment: dict[str, str], *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments],
        env=environment,
        cwd=environment["ACME_CLOUD"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_the_trainer_launchers_and_data_push_use_the_store_of_a_new_cloud(
    environment: dict[str, str], tmp_path: Path
) -> None:
    assert run(environment, "-c", STORE).splitlines() == ["a checkpoint", "a checkpoint"]
    assert (tmp_path / "cloud/bucket/runs/r/checkpoints/step").read_bytes() == b"a checkpoint"


def test_shared_code_reads_the_facts_of_a_new_cloud(environment: dict[str, str]) -> None:
    assert json.loads(run(environment, "-c", READ)) == {
        "fabric": "acme-rdma",
        "cards": "8",
        "notices": ["acme", 60],
        "profile": "Acme",
        "security": "privileged",
        "addon": "v1",
        "image": True,
    }
    text = run(environment, "-m", "cloudrec", "image", "build", "--help")
    assert "acme (Acme R1)" in " ".join(text.split())


def wait_until(ready: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 240
    while not ready():
        assert time.monotonic() < give_up
        time.sleep(0.2)


def test_a_new_cloud_goes_up_trains_is_preempted_resumes_and_goes_down(
    environment: dict[str, str], metadata: AcmeServer, tmp_path: Path
) -> None:
    write_dataset(tmp_path / "data", train_rows=6000)
    cloud, runs = tmp_path / "cloud", tmp_path / "home" / "runs"
    cloudrec = ("-m", "cloudrec")
    run(environment, *cloudrec, "up", "acme", "--yes")
    assert [path.suffix for path in cloud.iterdir()] == [".json"]
    train = (*cloudrec, "train", "--provider", "acme")
    spot = (
        *train,
        "--dataset",
        str(tmp_path / "data"),
        "--set",
        "cluster.capacity=spot",
        "--nproc-per-node",
        "1",
    )
    flags = ("--", *SMALL, "--num_epochs", "2")
    assert "preemption_notices:\\n- acme" in run(environment, *spot, "--dry-run", "-o", "json", *flags)
    run(environment, *spot, "--name", "undisturbed", *flags)
    run(environment, *spot, "--name", "preempted", "--detach", *flags)
    metrics = runs / "preempted" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and '"step"' in metrics.read_text(encoding="utf-8"))
    metadata.seconds_left = "60"
    wait_until(lambda: "INTERRUPTED" in run(environment, *cloudrec, "status", "preempted", "-o", "json"))
    assert "acme: this machine is preempted" in run(environment, *cloudrec, "logs", "preempted")
    metadata.seconds_left = ""
    run(environment, *train, "--resume", "preempted")
    one, two = (
        json.loads((runs / name / "summary.json").read_text()) for name in ("undisturbed", "preempted")
    )
    assert {key: one[key] for key in SAME} == {key: two[key] for key in SAME}
    run(environment, *cloudrec, "down", "acme", "--yes")
    assert list(cloud.iterdir()) == []
