"""A dataset of 660 GB fits on the default nodes of each cloud, and one that fits nowhere is refused first.

Through the command line, on the clouds' stand-ins with the Kubernetes stand-in behind them: the nodes report
the ephemeral storage that their cloud's rules leave, which the launcher compares with what the pods request.
The dataset is its dataset.json, which states the sizes; `train` reads no more of it before the launch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudrec.launchers.base.results_store import open_place
from cloudrec.providers.base.access import KubernetesAccess
from tests.conformance.support_clouds import Site, stand_in, until
from tests.unit.data.support_push import write_manifest

TITLE = "conformance"
GB = 10**9
_TRIES = 20
LEAST_GB_S = 2.0
COLUMNS = 80
OWNER = {"CLOUDREC_CLUSTER_OWNER": "tester"}  # of the cluster that `Site` makes


def manifest(folder: Path, size_gb: float) -> bytes:
    """The dataset.json of a dataset whose files have this size."""
    folder.mkdir()
    kinds = ("labels", "dense", "sparse")
    files = {
        kind: {"path": f"train/shard-00000.{kind}.npy", "bytes": int(size_gb * GB / 3), "crc32": "00000000"}
        for kind in kinds
    }
    write_manifest(
        folder, {"train": {"rows": 1, "shards": [{"name": "shard-00000", "rows": 1, "files": files}]}}
    )
    return (folder / "dataset.json").read_bytes()


def cloudrec(site: Site, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user types it."""
    environment = {**os.environ, **site.cloud.env, "CLOUDREC_HOME": str(site.home.root), **OWNER}
    command = [sys.executable, "-m", "cloudrec", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def planned(site: Site, uri: str, *words: str) -> subprocess.CompletedProcess[str]:
    return cloudrec(site, "up", site.cloud.name, "--cluster", TITLE, "--dataset", uri, "--dry-run", *words)


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_a_dataset_of_660_gb_has_a_tier_on_the_default_nodes_of_each_cloud(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in(name) as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        server.control(processes=False)
        for variable, value in cloud.env.items():  # for the kubeconfig's token command, and for the storage
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        del cloud.env["CLOUDREC_CLUSTER_ADDONS"]  # the device plugins make the GPUs allocatable
        monkeypatch.delenv("CLOUDREC_CLUSTER_ADDONS", raising=False)
        site = Site(cloud, tmp_path)
        site.up()
        access = site.application.provider(name).access(site.cluster)
        assert isinstance(access, KubernetesAccess)
        uri, huge = f"{access.storage}/data/criteo-1tb", f"{access.storage}/data/huge"
        for place, size in ((uri, 660.0), (huge, 40_000.0)):
            text = manifest(tmp_path / place.rpartition("/")[2], size)
            open_place(place).write("dataset.json", text)
        _check_plan(site, uri, huge)
        _check_run(site, access, uri, huge)


def _check_plan(site: Site, uri: str, huge: str) -> None:
    """`up` names the tier, the rate and whose number it is, in one line; it refuses before any change."""
    said = planned(site, uri)
    assert said.returncode == 0, said.stderr
    (line,) = [each for each in said.stderr.splitlines() if each.startswith("  data ")]
    print(f"{site.cloud.name}: {line.strip()}")
    assert len(line) <= COLUMNS
    data = document(planned(site, uri, "-o", "json"))["clusters"][0]["data"]
    assert data["tier"] == "local"
    assert data["size_gb"] == pytest.approx(660)
    assert data["read_gb_s"] >= LEAST_GB_S
    assert data["basis"] in line
    assert data["source"]
    calls = len(site.cloud.calls())
    refused = planned(site, huge, "--set", "train.data_tier=local")
    assert refused.returncode == 3
    assert "no room on the nodes for the dataset of 40,000 GB" in refused.stderr
    assert "local disks: " in refused.stderr
    assert site.cloud.changing(site.cloud.calls(calls)) == []


def _check_run(site: Site, access: KubernetesAccess, uri: str, huge: str) -> None:
    """`train` requests the room from nodes that have it, and refuses before the launch where none has."""
    command = ("train", "--cluster", TITLE, "--dry-run", "-o", "json", "--image", f"r/i@sha256:{'0' * 64}")
    ready: list[subprocess.CompletedProcess[str]] = []

    def is_ready() -> bool:  # the nodes join, and the cloud's grants count, some time after `up`
        ready.append(cloudrec(site, *command, "--dataset", uri))
        assert len(ready) < _TRIES, ready[-1].stderr
        return ready[-1].returncode == 0 or "nodes" not in ready[-1].stderr

    until(is_ready, "nodes for the run")
    print(f"{site.cloud.name}: {ready[-1].stderr.splitlines()[:1]}")
    launch = document(ready[-1])
    assert launch["data"]["tier"] == "local"
    (job,) = [each for each in launch["launch"]["objects"] if each["kind"] == "Job"]
    pod = job["spec"]["template"]["spec"]
    resources = pod["containers"][0]["resources"]
    requested, limit = (
        int(resources[each]["ephemeral-storage"].removesuffix("Gi")) for each in ("requests", "limits")
    )
    assert requested <= limit
    if access.target.local_path:  # the dataset is on a path of the node, which pods request no room of
        paths = [each["hostPath"]["path"] for each in pod["volumes"] if "hostPath" in each]
        assert access.target.local_path in paths
    else:
        assert requested > 660 / 1.0737
    refused = cloudrec(site, *command, "--dataset", huge, "--data-tier", "local")
    assert refused.returncode == 3
    assert "40,000 GB" in json.loads(refused.stdout)["error"]["message"]
    mounted = document(cloudrec(site, *command, "--dataset", huge))
    assert mounted["data"]["tier"] == "bucket"
    assert mounted["data"]["read_gb_s"] is None
    (job,) = [each for each in mounted["launch"]["objects"] if each["kind"] == "Job"]
    assert "/mnt/bucket/data/huge" in json.dumps(job)
