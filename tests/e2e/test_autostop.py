"""`--autostop`: the guard scales idle GPU nodes to zero, `train` says so, and `up` brings them back."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_sandbox_session import Laptop, until


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    made = Laptop(tmp_path)
    yield made
    made.run("sandbox", "stop")
    until(lambda: not made.pids(), "no process is left")


# One round of the guard some minutes from now, with the sandbox's cloud. Prints its lines, and the GPU nodes.
ROUND = """
import json, os, sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from cloudrec.app import AppContext
from cloudrec.app.choosing import choose
from cloudrec.home import Home
from cloudrec.keeper.guard import Guard, halting
from cloudrec.kubernetes.client.client import Kube

cloud, minutes = sys.argv[1], float(sys.argv[2])
application = AppContext(home=Home(root=Path(os.environ["CLOUDREC_HOME"])), environment=os.environ)
cluster = choose(application, provider_name=cloud, cluster_name=None)
target = application.provider(cloud).access(cluster).target
said = []
with Kube.connect(target) as kube:
    if minutes:
        later = lambda: datetime.now(UTC) + timedelta(minutes=minutes)
        halt = halting(application.home.root, os.environ)
        guard = Guard(kube=kube, namespace=target.namespace, halt=halt, now=later, report=said.append)
        assert guard.round(), said
    print(json.dumps({"said": said, "gpus": len(kube.list("Node", labels=dict(target.node_selector)))}))
"""


class Inside:
    """The guard's round at a later time, with its cloud and the cluster's API."""

    def __init__(self, laptop: Laptop, cloud: str) -> None:
        session = laptop.session(cloud)
        assert session is not None
        home = laptop.home / "sandbox" / cloud / "home"
        real = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "AZURE_"))}
        self._environment = {**real, **session["variables"], "CLOUDREC_HOME": str(home)}
        self._cloud = cloud

    def gpus(self) -> int:
        return int(self._run(0)["gpus"])

    def round(self, minutes: float) -> str:
        return "\n".join(self._run(minutes)["said"])

    def _run(self, minutes: float) -> dict[str, Any]:
        words = [sys.executable, "-P", "-c", ROUND, self._cloud, str(minutes)]
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.mark.slow
@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
def test_idle_gpu_nodes_are_stopped_and_up_brings_them_back(laptop: Laptop, cloud: str) -> None:
    made = laptop.run("--sandbox", "up", cloud, "--yes", "--autostop", "10m")
    assert made.returncode == 0, made.stderr
    inside = Inside(laptop, cloud)
    assert inside.gpus() == 2
    # The test's own real time counts as well, so both rounds are some minutes away from the limit.
    assert "scaled to zero" not in inside.round(5)
    said = inside.round(11)
    idle = re.search(r"no run was active for (\d+) minutes: the GPU nodes are scaled to zero", said)
    assert idle is not None, said
    assert 11 <= int(idle[1]) < 16, said
    until(lambda: inside.gpus() == 0, "the nodes end")
    stopped = laptop.run("--sandbox", "train", "--yes")
    assert stopped.returncode == 3, stopped.stderr
    assert f"cluster '{cloud}' has no GPU nodes: they are scaled to zero when no run was" in stopped.stderr
    assert f"`cloudrec up {cloud} --cluster {cloud}` brings them back" in stopped.stderr
    again = laptop.run("--sandbox", "up", cloud, "--yes", "--autostop", "10m")
    assert again.returncode == 0, again.stderr
    until(lambda: inside.gpus() == 2, "the nodes are back")
    shown = json.loads(laptop.run("--sandbox", "status", "-o", "json").stdout)
    assert [each["state"] for each in shown["clusters"]] == ["READY"]
    down = laptop.run("--sandbox", "down", cloud, "--yes")
    assert "no resources remain" in down.stdout, down.stderr
