"""`up` with an unreachable Kubernetes API, on every cloud: READY means usable."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from cloudrec import app
from cloudrec.app import AppContext
from cloudrec.app.access import SERVICE_VARIABLE, admits_by_address
from cloudrec.providers.base.protocol import CreatesClusters
from tests.conformance.support_clouds import Cloud, Site

TITLE = "conformance"
ADDONS = "CLOUDREC_CLUSTER_ADDONS"  # the stand-ins' environment skips add-ons


class Shell:
    """The command line in one home, in an environment where `up` installs add-ons."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud, self.folder = cloud, folder
        self.application = AppContext(home=Site(cloud, folder).home, environment=self.environment())

    def environment(self) -> Mapping[str, str]:
        return {name: value for name, value in self.cloud.env.items() if name != ADDONS}

    def run(self, *arguments: str, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        home = {"CLOUDREC_HOME": str(self.folder / "home"), "CLOUDREC_CLUSTER_OWNER": "tester"}
        return subprocess.run(
            [sys.executable, "-m", "cloudrec", *arguments],
            cwd=self.folder,
            env={**os.environ, **self.environment(), **home, **more},
            input=said,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def up(self, *options: str, said: str = "", **more: str) -> subprocess.CompletedProcess[str]:
        settings = [
            word
            for name, value in self.cloud.ways.settings.items()
            for word in ("--set", f"cluster.settings.{name}={value}")
        ]
        return self.run("up", self.cloud.name, "--cluster", TITLE, *settings, *options, said=said, **more)


def test_up_admits_this_machine_and_changes_the_access_in_place(site: Site, tmp_path: Path) -> None:
    shell = Shell(site.cloud, tmp_path)
    provider = shell.application.provider(site.cloud.name)
    if not admits_by_address(provider):
        return  # identities, not addresses, decide who reaches its API
    nowhere = {SERVICE_VARIABLE: "http://127.0.0.1:9/"}
    lost = shell.up("--dry-run", "-o", "json", **nowhere)
    assert lost.returncode == 3
    error = json.loads(lost.stdout)["error"]
    assert "public address was not found (127.0.0.1: " in error["message"]
    assert "--access ADDRESS" in error["remedy"]
    named = shell.up("--dry-run", "--access", "198.51.100.0/24", **nowhere)
    assert named.returncode == 0, named.stderr
    made = shell.up("--yes", **{ADDONS: "none"})
    assert made.returncode == 0, made.stderr
    assert "the Kubernetes API admits 203.0.113.7/32; this machine is 203.0.113.7/32" in made.stderr
    shown = json.loads(shell.run("access", "--cluster", TITLE, "-o", "json").stdout)
    assert shown["access"] == {
        "cluster": TITLE,
        "who": "203.0.113.7/32",
        "address": "203.0.113.7",
        "is_admitted": True,
    }
    site.cloud.control(address="198.51.100.9")
    assert not json.loads(shell.run("access", "--cluster", TITLE, "-o", "json").stdout)["access"][
        "is_admitted"
    ]
    moved = shell.run("access", "auto", "--cluster", TITLE, "--yes", **{ADDONS: "none"})
    assert moved.returncode == 0, moved.stderr
    assert "change" in moved.stderr
    shown = json.loads(shell.run("access", "--cluster", TITLE, "-o", "json").stdout)
    assert (shown["access"]["who"], shown["access"]["is_admitted"]) == ("198.51.100.9/32", True)
    planned = json.loads(shell.up("--dry-run", "-o", "json").stdout)["clusters"][0]["actions"]
    assert {action["step"] for action in planned} == {"keep"}


WAYS_IN = {
    "aws": f"aws ssm start-session --target INSTANCE .*--name cloudrec-{TITLE} .*",
    "azure": f"az aks command invoke --resource-group cloudrec-{TITLE} --name cloudrec-{TITLE} .*",
    "gcp": f"gcloud compute ssh VM --tunnel-through-iap .* describe cloudrec-{TITLE} .*",
}


def test_up_refuses_a_private_api_that_this_machine_would_not_reach(site: Site, tmp_path: Path) -> None:
    shell = Shell(site.cloud, tmp_path)
    creates = isinstance(shell.application.provider(site.cloud.name), CreatesClusters)
    refused = shell.up("--access", "private", "--yes")
    if not creates:
        assert refused.returncode == 0, refused.stderr  # an adopted cluster's network is its owner's
        return
    assert refused.returncode == 3, refused.stderr
    assert (
        "is private: only the cluster's network reaches it, and this machine is not in it" in refused.stderr
    )
    assert "--access auto admits this machine's address only; or add --force" in refused.stderr
    assert re.search(WAYS_IN[site.cloud.name], refused.stderr)
    assert "a VPN or peering to it" in refused.stderr
    assert site.cloud.state() == []
    planned = shell.up("--dry-run", "--access", "private", "--force")
    assert planned.returncode == 0, planned.stderr
    assert "note: the Kubernetes API of cluster 'conformance' is private" in planned.stderr
    assert site.cloud.state() == []


def test_an_unreachable_cluster_is_not_ready_and_every_command_says_what_is_missing(
    site: Site, tmp_path: Path
) -> None:
    shell = Shell(site.cloud, tmp_path)
    if not isinstance(shell.application.provider(site.cloud.name), CreatesClusters):
        return  # its API is that of a separate stand-in
    made = shell.up("--access", "private", "--force", "--ttl", "8h", "--yes", "-o", "json")
    assert made.returncode == 1, made.stderr
    (cluster,) = json.loads(made.stdout)["clusters"]
    assert cluster["state"] == "NOT READY"
    assert [each["what"] for each in cluster["missing"]] == ["add-ons", "guard"]
    assert all("does not answer" in each["reason"] for each in cluster["missing"])
    assert all(
        "--access auto" in each["remedy"] or "cloudrec access auto" in each["remedy"]
        for each in cluster["missing"]
    )
    assert all(f"cloudrec addons install --cluster {TITLE}" in each["remedy"] for each in cluster["missing"])
    (shown,) = json.loads(shell.run("status", "-o", "json").stdout)["clusters"]
    assert (shown["state"], shown["missing"]) == ("NOT READY", cluster["missing"])
    table = shell.run("status").stdout
    assert f"{TITLE} is NOT READY: add-ons: " in table
    assert "access auto" in table
    again = shell.up("--access", "private", "--force", "--yes")
    assert again.returncode == 1
    assert "exists and costs $" in again.stdout
    assert f"`cloudrec down --cluster {TITLE}` removes it" in again.stdout
    examined = shell.run("doctor", "--cluster", TITLE)
    assert examined.returncode == 3
    assert "not ready: add-ons, guard, Kubernetes API" in examined.stderr
    assert "access auto" in examined.stderr
    tried = shell.run("train", "--provider", site.cloud.name, "--image", "registry.example/x", "--dry-run")
    assert f"cluster '{TITLE}' is NOT READY: add-ons" in tried.stderr
    assert shell.run("down", "--cluster", TITLE, "--yes").returncode == 0
    assert site.cloud.state() == []


def test_a_cluster_of_a_killed_up_is_never_shown_as_ready(site: Site, tmp_path: Path) -> None:
    shell = Shell(site.cloud, tmp_path)
    site.cloud.env = dict(shell.environment())
    code = site.run("up", action=re.escape(site.cloud.ways.control_plane), when="after")
    assert code == -signal.SIGKILL
    site.cloud.control(kill=None)
    (view,) = app.clusters(shell.application)
    assert view.state != "READY"
    assert [each.what for each in view.missing] == ["add-ons"]
    assert "did not finish" in view.missing[0].reason


def test_skipped_addons_are_not_missing_and_up_explains_the_consequence(site: Site, tmp_path: Path) -> None:
    if site.cloud.name == "kubernetes":
        return  # its nodes have no price, and the cluster no expiry
    shell = Shell(site.cloud, tmp_path)
    done = shell.up("--ttl", "8h", "--yes", "-o", "json", **{ADDONS: "none"})
    assert done.returncode == 0, done.stderr
    (cluster,) = json.loads(done.stdout)["clusters"]
    assert (cluster["state"], cluster["missing"]) == ("READY", [])
    assert "its add-ons are not changed" in done.stderr
    assert f"cloudrec down {site.cloud.name} --expired --yes" in done.stderr
    assert [view.state for view in app.clusters(shell.application)] == ["READY"]
