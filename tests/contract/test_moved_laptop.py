"""A laptop in another network: `status` says so, `train` ends after few attempts, and `access auto` helps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cloudrec import app
from cloudrec.errors import PreflightError
from cloudrec.spec.load import load
from tests.conformance.support_clouds import Cloud, Site, stand_in, until

# Azure's stand-in is the fastest; `make soak` covers AWS. On Google Cloud identities decide, not addresses.
CLOUDS = [pytest.param("aws", marks=pytest.mark.soak), pytest.param("azure")]
HERE, THERE = "203.0.113.7", "198.51.100.9"


def unanswered(server: Cloud) -> int:
    """The requests to the API server that got no answer."""
    return sum(call["status"] == "unanswered" for call in server.calls())


def _reachable(server: Cloud) -> list[bool]:
    """Whether the API server answers the cloud's users at their address, for each token."""
    return [each.get("reachable", True) for each in server.settings()["tokens"]]


def shown(site: Site) -> tuple[str, list[str]]:
    (view,) = app.clusters(site.application)
    return view.state, [each.reason for each in view.missing]


@pytest.mark.parametrize("name", CLOUDS)
def test_a_moved_laptop_is_reported_refused_in_few_attempts_and_admitted_again(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in("kubernetes") as server, stand_in(name) as cloud:
        monkeypatch.setenv("SSL_CERT_FILE", server._announcement["certificate_authority"])
        for variable, value in cloud.env.items():  # for the kubeconfig's token command
            monkeypatch.setenv(variable, value)
        cloud.reset()
        cloud.control(kubernetes=server._announcement)
        site = Site(cloud, tmp_path)
        site.up()
        assert shown(site) == ("READY", [])
        cloud.control(address=THERE)
        until(
            lambda: any(not each.get("reachable", True) for each in server.settings()["tokens"]), "it moved"
        )
        state, (reason,) = shown(site)
        assert state == "NOT READY"
        assert f"this machine's address is {THERE} now" in reason
        assert f"admits {HERE}/32" in reason
        assert unanswered(server) == 0  # `status` needs none of the API
        with pytest.raises(PreflightError, match=f"this machine's address is {THERE} now") as caught:
            _train(site, tmp_path)
        assert (caught.value.exit_code, caught.value.remedy) == (
            3,
            "`cloudrec access auto --cluster conformance` admits this machine",
        )
        assert 1 <= unanswered(server) <= 2
        cluster = app.choose(site.application, provider_name=name, cluster_name="conformance")
        moved = cluster.model_copy(update={"access": "auto"})
        plan = app.up(site.application, moved, decide=lambda _plan: True)
        assert {action.step.value for action in plan.changes} == {"change"}
        assert shown(site) == ("READY", [])
        until(lambda: all(_reachable(server)), "it is back")
        before = unanswered(server)
        assert _train(site, tmp_path) is None
        assert unanswered(server) == before
        site.down()
        assert cloud.state() == []


def _train(site: Site, folder: Path) -> Any:
    """A dry run, which asks the cluster all that a launch asks."""
    flags: dict[tuple[str, ...], tuple[str, Any]] = {
        ("cluster", "provider"): ("PROVIDER", site.cloud.name),
        ("train", "image"): ("--image", "registry.example/cloudrec@sha256:" + "0" * 64),
        ("train", "settings", "wait_for_nodes"): ("--set", True),  # device plugins are not installed
        ("trainer", "dataset_path"): ("--dataset", "/mnt/lustre/data"),
    }
    loaded = load(None, environment={}, flags=flags, folder=folder)
    return app.train(site.application, loaded, (), decide=lambda _launch: False)
